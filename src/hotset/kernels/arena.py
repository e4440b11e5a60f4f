"""Host memory for batches, used again once nobody holds the batch that lay in it.

A fresh block of several megabytes costs a page fault per 4 KiB when it is first written, about as
much as filling it. A batch's memory comes back here when the last tensor that shares it is gone,
and not before: a batch that is kept is never overwritten.
"""

from __future__ import annotations

import math
import weakref
from collections import deque

import numpy as np
import torch
from torch import Tensor

KEPT = 8
"""Most free blocks kept: a batch in use, one held by a logger, and those made side by side."""

ALIGNMENT = 64


class Arena:
    """Gives out CPU tensors of one shape and dtype, of recycled memory.

    Args:
        shape: largest shape to be given out; `capacity` is its first axis.
        dtype: of the tensors.

    Example:
        >>> arena = Arena((4, 3), torch.float32)
        >>> arena.take(2).shape
        torch.Size([2, 3])
    """

    def __init__(self, shape: tuple[int, ...], dtype: torch.dtype) -> None:
        self._item_shape = shape[1:]
        self._dtype = dtype
        self._bytes_per_item = math.prod(shape[1:]) * dtype.itemsize
        self.capacity = shape[0]
        self._free: deque[np.ndarray] = deque(maxlen=KEPT)

    def take(self, count: int) -> Tensor:
        """(count, ...) uninitialised tensor; larger than the arena's shape is simply allocated."""
        needed = count * self._bytes_per_item
        if count > self.capacity or needed == 0:
            return torch.empty((count, *self._item_shape), dtype=self._dtype)
        try:
            block = self._free.pop()
        except IndexError:
            block = _aligned(self.capacity * self._bytes_per_item)
        # The tensor owns `lease`; when the last tensor over it dies, so does `lease`, and the block
        # goes back. `block` itself is never handed out.
        lease = block[:needed]
        weakref.finalize(lease, self._free.append, block).atexit = False
        return torch.from_numpy(lease).view(self._dtype).view(count, *self._item_shape)


def _aligned(count: int) -> np.ndarray:
    """(count,) uninitialised uint8 that begins at a cache line, as torch's own memory does."""
    memory = np.empty(count + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + count]
