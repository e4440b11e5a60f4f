"""The GPUs while a loop runs, as an NVML that only knows what it is told says."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from hotset.doctor.machine.gpus import Gpus
from hotset.doctor.machine.usage import GpuUse

WALL = 1_000_000.0
"""Seconds since 1970 when the test's clock is at 0."""


class NVMLError(Exception):
    def __init__(self, value: int, words: str = "") -> None:
        super().__init__(words)
        self.value = value


class Device:
    """A GPU: samples are (second of the test's clock, per cent busy)."""

    def __init__(self, number: int) -> None:
        self.uuid, self.name = f"GPU-{number}{number}-uuid", f"GPU {number}"
        self.used, self.total = 100, 1000
        self.samples: list[tuple[float, Any]] = []
        self.kind = 1
        self.asked_since: list[int] = []


class Nvml:
    """In the place of pynvml."""

    NVMLError = NVMLError
    NVML_ERROR_NOT_FOUND, NVML_GPU_UTILIZATION_SAMPLES = 6, 1

    def __init__(self, count: int) -> None:
        self.devices = [Device(number) for number in range(count)]
        self.log: list[str] = []
        self.faults: dict[str, NVMLError] = {}

    def _said(self, name: str) -> None:
        self.log.append(name)
        if name in self.faults:
            raise self.faults[name]

    def nvmlInit(self) -> None:  # noqa: N802  # as NVML names it
        self._said("init")

    def nvmlShutdown(self) -> None:  # noqa: N802
        self._said("shutdown")

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        self._said("count")
        return len(self.devices)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Device:  # noqa: N802
        return self.devices[index]

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> Device:  # noqa: N802
        if uuid != "MIG-part":
            raise NVMLError(6, "Not Found")
        part = Device(7)
        part.name = "a part"
        return part

    def nvmlDeviceGetUUID(self, device: Device) -> str:  # noqa: N802
        return device.uuid

    def nvmlDeviceGetName(self, device: Device) -> str | bytes:  # noqa: N802
        self._said("name")
        return device.name

    def nvmlDeviceGetMemoryInfo(self, device: Device) -> Any:  # noqa: N802
        self._said("memory")
        return SimpleNamespace(used=device.used, total=device.total)

    def nvmlDeviceGetSamples(self, device: Device, kind: int, since: int) -> Any:  # noqa: N802
        self._said("samples")
        assert kind == self.NVML_GPU_UTILIZATION_SAMPLES
        device.asked_since.append(since)
        stamped = [(round((WALL + at) * 1e6), busy) for at, busy in device.samples]
        # NVML's words leave open whether the last one that was seen comes again.
        new = [(stamp, busy) for stamp, busy in stamped if stamp >= since]
        if not new:
            raise NVMLError(6, "Not Found")
        name = ("dVal", "uiVal")[device.kind]
        return device.kind, [
            SimpleNamespace(timeStamp=stamp, sampleValue=SimpleNamespace(**{name: busy}))
            for stamp, busy in new
        ]


class Torch:
    """What is asked of `torch.cuda`: the NVML number of each of its devices."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.order: list[int] = []
        self.held: dict[int, int] = {}
        self.is_available = True
        for name in ("is_initialized", "device_count", "get_device_properties", "memory_reserved"):
            monkeypatch.setattr(torch.cuda, name, getattr(self, f"_{name}"))
        monkeypatch.setattr(torch.cuda, "is_available", lambda: self.is_available)
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    def _is_initialized(self) -> bool:
        return bool(self.order)

    def _device_count(self) -> int:
        return len(self.order)

    def _get_device_properties(self, number: int) -> Any:
        return SimpleNamespace(uuid=f"{self.order[number]}{self.order[number]}-uuid")

    def _memory_reserved(self, number: int) -> int:
        return self.held.get(number, 0)


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Torch:
    """In the place of torch's."""
    return Torch(monkeypatch)


def gpus_of(nvml: Nvml | None) -> Gpus:
    """On a clock that stands at 0, with the package or without."""

    def load(name: str) -> Any:
        assert name == "pynvml"
        if nvml is None:
            raise ImportError(name)
        return nvml

    found = Gpus(load, clock=lambda: 0.0, wall=lambda: WALL)
    found.begin()
    return found


def names(uses: tuple[GpuUse, ...]) -> list[str]:
    """Of the GPUs."""
    return [use.name for use in uses]


def test_samples_since_the_loop_began(cuda: Torch) -> None:
    """Each once, also where the buffer gives it again; memory at its most."""
    nvml = Nvml(1)
    device = nvml.devices[0]
    device.samples = [(-9.0, 100), (1.0, 90)]
    gpus = gpus_of(nvml)
    device.used = 700
    device.samples += [(3.0, 50), (2.5, 10)]
    gpus.look()
    gpus.look()
    device.used = 300
    device.samples.append((4.0, 105))
    uses, notes = gpus.end(2.0)
    assert notes == ()
    assert uses == (
        GpuUse(
            name="GPU 0",
            busy=pytest.approx((0.1 + 0.5 + 1.0) / 3),
            memory_bytes=700,
            memory_total_bytes=1000,
            samples=((0.5, 0.1), (1.0, 0.5), (2.0, 1.0)),
        ),
    )
    stamps = [0, 1.0, 3.0, 3.0]
    assert device.asked_since == [round((WALL + at) * 1e6) if at else 0 for at in stamps]
    assert nvml.log[-1] == "shutdown"


def test_no_samples(cuda: Torch) -> None:
    """Nobody knows how busy it was; while there are none yet, that is no problem."""
    uses, notes = gpus_of(Nvml(1)).end(0.0)
    assert uses == (GpuUse("GPU 0", None, 100, 1000),)
    assert notes == ()


def test_samples_of_another_type(cuda: Torch) -> None:
    """NVML says which; older packages give bytes for names."""
    nvml = Nvml(1)
    nvml.devices[0].kind, nvml.devices[0].samples = 0, [(1.0, 12.5)]
    nvml.devices[0].name = b"old"
    uses, _ = gpus_of(nvml).end(0.0)
    assert uses == (GpuUse("old", 0.125, 100, 1000, ((1.0, 0.125),)),)


@pytest.mark.parametrize(
    ("visible", "seen"),
    [
        (None, ["GPU 0", "GPU 1", "GPU 2"]),
        ("2,0", ["GPU 2", "GPU 0"]),
        (" 1 ", ["GPU 1"]),
        ("", []),
        ("-1", []),
        ("1,9,0", ["GPU 1"]),
        ("GPU-22-uuid,GPU-0", ["GPU 2", "GPU 0"]),
        ("GPU-", []),
        ("11-uuid", []),
        ("MIG-part", ["a part"]),
        ("MIG-none,1", []),
    ],
)
def test_visible_devices(
    cuda: Torch, monkeypatch: pytest.MonkeyPatch, visible: str | None, seen: list[str]
) -> None:
    """As CUDA reads its variable."""
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    uses, notes = gpus_of(Nvml(3)).end(0.0)
    assert names(uses) == seen
    assert notes == ()


def test_devices_as_torch_has_them(cuda: Torch, monkeypatch: pytest.MonkeyPatch) -> None:
    """CUDA may number them in another order than NVML; only those with memory of torch's count."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    nvml = Nvml(3)
    nvml.devices[2].samples = [(1.0, 40)]
    gpus = gpus_of(nvml)
    cuda.order = [2, 0]  # torch is used from here on
    gpus.look()
    cuda.held = {0: 5000}
    uses, notes = gpus.end(0.0)
    assert uses == (GpuUse("GPU 2", 0.4, 100, 1000, ((1.0, 0.4),)),)
    assert notes == ()


def test_torch_holds_nothing_yet(cuda: Torch) -> None:
    """All devices that it numbers count."""
    cuda.order = [1, 2]
    uses, _ = gpus_of(Nvml(3)).end(0.0)
    assert names(uses) == ["GPU 1", "GPU 2"]


@pytest.mark.parametrize("is_available", [True, False])
def test_no_package(cuda: Torch, is_available: bool) -> None:
    """Matters only where torch sees a GPU."""
    cuda.is_available = is_available
    uses, notes = gpus_of(None).end(0.0)
    install = "the GPU's utilisation was not seen: pip install 'hotset[doctor]'"
    assert (uses, notes) == ((), (install,) if is_available else ())


@pytest.mark.parametrize("is_available", [True, False])
@pytest.mark.parametrize("call", ["init", "count"])
def test_no_driver(cuda: Torch, call: str, is_available: bool) -> None:
    """Likewise."""
    cuda.is_available = is_available
    nvml = Nvml(1)
    nvml.faults[call] = NVMLError(12, "Shared Library Not Found")
    uses, notes = gpus_of(nvml).end(0.0)
    says = "the GPU's utilisation was not seen: NVML says: Shared Library Not Found"
    assert (uses, notes) == ((), (says,) if is_available else ())


def test_a_device_that_keeps_no_samples(cuda: Torch) -> None:
    """All else is there, with a word."""
    nvml = Nvml(1)
    nvml.faults["samples"] = NVMLError(3, "Not Supported")
    uses, notes = gpus_of(nvml).end(0.0)
    assert uses == (GpuUse("GPU 0", None, 100, 1000),)
    assert notes == ("the GPU's utilisation was not seen: NVML says: Not Supported",)


def test_a_device_that_fails_for_a_while(cuda: Torch) -> None:
    """What it said before and after counts."""
    nvml = Nvml(1)
    device = nvml.devices[0]
    device.samples = [(1.0, 20)]
    gpus = gpus_of(nvml)
    nvml.faults = {"samples": NVMLError(999, "Unknown"), "memory": NVMLError(999, "Unknown")}
    gpus.look()
    nvml.faults = {"shutdown": NVMLError(999, "Unknown")}
    device.samples.append((2.0, 40))
    uses, notes = gpus.end(0.0)
    assert uses[0].samples == ((1.0, 0.2), (2.0, 0.4))
    assert notes == ()


def test_a_device_that_is_lost(cuda: Torch) -> None:
    """Is left out, with a word."""
    nvml = Nvml(1)
    gpus = gpus_of(nvml)
    nvml.faults = dict.fromkeys(("samples", "memory", "name"), NVMLError(15, "GPU is lost"))
    uses, notes = gpus.end(0.0)
    assert uses == ()
    assert notes == ("the GPU's utilisation was not seen: NVML says: GPU is lost",)
