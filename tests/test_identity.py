"""A source's identity is taken before anything is read from it, since reading changes it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch.utils.data import DataLoader, Dataset, IterableDataset

import hotset
from hotset.errors import KeyingError, StaleStoreWarning
from hotset.keys.fingerprint import fingerprint
from hotset.keys.source import identity_of, source_identity


class Lazy(Dataset[Any]):
    """Opens its file when it is read first, as is recommended for HDF5."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.file: Any = None

    def __del__(self) -> None:
        if self.file is not None:
            self.file.close()

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> Any:
        if self.file is None:
            self.file = open(self.path, "rb")  # noqa: SIM115
        self.file.seek(index)
        return np.frombuffer(self.file.read(1), np.uint8).copy(), index


class Pickled(Lazy):
    """Leaves the open file out of its state."""

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "file": None}


class Lines(IterableDataset[Any]):
    """Says where it is."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.handle: Any = None

    def __iter__(self) -> Iterator[Any]:
        self.handle = open(self.path, encoding="utf-8")  # noqa: SIM115
        return map(int, self.handle)

    def __del__(self) -> None:
        if self.handle is not None:
            self.handle.close()


class Counted:
    """An iterator of Python code."""

    def __init__(self, *values: int) -> None:
        self.values, self.place = values, 0

    def __iter__(self) -> Counted:
        return self

    def __next__(self) -> int:
        if self.place == len(self.values):
            raise StopIteration
        self.place += 1
        return self.values[self.place - 1]


def values_of(store: Any) -> list[int]:
    """The numbers in a store."""
    return [int(store[n]) for n in range(len(store))]


ITERATORS: dict[str, Callable[..., Iterator[int]]] = {
    "of a list": lambda *values: iter(list(values)),
    "of a tuple": lambda *values: iter(values),
    "a map": lambda *values: map(abs, values),
    "of a dictionary": lambda *values: iter(dict.fromkeys(values)),
    "of the user's": Counted,
}


@pytest.mark.parametrize("kind", ITERATORS)
def test_iterators_are_keyed_before_they_are_read(kind: str, tmp_path: Path) -> None:
    """By what is in them, and not by what the look at the first samples left."""
    make, path = ITERATORS[kind], tmp_path / "n.hotset"
    assert values_of(hotset.build(make(1, 2, 3), path, workers=0)) == [1, 2, 3]
    assert values_of(hotset.build(make(1, 2, 3), path, workers=0)) == [1, 2, 3]
    with pytest.warns(StaleStoreWarning):
        found = hotset.build(make(1, 9, 3), path, workers=0)
    assert values_of(found) == [1, 9, 3]


def test_an_iterator_that_is_partly_read_counts_by_the_rest(tmp_path: Path) -> None:
    """What was read before is no part of it."""
    values = iter([7, 1, 2, 3])
    next(values)
    assert values_of(hotset.build(values, tmp_path / "a.hotset", workers=0)) == [1, 2, 3]


def test_an_iterator_that_hides_its_samples_is_refused(tmp_path: Path) -> None:
    """A generator, also inside another iterator; nothing of it is lost by asking."""
    numbers = (n for n in range(3))
    with pytest.raises(KeyingError, match=r"the dataset is a generator .* pass version"):
        identity_of(numbers).part()
    assert list(numbers) == [0, 1, 2]
    for data in ((n for n in range(3)), map(abs, (n for n in range(3)))):
        with pytest.raises(KeyingError, match=r'is a generator .*; pass version="…"'):
            hotset.build(data, tmp_path / "b.hotset", workers=0)
    store = hotset.build((n for n in range(3)), tmp_path / "b.hotset", workers=0, version="1")
    assert values_of(store) == [0, 1, 2]


def test_iterable_that_keeps_its_handle_is_keyed_by_its_file(tmp_path: Path) -> None:
    """It is asked before it opens the file."""
    path = tmp_path / "n.txt"
    path.write_text("1\n2\n3\n")
    os.utime(path, ns=(0, 10**18))
    store = tmp_path / "n.hotset"
    assert values_of(hotset.build(Lines(path), store, workers=0)) == [1, 2, 3]
    assert values_of(hotset.build(Lines(path), store, workers=0)) == [1, 2, 3]
    path.write_text("1\n9\n3\n")
    with pytest.warns(StaleStoreWarning):
        found = hotset.build(Lines(path), store, workers=0)
    assert values_of(found) == [1, 9, 3]


@pytest.mark.parametrize("kind", [Lazy, Pickled])
@pytest.mark.parametrize("way", ["build", "accelerate"])
def test_file_that_is_opened_when_it_is_read_first(
    kind: type[Lazy], way: str, tmp_path: Path
) -> None:
    """The handle that looking at it opened is no reason to refuse it, and the file counts."""
    path = tmp_path / "data.bin"
    path.write_bytes(bytes(range(6)))
    os.utime(path, ns=(0, 10**18))

    def made(dataset: Lazy) -> list[int]:
        if way == "build":
            store = hotset.build(dataset, tmp_path / "d.hotset", workers=0)
            return [int(store[n][0][0]) for n in range(len(store))]
        fast = hotset.accelerate(DataLoader(dataset), device="cpu", cache=tmp_path / "stores")
        return [int(pixel) for pixels, _ in fast for pixel in pixels.flatten()]

    dataset = kind(path)
    assert made(dataset) == list(range(6))
    assert made(kind(path)) == list(range(6))
    if kind is Pickled:
        assert made(dataset) == list(range(6))
    else:
        with pytest.raises(KeyingError, match="attribute 'file' of Lazy is an open file"):
            made(dataset)
    path.write_bytes(bytes(range(10, 16)))
    with pytest.warns(StaleStoreWarning):
        assert made(kind(path)) == list(range(10, 16))


def test_fingerprint_takes_a_ready_identity(tmp_path: Path) -> None:
    """It is that of the dataset as it was; sample bytes are mixed in afterwards."""
    path = tmp_path / "data.bin"
    path.write_bytes(bytes(6))
    dataset = Lazy(path)
    identity = identity_of(dataset)
    before = fingerprint(dataset, [], samples=[b"a"])
    assert dataset[0][1] == 0
    assert fingerprint(dataset, [], samples=[b"a"], source=identity) == before
    assert fingerprint(dataset, [], samples=[b"b"], source=identity) != before
    assert identity.part([b"a"]) == source_identity(Lazy(path), samples=[b"a"])
    refused = identity_of(dataset)
    with pytest.raises(KeyingError, match="is an open file"):
        fingerprint(dataset, [], source=refused)
    named = fingerprint(dataset, [], source=refused, version="1")
    assert named.parts[0].text == "Lazy, by its version"
