"""Batches from columns: what `default_collate` makes of the samples, in every type and bit."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict, UserList, namedtuple
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from torch import Tensor
from torch.utils.data import default_collate
from torchvision import tv_tensors

from hotset.errors import SchemaError
from hotset.sample.collate import check_collatable, check_same, gather, same_bits
from hotset.sample.column import DenseColumn, ListColumn, describe, encode, list_item
from hotset.sample.tree import flatten, unflatten_batch

Pair = namedtuple("Pair", ["first", "second"])


class Record(dict):
    """A dictionary of a user's own."""


def _batch(samples: list[Any], rows: list[int]) -> Any:
    """A batch by way of columns, dense where all leaves have one schema."""
    parts = [flatten(sample) for sample in samples]
    spec = parts[0][1]
    leaves = []
    for column in zip(*(found for found, _ in parts), strict=True):
        schemas = {describe(leaf) for leaf in column}
        schema = describe(column[0])
        if len(schemas) == 1 and schema.is_storable:
            data = torch.stack([encode(leaf, schema) for leaf in column])
            leaves.append(gather(DenseColumn(schema, data), torch.tensor(rows)))
        else:
            items = [list_item(leaf) for leaf in column]
            leaves.append(gather(ListColumn(schema, items), torch.tensor(rows)))
    check_collatable([describe(leaf) for leaf in parts[0][0]], spec)
    return unflatten_batch(spec, iter(leaves))


def _assert_same(found: Any, expected: Any) -> None:
    assert type(found) is type(expected)
    if isinstance(expected, Tensor):
        assert found.device == expected.device
        assert same_bits(found, expected), (found.dtype, expected.dtype)
    elif isinstance(expected, Mapping):
        assert list(found) == list(expected)
        for key in expected:
            _assert_same(found[key], expected[key])
    elif isinstance(expected, (list, tuple, UserList)):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            _assert_same(one, other)
    else:
        assert found == expected


FLOATS = st.floats(width=16)
NUMBERS = st.integers(-100, 100)
SHAPES = st.lists(st.integers(0, 3), max_size=3).map(tuple)


def _tensors(dtype: torch.dtype, shape: tuple[int, ...]) -> st.SearchStrategy[Any]:
    return NUMBERS.map(lambda number: torch.full(shape, abs(number)).to(dtype))


def _arrays(dtype: Any, shape: tuple[int, ...]) -> st.SearchStrategy[Any]:
    return NUMBERS.map(lambda number: np.full(shape, abs(number), dtype))


def _scalars(kind: Any) -> st.SearchStrategy[Any]:
    return NUMBERS.map(lambda number: kind(abs(number)))


def _mappings(kind: Any) -> Any:
    """Mappings of the keys in one order; `fixed_dictionaries` would shuffle them."""

    def made(parts: dict[Any, st.SearchStrategy[Any]]) -> st.SearchStrategy[Any]:
        values = st.tuples(*parts.values())
        return values.map(lambda found: kind(zip(parts, found, strict=True)))

    return made


TENSOR_DTYPES = (torch.uint8, torch.int32, torch.float16, torch.bfloat16, torch.float64, torch.bool)
ARRAY_DTYPES = (np.uint8, np.int16, np.float32, np.float64, np.bool_, np.uint16)
SCALARS = (np.uint8, np.int32, np.int64, np.float16, np.float32, np.float64, np.bool_)

# A leaf's kind: a strategy of strategies, so that all samples of a set have leaves of one kind.
kinds = st.one_of(
    st.sampled_from((st.booleans(), NUMBERS, FLOATS, st.text(max_size=3), st.binary(max_size=3))),
    st.builds(_tensors, st.sampled_from(TENSOR_DTYPES), SHAPES),
    st.builds(_arrays, st.sampled_from(ARRAY_DTYPES), SHAPES),
    st.builds(_scalars, st.sampled_from(SCALARS)),
)
structures = st.recursive(
    kinds,
    lambda child: st.one_of(
        st.lists(child, min_size=1, max_size=3).map(lambda parts: st.tuples(*parts)),
        st.lists(child, min_size=1, max_size=3).map(lambda parts: st.tuples(*parts).map(list)),
        st.lists(child, min_size=1, max_size=3).map(lambda p: st.tuples(*p).map(UserList)),
        st.tuples(child, child).map(lambda parts: st.builds(Pair, *parts)),
        st.dictionaries(st.text(max_size=2), child, max_size=3).map(_mappings(dict)),
        st.dictionaries(NUMBERS, child, max_size=3).map(_mappings(Record)),
        st.dictionaries(NUMBERS, child, max_size=3).map(_mappings(OrderedDict)),
    ),
    max_leaves=6,
)


@settings(max_examples=300)
@given(st.data())
def test_batch_is_default_collates(data: st.DataObject):
    """Containers, dtypes, shapes and bits of random sample trees, rows in any order and again."""
    samples = data.draw(st.lists(data.draw(structures), min_size=1, max_size=4))
    rows = data.draw(st.lists(st.integers(0, len(samples) - 1), min_size=1, max_size=5))
    _assert_same(_batch(samples, rows), default_collate([samples[row] for row in rows]))


@pytest.mark.parametrize(
    "samples",
    [
        [(torch.ones(2), 3)] * 2,
        [{"x": np.float32(1), "y": [True, "a"]}] * 3,
        [Pair(np.zeros((2, 2)), 0.1), Pair(np.ones((2, 2)), 0.2)],
        [torch.tensor(float("nan"))] * 2,
        [tv_tensors.Image(torch.ones(3, 2, 2, dtype=torch.uint8))] * 2,
        [np.array(3), np.array(4)],
        [[1, 2], [3, 4]],
        [((1,), ("b", b"c"))] * 2,
        [np.float64(0.5), np.float64(0.25)],
    ],
    ids=str,
)
def test_batches_by_example(samples: list[Any]):
    """Those that people write."""
    _assert_same(_batch(samples, [0, 1]), default_collate(samples[:2]))


def test_a_subclass_batches_to_a_plain_tensor():
    """As it does for `default_collate`: a batch is no image."""
    batch = _batch([tv_tensors.Image(torch.ones(3, 2, 2))] * 2, [0, 1])
    assert type(batch) is Tensor


@pytest.mark.parametrize(
    ("shape", "dtype", "batch_size"),
    [
        ((32,), torch.float32, 1024),
        ((32,), torch.float32, 1025),
        ((), torch.int64, 40_000),
        ((3, 5), torch.bfloat16, 4096),
        ((300,), torch.uint8, 7),
        ((300,), torch.uint8, 40_000),
    ],
)
def test_long_batches_are_those_of_index_select(
    shape: tuple[int, ...], dtype: torch.dtype, batch_size: int
) -> None:
    """Whoever gathers them: short rows or long ones, few or many; rows that are not there raise."""
    data = torch.randint(0, 256, (500, *shape)).to(dtype)
    column = DenseColumn(describe(data[0]), data)
    rows = torch.randint(0, 500, (batch_size,))
    assert same_bits(gather(column, rows), data.index_select(0, rows))
    rows[3] = 500
    with pytest.raises(IndexError, match=r"rows \d+ to 500 of 500|index out of range"):
        gather(column, rows.sort().values)


@pytest.mark.parametrize(
    ("leaf", "message"),
    [
        (None, r"sample\['x'\]\[1\] is None, which cannot be batched; leave it out"),
        (
            Image.new("RGB", (5, 4)),
            r"sample\['x'\]\[1\] is a PIL image RGB 5x4, which cannot be batched; end the "
            r"transform with ToTensor\(\)",
        ),
        (
            {1, 2},
            r"sample\['x'\]\[1\] is of type set, which cannot be batched; expected tensors",
        ),
    ],
    ids=["None", "image", "set"],
)
def test_what_cannot_be_batched_is_refused(leaf: Any, message: str):
    """By name, with what to do, before anything is read."""
    found, spec = flatten({"x": (1, leaf)})
    with pytest.raises(SchemaError, match=message):
        check_collatable([describe(part) for part in found], spec)


def test_what_can_be_batched_is_not_refused():
    """Numbers, text, arrays and tensors."""
    found, spec = flatten((1, 0.5, True, "a", b"b", np.int8(1), np.zeros(2), torch.zeros(2)))
    check_collatable([describe(part) for part in found], spec)


def test_first_difference_between_samples_is_named():
    """Leaf, both indices, both shapes, and what to do."""
    one, other = (torch.zeros(3, 4, 4), 1), (torch.zeros(3, 4, 5), 1)
    message = (
        r"sample\[0\] is a tensor \(3, 4, 4\) float32 at index 7 but a tensor \(3, 4, 5\) "
        r"float32 at index 9; they cannot stand in one batch: resize or pad"
    )
    with pytest.raises(SchemaError, match=message):
        check_same(one, other, 7, 9)
    with pytest.raises(SchemaError, match=r"samples 7 and 9 have different structures: leaves"):
        check_same(one, one[:1], 7, 9)
    check_same(one, (torch.ones(3, 4, 4), 5), 7, 9)


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (torch.tensor([float("nan")]), torch.tensor([float("nan")]), True),
        (torch.tensor([0.0]), torch.tensor([-0.0]), False),
        (torch.zeros(2), torch.zeros(2, dtype=torch.float64), False),
        (torch.zeros(2), torch.zeros(2, 1), False),
        (torch.arange(6).reshape(2, 3).t(), torch.arange(6).reshape(2, 3).t().contiguous(), True),
        (torch.tensor([True]), torch.tensor([True]), True),
        (torch.zeros(()), torch.zeros(()), True),
        (torch.zeros(0), torch.zeros(0), True),
        (np.array([np.nan]), np.array([np.nan]), True),
        (np.zeros(2), np.zeros(2, np.float32), False),
        (float("nan"), float("nan"), True),
        (1, 1.0, False),
        (True, 1, False),
        ("a", "a", True),
        (Image.new("L", (2, 2), 5), Image.new("L", (2, 2), 5), True),
        (Image.new("L", (2, 2), 5), Image.new("L", (2, 2), 6), False),
        (Image.new("L", (2, 2)), Image.new("L", (2, 3)), False),
        (np.float64("nan"), np.float64("nan"), True),
        (np.float32("nan"), np.float32("nan"), True),
        (np.float64(1), np.float32(1), False),
        (0.0, -0.0, False),
    ],
)
def test_same_bits(one: Any, other: Any, expected: bool):
    """Type, shape, dtype and every bit; a NaN equals itself and 0.0 does not equal -0.0."""
    assert same_bits(one, other) is expected


def test_bits_are_compared_whatever_the_strides() -> None:
    """One element with an odd stride is compared; a sparse tensor counts as different."""
    assert same_bits(torch.arange(8.0)[::8], torch.zeros(1))
    assert not same_bits(torch.arange(8.0)[::8], torch.ones(1))
    sparse = torch.eye(2).to_sparse()
    assert not same_bits(sparse, sparse.clone())


@dataclasses.dataclass
class _Boxed:
    values: torch.Tensor


def test_an_object_that_cannot_be_compared_counts_as_different() -> None:
    """A dataclass of tensors has no truth value when compared."""
    assert not same_bits(_Boxed(torch.ones(2)), _Boxed(torch.ones(2)))
