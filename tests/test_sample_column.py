"""Leaves and their storage: each comes back with its type, shape, dtype and bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from PIL import Image
from torchvision import tv_tensors

from hotset.errors import SchemaError
from hotset.sample.collate import same_bits
from hotset.sample.column import (
    DenseColumn,
    LeafSchema,
    ListColumn,
    column_of,
    decode,
    describe,
    encode,
    is_pil_image,
    list_item,
)

DTYPES = [
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.uint16,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.complex64,
    torch.bool,
]


def _image(mode: str) -> Image.Image:
    bands = len(Image.new(mode, (1, 1)).getbands())
    wide = {"I": np.int32, "F": np.float32, "I;16": np.uint16}
    pixels = np.random.default_rng(0).integers(0, 256, (5, 7, bands), dtype=np.uint8)
    if mode in wide:
        return Image.fromarray(pixels[..., 0].astype(wide[mode]) * 3)
    return Image.frombytes(mode, (7, 5), pixels.tobytes())


LEAVES = [
    *(torch.ones(2, 3).to(dtype) for dtype in DTYPES),
    torch.tensor(5),
    torch.zeros(0, 3),
    torch.arange(6).reshape(2, 3).t(),
    torch.tensor([float("nan"), float("inf"), -0.0]),
    tv_tensors.Image(torch.ones(3, 2, 2, dtype=torch.uint8)),
    tv_tensors.Mask(torch.ones(2, 2, dtype=torch.bool)),
    *(_image(mode) for mode in ("L", "LA", "RGB", "RGBA", "CMYK", "YCbCr", "HSV", "LAB")),
    *(_image(mode) for mode in ("I", "F", "I;16")),
    np.arange(6.0).reshape(2, 3),
    np.arange(6).reshape(2, 3)[:, ::-1],
    np.asfortranarray(np.arange(6).reshape(2, 3)),
    np.array(5),
    np.zeros((0, 2), np.float16),
    np.array([1 + 2j]),
    np.bool_(True),
    np.float16(0.5),
    np.float64(0.1),
    np.int8(-3),
    np.uint16(65_535),
    True,
    5,
    -(2**63),
    0.1,
    float("nan"),
]


@pytest.mark.parametrize("leaf", LEAVES, ids=lambda leaf: str(describe(leaf)).replace(" ", "-"))
def test_leaf_comes_back(leaf: Any):
    """Its exact class, shape, dtype and bits, from memory of its own."""
    schema = describe(leaf)
    assert schema.is_storable
    stored = encode(leaf, schema)
    assert stored.shape == schema.shape
    assert stored.dtype is schema.dtype
    assert schema.nbytes == stored.numel() * stored.element_size()
    again = decode(stored, schema)
    assert type(again) is type(leaf)
    assert same_bits(again, leaf)
    assert describe(again) == schema


@given(
    hnp.arrays(
        st.sampled_from((np.uint8, np.int64, np.float16, np.float32, np.bool_, np.uint32)),
        hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4),
    )
)
def test_arrays_come_back(array: np.ndarray):
    """Any shape, no axes and no elements included."""
    schema = describe(array)
    again = decode(encode(array, schema), schema)
    assert again.shape == array.shape
    assert again.dtype == array.dtype
    assert again.tobytes() == array.tobytes()


def test_what_torch_must_not_write_is_copied():
    """A PIL image and a read-only array share no memory with what is stored; no warning either."""
    image = _image("L")
    array = np.arange(3)
    array.flags.writeable = False
    for leaf in (image, array):
        encode(leaf, describe(leaf)).fill_(9)
    assert same_bits(image, _image("L"))
    assert array.tolist() == [0, 1, 2]


def test_images_are_stored_channels_first():
    """(C, H, W), as batches and kernels read them."""
    image = _image("RGB")
    stored = encode(image, describe(image))
    assert stored.shape == (3, 5, 7)
    assert stored[:, 1, 2].tolist() == list(image.getpixel((2, 1)))


@pytest.mark.parametrize(
    "leaf",
    [
        "text",
        b"bytes",
        None,
        object(),
        {1, 2},
        2 + 3j,
        np.array(["a"]),
        np.array([object()]),
        np.array([1], dtype=">i4") if np.little_endian else np.array([1], dtype="<i4"),
        np.ma.masked_array([1, 2], [True, False]),
        np.str_("a"),
        tv_tensors.BoundingBoxes(torch.zeros(1, 4), format="XYXY", canvas_size=(4, 4)),
        Image.new("P", (2, 2)),
        Image.new("1", (2, 2)),
    ],
    ids=lambda leaf: type(leaf).__name__,
)
def test_what_cannot_be_stored_as_numbers(leaf: Any):
    """It is kept as the object it is."""
    assert not describe(leaf).is_storable
    assert describe(leaf).nbytes == 0
    assert list_item(leaf) is leaf


def test_sparse_tensors_are_not_stored():
    """Only strided memory can lie end to end."""
    assert not describe(torch.zeros(2).to_sparse()).is_storable


def test_schemas_as_messages_show_them():
    """Kind, shape and dtype, or the class."""
    found = [
        str(describe(leaf))
        for leaf in (torch.zeros(2, 3), np.zeros(4, np.int16), _image("RGB"), "a", True, None)
    ]
    assert found == [
        "tensor (2, 3) float32",
        "array (4,) int16",
        "PIL image RGB 7x5",
        "str",
        "bool",
        "NoneType",
    ]


def test_bool_int_and_float_are_told_apart():
    """True is no 1 and 1 is no 1.0, since their batches have other dtypes."""
    assert [describe(leaf).dtype for leaf in (True, 1, 1.0)] == [
        torch.bool,
        torch.int64,
        torch.float64,
    ]
    assert len({describe(leaf) for leaf in (True, 1, 1.0, np.int64(1))}) == 4


def test_pil_images_are_known_without_pil():
    """Also a subclass, as a decoder makes it."""

    class Decoded(Image.Image):
        pass

    assert is_pil_image(Decoded())
    assert not is_pil_image(torch.zeros(2))
    assert not is_pil_image(Image)


def test_dense_column():
    """One tensor for all samples; leaves come out as they went in."""
    schema = LeafSchema("array", (2,), torch.int16, np.ndarray)
    column = DenseColumn(schema, torch.arange(6, dtype=torch.int16).reshape(3, 2))
    assert len(column) == 3
    assert column.nbytes == 12
    item = column.item(1)
    assert (type(item), item.dtype, item.tolist()) == (np.ndarray, np.int16, [2, 3])
    item[0] = 99
    assert column.item(1).tolist() == [2, 3]
    assert torch.equal(column.to(torch.device("cpu")).data, column.data)


def test_list_column():
    """Leaves of differing shapes, and text, one by one."""
    leaves = [torch.ones(2), torch.zeros(3, 1), "text", b"four"]
    column = ListColumn(describe(leaves[0]), [list_item(leaf) for leaf in leaves])
    assert len(column) == 4
    assert column.nbytes == 8 + 12 + 4 + 4
    assert all(same_bits(column.item(row), leaf) for row, leaf in enumerate(leaves))
    assert column.to(torch.device("cpu")) is column


def test_list_items_are_copies():
    """What is done to a leaf later does not reach what was kept."""
    leaf = torch.ones(2)
    item = list_item(leaf)
    leaf.fill_(7)
    assert decode(*item).tolist() == [1, 1]


def test_column_of_a_tensor_or_an_array():
    """Nothing is copied; a number per sample gives NumPy's scalars or tensors without axes."""
    tensor, array = torch.zeros(3, 2), np.zeros((3, 2), np.float32)
    assert column_of(tensor, "x").data.data_ptr() == tensor.data_ptr()
    column_of(array, "x").data[0, 0] = 5
    assert array[0, 0] == 5
    labels = column_of(np.arange(3, dtype=np.int16), "y")
    assert type(labels.item(2)) is np.int16
    assert column_of(torch.arange(3), "y").item(2).shape == ()
    assert column_of([1, 2], "y").data.tolist() == [1, 2]


def test_column_of_what_must_not_be_written(tmp_path: Path):
    """A file mapped into memory for reading is taken as it is, without a warning."""
    np.save(tmp_path / "x.npy", np.arange(6).reshape(3, 2))
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    assert column_of(mapped, "x").item(2).tolist() == [4, 5]


def test_column_of_a_view():
    """An array whose rows run backwards."""
    assert column_of(np.arange(4)[::-1], "x").data.tolist() == [3, 2, 1, 0]


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (torch.tensor(1), "Tensor of dtype torch.int64"),
        (np.array(["a", "b"]), "ndarray of dtype <U1"),
        ("text", "'text'"),
        (5, "5"),
        (np.array(1), "ndarray of dtype int64"),
    ],
)
def test_column_of_anything_else(data: Any, found: str):
    """The message names the argument, and says what was expected and what came."""
    with pytest.raises(SchemaError, match="y must be a tensor or a NumPy array with samples along"):
        column_of(data, "y")
    with pytest.raises(SchemaError, match=f"got {found}"):
        column_of(data, "y")
