"""The GPUs of this process while a loop runs, by NVML."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import torch

from hotset.doctor.machine.cuda import is_used
from hotset.doctor.machine.usage import GpuUse
from hotset.doctor.measure import Clock

INSTALL = "pip install 'hotset[doctor]'"
FIELDS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
"""Of NVML's value union, by NVML's number of the type."""


@dataclass(eq=False)
class Watched:
    """A GPU that is looked at.

    Attributes:
        handle: NVML's.
        uuid: without what NVML puts before it.
        since: microseconds; what its buffer held until then is known.
        samples: (seconds of the clock, share busy) pairs.
        most: bytes that were taken at once; None where NVML does not say.
        problem: why there are no samples; empty where NVML has said nothing.
    """

    handle: Any
    uuid: str
    since: int = 0
    samples: list[tuple[float, float]] = field(default_factory=list)
    most: int | None = None
    problem: str = ""


class Gpus:
    """The GPUs that this process uses: those that torch has memory on, else all it may see.

    Args:
        load: imports a package by its name; raises ImportError where it is not installed.
        clock: gives seconds.
        wall: gives seconds since 1970, as NVML's samples have them.
    """

    def __init__(
        self, load: Callable[[str], Any], *, clock: Clock, wall: Clock = time.time
    ) -> None:
        self._load = load
        self._ahead = wall() - clock()
        self._nvml: Any = None
        self._watched: list[Watched] = []
        self._is_by_torch = False
        self._problem = ""

    def begin(self) -> None:
        """Finds NVML, and looks for the first time."""
        try:
            nvml = self._load("pynvml")
        except ImportError:
            self._problem = INSTALL
            return
        try:
            nvml.nvmlInit()
        except nvml.NVMLError as error:
            self._problem = f"NVML says: {error}"
            return
        self._nvml = nvml
        self.look()

    def look(self) -> None:
        """Takes in what the sample buffers hold since the last look."""
        if self._nvml is None:
            return
        # Which of the system's devices CUDA numbers how is certain only once torch uses it.
        if not self._watched or (not self._is_by_torch and is_used()):
            self._choose()
        for gpu in self._watched:
            self._look_at(gpu)

    def end(self, began: float) -> tuple[tuple[GpuUse, ...], tuple[str, ...]]:
        """What was seen since a second of the clock, and what could not be.

        NVML is let go: ask for no more.
        """
        self.look()
        gpus = self._taken()
        uses = tuple(use for gpu in gpus if (use := self._use(gpu, began)) is not None)
        problems = [gpu.problem for gpu in gpus if gpu.problem and not gpu.samples]
        problem = self._problem or next(iter(problems), "")
        if self._nvml is not None:
            with suppress(self._nvml.NVMLError):  # it goes with the process
                self._nvml.nvmlShutdown()
        # Whether torch sees a GPU is asked last: asking may wake the driver.
        if problem and (uses or torch.cuda.is_available()):
            return uses, (f"the GPU's utilisation was not seen: {problem}",)
        return uses, ()

    def _choose(self) -> None:
        nvml = self._nvml
        try:
            handles = [nvml.nvmlDeviceGetHandleByIndex(n) for n in range(nvml.nvmlDeviceGetCount())]
            there = [Watched(handle, _plain(nvml.nvmlDeviceGetUUID(handle))) for handle in handles]
        except nvml.NVMLError as error:
            self._problem = f"NVML says: {error}"
            return
        uuids = _torch_uuids()
        self._is_by_torch = bool(uuids)
        if uuids:
            self._watched = [gpu for gpu in there if gpu.uuid in uuids]
        else:
            self._watched = list(self._visible(there))

    def _visible(self, there: list[Watched]) -> Iterator[Watched]:
        """As CUDA reads its variable: up to the first entry that it cannot make out."""
        chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
        if chosen is None:
            yield from there
            return
        for name in (entry.strip() for entry in chosen.split(",")):
            if name.isdigit() and int(name) < len(there):
                yield there[int(name)]
            elif name.startswith("MIG-"):
                try:
                    yield Watched(self._nvml.nvmlDeviceGetHandleByUUID(name), _plain(name))
                except self._nvml.NVMLError:
                    return
            else:
                alike = [gpu for gpu in there if gpu.uuid.startswith(_plain(name))]
                if not name.startswith("GPU-") or len(alike) != 1:
                    return
                yield alike[0]

    def _look_at(self, gpu: Watched) -> None:
        nvml = self._nvml
        with suppress(nvml.NVMLError):  # not every kind of device tells
            used = int(nvml.nvmlDeviceGetMemoryInfo(gpu.handle).used)
            gpu.most = max(used, gpu.most or 0)
        try:
            kind, samples = nvml.nvmlDeviceGetSamples(
                gpu.handle, nvml.NVML_GPU_UTILIZATION_SAMPLES, gpu.since
            )
        except nvml.NVMLError as error:
            if getattr(error, "value", None) != nvml.NVML_ERROR_NOT_FOUND:  # that is: none yet
                gpu.problem = f"NVML says: {error}"
            return
        before = gpu.since
        for sample in samples:
            stamp = int(sample.timeStamp)
            if stamp > before:
                busy = float(getattr(sample.sampleValue, FIELDS[kind])) / 100
                gpu.since = max(gpu.since, stamp)
                gpu.samples.append((stamp / 1e6 - self._ahead, min(1.0, busy)))

    def _taken(self) -> list[Watched]:
        """Those that torch has memory on; all, where it has none on any."""
        if not self._is_by_torch:
            return self._watched
        uuids = _torch_uuids(is_held=True)
        return [gpu for gpu in self._watched if gpu.uuid in uuids] or self._watched

    def _use(self, gpu: Watched, began: float) -> GpuUse | None:
        samples = sorted((at - began, busy) for at, busy in gpu.samples if at >= began)
        try:
            name = self._nvml.nvmlDeviceGetName(gpu.handle)
            total = int(self._nvml.nvmlDeviceGetMemoryInfo(gpu.handle).total)
        except self._nvml.NVMLError as error:
            gpu.problem = f"NVML says: {error}"
            return None
        return GpuUse(
            name=_text(name),
            busy=sum(busy for _, busy in samples) / len(samples) if samples else None,
            memory_bytes=gpu.most,
            memory_total_bytes=total,
            samples=tuple(samples),
        )


def _torch_uuids(*, is_held: bool = False) -> set[str]:
    """Of the devices that torch numbers, where it uses any; starts nothing.

    Args:
        is_held: only those that it has memory on.
    """
    if not is_used():
        return set()
    numbers = range(torch.cuda.device_count())
    return {
        _plain(str(torch.cuda.get_device_properties(number).uuid))
        for number in numbers
        if not is_held or torch.cuda.memory_reserved(number)
    }


def _text(name: str | bytes) -> str:
    """Older releases of NVML's package give bytes."""
    return name.decode() if isinstance(name, bytes) else name


def _plain(uuid: str | bytes) -> str:
    return _text(uuid).removeprefix("GPU-").removeprefix("MIG-")
