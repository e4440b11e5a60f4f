"""Looking at the machine while a loop runs: processor, memory, storage, GPUs."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from hotset.doctor.machine.gpus import INSTALL, Gpus
from hotset.doctor.machine.usage import Usage
from hotset.doctor.measure import Clock

EVERY_S = 0.5
"""Seconds from one look to the next."""
FIRST_MEMORY_S = 1.0
"""Seconds until memory is looked at again; each time twice as long, since the system goes through
the pages for it, which takes milliseconds for each gigabyte."""


@dataclass(frozen=True)
class Totals:
    """What a process has used since it began.

    Attributes:
        cpu_s: seconds of the processor; on Linux with those of its children that have ended.
        read_bytes: bytes that storage read for it, likewise; None where the system does not say.
        asked_bytes: bytes that it asked for, from wherever, likewise; None likewise.
    """

    cpu_s: float = 0.0
    read_bytes: int | None = None
    asked_bytes: int | None = None


@dataclass(frozen=True)
class Memory:
    """What some processes have in memory.

    Attributes:
        processes: that were seen.
        nbytes: of all of them.
    """

    processes: int
    nbytes: int


class Machine:
    """The machine while a loop runs. It has no thread: it looks when it is told to.

    Args:
        clock: gives seconds.
        wall: gives seconds since 1970.
        load: imports a package by its name; raises ImportError where it is not installed.
    """

    def __init__(
        self,
        clock: Clock = time.perf_counter,
        *,
        wall: Clock = time.time,
        load: Callable[[str], Any] = import_module,
    ) -> None:
        self._clock, self._wall, self._load = clock, wall, load
        self._processes: Processes | None = None
        self._gpus: Gpus | None = None
        self._notes: list[str] = []
        self._began = 0.0
        self._next = self._next_memory = math.inf
        self._memory_every_s = FIRST_MEMORY_S
        self._settled: Memory | None = None
        self._latest: Memory | None = None

    def begin(self) -> None:
        """The loop begins."""
        try:
            psutil = self._load("psutil")
        except ImportError:
            self._notes.append(f"processor, memory and storage were not seen: {INSTALL}")
        else:
            self._processes = Processes(psutil)
        self._gpus = Gpus(self._load, clock=self._clock, wall=self._wall)
        self._gpus.begin()
        if self._processes is not None:
            self._processes.begin()
        self._began = self._clock()
        self._next = self._began + EVERY_S

    def look(self) -> bool:
        """Takes in what is used now, where the last look is some time ago; else does nothing.

        Gives whether it looked, which takes a millisecond or so.
        """
        now = self._clock()
        if now < self._next:
            return False
        self._next = now + EVERY_S
        if self._gpus is not None:
            self._gpus.look()
        if self._processes is not None:
            self._processes.look()
            if now >= self._next_memory:
                self._next_memory = now + self._memory_every_s
                self._memory_every_s *= 2
                self._compare(self._processes.memory())
        return True

    def settle(self) -> None:
        """From now on memory that grows is a growth."""
        if self._processes is not None:
            self._settled, self._latest = self._processes.memory(), None
            self._next_memory = self._clock() + self._memory_every_s

    def end(self) -> Usage:
        """What was used since the loop began."""
        seconds = self._clock() - self._began
        gpus, notes = self._gpus.end(self._began) if self._gpus is not None else ((), ())
        processes = self._processes
        if processes is None:
            return Usage(seconds, gpus=gpus, notes=(*self._notes, *notes))
        used, machine_s = processes.end()
        memory = processes.memory()
        self._compare(memory)
        span = max(seconds, 1e-9)
        read, asked = used.read_bytes, used.asked_bytes
        return Usage(
            seconds=seconds,
            cores_busy=used.cpu_s / span,
            cores_busy_all=machine_s / span,
            read_bytes=read,
            cached_bytes=None if asked is None or read is None else max(0, asked - read),
            memory_bytes=None if memory is None else memory.nbytes,
            growth_bytes=self._growth(),
            gpus=gpus,
            notes=(*self._notes, *processes.notes, *notes),
        )

    def _compare(self, memory: Memory | None) -> None:
        """Keeps what can be compared: workers that were started or ended are no growth."""
        settled = self._settled
        if memory is not None and settled and memory.processes == settled.processes:
            self._latest = memory

    def _growth(self) -> int | None:
        if self._settled is None or self._latest is None:
            return None
        return self._latest.nbytes - self._settled.nbytes


class Processes:
    """This process and its children.

    On Linux a parent has what its children used as soon as it has waited for them, so what counts
    is what those are at that are there at the end. Elsewhere, a child that ends is counted as it
    was seen last.

    Args:
        psutil: the package.

    Attributes:
        notes: what could not be seen.
    """

    def __init__(self, psutil: Any) -> None:
        self._psutil = psutil
        self._is_handed_on = bool(psutil.LINUX)
        self._first: dict[Any, Totals] = {}
        self._seen: dict[Any, Totals] = {}
        self._machine_s = 0.0
        self._kinds: set[str] = set()

    @property
    def notes(self) -> tuple[str, ...]:
        """What could not be seen, in words."""
        found = []
        if not any(total.read_bytes is not None for total in self._seen.values()):
            found.append("what was read from storage was not seen: this system does not say")
        if "uss" in self._kinds:
            found.append("memory that processes share is not counted: this system does not say")
        if "rss" in self._kinds:
            found.append("memory that processes share is counted for each of them")
        return tuple(found)

    def begin(self) -> None:
        """From now on counts what is used."""
        self._machine_s = self._machine_cpu()
        self._first = self._totals()
        self._seen = dict(self._first)

    def look(self) -> None:
        """Takes in those that are there now, where they would be forgotten once they end."""
        if not self._is_handed_on:
            self._seen.update(self._totals())

    def end(self) -> tuple[Totals, float]:
        """What they used since the beginning; and seconds of the processor that all did."""
        if self._is_handed_on:
            self._seen = self._totals()
        else:
            self.look()
        now, then = self._seen.values(), self._first.values()
        used = Totals(
            max(0.0, sum(each.cpu_s for each in now) - sum(each.cpu_s for each in then)),
            _more([each.read_bytes for each in now], [each.read_bytes for each in then]),
            _more([each.asked_bytes for each in now], [each.asked_bytes for each in then]),
        )
        return used, max(0.0, self._machine_cpu() - self._machine_s)

    def memory(self) -> Memory | None:
        """Resident bytes, pages that several share counted once where the system says so."""
        sizes = [size for process in self._tree() if (size := self._size(process)) is not None]
        return Memory(len(sizes), sum(sizes)) if sizes else None

    def _size(self, process: Any) -> int | None:
        """Of a process; None where it has ended."""
        try:
            info = process.memory_full_info()
            kind = next(name for name in ("pss", "uss", "rss") if hasattr(info, name))
        except self._psutil.AccessDenied:
            kind = "rss"
            try:
                info = process.memory_info()
            except self._psutil.Error:
                return None
        except self._psutil.Error:
            return None
        self._kinds.add(kind)
        return int(getattr(info, kind))

    def _machine_cpu(self) -> float:
        times = self._psutil.cpu_times()
        # Guests' time is in that of users already; what was stolen went to another machine.
        others = ("idle", "iowait", "guest", "guest_nice", "steal")
        return float(sum(times)) - float(sum(getattr(times, name, 0.0) for name in others))

    def _tree(self) -> list[Any]:
        process = self._psutil.Process(os.getpid())
        try:
            return [process, *process.children(recursive=True)]
        except self._psutil.Error:  # a child may end while they are counted
            return [process]

    def _totals(self) -> dict[Any, Totals]:
        """By process: psutil's compare by their number and their beginning."""
        found = {}
        for process in self._tree():
            try:
                times = process.cpu_times()
            except self._psutil.Error:
                continue
            seconds = times.user + times.system
            if self._is_handed_on:
                seconds += times.children_user + times.children_system
            try:
                counters = process.io_counters()
            except (AttributeError, self._psutil.Error):  # not everywhere, nor for every process
                found[process] = Totals(seconds)
                continue
            asked = getattr(counters, "read_chars", None)
            found[process] = Totals(seconds, counters.read_bytes, asked)
        return found


def _more(now: Iterable[int | None], then: Iterable[int | None]) -> int | None:
    """By how much the known ones have grown together; None where none is known."""
    known = [value for value in now if value is not None]
    before = sum(value for value in then if value is not None)
    return max(0, sum(known) - before) if known else None
