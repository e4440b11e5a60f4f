"""torch's permuting samplers, read as arrays."""

from __future__ import annotations

import pytest
import torch
from torch.utils.data import BatchSampler, RandomSampler, Sampler, SequentialSampler

from hotset.loader.permuted import is_permutation, permuted


def _sampler(kind: str, length: int) -> Sampler[int]:
    if kind == "sequential":
        return SequentialSampler(range(length))
    own = torch.Generator().manual_seed(7) if kind == "own generator" else None
    return RandomSampler(range(length), generator=own)


@pytest.mark.parametrize("kind", ["sequential", "random", "own generator"])
@pytest.mark.parametrize(("length", "size"), [(1, 1), (7, 3), (9, 3), (2, 5), (100, 32)])
@pytest.mark.parametrize("drop_last", [False, True])
def test_batches_and_draws_are_the_batch_samplers(
    kind: str, length: int, size: int, drop_last: bool
) -> None:
    """The same batches, and both generators in the same state after every one of two epochs."""
    plain, fast = _sampler(kind, length), _sampler(kind, length)
    for _ in range(2):
        torch.manual_seed(3)
        expected = list(BatchSampler(plain, size, drop_last))
        state = torch.get_rng_state()
        torch.manual_seed(3)
        assert [batch.tolist() for batch in permuted(fast, size, drop_last)] == expected
        assert torch.equal(torch.get_rng_state(), state)
        if kind == "own generator":
            assert torch.equal(fast.generator.get_state(), plain.generator.get_state())


def test_nothing_is_drawn_before_the_first_batch() -> None:
    """As with torch's own, making the iterator draws nothing; the first batch does."""
    torch.manual_seed(0)
    before = torch.get_rng_state()
    batches = permuted(RandomSampler(range(5)), 2, False)
    assert torch.equal(torch.get_rng_state(), before)
    next(batches)
    assert not torch.equal(torch.get_rng_state(), before)


class _OwnRandom(RandomSampler):
    """A user's subclass may do anything."""


def test_only_torchs_own_permutations_are_read_so() -> None:
    """Replacement, other lengths and subclasses are left to iterate by themselves."""
    assert is_permutation(SequentialSampler(range(3)))
    assert is_permutation(RandomSampler(range(3)))
    assert not is_permutation(RandomSampler(range(3), replacement=True))
    assert not is_permutation(RandomSampler(range(3), num_samples=5))
    assert not is_permutation(_OwnRandom(range(3)))
    assert not is_permutation([0, 1, 2])
