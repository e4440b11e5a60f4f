"""Hit rates of policies against theory: batches of 256 over 50,000 samples. Counts, no times."""

from __future__ import annotations

import functools
import math

import numpy as np
import pytest

from hotset.bench.cache_orders import (
    PERMUTATION,
    RANKS_2,
    RANKS_4,
    REPLACEMENT,
    WEIGHTED,
    Order,
    simulate,
)
from hotset.bench.cache_theory import lru_dealt, theory
from hotset.placement.policy import Frequency, LeastRecent, NextUse, Policy, Static

SAMPLES, BATCH = 50_000, 256
SHARES = (0.1, 0.3, 0.5, 0.7, 0.9)


@functools.cache
def epochs(order: Order, passes: int) -> list[np.ndarray]:
    """The order of a few epochs."""
    return order.epochs(SAMPLES, passes, seed=11)


def hit_rate(policy: Policy, order: Order, *, settle: int = 4, count: int = 2) -> float:
    """Of a policy that has settled; what it wants to know beforehand, it knows."""
    return simulate(
        policy,
        epochs(order, settle + count + 4),
        batch_size=BATCH,
        skip=settle * order.ranks,
        count=count * order.ranks,
    ).hit_rate


@pytest.mark.parametrize("share", SHARES)
def test_static_over_permutations(share: float) -> None:
    """Exactly the share that is pinned, from the first epoch on."""
    policy = Static(SAMPLES, round(share * SAMPLES))
    counts = simulate(policy, epochs(PERMUTATION, 10), batch_size=BATCH, skip=0, count=2)
    assert (counts.reads, counts.misses) == (2 * SAMPLES, 2 * (SAMPLES - policy.capacity))


@pytest.mark.parametrize(
    ("share", "expected"), [(0.1, 0.005), (0.3, 0.050), (0.5, 0.153), (0.7, 0.339), (0.9, 0.670)]
)
def test_lru_over_permutations(share: float, expected: float) -> None:
    """f + (1 - f) ln(1 - f)."""
    assert share + (1 - share) * math.log(1 - share) == pytest.approx(expected, abs=5e-4)
    policy = LeastRecent(SAMPLES, round(share * SAMPLES))
    assert hit_rate(policy, PERMUTATION) == pytest.approx(expected, abs=0.01)


@pytest.mark.parametrize(("share", "expected"), [(0.1, 0.41), (0.25, 0.61), (0.5, 0.81)])
def test_next_use_with_replacement(share: float, expected: float) -> None:
    """A window of four times the samples is enough for what the whole future would give."""
    policy = NextUse(SAMPLES, round(share * SAMPLES))
    assert hit_rate(policy, REPLACEMENT) == pytest.approx(expected, abs=0.01)


def test_next_use_needs_several_epochs_with_replacement() -> None:
    """At f = 0.5, one pass ahead gives 0.75 and two give 0.81; four do not add to that."""
    rates = [
        hit_rate(NextUse(SAMPLES, SAMPLES // 2, window=passes * SAMPLES), REPLACEMENT)
        for passes in (1, 2, 4)
    ]
    assert rates == pytest.approx([0.750, 0.812, 0.812], abs=0.01)


@pytest.mark.parametrize("share", [0.2, 0.6])
def test_next_use_over_permutations_equals_static(share: float) -> None:
    """The whole future gives no more than any fixed set, and no less."""
    policy = NextUse(SAMPLES, round(share * SAMPLES))
    assert hit_rate(policy, PERMUTATION) == pytest.approx(share, abs=1e-3)


@pytest.mark.parametrize(
    ("order", "measured"),
    [
        (RANKS_2, {0.1: 0.200, 0.25: 0.498, 0.5: 0.749, 0.75: 0.906}),
        (RANKS_4, {0.1: 0.324, 0.25: 0.562, 0.5: 0.785, 0.75: 0.921}),
    ],
)
def test_next_use_of_a_rank_beats_static(order: Order, measured: dict[float, float]) -> None:
    """A rank that knows the epochs to come keeps what it will see itself; a fixed set cannot.

    Hit rates of next-use by the room of one device: 0.20, 0.50, 0.75, 0.91 for two ranks and 0.32,
    0.56, 0.79, 0.92 for four, at f = 0.1, 0.25, 0.5, 0.75. Static has f.
    """
    for share, expected in measured.items():
        capacity = round(share * SAMPLES)
        assert hit_rate(NextUse(SAMPLES, capacity), order) == pytest.approx(expected, abs=0.01)
        assert hit_rate(Static(SAMPLES, capacity), order) == pytest.approx(share, abs=0.01)


def test_next_use_of_a_rank_without_later_epochs_is_no_better_than_static() -> None:
    """Within its epoch a rank sees every sample once."""
    policy = NextUse(SAMPLES, SAMPLES // 2)
    reads = misses = 0
    for number, epoch in enumerate(epochs(RANKS_2, 10)[:12]):
        policy.begin()
        policy.announce(epoch)
        for start in range(0, len(epoch), BATCH):
            found = policy.look_up(epoch[start : start + BATCH])
            reads += len(found.slots) if number >= 8 else 0
            misses += len(found.misses) if number >= 8 else 0
    assert 1 - misses / reads == pytest.approx(0.5, abs=0.01)


def test_rank_that_begins_with_its_own_part() -> None:
    """Loads its first epoch once: preloaded, none of it is missed."""
    first = epochs(RANKS_4, 10)[0]
    policy = NextUse(SAMPLES, len(first), first=first)
    assert np.array_equal(policy.preload(), first)
    counts = simulate(policy, epochs(RANKS_4, 10), batch_size=BATCH, skip=0, count=1)
    assert (counts.reads, counts.misses) == (len(first), 0)


@pytest.mark.parametrize("share", [0.25, 0.5])
def test_bound_over_permutations(share: float) -> None:
    """Static loads N + (E - 1)(1 - f) N samples in E epochs, what it preloads among them.

    LRU and next-use, which begin empty, load no less.
    """
    number, capacity = 4, round(share * SAMPLES)
    bound = SAMPLES + (number - 1) * (SAMPLES - capacity)

    def loads(policy: Policy) -> int:
        preloaded = len(policy.preload())
        order = epochs(PERMUTATION, 10)
        counts = simulate(policy, order, batch_size=BATCH, skip=0, count=number)
        return preloaded + counts.misses

    assert loads(Static(SAMPLES, capacity)) == bound
    assert loads(NextUse(SAMPLES, capacity)) >= bound
    assert loads(LeastRecent(SAMPLES, capacity)) > bound * 1.1


def test_frequency_over_permutations_is_lru() -> None:
    """In mid-epoch those of higher counts are the ones read last."""
    by_count, by_time = Frequency(5_000, 2_000), LeastRecent(5_000, 2_000)
    for epoch in PERMUTATION.epochs(5_000, 3, seed=2):
        for start in range(0, len(epoch), BATCH):
            rows = epoch[start : start + BATCH]
            a, b = by_count.look_up(rows), by_time.look_up(rows)
            assert np.array_equal(a.slots, b.slots)
            assert np.array_equal(a.into, b.into)


@pytest.mark.parametrize("share", [0.1, 0.5])
def test_weights_that_are_known(share: float) -> None:
    """Pinning the heaviest, counting, and the order known: each has the hits that theory gives."""
    capacity = round(share * SAMPLES)
    policies: tuple[Policy, ...] = (
        Static(SAMPLES, capacity, WEIGHTED.weights(SAMPLES)),
        LeastRecent(SAMPLES, capacity),
        NextUse(SAMPLES, capacity),
    )
    rates = []
    for policy in policies:
        curve = theory(WEIGHTED, policy.name, SAMPLES)
        assert curve is not None
        rates.append(hit_rate(policy, WEIGHTED, settle=8))
        assert rates[-1] == pytest.approx(curve(np.array([share]))[0], abs=0.01)
    counted = hit_rate(Frequency(SAMPLES, capacity), WEIGHTED, settle=8)
    static, lru, known = rates
    assert lru < counted < static < known


@pytest.mark.parametrize("order", [RANKS_2, RANKS_4])
def test_lru_of_a_rank(order: Order) -> None:
    """The integral over where in its epochs a sample comes."""
    for share in (0.25, 0.5):
        policy = LeastRecent(SAMPLES, round(share * SAMPLES))
        expected = lru_dealt(np.array([share]), order.ranks)[0]
        assert hit_rate(policy, order) == pytest.approx(expected, abs=0.01)


def test_lru_of_one_rank_is_the_closed_form() -> None:
    """At both ends too."""
    shares = np.array([0.0, 0.3, 0.7, 1.0])
    expected = [0.0, 0.3 + 0.7 * math.log(0.7), 0.7 + 0.3 * math.log(0.3), 1.0]
    assert lru_dealt(shares, 1) == pytest.approx(expected)
    assert theory(RANKS_2, "next-use", SAMPLES) is None
    assert theory(RANKS_2, "frequency", SAMPLES) is None
