"""Marks in a device's work, on a `torch.cuda` that is as far as a test says."""

from __future__ import annotations

import math

import pytest
import torch

from hotset.doctor.machine import cuda
from hotset.doctor.machine.cuda import AT_ONCE, MOST_PENDING, CudaSpans, spans_if_used


class Event:
    """A point in a queue; its time is when the device comes there."""

    def __init__(self, device: Device, enable_timing: bool) -> None:
        assert enable_timing
        self.device, self.at_ms, self.place = device, 0.0, 0
        device.events += 1

    def record(self, stream: str) -> None:
        self.device.check()
        self.device.streams.append(stream)
        self.device.queued += 1
        self.place, self.at_ms = self.device.queued, self.device.ms

    def query(self) -> bool:
        self.device.queries += 1
        self.device.check()
        return self.place <= self.device.done

    def synchronize(self) -> None:
        self.device.check()
        self.device.waits += 1
        self.device.done = max(self.device.done, self.place)

    def elapsed_time(self, end: Event) -> float:
        assert self.query()
        assert end.query(), "it would be no time"
        return end.at_ms - self.at_ms


class Device:
    """What is asked of `torch.cuda`.

    Attributes:
        ms: the time that the next mark will have.
        done: marks that the device has passed.
        events: that were made.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ms, self.queued, self.done = 0.0, 0, 0
        self.events = self.waits = self.queries = 0
        self.streams: list[str] = []
        self.is_used, self.is_broken, self.stream = True, False, "main"
        self.reserved = {0: 1, 1: 0, 2: 5}
        self.current = 0
        monkeypatch.setattr(torch.cuda, "Event", lambda enable_timing: Event(self, enable_timing))
        monkeypatch.setattr(
            torch.cuda, "current_stream", lambda device: f"{self.stream} of {device}"
        )
        monkeypatch.setattr(torch.cuda, "is_initialized", lambda: self.is_used)
        monkeypatch.setattr(torch.cuda, "current_device", lambda: self.current)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
        monkeypatch.setattr(torch.cuda, "memory_reserved", self.reserved.__getitem__)

    def check(self) -> None:
        if self.is_broken:
            raise RuntimeError("CUDA error: device-side assert triggered")

    def marked(self, spans: CudaSpans, *ms: float) -> None:
        """Marks, after some time each."""
        for each in ms:
            self.ms += each
            spans.mark()


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    """In the place of CUDA."""
    return Device(monkeypatch)


def test_seconds_from_mark_to_mark(device: Device) -> None:
    """One fewer than marks; nobody waits before they are asked for."""
    spans = CudaSpans()
    device.marked(spans, 5.0, 250.0, 500.0, 0.0)
    assert (device.waits, device.queries, device.events) == (0, 0, 4)
    assert device.streams == ["main of 0"] * 4
    assert spans.seconds() == [0.25, 0.5, 0.0]
    assert spans.seconds() == [0.25, 0.5, 0.0]
    device.marked(spans, 1000.0)
    assert spans.seconds() == [0.25, 0.5, 0.0, 1.0]
    assert device.events == 5 - 1  # one was used again


@pytest.mark.parametrize("marks", [0, 1])
def test_no_span(device: Device, marks: int) -> None:
    """Without two marks there is none."""
    spans = CudaSpans()
    device.marked(spans, *[1.0] * marks)
    assert spans.seconds() == []


def test_a_long_loop(device: Device) -> None:
    """Events are used again; each mark reads no more than a few, and waits for none."""
    spans = CudaSpans()
    most = 0
    for _ in range(10 * MOST_PENDING):
        before = device.queries
        device.marked(spans, 2.0)
        device.done = device.queued - 3
        most = max(most, device.queries - before)
    assert device.waits == 0
    assert device.events <= MOST_PENDING + AT_ONCE
    assert most <= 3 * AT_ONCE  # elapsed_time of the fake asks twice more
    assert spans.seconds() == [0.002] * (10 * MOST_PENDING - 1)


def test_a_device_that_is_far_behind(device: Device) -> None:
    """Is not waited for either; its events are read once it is there."""
    spans = CudaSpans()
    device.marked(spans, *[2.0] * (MOST_PENDING + 100))
    assert (device.waits, device.events) == (0, MOST_PENDING + 100)
    device.done = device.queued
    device.marked(spans, *[2.0] * 100)
    assert device.events < MOST_PENDING + 110
    assert len(spans.seconds()) == MOST_PENDING + 199


def test_streams_in_turn(device: Device) -> None:
    """A mark may come before the one in front of it: no time has passed then."""
    spans = CudaSpans()
    device.marked(spans, 8.0)
    device.stream = "side"
    device.marked(spans, -3.0, 4.0)
    assert spans.seconds() == [0.0, 0.004]
    assert device.streams == ["main of 0", "side of 0", "side of 0"]


@pytest.mark.parametrize("when", ["at a mark", "at the end"])
def test_a_device_that_fails(device: Device, when: str) -> None:
    """The loop has its own error; what was not read by then is not known."""
    spans = CudaSpans()
    device.marked(spans, 0.0, 250.0, 500.0)
    assert spans.seconds() == [0.25, 0.5]
    device.marked(spans, 1.0)
    device.is_broken = True
    if when == "at a mark":
        device.marked(spans, 1.0)
        device.is_broken = False
        device.marked(spans, 1.0, 1.0)
    spent = spans.seconds()
    assert spent[:2] == [0.25, 0.5]
    assert len(spent) == (6 if when == "at a mark" else 3)
    assert all(map(math.isnan, spent[2:]))


@pytest.mark.parametrize(("current", "taken"), [(0, 0), (1, 0), (2, 2)])
def test_the_device_that_is_in_use(device: Device, current: int, taken: int) -> None:
    """The current one where memory is held there, else the first where it is."""
    device.current = current
    device.marked(CudaSpans(), 1.0)
    assert device.streams == [f"main of {taken}"]
    device.reserved.update({0: 0, 2: 0})
    device.marked(CudaSpans(), 1.0)
    assert device.streams[1:] == [f"main of {current}"]


def test_a_device_that_is_asked_for(device: Device) -> None:
    """Is taken as it is."""
    device.marked(CudaSpans(torch.device("cuda", 1)), 1.0)
    assert device.streams == ["main of cuda:1"]


def test_only_where_a_gpu_is_used(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Elsewhere nothing is asked of CUDA, which would begin it."""
    assert isinstance(spans_if_used(), CudaSpans)
    assert cuda.is_used()
    device.is_used = False

    def begin() -> int:
        raise AssertionError("CUDA was begun")

    monkeypatch.setattr(torch.cuda, "current_device", begin)
    assert spans_if_used() is None
    assert not cuda.is_used()
