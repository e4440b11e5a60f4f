"""The times of a loop in a few figures: epochs, their starts, steady state, sawtooth. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hotset.doctor.findings import Range, Sawtooth
from hotset.doctor.measure import Floats, Ints, Timeline

WARM_UP = 3
"""Batches at the very beginning whose steps are left out: they load and compile."""
DRAWS = 400
BLOCK = 8
"""Batches that are drawn together, since neighbours are alike; more of a very long loop."""
MOST_BLOCKS = 500
LEAST_SAWTOOTH = 0.5
LEAST_PERIODS = 4
LEAST_LATER = 16
"""Later epochs stand for all, where they have so many batches or half of the first epoch's."""
FEW = 0.25
"""Where usual waits of two epochs differ by no more of what their means do, a few differ."""


@dataclass(frozen=True)
class EpochTime:
    """An epoch of a loop, in milliseconds.

    Attributes:
        number: from 0 on.
        batches: that came.
        start_ms: waiting for the first batch, its iterator included.
        wait_ms: waiting for each of the others, in the mean; 0 where there was but one.
        step_ms: between two batches, in the mean.
        end_ms: until it was known that there are no more; 0 where the loop was left before.
        seconds: all of it.
        is_whole: whether it came to its end.
    """

    number: int
    batches: int
    start_ms: float
    wait_ms: float
    step_ms: float
    end_ms: float
    seconds: float
    is_whole: bool


@dataclass(frozen=True)
class LoopTimes:
    """What a loop takes; all in milliseconds for a batch, in the mean, where nothing else is said.

    Steady state is all but the first batch of an epoch; the first epoch counts only where there is
    no other with enough batches.

    Attributes:
        epochs: each of them.
        batches: that came.
        samples: in a batch, in the mean; 0 where that cannot be told.
        wait_ms: steady; where the work of a device was seen, how long that stood still.
        step_ms: steady; all that is not waiting.
        start_ms: of an epoch: waiting for its first batch and for its end, beyond a steady wait.
        per_epoch: batches of an epoch that its start is spread over.
        first_wait_ms: steady wait of the first epoch, where another is steady; else None.
        step_cores: cores that the step keeps busy.
        is_device_seen: whether `wait_ms` is that of a device.
        gain: how many times faster the loop would be with an infinitely fast loader.
        sawtooth: whether waits have the workers' period; None without workers.
        steady: batches that count.
        is_first_usual: whether only a few batches of the first epoch waited longer than those of
            later ones, and the usual ones did not.
        usual_step_ms: the median of the steps that `step_ms` is the mean of.
        alone_step_ms: the median of steps that no worker ran beside: those at the end of an epoch,
            when all batches are made. None where there are none.
    """

    epochs: tuple[EpochTime, ...]
    batches: int
    samples: float
    wait_ms: float
    step_ms: float
    start_ms: float
    per_epoch: int
    first_wait_ms: float | None
    step_cores: float
    is_device_seen: bool
    gain: Range
    sawtooth: Sawtooth | None
    steady: int
    is_first_usual: bool = False
    usual_step_ms: float = 0.0
    alone_step_ms: float | None = None

    @property
    def start_share_ms(self) -> float:
        """A batch's share of its epoch's start."""
        return self.start_ms / self.per_epoch

    @property
    def loop_ms(self) -> float:
        """All of it."""
        return self.wait_ms + self.step_ms + self.start_share_ms

    @property
    def wait_share(self) -> float:
        """The share of the time that is waiting, epoch starts included."""
        return 1 - self.step_ms / self.loop_ms if self.loop_ms else 0.0

    @property
    def samples_per_s(self) -> float:
        """Samples, or where they cannot be counted batches, in a second."""
        return 1000 * (self.samples or 1.0) / self.loop_ms if self.loop_ms else 0.0


def loop_times(
    timeline: Timeline,
    *,
    workers: int = 0,
    per_epoch: int | None = None,
    is_persistent: bool = False,
) -> LoopTimes:
    """The figures of a timeline.

    Args:
        timeline: with a batch at least.
        workers: processes that made the batches.
        per_epoch: batches of a whole epoch; None takes what was seen.
        is_persistent: whether workers stay, so that what starting them took in the first epoch is
            no other's.
    """
    epochs = tuple(_epoch(timeline, number) for number in range(len(timeline.end_s)))
    epochs = tuple(epoch for epoch in epochs if epoch.batches)
    place = np.arange(len(timeline)) - np.searchsorted(timeline.epoch, timeline.epoch)
    waits, is_seen = _waits(timeline, place)
    is_first = timeline.epoch == timeline.epoch[0]
    inner = place > 0
    later = int((inner & ~is_first).sum())
    has_later = later >= max(LEAST_LATER, workers) or (
        later >= LEAST_PERIODS and 2 * later >= int((inner & is_first).sum())
    )
    steady = inner & ~is_first if has_later else inner
    if not steady.any():  # epochs of a single batch
        steady = np.ones(len(timeline), bool) if is_first.all() else ~is_first
    steps = _steps(timeline, waits)
    warm = _warm(steady, steps)
    wait_ms, step_ms = 1000 * float(waits[steady].mean()), 1000 * _mean(steps[warm])
    counted = [epoch for epoch in epochs if epoch.number != timeline.epoch[0]] or list(epochs)
    seen = [epoch for epoch in counted if epoch.is_whole]
    ends = [epoch.end_ms for epoch in seen or epochs if epoch.is_whole]
    whole = [epoch.batches for epoch in epochs if epoch.is_whole]
    start_ms = float(np.mean([epoch.start_ms for epoch in counted]))
    start_ms = max(0.0, start_ms + (float(np.mean(ends)) if ends else 0.0) - wait_ms)
    if is_persistent and len(epochs) == 1:
        start_ms = 0.0
    per_epoch = per_epoch or (max(whole) if whole else max(each.batches for each in epochs))
    return LoopTimes(
        epochs=epochs,
        batches=len(timeline),
        samples=float(timeline.samples[steady].mean()),
        wait_ms=wait_ms,
        step_ms=step_ms,
        start_ms=start_ms,
        per_epoch=per_epoch,
        first_wait_ms=1000 * float(waits[inner & is_first].mean())
        if has_later and (inner & is_first).any()
        else None,
        step_cores=_ratio(timeline.cpu_s[warm], timeline.step_s[warm]),
        is_device_seen=is_seen,
        gain=_gain(waits[warm], steps[warm], start_ms / per_epoch),
        sawtooth=_sawtooth(waits[steady], place[steady], workers) if workers else None,
        steady=int(steady.sum()),
        is_first_usual=has_later and _is_few(waits[inner & is_first], waits[steady], workers),
        usual_step_ms=1000 * _median(steps[warm]),
        alone_step_ms=_alone_ms(timeline, steps) if workers else None,
    )


def _warm(steady: npt.NDArray[np.bool_], steps: Floats) -> npt.NDArray[np.bool_]:
    """Batches whose steps count: the first few of all only where no other's is known."""
    known = ~np.isnan(steps)
    for warm in (steady & (np.arange(len(steps)) >= WARM_UP), steady):
        if (warm & known).any():
            return warm
    return np.ones(len(steps), bool)


def _epoch(timeline: Timeline, number: int) -> EpochTime:
    bounds = np.searchsorted(timeline.epoch, (number, number + 1))
    where = slice(*bounds.tolist())
    if where.start == where.stop:
        return EpochTime(number, 0, 0.0, 0.0, 0.0, 0.0, 0.0, is_whole=False)
    waits, steps = timeline.wait_s[where], timeline.step_s[where]
    end = float(timeline.end_s[number])
    is_whole = not np.isnan(end)
    seconds = float(waits.sum() + np.nansum(steps)) + (end if is_whole else 0.0)
    return EpochTime(
        number=number,
        batches=len(waits),
        start_ms=1000 * float(waits[0]),
        wait_ms=1000 * float(waits[1:].mean()) if len(waits) > 1 else 0.0,
        step_ms=1000 * _mean(steps),
        end_ms=1000 * end if is_whole else 0.0,
        seconds=seconds,
        is_whole=is_whole,
    )


def _waits(timeline: Timeline, place: Ints) -> tuple[Floats, bool]:
    """What was lost before each batch: where the device was seen, how long it stood still.

    While the device still works on the batch before, waiting for the next one costs nothing. The
    device counts where it was seen before most batches; for the others, waiting does.
    """
    is_known = ~np.isnan(timeline.idle_s)
    if 2 * int(is_known.sum()) > int((place > 0).sum()):
        return np.where(is_known, timeline.idle_s, timeline.wait_s), True
    return timeline.wait_s, False


def _steps(timeline: Timeline, waits: Floats) -> Floats:
    """All that is not waiting, batch by batch."""
    return timeline.step_s + (timeline.wait_s - waits)


def _mean(values: Floats) -> float:
    """Of those that are known; 0 where none is."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else 0.0


def _median(values: Floats) -> float:
    """Of those that are known; 0 where none is."""
    known = values[~np.isnan(values)]
    return float(np.median(known)) if len(known) else 0.0


def _alone_ms(timeline: Timeline, steps: Floats) -> float | None:
    """The median step of each epoch's last batch of usual size: little is left to be made."""
    is_usual = timeline.samples == np.median(timeline.samples)
    found = []
    for epoch in np.flatnonzero(~np.isnan(timeline.end_s)):
        usual = np.flatnonzero(is_usual & (timeline.epoch == epoch))
        if len(usual) and usual[-1] >= WARM_UP:
            found.append(steps[usual[-1]])
    known = np.array(found)[~np.isnan(found)] if found else np.empty(0)
    return 1000 * float(np.median(known)) if len(known) else None


def _ratio(cpu: Floats, wall: Floats) -> float:
    total = float(np.nansum(wall))
    return float(np.nansum(cpu)) / total if total > 0 else 0.0


def _gain(waits: Floats, steps: Floats, start_ms: float) -> Range:
    """The loop's time by the step's, with the error of a few batches: a bootstrap over blocks.

    Source: Kunsch (1989), "The jackknife and the bootstrap for general stationary observations".
    """
    known = ~np.isnan(steps)
    waits, steps = waits[known], steps[known]
    if not len(steps) or steps.mean() <= 0:
        return Range(math.inf, math.inf, math.inf)
    draws = np.random.default_rng(0)
    size = max(min(BLOCK, len(steps)), -(-len(steps) // MOST_BLOCKS))
    blocks = -(-len(steps) // size)
    starts = draws.integers(0, len(steps) - size + 1, (DRAWS, blocks))
    data, step = (
        _block_means(waits, size)[starts].mean(1),
        _block_means(steps, size)[starts].mean(1),
    )
    with np.errstate(divide="ignore", invalid="ignore"):  # a draw may be all of steps of no time
        drawn = np.where(step > 0, 1 + (data + start_ms / 1000) / step, np.inf)
    value = 1 + (waits.mean() + start_ms / 1000) / steps.mean()
    # Not between the draws: halfway to infinity is nowhere.
    low, high = np.quantile(drawn, (0.05, 0.95), method="inverted_cdf")
    return Range(float(value), float(min(low, value)), float(max(high, value)))


def _block_means(values: Floats, size: int) -> Floats:
    """The mean of each run of so many neighbours, by where it begins."""
    sums = np.concatenate(([0.0], np.cumsum(values)))
    return (sums[size:] - sums[:-size]) / size


def _is_few(first: Floats, later: Floats, workers: int) -> bool:
    """Whether the means of two epochs' waits differ by a few of them."""
    if not len(first):
        return False
    usual = _usual(first, workers) - _usual(later, workers)
    return usual <= FEW * float(first.mean() - later.mean())


def _usual(waits: Floats, workers: int) -> float:
    """The median of turns of all workers, since each turn waits but once."""
    size = min(max(1, workers), len(waits))
    turns = waits[: len(waits) // size * size].reshape(-1, size)
    return float(np.median(turns.mean(1)))


def _sawtooth(waits: Floats, place: Ints, period: int) -> Sawtooth:
    """How much of what waits differ goes by the worker whose turn it is."""
    turns = place % period
    means = np.array([_mean(waits[turns == turn]) for turn in range(period)])
    total = float(((waits - waits.mean()) ** 2).sum())
    strength = float(((means[turns] - waits.mean()) ** 2).sum()) / total if total > 0 else 0.0
    is_long = len(waits) >= LEAST_PERIODS * period
    return Sawtooth(
        period=period,
        strength=strength,
        wait_ms=tuple(1000 * float(mean) for mean in means),
        is_seen=period > 1 and is_long and strength >= LEAST_SAWTOOTH,
    )
