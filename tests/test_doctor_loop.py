"""The figures of a loop, from timelines that say exactly what was waited for."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from hotset.doctor.findings import Range
from hotset.doctor.loop import EpochTime, LoopTimes, loop_times
from hotset.doctor.measure import Timeline

NAN = math.nan


def timeline_of(*epochs: Any, samples: Any = 32, idle: Any = None, ends: Any = None) -> Timeline:
    """A timeline of epochs, each a list of (wait, step) in milliseconds; one core is kept busy."""
    rows = [(number, *row) for number, epoch in enumerate(epochs) for row in epoch]
    numbers = np.array([row[0] for row in rows], np.int64)
    waits, steps = (np.array([row[k] for row in rows], float) / 1000 for k in (1, 2))
    spent = waits + np.nan_to_num(steps)
    return Timeline(
        epoch=numbers,
        begin_s=np.cumsum(spent) - spent,
        wait_s=waits,
        step_s=steps,
        cpu_s=steps.copy(),
        samples=np.broadcast_to(np.array(samples, np.int64), len(rows)).copy(),
        idle_s=np.full(len(rows), NAN) if idle is None else np.array(idle, float) / 1000,
        end_s=np.array([0.0] * len(epochs) if ends is None else ends, float) / 1000,
    )


def exact(value: float) -> Any:
    """A figure, but for the rounding of a sum."""
    return pytest.approx(value, rel=1e-12, abs=1e-12)


def test_a_later_epoch_is_steady() -> None:
    """Of two epochs the second counts; the first is told apart, and each epoch is there."""
    first = [(200, 10), *[(40, 10)] * 9]
    later = [(100, 10), *[(20, 12)] * 9]
    found = loop_times(timeline_of(first, later, ends=[6, 8]), workers=2)
    assert (found.batches, found.steady, found.per_epoch, found.samples) == (20, 9, 10, 32.0)
    assert found.wait_ms == exact(20)
    assert found.step_ms == exact(12)
    assert found.usual_step_ms == exact(12)
    assert found.start_ms == exact(100 + 8 - 20)
    assert found.first_wait_ms == exact(40)
    assert found.start_share_ms == exact(8.8)
    assert found.loop_ms == exact(40.8)
    assert found.wait_share == exact(28.8 / 40.8)
    assert found.samples_per_s == exact(32_000 / 40.8)
    assert found.gain.value == exact(40.8 / 12)
    assert found.step_cores == exact(1)
    assert not found.is_device_seen
    assert not found.is_first_usual
    numbers = [
        (e.number, e.batches, e.start_ms, e.wait_ms, e.step_ms, e.end_ms, e.seconds, e.is_whole)
        for e in found.epochs
    ]
    assert numbers == [
        tuple(exact(x) for x in (0, 10, 200, 40, 10, 6, 0.666, True)),
        tuple(exact(x) for x in (1, 10, 100, 20, 11.8, 8, 0.406, True)),
    ]


def test_the_first_epoch_alone() -> None:
    """Counts where there is no other, or the other has too few batches; its first steps do not."""
    first = [(50, 90), (5, 90), (7, 90), *[(6, 10)] * 5]
    for epochs in ([first], [first, [(30, 10), (1, 10)]]):
        found = loop_times(timeline_of(*epochs), workers=1)
        waits = [5, 7, *[6] * 5, *[1] * (len(epochs) - 1)]
        assert found.wait_ms == exact(np.mean(waits))
        assert found.step_ms == exact(10)
        assert found.first_wait_ms is None
        assert found.steady == len(waits)
    enough = [(30, 10), *[(1, 10)] * 4]
    assert loop_times(timeline_of(first, enough), workers=4).first_wait_ms == exact(6)
    assert loop_times(timeline_of(first, enough), workers=5).first_wait_ms is None


def test_starts_and_ends_of_epochs() -> None:
    """Spread over a whole epoch's batches: those seen, or those that the loader has."""
    epoch = [(100, 10), *[(20, 10)] * 9]
    found = loop_times(timeline_of(epoch, epoch[:6], ends=[4, NAN]))
    assert found.per_epoch == 10
    assert [each.is_whole for each in found.epochs] == [True, False]
    assert found.start_ms == exact(84)  # the end of the second was not seen
    assert found.epochs[1].end_ms == 0
    assert loop_times(timeline_of(epoch[:6], ends=[NAN])).per_epoch == 6
    told = loop_times(timeline_of(epoch[:6], ends=[NAN]), per_epoch=50)
    assert (told.per_epoch, told.start_share_ms) == (50, exact(80 / 50))
    quick = loop_times(timeline_of([(5, 10), *[(20, 10)] * 9]))
    assert quick.start_ms == 0


def test_epochs_of_one_batch() -> None:
    """All that is waited is the steady wait, and the start is no more."""
    found = loop_times(timeline_of(*[[(30, 10)]] * 6, ends=[2] * 6))
    assert (found.per_epoch, found.steady) == (1, 6)
    assert found.wait_ms == exact(30)
    assert found.step_ms == exact(10)
    assert found.start_ms == 0
    assert found.first_wait_ms is None
    assert found.gain == Range(exact(4), exact(4), exact(4))


def test_a_single_batch() -> None:
    """With its step, or without: then there is none, and the gain has no limit."""
    found = loop_times(timeline_of([(30, 10)]), workers=2)
    assert (found.batches, found.steady, found.per_epoch) == (1, 1, 1)
    assert (found.wait_ms, found.step_ms) == (exact(30), exact(10))
    assert found.gain.value == exact(4)
    assert found.sawtooth is not None
    assert not found.sawtooth.is_seen
    assert found.alone_step_ms is None
    found = loop_times(timeline_of([(30, NAN)], ends=[NAN]))
    assert (found.step_ms, found.usual_step_ms, found.step_cores) == (0, 0, 0)
    assert found.gain == Range(math.inf, math.inf, math.inf)
    assert found.wait_share == 1
    assert found.sawtooth is None


def test_an_epoch_without_a_batch() -> None:
    """Is left out."""
    found = loop_times(timeline_of([], [(30, 10), (20, 10)], []))
    assert [epoch.number for epoch in found.epochs] == [1]
    assert found.epochs[0] == EpochTime(
        number=1,
        batches=2,
        start_ms=exact(30),
        wait_ms=exact(20),
        step_ms=exact(10),
        end_ms=0.0,
        seconds=exact(0.07),
        is_whole=True,
    )


def test_steps_that_are_not_known() -> None:
    """Are left out of every mean; what was waited for them counts."""
    rows = [(20, 10)] * 4 + [(60, NAN)] + [(20, 30)] * 5
    found = loop_times(timeline_of(rows))
    assert found.wait_ms == exact((8 * 20 + 60) / 9)
    assert found.step_ms == exact((10 + 5 * 30) / 6)
    assert found.usual_step_ms == exact(30)
    assert found.epochs[0].step_ms == exact((4 * 10 + 5 * 30) / 9)
    assert found.step_cores == exact(1)
    assert found.gain.value == exact(1 + 20 / (160 / 6))


def test_samples_that_cannot_be_counted() -> None:
    """Batches are counted then."""
    found = loop_times(timeline_of([(20, 30)] * 10, samples=0))
    assert found.samples == 0
    assert found.samples_per_s == exact(20)
    mixed = loop_times(timeline_of([(20, 30)] * 5, samples=[8, 8, 8, 8, 4]))
    assert mixed.samples == 7


def test_a_device_that_was_seen() -> None:
    """How long it stood still is what was lost; all else is its step, the first batch aside."""
    idle = [NAN, 5, 5, 5, 5, 5, 5, 5]
    found = loop_times(timeline_of([(100, 10), *[(20, 10)] * 7], idle=idle))
    assert found.is_device_seen
    assert found.wait_ms == exact(5)
    assert found.step_ms == exact(10 + 15)
    assert found.start_ms == exact(95)
    assert found.gain.value == exact(1 + (5 + 95 / 8) / 25)
    assert found.epochs[0].wait_ms == exact(20)
    some = loop_times(timeline_of([(100, 10), *[(20, 10)] * 7], idle=[*idle[:-1], NAN]))
    assert not some.is_device_seen
    assert some.wait_ms == exact(20)
    alone = loop_times(timeline_of([(100, 10)], [(80, 10)], idle=[NAN, NAN]))
    assert not alone.is_device_seen


def test_gain_is_the_same_whenever_it_is_asked_for() -> None:
    """Its range has the value in it, and other draws of the same loop, nine of ten times."""
    times = [_noisy(seed) for seed in range(40)]
    for found in times:
        assert found.gain.low <= found.gain.value <= found.gain.high
    assert times[0].gain == _noisy(0).gain
    ranges = [found.gain for found in times]
    assert max(each.high - each.low for each in ranges) < 0.3
    is_within = [each.low <= 3 <= each.high for each in ranges]
    assert sum(is_within) >= 30


def _noisy(seed: int) -> LoopTimes:
    """A loop of 20 ms of waiting and 10 of training, give or take."""
    draws = np.random.default_rng(seed)
    rows = [
        (20 * draws.lognormal(-0.02, 0.2), 10 * draws.lognormal(-0.02, 0.2)) for _ in range(200)
    ]
    return loop_times(timeline_of(rows))


def test_a_sawtooth() -> None:
    """With the workers' period, where there are enough batches, and little else."""
    teeth = [30.0 if number % 3 == 0 else 0.0 for number in range(1, 25)]
    found = loop_times(timeline_of([(50, 10), *[(wait, 10) for wait in teeth]]), workers=3)
    saw = found.sawtooth
    assert saw is not None
    assert (saw.period, saw.is_seen) == (3, True)
    assert saw.strength == exact(1)
    assert saw.wait_ms == (exact(30), exact(0), exact(0))
    for workers, count in ((4, 24), (1, 24), (3, 11)):
        rows = [(50, 10), *[(wait, 10) for wait in teeth[:count]]]
        saw = loop_times(timeline_of(rows), workers=workers).sawtooth
        assert saw is not None
        assert not saw.is_seen
    smooth = loop_times(timeline_of([(50, 10), *[(30, 10)] * 24]), workers=3).sawtooth
    assert smooth is not None
    assert (smooth.strength, smooth.is_seen) == (0, False)


def test_a_sawtooth_goes_on_with_each_epoch() -> None:
    """A batch's place is counted from its epoch's first one, which the first worker makes."""
    epoch = [(50, 10), (0, 10), (0, 10), (30, 10), (0, 10), (0, 10), (30, 10), (0, 10)]
    saw = loop_times(timeline_of(epoch, *[epoch] * 3), workers=3).sawtooth
    assert saw is not None
    assert saw.wait_ms == (exact(30), exact(0), exact(0))
    assert saw.is_seen


def test_steps_that_no_worker_ran_beside() -> None:
    """The last ones of whole epochs, of those with as many samples as others."""
    epochs = [[(20, 10)] * 5 + [(20, last), (20, 1)] for last in (6, 7, 9)]
    samples = [32, 32, 32, 32, 32, 32, 5] * 3
    found = loop_times(timeline_of(*epochs, samples=samples), workers=2)
    assert found.alone_step_ms == exact(7)
    left = loop_times(timeline_of(*epochs, samples=samples, ends=[0, NAN, 0]), workers=2)
    assert left.alone_step_ms == exact(7.5)
    assert loop_times(timeline_of(*epochs, samples=samples)).alone_step_ms is None
    nothing = loop_times(timeline_of(*epochs, samples=samples, ends=[NAN] * 3), workers=2)
    assert nothing.alone_step_ms is None
    unknown = [[(20, 10)] * 5 + [(20, NAN)], *epochs]
    samples = [32] * 6 + samples
    assert loop_times(timeline_of(*unknown, samples=samples), workers=2).alone_step_ms == exact(7)
    warm = loop_times(timeline_of([(20, 10)] * 3, [(20, 8)] * 3), workers=2)
    assert warm.alone_step_ms == exact(8)


def test_a_first_epoch_of_which_a_few_batches_waited_long() -> None:
    """Its usual waits are those of later epochs: that is no cold storage."""
    later = [(40, 10), *[(20, 10)] * 20]
    few = [(40, 10), (900, 10), *[(20, 10)] * 19]
    found = loop_times(timeline_of(few, later), workers=2)
    assert found.first_wait_ms == exact(64)
    assert found.is_first_usual
    cold = [(40, 10), *[(64, 10)] * 20]
    found = loop_times(timeline_of(cold, later), workers=2)
    assert found.first_wait_ms == exact(64)
    assert not found.is_first_usual
