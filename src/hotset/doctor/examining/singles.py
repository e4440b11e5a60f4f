"""Times of single samples, read in this process as the plain loader reads them."""

from __future__ import annotations

import itertools
import math
import statistics
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import getitem
from typing import Any

from hotset.doctor.facts import Fetch
from hotset.doctor.findings import SampleTimes, SlowSample
from hotset.doctor.measure import Clock
from hotset.sources.nesting import path_of
from hotset.sources.opened import Opened, note_sample
from hotset.sources.source import spread

MOST = 1000
"""Samples that are timed."""
SECONDS = 3.0
"""That they may take, both times together."""
WORST = 5
KEPT = 16
"""Finished samples that are kept, to make batches of."""
TOLD = 3
"""Failures that are told one by one; where nothing else comes, so many are enough."""


@dataclass(frozen=True, eq=False)
class Singles:
    """What single samples take, in this process, in milliseconds.

    Attributes:
        times: of each the shorter of both times, so that what held up the machine once is not taken
            for the sample's; None where there are none to be had.
        first_ms: of a sample the first time, in the mean, without the very first of all, which
            waits for modules and files to be opened as well; None where there is no other.
        ms: of a sample the second time, in the mean.
        noise_ms: the error of that mean.
        cores: that were kept busy the second time.
        items: some finished ones.
        notes: which could not be read, and why.
    """

    times: SampleTimes | None = None
    first_ms: float | None = None
    ms: float = 0.0
    noise_ms: float = 0.0
    cores: float = 1.0
    items: list[Any] = field(default_factory=list)
    notes: tuple[str, ...] = ()


def singles_of(
    fetch: Fetch,
    *,
    seconds: float = SECONDS,
    most: int = MOST,
    clock: Clock = time.perf_counter,
    cpu_clock: Clock = time.process_time,
) -> Singles:
    """Reads samples spread over a dataset twice, or the first ones of a stream, and times each.

    Generators may move. A sample that fails is noted, and left out.

    Args:
        fetch: how the loader comes by its batches.
        seconds: that it may take; two samples are read at least.
        most: samples that are read at most.
        clock: gives seconds.
        cpu_clock: gives seconds of the processor, all threads of the process together.
    """
    why = _unreadable(fetch)
    if why:
        return Singles(notes=(why,))
    timing = _Timing(fetch, clock, cpu_clock)
    first = timing.read(_order(fetch, most), seconds / 2, is_kept=True)
    if not first:
        return Singles(notes=timing.notes())
    again = timing.read(list(first), seconds / 2, is_kept=False) or first
    later = list(again.values())
    behind = list(first.values())[1:]
    return Singles(
        times=None if fetch.is_keyed else _times(first, again, timing.paths),
        first_ms=1000 * statistics.fmean(behind) if behind else None,
        ms=1000 * statistics.fmean(later),
        noise_ms=1000 * statistics.stdev(later) / math.sqrt(len(later)) if len(later) > 1 else 0.0,
        cores=timing.cores,
        items=timing.items,
        notes=timing.notes(),
    )


class _Timing:
    """Reads items, and keeps their times, paths and failures."""

    def __init__(self, fetch: Fetch, clock: Clock, cpu_clock: Clock) -> None:
        self._fetch, self._clock, self._cpu_clock = fetch, clock, cpu_clock
        self._failures: dict[int, str] = {}
        self.items: list[Any] = []
        self.paths: dict[int, str] = {}
        self.cores = 1.0

    def read(self, indices: Sequence[int], seconds: float, *, is_kept: bool) -> dict[int, float]:
        """Seconds by index, of as many as there is time for, but one at least."""
        times: dict[int, float] = {}
        begun_cpu, begun = self._cpu_clock(), self._clock()
        until = begun + seconds
        for index, read in _reads(self._fetch, indices):
            if self._clock() >= until and (times or len(self._failures) >= TOLD):
                break
            with Opened() as opened:
                note_sample(index)
                began = self._clock()
                try:
                    item = read()
                except Exception as error:  # the user's dataset may raise anything
                    if self._fetch.is_stream:
                        if not isinstance(error, StopIteration):
                            self._failures[index] = f"{type(error).__name__}: {error}"
                        break  # a generator that raised gives nothing any more
                    self._failures[index] = f"{type(error).__name__}: {error}"
                    continue
                times[index] = self._clock() - began
            if is_kept:
                self.paths[index] = self._path(index, list(opened.files()))
                if len(self.items) < KEPT:
                    self.items.append(item)
        wall = self._clock() - begun
        self.cores = (self._cpu_clock() - begun_cpu) / wall if wall > 0 else 1.0
        return times

    def _path(self, index: int, opened: list[str]) -> str:
        """The file that was opened; else the one that the dataset's attributes name."""
        if opened:
            return opened[0]
        return "" if self._fetch.is_stream else path_of(self._fetch.dataset, index)

    def notes(self) -> tuple[str, ...]:
        """What could not be read."""
        name = self._fetch.name
        told = [
            f"{name} failed at index {index}: {error}" for index, error in self._failures.items()
        ]
        more = len(told) - TOLD
        return (*told[:TOLD], *([f"{name} failed at {more} more indices"] if more > 0 else []))


def _unreadable(fetch: Fetch) -> str:
    """Why nothing can be read; empty where something can."""
    if fetch.is_stream:
        try:
            if iter(fetch.dataset) is not iter(fetch.dataset):
                return ""
        except Exception as error:  # the user's dataset may raise anything
            return f"{fetch.name} gives no samples: {type(error).__name__}: {error}"
        return (
            f"{fetch.name} gives the same iterator every time: samples taken from it would be "
            "missing in the loop, so none were timed"
        )
    if fetch.length is None:
        return f"{fetch.name} has no length, so nobody knows its indices: no samples were timed"
    return "" if fetch.length else f"{fetch.name} is empty"


def _order(fetch: Fetch, most: int) -> list[int]:
    """Indices such that any number of the first ones is spread over the dataset."""
    if fetch.is_stream:
        return list(range(most))
    last = fetch.size - 1 if fetch.is_keyed else 0
    found = spread(max(1, (fetch.length or 0) - last), most)
    bits = len(found).bit_length()
    places = (int(f"{place:0{bits}b}"[::-1], 2) for place in range(1 << bits))
    return [found[place] for place in places if place < len(found)]


def _reads(fetch: Fetch, indices: Sequence[int]) -> Iterator[tuple[int, Callable[[], Any]]]:
    """For each index what reads it."""
    if fetch.is_stream:
        stream = iter(fetch.dataset)
        try:
            yield from zip(indices, itertools.repeat(partial(next, stream)), strict=False)
        finally:
            if isinstance(stream, Generator):
                stream.close()  # it may hold files open
        return
    for index in indices:
        if fetch.is_keyed:
            rows = list(range(index, min(index + fetch.size, fetch.length or 0)))
            yield index, partial(getitem, fetch.dataset, rows)
        else:
            yield index, partial(getitem, fetch.dataset, index)


def _times(first: dict[int, float], again: dict[int, float], paths: dict[int, str]) -> SampleTimes:
    ms = {index: 1000 * min(took, again.get(index, took)) for index, took in first.items()}
    ordered = sorted(ms.values())
    worst = sorted(ms, key=lambda index: (-ms[index], index))[:WORST]
    return SampleTimes(
        count=len(ms),
        p50_ms=_quantile(ordered, 0.5),
        p99_ms=_quantile(ordered, 0.99),
        worst=tuple(SlowSample(index, ms[index], paths[index]) for index in worst),
    )


def _quantile(ordered: Sequence[float], share: float) -> float:
    """The least value that so large a share of all does not exceed."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]
