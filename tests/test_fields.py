"""Fields that a user gave: what a list of arrays means, and the column of each."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import hotset
from hotset.errors import ConfigError, SchemaError
from hotset.sample.column import DenseColumn, RaggedColumn
from hotset.sources.fields import columns_of

A, B, C = torch.arange(2), torch.arange(3), torch.arange(2) + 7
L3 = torch.arange(3)


def paths_of(data: Any, named: Any = ()) -> dict[str, int]:
    """The fields that data is taken for, and how many samples each has."""
    columns, spec = columns_of(data, named)
    return dict(zip(spec.paths(), map(len, columns), strict=True))


@pytest.mark.parametrize(
    ("data", "found"),
    [
        ([A, C], {"[0]": 2, "[1]": 2}),
        ((A, C), {"[0]": 2, "[1]": 2}),
        ([A, B], {"[0]": 2, "[1]": 3}),
        ({"x": [A, C], "y": A}, {"['x'][0]": 2, "['x'][1]": 2, "['y']": 2}),
        ({"x": (A, C)}, {"['x'][0]": 2, "['x'][1]": 2}),
        ({"x": [A, B, C], "y": L3}, {"['x']": 3, "['y']": 3}),
        ({"x": (A, B, C), "y": L3}, {"['x']": 3, "['y']": 3}),
        ({"x": [A, C, A], "y": L3}, {"['x']": 3, "['y']": 3}),
        ({"x": [A.numpy(), B.numpy()]}, {"['x']": 2}),
        (([A, B], A), {"[0]": 2, "[1]": 2}),
        ({"x": {"y": [A, B]}, "z": A}, {"['x']['y']": 2, "['z']": 2}),
        ({"x": [[A, B], A]}, {"['x'][0]": 2, "['x'][1]": 2}),
        (torch.nested.nested_tensor([A, B, C], layout=torch.jagged), {"": 3}),
    ],
)
def test_what_a_list_means(data: Any, found: dict[str, int]) -> None:
    """A field for each place where that can be, one field where it cannot."""
    assert paths_of(data) == found


def test_a_name_settles_it() -> None:
    """Also that of a container, or a path."""
    data = {"x": [A, C], "y": {"z": [A, A]}}
    assert paths_of(data, ["x"]) == {"['x']": 2, "['y']['z'][0]": 2, "['y']['z'][1]": 2}
    assert paths_of(data, ["y"]) == {"['x'][0]": 2, "['x'][1]": 2, "['y']['z']": 2}
    assert paths_of(data, ["['y']['z']", "x"]) == {"['x']": 2, "['y']['z']": 2}


@pytest.mark.parametrize("is_numpy", [False, True])
def test_items_come_back_as_they_were(is_numpy: bool) -> None:
    """Type, shape, dtype and bits; slices of other arrays, and what has no value, included."""
    base = torch.arange(60, dtype=torch.float32).reshape(5, 12)
    items: list[Any] = [base[:, 1:3].T, base[:0, :5], base[::2, :4]]
    items = [item.numpy() for item in items] if is_numpy else items
    ((column,), _) = columns_of({"x": items})
    assert isinstance(column, RaggedColumn)
    assert column.index.tolist() == [[0, 2, 5], [10, 0, 5], [10, 3, 4]]
    for row, item in enumerate(items):
        found = column.item(row)
        assert type(found) is type(item)
        assert found.dtype == item.dtype
        assert found.shape == item.shape
        assert found.tolist() == item.tolist()


@pytest.mark.parametrize("tail", [(), (3,), (2, 2)])
def test_nested_tensors_are_not_copied(tail: tuple[int, ...]) -> None:
    """The values are those of the nested tensor itself."""
    items = [torch.rand(n, *tail) for n in (2, 0, 3)]
    nested: Any = torch.nested.nested_tensor(items, layout=torch.jagged)
    ((column,), _) = columns_of((nested,))
    assert isinstance(column, RaggedColumn)
    assert column.data.data_ptr() == nested.values().data_ptr()
    for row, item in enumerate(items):
        assert torch.equal(column.item(row), item)


def test_nested_tensors_of_other_forms() -> None:
    """Transposed, with holes, cut off in front: taken item by item, or by their offsets."""
    items = [torch.rand(n, 3) for n in (2, 1, 3)]
    nested: Any = torch.nested.nested_tensor(items, layout=torch.jagged)
    ((column,), _) = columns_of([nested.transpose(1, 2)])
    assert [column.item(row).tolist() for row in range(3)] == [i.T.tolist() for i in items]
    holes = torch.nested.narrow(
        torch.arange(12).reshape(3, 4),
        1,
        torch.tensor([0, 1, 2]),
        torch.tensor([2, 3, 1]),
        layout=torch.jagged,
    )
    ((column,), _) = columns_of([holes])
    assert [column.item(row).tolist() for row in range(3)] == [[0, 1], [5, 6, 7], [10]]
    behind = torch.nested.nested_tensor_from_jagged(torch.arange(6), torch.tensor([2, 3, 6]))
    ((column,), _) = columns_of([behind])
    assert [column.item(row).tolist() for row in range(2)] == [[2], [3, 4, 5]]


def test_nested_tensors_that_point_elsewhere() -> None:
    """Offsets beyond the values are not followed."""
    wrong = torch.nested.nested_tensor_from_jagged(torch.arange(6), torch.tensor([0, 3, 9]))
    with pytest.raises(
        SchemaError, match=r"data\['x'\] is a nested tensor whose offsets \[0, 3, 9\]"
    ):
        columns_of({"x": wrong})


def test_arrays_stay_what_they_are() -> None:
    """Dense, and not copied."""
    (column, other), _ = columns_of({"x": A, "y": np.arange(2)})
    assert isinstance(column, DenseColumn)
    assert column.data is A
    assert isinstance(other, DenseColumn)


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        ({"x": [[1, 2], [3]]}, r"data\['x'\] is a list of lists of numbers, which do not say"),
        ({"x": [[], [0.5]]}, r"as \[torch.tensor\(row\) for row in data\['x'\]\]"),
        (([1, 2], A), r"data\[0\] is a list of numbers, .*, as torch.tensor\(data\[0\]\)"),
        (
            {"x": [A, B.float()]},
            r"data\['x'\] has a tensor \(2,\) int64 at index 0 but a tensor \(3,\) float32 at",
        ),
        ({"x": [A, B.reshape(3, 1)]}, "one type, one dtype and one number of axes"),
        ({"x": [A, B.numpy()]}, r"but a array \(3,\) int64 at index 1"),
        ({"x": [np.array(["a"]), np.array(["b", "c"])]}, r"data\['x'\] must hold plain tensors"),
    ],
)
def test_fields_that_cannot_be_kept(data: Any, problem: str) -> None:
    """By name, with what to do."""
    with pytest.raises(SchemaError, match=problem):
        columns_of(data)


def test_nothing() -> None:
    """A dictionary without a field."""
    with pytest.raises(ConfigError, match="the data holds no field"):
        columns_of({})


@pytest.mark.parametrize("ragged", ["pad", "jagged", hotset.Padded(7)])
@pytest.mark.parametrize(
    "items",
    [
        [torch.arange(4) + 100 * number for number in range(4)],
        [torch.arange(10.0).reshape(2, 5), torch.arange(12.0).reshape(2, 6)],
        [torch.randn(4)],
        [torch.zeros(0)],
    ],
    ids=["square", "(C, T)", "one sample", "nothing"],
)
def test_a_rule_for_all_makes_every_list_a_field(ragged: Any, items: list[Tensor]) -> None:
    """Whatever the lengths happen to be."""
    if ragged == "jagged" and items[0].ndim == 2:
        with pytest.raises(SchemaError, match="ragged='jagged' needs the length there"):
            hotset.Loader({"x": items}, 4, ragged=ragged, device="cpu")
        return
    loader = hotset.Loader({"x": items}, 4, ragged=ragged, device="cpu")
    assert loader.plan.samples == len(items)
    (batch,) = loader
    assert len(batch["x"]) == len(items)
    for found, item in zip(batch["x"].unbind(), items, strict=True):
        assert torch.equal(found[tuple(map(slice, item.shape))], item)


def test_nested_tensors_of_the_other_layout() -> None:
    """Are one field too."""
    items = [torch.arange(3.0), torch.arange(2.0)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch calls them a prototype
        nested = torch.nested.nested_tensor(items)
    loader = hotset.Loader({"x": nested, "y": torch.arange(2)}, 2, ragged="pad", device="cpu")
    (batch,) = loader
    assert batch["x"].tolist() == [[0, 1, 2], [0, 1, 0]]
