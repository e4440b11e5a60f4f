"""What a loader's dataset has stays as it was, so that workers of later epochs begin alike."""

from __future__ import annotations

import random
from typing import Any

import pytest
from torch.utils.data import ConcatDataset, DataLoader, Dataset, Subset, get_worker_info

import hotset
from hotset.doctor.restoring import as_it_was


class Lazy(Dataset[Any]):
    """Makes a generator when it is first read, seeded by the worker that reads it."""

    limit = 32

    def __init__(self) -> None:
        self.kept: dict[int, float] = {}
        self.reads = 0

    def __len__(self) -> int:
        return self.limit

    def __getitem__(self, index: int) -> float:
        if not hasattr(self, "rng"):
            info = get_worker_info()
            self.rng = random.Random(0 if info is None else info.seed)
        self.reads += 1
        self.kept[index] = 0.0
        return self.rng.random()


def test_attributes_are_put_back() -> None:
    """New ones are gone, and others are what they were; what they hold is as it is now."""
    lazy = Lazy()
    with as_it_was(DataLoader(ConcatDataset([Subset(lazy, [0, 1]), lazy]))):
        lazy[0]
        lazy.limit = 7
    assert vars(lazy) == {"kept": {0: 0.0}, "reads": 0}
    assert lazy.limit == 32


def test_attributes_are_put_back_after_an_error() -> None:
    """Which comes out as it is."""
    lazy = Lazy()
    with pytest.raises(TypeError, match="unhashable"), as_it_was(DataLoader(lazy)):
        lazy[[]]
    assert "rng" not in vars(lazy)


def test_a_generator_made_when_it_is_needed_is_not_inherited() -> None:
    """After a report, workers draw apart, as before."""
    loader = DataLoader(Lazy(), 4, num_workers=2)
    report = hotset.diagnose(loader, step=lambda batch: None, steps=8, progress=False)
    assert [trap.name for trap in report.traps if trap.is_wrong] == []
    draws = [float(x) for batch in loader for x in batch]
    assert len(set(draws)) == len(draws) == 32
