"""What a loader says of itself, and how it comes by its batches."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    ConcatDataset,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    Subset,
    TensorDataset,
    default_collate,
)

import hotset
from hotset.doctor.examination import Facts
from hotset.doctor.facts import facts_of, fetch_of, is_view

TENSORS = TensorDataset(torch.zeros(10, 2), torch.arange(10))


class Numbers(Dataset[int]):
    """Ten numbers."""

    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> int:
        return index


class Stream(IterableDataset[int]):
    """Ten numbers, with a length if wanted."""

    def __iter__(self) -> Iterator[int]:
        return iter(range(10))


class LongStream(Stream):
    def __len__(self) -> int:
        return 10


class Pairs:
    """A batch sampler that says nothing of its size."""

    def __iter__(self) -> Iterator[list[int]]:
        return iter([[0, 1], [2, 3], [4]])

    def __len__(self) -> int:
        return 3


class Endless:
    """A sampler that knows no length."""

    def __iter__(self) -> Iterator[int]:
        return iter(range(10))


class Pinning(DataLoader[Any]):
    """Somebody's subclass."""


def test_a_loader_with_workers() -> None:
    """All that it was given, and what torch takes where nothing was."""
    loader = Pinning(
        Subset(Numbers(), range(9)),
        4,
        shuffle=True,
        num_workers=2,
        persistent_workers=True,
        prefetch_factor=5,
        multiprocessing_context="spawn",
        collate_fn=lambda items: items,
    )
    assert facts_of(loader) == Facts(
        kind="DataLoader",
        name="Pinning",
        dataset="Numbers",
        samples=9,
        batches=3,
        batch_size=4,
        workers=2,
        prefetch=5,
        is_persistent=True,
        start_method="spawn",
        has_collate=True,
    )
    plain = facts_of(DataLoader(Numbers(), num_workers=1, collate_fn=default_collate))
    assert (plain.prefetch, plain.batch_size, plain.has_collate) == (2, 1, False)
    none = facts_of(DataLoader(Numbers(), pin_memory=True))
    assert (none.prefetch, none.workers, none.start_method, none.is_pinned) == (0, 0, "", True)


def test_the_default_start_method_is_not_settled() -> None:
    """Asking for it must not keep a script from setting it later."""
    code = (
        "import multiprocessing\n"
        "from torch.utils.data import DataLoader\n"
        "from hotset.doctor.facts import facts_of\n"
        "assert facts_of(DataLoader([1], num_workers=1)).start_method\n"
        "assert multiprocessing.get_start_method(allow_none=True) is None\n"
        "multiprocessing.set_start_method('spawn')\n"
        "assert facts_of(DataLoader([1], num_workers=1)).start_method == 'spawn'\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=100)
    methods = multiprocessing.get_all_start_methods()
    assert facts_of(DataLoader(Numbers(), num_workers=1)).start_method in methods


@pytest.mark.parametrize(
    ("how", "samples", "batches", "size"),
    [
        ({"batch_size": 4}, 10, 3, 4),
        ({"batch_size": 4, "drop_last": True}, 8, 2, 4),
        ({"batch_sampler": BatchSampler(RandomSampler(range(10)), 3, True)}, 9, 3, 3),
        ({"batch_sampler": Pairs()}, None, 3, None),
        ({"batch_size": 4, "sampler": Endless()}, None, None, 4),
        ({"batch_size": None}, None, 10, None),
        ({"batch_size": None, "sampler": BatchSampler(range(10), 5, False)}, 10, 2, 5),
    ],
)
def test_counts(how: dict[str, Any], samples: int, batches: int, size: int) -> None:
    """Of every kind of sampler; None where it does not say."""
    facts = facts_of(DataLoader(Numbers(), **how))
    assert (facts.samples, facts.batches, facts.batch_size) == (samples, batches, size)


@pytest.mark.parametrize(
    ("dataset", "how", "samples", "batches", "size"),
    [
        (Stream(), {"batch_size": 4}, None, None, 4),
        (LongStream(), {"batch_size": 4}, 10, 3, 4),
        (LongStream(), {"batch_size": 4, "drop_last": True}, 8, 2, 4),
        (LongStream(), {"batch_size": None}, None, 10, None),
        (Stream(), {"batch_size": None}, None, None, None),
    ],
)
def test_counts_of_a_stream(
    dataset: Any, how: dict[str, Any], samples: int, batches: int, size: int
) -> None:
    """The loader is not asked, since torch then warns of a length that was wrong."""
    loader = DataLoader(dataset, **how)
    facts = facts_of(loader)
    assert facts.is_stream
    assert (facts.samples, facts.batches, facts.batch_size) == (samples, batches, size)
    assert loader._IterableDataset_len_called is None


def test_samples_in_memory(tmp_path: Path) -> None:
    """Tensors, also through a Subset; not numbers that are made, and not a store on disk."""
    hotset.build(TENSORS, tmp_path / "some.hotset")
    store = hotset.open(tmp_path / "some.hotset")
    for dataset, is_there in (
        (TENSORS, True),
        (Subset(TENSORS, [1, 2]), True),
        (Numbers(), False),
        (store, False),
    ):
        assert facts_of(DataLoader(dataset)).is_in_memory is is_there
    assert facts_of(DataLoader(store)).dataset == "Store"


def test_other_loaders() -> None:
    """Hotset's own says what it knows; of any other iterable its length and the like are taken."""
    own = hotset.Loader(TENSORS, 4, device="cpu")
    assert facts_of(own) == Facts(
        kind="hotset.Loader",
        name="Loader",
        dataset="TensorDataset",
        samples=10,
        batches=3,
        batch_size=4,
    )
    assert facts_of([1, 2]) == Facts(kind="iterable", name="list", batches=2)
    assert facts_of(iter([1])) == Facts(kind="iterable", name="list_iterator")


def test_a_loader_of_accelerate() -> None:
    """It wraps one, and passes for one."""
    from accelerate.data_loader import DataLoaderShard

    facts = facts_of(DataLoaderShard(Numbers(), batch_size=4))
    assert (facts.kind, facts.name, facts.batches) == ("DataLoader", "DataLoaderShard", 3)


class Held(Dataset[Any]):
    """Rows of arrays that it has, in one of several ways."""

    def __init__(self, rows: Any, names: str) -> None:
        self.rows, self.names = rows, names

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Any:
        if isinstance(self.rows, dict):
            return {name: self.rows[name][index] for name in self.names}
        return self.rows[index], index


@pytest.mark.parametrize(
    ("rows", "is_held"),
    [
        (torch.zeros(4, 3), True),
        (np.zeros((4, 3))[::-1], True),
        ([torch.zeros(3) for _ in range(4)], True),
        ({"a": torch.zeros(4, 3), "b": np.zeros((4, 1))}, True),
        (range(4), False),
    ],
)
def test_parts_of_what_a_dataset_holds(rows: Any, is_held: bool) -> None:
    """A sample lies in memory where all its tensors and arrays are parts of the dataset's."""
    dataset = Held(rows, "ab")
    assert is_view(dataset, dataset[1]) is is_held
    assert is_view(Subset(ConcatDataset([dataset, dataset]), [5]), dataset[1]) is is_held


def test_copies_and_mapped_files_are_not_held(tmp_path: Path) -> None:
    """One is made for each sample, the other may still be on disk."""
    dataset = Held(torch.zeros(4, 3), "")
    assert not is_view(dataset, dataset[1][0] + 1)
    assert not is_view(dataset, (dataset[1][0], torch.zeros(2)))
    mapped = np.memmap(tmp_path / "rows", dtype=np.uint8, mode="w+", shape=(4, 3))
    assert not is_view(Held(mapped, ""), mapped[1])


class Whole(Numbers):
    """Asked for the samples of a batch at once."""

    def __getitems__(self, indices: list[int]) -> list[int]:
        return [10 * index for index in indices]


def test_how_batches_are_come_by() -> None:
    """One by one, all at once, by a list of indices as one item, or as items that are batches."""
    one = fetch_of(DataLoader(Numbers(), 3))
    assert (one.items, one.is_whole, one.is_keyed, one.makes_batches) == (3, False, False, False)
    assert one.is_sequential
    assert one.read([4, 5]) == [4, 5]
    assert one.finish([4, 5]).tolist() == [4, 5]
    assert not fetch_of(DataLoader(Numbers(), 3, shuffle=True)).is_sequential
    whole = fetch_of(DataLoader(Subset(Whole(), [3, 4]), 2))
    assert whole.is_whole
    assert whole.read([0, 1]) == [30, 40]
    assert not fetch_of(DataLoader(Subset(Numbers(), [3, 4]), 2)).is_whole
    lists = BatchSampler(SequentialSampler(range(10)), 5, False)
    keyed = fetch_of(DataLoader(list(range(10)), batch_size=None, sampler=lists))
    assert (keyed.items, keyed.size, keyed.is_keyed, keyed.is_sequential) == (1, 5, True, True)
    items = fetch_of(DataLoader(Numbers(), batch_size=None))
    assert (items.items, items.is_keyed, items.makes_batches) == (1, False, True)
    assert items.finish([7]) == 7
