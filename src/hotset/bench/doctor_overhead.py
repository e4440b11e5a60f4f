"""What `hotset.watch` takes of a loop."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import hotset
from hotset.bench.doctor_settings import DoctorSettings
from hotset.bench.timing import Say, Spread, Stopwatch, interleaved
from hotset.doctor.machine.usage import SETTLED

READY, SLICED = "ready", "sliced"
BATCH, COLUMNS = 64, 32


@dataclass(frozen=True)
class WatchCost:
    """A loop with and without `hotset.watch`.

    Attributes:
        loader: "ready" for batches that lie in a list, "sliced" for slices of tensors.
        step_ms: of the training step, which waits busily; 0 for none.
        bare_us: microseconds of a batch without it.
        watched_us: with it.
    """

    loader: str
    step_ms: float
    bare_us: Spread
    watched_us: Spread

    @property
    def ratio(self) -> Spread:
        """The loop's time with it over that without, round by round."""
        return self.watched_us.over(self.bare_us)

    @property
    def added_us(self) -> Spread:
        """Microseconds of a batch that it adds, round by round."""
        return self.watched_us.minus(self.bare_us)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "loader": self.loader,
            "step_ms": self.step_ms,
            "bare_us_per_batch": self.bare_us.as_dict(),
            "watched_us_per_batch": self.watched_us.as_dict(),
            "ratio": self.ratio.as_dict(),
            "added_us_per_batch": self.added_us.as_dict(),
        }


@dataclass(frozen=True)
class Overhead:
    """All of it.

    Attributes:
        costs: with and without, for each loader and step.
        once_ms: milliseconds of beginning and ending to watch, once for each watched loader.
    """

    costs: Sequence[WatchCost]
    once_ms: Spread

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "loops": [cost.as_dict() for cost in self.costs],
            "once_ms": self.once_ms.as_dict(),
        }


class Sliced:
    """Batches of rows in memory, in order: about as cheap as a loader can be.

    Args:
        batches: how many.
    """

    def __init__(self, batches: int) -> None:
        self._x = torch.zeros(batches * BATCH, COLUMNS)
        self._y = torch.zeros(batches * BATCH, dtype=torch.int64)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for start in range(0, len(self._x), BATCH):
            yield self._x[start : start + BATCH], self._y[start : start + BATCH]


def measure_watch(settings: DoctorSettings, watch: Stopwatch, say: Say) -> Overhead:
    """Whole epochs with and without, in turn.

    Args:
        settings: batches, step and rounds.
        watch: times the epochs; the step waits by its clock.
        say: told what is being done.
    """
    loaders: dict[str, Iterable[Any]] = {
        READY: list(Sliced(settings.batches)),
        SLICED: Sliced(settings.batches),
    }
    loops = [(READY, settings.step_ms), (SLICED, settings.step_ms), (READY, 0.0)]
    tasks: dict[str, Callable[[], float]] = {}
    for number, (name, step_ms) in enumerate(loops):
        loader, step = loaders[name], _step(step_ms / 1000, watch)
        tasks[f"{number} bare"] = _bare(loader, step, settings.batches, watch)
        tasks[f"{number} watched"] = _watched(loader, step, settings.batches, watch)
    tasks["once"] = _once(loaders[READY], watch)
    for task in tasks.values():  # imports what is imported at first use
        task()
    found = interleaved(tasks, settings.watch_rounds, say, what="watched and bare, ")
    costs = [
        WatchCost(name, step_ms, found[f"{number} bare"], found[f"{number} watched"])
        for number, (name, step_ms) in enumerate(loops)
    ]
    return Overhead(costs, found["once"])


def _step(seconds: float, watch: Stopwatch) -> Callable[[Any], object]:
    def busy(batch: Any) -> None:
        until = watch.clock() + seconds
        while watch.clock() < until:
            pass

    return busy if seconds else _nothing


def _nothing(batch: Any) -> None:
    """A step that costs nothing."""


def _bare(
    loader: Iterable[Any], step: Callable[[Any], object], batches: int, watch: Stopwatch
) -> Callable[[], float]:
    def run() -> float:
        start = watch.clock()
        for batch in loader:
            step(batch)
        return (watch.clock() - start) / batches * 1e6

    return run


def _watched(
    loader: Iterable[Any], step: Callable[[Any], object], batches: int, watch: Stopwatch
) -> Callable[[], float]:
    def run() -> float:
        with hotset.watch(loader) as watched:
            _begin(watched)  # timed by itself
            return _bare(watched, step, batches, watch)()

    return run


def _begin(watched: Iterable[Any]) -> None:
    """So many batches that the machine has been looked at, as once in a loop."""
    for _ in itertools.islice(watched, SETTLED):
        pass


def _once(loader: Iterable[Any], watch: Stopwatch) -> Callable[[], float]:
    def run() -> float:
        start = watch.clock()
        watched = hotset.watch(loader)
        _begin(watched)
        watched.stop()
        return (watch.clock() - start) * 1e3

    return run
