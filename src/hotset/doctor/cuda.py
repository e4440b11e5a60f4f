"""Marks in the work of a CUDA device, which nobody waits for while the loop runs."""

from __future__ import annotations

from collections import deque
from typing import Any

import torch

from hotset.doctor.measure import Spans

MOST_PENDING = 4096
"""Marks whose time is not read yet; beyond it those that the device has passed are read."""


class CudaSpans:
    """Events on the current stream of the current device.

    Of a long loop, the times of events that the device has passed are read as it goes on, without
    waiting for it, and their events are used again.
    """

    def __init__(self) -> None:
        self._pending: deque[Any] = deque()
        self._free: list[Any] = []
        self._last: Any = None
        self._seconds: list[float] = []

    def mark(self) -> None:
        """Marks the point that the device's work has come to."""
        event = self._free.pop() if self._free else _event()
        event.record()
        self._pending.append(event)
        if len(self._pending) > MOST_PENDING:
            self._read()

    def seconds(self) -> list[float]:
        """The device's seconds from each mark to the next; waits until the device is there."""
        if self._pending:
            self._pending[-1].synchronize()
            self._read()
        return list(self._seconds)

    def _read(self) -> None:
        """Reads what the device has passed, oldest first."""
        while self._pending and self._pending[0].query():
            event = self._pending.popleft()
            if self._last is not None:
                self._seconds.append(self._last.elapsed_time(event) / 1000)
                self._free.append(self._last)
            self._last = event


def _event() -> Any:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]  # torch's own


def is_used() -> bool:
    """Whether this process has begun to use a GPU; begins nothing itself."""
    return bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]  # torch's own


def spans_if_used() -> Spans | None:
    """Marks on the GPU, where this process has begun to use one."""
    return CudaSpans() if is_used() else None
