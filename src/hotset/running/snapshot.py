"""What a dataset consists of at some time, so that a later change is seen.

A loader that keeps samples cannot know that a script goes on to change the dataset, as by a
`set_epoch` of its own. What is cheap to look at is looked at before every epoch.
"""

from __future__ import annotations

import zlib
from collections import deque
from typing import Any

import numpy as np
import torch
from torch import Tensor

MOST = 5_000
"""Things that are looked at; what lies beyond is not seen."""
LONG = 1_000
"""A longer list or dictionary is looked at as a whole."""
WHOLE_BYTES = 16 << 20
"""An array that takes more is looked at in `PROBES` places, and not all over."""
PROBES = 4096
PLAIN = (bool, int, float, complex, str, bytes, type(None))
Snapshot = dict[str, Any]
"""What was found, by where: `.root`, `.items[3].path`."""


def snapshot_of(dataset: Any) -> Snapshot:
    """What is found within reach of a dataset's attributes."""
    found: Snapshot = {}
    seen: set[int] = set()
    waiting: deque[tuple[str, Any]] = deque([("", dataset)])
    while waiting and len(found) < MOST:
        path, thing = waiting.popleft()
        found[path] = _token(thing)
        if id(thing) not in seen:
            seen.add(id(thing))
            waiting.extend(_within(path, thing))
    return found


def differing(before: Snapshot, after: Snapshot) -> frozenset[str]:
    """Where two snapshots differ."""
    return frozenset(
        path
        for path in before.keys() | after.keys()
        if path not in before or path not in after or before[path] != after[path]
    )


def change(before: Snapshot, after: Snapshot, *, but: frozenset[str] = frozenset()) -> str:
    """Where a dataset has changed, the place nearest to it; empty where it has not.

    Args:
        before: the dataset then.
        after: the dataset now.
        but: places that do not count, with all that is within them.
    """
    found = sorted(differing(before, after), key=lambda path: (len(path), path))
    return next((path or "it" for path in found if not _is_in(path, but)), "")


def _is_in(path: str, places: frozenset[str]) -> bool:
    ends = [end for end, sign in enumerate(path) if sign in ".["]
    return any(path[:end] in places for end in (*ends, len(path)))


def _within(path: str, thing: Any) -> list[tuple[str, Any]]:
    """The parts of a thing, with where they are."""
    if isinstance(thing, (*PLAIN, Tensor, np.ndarray, type)) or callable(thing):
        is_object = hasattr(thing, "__dict__") and not isinstance(thing, (Tensor, np.ndarray, type))
        return _attributes(path, thing) if is_object and not hasattr(thing, "__code__") else []
    if isinstance(thing, (list, tuple)):
        return [(f"{path}[{n}]", part) for n, part in enumerate(thing)] if _is_short(thing) else []
    if isinstance(thing, dict):
        parts = list(thing.items()) if _is_short(thing) else []
        return [(f"{path}[{name!r}]", part) for name, part in parts if isinstance(name, PLAIN)]
    return _attributes(path, thing)


def _attributes(path: str, thing: Any) -> list[tuple[str, Any]]:
    return [(f"{path}.{name}", part) for name, part in getattr(thing, "__dict__", {}).items()]


def _is_short(thing: Any) -> bool:
    return len(thing) <= LONG


def _token(thing: Any) -> Any:
    """What tells a thing from what it may become."""
    if isinstance(thing, PLAIN):
        return type(thing), repr(thing)
    if isinstance(thing, Tensor):
        version = None if thing.is_inference() else thing._version
        return id(thing), thing.shape, version, _checksum_of(thing)
    if isinstance(thing, np.ndarray):
        return id(thing), thing.shape, _checksum(thing)
    if isinstance(thing, (list, tuple)) and not _is_short(thing):
        try:
            return len(thing), hash(tuple(thing))
        except TypeError:  # what it holds can change, and is too much to be looked at
            return len(thing), id(thing)
    if isinstance(thing, (list, tuple, dict, set, frozenset)):
        return type(thing), len(thing)
    return type(thing), id(thing)


def _checksum_of(tensor: Tensor) -> int:
    """Of a dense tensor in memory; nothing waits for a device."""
    if tensor.device.type != "cpu" or tensor.layout is not torch.strided or not tensor.numel():
        return 0
    flat = tensor.detach().as_subclass(Tensor).reshape(-1) if tensor.is_contiguous() else None
    if flat is None or tensor.is_quantized or tensor.is_conj() or tensor.is_neg():
        return 0
    return zlib.crc32(_spread(flat).contiguous().view(torch.uint8).numpy().tobytes())


def _checksum(array: np.ndarray) -> int:
    if array.dtype.hasobject or not array.flags.c_contiguous or not array.size:
        return 0
    is_whole = array.nbytes <= WHOLE_BYTES and not isinstance(array, np.memmap)
    flat = array.reshape(-1)
    return zlib.crc32((flat if is_whole else _spread(flat)).tobytes())


def _spread(flat: Any) -> Any:
    """Up to so many values, spread evenly."""
    return flat[:: max(1, len(flat) // PROBES)]
