"""The figures of a loop, from times that are written down."""

from __future__ import annotations

import dataclasses
import math
import tracemalloc
from typing import Any

import numpy as np
import pytest

from hotset.doctor.findings import Range, Sawtooth
from hotset.doctor.judging.loop import EpochTime, LoopTimes, loop_times
from hotset.doctor.measure import Timeline

NAN = math.nan


def timeline(
    epochs: list[tuple[list[float], list[float], float]],
    *,
    idle: list[float] | None = None,
    cpu: float = 0.5,
    samples: int = 4,
) -> Timeline:
    """Of each epoch the waits and the steps, in seconds, and its end."""
    waits = [wait for each, _, _ in epochs for wait in each]
    steps = [step for _, each, _ in epochs for step in each]
    number = [n for n, (each, _, _) in enumerate(epochs) for _ in each]
    return Timeline(
        epoch=np.array(number, np.int64),
        begin_s=np.zeros(len(waits)),
        wait_s=np.array(waits),
        step_s=np.array(steps),
        cpu_s=cpu * np.array(steps),
        samples=np.full(len(waits), samples, np.int64),
        idle_s=np.full(len(waits), NAN) if idle is None else np.array(idle),
        end_s=np.array([end for _, _, end in epochs]),
    )


def of(epochs: list[tuple[list[float], list[float], float]], **how: Any) -> LoopTimes:
    """Figures of such a timeline."""
    options = {name: how.pop(name) for name in ("workers", "per_epoch") if name in how}
    return loop_times(timeline(epochs, **how), **options)


def test_the_first_epoch_and_the_later_ones() -> None:
    """Steady is what comes behind an epoch's first batch, in later epochs; its start is apart."""
    cold = ([16.0, 4.0, 4.0, 4.0, 4.0], [2.0] * 5, 1.0)
    warm = ([8.0, 1.0, 1.0, 1.0, 1.0], [2.0] * 5, 0.5)
    loop = of([cold, warm])
    assert loop.epochs == (
        EpochTime(0, 5, 16000.0, 4000.0, 2000.0, 1000.0, 43.0, is_whole=True),
        EpochTime(1, 5, 8000.0, 1000.0, 2000.0, 500.0, 22.5, is_whole=True),
    )
    assert (loop.batches, loop.samples, loop.steady, loop.per_epoch) == (10, 4.0, 4, 5)
    assert (loop.wait_ms, loop.step_ms, loop.start_ms) == (1000.0, 2000.0, 7500.0)
    assert loop.first_wait_ms == 4000.0
    assert (loop.start_share_ms, loop.loop_ms, loop.wait_share) == (1500.0, 4500.0, 1 - 2 / 4.5)
    assert loop.samples_per_s == pytest.approx(4 / 4.5)
    assert loop.step_cores == 0.5
    assert not loop.is_device_seen
    assert loop.gain == Range(2.25, 2.25, 2.25)
    assert loop.sawtooth is None
    assert 5 * loop.loop_ms == 1000 * loop.epochs[1].seconds


def test_one_epoch() -> None:
    """It is all there is; the steps of its first batches load and compile, and are left out."""
    loop = of([([3.0, 1.0, 1.0, 1.0, 1.0], [9.0, 9.0, 9.0, 2.0, 2.0], NAN)])
    assert (loop.wait_ms, loop.step_ms, loop.start_ms) == (1000.0, 2000.0, 2000.0)
    assert (loop.first_wait_ms, loop.per_epoch, loop.steady) == (None, 5, 4)
    assert not loop.epochs[0].is_whole
    assert loop.epochs[0].end_ms == 0.0


def test_a_later_epoch_of_too_few_batches() -> None:
    """Does not stand for all."""
    loop = of([([2.0] + [1.0] * 6, [4.0] * 7, 0.0), ([2.0, 9.0], [4.0, 4.0], NAN)])
    assert (loop.wait_ms, loop.steady, loop.first_wait_ms) == ((6 * 1.0 + 9.0) / 7 * 1000, 7, None)


def test_an_epoch_that_was_left() -> None:
    """Its end is not known, and is not taken for none."""
    later = [1.0] * 4
    steps = [2.0] * 5
    loop = of(
        [([5.0, *later], steps, 0.0), ([3.0, *later], steps, 2.0), ([3.0, *later], steps, NAN)]
    )
    assert loop.start_ms == 1000 * (3.0 + 2.0 - 1.0)
    assert loop.per_epoch == 5


def test_an_end_that_was_not_seen_in_a_later_epoch() -> None:
    """Is taken to be that of the first one."""
    whole = ([16.0, 4.0, 4.0, 4.0, 4.0], [2.0] * 5, 1.5)
    left = ([8.0, 1.0, 1.0, 1.0, 1.0], [2.0] * 5, NAN)
    loop = of([whole, left])
    assert (loop.wait_ms, loop.start_ms) == (1000.0, 8500.0)
    assert loop.epochs[1].end_ms == 0.0


def test_batches_of_a_whole_epoch_as_they_are_given() -> None:
    """The start is spread over more than was seen."""
    loop = of([([11.0, 1.0, 1.0, 1.0, 1.0], [2.0] * 5, NAN)], per_epoch=100)
    assert (loop.start_ms, loop.per_epoch, loop.loop_ms) == (10000.0, 100, 3100.0)
    assert loop.gain.value == pytest.approx(1.55)


@pytest.mark.parametrize("first", [9.0, 1.0])
def test_epochs_of_one_batch(first: float) -> None:
    """Each batch waits for its epoch's start and end; the first of all counts only alone."""
    loop = of([([first], [2.0], 4.0), ([3.0], [2.0], 1.0), ([5.0], [2.0], 1.0)])
    assert (loop.wait_ms, loop.step_ms, loop.start_ms) == (4000.0, 2000.0, 1000.0)
    assert (loop.per_epoch, loop.loop_ms, loop.steady) == (1, 7000.0, 2)
    assert loop.gain.value == 3.5
    assert loop.first_wait_ms is None


@pytest.mark.parametrize(("step", "gain"), [(2.0, 2.75), (NAN, math.inf)])
def test_a_single_batch(step: float, gain: float) -> None:
    """Is all that is known."""
    loop = of([([3.0], [step], 0.5)])
    assert (loop.batches, loop.steady, loop.wait_ms, loop.start_ms) == (1, 1, 3000.0, 500.0)
    assert loop.step_ms == (0.0 if math.isnan(step) else 2000.0)
    assert loop.gain == Range(gain, gain, gain)
    assert loop.wait_share == (1.0 if math.isnan(step) else 3.5 / 5.5)


def test_nothing_takes_time() -> None:
    """Shares of nothing are nothing."""
    loop = of([([0.0], [0.0], 0.0)])
    assert (loop.loop_ms, loop.wait_share, loop.samples_per_s) == (0.0, 0.0, 0.0)
    assert loop.gain.value == math.inf


def test_steps_that_are_not_known() -> None:
    """Are left out of means; the first ones stand in where no other is known."""
    loop = of([([1.0] * 6, [2.0, 2.0, 2.0, 4.0, NAN, 6.0], 0.0)])
    assert (loop.step_ms, loop.step_cores) == (5000.0, 0.5)
    assert loop.gain.value == 1.2
    left = of([([1.0, 1.0, 1.0, 1.0], [8.0, 2.0, 4.0, NAN], NAN)])
    assert left.step_ms == 3000.0
    assert left.gain.value == pytest.approx(1 + 1 / 3)
    only = of([([1.0, 1.0], [8.0, NAN], NAN)])
    assert only.step_ms == 8000.0


def test_a_device_that_was_seen() -> None:
    """Waiting costs only what the device stood still; all else is its work."""
    waits, steps = [9.0, 3.0, 3.0, 3.0, 3.0], [1.0] * 5
    loop = of([(waits, steps, 0.0)], idle=[NAN, 0.0, 1.0, 0.0, 1.0])
    assert loop.is_device_seen
    assert (loop.wait_ms, loop.step_ms) == (500.0, 3500.0)
    assert loop.wait_ms + loop.step_ms == 4000.0
    assert loop.start_ms == 8500.0
    assert loop.step_cores == 0.5


def test_a_device_that_was_seen_before_most_batches() -> None:
    """For the others the wait counts; before few of them, for all."""
    epoch = ([9.0, 3.0, 3.0, 3.0, 3.0], [1.0] * 5, 0.0)
    most = of([epoch], idle=[NAN, 0.0, NAN, 0.0, 1.0])
    assert most.is_device_seen
    assert most.wait_ms == 1000.0
    few = of([epoch], idle=[NAN, 0.0, NAN, NAN, 1.0])
    assert not few.is_device_seen
    assert few.wait_ms == 3000.0


def bursts(period: int, turns: int, late: int = 0) -> list[float]:
    """Waits for one batch in so many."""
    return [8.0 if place % period == late else 0.0 for place in range(period * turns)]


@pytest.mark.parametrize(("period", "late"), [(2, 0), (3, 2), (4, 1)])
def test_bursts_of_the_workers_period(period: int, late: int) -> None:
    """All that waits differ goes by the place, however long an epoch is."""
    waits = bursts(period, 6, late)
    epochs = [(waits, [1.0] * len(waits), 0.0), (waits[:-1], [1.0] * (len(waits) - 1), 0.0)] * 2
    found = of(epochs, workers=period).sawtooth
    assert found is not None
    wait_ms = tuple(8000.0 if place == late else 0.0 for place in range(period))
    assert found == Sawtooth(period, found.strength, wait_ms, is_seen=True)
    assert found.strength == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("waits", "workers", "strength"),
    [
        ([9.0, *bursts(3, 8)], 4, 0.0),  # another period
        ([1.0] * 33, 4, 0.0),  # even
        ([9.0, *bursts(2, 3)], 2, 1.0),  # too few to tell
        ([9.0, *bursts(2, 9)], 1, 0.0),  # one worker has no siblings
    ],
)
def test_no_bursts(waits: list[float], workers: int, strength: float) -> None:
    """Of another period, or of none, or in too few batches."""
    found = of([(waits, [1.0] * len(waits), 0.0)], workers=workers).sawtooth
    assert found is not None
    assert found.period == workers == len(found.wait_ms)
    assert found.strength == pytest.approx(strength, abs=1e-9)
    assert not found.is_seen


def noisy(count: int, seed: int) -> tuple[list[float], list[float]]:
    """Waits around 1 s in stretches of a few alike, and steps around 2 s."""
    draws = np.random.default_rng(seed)
    waits = np.repeat(draws.exponential(1.0, -(-count // 4)), 4)[:count]
    return waits.tolist(), draws.uniform(1.0, 3.0, count).tolist()


def test_the_gains_range() -> None:
    """Nine of ten ranges hold the true gain, 1.5, or nearly so; each the gain that was seen."""
    held = 0
    for seed in range(100):
        waits, steps = noisy(403, seed)
        gain = of([(waits, steps, 0.0)]).gain
        known_waits, known_steps = np.array(waits[3:]), np.array(steps[3:])
        start = max(0.0, waits[0] - np.mean(waits[1:])) / 403
        seen = 1 + (known_waits.mean() + start) / known_steps.mean()
        assert gain.value == pytest.approx(seen)
        assert gain.low < gain.value < gain.high
        held += gain.low <= 1.5 <= gain.high
    assert 80 <= held <= 97  # the same in every run


def test_a_range_is_the_same_every_time() -> None:
    """From the same times."""
    waits, steps = noisy(60, 0)
    assert of([(waits, steps, 0.0)]).gain == of([(waits, steps, 0.0)]).gain


def test_steps_that_seldom_take_time() -> None:
    """A draw without any has no end of a gain, and no warning."""
    gain = of([([1.0] * 200, [*[0.0] * 100, 1.0, *[0.0] * 99], 0.0)]).gain
    assert gain.value == pytest.approx(1 + 197.0)
    assert gain.low < gain.value
    assert gain.high == math.inf


def test_a_very_long_loop() -> None:
    """Takes no memory for its draws, and its range is narrow."""
    waits, steps = noisy(300_000, 1)
    times = timeline([(waits, steps, 0.0)])
    tracemalloc.start()
    gain = loop_times(times).gain
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 20 * times.wait_s.nbytes  # all draws of all batches would be 400 times that
    assert gain.low < gain.value < gain.high
    assert gain.high - gain.low < 0.02


def test_figures_are_plain_numbers() -> None:
    """As JSON takes them."""
    loop = of([([2.0] * 9, [1.0] * 9, 0.0)], workers=2)
    values = [getattr(loop, field.name) for field in dataclasses.fields(loop)]
    assert not [value for value in values if isinstance(value, np.generic)]
