"""Looking at the machine while a loop runs: processor, memory, storage, GPUs."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

import torch

from hotset.doctor.measure import Clock
from hotset.doctor.usage import GpuUse, Usage

EVERY_S = 0.5
"""Seconds from one look to the next."""
INSTALL = "pip install 'hotset[doctor]'"


@dataclass(frozen=True)
class Totals:
    """What a process and its children have used since they began.

    Attributes:
        cpu_s: seconds of the processor.
        read_bytes: bytes that storage read for them; None where the system does not say.
        asked_bytes: bytes that they asked for, from wherever; None likewise.
    """

    cpu_s: float = 0.0
    read_bytes: int | None = None
    asked_bytes: int | None = None


class Machine:
    """The machine while a loop runs. It has no thread: it looks when it is told to.

    Args:
        clock: gives seconds.
        load: imports a package by its name; raises ImportError where it is not installed.
    """

    def __init__(
        self, clock: Clock = time.perf_counter, *, load: Callable[[str], Any] = import_module
    ) -> None:
        self._clock, self._load = clock, load
        self._psutil: Any = None
        self._gpus: Gpus | None = None
        self._notes: list[str] = []
        self._began = self._next = 0.0
        self._seen: dict[int, Totals] = {}
        self._first: dict[int, Totals] = {}
        self._all_cpu = 0.0
        self._settled: int | None = None

    def begin(self) -> None:
        """The loop begins."""
        self._began = self._clock()
        self._next = self._began + EVERY_S
        try:
            self._psutil = self._load("psutil")
        except ImportError:
            self._notes.append(f"processor, memory and storage were not seen: {INSTALL}")
        else:
            self._all_cpu = self._machine_cpu()
            self._first = self._processes()
            self._seen = dict(self._first)
        self._gpus = Gpus(self._load, self._clock, self._notes)

    def look(self) -> None:
        """Takes in what is used now, where the last look is some time ago."""
        now = self._clock()
        if now >= self._next:
            self._next = now + EVERY_S
            self._look()

    def _look(self) -> None:
        if self._psutil is not None:
            self._seen.update(self._processes())
        if self._gpus is not None:
            self._gpus.look()

    def settle(self) -> None:
        """From now on memory that grows is a growth."""
        if self._psutil is not None:
            self._settled = self._memory()

    def end(self) -> Usage:
        """What was used since the loop began."""
        seconds = self._clock() - self._began
        self._look()
        gpus = self._gpus.uses(self._began) if self._gpus is not None else ()
        if self._psutil is None:
            return Usage(seconds, gpus=gpus, notes=tuple(self._notes))
        used = [_since(total, self._first.get(pid)) for pid, total in self._seen.items()]
        read = _sum(total.read_bytes for total in used)
        asked = _sum(total.asked_bytes for total in used)
        if read is None:
            self._notes.append("this system does not say what was read from storage")
        memory = self._memory()
        span = max(seconds, 1e-9)
        return Usage(
            seconds=seconds,
            cores_busy=sum(total.cpu_s for total in used) / span,
            cores_busy_all=max(0.0, self._machine_cpu() - self._all_cpu) / span,
            read_bytes=read,
            cached_bytes=None if asked is None or read is None else max(0, asked - read),
            memory_bytes=memory,
            growth_bytes=None
            if memory is None or self._settled is None
            else memory - self._settled,
            gpus=gpus,
            notes=tuple(self._notes),
        )

    def _machine_cpu(self) -> float:
        times = self._psutil.cpu_times()
        idle = times.idle + getattr(times, "iowait", 0.0)
        # Guests' time is in that of users already.
        guests = getattr(times, "guest", 0.0) + getattr(times, "guest_nice", 0.0)
        return float(sum(times) - idle - guests)

    def _tree(self) -> list[Any]:
        process = self._psutil.Process(os.getpid())
        try:
            return [process, *process.children(recursive=True)]
        except self._psutil.Error:  # a child may end while they are counted
            return [process]

    def _processes(self) -> dict[int, Totals]:
        """By process; what has ended since keeps what was seen of it last."""
        found = {}
        for process in self._tree():
            try:
                found[process.pid] = self._totals(process)
            except self._psutil.Error:
                continue
        return found

    def _totals(self, process: Any) -> Totals:
        times = process.cpu_times()
        totals = Totals(times.user + times.system)
        try:
            counters = process.io_counters()
        except (AttributeError, self._psutil.Error):  # not on every system, nor for every process
            return totals
        asked = getattr(counters, "read_chars", None)
        return replace(totals, read_bytes=counters.read_bytes, asked_bytes=asked)

    def _memory(self) -> int | None:
        """Resident bytes, pages that several share counted once where the system says so."""
        total = 0
        for process in self._tree():
            try:
                info = process.memory_full_info()
                total += getattr(info, "pss", None) or getattr(info, "uss", None) or info.rss
            except self._psutil.Error:
                continue
        return total or None


def _since(now: Totals, then: Totals | None) -> Totals:
    if then is None:
        return now
    return Totals(
        now.cpu_s - then.cpu_s,
        _difference(now.read_bytes, then.read_bytes),
        _difference(now.asked_bytes, then.asked_bytes),
    )


def _difference(now: int | None, then: int | None) -> int | None:
    return None if now is None or then is None else now - then


def _sum(values: Iterable[int | None]) -> int | None:
    """Of those that are known; None where none is."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


class Gpus:
    """The GPUs that this process may use, by NVML.

    Args:
        load: imports a package by its name.
        clock: gives seconds.
        notes: is told what could not be seen.
    """

    def __init__(self, load: Callable[[str], Any], clock: Clock, notes: list[str]) -> None:
        self._clock = clock
        self._handles: list[Any] = []
        self._since: list[int] = []
        self._samples: list[list[tuple[float, float]]] = []
        self._most: list[int | None] = []
        self._offset: float | None = None
        try:
            self._nvml = load("pynvml")
        except ImportError:
            self._nvml = None
            if torch.cuda.is_available():
                notes.append(f"the GPU's utilisation was not seen: {INSTALL}")
            return
        try:
            self._nvml.nvmlInit()
            self._handles = [self._handle(name) for name in self._visible()]
        except self._nvml.NVMLError as error:
            self._handles = []
            if torch.cuda.is_available():
                notes.append(f"the GPU's utilisation was not seen: NVML says {error}")
        for _ in self._handles:
            self._since.append(0)
            self._samples.append([])
            self._most.append(None)
        self._skip()

    def _visible(self) -> list[str]:
        """Indices or UUIDs, as CUDA_VISIBLE_DEVICES has them, or all."""
        chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
        if chosen is None:
            return [str(number) for number in range(self._nvml.nvmlDeviceGetCount())]
        return [name.strip() for name in chosen.split(",") if name.strip()]

    def _handle(self, name: str) -> Any:
        if name.isdigit():
            return self._nvml.nvmlDeviceGetHandleByIndex(int(name))
        return self._nvml.nvmlDeviceGetHandleByUUID(name)

    def _skip(self) -> None:
        """Passes over what the buffers hold from before the loop."""
        self.look()
        self._samples = [[] for _ in self._handles]

    def look(self) -> None:
        """Takes in what the sample buffers hold since the last look."""
        for place, handle in enumerate(self._handles):
            self._look_at(place, handle)

    def _look_at(self, place: int, handle: Any) -> None:
        nvml = self._nvml
        try:
            used = int(nvml.nvmlDeviceGetMemoryInfo(handle).used)
            self._most[place] = max(used, self._most[place] or 0)
            _, samples = nvml.nvmlDeviceGetSamples(
                handle, nvml.NVML_GPU_UTILIZATION_SAMPLES, self._since[place]
            )
        except nvml.NVMLError:  # no new samples, or a device that keeps none
            return
        for sample in samples:
            stamp = int(sample.timeStamp)
            if stamp <= self._since[place]:
                continue
            self._since[place] = stamp
            if self._offset is None:
                self._offset = time.time() - self._clock()
            seconds = stamp / 1e6 - self._offset
            self._samples[place].append((seconds, sample.sampleValue.uiVal / 100))

    def uses(self, began: float) -> tuple[GpuUse, ...]:
        """What was seen since a second of the clock."""
        found = []
        for place, handle in enumerate(self._handles):
            samples = [(s - began, busy) for s, busy in self._samples[place] if s >= began]
            try:
                name = self._nvml.nvmlDeviceGetName(handle)
                total = int(self._nvml.nvmlDeviceGetMemoryInfo(handle).total)
            except self._nvml.NVMLError:
                continue
            found.append(
                GpuUse(
                    name=name.decode() if isinstance(name, bytes) else name,
                    busy=sum(busy for _, busy in samples) / len(samples) if samples else None,
                    memory_bytes=self._most[place],
                    memory_total_bytes=total,
                    samples=tuple(samples),
                )
            )
        return tuple(found)
