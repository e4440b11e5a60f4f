"""Finding a dataset's transform, reading with another in its place, and data in memory."""

from __future__ import annotations

import functools
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import ConcatDataset, Subset, TensorDataset
from torchvision import transforms as v1
from torchvision.transforms import v2

import hotset
from hotset.chain.step import Chained
from hotset.errors import ConfigError, SchemaError
from hotset.sources.mapstyle import DatasetSource, Transformed
from hotset.sources.nesting import base_datasets, shared_transform, with_transform
from hotset.sources.source import (
    ArraySource,
    array_source,
    is_array_data,
    memory_source,
    spread,
)
from tests import streams
from tests.streams import Folder, OwnCode, Pictures, assert_same

CHAIN = v1.Compose([v1.CenterCrop(6), v1.ToTensor()])


@pytest.mark.parametrize(
    ("form", "leaf"),
    [("pair", 0), ("single", 0), ("named", 0), ("dict", 1), ("nested", 0), ("label first", 1)],
)
def test_the_transforms_leaf_is_found(form: str, leaf: int) -> None:
    """Wherever it stands in the sample; the chain is opened."""
    source = DatasetSource(Pictures(5, CHAIN, form), [0, 4])
    assert source.leaf == leaf
    assert [type(step).__name__ for step in source.steps] == ["CenterCrop", "ToTensor"]
    assert source.name == "Pictures"
    assert len(source) == 5


def test_reading_with_another_transform() -> None:
    """In place of the user's, whose dataset is not touched."""
    dataset = Pictures(5, CHAIN)
    source = DatasetSource(dataset, [0])
    assert source.reader(None)(3)[0].tobytes() == streams.picture(3).tobytes()
    cropped = source.reader(Chained([v1.CenterCrop(2)]))(3)[0]
    assert cropped.size == (2, 2)
    assert dataset.transform is CHAIN
    assert_same(dataset[3][0], CHAIN(streams.picture(3)))


def test_torchvisions_second_reference_is_exchanged_too() -> None:
    """`transforms` holds the transform a second time, and the target's stays."""
    dataset = Folder(5, CHAIN, streams.one_hot)
    image, target = DatasetSource(dataset, [0]).reader(None)(3)
    assert image.size == (8, 8)
    assert_same(target, streams.one_hot(3))
    assert dataset.transforms.transform is CHAIN


def test_nested_datasets_are_copied_on_the_way() -> None:
    """`Subset` and `ConcatDataset`, in any order; the originals stay as they are."""
    first, second = Pictures(5, CHAIN), Pictures(3, CHAIN)
    nested = Subset(ConcatDataset([Subset(first, [4, 1]), second]), [0, 3])
    assert base_datasets(nested) == [first, second]
    copied = with_transform(nested, Chained([]))
    assert copied[0][0].tobytes() == streams.picture(4).tobytes()
    assert copied[1][0].tobytes() == streams.picture(1).tobytes()
    assert_same(nested[0][0], CHAIN(streams.picture(4)))


class Wrapper(torch.utils.data.Dataset[Any]):
    """A dataset of the user's own around another one."""

    def __init__(self, dataset: Any, transform: Any) -> None:
        self.dataset, self.transform = dataset, transform

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> Any:
        image, label = self.dataset[index]
        return self.transform(image), label


def test_a_wrappers_own_transform_is_the_chain() -> None:
    """What stands inside belongs to reading."""
    source = DatasetSource(Wrapper(Pictures(4, v1.CenterCrop(4)), v1.ToTensor()), [0, 3])
    assert [type(step).__name__ for step in source.steps] == ["ToTensor"]
    assert source.reader(None)(2)[0].size == (4, 4)


class Sometimes(Pictures):
    """Applies its transform to some samples only."""

    def __getitem__(self, index: int) -> Any:
        image: Any = streams.picture(index)
        return (self.transform(image) if index else v1.functional.to_tensor(image)), index


class NeverCalled(Pictures):
    """Has a transform and does not use it."""

    def __getitem__(self, index: int) -> Any:
        return v1.functional.to_tensor(streams.picture(index)), index


@pytest.mark.parametrize("kind", [Sometimes, NeverCalled])
def test_transforms_that_are_not_applied_to_every_sample_stay_inside(kind: Any) -> None:
    """The dataset is then read as a whole."""
    dataset = kind(5, v1.ToTensor())
    source = DatasetSource(dataset, [0, 4])
    assert source.steps == []
    assert_same(source.reader(None)(3), dataset[3])


def test_finding_the_leaf_leaves_generators_alone() -> None:
    """Though the user's random steps run."""
    before = torch.get_rng_state()
    DatasetSource(Pictures(5, v1.Compose([v1.RandomCrop(4), v1.ToTensor()])), [0, 4])
    assert torch.equal(torch.get_rng_state(), before)


def scaled(values: Any, by: float) -> Any:
    """For partial."""
    return values * by


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        (lambda: v1.Normalize(0.5, 0.5), lambda: v1.Normalize(0.5, 0.5), True),
        (lambda: v1.Normalize(0.5, 0.5), lambda: v1.Normalize(0.5, 0.4), False),
        (lambda: v2.Normalize([0.5], [0.5]), lambda: v2.Normalize([0.5], [0.5]), True),
        (lambda: v2.Resize(4), lambda: v2.Resize(4), True),
        (lambda: v2.Resize(4), lambda: v2.Resize(4, antialias=False), False),
        (lambda: v1.ToTensor(), lambda: v1.PILToTensor(), False),
        (lambda: streams.twice_less_one, lambda: streams.twice_less_one, True),
        (lambda: streams.twice_less_one, lambda: streams.less_mean, False),
        (lambda: functools.partial(scaled, by=2), lambda: functools.partial(scaled, by=2), True),
        (lambda: functools.partial(scaled, by=2), lambda: functools.partial(scaled, by=3), False),
        (lambda: v1.Lambda(streams.less_mean), lambda: v1.Lambda(streams.less_mean), True),
        (lambda: v1.Lambda(lambda x: x), lambda: v1.Lambda(lambda x: x), False),
        (lambda: torch.nn.Linear(2, 2), lambda: torch.nn.Linear(2, 2), False),
        (lambda: torch.nn.ReLU(), lambda: torch.nn.ReLU(), True),
        (lambda: [1, {"a": {2}}].__len__, lambda: [1].__len__, False),
        (
            lambda: v1.RandomApply([v1.RandomCrop(4)], p=0.3),
            lambda: v1.RandomApply([v1.RandomCrop(4)], p=0.3),
            True,
        ),
        (
            lambda: v1.RandomApply([v1.RandomCrop(4)], p=0.3),
            lambda: v1.RandomApply([v1.RandomCrop(5)], p=0.3),
            False,
        ),
    ],
)
def test_which_transforms_are_one(a: Any, b: Any, same: bool) -> None:
    """Same classes in the same state; functions only if they are the very same."""
    datasets = [Pictures(3, a()), Pictures(3, b())]
    assert (shared_transform(datasets) is not None) is same


def test_readers_travel_to_worker_processes() -> None:
    """Where the dataset and the transform do."""
    reader = DatasetSource(Pictures(5, CHAIN), [0]).reader(Chained([v1.ToTensor()]))
    assert_same(pickle.loads(pickle.dumps(reader))(2), reader(2))


def test_memory_is_found_through_subsets() -> None:
    """Rows of the inner tensors; nothing is copied."""
    tensors = streams.tensor_dataset(9)
    source = memory_source(Subset(Subset(tensors, [8, 6, 4, 2]), [3, -4]))
    assert source is not None
    kept = source.resident()
    assert kept is not None
    assert kept.rows is not None
    assert kept.rows.tolist() == [2, 8]
    assert kept.columns[0].data.data_ptr() == tensors.tensors[0].data_ptr()  # type: ignore[union-attr]
    assert_same(source.reader(None)(1), tensors[8])
    assert len(source) == 2
    assert memory_source(OwnCode(3)) is None


class OwnTensors(TensorDataset):
    """A subclass may do anything."""

    def __getitem__(self, index: int) -> Any:
        return super().__getitem__(index)[::-1]


def test_subclasses_are_read_through() -> None:
    """Of TensorDataset and of Subset."""

    class Backwards(Subset[Any]):
        def __getitem__(self, index: Any) -> Any:
            return super().__getitem__(len(self) - 1 - index)

        def __getitems__(self, indices: Any) -> Any:
            return [self[index] for index in indices]

    assert memory_source(OwnTensors(torch.zeros(3))) is None
    inner = streams.tensor_dataset(5)
    assert memory_source(Backwards(inner, [0, 1])) is None
    loader = torch.utils.data.DataLoader(Backwards(inner, [0, 1, 4]), 3)
    assert_same(list(hotset.accelerate(loader, device="cpu")), list(loader))


@pytest.mark.parametrize(
    ("data", "is_array"),
    [
        (torch.zeros(2), True),
        (np.zeros(2), True),
        ((torch.zeros(2),), True),
        ({"a": np.zeros(2)}, True),
        ([np.zeros(2)], True),
        ([(1, 2)], False),
        ([], False),
        (OwnCode(2), False),
        (range(3), False),
    ],
)
def test_what_counts_as_arrays(data: Any, is_array: bool) -> None:
    """Tensors, arrays, and containers of them; not datasets, not lists of samples."""
    assert is_array_data(data) is is_array


def test_array_sources_put_pre_transform_first() -> None:
    """And remember how many steps run once."""
    source = array_source(torch.zeros(2, 3), transform=[abs, str], pre_transform=[abs])
    assert source.steps == [abs, abs, str]
    assert source.once == 1
    assert isinstance(source, ArraySource)


@pytest.mark.parametrize(
    ("data", "options", "error", "message"),
    [
        ((), {}, ConfigError, r"the data holds no field, got \(\)"),
        ((torch.zeros(2), 3), {}, SchemaError, r"data\[1\] must be a tensor or a NumPy array .* 3"),
        (
            {"a": torch.zeros(2), "b": torch.zeros(3)},
            {},
            SchemaError,
            r"got \{\"\['a'\]\": 2, \"\[",
        ),
        (
            {"a": torch.zeros(2)},
            {"pre_transform": abs},
            ConfigError,
            "for a dictionary, `pre_transf",
        ),
    ],
)
def test_array_sources_refuse(data: Any, options: Any, error: Any, message: str) -> None:
    """With the field's path, and what was given."""
    with pytest.raises(error, match=message):
        array_source(data, **options)


def test_a_further_transform_acts_on_the_first_leaf() -> None:
    """Of any container."""
    for form in ("pair", "dict", "single"):
        dataset = Pictures(3, CHAIN, form)
        found = Transformed(dataset, [torch.zeros_like] if form != "dict" else [str.upper])[1]
        if form == "pair":
            assert_same(found, (torch.zeros(3, 6, 6), 1))
        elif form == "dict":
            assert found["id"] == "N1"
        else:
            assert_same(found, torch.zeros(3, 6, 6))


@pytest.mark.parametrize(
    ("length", "count", "indices"),
    [(1, 4, [0]), (2, 4, [0, 1]), (10, 4, [0, 3, 6, 9]), (10, 1, [0]), (5, 2, [0, 4])],
)
def test_probes_are_spread(length: int, count: int, indices: list[int]) -> None:
    """Both ends included, none twice."""
    assert spread(length, count) == indices
