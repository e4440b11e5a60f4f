"""The counter-based generator: random integers as a function of (seed, epoch, sample, step).

This is the reference, in PyTorch, for any device. The kernels hold the same function in Numba and
Triton; the tests hold all three to the same integers.

Counter layout, four 32-bit words:

    word 0   sample id, low 32 bits
    word 1   upper half: sample id, bits 32 to 47; lower half: occurrence in this epoch
    word 2   epoch
    word 3   upper half: step; lower half: draw within the step

Source: Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3. SC 2011 (Philox
4x32-10).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

PHILOX_M0, PHILOX_M1 = 0xD2511F53, 0xCD9E8D57
PHILOX_W0, PHILOX_W1 = 0x9E3779B9, 0xBB67AE85
PHILOX_ROUNDS = 10
MASK_32 = 0xFFFFFFFF

ORDER_STEP = 0xFFFF
"""Step number reserved for the order of an epoch."""
WORKER_STEP = 0xFFFE
"""Step number reserved for seeding a user's own random callables."""
RUN_EPOCH = 0xFFFFFFFF
"""Epoch number reserved for draws that stay the same over a whole run."""


@dataclass(frozen=True)
class Key:
    """What one epoch's draws are keyed by.

    Attributes:
        seed: 64-bit seed of this epoch's draws.
        epoch: number of the epoch, from 0.
        run_seed: 64-bit seed of draws that hold for the whole run (alternating flip).
    """

    seed: int
    epoch: int
    run_seed: int


def philox(counter: Tensor, seed: Tensor | int) -> Tensor:
    """Philox 4x32-10 of each counter.

    Args:
        counter: (..., 4) int64, every word in 0 to 2**32 - 1.
        seed: 64 bits; its low word is the first key word.

    Returns:
        (..., 4) int64, every word in 0 to 2**32 - 1, on the counter's device.

    Example:
        >>> [hex(w) for w in philox(torch.zeros(4, dtype=torch.int64), 0).tolist()]
        ['0x6627e8d5', '0xe169c58d', '0xbc57ac4c', '0x9b00dbd8']
    """
    c0, c1, c2, c3 = counter.unbind(-1)
    k0, k1 = seed & MASK_32, (seed >> 32) & MASK_32
    for _ in range(PHILOX_ROUNDS):
        p0, p1 = c0 * PHILOX_M0, c2 * PHILOX_M1  # 64-bit products; int64 wraps, the bits are right
        c0, c1, c2, c3 = (
            ((p1 >> 32) & MASK_32) ^ c1 ^ k0,
            p1 & MASK_32,
            ((p0 >> 32) & MASK_32) ^ c3 ^ k1,
            p0 & MASK_32,
        )
        k0, k1 = (k0 + PHILOX_W0) & MASK_32, (k1 + PHILOX_W1) & MASK_32
    return torch.stack((c0, c1, c2, c3), dim=-1)


@dataclass(frozen=True)
class Draws:
    """The random words of one batch.

    Attributes:
        key: the epoch's key.
        ids: (B,) int64 sample ids, below 2**48.
        occurrence: (B,) int64, how often the sample came earlier in this epoch (0 but for sampling
            with replacement), so that a repeated sample is augmented anew.
    """

    key: Key
    ids: Tensor
    occurrence: Tensor

    def words(self, step: int, draw: int = 0) -> Tensor:
        """(B, 4) int64 random 32-bit words of a step, new in every epoch."""
        return self._words(self.key.seed, self.key.epoch & MASK_32, step, draw)

    def run_words(self, step: int, draw: int = 0) -> Tensor:
        """(B, 4) int64 random 32-bit words of a step, the same in every epoch of a run."""
        return self._words(self.key.run_seed, RUN_EPOCH, step, draw)

    def _words(self, seed: int, epoch: int, step: int, draw: int) -> Tensor:
        ids = self.ids
        counter = torch.stack(
            (
                ids & MASK_32,
                ((ids >> 32) << 16) | (self.occurrence & 0xFFFF),
                torch.full_like(ids, epoch),
                torch.full_like(ids, step << 16 | draw),
            ),
            dim=-1,
        )
        return philox(counter, seed)


def below(words: Tensor, bound: int | Tensor) -> Tensor:
    """Integers in 0 to bound - 1, by multiply and shift; bias under bound / 2**32.

    Source: Lemire: Fast random integer generation in an interval. ACM TOMACS 2019.
    """
    return (words * bound) >> 32


def threshold(probability: float) -> int:
    """The number of 32-bit words that count as "yes" for a probability (0 and 1 are exact)."""
    return round(probability * 2.0**32)


def unit(words: Tensor) -> Tensor:
    """float64 in [0, 1): the word over 2**32, exact."""
    return words.to(torch.float64) * 2.0**-32


def permutation(seed: int, epoch: int, length: int) -> Tensor:
    """(length,) int64: a permutation that depends on (seed, epoch, length) only.

    Every position gets a 63-bit random key and the keys are sorted; two equal keys (chance under
    length**2 / 2**64) stand in order of position.
    """
    position = torch.arange(length, dtype=torch.int64)
    counter = torch.stack(
        (
            position & MASK_32,
            position >> 32,
            torch.full_like(position, epoch & MASK_32),
            torch.full_like(position, ORDER_STEP << 16),
        ),
        dim=-1,
    )
    words = philox(counter, seed)
    return torch.argsort((words[:, 0] << 31) | (words[:, 1] >> 1), stable=True)
