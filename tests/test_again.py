"""`hotset.loader.again`: the data of a loader in the order of another."""

from __future__ import annotations

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, SequentialSampler

import hotset
from hotset.errors import ConfigError
from hotset.loader.again import again


class Rows(Dataset):
    def __init__(self) -> None:
        self.reads = 0

    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> torch.Tensor:
        self.reads += 1
        return torch.tensor([float(index)])


def test_data_is_not_read_again() -> None:
    """Only the few samples that a first epoch compares are; the order is the new loader's."""
    rows = Rows()
    made = hotset.accelerate(DataLoader(rows, batch_size=4), device="cpu")
    before = rows.reads
    plain = DataLoader(rows, batch_size=3, shuffle=True, drop_last=True)
    fast = again(made, plain)
    assert fast is not None
    assert rows.reads == before
    assert (len(fast), fast.batch_size, fast.drop_last) == (3, 3, True)
    torch.manual_seed(4)
    found = [batch.tolist() for _ in range(2) for batch in fast]
    assert rows.reads == before + 1
    torch.manual_seed(4)
    assert found == [batch.tolist() for _ in range(2) for batch in plain]


class Own(SequentialSampler):
    """A sampler that nothing is known of."""


def test_another_kind_of_order_is_refused() -> None:
    """What may be read ahead of one sampler may not of another."""
    rows = Rows()
    made = hotset.accelerate(DataLoader(rows), device="cpu")
    assert again(made, DataLoader(rows, sampler=Own(rows))) is None


def test_indices_from_the_end_are_refused() -> None:
    """A dataset need not take them for what they are in a list."""
    rows = Rows()
    made = hotset.accelerate(DataLoader(rows, sampler=[0, 1]), device="cpu")
    fast = again(made, DataLoader(rows, sampler=[2, -1]))
    assert fast is not None
    batches = iter(fast)
    assert next(batches).tolist() == [[2.0]]
    with pytest.raises(ConfigError, match=r"gave the index -1, from the end"):
        next(batches)
