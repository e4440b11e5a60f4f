"""The link to a CUDA device, on a `torch.cuda` that only writes down what it is asked for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from hotset.errors import DeviceError, DeviceMemoryError
from hotset.placement.link import CudaLink, Link, place

DEVICE = torch.device("cuda", 1)


class FakeTensor:
    """A tensor that copies nothing."""

    def __init__(self, cuda: FakeCuda, name: str, shape: tuple[int, ...], device: Any) -> None:
        self.cuda, self.name, self.shape, self.device = cuda, name, shape, device
        self.dtype = torch.uint8

    def __getitem__(self, part: slice) -> FakeTensor:
        return self

    def __len__(self) -> int:
        return self.shape[0]

    def numel(self) -> int:
        return self.shape[0]

    def element_size(self) -> int:
        return 1

    def copy_(self, source: FakeTensor, non_blocking: bool = False) -> None:
        assert non_blocking, "the host would wait"
        if self.cuda.fault is not None:
            raise self.cuda.fault
        self.cuda.say("copy", source.name, self.name)

    def record_stream(self, stream: FakeStream) -> None:
        self.cuda.log.append(("use", self.name, stream.name))


class FakeStream:
    """A queue of a device's."""

    def __init__(self, cuda: FakeCuda, name: str) -> None:
        self.cuda, self.name = cuda, name

    def wait_event(self, event: FakeEvent) -> None:
        assert event.is_recorded, "waiting for it would be waiting for nothing"
        self.cuda.log.append(("wait", event.name, self.name))


class FakeEvent:
    """A point in a queue."""

    def __init__(self, cuda: FakeCuda, name: str) -> None:
        self.cuda, self.name, self.is_recorded = cuda, name, False

    def record(self, stream: FakeStream | None = None) -> None:
        self.is_recorded = True
        where = self.cuda.current[-1] if stream is None else stream
        self.cuda.log.append(("record", self.name, where.name))

    def synchronize(self) -> None:
        assert self.is_recorded, "the host would not wait"
        self.cuda.log.append(("join", self.name))

    def elapsed_time(self, end: FakeEvent) -> float:
        assert self.is_recorded
        assert end.is_recorded
        return 2.0


class FakeCuda:
    """What a link asks of `torch.cuda`.

    Attributes:
        log: what was asked for, in order.
        current: the streams that are current, the innermost last.
        fault: what copies and allocations fail with; None where they do not.
    """

    def __init__(self) -> None:
        self.log: list[tuple[str, ...]] = []
        self.fault: Exception | None = None
        self.streams = self.events = self.tensors = 0
        self.current = [FakeStream(self, "main")]

    def say(self, *words: str) -> None:
        """Writes down what is queued on the current stream."""
        self.log.append((*words, self.current[-1].name))

    def make_stream(self, device: Any) -> FakeStream:
        assert device == DEVICE
        self.streams += 1
        return FakeStream(self, f"side {self.streams}")

    def make_event(self, enable_timing: bool = False) -> FakeEvent:
        self.events += 1
        return FakeEvent(self, f"event {self.events}")

    @contextmanager
    def within(self, stream: FakeStream) -> Iterator[None]:
        self.current.append(stream)
        try:
            yield
        finally:
            self.current.pop()

    def current_stream(self, device: Any) -> FakeStream:
        assert device == DEVICE
        return self.current[-1]

    def empty(
        self, shape: Any, *, dtype: Any, device: Any = "cpu", pin_memory: bool = False
    ) -> Any:
        if self.fault is not None:
            raise self.fault
        self.tensors += 1
        size = (shape,) if isinstance(shape, int) else tuple(shape)
        name = f"{'pinned' if pin_memory else torch.device(device)} {self.tensors}"
        return FakeTensor(self, name, size, device)


@contextmanager
def nothing(device: Any) -> Iterator[None]:
    """A device that is current meanwhile."""
    assert device == DEVICE
    yield


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    """In the place of `torch.cuda`."""
    fake = FakeCuda()
    monkeypatch.setattr(torch.cuda, "Stream", fake.make_stream)
    monkeypatch.setattr(torch.cuda, "Event", fake.make_event)
    monkeypatch.setattr(torch.cuda, "stream", fake.within)
    monkeypatch.setattr(torch.cuda, "current_stream", fake.current_stream)
    monkeypatch.setattr(torch.cuda, "device", nothing)
    monkeypatch.setattr(torch, "empty", fake.empty)
    return fake


def test_a_transfer_from_end_to_end(cuda: FakeCuda) -> None:
    """It waits for the consumer, copies on the side, and is waited for by the consumer."""
    link = CudaLink(DEVICE)
    assert isinstance(link, Link)
    buffer, first, second = (
        link.buffer(9),
        link.empty((4,), torch.uint8),
        link.empty((5,), torch.uint8),
    )
    transfer = link.begin(link.reached())
    transfer.copy(first, buffer[:4])
    transfer.copy(second, buffer[4:])
    transfer.end()
    link.wait(transfer)
    link.join(transfer)
    assert cuda.log == [
        ("record", "event 1", "main"),
        ("wait", "event 1", "side 1"),
        ("copy", "pinned 1", "cuda:1 2", "side 1"),
        ("use", "cuda:1 2", "side 1"),
        ("copy", "pinned 1", "cuda:1 3", "side 1"),
        ("use", "cuda:1 3", "side 1"),
        ("record", "event 2", "side 1"),
        ("wait", "event 2", "main"),
        ("use", "cuda:1 2", "main"),
        ("use", "cuda:1 3", "main"),
        ("join", "event 2"),
    ]


def test_the_consumer_may_use_a_stream_of_its_own(cuda: FakeCuda) -> None:
    """The one that is current when it waits, and when a point is taken."""
    link = CudaLink(DEVICE)
    with cuda.within(FakeStream(cuda, "the user's")):
        transfer = link.begin(link.reached())
        transfer.end()
        link.wait(transfer)
    assert cuda.log == [
        ("record", "event 1", "the user's"),
        ("wait", "event 1", "side 1"),
        ("record", "event 2", "side 1"),
        ("wait", "event 2", "the user's"),
    ]


def test_a_transfer_that_need_not_wait(cuda: FakeCuda) -> None:
    """Behind no point it starts at once."""
    CudaLink(DEVICE).begin().end()
    assert cuda.log == [("record", "event 1", "side 1")]


def test_one_stream_for_the_life_of_a_link(cuda: FakeCuda) -> None:
    """However many transfers run, measuring included."""
    link = CudaLink(DEVICE)
    assert cuda.streams == 0  # a link alone starts nothing
    for _ in range(3):
        link.begin(link.reached()).end()
    link.bandwidth()
    source: Any = FakeTensor(cuda, "host", (3,), "cpu")
    place(link, source)
    assert cuda.streams == 1
    assert {entry[2] for entry in cuda.log if entry[0] == "wait"} == {"side 1"}


def test_placing(cuda: FakeCuda) -> None:
    """Behind the work that is queued; the host waits until it is there."""
    source: Any = FakeTensor(cuda, "host", (3,), "cpu")
    place(CudaLink(DEVICE), source)
    assert cuda.log == [
        ("record", "event 1", "main"),
        ("wait", "event 1", "side 1"),
        ("copy", "host", "cuda:1 1", "side 1"),
        ("use", "cuda:1 1", "side 1"),
        ("record", "event 2", "side 1"),
        ("join", "event 2"),
    ]


def test_measuring(cuda: FakeCuda) -> None:
    """Behind the work that is queued, from a pinned buffer, once; 128 MB in 2 ms."""
    link = CudaLink(DEVICE)
    assert link.bandwidth() == 4 * (32 << 20) / 0.002
    assert link.bandwidth() == 4 * (32 << 20) / 0.002
    copy = ("copy", "pinned 1", "cuda:1 2", "side 1")
    point, start, end = (entry[1] for entry in cuda.log if entry[0] == "record")
    assert cuda.log == [
        ("record", point, "main"),
        ("wait", point, "side 1"),
        copy,
        ("record", start, "side 1"),
        *[copy] * 4,
        ("record", end, "side 1"),
        ("join", end),
    ]


def test_a_copy_that_fails(cuda: FakeCuda) -> None:
    """Is an error of the device's, with the driver's words."""
    link = CudaLink(DEVICE)
    buffer, target = link.buffer(4), link.empty((4,), torch.uint8)
    cuda.fault = RuntimeError("CUDA error: an illegal memory access was encountered")
    with pytest.raises(DeviceError, match=r"^copying to cuda:1 failed: CUDA error: an illegal mem"):
        link.begin().copy(target, buffer)


def test_a_device_that_is_full(cuda: FakeCuda) -> None:
    """Says what there was no room for."""
    cuda.fault = torch.OutOfMemoryError("CUDA out of memory")
    with pytest.raises(DeviceMemoryError, match=r"^cuda:1 has no room for \(4, 5\) torch\.uint8$"):
        CudaLink(DEVICE).empty((4, 5), torch.uint8)
