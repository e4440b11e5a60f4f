"""Budgets: how many bytes a tier may take."""

from __future__ import annotations

import os
import re

import torch

from hotset.errors import ConfigError, DeviceError

UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
UNITS |= {"KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}
DEFAULT_SHARE = 0.5
"""Share of the free memory taken when no budget is given: the model comes first."""


def budget_bytes(budget: int | str | None, free_bytes: int) -> int:
    """A budget in bytes.

    Args:
        budget: bytes, "8GB", "60%" of what is free, or None for half of what is free.
        free_bytes: what is free.

    Raises:
        ConfigError: if it is none of these.

    Example:
        >>> budget_bytes("8GB", 0), budget_bytes("60%", 1000), budget_bytes(None, 1000)
        (8000000000, 600, 500)
    """
    if budget is None:
        return int(free_bytes * DEFAULT_SHARE)
    if isinstance(budget, int) and not isinstance(budget, bool) and budget >= 0:
        return budget
    if isinstance(budget, str):
        match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*(%|[a-zA-Z]*)\s*", budget)
        if match and match[2] == "%" and float(match[1]) <= 100:
            return int(free_bytes * float(match[1]) / 100)
        if match and match[2].upper() in UNITS:
            return int(float(match[1]) * UNITS[match[2].upper()])
    raise ConfigError(f"`budget` must be bytes, '8GB' or '60%', got {budget!r}")


def free_bytes(device: torch.device) -> int:
    """Bytes free on a device now; on the CPU, what the system calls available."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:
            for line in lines:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass  # not Linux
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def resolve_device(device: str | torch.device | None) -> torch.device:
    """A device that exists, with its number; None is torch's default device.

    Raises:
        ConfigError: if it is no device's name.
        DeviceError: if this machine has no such device; says what there is.
    """
    try:
        found = torch.get_default_device() if device is None else torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise ConfigError(f"`device` must be like 'cpu' or 'cuda:0', got {device!r}") from error
    if found.type == "cpu":
        return torch.device("cpu")
    if found.type != "cuda":
        raise DeviceError(f"`device` must be 'cpu' or 'cuda', got {str(found)!r}")
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    current = torch.cuda.current_device() if count else 0
    number = current if found.index is None else found.index  # type: ignore[redundant-expr]
    if number >= count:
        built = torch.version.cuda or "no CUDA"
        there = f"{count} CUDA device(s)" if count else "no CUDA device, only the CPU"
        raise DeviceError(
            f"device={str(device)!r} was asked for, but there is {there} "
            f"(PyTorch {torch.__version__}, built with {built}); pass device='cpu'"
        )
    return torch.device("cuda", number)
