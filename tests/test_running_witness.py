"""`hotset.running.witness`: a few samples that show whether a dataset has changed."""

from __future__ import annotations

import os
import random
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from hotset.chain.probe import generator_states
from hotset.running.witness import witness_of


class Slow(Dataset):
    """Draws from all generators, its own as well; a clock goes on with every read."""

    def __init__(self, takes_s: float = 0.0) -> None:
        self.takes_s, self.now_s, self.times = takes_s, [0.0], 0
        self.own = [random.Random(1), np.random.default_rng(1), np.random.RandomState(1)]
        self.torch = torch.Generator().manual_seed(1)

    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> Any:
        self.now_s[0] += self.takes_s
        self.times += 1
        own = [self.own[0].random(), self.own[1].random(), self.own[2].rand()]
        drawn = [random.random(), np.random.rand(), *own]
        return torch.rand(2), torch.rand(2, generator=self.torch), drawn, index

    def clock(self) -> float:
        return self.now_s[0]


@pytest.mark.parametrize(
    ("takes_s", "indices"),
    [(0.001, (0, 9, 3, 6)), (0.0625, (0, 9)), (0.125, (0,))],
)
def test_fewer_samples_are_read_where_that_takes_long(
    takes_s: float, indices: tuple[int, ...]
) -> None:
    """The first, the last, and two between them."""
    data = Slow(takes_s)
    assert witness_of(DataLoader(data), clock=data.clock).indices == indices


def test_random_samples_are_alike_and_generators_stay() -> None:
    """All generators are seeded alike, and stand afterwards where they stood, as attributes do."""
    data = Slow()
    loader = DataLoader(data)
    generators = [*data.own, data.torch]
    before = generator_states(generators)
    witness = witness_of(loader)
    assert generator_states(generators) == before
    random.random()
    np.random.rand()
    data.own[0].random()
    data.own[1].random()
    data.own[2].rand()
    torch.rand(3)
    torch.rand(3, generator=data.torch)
    before = generator_states(generators)
    assert witness.change(loader) == ""
    assert generator_states(generators) == before
    assert data.times == 0


def test_an_error_is_a_change() -> None:
    """As where a file has gone."""
    rows = [torch.zeros(2)] * 4
    loader = DataLoader(rows)
    witness = witness_of(loader)
    rows[3] = torch.ones(2)
    assert witness.change(loader) == "the dataset gives other samples than before"
    assert witness.change(loader, is_read=False) == ""
    del rows[3]
    assert witness.change(loader) == "the dataset has 3 samples by now, and had 4"
    keyed = {index: torch.zeros(2) for index in range(4)}
    loader = DataLoader(keyed)
    witness = witness_of(loader)
    keyed[4] = keyed.pop(3)
    expected = "the dataset fails by now: SampleError: dict failed at index 3: KeyError: 3"
    assert witness.change(loader) == expected


class Secret(Dataset):
    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Any:
        return os.urandom(8).hex()


def test_no_seed_makes_the_systems_randomness_alike() -> None:
    """Two reads in a row show it."""
    loader = DataLoader(Secret())
    assert witness_of(loader).change(loader) == "the dataset gives other samples than before"
