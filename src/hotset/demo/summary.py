"""What the runs amount to: a typical epoch, ratios, and whether the accuracies agree. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from hotset.demo.measure import EpochTime, Run

Verdict = Literal["agree", "differ", "unknown"]


@dataclass(frozen=True)
class Typical:
    """The median epoch of several; its parts add up, as parts of different epochs would not.

    Attributes:
        median: the epoch in the middle, by its seconds; of an even number the faster of the two.
        fastest_s: seconds of the fastest.
        slowest_s: seconds of the slowest.
        count: how many there were.
    """

    median: EpochTime
    fastest_s: float
    slowest_s: float
    count: int

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            **self.median.as_dict(),
            "fastest_s": self.fastest_s,
            "slowest_s": self.slowest_s,
            "count": self.count,
        }


@dataclass(frozen=True)
class Summary:
    """One pipeline's runs.

    Attributes:
        runs: one per seed.
        dataset_bytes: of the arrays that both pipelines read.
        held_bytes: what the pipeline keeps besides them.
        held_what: what that is, in words.
    """

    runs: tuple[Run, ...]
    dataset_bytes: int
    held_bytes: int
    held_what: str

    def at(self, number: int) -> Typical:
        """The epochs of one number, from 0, over all seeds."""
        return typical([run.epochs[number] for run in self.runs])

    @property
    def first(self) -> Typical:
        """The first epochs, filling included."""
        return self.at(0)

    @property
    def later(self) -> Typical | None:
        """All epochs but the first; None if there was only one."""
        epochs = [epoch for run in self.runs for epoch in run.epochs[1:]]
        return typical(epochs) if epochs else None

    @property
    def steady(self) -> Typical:
        """The later epochs, or the first where there are no later ones."""
        return self.later or self.first

    @property
    def total_s(self) -> float:
        """Seconds of the median training."""
        totals = sorted(run.total_s for run in self.runs)
        return totals[(len(totals) - 1) // 2]

    @property
    def accuracies(self) -> tuple[float, ...]:
        """Test accuracies, in the order of the runs."""
        return tuple(run.accuracy for run in self.runs)

    @property
    def accuracy(self) -> float:
        """The mean test accuracy."""
        return sum(self.accuracies) / len(self.runs)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "first_epoch": self.first.as_dict(),
            "later_epochs": self.later.as_dict() if self.later else None,
            "total_s": self.total_s,
            "memory": {
                "dataset_bytes": self.dataset_bytes,
                "held_bytes": self.held_bytes,
                "held_what": self.held_what,
            },
            "test_accuracy": {
                "mean": self.accuracy,
                "lowest": min(self.accuracies),
                "highest": max(self.accuracies),
            },
            "runs": [run.as_dict() for run in self.runs],
        }


def typical(epochs: Sequence[EpochTime]) -> Typical:
    """The median epoch and the extremes."""
    ordered = sorted(epochs, key=lambda epoch: epoch.epoch_s)
    return Typical(
        median=ordered[(len(ordered) - 1) // 2],
        fastest_s=ordered[0].epoch_s,
        slowest_s=ordered[-1].epoch_s,
        count=len(ordered),
    )


@dataclass(frozen=True)
class Ratios:
    """The plain loader's seconds over hotset's: above 1, hotset takes less.

    Attributes:
        first_epoch: seconds of the first epoch, filling included.
        later_epochs: seconds of a later epoch; None if there was none.
        waiting: seconds of waiting, in a later epoch if there was one.
        training: seconds of the whole training, filling included.
    """

    first_epoch: float
    later_epochs: float | None
    waiting: float | None
    training: float

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)


def ratios(plain: Summary, fast: Summary) -> Ratios:
    """Quotients of the seconds that the summaries hold."""
    later = None
    if plain.later is not None and fast.later is not None:
        later = plain.later.median.epoch_s / fast.later.median.epoch_s
    waits = plain.steady.median.wait_s, fast.steady.median.wait_s
    return Ratios(
        first_epoch=plain.first.median.epoch_s / fast.first.median.epoch_s,
        later_epochs=later,
        waiting=waits[0] / waits[1] if waits[1] > 0 else None,
        training=plain.total_s / fast.total_s,
    )


@dataclass(frozen=True)
class Agreement:
    """Whether two pipelines learn equally well.

    Attributes:
        difference: of the mean accuracies, hotset's minus the plain loader's.
        spread: from the lowest to the highest accuracy among the seeds of one pipeline, in that
            pipeline where it is wider.
        verdict: "agree" if the difference is at most the spread; "unknown" with a single seed,
            which has none.
    """

    difference: float
    spread: float
    verdict: Verdict

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {**asdict(self), "sentence": str(self)}

    def __str__(self) -> str:
        difference = f"The mean test accuracies differ by {points(self.difference)}"
        if self.verdict == "unknown":
            return f"{difference}; a single seed has no spread to judge that by: --seeds 3 has."
        spread = f"the seeds of one pipeline by up to {points(self.spread)}"
        if self.verdict == "agree":
            return f"The test accuracies agree. {difference}, {spread}."
        return (
            f"THE TEST ACCURACIES DO NOT AGREE. {difference}, {spread}. With few seeds that can be "
            "chance; more of them (--seeds 6) tell."
        )


def agreement(plain: Sequence[float], fast: Sequence[float]) -> Agreement:
    """Compares the test accuracies of two pipelines, each 0 to 1, one per seed.

    With three seeds and no true difference, the difference of the means exceeds the wider range in
    5 of 100 cases (200,000 normal draws); with two in 22, with five in fewer than 1.

    Example:
        >>> agreement([0.80, 0.82, 0.81], [0.81, 0.82, 0.83]).verdict
        'agree'
    """
    difference = sum(fast) / len(fast) - sum(plain) / len(plain)
    spread = max(max(values) - min(values) for values in (plain, fast))
    if min(len(plain), len(fast)) < 2:
        return Agreement(difference, spread, "unknown")
    return Agreement(difference, spread, "agree" if abs(difference) <= spread else "differ")


def points(share: float) -> str:
    """A difference of shares in percentage points, without its sign.

    Example:
        >>> points(-0.0123)
        '1.23 points'
    """
    return f"{abs(share) * 100:.2f} points"
