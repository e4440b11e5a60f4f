"""What each worker process takes for a batch while all of them work.

The workers are those of an ordinary `DataLoader` over the user's own dataset, so that whatever asks
`get_worker_info()` for it finds it. Times are taken around it: a task says when a worker takes it
up, and a collate_fn, in place of the user's, when its batch is made.
"""

from __future__ import annotations

import itertools
import sys
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
from torch.utils.data import DataLoader, get_worker_info

from hotset.doctor.facts import Fetch, fetch_of
from hotset.doctor.findings import WorkerTime
from hotset.errors import SampleError

SECONDS = 3.0
"""From the first batch on; each worker makes one at least."""
LONGEST = 3
"""So many times that is waited for workers that have made none, and no longer."""
BATCHES = 4
"""Of each worker, if there is time, behind the first."""
Took = tuple[int, int, float, float]
"""A worker's number, and for a batch its items, seconds, and seconds of the processor."""


def siblings_of(
    loader: DataLoader[Any],
    *,
    seconds: float = SECONDS,
    sample_s: float = 0.0,
    is_limited: bool = False,
) -> tuple[WorkerTime, ...]:
    """Starts the loader's workers on a few batches of its dataset, and times each of them.

    The loader, its dataset, its sampler and its generators stay as they were.

    Args:
        loader: with workers.
        seconds: that it may take from the first batch on.
        sample_s: what one process takes for a sample, so far as that is known; where a batch would
            take too long, smaller ones are timed, and what they take is scaled up.
        is_limited: whether the libraries in each worker are held to one thread.

    Returns:
        One for each worker that had something to do; empty where the loader has no workers.

    Raises:
        SampleError: if a worker fails; says how.
    """
    if not loader.num_workers:
        return ()
    fetch = fetch_of(loader)
    items = fetch.items
    if sample_s > 0:
        items = max(1, min(items, int(seconds / (BATCHES + 1) / sample_s)))
    run = _Run(loader.num_workers)
    try:
        with warnings.catch_warnings():
            # torch said so when the user's own loader was made.
            warnings.filterwarnings("ignore", "This DataLoader will create", UserWarning)
            run.take(_loader_of(loader, fetch, items, is_limited), seconds)
    except Exception as error:  # the user's own code runs in the workers, and may raise anything
        raise SampleError(f"a worker of {fetch.name} failed: {_told(error)}") from error
    return run.times(fetch.items)


def _told(error: Exception) -> str:
    """The last line of an error, which says what was raised in a worker."""
    name, lines = type(error).__name__, str(error).strip().splitlines()
    last = lines[-1] if lines else ""
    return last if last.startswith(name) else f"{name}: {last}"


class _Run:
    """Takes the times of workers, from when all of them have come to work.

    Args:
        workers: that there are.
    """

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._starting: defaultdict[int, list[Took]] = defaultdict(list)
        self._working: defaultdict[int, list[Took]] = defaultdict(list)

    def take(self, loader: DataLoader[Any], seconds: float) -> None:
        """Runs the workers for so long, from the first batch on."""
        batches, first = iter(loader), 0.0
        try:
            for took in batches:
                now = time.perf_counter()
                first = first or now
                # Until the last of them has begun, the others share the cores with its imports.
                are_all = len(self._starting) == self._workers
                (self._working if are_all else self._starting)[took[0]].append(took)
                if self._is_over(now - first, seconds):
                    return
        finally:
            # Left to the collector, they would go on while the next ones are timed.
            batches._shutdown_workers()  # type: ignore[attr-defined]  # it has workers

    def _is_over(self, passed: float, seconds: float) -> bool:
        least = 0
        if len(self._working) == self._workers:
            least = min(map(len, self._working.values()))
        is_late = passed > seconds and len(self._starting) == self._workers
        return least >= BATCHES or is_late or passed > LONGEST * seconds

    def times(self, size: int) -> tuple[WorkerTime, ...]:
        """Of each worker that had something to do, for batches of so many items."""
        return tuple(self._time_of(number, size) for number in sorted(self._starting))

    def _time_of(self, number: int, size: int) -> WorkerTime:
        # The first waits for modules and files to be opened as well.
        takes = self._working[number] or self._starting[number][1:] or self._starting[number]
        items, wall, cpu = (sum(took[place] for took in takes) for place in (1, 2, 3))
        return WorkerTime(
            number=number,
            batches=len(takes),
            ms=1000 * size * wall / items,
            cores=cpu / wall if wall > 0 else 0.0,
        )


def _loader_of(
    loader: DataLoader[Any], fetch: Fetch, items: int, is_limited: bool
) -> DataLoader[Any]:
    """A loader with the same workers, that gives times in place of batches."""
    tasks = _Tasks(fetch, items)
    how: dict[str, Any] = {"batch_sampler": tasks}
    if fetch.makes_batches:
        how = {"batch_size": None, "sampler": tasks}
    if fetch.is_stream:
        how = {"batch_size": None if fetch.makes_batches else items}
    made: DataLoader[Any] = DataLoader(
        fetch.dataset,
        **how,
        num_workers=loader.num_workers,
        collate_fn=_Timed(fetch.collate, fetch.makes_batches),
        timeout=loader.timeout,
        worker_init_fn=_Limited(loader.worker_init_fn) if is_limited else loader.worker_init_fn,
        multiprocessing_context=loader.multiprocessing_context,
        prefetch_factor=loader.prefetch_factor,
        generator=torch.Generator(),  # its seed is drawn from here, not from the user's
        in_order=False,  # else the fast ones would wait for a slow one, and leave it the cores
    )
    if fetch.is_stream:
        # torch takes no sampler for a stream; its own counts to no end, and says no times.
        vars(made)["sampler" if fetch.makes_batches else "batch_sampler"] = tasks
    return made


class _Tasks:
    """Tasks for workers without end: of the samples in order or at random, as the loader has them.

    Args:
        fetch: how the loader comes by its batches.
        items: of a batch.
    """

    def __init__(self, fetch: Fetch, items: int) -> None:
        self._fetch, self._items = fetch, items

    def __iter__(self) -> Iterator[Any]:
        fetch = self._fetch
        size = fetch.size if fetch.is_keyed else self._items
        rows: Iterator[list[Any]] = fetch.rows(size)
        if fetch.is_stream:
            rows = itertools.repeat([None] * size)
        is_one = fetch.makes_batches and not fetch.is_keyed
        for indices in rows:
            yield _Task(indices[0] if is_one else indices)


class _Task:
    """What a worker is asked for; it arrives there as just that, and starts the clock."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def __reduce__(self) -> Any:
        return _taken_up, (self._value,)


_begun = [0.0, 0.0]
"""When this worker took up its task: by the clock, and by its processor's."""


def _taken_up(value: Any) -> Any:
    _begun[:] = time.perf_counter(), time.process_time()
    return value


class _Timed:
    """Makes a batch as the user's collate_fn does, and says what it took to get there."""

    def __init__(self, collate: Callable[[Any], Any], makes_batches: bool) -> None:
        self._collate, self._makes_batches = collate, makes_batches

    def __call__(self, items: Any) -> Took:
        count = 1 if self._makes_batches else len(items)
        self._collate(items)
        info = get_worker_info()
        number = 0 if info is None else info.id
        began, began_cpu = _begun
        return number, count, time.perf_counter() - began, time.process_time() - began_cpu


class _Limited:
    """Begins a worker as the user does, and then holds its libraries to one thread each."""

    def __init__(self, begin: Callable[[int], None] | None) -> None:
        self._begin = begin

    def __call__(self, number: int) -> None:
        if self._begin is not None:
            self._begin(number)
        torch.set_num_threads(1)
        if "cv2" in sys.modules:
            sys.modules["cv2"].setNumThreads(0)
        if "numba" in sys.modules:
            sys.modules["numba"].set_num_threads(1)
        if find_spec("threadpoolctl") is not None:
            with suppress(ImportError):
                import_module("threadpoolctl").threadpool_limits(limits=1)
