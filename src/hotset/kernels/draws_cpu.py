"""The counter-based generator, compiled by Numba: the same integers as `hotset.rng`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from hotset.rng import MASK_32, PHILOX_M0, PHILOX_M1, PHILOX_ROUNDS, PHILOX_W0, PHILOX_W1

M0, M1 = np.uint64(PHILOX_M0), np.uint64(PHILOX_M1)
W0, W1 = np.uint64(PHILOX_W0), np.uint64(PHILOX_W1)
LOW = np.uint64(MASK_32)
HALF = np.uint64(32)


@njit(nogil=True, cache=True, inline="never")
def philox(c0: Any, c1: Any, c2: Any, c3: Any, seed: Any) -> Any:
    """Four words of Philox 4x32-10 as int64; counters and seed are uint64."""
    k0, k1 = seed & LOW, seed >> HALF
    for _ in range(PHILOX_ROUNDS):
        p0, p1 = c0 * M0, c2 * M1
        c0, c1, c2, c3 = (p1 >> HALF) ^ c1 ^ k0, p1 & LOW, (p0 >> HALF) ^ c3 ^ k1, p0 & LOW
        k0, k1 = (k0 + W0) & LOW, (k1 + W1) & LOW
    return np.int64(c0), np.int64(c1), np.int64(c2), np.int64(c3)


@njit(nogil=True, cache=True)
def draw_words(sample: Any, occurrence: Any, epoch: Any, step: Any, draw: Any, seed: Any) -> Any:
    """Four random words of a step, as `hotset.rng.Draws.words`."""
    c1 = ((sample >> 32) << 16) | (occurrence & 0xFFFF)
    return philox(
        np.uint64(sample) & LOW,
        np.uint64(c1),
        np.uint64(epoch),
        np.uint64((step << 16) | draw),
        seed,
    )
