"""A simulated accelerator: placement and overlap can be tested exactly, with no GPU and no clock.

It has memory of a given size, a link of a given bandwidth, and two queues on a virtual clock: one
of copies and one of the consumer's own work. Give it as `device=` to any loader; its tensors lie in
host memory, so that all values can be looked at.
"""

from __future__ import annotations

import math
import threading
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hotset.errors import ConfigError, DeviceError, DeviceMemoryError
from hotset.placement.budget import budget_bytes
from hotset.placement.link import Transfer
from hotset.placement.size import human_bytes


class SimulatedAccelerator:
    """An accelerator on a virtual clock; a `device=` for tests.

    The host's time stands still but where it has to wait. Copies run one behind the other, beside
    the consumer's work, which is queued by `run`.

    Args:
        capacity: bytes of memory, or such as "1GB".
        bandwidth: bytes per second that are copied, or such as "10GB".
        fail_allocation: number of the allocation, from 1, that finds no memory; None for none.
        fail_copy: number of the copy, from 1, that fails; None for none.
        is_strict: whether it looks for what would be a race on a real device. A copy then takes
            effect when somebody waits for its transfer, and not before. It is an error to write to
            a buffer until its copies were joined, to wait for a transfer that has not ended, to
            read (`reads`) memory whose copies were not waited for, and to copy to memory that work
            may still read: the transfer must begin behind a point that was reached after the
            memory was allocated, last waited for, and last read. It takes nine times the memory.

    Attributes:
        capacity_bytes: bytes of memory.
        bytes_copied: bytes copied so far, those of placing included.
        copies: number of copies so far.
        allocations: number of allocations so far, those that failed included.
        used_bytes: bytes allocated now.
        peak_bytes: most bytes that were allocated at once.
        waits: seconds that the consumer's work stood still for each transfer it waited for.

    Raises:
        ConfigError: if an amount cannot be used.

    Example:
        >>> import torch, hotset
        >>> from hotset.testing import SimulatedAccelerator
        >>> device = SimulatedAccelerator("1MB", bandwidth="1MB")
        >>> loader = hotset.Loader(torch.zeros(100, 10), 20, device=device, tier="host")
        >>> placed = device.bytes_copied
        >>> for batch in loader:
        ...     device.run(0.01)  # a step of 10 ms
        >>> device.bytes_copied - placed, round(device.time, 6), round(sum(device.waits[1:]), 6)
        (4000, 0.054, 0)
    """

    name = "simulated accelerator"
    is_apart = True

    def __init__(
        self,
        capacity: int | str,
        *,
        bandwidth: int | str,
        fail_allocation: int | None = None,
        fail_copy: int | None = None,
        is_strict: bool = False,
    ) -> None:
        self.device = torch.device("cpu")
        self.capacity_bytes = budget_bytes(capacity, 0, "capacity")
        self._rate = budget_bytes(bandwidth, 0, "bandwidth")
        if self._rate == 0:
            raise ConfigError(f"`bandwidth` must be more than nothing a second, got {bandwidth!r}")
        for name, number in (("fail_allocation", fail_allocation), ("fail_copy", fail_copy)):
            is_number = isinstance(number, int) and number >= 1
            if number is not None and not is_number:
                raise ConfigError(
                    f"`{name}` must be a whole number from 1, or None, got {number!r}"
                )
        self._fail_allocation, self._fail_copy = fail_allocation, fail_copy
        self.bytes_copied = self.copies = self.allocations = 0
        self.used_bytes = self.peak_bytes = 0
        self.waits: list[float] = []
        self._host = self._work = self._link = 0.0
        self._watch = _Watch() if is_strict else None

    @property
    def time(self) -> float:
        """Seconds until all work queued so far is done, from the start."""
        return max(self._host, self._work)

    def run(self, seconds: float) -> None:
        """Queues work of the consumer's, such as a training step; the host goes on at once.

        Raises:
            ConfigError: if it is no length of time.
        """
        given: Any = seconds
        if not isinstance(given, (int, float)) or not 0 <= given < math.inf:
            raise ConfigError(f"`seconds` must be 0 or more, got {seconds!r}")
        self._work = self.time + seconds

    def synchronize(self) -> None:
        """Makes the host wait until all work queued so far is done, as `loss.item()` does.

        Copies that were not waited for are no part of it.
        """
        self._host = self.time

    def reads(self, memory: Tensor) -> None:
        """Says that work queued now reads memory of the device's; a strict one takes note of it.

        Args:
            memory: its elements end to end.

        Raises:
            DeviceError: if a copy to it was not waited for.
        """
        if self._watch is not None:
            self._watch.read(memory)

    def free_bytes(self) -> int:
        return self.capacity_bytes - self.used_bytes

    def bandwidth(self) -> float | None:
        return float(self._rate)

    def empty(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        memory: np.ndarray = np.zeros(nbytes, np.uint8)
        self._claim(nbytes, memory)
        if self._watch is not None:
            self._watch.add_memory(memory)
        if nbytes == 0:
            return torch.empty(tuple(shape), dtype=dtype, device="cpu")
        return torch.from_numpy(memory).view(dtype).view(tuple(shape))

    def send(self, source: Tensor) -> Tensor:
        nbytes = source.element_size() * source.numel()
        found = source.clone()
        self._claim(nbytes, found)
        transfer = _SimulatedTransfer(self, self.time)
        transfer.over = self.copied(nbytes, self.time)
        self.wait(transfer)
        return found

    def _claim(self, nbytes: int, holder: Any) -> None:
        """Counts memory until its holder is gone.

        Raises:
            DeviceMemoryError: if there is not so much, or this allocation is to fail.
        """
        self.allocations += 1
        if self.allocations == self._fail_allocation or nbytes > self.free_bytes():
            raise DeviceMemoryError(
                f"the {self.name} has no room for {human_bytes(nbytes)}: "
                f"{human_bytes(self.free_bytes())} are free"
            )
        self.used_bytes += nbytes
        self.peak_bytes = max(self.peak_bytes, self.used_bytes)
        weakref.finalize(holder, self._release, nbytes)

    def _release(self, nbytes: int) -> None:
        self.used_bytes -= nbytes

    def buffer(self, nbytes: int) -> Tensor:
        if self._watch is None:
            return torch.empty(nbytes, dtype=torch.uint8)
        memory: np.ndarray = np.zeros(nbytes, np.uint8)
        self._watch.add_buffer(memory)
        return torch.from_numpy(memory)

    def begin(self, after: Any = None) -> Transfer:
        point = _Point() if after is None else after
        return _SimulatedTransfer(self, max(self._host, point.time), point, self._watch)

    def copied(self, nbytes: int, earliest: float) -> float:
        """Queues a copy; the second at which it is over.

        Args:
            nbytes: how much.
            earliest: the second before which it cannot start.

        Raises:
            DeviceError: if it is the copy that was to fail.
        """
        self.copies += 1
        if self.copies == self._fail_copy:
            raise DeviceError(f"copy {self.copies} to the {self.name} failed")
        self.bytes_copied += nbytes
        self._link = max(self._link, earliest) + nbytes / self._rate
        return self._link

    def wait(self, transfer: Any) -> None:
        if transfer.watch is not None:
            transfer.watch.wait(transfer, is_host=False)
        start = self.time
        self._work = max(start, transfer.over)
        self.waits.append(self._work - start)

    def join(self, transfer: Any) -> None:
        if transfer.watch is not None:
            transfer.watch.wait(transfer, is_host=True)
        self._host = max(self._host, transfer.over)

    def reached(self) -> Any:
        return _Point(self.time, 0 if self._watch is None else self._watch.tick())


@dataclass(frozen=True)
class _Point:
    """A point in the consumer's work: its second, and its number among what a watch has seen."""

    time: float = 0.0
    number: int = 0


class _SimulatedTransfer:
    """Copies of a simulated accelerator.

    Attributes:
        over: the second at which its last copy is over.
        after: the point that it begins behind.
        watch: looks at it; None for none.
        is_ended: whether no more copies belong to it.
        unread: what a watch knows of the memory it writes to, until it is waited for.
    """

    def __init__(
        self,
        device: SimulatedAccelerator,
        earliest: float,
        after: _Point = _Point(),
        watch: _Watch | None = None,
    ) -> None:
        self._device, self._earliest, self.watch = device, earliest, watch
        self.over, self.after, self.is_ended = earliest, after, False
        self.unread: list[np.ndarray] = []

    def copy(self, target: Tensor, source: Tensor) -> None:
        """Copies at once, or when it is waited for; by the virtual clock, when its turn comes."""
        nbytes = source.numel() * source.element_size()
        self.over = self._device.copied(nbytes, self._earliest)
        if self.watch is None:
            target.copy_(source)
        elif nbytes:
            self.watch.copy(self, target, source)

    def end(self) -> None:
        """All copies are queued already."""
        self.is_ended = True


@dataclass(eq=False)
class _Copy:
    """A copy that nobody has waited for yet, or whose buffer may not be written to yet.

    Attributes:
        transfer: whose it is.
        target: memory; None when it has taken effect.
        seen: the source as it was.
        buffer: the memory of the buffer it runs from, None where it runs from no buffer; and where.
    """

    transfer: _SimulatedTransfer
    target: Tensor | None
    seen: Tensor
    buffer: weakref.ref[np.ndarray] | None
    where: slice

    def is_watched(self) -> bool:
        """Whether it runs from a buffer that is there still."""
        return self.buffer is not None and self.buffer() is not None

    def is_spoilt(self) -> bool:
        """Whether its buffer was written to."""
        memory = None if self.buffer is None else self.buffer()
        if memory is None:
            return False
        seen = self.seen.reshape(-1).view(torch.uint8).numpy()
        return not np.array_equal(memory[self.where], seen)


class _Watch:
    """What copies and reads of a strict device have to keep to; used from several threads."""

    def __init__(self) -> None:
        self._lock, self._now = threading.RLock(), 0
        # By address: for every byte of the device's memory, when work was last let at it.
        self._used: dict[int, np.ndarray] = {}
        self._buffers: dict[int, weakref.ref[np.ndarray]] = {}
        self._queue: list[_Copy] = []

    def tick(self) -> int:
        """The number of what happens now; numbers rise."""
        with self._lock:
            self._now += 1
            return self._now

    def add_memory(self, memory: np.ndarray) -> None:
        """Takes note of device memory, (bytes,) uint8."""
        address = memory.ctypes.data
        self._used[address] = np.full(len(memory), self.tick())
        weakref.finalize(memory, self._used.pop, address)

    def add_buffer(self, memory: np.ndarray) -> None:
        """Takes note of a buffer, (bytes,) uint8."""
        address = memory.ctypes.data
        self._buffers[address] = weakref.ref(memory)
        weakref.finalize(memory, self._buffers.pop, address)

    def copy(self, transfer: _SimulatedTransfer, target: Tensor, source: Tensor) -> None:
        """Queues a copy of something."""
        with self._lock:
            used = self._used_of(target)
            if transfer.after.number <= used.max():
                raise DeviceError(
                    "a copy overtakes work that may still read the memory it writes to: begin its "
                    "transfer behind a point that was reached after that work was queued"
                )
            transfer.unread.append(used)
            buffer = self._buffers.get(source.untyped_storage().data_ptr())
            self._queue.append(_Copy(transfer, target, source.clone(), buffer, _bytes_of(source)))

    def read(self, memory: Tensor) -> None:
        """Takes note of a read that is queued now."""
        with self._lock:
            if memory.numel() == 0 or _address(memory) not in self._used:
                return  # nothing is ever copied to a tensor that was sent
            where = _address(memory), _bytes_of(memory)
            for each in self._queue:
                if each.target is not None and _is_shared(where, each.target):
                    raise DeviceError("memory is read before a copy to it was waited for")
            self._used_of(memory)[:] = self.tick()

    def wait(self, transfer: _SimulatedTransfer, *, is_host: bool) -> None:
        """Lets the copies take effect that were queued up to a transfer's last."""
        if not transfer.is_ended:
            raise DeviceError("a transfer is waited for before its end")
        with self._lock:
            numbers = [n for n, each in enumerate(self._queue) if each.transfer is transfer]
            count = numbers[-1] + 1 if numbers else 0
            for each in self._queue:
                if each.is_spoilt():
                    raise DeviceError("a buffer was written to before copies from it were joined")
            for each in self._queue[:count]:
                if each.target is not None:
                    each.target.copy_(each.seen)
                    each.target = None
            while transfer.unread:  # from now on it is read
                transfer.unread.pop()[:] = self.tick()
            over = count if is_host else 0
            self._queue = [
                each
                for n, each in enumerate(self._queue)
                if each.target is not None or (n >= over and each.is_watched())
            ]

    def _used_of(self, memory: Tensor) -> np.ndarray:
        """The part of `_used` that belongs to some device memory."""
        return self._used[_address(memory)][_bytes_of(memory)]


def _address(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _bytes_of(tensor: Tensor) -> slice:
    """The bytes of its storage that a tensor takes."""
    start = tensor.storage_offset() * tensor.element_size()
    return slice(start, start + tensor.numel() * tensor.element_size())


def _is_shared(where: tuple[int, slice], other: Tensor) -> bool:
    """Whether some bytes at an address are some of a tensor's too."""
    address, mine = where
    theirs = _bytes_of(other)
    return address == _address(other) and mine.start < theirs.stop and theirs.start < mine.stop
