"""Whatever can be stored comes back: same containers, types, shapes, dtypes and bits."""

from __future__ import annotations

import tempfile
from collections import OrderedDict, namedtuple
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from torchvision import tv_tensors
from torchvision.transforms import v2

import hotset
from hotset.sample.column import IMAGE_BANDS, IMAGE_DTYPES
from hotset.store.structure import DTYPES
from tests.stores import Given, Pair, assert_holds, assert_identical, mixed_sample, picture, stored

NUMPY_DTYPES = [
    *(np.bool_, np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64),
    *(np.float16, np.float32, np.float64, np.complex64, np.complex128),
]
TEXT = st.text(st.characters(codec=None), max_size=5)  # lone surrogates included


class Typed(NamedTuple):
    """A named tuple of another make."""

    x: Any
    y: Any


def _raw(draw: Any, count: int, *, is_bool: bool) -> bytes:
    raw = draw(st.binary(min_size=count, max_size=count))
    return bytes(byte & 1 for byte in raw) if is_bool else raw


def _shape(draw: Any, axes: int) -> tuple[int, ...]:
    return tuple(draw(st.lists(st.integers(0, 3), min_size=axes, max_size=axes)))


def _tensor(draw: Any, kind: Any) -> torch.Tensor:
    _, name, axes, fixed, view = kind
    shape, dtype = fixed if fixed is not None else _shape(draw, axes), DTYPES[name]
    if view in ("transposed", "stepped") and axes > 0:
        shape = (*shape[:-1], shape[-1] * (1 + (view == "stepped")))
    count = int(np.prod(shape))
    raw = _raw(draw, count * dtype.itemsize, is_bool=name == "bool")
    plain = torch.tensor(list(raw), dtype=torch.uint8)
    tensor = (plain.view(dtype) if count else torch.empty(0, dtype=dtype)).reshape(shape)
    if view == "transposed" and axes > 1:
        tensor = tensor.transpose(0, -1).contiguous().transpose(0, -1)
    if view == "stepped" and axes > 0:
        tensor = tensor[..., ::2]
    if view == "conjugate" and dtype.is_complex:
        tensor = tensor.conj()
    return tensor


def _array(draw: Any, kind: Any) -> np.ndarray:
    _, dtype, axes, fixed, view = kind
    shape = fixed if fixed is not None else _shape(draw, axes)
    count = int(np.prod(shape)) * np.dtype(dtype).itemsize
    raw = _raw(draw, count, is_bool=dtype is np.bool_)
    array = np.frombuffer(raw, dtype).reshape(shape)
    if axes > 0 and view == "transposed":
        return np.asfortranarray(array)
    return array[::-1] if axes > 0 and view == "stepped" else array


def _image(draw: Any, kind: Any) -> Image.Image:
    _, modes, size = kind
    mode = draw(st.sampled_from(modes))
    width, height = size or (draw(st.integers(1, 4)), draw(st.integers(1, 4)))
    itemsize = IMAGE_DTYPES[mode].itemsize if mode in IMAGE_DTYPES else IMAGE_BANDS[mode]
    raw = _raw(draw, width * height * itemsize, is_bool=False)
    return Image.frombytes(mode, (width, height), raw)


@st.composite
def leaf_kinds(draw: Any) -> Any:
    """What all samples' leaves at one place have in common."""
    what = draw(st.sampled_from(("tensor", "array", "image", "scalar", "plain")))
    view = draw(st.sampled_from(("plain", "transposed", "stepped", "conjugate")))
    axes = draw(st.integers(0, 3))
    fixed = _shape(draw, axes) if axes == 0 or draw(st.booleans()) else None
    if what == "tensor":
        return what, draw(st.sampled_from(sorted(DTYPES))), axes, fixed, view
    if what == "array":
        return what, draw(st.sampled_from(NUMPY_DTYPES)), axes, fixed, view
    if what == "image":
        modes = draw(st.sampled_from((*((m,) for m in IMAGE_DTYPES), tuple(IMAGE_BANDS))))
        if len(modes) > 1:
            modes = draw(st.lists(st.sampled_from(modes), min_size=1, max_size=3, unique=True))
        return what, modes, draw(st.sampled_from((None, (3, 2))))
    if what == "scalar":
        return what, draw(st.sampled_from(NUMPY_DTYPES))
    return what, draw(
        st.sampled_from(("int", "float", "bool", "str", "bytes", "np.str", "np.bytes"))
    )


def leaf(draw: Any, kind: Any) -> Any:
    """A leaf of a kind."""
    if kind[0] in ("tensor", "array", "image"):
        return {"tensor": _tensor, "array": _array, "image": _image}[kind[0]](draw, kind)
    if kind[0] == "scalar":
        dtype = np.dtype(kind[1])
        raw = _raw(draw, dtype.itemsize, is_bool=kind[1] is np.bool_)
        return np.frombuffer(raw, dtype)[0]
    plain = {
        "int": st.integers(-(2**63), 2**63 - 1),
        "float": st.floats(allow_nan=False),
        "bool": st.booleans(),
        "str": TEXT,
        "bytes": st.binary(max_size=4),
        "np.str": TEXT.map(np.str_),
        "np.bytes": st.binary(max_size=4).map(np.bytes_),
    }
    return draw(plain[kind[1]])


CONTAINERS = st.deferred(
    lambda: st.tuples(
        st.sampled_from(("tuple", "list", "dict", "OrderedDict", "Pair", "Typed")),
        st.lists(leaf_kinds() | CONTAINERS, min_size=2, max_size=2),
        st.lists(TEXT | st.integers(-(2**63), 2**63 - 1), min_size=2, max_size=2, unique=True),
    ).map(lambda parts: ("container", *parts))
)


def sample(draw: Any, kind: Any) -> Any:
    """A sample of a structure."""
    if kind[0] != "container":
        return leaf(draw, kind)
    _, name, children, keys = kind
    values = [sample(draw, child) for child in children]
    if name in ("dict", "OrderedDict"):
        pairs = zip(keys, values, strict=True)
        return dict(pairs) if name == "dict" else OrderedDict(pairs)
    if name in ("Pair", "Typed"):
        return (Pair if name == "Pair" else Typed)(*values)
    return tuple(values) if name == "tuple" else values


@st.composite
def datasets(draw: Any) -> list[Any]:
    """A few samples of one structure."""
    kind = draw(leaf_kinds() | CONTAINERS)
    return [sample(draw, kind) for _ in range(draw(st.integers(1, 6)))]


@settings(max_examples=100)
@given(datasets())
def test_any_samples_come_back(samples: list[Any]) -> None:
    """Trees of every kind of leaf and container, dense and ragged."""
    with tempfile.TemporaryDirectory() as folder:
        assert_holds(stored(samples, Path(folder) / "a.hotset"), samples)


@pytest.mark.parametrize("name", sorted(DTYPES))
def test_every_dtype_comes_back(name: str, tmp_path: Path) -> None:
    """With and without axes, dense and ragged, without values, and not contiguous."""
    itemsize = DTYPES[name].itemsize
    pattern = torch.arange(24 * itemsize, dtype=torch.uint8) * 7 % (2 if name == "bool" else 251)
    values = pattern.view(DTYPES[name])
    samples = [
        {
            "number": values[index],
            "dense": values.reshape(4, 6),
            "ragged": values[: 4 * index].reshape(index, 4),
            "none": values.reshape(1, 24)[:0],
            "turned": values.reshape(4, 6).t(),
            "stepped": values[index::5],
        }
        for index in range(4)
    ]
    assert_holds(stored(samples, tmp_path / "a.hotset"), samples)


@pytest.mark.parametrize("name", ["complex32", "complex64", "complex128"])
def test_views_that_torch_puts_off_are_carried_out(name: str, tmp_path: Path) -> None:
    """Conjugates and negatives are bits in a tensor's state, and values in a file."""
    values = torch.tensor([1 + 2j, 3 - 4j]).to(DTYPES[name])
    samples = [(values.conj(), values.conj().imag), (values, values.imag)]
    assert samples[0][0].is_conj()
    assert samples[0][1].is_neg()
    store = stored(samples, tmp_path / "a.hotset")
    assert store[0][0].tolist() == [1 - 2j, 3 + 4j]
    assert store[0][1].tolist() == [-2, 4]
    assert_holds(store, samples)


@pytest.mark.parametrize("mode", [*IMAGE_BANDS, *IMAGE_DTYPES])
def test_every_image_mode_comes_back(mode: str, tmp_path: Path) -> None:
    """Of one size and of differing ones."""
    same = [picture(index, (5, 3), mode) for index in range(3)]
    store = stored(same, tmp_path / "dense.hotset")
    assert not store.fields[0].is_ragged
    assert_holds(store, same)
    sizes = [picture(index, (5 + index, 3), mode) for index in range(3)]
    store = stored(sizes, tmp_path / "ragged.hotset")
    assert store.fields[0].is_ragged
    assert_holds(store, sizes)


@pytest.mark.parametrize("odd", [0, 1, 5, 255, 256, 599])
def test_what_begins_dense_turns_ragged(odd: int, tmp_path: Path) -> None:
    """At any sample, within a chunk, at its ends, and in the last."""
    samples = [
        (torch.full((3 if index == odd else 2, 2), index), picture(index, (3, 2)))
        for index in range(600)
    ]
    store = stored(samples, tmp_path / "a.hotset")
    assert [f.is_ragged for f in store.fields] == [True, False]
    assert_holds(store, samples)


@pytest.mark.parametrize("odd", [0, 1, 300, 599])
def test_another_image_mode_turns_up(odd: int, tmp_path: Path) -> None:
    """Of as many channels or not; the modes stand in the order in which they came."""
    modes = {odd: "L", (odd + 7) % 600: "HSV"}
    samples = [picture(index, (3, 2), modes.get(index, "RGB")) for index in range(600)]
    store = stored(samples, tmp_path / "a.hotset")
    assert store.fields[0].modes == tuple(dict.fromkeys(image.mode for image in samples))
    assert_holds(store, samples)


def test_images_from_files_are_images(tmp_path: Path) -> None:
    """What PIL calls an image from a file makes no difference to those that are equal."""
    picture(0, (4, 3)).save(tmp_path / "0.png")
    samples = [Image.open(tmp_path / "0.png"), picture(1, (4, 3)), picture(2, (4, 3))]
    store = stored(samples, tmp_path / "a.hotset")
    assert not store.fields[0].is_ragged
    assert_holds(store, samples)
    assert type(store[0]) is Image.Image


def test_images_without_pixels_come_back(tmp_path: Path) -> None:
    """Wide, but not high."""
    samples = [Image.new("RGB", (0, 3)), Image.new("RGB", (5, 0)), picture(0, (2, 2))]
    assert_holds(stored(samples, tmp_path / "a.hotset"), samples)


def test_samples_without_a_byte_come_back(tmp_path: Path) -> None:
    """Their number is known all the same."""
    samples = [(torch.zeros(0, 4), "") for _ in range(5)]
    assert_holds(stored(samples, tmp_path / "a.hotset"), samples)
    plain = [np.zeros((2, 0), np.int16) for _ in range(5)]
    assert_holds(stored(plain, tmp_path / "b.hotset"), plain)


def test_tensors_of_torchvision_keep_their_class(tmp_path: Path) -> None:
    """Images, masks and videos, which have nothing but values."""
    samples = [
        (
            tv_tensors.Image(torch.full((3, 2, 2), index, dtype=torch.uint8)),
            tv_tensors.Mask(torch.full((2 + index, 2), index)),
            tv_tensors.Video(torch.zeros(2, 3, 2, 2)),
        )
        for index in range(3)
    ]
    assert_holds(stored(samples, tmp_path / "a.hotset"), samples)


def test_named_tuples_come_back_where_their_class_is_gone(tmp_path: Path) -> None:
    """With the same name and fields, those that `collections` made up included."""
    odd = namedtuple("odd", ["class", "x", "_y"], rename=True)
    samples = [odd(1, 2, 3), odd(4, 5, 6)]
    store = stored(samples, tmp_path / "a.hotset")
    assert type(store[1])._fields == ("_0", "x", "_2")
    assert repr(store[1]) == "odd(_0=4, x=5, _2=6)"
    assert_holds(store, samples)


class Counted(NamedTuple):
    """A named tuple whose own code would run."""

    x: int


def test_named_tuples_are_of_their_own_class(tmp_path: Path) -> None:
    """Where its module is loaded."""
    store = stored([Counted(1), Counted(2)], tmp_path / "a.hotset")
    assert type(store[1]) is Counted


def test_a_table_gives_what_the_chain_gave(tmp_path: Path) -> None:
    """Bytes are kept of floats; class, dtype and bits are the chain's, sizes differ or not."""

    class Images(Given):
        transform = v2.Compose([v2.ToImage(), v2.ToDtype(torch.float32, scale=True)])

        def __getitem__(self, index: int) -> Any:
            return self.transform(self.given[index]), index

    for odd in (2, 3):
        images = [picture(index, (3 if index == 17 else 2, odd)) for index in range(40)]
        if odd == 2:
            images[17] = picture(17, (2, 2))
        dataset = Images(images)
        store = hotset.build(dataset, tmp_path / f"{odd}.hotset", version="1", workers=0)
        assert store.fields[0].dtype is torch.uint8
        assert store.fields[0].is_ragged is (odd == 3)
        assert type(store[17][0]) is tv_tensors.Image
        assert store[17][0].dtype is torch.float32
        assert_holds(store, [dataset[index] for index in range(40)])


def test_reading_gives_memory_of_its_own(tmp_path: Path) -> None:
    """A sample may be written to; the store stays as it is."""
    samples = [mixed_sample(index) for index in range(5)]
    store = stored(samples, tmp_path / "a.hotset")
    for index in range(5):
        store[index]["tensors"].right.fill_(9)
        store[index]["arrays"]["a"][:] = 9
        store[index]["image"].putpixel((0, 0), 0)
    assert_holds(store, samples)


def test_keys_of_one_mapping_may_come_in_another_order(tmp_path: Path) -> None:
    """They come back in the order of the first sample, as in a batch."""
    store = stored([{"a": 1, "b": "x"}, {"b": "y", "a": 2}], tmp_path / "a.hotset")
    assert_identical(store[1], {"a": 2, "b": "y"})
