"""What it costs to copy a batch to the device, by image size and by dtype."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from hotset.bench.table import number, table
from hotset.bench.timing import Say, Spread, Stopwatch, interleaved

DTYPES = {"uint8": torch.uint8, "float16": torch.float16, "float32": torch.float32}
CHANNELS = 3
MOST_BATCH = 256
MOST_BATCH_BYTES = 202_000_000
"""Most bytes of a batch as float32: 16 images of 1024 pixels; source and target take twice that."""
CYCLE_BYTES = 128 << 20
"""Small batches are read from so many bytes in turn: more than the caches hold."""


@dataclass(frozen=True)
class Copy:
    """Copies of one kind.

    Attributes:
        size: height and width in pixels.
        batch: images in the batch.
        dtype: name of the dtype.
        nbytes: bytes of the batch.
        ms: milliseconds per batch.
        to_uint8: time over that of the same batch as uint8.
    """

    size: int
    batch: int
    dtype: str
    nbytes: int
    ms: Spread
    to_uint8: Spread

    @property
    def gb_per_s(self) -> float:
        """Billions of bytes copied per second."""
        return self.nbytes / self.ms.median / 1e6

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "size": self.size,
            "batch": self.batch,
            "dtype": self.dtype,
            "bytes": self.nbytes,
            "ms": self.ms.as_dict(),
            "gb_per_s": self.gb_per_s,
            "ratio_to_uint8": self.to_uint8.as_dict(),
        }


def batch_of(size: int) -> int:
    """Images of that size in a batch: 256, or fewer where they would take too much memory.

    Example:
        >>> [batch_of(size) for size in (32, 224, 512, 1024)]
        [256, 256, 64, 16]
    """
    image_bytes = CHANNELS * size * size * DTYPES["float32"].itemsize
    most = MOST_BATCH
    while most > 1 and most * image_bytes > MOST_BATCH_BYTES:
        most //= 2
    return most


def measure_copies(
    device: torch.device, sizes: Sequence[int], rounds: int, watch: Stopwatch, say: Say
) -> list[Copy]:
    """Copies of every size and dtype, from pinned memory where the device is another one.

    Args:
        device: where to.
        sizes: heights and widths in pixels.
        rounds: timed passes of each.
        watch: the clock, and how to wait for the device.
        say: told what is measured.
    """
    largest = max(batch_of(size) * CHANNELS * size * size * 4 for size in sizes)
    pool = torch.empty(max(CYCLE_BYTES, largest), dtype=torch.uint8)
    pool.fill_(1)  # a page that was never written is no memory, and quick to read
    target = torch.empty(largest, dtype=torch.uint8, device=device)
    target.fill_(0)
    if device.type != "cpu":
        pool = pool.pin_memory()
    kinds = [(size, name) for size in sizes for name in DTYPES]
    tasks = {
        f"{size} pixels, {name}": _copying(pool, target, size, DTYPES[name], watch)
        for size, name in kinds
    }
    for task in tasks.values():
        task()
    found = interleaved(tasks, rounds, say, what="copies, ")
    copies = []
    for size, name in kinds:
        nbytes = batch_of(size) * CHANNELS * size * size * DTYPES[name].itemsize
        ms = found[f"{size} pixels, {name}"]
        ratio = ms.over(found[f"{size} pixels, uint8"])
        copies.append(Copy(size, batch_of(size), name, nbytes, ms, ratio))
    return copies


def _copying(
    pool: Tensor, target: Tensor, size: int, dtype: torch.dtype, watch: Stopwatch
) -> Callable[[], float]:
    """Copies every batch that the pool holds, and returns milliseconds per batch."""
    items = math.prod((batch_of(size), CHANNELS, size, size))
    source = pool.view(dtype)[: pool.nbytes // dtype.itemsize // items * items]
    batches = torch.split(source, items)
    out = target.view(dtype)[:items]

    def run() -> float:
        watch.finish()
        start = watch.clock()
        for batch in batches:
            out.copy_(batch, non_blocking=True)
        watch.finish()
        return (watch.clock() - start) / len(batches) * 1e3

    return run


def copies_table(copies: Sequence[Copy]) -> str:
    """One line per size: milliseconds, GB/s and the ratio to uint8 of each dtype."""
    header = ["pixels", "batch", "uint8 ms", "GB/s"]
    for name in list(DTYPES)[1:]:
        header += [f"{name} ms", "GB/s", "× uint8"]
    rows = []
    for size in dict.fromkeys(copy.size for copy in copies):
        of_size = [copy for copy in copies if copy.size == size]
        cells = [str(size), str(of_size[0].batch)]
        for copy in of_size:
            cells += [number(copy.ms.median), number(copy.gb_per_s)]
            if copy.dtype != "uint8":
                cells.append(number(copy.to_uint8.median))
        rows.append(cells)
    return table(header, rows)
