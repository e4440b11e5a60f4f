"""Links: how bytes get from host memory to a device, and what memory it has.

A link has one side queue for copies, next to the queue that the consumer's own work is in. What is
copied while the consumer computes costs it nothing; what is not there in time it waits for, on the
device, without stopping the host.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from hotset.errors import DeviceError, DeviceMemoryError
from hotset.placement.device import free_bytes, resolve_device

MEASURED_BYTES = 32 << 20
"""What is copied to measure a link."""
PLACING_BYTES = 64 << 20
"""Samples are placed in parts of so many bytes, since a driver holds a part twice."""


class Transfer(Protocol):
    """Copies that were begun together, and are waited for together."""

    def copy(self, target: Tensor, source: Tensor) -> None:
        """Queues a copy from a buffer of the link's to memory of the device's.

        Raises:
            DeviceError: if it fails.
        """
        ...

    def end(self) -> None:
        """Says that no more copies belong to it."""
        ...


@runtime_checkable
class Link(Protocol):
    """A device, and the way to it.

    Attributes:
        name: of the device, for plans and messages.
        device: where tensors made by `empty` lie.
        is_apart: whether the device has memory of its own; else nothing is ever copied.
    """

    name: str
    device: torch.device
    is_apart: bool

    def free_bytes(self) -> int:
        """Bytes free on the device now."""
        ...

    def bandwidth(self) -> float | None:
        """Bytes per second that copies run at, measured or known; None where none are made."""
        ...

    def empty(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """Device memory, uninitialised.

        Raises:
            DeviceMemoryError: if there is not so much.
        """
        ...

    def buffer(self, nbytes: int) -> Tensor:
        """(nbytes,) uint8 host memory that copies can run from beside everything else."""
        ...

    def send(self, source: Tensor) -> Tensor:
        """A host tensor on the device, of its class and strides, for work queued from now on.

        Raises:
            DeviceMemoryError: if there is not so much memory.
            DeviceError: if the copy fails.
        """
        ...

    def begin(self, after: Any = None) -> Transfer:
        """A transfer, begun now.

        Args:
            after: a point that `reached` gave; no copy of it starts before the consumer's work has
                come there. None for none.
        """
        ...

    def wait(self, transfer: Any) -> None:
        """Makes the consumer's work that is queued from now on start after a transfer's end."""
        ...

    def join(self, transfer: Any) -> None:
        """Returns when a transfer is over, so that its buffers may be written to again."""
        ...

    def reached(self) -> Any:
        """The point in the consumer's work where all that is queued so far is done."""
        ...


def place(link: Link, source: Tensor) -> Tensor:
    """A copy of a host tensor on the device, its rows end to end; returns when it is there.

    Raises:
        DeviceMemoryError: if there is not so much memory.
        DeviceError: if a copy fails.
    """
    target = link.empty(source.shape, source.dtype)
    fill(link, target, source)
    return target


def fill(link: Link, target: Tensor, source: Tensor) -> None:
    """Copies a host tensor into device memory of its shape, part by part."""
    if len(source.shape) == 0 or source.numel() == 0:
        return
    row_bytes = max(1, source[0].numel() * source.element_size())
    rows = max(1, PLACING_BYTES // row_bytes)
    for start in range(0, len(source), rows):
        # The memory may be some that work still queued has given back.
        transfer = link.begin(link.reached())
        transfer.copy(target[start : start + rows], source[start : start + rows])
        transfer.end()
        link.join(transfer)


class HostLink:
    """The CPU: samples are where batches come out, and nothing is copied."""

    name = "cpu"
    is_apart = False

    def __init__(self) -> None:
        self.device = torch.device("cpu")

    def free_bytes(self) -> int:
        return free_bytes(self.device)

    def bandwidth(self) -> float | None:
        return None

    def empty(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        return torch.empty(tuple(shape), dtype=dtype, device="cpu")

    def buffer(self, nbytes: int) -> Tensor:
        return torch.empty(nbytes, dtype=torch.uint8, device="cpu")

    def send(self, source: Tensor) -> Tensor:
        return source

    def begin(self, after: Any = None) -> Transfer:
        return _HostTransfer()

    def wait(self, transfer: Any) -> None:
        pass  # a host copy is over when it returns

    def join(self, transfer: Any) -> None:
        pass

    def reached(self) -> Any:
        return None


class _HostTransfer:
    def copy(self, target: Tensor, source: Tensor) -> None:
        target.copy_(source)

    def end(self) -> None:
        pass


class CudaLink:
    """A CUDA device: pinned buffers, one side stream, and events.

    Args:
        device: with its number.
    """

    is_apart = True

    def __init__(self, device: torch.device) -> None:
        self.device, self.name = device, str(device)
        self._stream: Any = None
        self._rate: float | None = None

    def free_bytes(self) -> int:
        # What torch's allocator has cached and does not use is free for its tensors too.
        cached = torch.cuda.memory_reserved(self.device) - torch.cuda.memory_allocated(self.device)
        return free_bytes(self.device) + max(0, cached)

    def bandwidth(self) -> float | None:
        if self._rate is None:
            self._rate = self._measured()
        return self._rate

    def _measured(self) -> float:
        source, target = self.buffer(MEASURED_BYTES), self.empty((MEASURED_BYTES,), torch.uint8)
        # The memory may be some that work still queued has given back.
        self._side().wait_event(self.reached())
        # torch gives its events and streams no types.
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        with torch.cuda.stream(self._side()):
            target.copy_(source, non_blocking=True)
            start.record()
            for _ in range(4):
                target.copy_(source, non_blocking=True)
            end.record()
        end.synchronize()
        return float(4000 * source.numel() / start.elapsed_time(end))

    def empty(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        try:
            return torch.empty(tuple(shape), dtype=dtype, device=self.device)
        except torch.OutOfMemoryError as error:
            raise DeviceMemoryError(
                f"{self.name} has no room for {tuple(shape)} {dtype}"
            ) from error

    def buffer(self, nbytes: int) -> Tensor:
        try:
            with torch.cuda.device(self.device):
                return torch.empty(nbytes, dtype=torch.uint8, device="cpu", pin_memory=True)
        except RuntimeError as error:
            words = f"no pinned host memory of {nbytes:,} bytes could be had: {error}"
            raise DeviceMemoryError(words) from error

    def send(self, source: Tensor) -> Tensor:
        is_plain = source.layout is torch.strided and not source.is_nested
        if is_plain and not source.is_pinned() and source.device.type == "cpu":
            source = source.pin_memory()  # else the host would wait for the copy
        try:
            return source.to(self.device, non_blocking=True)
        except torch.OutOfMemoryError as error:
            words = f"{self.name} has no room for a batch of {tuple(source.shape)} {source.dtype}"
            raise DeviceMemoryError(words) from error

    def begin(self, after: Any = None) -> Transfer:
        stream = self._side()
        if after is not None:
            stream.wait_event(after)
        return _CudaTransfer(stream)

    def wait(self, transfer: Any) -> None:
        current = torch.cuda.current_stream(self.device)
        current.wait_event(transfer.event)
        for target in transfer.targets:
            # Should it be released while this work is pending, its memory must not be given away.
            target.record_stream(current)

    def join(self, transfer: Any) -> None:
        transfer.event.synchronize()

    def reached(self) -> Any:
        # torch gives its events no types.
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(self.device))
        return event

    def _side(self) -> Any:
        if self._stream is None:
            # torch gives its streams no types.
            self._stream = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]
        return self._stream


class _CudaTransfer:
    def __init__(self, stream: Any) -> None:
        self._stream = stream
        # torch gives its events no types.
        self.event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        self.targets: list[Tensor] = []

    def copy(self, target: Tensor, source: Tensor) -> None:
        try:
            with torch.cuda.stream(self._stream):
                target.copy_(source, non_blocking=True)
        except RuntimeError as error:
            raise DeviceError(f"copying to {target.device} failed: {error}") from error
        target.record_stream(self._stream)
        self.targets.append(target)

    def end(self) -> None:
        self.event.record(self._stream)


def link_to(device: Any) -> Link:
    """The link to a device.

    Args:
        device: a name, a `torch.device`, None for torch's default device, or a link itself.

    Raises:
        ConfigError: if it is no device's name.
        DeviceError: if this machine has no such device.
    """
    if isinstance(device, Link):
        return device
    found = resolve_device(device)
    return HostLink() if found.type == "cpu" else CudaLink(found)
