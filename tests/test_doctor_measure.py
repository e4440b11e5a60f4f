"""Times of a loop, on clocks that the loop moves itself."""

from __future__ import annotations

import math
from collections import deque, namedtuple
from typing import Any

import numpy as np
import pytest
import torch

from hotset.doctor.measure import Recording, Timeline, Waited, samples_of

Pair = namedtuple("Pair", "x y")


class Clock:
    """Seconds that pass only when something takes them."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Device:
    """Marks of a device that is as far as the clock, or further back while it has work."""

    def __init__(self, clock: Clock) -> None:
        self.clock, self.until, self.marks = clock, 0.0, []

    def work(self, seconds: float) -> None:
        """Queues some work."""
        self.until = max(self.until, self.clock.now) + seconds

    def mark(self) -> None:
        self.marks.append(max(self.until, self.clock.now))

    def seconds(self) -> list[float]:
        return [after - before for before, after in zip(self.marks, self.marks[1:], strict=False)]


class Loop:
    """A loop with a clock of its own, and one of the processor's."""

    def __init__(self, *, spans: bool = False, beside: Loop | None = None) -> None:
        self.clock = Clock() if beside is None else beside.clock
        self.cpu = Clock() if beside is None else beside.cpu
        self.waited = Waited() if beside is None else beside.waited
        self.device = Device(self.clock) if spans else None
        self.recording = Recording(
            clock=self.clock, cpu_clock=self.cpu, waited=self.waited, spans=self.device
        )

    def take(self, seconds: float, cpu: float = 0.0) -> None:
        """Time passes."""
        self.clock.now += seconds
        self.cpu.now += cpu

    def batch(self, wait: float, step: float, cpu: float = 0.0) -> None:
        """A batch that is waited for, and its step."""
        self.recording.ask()
        self.take(wait)
        self.recording.come([1.0] * 3)
        self.take(step, cpu)

    def epoch(self, start: float, waits: list[float], step: float, end: float) -> None:
        """A whole epoch."""
        self.recording.begin_epoch()
        self.take(start)
        for wait in waits:
            self.batch(wait, step)
        self.recording.ask()
        self.take(end)
        self.recording.end_epoch()

    def timeline(self) -> Timeline:
        """All of it."""
        return self.recording.timeline()


def lists(timeline: Timeline, *names: str) -> list[Any]:
    """Some of its arrays."""
    return [getattr(timeline, name).tolist() for name in names]


def test_two_epochs() -> None:
    """The first wait of an epoch has its iterator; the end has a time of its own."""
    loop = Loop()
    loop.epoch(4.0, [1.0, 2.0], 8.0, 0.5)
    loop.take(100.0)  # between epochs: nobody's
    loop.epoch(2.0, [1.0], 16.0, 0.25)
    timeline = loop.timeline()
    assert lists(timeline, "epoch", "wait_s", "step_s", "end_s") == [
        [0, 0, 1],
        [5.0, 2.0, 3.0],
        [8.0, 8.0, 16.0],
        [0.5, 0.25],
    ]
    assert timeline.begin_s.tolist() == [0.0, 13.0, 123.5]
    assert np.isnan(timeline.idle_s).all()
    assert (len(timeline), len(loop.recording), loop.recording.epochs) == (3, 3, 2)
    assert loop.recording.waited_s == 10.0
    assert loop.waited.seconds == 10.75  # the ends too


def test_processor_time() -> None:
    """Of the step alone."""
    loop = Loop()
    loop.recording.begin_epoch()
    loop.take(1.0, cpu=7.0)
    loop.batch(1.0, 8.0, cpu=6.0)
    loop.recording.ask()
    assert loop.timeline().cpu_s.tolist() == [6.0]


@pytest.mark.parametrize("way", ["break and again", "break", "asked once more"])
def test_a_loop_that_is_left(way: str) -> None:
    """Its last step has no time, unless the next batch was asked for."""
    loop = Loop(spans=True)
    loop.recording.begin_epoch()
    loop.batch(1.0, 2.0)
    loop.batch(1.0, 2.0)
    if way == "break and again":
        loop.take(50.0)
        loop.epoch(1.0, [1.0], 2.0, 0.5)
    elif way == "asked once more":
        loop.recording.ask()
    timeline = loop.timeline()
    last = 2.0 if way == "asked once more" else math.nan
    after = [2.0] if way == "break and again" else []
    np.testing.assert_array_equal(timeline.step_s, [2.0, last, *after])
    np.testing.assert_array_equal(timeline.end_s, [math.nan, 0.5] if after else [math.nan])
    np.testing.assert_array_equal(timeline.idle_s, [math.nan, 1.0, *([math.nan] if after else [])])
    again = loop.timeline()  # asking twice changes nothing
    np.testing.assert_array_equal(again.step_s, timeline.step_s)


def test_no_batch_at_all() -> None:
    """Empty arrays, and the end of the epoch."""
    loop = Loop(spans=True)
    loop.epoch(1.0, [], 0.0, 2.0)
    timeline = loop.timeline()
    assert lists(timeline, "epoch", "wait_s", "step_s", "idle_s", "end_s") == [
        [],
        [],
        [],
        [],
        [3.0],
    ]


def test_a_batch_that_fails_and_is_asked_for_again() -> None:
    """What was done about it is no waiting."""
    loop = Loop()
    loop.recording.begin_epoch()
    loop.batch(1.0, 2.0)
    loop.recording.ask()
    loop.take(1.0)  # and then an error
    loop.take(40.0)  # the user looks after it
    loop.batch(3.0, 2.0)
    loop.recording.ask()
    timeline = loop.timeline()
    assert lists(timeline, "wait_s", "step_s") == [[1.0, 3.0], [2.0, 2.0]]


def test_an_epoch_that_fails_and_the_next() -> None:
    """Nothing of the failure is in the next epoch."""
    loop = Loop()
    loop.recording.begin_epoch()
    loop.take(5.0)
    loop.recording.ask()
    loop.take(1.0)  # and then an error
    loop.take(40.0)
    loop.epoch(1.0, [1.0], 2.0, 0.0)
    timeline = loop.timeline()
    assert lists(timeline, "epoch", "wait_s") == [[1], [2.0]]
    np.testing.assert_array_equal(timeline.end_s, [math.nan, 0.0])


def test_loaders_in_turn() -> None:
    """What another loader is waited for is no step of the first; what it is used for is."""
    train = Loop()
    other = Loop(beside=train)
    train.recording.begin_epoch()
    train.batch(1.0, 8.0, cpu=2.0)
    other.recording.begin_epoch()
    train.take(2.0, cpu=2.0)  # starting the workers of the other
    other.recording.ask()
    train.take(4.0, cpu=4.0)
    other.recording.come(torch.zeros(5))
    train.take(16.0, cpu=16.0)
    other.recording.ask()
    train.take(32.0, cpu=32.0)
    other.recording.end_epoch()
    train.recording.ask()
    timeline = train.timeline()
    assert lists(timeline, "wait_s", "step_s", "cpu_s") == [[1.0], [24.0], [18.0]]
    assert lists(other.timeline(), "wait_s", "step_s", "end_s") == [[6.0], [16.0], [32.0]]


def test_a_loader_that_reads_from_another() -> None:
    """The same wait counts once, and the inner loader's step lacks only what is not its own."""
    outer = Loop()
    inner, third = Loop(beside=outer), Loop(beside=outer)
    third.recording.begin_epoch()
    third.batch(1.0, 1.0)
    outer.recording.begin_epoch()
    inner.recording.begin_epoch()
    for _ in range(2):
        outer.recording.ask()
        inner.recording.ask()
        outer.take(10.0, cpu=10.0)
        inner.recording.come(torch.zeros(2))
        outer.take(1.0, cpu=1.0)
        outer.recording.come(torch.zeros(2))
        outer.take(5.0, cpu=5.0)
    third.recording.ask()
    assert lists(inner.timeline(), "wait_s", "cpu_s")[0] == [10.0, 10.0]
    np.testing.assert_array_equal(inner.timeline().step_s, [5.0, math.nan])
    np.testing.assert_array_equal(inner.timeline().cpu_s, [5.0, math.nan])
    np.testing.assert_array_equal(outer.timeline().wait_s, [11.0, 11.0])
    np.testing.assert_array_equal(outer.timeline().step_s, [5.0, math.nan])
    assert third.timeline().step_s.tolist() == [11.0]
    assert outer.waited.seconds == 23.0
    assert outer.waited.cpu_s == 22.0


def test_two_iterators_of_a_loader_side_by_side() -> None:
    """All time is somewhere, and there is a step for each batch but the one that was cut."""
    loop = Loop(spans=True)
    recording = loop.recording
    recording.begin_epoch()
    loop.batch(1.0, 0.0)
    recording.begin_epoch()
    loop.batch(1.0, 8.0)
    for _ in range(2):
        loop.batch(2.0, 0.0)
        loop.batch(2.0, 8.0)
    recording.ask()
    recording.end_epoch()  # the first of them
    loop.batch(3.0, 1.0)  # the second has another batch
    recording.ask()
    recording.end_epoch()
    timeline = loop.timeline()
    assert timeline.epoch.tolist() == [0, 1, 1, 1, 1, 1, 1]
    np.testing.assert_array_equal(timeline.wait_s, [1.0, 1.0, 2.0, 2.0, 2.0, 2.0, 3.0])
    np.testing.assert_array_equal(timeline.step_s, [math.nan, 8.0, 0.0, 8.0, 0.0, 8.0, 1.0])
    # Behind the end of an epoch the device need not have stood still.
    idle = [math.nan, math.nan, 2.0, 2.0, 2.0, 2.0, math.nan]
    np.testing.assert_array_equal(timeline.idle_s, idle)


def test_a_device_that_has_work_left() -> None:
    """It stands still only from the end of its work on."""
    loop = Loop(spans=True)
    assert loop.device is not None
    loop.recording.begin_epoch()
    for work in (0.0, 3.0, 4.0, 9.0):
        loop.batch(4.0, 1.0)
        loop.device.work(work)
    loop.recording.ask()
    # Behind the second step 3 s are queued: of the 4 s of the next wait 1 s is left, and so on.
    np.testing.assert_array_equal(loop.timeline().idle_s, [math.nan, 4.0, 1.0, 0.0])


def test_what_the_doctor_does_itself() -> None:
    """Is no step, and no work of the processor's in it."""
    loop = Loop()
    loop.recording.begin_epoch()
    loop.batch(1.0, 0.0)
    loop.take(30.0, cpu=30.0)
    loop.recording.excuse()
    loop.take(2.0, cpu=1.0)
    loop.recording.ask()
    loop.recording.excuse()  # between two batches there is no step to begin
    timeline = loop.timeline()
    assert lists(timeline, "step_s", "cpu_s") == [[2.0], [1.0]]


class Endless(deque):
    """Contains itself, as single letters do."""

    def __getitem__(self, index: Any) -> Any:
        return self

    def __iter__(self) -> Any:
        return iter([self])


class Unknown:
    """A tensor of a framework that may not know its size."""

    shape = (None, 3)


@pytest.mark.parametrize(
    ("batch", "count"),
    [
        (torch.zeros(5, 2), 5),
        ((np.zeros((4, 2)), np.zeros(4)), 4),
        ({"x": [torch.zeros(3, 1)]}, 3),
        (Pair(torch.zeros(2), torch.zeros(9)), 2),
        ({"names": ["a", "b"], "x": torch.zeros(2, 7)}, 2),
        ((torch.tensor(1.0), torch.zeros(6)), 6),
        (deque([torch.zeros(8)]), 8),
        (torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)], layout=torch.jagged), 2),
        (torch.tensor(1.0), 0),
        ([1, 2, 3], 0),
        ("letters", 0),
        (None, 0),
        ({}, 0),
        (Endless([1]), 0),
        ((Unknown(), torch.zeros(4)), 4),
    ],
)
def test_samples_of_a_batch(batch: Any, count: int) -> None:
    """By the first tensor or array with an axis, wherever it stands."""
    assert samples_of(batch) == count
