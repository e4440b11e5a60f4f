"""Times of one training: waiting for data, and the step, apart."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any

Clock = Callable[[], float]


@dataclass(frozen=True)
class EpochTime:
    """What one epoch took.

    Attributes:
        epoch: its number, from 1.
        samples: that were trained on.
        fill_s: reading the data once, before the first epoch; 0 for all others.
        wait_s: in `next(iterator)`, and in starting to iterate.
        step_s: all the rest of the epoch.
    """

    epoch: int
    samples: int
    fill_s: float
    wait_s: float
    step_s: float

    @property
    def epoch_s(self) -> float:
        """Seconds in all, filling included."""
        return self.fill_s + self.wait_s + self.step_s

    @property
    def samples_per_s(self) -> float:
        """Samples per second, filling included."""
        return self.samples / self.epoch_s

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {**asdict(self), "epoch_s": self.epoch_s, "samples_per_s": self.samples_per_s}


@dataclass(frozen=True)
class Run:
    """One training.

    Attributes:
        seed: of the weights and the order.
        epochs: what each took.
        accuracy: on the test set, 0 to 1.
    """

    seed: int
    epochs: tuple[EpochTime, ...]
    accuracy: float

    @property
    def total_s(self) -> float:
        """Seconds of all epochs, filling included."""
        return sum(epoch.epoch_s for epoch in self.epochs)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "seed": self.seed,
            "total_s": self.total_s,
            "accuracy": self.accuracy,
            "epochs": [epoch.as_dict() for epoch in self.epochs],
        }


def time_epoch(
    batches: Iterable[Any],
    learn: Callable[[Any], int],
    *,
    epoch: int,
    fill_s: float = 0.0,
    synchronise: Callable[[], object] = lambda: None,
    on_samples: Callable[[int], object] = lambda samples: None,
    clock: Clock = time.perf_counter,
) -> EpochTime:
    """Trains for one epoch and says what it took.

    Args:
        batches: the loader.
        learn: takes one step on a batch, and returns its number of samples.
        epoch: its number, from 1.
        fill_s: what filling took before it.
        synchronise: waits for the device; called once, when the epoch ends: in the loop it would
            keep the device from running ahead.
        on_samples: told the samples so far, after each step.
        clock: seconds.
    """
    samples = 0
    began = asked = clock()
    iterator = iter(batches)  # workers start here, which is waiting too
    batch = next(iterator, None)
    wait_s = clock() - asked
    while batch is not None:
        samples += learn(batch)
        on_samples(samples)
        asked = clock()
        batch = next(iterator, None)
        wait_s += clock() - asked
    synchronise()
    return EpochTime(epoch, samples, fill_s, wait_s, clock() - began - wait_s)
