"""What the Numba engines share: batches of recycled memory, filled slice by slice."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hotset.kernels.arena import Arena
from hotset.kernels.program import Program
from hotset.kernels.threads import Threads
from hotset.rng import MASK_32, Draws

UNSIGNED = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
SIGNED = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class Batches:
    """Makes batches of a program's shape and dtype.

    Args:
        program: says what an image of a batch is.
        is_channels_last: memory format of the batches.
    """

    def __init__(self, program: Program, is_channels_last: bool) -> None:
        channels, height, width = program.out_shape
        self._shape = (height, width, channels) if is_channels_last else program.out_shape
        self._dtype = program.out_dtype
        self._is_channels_last = is_channels_last
        self._arena: Arena | None = None

    def fill(
        self,
        threads: Threads,
        sizes: Sequence[int],
        fill: Callable[[slice, np.ndarray], None],
    ) -> list[Tensor]:
        """One batch (size, C, H, W) for each of `sizes`.

        Args:
            threads: share the samples.
            sizes: samples in each batch.
            fill: (which samples of all batches end to end, (samples, C*H*W) where to write them,
                as unsigned integers of their size).
        """
        if self._arena is None or self._arena.capacity < max(sizes):
            self._arena = Arena((max(sizes), *self._shape), self._dtype)
        outs = [self._arena.take(size) for size in sizes]
        targets = [bits(out).reshape(len(out), math.prod(self._shape)) for out in outs]
        bounds = list(itertools.pairwise(itertools.accumulate(sizes, initial=0)))

        def work(start: int, stop: int) -> None:
            for target, (first, end) in zip(targets, bounds, strict=True):
                part = slice(max(start, first), min(stop, end))
                if part.start < part.stop:
                    fill(part, target[part.start - first : part.stop - first])

        threads.run(work, sum(sizes))
        return [out.permute(0, 3, 1, 2) for out in outs] if self._is_channels_last else outs


def bits(tensor: Tensor) -> np.ndarray:
    """A CPU tensor's memory as unsigned integers of its elements' size; nothing is copied."""
    size = tensor.element_size()
    return tensor.contiguous().view(SIGNED[size]).numpy().view(UNSIGNED[size])


def chain_of(program: Program) -> tuple[Any, ...]:
    """The arrays of a program that the Numba kernels read."""
    return (
        program.geometry,
        program.maps,
        program.erasures,
        program.scales,
        program.aspects,
        bits(program.values),
        program.base,
    )


def keys_of(draws: Draws) -> tuple[np.ndarray, int]:
    """The epoch's seed and the run's, (2,) uint64, and the epoch's number in 32 bits."""
    key = draws.key
    keys = np.array([key.seed & (2**64 - 1), key.run_seed & (2**64 - 1)], dtype=np.uint64)
    return keys, key.epoch & MASK_32
