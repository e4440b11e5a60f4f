"""Hit rates that theory gives, as functions of the share f of the samples that have room.

All are limits: many samples, batches that are short beside them, and a cache that has settled.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from hotset.bench.cache_orders import PERMUTATION, REPLACEMENT, WEIGHTED, Order

Curve = Callable[[np.ndarray], np.ndarray]
"""From shares to hit rates, each in [0, 1]."""
STEPS = 400


def theory(order: Order, policy: str, samples: int) -> Curve | None:
    """The curve of a policy under an order; None where no formula is known to us.

    Args:
        order: how samples are drawn.
        policy: its name; "static" keeps the heaviest samples where the order has weights.
        samples: number of rows, which the weights depend on.
    """
    if order.draw == "permutation":
        if policy == "static" or (policy == "next-use" and order == PERMUTATION):
            return static_even
        if policy == "lru" or (policy == "frequency" and order == PERMUTATION):
            return lambda f: lru_dealt(f, order.ranks)
        return None
    if order == REPLACEMENT and policy != "next-use":
        return static_even
    weights = order.weights(samples)
    if policy == "next-use":
        return lambda f: next_use_independent(f, weights)
    if policy == "lru":
        return lambda f: lru_independent(f, weights)
    assert order == WEIGHTED
    return lambda f: static_weighted(f, weights)


def static_even(f: np.ndarray) -> np.ndarray:
    """Any fixed set, where samples are asked for equally often."""
    return f


def static_weighted(f: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The heaviest samples, pinned; counts of uses come to the same in the long run.

    Args:
        f: shares.
        weights: (N,) which sum to 1.
    """
    reached = np.concatenate(([0.0], np.cumsum(np.sort(weights)[::-1])))
    return _interpolated(f, np.linspace(0, 1, len(reached)), reached)


def lru_dealt(f: np.ndarray, ranks: int) -> np.ndarray:
    """Least recent, where each epoch is a permutation dealt out among ranks.

    A sample that this rank saw at the part u of one epoch, and sees again at v of the k-th one
    after it, is still there if fewer than f of the samples were seen between: the share of those
    that were not is (1 - (1 - u) / R) (1 - 1 / R)^(k - 1) (1 - v / R). For one rank the integral
    over u and v is f + (1 - f) ln(1 - f).

    Args:
        f: shares.
        ranks: their number, R.
    """
    if ranks == 1:
        left = 1 - f
        logs: np.ndarray = np.log(left, where=left > 0, out=np.zeros_like(left))
        rates: np.ndarray = f + left * logs
        return rates
    u = (np.arange(STEPS) + 0.5) / STEPS
    unseen = np.sort(np.outer(1 - (1 - u) / ranks, 1 - u / ranks).ravel())
    hits, chance, passed = np.zeros_like(f), 1 / ranks, 1.0
    while chance > 1e-9:
        hits += chance * (1 - np.searchsorted(unseen, (1 - f) / passed) / len(unseen))
        chance, passed = chance * (1 - 1 / ranks), passed * (1 - 1 / ranks)
    return hits


def lru_independent(f: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Least recent, where every draw is by the same weights: a sample stays for a time T.

    It is there with probability 1 - exp(-w T), and T is such that these sum to the slots.

    Args:
        f: shares.
        weights: (N,) which sum to 1.

    Source:
        H. Che, Y. Tung, Z. Wang, Hierarchical web caching systems, 2002.
    """
    return _over_times(f, weights, lambda wt: -np.expm1(-wt))


def next_use_independent(f: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Next use, likewise: kept are the samples that come again within a time T.

    A sample that is drawn comes again after a time g with density w exp(-w g); it takes room for g
    if that is below T. So 1 - exp(-w T) (1 + w T) of it is there in the mean.

    Args:
        f: shares.
        weights: (N,) which sum to 1.
    """
    return _over_times(f, weights, lambda wt: -np.expm1(-wt) - wt * np.exp(-wt))


def _over_times(
    f: np.ndarray, weights: np.ndarray, present: Callable[[np.ndarray], np.ndarray]
) -> np.ndarray:
    """Hit rates from the share of each sample that is there, by weight times T."""
    shares, hits = [0.0], [0.0]
    for time in np.geomspace(1e-3, 1e4, STEPS) * len(weights):
        shares.append(float(present(weights * time).mean()))
        hits.append(float(np.sum(weights * -np.expm1(-weights * time))))
    return _interpolated(f, [*shares, 1.0], [*hits, 1.0])


def _interpolated(f: np.ndarray, shares: ArrayLike, hits: ArrayLike) -> np.ndarray:
    return np.asarray(np.interp(f, np.asarray(shares), np.asarray(hits)))
