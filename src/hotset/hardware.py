"""What a measurement was made on and with: hardware, versions."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch

import hotset

PACKAGES = ("torch", "torchvision", "numpy", "numba", "triton", "pillow")


def versions() -> dict[str, str | None]:
    """The versions of all that has a part in the figures; None for what is not installed."""
    found: dict[str, str | None] = {
        "hotset": hotset.__version__,
        "python": platform.python_version(),
    }
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = None
    return found


def hardware() -> dict[str, Any]:
    """Processor, memory, devices, and how busy the machine is."""
    has_affinity = hasattr(os, "sched_getaffinity")
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count(),
        "torch_threads": torch.get_num_threads(),
        "memory_bytes": _memory_bytes(),
        "gpus": _gpus(),
        "load_average": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
    }


def _cpu_model() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            for line in lines:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass  # not Linux
    return platform.processor() or platform.machine()


def _memory_bytes() -> int | None:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return None


def _gpus() -> list[dict[str, Any]]:
    if not torch.cuda.is_available():
        return []
    properties = [torch.cuda.get_device_properties(n) for n in range(torch.cuda.device_count())]
    return [{"name": found.name, "memory_bytes": found.total_memory} for found in properties]
