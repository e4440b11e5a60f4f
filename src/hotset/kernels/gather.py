"""Batches of rows from host memory: every field by one index, several batches side by side."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import numpy as np
import torch
from torch import Tensor

from hotset.kernels.arena import KEPT, Arena
from hotset.kernels.threads import Threads, has_numba

LEAST_SHARED = 1 << 20
"""Fewer bytes than this are left to one thread: it gathers a tenth of them while another begins."""
PART = 256 << 10
"""Bytes that a thread gathers before it takes more of what is left."""
LEAST_SOURCE = 16 << 20
"""Fields of fewer bytes than this are gathered before a compiler is loaded, or its code."""
LEAST_RECYCLED = 128 << 10
"""Smaller blocks, in bytes, the C library recycles; larger ones it may ask the system for."""

Gathering = Callable[[Sequence[Tensor], Tensor, Sequence[int]], list[list[Tensor]]]
"""(fields (N, ...), rows (B,) int64, sizes that add up to B) -> for every field its batches."""


def gather_rows(source: np.ndarray, rows: np.ndarray, out: np.ndarray) -> None:
    """Writes rows of `source` to `out`; holds no lock of Python's, and allocates nothing.

    Args:
        source: (N, row_bytes) uint8, C-contiguous.
        rows: (B,) int64, C-contiguous.
        out: (B, row_bytes) uint8, C-contiguous.

    Raises:
        IndexError: if a row is none of the source's; nothing is written then.
        ValueError: if a shape, a dtype or an array's order is another.

    Example:
        >>> import numpy as np
        >>> out = np.empty((2, 1), np.uint8)
        >>> gather_rows(np.array([[5], [6], [7]], np.uint8), np.array([2, 0]), out)
        >>> out.tolist()
        [[7], [5]]
    """
    expected = {"source": (source, np.uint8, 2), "rows": (rows, np.int64, 1)}
    expected["out"] = out, np.uint8, 2
    for name, (array, dtype, axes) in expected.items():
        if array.dtype != dtype or array.ndim != axes or not array.flags.c_contiguous:
            raise ValueError(
                f"`{name}` must be a C-contiguous array of {axes} axes and dtype "
                f"{np.dtype(dtype)}, got {array.ndim} axes, {array.dtype}, strides {array.strides}"
            )
    if out.shape != (len(rows), source.shape[1]):
        wanted = (len(rows), source.shape[1])
        raise ValueError(f"`out` must have the shape {wanted} for these rows, got {out.shape}")
    check_rows(rows, len(source))
    if not has_numba():
        # With the mode "raise" NumPy copies twice.
        source.take(rows, 0, out=out, mode="clip")
        return
    from hotset.kernels.gather_cpu import copy_rows

    copy_rows(source.ctypes.data, source.shape[1], rows, out.ctypes.data)


def check_rows(rows: np.ndarray, length: int) -> None:
    """Makes sure that rows are there.

    Args:
        rows: (B,) int64, C-contiguous.
        length: number of rows that there are.

    Raises:
        IndexError: if one is not.
    """
    if len(rows) == 0:
        return
    if has_numba():
        from hotset.kernels.gather_cpu import greatest

        if greatest(rows) < length:
            return
    least, most = int(rows.min()), int(rows.max())
    if least < 0 or most >= length:
        raise IndexError(
            f"rows must lie between 0 and {length - 1}, of {length}; got {least} to {most}"
        )


def is_plain(data: Tensor) -> bool:
    """Whether a tensor is nothing but rows of bytes in host memory, end to end."""
    return (
        type(data) is Tensor
        and data.device.type == "cpu"
        and data.layout is torch.strided
        and data.ndim > 0
        and data.is_contiguous()
        and not (data.requires_grad or data.is_conj() or data.is_neg() or data.is_quantized)
    )


def choose_gather(
    nbytes: int, device: torch.device, *, threads: int | None = None
) -> RowGather | None:
    """What gathers rows with compiled code; None where plain PyTorch is to do it.

    Args:
        nbytes: of the fields to gather from, all their rows.
        device: where they lie.
        threads: how many; None for torch's number.
    """
    is_worth_it = device.type == "cpu" and nbytes >= LEAST_SOURCE and has_numba()
    return RowGather(threads) if is_worth_it else None


class RowGather:
    """Gathers rows of plain tensors with compiled code, on a few threads.

    Handing over takes a third of the time that gathering half a megabyte does, so several batches
    are made in one go.

    Args:
        threads: how many; None for torch's number.
    """

    side_by_side = KEPT
    """How many batches are made in one go at best: those whose memory is used again."""

    def __init__(self, threads: int | None = None) -> None:
        self._threads = threads
        self._arenas: dict[tuple[int, torch.Size, torch.dtype], Arena] = {}

    @contextmanager
    def session(self) -> Iterator[Gathering]:
        """Threads for the length of an epoch."""
        with Threads(self._threads) as threads:
            yield partial(self.batches, threads=threads)

    def batches(
        self,
        fields: Sequence[Tensor],
        rows: Tensor,
        sizes: Sequence[int],
        *,
        threads: Threads | None = None,
    ) -> list[list[Tensor]]:
        """For every field its batches, each (size, ...) of the field's dtype.

        Args:
            fields: (N, ...) each, plain ones (see `is_plain`).
            rows: (B,) int64 on the CPU.
            sizes: samples of each batch, B in all.
            threads: share the samples; None leaves them to this thread.

        Raises:
            IndexError: if a row is not there.
        """
        from hotset.kernels.gather_cpu import gather_segments

        chosen = np.ascontiguousarray(rows.numpy())
        check_rows(chosen, min(len(data) for data in fields))
        bounds = list(itertools.pairwise(itertools.accumulate(sizes, initial=0)))
        lengths = [data[:1].nbytes for data in fields]
        outs = [
            [self._out(number, data, size, lengths[number]) for size in sizes]
            for number, data in enumerate(fields)
        ]
        segments = np.array(
            [
                (data.data_ptr(), row_bytes, out.data_ptr(), *bound)
                for data, row_bytes, made in zip(fields, lengths, outs, strict=True)
                for out, bound in zip(made, bounds, strict=True)
            ],
            dtype=np.int64,
        )
        total = sum(lengths) * len(chosen)
        if threads is None or threads.count == 1 or total < LEAST_SHARED:
            gather_segments(segments, chosen, 0, len(chosen))
            return outs
        part = max(1, len(chosen) * PART // total)

        def work(number: int) -> None:
            gather_segments(segments, chosen, number * part, (number + 1) * part)

        threads.each(work, -(-len(chosen) // part))
        return outs

    def _out(self, number: int, data: Tensor, size: int, row_bytes: int) -> Tensor:
        shape = (size, *data.shape[1:])
        if size * row_bytes < LEAST_RECYCLED:
            return torch.empty(shape, dtype=data.dtype, device="cpu")
        key = number, data.shape[1:], data.dtype
        arena = self._arenas.get(key)
        if arena is None or arena.capacity < size:
            arena = self._arenas[key] = Arena(shape, data.dtype)
        return arena.take(size)
