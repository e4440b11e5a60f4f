"""A simulated accelerator: placement and overlap can be tested exactly, with no GPU and no clock.

It has memory of a given size, a link of a given bandwidth, and two queues on a virtual clock: one
of copies and one of the consumer's own work. Give it as `device=` to any loader; its tensors lie in
host memory, so that all values can be looked at.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Sequence
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
        (4000, 0.0508, 0.0)
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
    ) -> None:
        self.device = torch.device("cpu")
        self.capacity_bytes = budget_bytes(capacity, 0, "capacity")
        self._rate = budget_bytes(bandwidth, 0, "bandwidth")
        if self._rate == 0:
            raise ConfigError(f"`bandwidth` must be more than nothing a second, got {bandwidth!r}")
        for name, number in (("fail_allocation", fail_allocation), ("fail_copy", fail_copy)):
            if not (number is None or (isinstance(number, int) and number >= 1)):
                raise ConfigError(
                    f"`{name}` must be a whole number from 1, or None, got {number!r}"
                )
        self._fail_allocation, self._fail_copy = fail_allocation, fail_copy
        self.bytes_copied = self.copies = self.allocations = 0
        self.used_bytes = self.peak_bytes = 0
        self.waits: list[float] = []
        self._host = self._work = self._link = 0.0

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
        """Makes the host wait until all work queued so far is done, as `loss.item()` does."""
        self._host = self.time

    def free_bytes(self) -> int:
        return self.capacity_bytes - self.used_bytes

    def bandwidth(self) -> float | None:
        return float(self._rate)

    def empty(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        memory: np.ndarray = np.zeros(nbytes, np.uint8)
        self._claim(nbytes, memory)
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
        return torch.empty(nbytes, dtype=torch.uint8)

    def begin(self, after: Any = None) -> Transfer:
        return _SimulatedTransfer(self, max(self._host, after or 0.0))

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
        start = self.time
        self._work = max(start, transfer.over)
        self.waits.append(self._work - start)

    def join(self, transfer: Any) -> None:
        self._host = max(self._host, transfer.over)

    def reached(self) -> Any:
        return self.time


class _SimulatedTransfer:
    """Copies of a simulated accelerator.

    Attributes:
        over: the second at which its last copy is over.
    """

    def __init__(self, device: SimulatedAccelerator, earliest: float) -> None:
        self._device, self._earliest = device, earliest
        self.over = earliest

    def copy(self, target: Tensor, source: Tensor) -> None:
        """Copies at once; by the virtual clock, when its turn comes."""
        nbytes = source.numel() * source.element_size()
        self.over = self._device.copied(nbytes, self._earliest)
        target.copy_(source)

    def end(self) -> None:
        """All copies are queued already."""
