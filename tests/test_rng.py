"""The counter-based generator: known words, and draws that depend on nothing but their key."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hotset.rng import (
    MASK_32,
    RUN_EPOCH,
    Draws,
    Key,
    below,
    permutation,
    philox,
    threshold,
    unit,
)

GOLDEN = Path(__file__).parent / "golden"


def _golden(name: str) -> Any:
    return json.loads((GOLDEN / name).read_text(encoding="utf-8"))


def _draws(ids: list[int], key: Key, again: int = 0) -> Draws:
    rows = torch.tensor(ids, dtype=torch.int64)
    return Draws(key, rows, torch.full_like(rows, again))


@pytest.mark.parametrize("vector", _golden("philox.json")["vectors"])
def test_philox_gives_the_known_answers(vector: dict[str, list[str]]):
    """The test data of Philox's authors, Random123's kat_vectors."""
    counter, key, result = (
        [int(word, 16) for word in vector[name]] for name in ("counter", "key", "result")
    )
    words = philox(torch.tensor(counter, dtype=torch.int64), key[0] | key[1] << 32)
    assert words.tolist() == result


def test_philox_takes_any_leading_axes():
    """(..., 4) counters give (..., 4) words, each as it would come alone."""
    counters = torch.arange(24, dtype=torch.int64).reshape(2, 3, 4)
    words = philox(counters, 5)
    assert words.shape == (2, 3, 4)
    assert torch.equal(words[1, 2], philox(counters[1, 2], 5))


@pytest.mark.parametrize("row", _golden("draws.json")["draws"], ids=str)
def test_words_never_change(row: dict[str, Any]):
    """Words are part of a run's result: the golden file holds them for good."""
    draws = _draws([row["sample"]], Key(row["seed"], row["epoch"], 0), row["occurrence"])
    assert draws.words(row["step"], row["draw"])[0].tolist() == row["words"]


@pytest.mark.parametrize("row", _golden("order.json")["orders"], ids=str)
def test_order_never_changes(row: dict[str, Any]):
    """The order of an epoch is a function of (seed, epoch, length) that the golden file holds."""
    assert permutation(row["seed"], row["epoch"], row["length"]).tolist() == row["order"]


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**32 - 1), st.integers(0, 300))
def test_permutation_holds_every_position_once(seed: int, epoch: int, length: int):
    """No sample is left out or comes twice."""
    order = permutation(seed, epoch, length)
    assert order.dtype is torch.int64
    assert sorted(order.tolist()) == list(range(length))


def test_permutations_are_uniform():
    """Each of the 24 orders of four samples comes about equally often over 4,800 epochs."""
    seen: dict[tuple[int, ...], int] = {}
    for epoch in range(4800):
        order = tuple(permutation(3, epoch, 4).tolist())
        seen[order] = seen.get(order, 0) + 1
    assert len(seen) == 24
    chi_square = sum((count - 200) ** 2 / 200 for count in seen.values())
    assert chi_square < 49.7  # 23 degrees of freedom, 0.1 %


@given(
    st.lists(st.integers(0, 2**48 - 1), min_size=2, max_size=20),
    st.integers(0, 2**64 - 1),
    st.integers(0, 2**32 - 2),
    st.data(),
)
def test_words_do_not_depend_on_the_batch(
    ids: list[int], seed: int, epoch: int, data: st.DataObject
):
    """A sample's words are the same alone, in a part of the batch, and in another order."""
    key = Key(seed, epoch, seed)
    whole = _draws(ids, key).words(3, 1)
    cut = data.draw(st.integers(1, len(ids) - 1))
    parts = [_draws(part, key).words(3, 1) for part in (ids[:cut], ids[cut:])]
    assert torch.equal(torch.cat(parts), whole)
    assert torch.equal(_draws(ids[::-1], key).words(3, 1), whole.flip(0))


@given(st.integers(0, 2**48 - 1), st.integers(0, 2**63), st.integers(0, 2**31))
def test_every_part_of_the_key_counts(sample: int, seed: int, epoch: int):
    """Another sample, seed, epoch, occurrence, step or draw gives other words."""
    key = Key(seed, epoch, 0)
    words = [
        _draws([sample], key).words(1, 1),
        _draws([sample ^ 1], key).words(1, 1),
        _draws([sample ^ 2**40], key).words(1, 1),
        _draws([sample], Key(seed + 1, epoch, 0)).words(1, 1),
        _draws([sample], Key(seed ^ 2**32, epoch, 0)).words(1, 1),
        _draws([sample], Key(seed, epoch + 1, 0)).words(1, 1),
        _draws([sample], key, again=1).words(1, 1),
        _draws([sample], key).words(2, 1),
        _draws([sample], key).words(1, 2),
    ]
    assert len({tuple(word[0].tolist()) for word in words}) == len(words)


def test_run_words_are_the_same_in_every_epoch():
    """They are keyed by the run's seed and by an epoch that is no epoch."""
    first, later = (_draws([5], Key(epoch, epoch, 99)).run_words(2) for epoch in (0, 7))
    assert torch.equal(first, later)
    assert torch.equal(first, _draws([5], Key(99, RUN_EPOCH, 0)).words(2))


@given(st.integers(0, 2**31 - 1), st.lists(st.integers(0, MASK_32), min_size=1))
def test_below_stays_below(bound: int, words: list[int]):
    """Every number is in 0 to bound - 1; the first and last word give the ends."""
    bound += 1
    found = below(torch.tensor([*words, 0, MASK_32]), bound).tolist()
    assert all(0 <= number < bound for number in found)
    assert found[-2:] == [0, bound - 1]
    assert found[:-2] == [word * bound >> 32 for word in words]


def test_threshold_is_exact_at_both_ends():
    """No word passes a probability of 0, every word one of 1, half of them one of 1/2."""
    assert [threshold(p) for p in (0.0, 0.5, 1.0)] == [0, 2**31, 2**32]


def test_unit_is_exact_and_below_one():
    """A word over 2**32, in double precision."""
    found = unit(torch.tensor([0, 1, MASK_32]))
    assert found.dtype is torch.float64
    assert found.tolist() == [0.0, 2.0**-32, (2**32 - 1) / 2**32]


def test_words_are_uniform_and_independent():
    """Bits are set half of the time, and neighbouring samples' words do not go together."""
    words = _draws(list(range(20_000)), Key(11, 0, 0)).words(0).numpy()
    for column in words.T:
        bits = (column[:, None] >> np.arange(32)) & 1
        share = bits.mean(axis=0)
        assert np.abs(share - 0.5).max() < 5 * 0.5 / np.sqrt(len(column))
        pairs = np.corrcoef(column[:-1], column[1:])[0, 1]
        assert abs(pairs) < 5 / np.sqrt(len(column))
