"""The bytes of a store: NumPy alone reads them, and they do not change from version to version."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import hotset
from hotset.sample.column import describe
from hotset.sample.tree import flatten, strip
from hotset.store.chunk import Packer
from hotset.store.layout import VERSION, loads
from hotset.store.npy import array_header, header_room
from hotset.store.structure import DTYPES
from hotset.store.writer import Content, Writer
from tests.stores import Made, Pair, assert_holds, mixed_sample, picture, stored

GOLDEN = Path(__file__).parent / "golden" / "store"


def golden_sample(index: int) -> Any:
    """A sample of the store that is kept beside the tests."""
    pixels = torch.arange(12, dtype=torch.uint8).reshape(3, 2, 2) * 5 + index
    return {
        "image": pixels,
        "size": picture(0, (1 + index, 2), "L" if index == 2 else "RGB").point(lambda _: index),
        "half": torch.tensor([index, 0.5]).to(torch.bfloat16),
        "ragged": torch.arange(index * 2, dtype=torch.int16).reshape(index, 2),
        "Pair": Pair(index, [index / 4, index % 2 == 0]),
        "text": ("ü\ud800" * index, bytes([index])),
        "array": (np.full((2, 1), index, np.float32), np.uint64(2**64 - 1 - index)),
        7: torch.zeros(0, 3),
    }


def write_golden(folder: Path) -> Path:
    """The store of four such samples, written out of order, in chunks of two."""
    leaves, spec = flatten(golden_sample(0))
    table = torch.arange(3 * 256, dtype=torch.float32).reshape(3, 256) / 4
    content = Content(strip(spec), 0, tuple(map(describe, leaves)), {"of": "golden"}, table)
    writer, packer = Writer(folder / "golden.partial", content), Packer()
    for ids in ([2, 3], [0, 1]):
        taken = [packer.taken(flatten(golden_sample(index))[0]) for index in ids]
        writer.append(packer.pack(ids, taken))
    writer.finish(folder / "golden", {"by": "the tests"}, [0, 1, 2, 3])
    return folder / "golden"


def test_a_store_has_the_bytes_that_it_always_had(tmp_path: Path) -> None:
    """File by file; a change of the format needs a new version, and a golden store of its own."""
    found = write_golden(tmp_path)
    names = sorted(path.name for path in GOLDEN.iterdir())
    assert sorted(path.name for path in found.iterdir()) == names
    for name in names:
        assert (found / name).read_bytes() == (GOLDEN / name).read_bytes(), name
    assert json.loads((GOLDEN / "manifest.json").read_text())["version"] == VERSION


def test_an_old_store_opens() -> None:
    """The one that is kept beside the tests, with a table and rows out of order."""
    store = hotset.open(GOLDEN)
    samples = [golden_sample(index) for index in range(4)]
    for sample in samples:
        sample["image"] = sample["image"].float() / 4 + torch.arange(3)[:, None, None] * 64
    assert_holds(store, samples)
    assert store.rows is not None
    assert store.rows.tolist() == [2, 3, 0, 1]


def test_numpy_alone_reads_a_store(tmp_path: Path) -> None:
    """Every file is an array of the dtype and shape that one would expect."""
    samples = [mixed_sample(index) for index in range(300)]
    store = stored(samples, tmp_path / "a.hotset")
    arrays = {path.name: np.load(path) for path in store.path.glob("*.npy")}
    assert {name: (array.dtype.str, array.shape) for name, array in arrays.items()} == {
        "image.data.npy": ("|u1", (21_600,)),
        "image.index.npy": ("<i8", (300, 5)),
        "same.npy": ("|u1", (300, 1, 2, 3)),
        "numbers_0.npy": ("<i8", (300,)),
        "numbers_1.npy": ("<f8", (300,)),
        "numbers_2.npy": ("|b1", (300,)),
        "numbers_3.npy": ("<f4", (300,)),
        "numbers_4.npy": ("<u8", (300,)),
        "text_0.data.npy": ("|u1", (600,)),
        "text_0.index.npy": ("<i8", (300, 2)),
        "text_1.data.npy": ("|u1", (450,)),
        "text_1.index.npy": ("<i8", (300, 2)),
        "tensors_0.data.npy": ("<u2", (450,)),
        "tensors_0.index.npy": ("<i8", (300, 2)),
        "tensors_1.npy": ("<i2", (300, 2, 3)),
        "arrays_b.data.npy": ("<f8", (600,)),
        "arrays_b.index.npy": ("<i8", (300, 3)),
        "arrays_a.npy": ("<i4", (300, 2, 2)),
        "empty.npy": ("<f4", (300, 0, 4)),
    }
    assert arrays["numbers_0.npy"].tolist() == list(range(300))
    for index in (0, 1, 150, 299):
        start, channels, height, width, mode = arrays["image.index.npy"][index].tolist()
        assert mode == 0
        pixels = arrays["image.data.npy"][start : start + channels * height * width]
        image = pixels.reshape(channels, height, width).transpose(1, 2, 0)
        assert np.array_equal(image, np.asarray(samples[index]["image"]))
        start, length = arrays["text_0.index.npy"][index].tolist()
        assert bytes(arrays["text_0.data.npy"][start : start + length]) == b"x" * (index % 5)
        start, length = arrays["tensors_0.index.npy"][index].tolist()
        values = torch.from_numpy(arrays["tensors_0.data.npy"][start : start + length].copy())
        assert torch.equal(values.view(torch.bfloat16), samples[index]["tensors"].left)


@pytest.mark.parametrize("name", sorted(DTYPES))
def test_numpy_reads_every_dtype(name: str, tmp_path: Path) -> None:
    """Those that it lacks as unsigned integers of as many bytes."""
    dtype = DTYPES[name]
    values = torch.arange(6 * dtype.itemsize, dtype=torch.uint8) % 2
    store = stored([values.view(dtype)] * 2, tmp_path / "a.hotset")
    array = np.load(store.path / "tensor.npy")
    assert array.shape == (2, 6)
    assert array.dtype.itemsize == dtype.itemsize
    assert array.tobytes() == bytes(values.tolist()) * 2


def test_numpy_maps_a_store(tmp_path: Path) -> None:
    """Values begin where a map may begin: at a multiple of 64 bytes."""
    store = stored([torch.full((3,), index) for index in range(5)], tmp_path / "a.hotset")
    array = np.load(store.path / "tensor.npy", mmap_mode="r")
    assert array.offset % 64 == 0
    assert array[4].tolist() == [4, 4, 4]


@pytest.mark.parametrize("count", [0, 1, 999, 10**12, 2**62])
def test_headers_have_room_for_any_count(count: int) -> None:
    """One that is written at the end fits where it was left out at the beginning."""
    for dtype, shape in (
        (np.dtype("u1"), (3, 32, 32)),
        (np.dtype("<c16"), ()),
        (np.dtype("?"), (1,)),
    ):
        room = header_room(dtype, shape)
        assert room % 64 == 0
        header = array_header(dtype, (count, *shape), room)
        assert len(header) == room
        assert str(count).encode() in header


def test_headers_that_do_not_fit_are_refused() -> None:
    """Rather than written over the values."""
    with pytest.raises(ValueError, match="does not fit into 64"):
        array_header(np.dtype("u1"), (1,) * 31, 64)


def test_field_names_are_file_names(tmp_path: Path) -> None:
    """Whatever keys are called: no two files have one name, and none leads elsewhere."""
    keys = [
        "a",
        "A",
        "a/b",
        "../a",
        "a b",
        "",
        "table",
        "rows",
        "manifest",
        "x" * 80,
        "ü",
        "1",
        1,
        "_",
    ]
    samples = [dict.fromkeys(keys, index) for index in range(3)]
    store = stored(samples, tmp_path / "deep" / "a.hotset")
    names = [f.name for f in store.fields]
    assert len(set(names)) == len(names)
    assert names[:4] == ["a", "a-1", "a_b", "a-3"]
    assert sorted(path.name for path in store.path.iterdir()) == sorted(
        ["manifest.json", *(f"{name}.npy" for name in names)]
    )
    assert_holds(store, samples)


def test_a_manifest_comes_back(tmp_path: Path) -> None:
    """What is read is what was written."""
    store = stored([mixed_sample(index) for index in range(5)], tmp_path / "a.hotset")
    again = loads(store.manifest.dumps())
    assert again.fields == store.fields
    assert again.files == store.manifest.files
    assert again.spec == store.spec
    assert again.dumps() == store.manifest.dumps() == (store.path / "manifest.json").read_text()


def test_a_finished_store_has_no_leftovers(tmp_path: Path) -> None:
    """No journal, no partial directory, nothing but the lock beside it."""
    store = hotset.build(Made(mixed_sample, 20), tmp_path / "a.hotset", version="1", workers=0)
    names = {path.name for path in store.path.iterdir()}
    assert names == {"manifest.json", *store.manifest.files}
    assert {path.name for path in tmp_path.iterdir()} == {"a.hotset", ".a.hotset.lock"}


def test_a_store_may_be_moved(tmp_path: Path) -> None:
    """Nothing in it says where it is."""
    samples = [mixed_sample(index) for index in range(5)]
    stored(samples, tmp_path / "a.hotset")
    shutil.move(tmp_path / "a.hotset", tmp_path / "b")
    assert_holds(hotset.open(tmp_path / "b"), samples)
