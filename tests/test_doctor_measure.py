"""Times of a loop, on clocks that the loop itself moves."""

from __future__ import annotations

import itertools
import math
from collections import namedtuple
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from hotset.doctor.measure import Recording, Waited, samples_of

NAN = math.nan


class Times:
    """Seconds that pass where something says so, and those of the processor."""

    def __init__(self) -> None:
        self.now, self.cpu = 100.0, 40.0

    def passes(self, seconds: float, cores: float = 0.0) -> None:
        """Something takes so long, and keeps so many cores busy."""
        self.now += seconds
        self.cpu += seconds * cores


class Marks:
    """A device that has just done what the processor has."""

    def __init__(self, times: Times) -> None:
        self._times, self.marks = times, []

    def mark(self) -> None:
        self.marks.append(self._times.now)

    def seconds(self) -> list[float]:
        return [b - a for a, b in itertools.pairwise(self.marks)]


def recording_on(times: Times, **how: Any) -> Recording:
    """One with those clocks."""
    return Recording(clock=lambda: times.now, cpu_clock=lambda: times.cpu, **how)


def looped(
    recording: Recording, times: Times, waits: Sequence[float], end: float = 0.0
) -> Iterator[int]:
    """An epoch: each batch is waited for so long, with half a core busy; and then its end."""
    recording.begin_epoch()
    for number, wait in enumerate(waits):
        recording.ask()
        times.passes(wait, 0.5)
        recording.come(torch.zeros(4 + number, 2))
        yield number
    recording.ask()
    times.passes(end)
    recording.end_epoch()


def test_an_epoch() -> None:
    """Waits, steps, their processor time, sizes, and the end."""
    times = Times()
    recording = recording_on(times)
    for number in looped(recording, times, [0.5, 0.25, 0.125], end=2.0):
        assert len(recording) == number + 1
        times.passes(1.0 + number, 2.0)
    timeline = recording.timeline()
    assert timeline.epoch.tolist() == [0, 0, 0]
    assert timeline.begin_s.tolist() == [100.0, 101.5, 103.75]
    assert timeline.wait_s.tolist() == [0.5, 0.25, 0.125]
    assert timeline.step_s.tolist() == [1.0, 2.0, 3.0]
    assert timeline.cpu_s.tolist() == [2.0, 4.0, 6.0]
    assert timeline.samples.tolist() == [4, 5, 6]
    assert timeline.end_s.tolist() == [2.0]
    assert np.isnan(timeline.idle_s).all()
    assert (len(timeline), recording.epochs, recording.waited_s) == (3, 1, 0.875)
    kinds = [timeline.epoch.dtype, timeline.wait_s.dtype, timeline.samples.dtype]
    assert kinds == [np.int64, np.float64, np.int64]


def test_the_first_wait_has_the_iterator_in_it() -> None:
    """Starting workers is a part of the first wait."""
    times = Times()
    recording = recording_on(times)
    recording.begin_epoch()
    times.passes(3.0)
    recording.ask()
    times.passes(1.0)
    recording.come(None)
    timeline = recording.timeline()
    assert timeline.begin_s.tolist() == [100.0]
    assert timeline.wait_s.tolist() == [4.0]


def test_several_epochs() -> None:
    """What is done between them belongs to no step, and to no wait."""
    times = Times()
    recording = recording_on(times)
    for epoch in range(2):
        for _ in looped(recording, times, [0.5, 0.25], end=0.125):
            times.passes(1.0)
        times.passes(50.0 + epoch)
    timeline = recording.timeline()
    assert timeline.epoch.tolist() == [0, 0, 1, 1]
    assert timeline.begin_s.tolist() == [100.0, 101.5, 152.875, 154.375]
    assert timeline.wait_s.tolist() == [0.5, 0.25, 0.5, 0.25]
    assert timeline.step_s.tolist() == [1.0] * 4
    assert timeline.end_s.tolist() == [0.125, 0.125]


def test_an_epoch_that_is_left() -> None:
    """Its last step has no time, nor has its end; the next one goes on as usual."""
    times = Times()
    recording = recording_on(times)
    for number in looped(recording, times, [0.5, 0.25, 9.0]):
        times.passes(1.0, 1.0)
        if number == 1:
            break
    times.passes(30.0)
    for _ in looped(recording, times, [0.5], end=0.25):
        times.passes(2.0, 1.0)
    timeline = recording.timeline()
    np.testing.assert_array_equal(timeline.step_s, [1.0, NAN, 2.0])
    np.testing.assert_array_equal(timeline.cpu_s, [1.0, NAN, 2.0])
    np.testing.assert_array_equal(timeline.end_s, [NAN, 0.25])
    assert timeline.wait_s.tolist() == [0.5, 0.25, 0.5]


def test_a_loop_that_is_under_way() -> None:
    """The step that goes on has no time; a timeline can be had again, and the loop goes on."""
    times = Times()
    recording = recording_on(times)
    epoch = looped(recording, times, [0.5, 0.25])
    next(epoch)
    times.passes(1.0)
    first = recording.timeline()
    np.testing.assert_array_equal(first.step_s, [NAN])
    np.testing.assert_array_equal(recording.timeline().step_s, [NAN])
    next(epoch)
    times.passes(2.0, 1.0)
    assert list(epoch) == []
    again = recording.timeline()
    np.testing.assert_array_equal(again.step_s, [NAN, 2.0])
    np.testing.assert_array_equal(again.cpu_s, [NAN, 2.0])
    assert again.wait_s.tolist() == [0.5, 0.25]
    assert len(first) == 1


def test_an_epoch_without_a_batch() -> None:
    """It counts as an epoch, and has an end."""
    times = Times()
    recording = recording_on(times)
    assert len(recording.timeline()) == 0
    assert list(looped(recording, times, [], end=0.5)) == []
    timeline = recording.timeline()
    assert (len(timeline), recording.epochs) == (0, 1)
    assert timeline.end_s.tolist() == [0.5]
    assert timeline.idle_s.shape == (0,)


def test_asking_that_fails() -> None:
    """If it is asked again, the batch was waited for since the first time; else it never came."""
    times = Times()
    waited = Waited()
    recording = recording_on(times, waited=waited)
    recording.begin_epoch()
    recording.ask()
    times.passes(1.0)
    recording.ask()
    times.passes(0.5)
    recording.come(torch.zeros(2))
    times.passes(2.0)
    recording.ask()
    times.passes(4.0)
    recording.begin_epoch()
    recording.ask()
    times.passes(0.25)
    recording.come(torch.zeros(2))
    timeline = recording.timeline()
    assert timeline.wait_s.tolist() == [1.5, 0.25]
    np.testing.assert_array_equal(timeline.step_s, [2.0, NAN])
    assert waited.seconds == 1.75


def test_two_loaders_in_turn() -> None:
    """As `zip` asks them: neither's step has the other's wait, nor its processor time."""
    times, waited = Times(), Waited()
    one, other = (recording_on(times, waited=waited) for _ in range(2))
    pairs = (looped(one, times, [0.5, 0.5, 0.5]), looped(other, times, [0.25, 4.0]))
    for _ in zip(*pairs, strict=False):
        times.passes(1.0, 2.0)
    first, second = one.timeline(), other.timeline()
    assert first.wait_s.tolist() == [0.5, 0.5, 0.5]
    assert second.wait_s.tolist() == [0.25, 4.0]
    # The third of the first loader's was taken in vain, when the second one ended.
    np.testing.assert_array_equal(first.step_s, [1.0, 1.0, NAN])
    np.testing.assert_array_equal(first.cpu_s, [2.0, 2.0, NAN])
    assert second.step_s.tolist() == [1.0, 1.0]
    assert second.cpu_s.tolist() == [2.0, 2.0]
    assert waited.seconds == 0.5 * 3 + 4.25


def test_a_validation_within_a_step() -> None:
    """Its waits, and the wait for its end, are no part of the training step; its steps are."""
    times, waited = Times(), Waited()
    training, validating = (recording_on(times, waited=waited) for _ in range(2))
    for number in looped(training, times, [0.5, 0.25]):
        times.passes(1.0, 1.0)
        if number == 0:
            for _ in looped(validating, times, [3.0, 2.0], end=0.5):
                times.passes(0.125, 1.0)
    found = training.timeline()
    assert found.wait_s.tolist() == [0.5, 0.25]
    assert found.step_s.tolist() == [1.25, 1.0]
    assert found.cpu_s.tolist() == [1.25, 1.0]
    assert validating.timeline().step_s.tolist() == [0.125, 0.125]
    assert validating.timeline().end_s.tolist() == [0.5]
    assert waited.seconds == 0.75 + 5.5


def test_marks_of_a_device() -> None:
    """Two for each batch, one as it comes and one as its step ends; between epochs none counts."""
    times = Times()
    marks = Marks(times)
    recording = recording_on(times, spans=marks)
    for number in looped(recording, times, [0.5, 0.25, 0.125]):
        times.passes(1.0)
        if number == 2:
            break
    assert len(marks.marks) == 5
    for _ in looped(recording, times, [0.5, 2.0], end=1.0):
        times.passes(1.0)
    assert len(marks.marks) == 10
    timeline = recording.timeline()
    np.testing.assert_array_equal(timeline.idle_s, [NAN, 0.25, 0.125, NAN, 2.0])
    recording.timeline()
    assert len(marks.marks) == 10


def test_real_clocks() -> None:
    """Are taken where no others are given."""
    recording = Recording()
    recording.begin_epoch()
    recording.ask()
    recording.come([torch.zeros(3)])
    recording.ask()
    recording.end_epoch()
    timeline = recording.timeline()
    assert (timeline.wait_s >= 0).all()
    assert (timeline.step_s >= 0).all()
    assert (timeline.end_s >= 0).all()


Pair = namedtuple("Pair", ["first", "second"])


@pytest.mark.parametrize(
    ("batch", "count"),
    [
        (torch.zeros(3, 2), 3),
        (np.zeros((4, 1)), 4),
        ([torch.zeros(5), torch.zeros(9)], 5),
        (Pair({"x": np.zeros(6)}, None), 6),
        ({"name": torch.zeros(7)}, 7),
        (torch.zeros(()), 0),
        (torch.zeros(0, 3), 0),
        ({}, 0),
        ([], 0),
        (["a", "b"], 0),
        ("word", 0),
        (b"word", 0),
        (17, 0),
        (None, 0),
        (SimpleNamespace(shape=lambda: (3,)), 0),
        (SimpleNamespace(shape=None), 0),
    ],
)
def test_samples_of_a_batch(batch: Any, count: int) -> None:
    """By its first tensor or array; what has a shape of another kind does not break the loop."""
    assert samples_of(batch) == count
