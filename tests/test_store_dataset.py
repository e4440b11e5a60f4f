"""A store as a map-style dataset, under what torch has for those."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import ConcatDataset, DataLoader, Dataset, Subset, random_split

import hotset
from hotset.store.store import Store
from tests.stores import Made, Pair, assert_holds, assert_identical, mixed_sample, stored
from tests.streams import assert_same

SAMPLES = 24


def sample(index: int) -> Any:
    """A sample that can stand in a batch."""
    return {
        "x": torch.full((2, 3), index).to(torch.bfloat16),
        "y": Pair(index, [float(index), f"n{index}"]),
        "z": np.arange(3) + index,
    }


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A store of some samples."""
    return stored([sample(index) for index in range(SAMPLES)], tmp_path / "a.hotset")


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("batch_size", [1, 5, None])
def test_a_stock_loader_gives_the_same_batches(
    store: Store, workers: int, batch_size: int | None
) -> None:
    """As over the dataset that the store was made of, shuffled by the same seed too."""
    dataset = Made(sample, SAMPLES)
    for shuffle in (False, True):
        found, expected = (
            DataLoader(
                one,
                batch_size=batch_size,
                shuffle=shuffle,
                num_workers=workers,
                generator=torch.Generator().manual_seed(3),
            )
            for one in (store, dataset)
        )
        for batch, other in zip(found, expected, strict=True):
            assert_same(batch, other)


@pytest.mark.parametrize("workers", [0, 2])
def test_parts_of_a_store(store: Store, workers: int) -> None:
    """`Subset`, `random_split` and `ConcatDataset` are over a store as over any dataset."""
    chosen = [7, 3, 3, -1, 0]
    parts: list[Dataset[Any]] = [
        Subset(store, chosen),
        *random_split(store, [10, 14], torch.Generator().manual_seed(0)),
        ConcatDataset([store, Subset(store, [5])]),
    ]
    expected = [
        chosen,
        *(
            part.indices
            for part in random_split(range(24), [10, 14], torch.Generator().manual_seed(0))
        ),  # type: ignore[arg-type]
        [*range(SAMPLES), 5],
    ]
    for part, indices in zip(parts, expected, strict=True):
        loader = DataLoader(part, batch_size=None, num_workers=workers)
        found = [batch["y"].left for batch in loader]
        assert found == [index % SAMPLES for index in indices]


def test_indices_are_those_of_a_sequence(store: Store) -> None:
    """From the end too; whole numbers of any make; others are errors that name them."""
    for index in (0, -1, -SAMPLES, SAMPLES - 1):
        assert_identical(store[index], sample(index % SAMPLES))
    for index in (np.int64(3), np.uint8(3), torch.tensor(3), True + 2):
        assert_identical(store[index], sample(3))  # type: ignore[index]
    for index in (SAMPLES, -SAMPLES - 1, 10**9):
        with pytest.raises(IndexError, match=f"index {index} of a store of {SAMPLES} samples"):
            store[index]
    for wrong in (1.0, "1", None, slice(0, 2), torch.tensor([1, 2])):
        with pytest.raises(TypeError, match="integer"):
            store[wrong]  # type: ignore[index]


def test_a_store_is_iterated_over(store: Store) -> None:
    """As any sequence: until its index ends."""
    assert [one["y"].left for one in store] == list(range(SAMPLES))  # type: ignore[attr-defined]
    assert [one["y"].left for one in store.__getitems__([3, -1])] == [3, SAMPLES - 1]


def test_a_store_says_what_it_is(tmp_path: Path) -> None:
    """Path, number of samples, and what each leaf is."""
    store = stored([mixed_sample(index) for index in range(1200)], tmp_path / "a.hotset")
    assert repr(store) == (
        f"Store('{tmp_path}/a.hotset', 1,200 samples, image: PIL RGB uint8[?x?x?], "
        "same: PIL L uint8[1x2x3], numbers_0: int64, numbers_1: float64, numbers_2: bool, "
        "numbers_3: float32, numbers_4: uint64, text_0: str, text_1: bytes, "
        "tensors_0: bfloat16[?], tensors_1: int16[2x3], arrays_b: float64[?x?], "
        "arrays_a: int32[2x2], empty: float32[0x4])"
    )
    assert len(store) == 1200
    assert store.nbytes == sum(path.stat().st_size for path in store.path.glob("*.npy"))


def test_copies_of_a_store_are_stores(store: Store) -> None:
    """Shallow or deep; of the files there is one."""
    for one in (copy.copy(store), copy.deepcopy(store)):
        assert type(one) is Store
        assert_holds(one, [sample(index) for index in range(SAMPLES)])


def test_a_store_can_be_stored(store: Store, tmp_path: Path) -> None:
    """It is a dataset like others, with a further transform or a part of it."""
    again = hotset.build(store, tmp_path / "b.hotset", workers=0)
    assert_holds(again, [sample(index) for index in range(SAMPLES)])
    half = hotset.build(
        Subset(store, range(0, SAMPLES, 2)), tmp_path / "c.hotset", torch.neg, workers=0
    )
    assert len(half) == SAMPLES // 2
    assert torch.equal(half[3]["x"], -sample(6)["x"])
    assert_identical(half[3]["y"], sample(6)["y"])
