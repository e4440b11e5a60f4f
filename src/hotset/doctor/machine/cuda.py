"""Marks in the work of a CUDA device, which nobody waits for while the loop runs."""

from __future__ import annotations

import math
from array import array
from collections import deque
from typing import Any

import torch

from hotset.doctor.measure import Spans

MOST_PENDING = 2048
"""Marks that are not read yet; beyond them, those that the device has passed are read."""
AT_ONCE = 4
"""Marks that are then read for each new one: reading takes microseconds, and all of them at once
would hold a batch up."""


class CudaSpans:
    """Events on the current stream of a device.

    Of a long loop, events that the device has passed are read as it goes on, without waiting for
    it, and used again. Where the device fails, spans from there on are NaN: the loop has its own
    error.

    Args:
        device: a CUDA device; None is the one that this process has memory on, the current one
            where it is among them.
    """

    def __init__(self, device: torch.device | int | None = None) -> None:
        self._device = _device_in_use() if device is None else device
        self._pending: deque[Any] = deque()
        self._free: list[Any] = []
        self._last: Any = None
        self._seconds = array("d")
        self._marks = 0
        self._is_lost = False

    def mark(self) -> None:
        """Marks the point that the device's work has come to."""
        self._marks += 1
        if self._is_lost:
            return
        try:
            event = self._free.pop() if self._free else _event()
            event.record(torch.cuda.current_stream(self._device))
            self._pending.append(event)
            if len(self._pending) > MOST_PENDING:
                self._read(AT_ONCE)
        except RuntimeError:  # of an earlier kernel; whatever asks the device next says so too
            self._give_up()

    def seconds(self) -> list[float]:
        """The device's seconds from each mark to the next; waits until the device is there."""
        try:
            for event in self._pending:
                event.synchronize()
            self._read(len(self._pending))
        except RuntimeError:  # as above
            self._give_up()
        unknown = max(0, self._marks - 1 - len(self._seconds))
        return [*self._seconds, *[math.nan] * unknown]

    def _read(self, most: int) -> None:
        """Reads some of what the device has passed, oldest first."""
        for _ in range(most):
            if not self._pending or not self._pending[0].query():
                return
            event = self._pending.popleft()
            if self._last is not None:
                # Less than nothing is what two streams give that were taken in turn.
                self._seconds.append(max(0.0, self._last.elapsed_time(event)) / 1000)
                self._free.append(self._last)
            self._last = event

    def _give_up(self) -> None:
        self._is_lost = True
        self._pending.clear()
        self._free.clear()
        self._last = None


def _event() -> Any:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]  # torch's own


def _device_in_use() -> int:
    """An event on a device that is not used would take half a gigabyte of it."""
    current = torch.cuda.current_device()
    if torch.cuda.memory_reserved(current):
        return current
    others = (n for n in range(torch.cuda.device_count()) if torch.cuda.memory_reserved(n))
    return next(others, current)


def is_used() -> bool:
    """Whether this process has begun to use a GPU; begins nothing itself."""
    return bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]  # torch's own


def spans_if_used() -> Spans | None:
    """Marks on the GPU, where this process has begun to use one."""
    return CudaSpans() if is_used() else None
