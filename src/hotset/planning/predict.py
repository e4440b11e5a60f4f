"""What epochs will take, from what was measured. Pure: times in, a prediction out."""

from __future__ import annotations

from dataclasses import dataclass

from hotset.placement.duration import human_ms
from hotset.placement.prediction import Prediction, Verdict
from hotset.sources.sweep import WORKERS_PAY_SECONDS

LEAST_GAIN = 1.05
"""What gains less than this is not worth it: predictions are no better."""
LONGEST_STEP_MS = 1e7


@dataclass(frozen=True)
class Costs:
    """What things take, in milliseconds of one process.

    Attributes:
        samples: in an epoch.
        kept: samples that are to be kept.
        batch_size: samples in a batch.
        workers: processes of the plain loader.
        cores: processor cores there are.
        sample_ms: what the plain loader does for a sample, its share of putting a batch together
            included.
        once_ms: what of it runs once.
        rest_ms: what runs for a batch behind the cut.
        is_rest_in_workers: whether that runs in the worker processes, beside the step.
        plain_copy_ms: copying a finished batch to the device.
        copy_ms: copying what the device does not keep of a batch.
        is_copied_ahead: whether that runs beside the step.
        step_ms: training on a batch; None where that is not known.
        step_cores: cores that the step keeps busy while it runs; at most `cores`.
        busy: the share of its time that reading keeps a core busy for; the rest is waiting.
        unkept: why nothing is kept; empty where something is.
        start_ms: starting the worker processes, once in an epoch.
        hand_ms: handing a batch over from one, at least.
    """

    samples: int
    kept: int
    batch_size: int
    workers: int
    cores: int
    sample_ms: float
    once_ms: float = 0.0
    rest_ms: float = 0.0
    is_rest_in_workers: bool = False
    plain_copy_ms: float = 0.0
    copy_ms: float = 0.0
    is_copied_ahead: bool = True
    step_ms: float | None = None
    step_cores: float = 0.0
    busy: float = 1.0
    unkept: str = ""
    start_ms: float = 0.0
    hand_ms: float = 0.0

    @property
    def parallel(self) -> int:
        """Processes that read at once: more than there are cores read no faster."""
        return max(1, min(self.workers, self.cores))

    @property
    def batches(self) -> int:
        """In an epoch."""
        return -(-self.samples // self.batch_size)

    @property
    def data_ms(self) -> float:
        """What the plain loader takes for a batch."""
        return self._fed(self.sample_ms * self.batch_size)

    @property
    def starting_ms(self) -> float:
        """A batch's share of starting the workers."""
        return self.start_ms / self.batches

    def _fed(self, workers_ms: float) -> float:
        """What a batch takes that workers make, in so many milliseconds of one process."""
        if not self.workers:
            return workers_ms
        return max(workers_ms / self.parallel, self.hand_ms) + self.starting_ms

    @property
    def left_ms(self) -> float:
        """What is left of that behind the cut."""
        if self.unkept:
            return self.data_ms
        return self._fed(self.rest_ms) if self.is_rest_in_workers else self.rest_ms

    def plain_ms(self, step_ms: float) -> float:
        """A batch of the plain loader with its step, which workers run beside."""
        there = self.plain_copy_ms + step_ms
        if not self.workers:
            return self.data_ms + there
        shared = self.shared_ms(self.sample_ms * self.batch_size, step_ms)
        return max(self.data_ms, there + self.starting_ms, shared)

    def shared_ms(self, workers_ms: float, step_ms: float) -> float:
        """What a batch takes at least where the step and the workers use the same cores.

        Args:
            workers_ms: what the workers do for a batch, in milliseconds of one process.
            step_ms: what training takes for it.
        """
        return (self.step_cores * step_ms + self.busy * workers_ms) / self.cores

    def steady_ms(self, step_ms: float) -> float:
        """A batch of hotset's with its step, once all is there that is kept."""
        if self.unkept:
            return self.plain_ms(step_ms)
        if self.is_rest_in_workers and self.workers:
            shared = self.shared_ms(self.rest_ms, step_ms)
            return max(self.left_ms, self.copy_ms + step_ms + self.starting_ms, shared)
        if self.is_copied_ahead:
            return self.left_ms + max(self.copy_ms, step_ms)
        return self.left_ms + self.copy_ms + step_ms

    @property
    def filling_ms(self) -> float:
        """What runs once, for all that is kept; workers do it where that pays."""
        alone = 0.0 if self.unkept else self.kept * self.once_ms
        return alone / self.parallel if alone > 1000 * WORKERS_PAY_SECONDS else alone

    def gain(self, step_ms: float) -> float:
        """How many times faster than the plain loader's hotset's batches are."""
        plain, steady = self.plain_ms(step_ms), self.steady_ms(step_ms)
        return plain / steady if steady > 0 else (1.0 if plain == 0 else float("inf"))


def predict(costs: Costs) -> Prediction:
    """What epochs will take, and whether that is worth it."""
    step = costs.step_ms or 0.0
    plain, steady = (costs.batches * ms for ms in (costs.plain_ms(step), costs.steady_ms(step)))
    worth_below = _worth_below(costs)
    verdict, reason = _verdict(costs, worth_below, plain, steady)
    return Prediction(
        batch_size=costs.batch_size,
        workers=costs.workers,
        step_ms=costs.step_ms,
        step_cores=costs.step_cores,
        data_ms=costs.data_ms,
        rest_ms=costs.left_ms,
        copy_ms=costs.plain_copy_ms if costs.unkept else costs.copy_ms,
        plain_s=plain / 1000,
        first_s=(costs.filling_ms + steady) / 1000,
        steady_s=steady / 1000,
        gain=costs.gain(step) if steady > 0 or plain == 0 else None,
        worth_below_ms=worth_below,
        verdict=verdict,
        reason=reason,
    )


def _worth_below(costs: Costs) -> float | None:
    """The step time from which on too little is gained, by halving; see `Prediction`."""
    if costs.gain(0.0) < LEAST_GAIN:
        return 0.0
    if costs.gain(LONGEST_STEP_MS) >= LEAST_GAIN:
        return None
    low, high = 0.0, LONGEST_STEP_MS
    while high - low > 1e-6 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if costs.gain(middle) >= LEAST_GAIN else (low, middle)
    return high


def _verdict(
    costs: Costs, worth_below: float | None, plain: float, steady: float
) -> tuple[Verdict, str]:
    if costs.unkept:
        return "leave it", f"nothing of it can be kept: {costs.unkept}"
    data, step = human_ms(costs.data_ms), costs.step_ms
    left = human_ms(costs.left_ms + costs.copy_ms)
    if step is None:
        if worth_below == 0:
            return "leave it", f"the data takes {data} a batch, and {left} would be left of it"
        if worth_below is None:
            return "accelerate", f"the data takes {data} a batch, and {left} are left of it"
        below = human_ms(worth_below)
        return "it depends", f"worth it where a step takes less than {below} a batch"
    if costs.gain(step) >= LEAST_GAIN:
        words = f"{human_ms(steady)} an epoch instead of {human_ms(plain)}"
        return "accelerate", f"{words}, {_times(costs.gain(step))} as fast"
    if costs.workers and costs.data_ms <= costs.plain_copy_ms + step:
        workers = "1 worker" if costs.workers == 1 else f"{costs.workers} workers"
        is_shared = costs.plain_ms(step) > costs.plain_copy_ms + step
        return "leave it", (
            f"the step takes {human_ms(step)} a batch and the data {data} with {workers}, which "
            f"runs beside it{' on the same cores' if is_shared else ''}"
        )
    return "leave it", (
        f"the step takes {human_ms(step)} a batch and the data {data}, of which {left} would be "
        "left"
    )


def _times(gain: float) -> str:
    return f"{gain:,.0f} times" if gain >= 9.95 else f"{gain:.2g} times"
