"""Times and what is said of them: rates of a run, medians with their spread, interleaved rounds."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

Clock = Callable[[], float]


class Say(Protocol):
    """Is told what is being done."""

    def __call__(self, text: str, detail: str = "") -> None:
        """Shows a text, and a detail where there is room."""
        ...


def nothing() -> None:
    """Changes nothing; stands for waiting where there is nothing to wait for."""


@dataclass(frozen=True)
class Stopwatch:
    """How a run is timed.

    Attributes:
        finish: waits until the device has done what was asked of it.
        clock: seconds, from any start.
    """

    finish: Callable[[], None] = nothing
    clock: Clock = time.perf_counter

    def steady(self, batches: Iterator[Any], *, skip: int, take: int) -> Run:
        """The run over `take` batches that come after the first `skip`.

        The clock starts when the last of the skipped batches has come. Starting worker processes
        and drawing the order of the epoch do not count; nor does the end of the epoch.

        Args:
            batches: an epoch that has just begun.
            skip: batches not timed, at least as many as are made ahead.
            take: batches timed, or as many as there are.
        """
        for _ in itertools.islice(batches, skip):
            pass
        self.finish()
        start, samples = self.clock(), 0
        for batch in itertools.islice(batches, take):
            samples += len(batch[1])
        self.finish()
        return Run(samples, self.clock() - start)

    def whole(self, epoch: Iterable[Any], *, epochs: int) -> Run:
        """The run over whole epochs, their beginning and their end included.

        Args:
            epoch: gives an epoch's batches whenever it is iterated over.
            epochs: how many times.
        """
        self.finish()
        start, samples = self.clock(), 0
        for _ in range(epochs):
            for batch in epoch:
                samples += len(batch[1])
        self.finish()
        return Run(samples, self.clock() - start)


@dataclass(frozen=True)
class Run:
    """One timed run.

    Attributes:
        samples: samples that came.
        seconds: what it took.
    """

    samples: int
    seconds: float

    @property
    def rate(self) -> float:
        """Samples per second."""
        return self.samples / self.seconds


@dataclass(frozen=True)
class Spread:
    """The values of all rounds.

    Attributes:
        values: one per round, in order.

    Example:
        >>> spread = Spread((2.0, 9.0, 3.0))
        >>> spread.median, spread.least, spread.most
        (3.0, 2.0, 9.0)
    """

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        """The middle value, or the mean of the middle two."""
        return statistics.median(self.values)

    @property
    def least(self) -> float:
        """The smallest value."""
        return min(self.values)

    @property
    def most(self) -> float:
        """The largest value."""
        return max(self.values)

    def over(self, other: Spread) -> Spread:
        """Round by round, this value over the other's: what disturbs a round disturbs both."""
        return Spread(tuple(a / b for a, b in zip(self.values, other.values, strict=True)))

    def minus(self, other: Spread) -> Spread:
        """Round by round, this value less the other's."""
        return Spread(tuple(a - b for a, b in zip(self.values, other.values, strict=True)))

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "median": self.median,
            "least": self.least,
            "most": self.most,
            "values": list(self.values),
        }


def interleaved(
    tasks: Mapping[str, Callable[[], float]], rounds: int, say: Say, *, what: str = ""
) -> dict[str, Spread]:
    """The values of all tasks, each of which is run once in every round.

    Every round begins with another task, so that none always follows the same one.

    Args:
        tasks: by name; each returns its value.
        rounds: how many values of each.
        say: told what is run.
        what: said before the name.
    """
    names = list(tasks)
    values: dict[str, list[float]] = {name: [] for name in names}
    for number in range(rounds):
        for name in rotated(names, number):
            say(f"{what}round {number + 1} of {rounds}", name)
            values[name].append(tasks[name]())
    return {name: Spread(tuple(found)) for name, found in values.items()}


def rotated(names: Sequence[str], number: int) -> list[str]:
    """The names, begun at another one for every number.

    Example:
        >>> rotated(["a", "b", "c"], 4)
        ['b', 'c', 'a']
    """
    start = number % len(names)
    return [*names[start:], *names[:start]]
