"""Processes that share the cores of a machine, on a virtual clock.

They share them fairly; where threads of one library wait for each other on too few cores, all of
its work gets slower.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Work:
    """Something that takes a while.

    Attributes:
        ms: where there are cores enough.
        cores: that it keeps busy meanwhile.
        is_joint: whether its threads wait for each other.
    """

    ms: float
    cores: float = 1.0
    is_joint: bool = False

    @property
    def weight(self) -> int:
        """Threads: the system gives each as much as any other."""
        return max(1, math.ceil(self.cores))


@dataclass(frozen=True)
class Get:
    """Waiting for something in a queue."""

    queue: deque[Any]


Doing = Generator[Work | Get, Any, None]


class Process:
    """A process of the machine, as a generator of what it does."""

    def __init__(self, doing: Doing) -> None:
        self._doing = doing
        self.cpu_ms = 0.0
        self.now: Work | Get | None = None
        self.left_ms = 0.0
        self.is_over = False

    def go_on(self) -> bool:
        """Does what takes no time; whether there was anything."""
        if self.is_over or self.is_busy or (isinstance(self.now, Get) and not self.now.queue):
            return False
        came = self.now.queue.popleft() if isinstance(self.now, Get) else None
        try:
            self.now = self._doing.send(came)
        except StopIteration:
            self.now, self.is_over = None, True
        self.left_ms = self.now.ms if isinstance(self.now, Work) else 0.0
        return True

    @property
    def is_busy(self) -> bool:
        """Whether it works."""
        return isinstance(self.now, Work) and self.left_ms > 1e-9


class Machine:
    """Processes on some cores, and the time.

    Args:
        cores: that they share.
        penalty: by how much joint threads are slower for each thread too many of a core.
    """

    def __init__(self, cores: int, penalty: float = 0.0) -> None:
        self.now_ms = 0.0
        self._cores, self._penalty = cores, penalty
        self._processes: list[Process] = []

    def start(self, doing: Doing) -> Process:
        """A process more."""
        self._processes.append(Process(doing))
        return self._processes[-1]

    def run(self, is_over: Callable[[], bool]) -> None:
        """Goes on until something holds."""
        while not is_over():
            while self._go_on():
                pass
            self._processes = [p for p in self._processes if not p.is_over]
            busy = [p for p in self._processes if p.is_busy]
            if not is_over():
                assert busy, "every process waits for another"
                self._pass(busy)

    def _go_on(self) -> bool:
        """All that takes no time; whether there was anything."""
        went = [process.go_on() for process in list(self._processes)]
        return any(went)

    def _pass(self, busy: list[Process]) -> None:
        """Time passes until some work is done."""
        rates = self._rates([p.now for p in busy])
        passed = min(p.left_ms / rate for p, rate in zip(busy, rates, strict=True))
        self.now_ms += passed
        level = self._level([p.now for p in busy])
        for process, rate in zip(busy, rates, strict=True):
            process.left_ms -= passed * rate
            process.cpu_ms += passed * min(process.now.cores, level * process.now.weight)

    def _rates(self, works: list[Work]) -> list[float]:
        """How fast each goes on, 1 where it has all that it can use."""
        level, wanted = self._level(works), sum(work.cores for work in works)
        slower = 1 + self._penalty * max(0.0, wanted / self._cores - 1)
        return [
            (min(1.0, level * work.weight / work.cores) if work.cores else 1.0)
            / (slower if work.is_joint else 1.0)
            for work in works
        ]

    def _level(self, works: list[Work]) -> float:
        """The share of a core that each thread gets which wants more than that."""
        free, threads = float(self._cores), sum(work.weight for work in works)
        for work in sorted(works, key=lambda each: each.cores / each.weight):
            if work.cores / work.weight >= free / threads:
                return min(1.0, free / threads)
            free, threads = free - work.cores, threads - work.weight
            if threads == 0:
                break
        return 1.0
