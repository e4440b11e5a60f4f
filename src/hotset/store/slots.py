"""Memory that worker processes put chunks into: the same few pieces, over and over.

A tensor on its way between processes lies in a file of its own, whose pages the system must first
make and empty: that took as long as decoding a third of a photograph.
"""

from __future__ import annotations

import mmap
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from hotset.store.chunk import Chunk

AHEAD = 2
"""Tasks that torch gives each worker ahead, where nothing else is asked for."""


class Slots:
    """One piece of memory for every task that may be under way, and for the one being used.

    Torch hands out the next task when it gives a result, so that the piece of a task is free again
    once as many later ones as there are pieces have been handed out. Where processes are not
    forked, no memory is shared, and chunks travel as tensors.

    Args:
        workers: processes.
        ahead: tasks under way per process.
        slot_bytes: size of a piece; what does not fit travels as a tensor.
    """

    def __init__(self, workers: int, ahead: int, slot_bytes: int) -> None:
        self._count = workers * ahead + 1 if workers > 0 else 0
        self._slot_bytes = max(1, slot_bytes)
        self._memory: np.ndarray | None = None
        if self._count:
            shared = mmap.mmap(-1, self._count * self._slot_bytes)
            self._memory = np.frombuffer(shared, np.uint8)

    def __reduce__(self) -> Any:
        return Slots, (0, 0, 0)  # a process that is not forked has none

    def room(self, task: int) -> np.ndarray | None:
        """(slot_bytes,) uint8 for a task's chunk; None where there is none.

        Args:
            task: tasks handed out before it.
        """
        if self._memory is None:
            return None
        start = task % self._count * self._slot_bytes
        return self._memory[start : start + self._slot_bytes]

    def filled(self, task: int, chunk: Chunk) -> Chunk:
        """A chunk with its payload, which is to be used before the next result is asked for."""
        room = self.room(task)
        if chunk.in_room is None or room is None:
            return chunk
        return replace(chunk, payload=torch.from_numpy(room[: chunk.in_room]), in_room=None)
