"""Devices: which there are, and what is free on them."""

from __future__ import annotations

import os

import torch

from hotset.errors import ConfigError, DeviceError


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


def local_ranks() -> int:
    """Processes of this run on this machine, as a launcher such as torchrun says; 1 without one."""
    given = os.environ.get("LOCAL_WORLD_SIZE", "")
    return max(1, int(given)) if given.isdecimal() else 1


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
    # torch's types say that `index` is a number always; "cuda" alone has none.
    number = current if found.index is None else found.index  # type: ignore[redundant-expr]
    if number >= count:
        built = torch.version.cuda or "no CUDA"
        there = f"{count} CUDA device(s)" if count else "no CUDA device, only the CPU"
        raise DeviceError(
            f"device={str(device)!r} was asked for, but there is {there} "
            f"(PyTorch {torch.__version__}, built with {built}); pass device='cpu'"
        )
    return torch.device("cuda", number)
