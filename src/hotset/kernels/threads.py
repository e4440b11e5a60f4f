"""A few threads for the length of an epoch."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib.util import find_spec
from types import TracebackType

import torch

MIN_ITEMS = 16
"""Fewer samples are not worth a second thread: handing over costs about 30 microseconds."""


@cache
def has_numba() -> bool:
    """Whether code can be compiled for the CPU."""
    return find_spec("numba") is not None


def usable_cores() -> int:
    """Processor cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Threads:
    """Runs slices of a batch side by side; a context manager that leaves no thread behind.

    Args:
        count: number of threads, this one included; None takes torch's, bounded by the cores that
            this process may use.

    Attributes:
        count: the number taken.
    """

    def __init__(self, count: int | None = None) -> None:
        if count is None:
            count = min(torch.get_num_threads(), usable_cores())
        self.count = max(1, count)
        self._pool: ThreadPoolExecutor | None = None

    def __enter__(self) -> Threads:
        if self.count > 1:
            self._pool = ThreadPoolExecutor(self.count - 1, thread_name_prefix="hotset")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True)
            self._pool = None

    def run(self, work: Callable[[int, int], None], items: int) -> None:
        """Calls `work(start, stop)` for slices that cover 0 to items; returns when all are done."""
        parts = min(self.count, items // MIN_ITEMS) if self._pool is not None else 1
        if parts <= 1:
            work(0, items)
            return
        assert self._pool is not None
        bounds = [items * part // parts for part in range(parts + 1)]
        waiting = [
            self._pool.submit(work, bounds[part], bounds[part + 1]) for part in range(1, parts)
        ]
        work(0, bounds[1])
        for future in waiting:
            future.result()

    def each(self, work: Callable[[int], None], items: int) -> None:
        """Calls `work(item)` for every item from 0 on; returns when all are done.

        Whichever thread is free takes the next one, so that a thread that has no core just now
        holds up one item, or none, where `run` would wait for its whole slice.
        """
        left = deque(range(items))

        def take() -> None:
            while True:
                try:
                    item = left.popleft()
                except IndexError:
                    return
                work(item)

        others = 0 if self._pool is None else min(self.count, items) - 1
        waiting = [self._pool.submit(take) for _ in range(others)] if self._pool else []
        try:
            take()
        finally:
            for future in waiting:
                if not future.cancel():
                    future.result()
