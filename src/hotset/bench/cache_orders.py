"""Orders in which training asks for samples, and a cache that is simulated under them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hotset.placement.policy import Policy

ZIPF_EXPONENT = 0.8
"""The r-th heaviest sample has weight r to the minus this."""


@dataclass(frozen=True)
class Order:
    """How samples are drawn, seen from one device.

    Attributes:
        key: its name in JSON.
        name: its name elsewhere.
        draw: "permutation" or "replacement".
        ranks: among how many the permutation is dealt out; the device sees one part of it.
        exponent: of the weights that samples are drawn by; 0 for all alike.
    """

    key: str
    name: str
    draw: str = "permutation"
    ranks: int = 1
    exponent: float = 0.0

    def weights(self, samples: int) -> np.ndarray:
        """(N,) float64: the share of draws that each row has, which sum to 1.

        Args:
            samples: number of rows, N.
        """
        heavy = np.arange(1, samples + 1) ** -self.exponent
        shares: np.ndarray = heavy / heavy.sum()
        return shares

    def epochs(self, samples: int, passes: int, seed: int) -> list[np.ndarray]:
        """As many epochs as ask for `passes` times N samples: (N / ranks,) int64 rows each.

        Args:
            samples: number of rows, N.
            passes: times N samples.
            seed: of the order.
        """
        generator = np.random.default_rng(seed)
        if self.draw == "permutation":
            return [
                generator.permutation(samples)[:: self.ranks] for _ in range(passes * self.ranks)
            ]
        ends = np.cumsum(self.weights(samples))
        return [
            np.minimum(np.searchsorted(ends, generator.random(samples), side="right"), samples - 1)
            for _ in range(passes)
        ]


PERMUTATION = Order("permutation", "permutation of all samples")
REPLACEMENT = Order("replacement", "with replacement", "replacement")
WEIGHTED = Order("weighted", "by Zipf-like weights", "replacement", exponent=ZIPF_EXPONENT)
RANKS_2 = Order("ranks_2", "one of 2 ranks", ranks=2)
RANKS_4 = Order("ranks_4", "one of 4 ranks", ranks=4)
ORDERS = (PERMUTATION, REPLACEMENT, WEIGHTED, RANKS_2, RANKS_4)


@dataclass(frozen=True)
class Counts:
    """What a cache did.

    Attributes:
        reads: samples that were asked for.
        misses: samples that were copied for them.
    """

    reads: int
    misses: int

    @property
    def hit_rate(self) -> float:
        """Share of the samples that were there."""
        return 1 - self.misses / self.reads


def simulate(
    policy: Policy, epochs: Sequence[np.ndarray], *, batch_size: int, skip: int, count: int
) -> Counts:
    """What a cache does in some of the epochs.

    The order is announced through all epochs, as far as the policy wants to know it.

    Args:
        policy: of the cache; used up by this.
        epochs: rows; those after the ones that are counted are only announced.
        batch_size: samples of a request; the last one of an epoch may be shorter.
        skip: epochs before the counted ones, in which the cache settles.
        count: epochs counted.
    """
    requests = [
        epoch[start : start + batch_size]
        for epoch in epochs
        for start in range(0, len(epoch), batch_size)
    ]
    begins = np.cumsum([0, *(len(request) for request in requests)])
    first = sum(len(epoch) for epoch in epochs[:skip])
    stop = first + sum(len(epoch) for epoch in epochs[skip : skip + count])
    announced, reads, misses = 0, 0, 0
    for request, begin in zip(requests, begins[:-1], strict=True):
        if begin >= stop:
            break
        end = begin + len(request)
        while (
            policy.window
            and announced < len(requests)
            and begins[announced] < max(end, begin + policy.window)
        ):
            policy.announce(requests[announced])
            announced += 1
        found = policy.look_up(request)
        if begin >= first:
            reads += len(request)
            misses += len(found.misses)
    return Counts(reads, misses)
