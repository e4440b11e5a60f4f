"""Padding and joining leaves of differing shapes: the kernels, the reference, and torch's own."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

import hotset
from hotset.errors import ConfigError, SchemaError
from hotset.kernels import padding as kernels
from hotset.sample import padding as reference
from hotset.sample.padding import Padded, check_jagged

DTYPES = [
    torch.int64,
    torch.int32,
    torch.uint8,
    torch.float32,
    torch.float16,
    torch.bool,
    torch.bfloat16,
    torch.uint16,
    torch.float64,
    torch.complex64,
    torch.complex128,
]
FORMS = [reference, kernels]


def leaves_of(shapes: list[tuple[int, ...]], dtype: torch.dtype) -> list[Tensor]:
    """Tensors of some shapes, of values that are all but zero."""
    generator = torch.Generator().manual_seed(len(shapes))
    return [
        torch.randint(1, 2 if dtype is torch.bool else 120, shape, generator=generator).to(dtype)
        for shape in shapes
    ]


def laid_out(leaves: list[Tensor]) -> tuple[Tensor, np.ndarray]:
    """Leaves in one buffer, in another order and with gaps between them, and their index."""
    parts: list[Tensor] = []
    starts = dict.fromkeys(range(len(leaves)), 0)
    position = 0
    for number in reversed(range(len(leaves))):
        starts[number] = position
        gap = torch.ones(number % 3, dtype=leaves[0].dtype)
        parts += [leaves[number].reshape(-1), gap]
        position += leaves[number].numel() + len(gap)
    index = [[starts[n], *leaf.shape] for n, leaf in enumerate(leaves)]
    return torch.cat(parts), np.array(index, dtype=np.int64)


def bits(tensor: Tensor) -> bytes:
    """Its values, bit for bit."""
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def slowly(leaves: list[Tensor], shape: tuple[int, ...], padded: Padded, axis: int) -> Tensor:
    """What padding is, one leaf and one slice at a time."""
    out = torch.full((len(leaves), *shape), padded.value, dtype=leaves[0].dtype)
    for row, leaf in enumerate(leaves):
        length, room = leaf.shape[axis], shape[axis]
        kept = min(length, room)
        is_left = padded.side == "left"
        cut = leaf.narrow(axis, length - kept if is_left else 0, kept)
        into = [slice(edge) for edge in cut.shape]
        if is_left:
            into[axis] = slice(room - kept, room)
        out[(row, *into)] = cut
    return out


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("side", ["right", "left"])
@given(
    lengths=st.lists(st.integers(0, 9), min_size=1, max_size=12),
    tail=st.sampled_from([(), (3,), (2, 2)]),
    dtype=st.sampled_from(DTYPES),
    value=st.sampled_from([0, 1]),
)
def test_as_pad_sequence(
    form: Any, side: Any, lengths: list[int], tail: tuple[int, ...], dtype: torch.dtype, value: int
) -> None:
    """Bit for bit, empty leaves and batches of them alone included."""
    leaves = leaves_of([(length, *tail) for length in lengths], dtype)
    data, index = laid_out(leaves)
    found = form.pad_rows(data, index, padded=Padded(value, side=side))
    wanted = pad_sequence(leaves, batch_first=True, padding_value=value, padding_side=side)
    assert found.shape == wanted.shape
    assert found.dtype == dtype
    assert bits(found) == bits(wanted)


@given(
    shapes=st.integers(1, 4).flatmap(
        lambda axes: st.lists(st.tuples(*[st.integers(0, 4)] * axes), min_size=1, max_size=6)
    ),
    axis=st.integers(0, 3),
    multiple=st.integers(1, 4),
    most=st.one_of(st.none(), st.integers(1, 2)),
    side=st.sampled_from(["right", "left"]),
    dtype=st.sampled_from([torch.uint8, torch.float16, torch.float32, torch.int64]),
)
def test_kernel_reference_and_slices_agree(
    shapes: list[tuple[int, ...]],
    axis: int,
    multiple: int,
    most: int | None,
    side: Any,
    dtype: torch.dtype,
) -> None:
    """Over any number of axes, whichever of them is the length, rounded up and cut."""
    axis %= len(shapes[0])
    padded = Padded(7, multiple, side, None if most is None else most * multiple)
    leaves = leaves_of(shapes, dtype)
    data, index = laid_out(leaves)
    shape = [max(edges) for edges in zip(*shapes, strict=True)]
    if padded.max_length is not None:
        shape[axis] = min(shape[axis], padded.max_length)
    shape[axis] = math.ceil(shape[axis] / multiple) * multiple
    wanted = slowly(leaves, tuple(shape), padded, axis)
    for form in FORMS:
        found = form.pad_rows(data, index, padded=padded, axis=axis)
        assert found.shape == wanted.shape
        assert bits(found) == bits(wanted)


@pytest.mark.parametrize("form", FORMS)
@given(
    lengths=st.lists(st.integers(0, 9), min_size=1, max_size=12),
    tail=st.sampled_from([(), (3,), (2, 2)]),
    dtype=st.sampled_from(DTYPES),
)
def test_as_nested_tensor(
    form: Any, lengths: list[int], tail: tuple[int, ...], dtype: torch.dtype
) -> None:
    """Values and offsets are those of `torch.nested.nested_tensor`, bit for bit."""
    leaves = leaves_of([(length, *tail) for length in lengths], dtype)
    found = form.jagged_rows(*laid_out(leaves)).nested()
    wanted: Any = torch.nested.nested_tensor(leaves, layout=torch.jagged)
    assert found.is_nested
    assert found.layout is torch.jagged
    assert found.dtype == dtype
    assert found.offsets().tolist() == wanted.offsets().tolist()
    assert bits(found.values()) == bits(wanted.values())
    for leaf, other in zip(leaves, found.unbind(), strict=True):
        assert bits(leaf) == bits(other)


@pytest.mark.parametrize("form", FORMS)
def test_nan_keeps_its_bits(form: Any) -> None:
    """A payload in a NaN is data too."""
    data = torch.tensor([0x7FC00001, 0x7F800001], dtype=torch.int32).view(torch.float32)
    index = np.array([[0, 2], [1, 1]])
    found = form.pad_rows(data, index, padded=Padded(float("inf"))).view(torch.int32)
    assert found.tolist() == [[0x7FC00001, 0x7F800001], [0x7F800001, 0x7F800000]]
    values = form.jagged_rows(data, index).values.view(torch.int32)
    assert values.tolist() == [0x7FC00001, 0x7F800001, 0x7F800001]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"value": "0"}, r"`value` must be a number, got '0'"),
        ({"value": torch.tensor(0)}, r"`value` must be a number, got tensor\(0\)"),
        ({"multiple_of": 0}, "`multiple_of` must be a whole number of at least 1, got 0"),
        ({"multiple_of": True}, "`multiple_of` must be a whole number of at least 1, got True"),
        ({"side": "top"}, "`side` must be 'right' or 'left', got 'top'"),
        ({"max_length": 0}, "`max_length` must be a whole number of at least 1, got 0"),
        (
            {"max_length": 10, "multiple_of": 8},
            "`max_length` must be a multiple of `multiple_of`, got 10 and 8: batches would be",
        ),
    ],
)
def test_arguments_of_padded(arguments: dict[str, Any], problem: str) -> None:
    """Each is looked at when it is given."""
    with pytest.raises(ConfigError, match=problem):
        hotset.Padded(**arguments)


@pytest.mark.parametrize(
    ("value", "dtype", "problem"),
    [
        (-1, torch.uint8, "the pad value -1 does not fit uint8, whose values .* from 0 to 255"),
        (0.5, torch.int64, "the pad value 0.5 does not fit int64"),
        (float("nan"), torch.int32, "the pad value nan does not fit int32"),
        (2, torch.bool, "the pad value 2 does not fit bool, whose values .* from 0 to 1"),
        (1e5, torch.float16, "the pad value 100000.0 is beyond the range of float16"),
    ],
)
def test_pad_values_that_do_not_fit(value: float, dtype: torch.dtype, problem: str) -> None:
    """A value is never wrapped around or made infinite."""
    with pytest.raises(ConfigError, match=problem):
        Padded(value).fill(dtype)


def test_pad_values_that_fit() -> None:
    """Whole floats in integers, infinity in floats, truth in both."""
    assert Padded(255.0).fill(torch.uint8).item() == 255
    assert Padded(-100).fill(torch.int64).item() == -100
    assert Padded(float("-inf")).fill(torch.float16).item() == -math.inf
    assert Padded(True).fill(torch.bool).item() is True
    assert math.isnan(Padded(float("nan")).fill(torch.bfloat16).item())


def test_jagged_along_the_first_axis_only() -> None:
    """The message says what to do."""
    check_jagged(np.array([[3, 2], [0, 2]]), "['x']")
    match = (
        r"sample\['x'\] has the shapes \(2, 3\) and \(2, 5\), which differ behind the first axis"
    )
    with pytest.raises(SchemaError, match=match):
        check_jagged(np.array([[2, 3], [2, 3], [2, 5]]), "['x']")
