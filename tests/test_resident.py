"""Samples where they lie: rows, parts, devices, what is looked at, and what travels to workers."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

import hotset
from hotset.chain.step import Chained
from hotset.errors import FormatError
from hotset.loader.worker import CachedReader
from hotset.sample.column import column_of
from hotset.sample.tree import flatten, strip
from hotset.sources.resident import Resident, of_store
from tests.cached import JITTERED, Ragged, loader_of, stores_in
from tests.stores import assert_identical, flip, mixed_sample, stored
from tests.streams import stream

CPU = torch.device("cpu")
COUNT = 40


def filled(folder: Path) -> hotset.Store:
    """A store whose rows are in the order of a shuffled first epoch."""
    torch.manual_seed(1)
    list(hotset.accelerate(loader_of("resized"), device="cpu", cache=folder, fill="lazy"))
    (path,) = stores_in(folder)
    assert (path / "rows.npy").exists()
    return hotset.Store(path)


def test_leaves_of_a_store_are_its_samples(tmp_path: Path) -> None:
    """Of every kind, in the order of the samples, whatever that of the rows."""
    samples = [mixed_sample(index) for index in range(COUNT)]
    store = stored(samples, tmp_path / "mixed.hotset")
    resident = of_store(store)
    assert len(resident) == COUNT
    assert resident.nbytes == sum(column.nbytes for column in store.columns)
    for index, sample in enumerate(samples):
        for leaf, wanted in zip(resident.leaves(index), flatten(sample)[0], strict=True):
            assert_identical(leaf, wanted)
    shuffled = filled(tmp_path / "cache")
    resident, plain = of_store(shuffled), Ragged(41)
    assert len(resident) == 41
    for index in range(41):
        assert_identical(resident.leaves(index)[0], plain.image(index))
        assert resident.leaves(index)[1] == index % 3


def test_some_of_the_samples(tmp_path: Path) -> None:
    """In any order, some of them twice; parts of parts; rows in mind."""
    for store in (
        stored([mixed_sample(n) for n in range(41)], tmp_path / "mixed.hotset"),
        filled(tmp_path / "cache"),
    ):
        whole = of_store(store)
        part = whole.of(torch.tensor([7, 3, 3, 40]))
        assert len(part) == 4
        for number, index in enumerate((7, 3, 3, 40)):
            assert_identical(part.leaves(number), whole.leaves(index))
        assert_identical(part.of(torch.tensor([3, 0])).leaves(0), whole.leaves(40))
        assert part.nbytes == whole.nbytes  # the columns are the same


def test_nothing_is_copied_on_the_same_device(tmp_path: Path) -> None:
    """A store's files stay mapped, and the store stays known."""
    whole = of_store(filled(tmp_path))
    moved = whole.to(CPU)
    assert moved.store is whole.store
    for column, other in zip(moved.columns, whole.columns, strict=True):
        assert column.data.data_ptr() == other.data.data_ptr()  # type: ignore[union-attr]


def test_damage_is_seen_when_it_is_touched(tmp_path: Path) -> None:
    """By a look at one sample and by a batch's rows; others are fine."""
    tensors = [(torch.full((100_000,), n, dtype=torch.uint8), n) for n in range(9)]
    store = stored(tensors, tmp_path / "s.hotset")
    field = store.fields[0]
    flip(store.path / field.data_file, 350_000)  # block 1 of 256 KiB: samples 2 to 5
    resident = of_store(hotset.Store(store.path))
    assert resident.leaves(0)[1] == 0
    assert resident.leaves(7)[1] == 7
    resident.touch(np.array([0, 6, 8]))
    for look in (lambda: resident.leaves(3), lambda: resident.touch(np.array([0, 5]))):
        with pytest.raises(FormatError, match=r"block 1 does not have .* \(samples 2 to 5\)"):
            look()
    trusted = of_store(hotset.Store(store.path, verify="never"))
    trusted.touch(np.arange(9))
    assert trusted.leaves(3)[0].tolist().count(3) == 99_999


def travelled(thing: Any) -> tuple[Any, int]:
    """What arrives in another process, and how many bytes travel."""
    content = pickle.dumps(thing)
    return pickle.loads(content), len(content)


def test_of_a_store_the_path_travels(tmp_path: Path) -> None:
    """Whatever its size and the order of its rows; of a part its rows do as well."""
    stores = [
        stored([(torch.zeros(9_999), n) for n in range(COUNT)], tmp_path / "large.hotset"),
        stored([("text " * 99, n) for n in range(2_000)], tmp_path / "long.hotset"),
        filled(tmp_path / "filled"),
    ]
    sizes = []
    for store in stores:
        resident = of_store(store)
        again, size = travelled(resident)
        sizes.append(size)
        assert again.store.path == store.path
        assert again.leaf == resident.leaf
        assert_identical(again.leaves(5), resident.leaves(5))
        part, size = travelled(resident.of(torch.tensor([5, 1])))
        assert len(part) == 2
        assert_identical(part.leaves(0), resident.leaves(5))
        reader, size = travelled(CachedReader(resident, Chained([])))
        sizes.append(size)
        assert_identical(flatten(reader(5))[0], resident.leaves(5))
    assert max(sizes) < 2_000


def test_the_rows_of_a_large_store_do_not_travel(tmp_path: Path) -> None:
    """They are read from the store again."""
    store = filled(tmp_path)
    assert store.rows is not None
    content = pickle.dumps(of_store(store))
    assert store.rows.numpy().tobytes() not in content
    again = pickle.loads(content)
    assert torch.equal(again.rows, store.rows)


def test_of_memory_the_values_travel() -> None:
    """There is nothing else."""
    columns = (column_of(torch.arange(12).reshape(6, 2), "x"), column_of(np.arange(6.0), "y"))
    resident = Resident(columns, strip(flatten((0, 1))[1]), 0)
    again, size = travelled(resident)
    assert size > 12 * 8
    assert_identical(again.leaves(4), resident.leaves(4))
    part, _ = travelled(resident.of(torch.tensor([4, 2])))
    assert_identical(part.leaves(1), resident.leaves(2))


def test_a_store_serves_spawned_workers(tmp_path: Path) -> None:
    """Each maps the files itself; batches are those of no workers."""
    found = []
    for settings in ({}, {"num_workers": 2, "multiprocessing_context": "spawn"}):
        plain = DataLoader(Ragged(23, JITTERED), 5, shuffle=True, **settings)  # type: ignore[arg-type]
        fast = hotset.accelerate(plain, device="cpu", cache=tmp_path)
        assert fast.plan.tier == "disk"
        found.append(stream(fast, seed=1)[0])
    assert_identical(found[1], found[0])
