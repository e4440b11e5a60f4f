"""What would not come back as it is, is refused by name, with a word on what to do."""

from __future__ import annotations

import re
import warnings
from collections import OrderedDict, defaultdict, deque
from enum import IntEnum
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps
from torchvision import transforms as v1
from torchvision import tv_tensors

import hotset
from hotset.errors import HotsetError, OrientationWarning, SchemaError
from hotset.store.structure import DEPTH
from tests.stores import Given, Made, assert_holds, picture, stored


class Colour(IntEnum):
    """A number with a name."""

    RED = 1


def turned(orientation: int) -> Image.Image:
    """An image that is to be shown turned."""
    image = picture(0, (4, 3))
    exif = Image.Exif()
    exif[0x0112] = orientation
    image.info["exif"] = exif.tobytes()
    return image


BOXES = tv_tensors.BoundingBoxes(torch.zeros(1, 4), format="XYXY", canvas_size=(8, 8))
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # torch means to take them away
    QUANTIZED = torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.quint8)
LEAVES: dict[str, tuple[Any, str]] = {
    "none": (None, "is None, which has no value to keep; leave it out, or put a number or text"),
    "object": (object(), "of type builtins.object, which cannot be stored; expected tensors"),
    "set": ({1}, "of type builtins.set, which cannot be stored"),
    "enum": (Colour.RED, r"Colour, which cannot be stored; expected .* numbers, str or bytes"),
    "complex": (1j, "of type builtins.complex, which cannot be stored"),
    "large": (2**63, "is a whole number beyond 64 bits; make it text or a float"),
    "small": (-(2**63) - 1, "is a whole number beyond 64 bits; make it text or a float"),
    "boxes": (BOXES, r"a BoundingBoxes, which holds more .* leaf.as_subclass\(torch.Tensor\)"),
    "sparse": (torch.eye(2).to_sparse(), "a sparse_coo tensor, which cannot be stored; make it"),
    "meta": (torch.zeros(2, device="meta"), "a tensor on the meta device"),
    "parameter": (torch.nn.Parameter(torch.zeros(2)), "Parameter, which cannot be stored"),
    "bits": (torch.zeros(2, dtype=torch.uint8).view(torch.uint4), "a tensor of uint4, which"),
    "quantized": (QUANTIZED, r"a quantized tensor, .* stored; store leaf.dequantize\(\)"),
    "structured": (np.zeros(2, [("a", "i4"), ("b", "f4")]), "store each of its fields by itself"),
    "unicode": (np.array(["a", "b"]), r"an array of dtype <U1, .* give a str, or a list of them"),
    "datetime": (np.array(["2020"], "M8[s]"), r"an array of dtype <M8.* array.astype\('int64'\)"),
    "objects": (np.array([None]), r"an array of dtype \|O, which cannot be stored; give a tuple"),
    "swapped": (np.zeros(2, ">i4"), r"an array of dtype >i4, .*newbyteorder\('='\)"),
    "masked": (np.ma.masked_array([1, 2]), r"a MaskedArray, .* make it an array: np.array"),
    "long": (np.longdouble(1), "longdouble, which cannot be stored"),
    "palette": (picture(0, (2, 2)).convert("P"), r"a PIL image of mode 'P', .* convert\('RGB'\)"),
    "bilevel": (Image.new("1", (2, 2)), r"a PIL image of mode '1', .* use convert\('L'\)"),
    "motorola": (Image.new("I;16B", (2, 2)), r"of mode 'I;16B', .* use convert\('I'\)"),
    "axes": (torch.zeros((1,) * 32), "has 32 axes; a store keeps up to 31: reshape it"),
}


@pytest.mark.parametrize("name", LEAVES)
def test_leaves_that_cannot_be_stored(name: str, tmp_path: Path) -> None:
    """Named with the place in the sample and what to do, before anything is written."""
    leaf, words = LEAVES[name]
    samples = [{"x": index, "y": (1.0, leaf)} for index in range(3)]
    with pytest.raises(SchemaError, match=rf"sample\['y'\]\[1\].*{words}"):
        stored(samples, tmp_path / "a.hotset")
    assert not (tmp_path / "a.hotset").exists()
    assert not (tmp_path / "a.hotset.partial").exists()


@pytest.mark.parametrize("odd", [1, 8, 299])
@pytest.mark.parametrize("name", LEAVES)
def test_leaves_that_cannot_be_stored_in_a_later_sample(
    name: str, odd: int, tmp_path: Path
) -> None:
    """Named with the index as well."""
    leaf, words = LEAVES[name]
    dataset = Made(lambda index: (index, leaf if index == odd else 1), 301)
    with pytest.raises(SchemaError, match=rf"sample\[1\] at index {odd} .*{words}|index 0 but"):
        hotset.build(dataset, tmp_path / "a.hotset", version="1", workers=0)


def test_leaves_that_cannot_be_stored_are_named_by_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in the main process."""
    monkeypatch.setattr("hotset.sources.sweep.WORKERS_PAY_SECONDS", -1.0)
    dataset = Made(lambda index: (index, None if index == 77 else 1), 301)
    with pytest.raises(SchemaError, match=r"sample\[1\] at index 77 is None, which has no value"):
        hotset.build(dataset, tmp_path / "a.hotset", version="1", workers=2)


@pytest.mark.parametrize(
    ("sample", "words"),
    [
        ({(1, 2): 3}, r"sample is a dict, which a store cannot describe; .*strings or whole num"),
        ({"a": {1.5: 3}}, r"sample\['a'\] is a dict, which a store cannot describe"),
        ({True: 3}, "is a dict, which a store cannot describe"),
        ({2**63: 3}, "whole numbers of 64 bits"),
        (defaultdict(int, a=1), "sample is a defaultdict, which a store cannot describe"),
        ([deque([1])], r"sample\[0\] is a deque, which a store cannot describe; expected tuples"),
        ((range(3),), r"sample\[0\] is a range, which a store cannot describe"),
        ((torch.Size([3]), 1), r"sample\[0\] is a Size, which a store cannot describe"),
        ((bytearray(b"ab"), 1), r"sample\[0\] is a bytearray, which a store cannot describe"),
    ],
)
def test_containers_that_cannot_be_stored(sample: Any, words: str, tmp_path: Path) -> None:
    """Named with their place, and with what can be stored instead."""
    with pytest.raises(SchemaError, match=words):
        stored([sample, sample], tmp_path / "a.hotset")


def test_samples_without_a_value_are_refused(tmp_path: Path) -> None:
    """There is nothing to store."""
    for empty in ((), {"a": []}):
        with pytest.raises(SchemaError, match="Given: samples hold no value"):
            stored([empty, empty], tmp_path / "a.hotset")


def test_containers_within_containers_have_an_end(tmp_path: Path) -> None:
    """What a manifest may not have is not written either."""
    sample: Any = 1
    for _ in range(DEPTH):
        sample = (sample,)
    assert_holds(stored([sample], tmp_path / "a.hotset"), [sample])
    with pytest.raises(SchemaError, match=f"within more than {DEPTH} containers; make it flatter"):
        stored([(sample,)], tmp_path / "b.hotset")


CHANGES: list[tuple[Any, Any]] = [
    (torch.zeros(2), np.zeros(2, np.float32)),
    (torch.zeros(2), torch.zeros(2, dtype=torch.float64)),
    (torch.zeros(2), torch.zeros(2, 1)),
    (torch.zeros(()), torch.zeros(1)),
    (torch.zeros(2, 2), tv_tensors.Mask(torch.zeros(2, 2))),
    (np.zeros(2), np.zeros(2, np.int64)),
    (np.zeros(2), np.zeros((2, 1))),
    (1, 1.0),
    (1, True),
    (1, np.int64(1)),
    (np.float32(1), np.float64(1)),
    ("a", b"a"),
    ("a", np.str_("a")),
    (picture(0, (2, 2)), torch.zeros(3, 2, 2, dtype=torch.uint8)),
    (picture(0, (2, 2), "I;16"), picture(0, (2, 2), "L")),
    (picture(0, (2, 2), "L"), picture(0, (2, 2), "F")),
]


@pytest.mark.parametrize("odd", [2, 299])
@pytest.mark.parametrize(("first", "other"), CHANGES)
def test_a_leaf_that_changes_its_kind_is_named(
    first: Any, other: Any, odd: int, tmp_path: Path
) -> None:
    """With both indices and both kinds, and what a store keeps."""
    dataset = Made(lambda index: {"x": other if index == odd else first}, 301)
    words = (
        rf"sample\['x'\] is an? .+ at index 0 but an? .+ at index {odd}; a store keeps one type, "
        r"one dtype and one number of axes per field$"
    )
    with pytest.raises(SchemaError, match=words):
        hotset.build(dataset, tmp_path / "a.hotset", version="1", workers=0)


def test_a_structure_that_changes_is_named(tmp_path: Path) -> None:
    """A key more, or a list for a tuple."""
    for number, odd in enumerate(({"a": 1, "b": 2}, {"a": (1,)}, [1])):
        dataset = Made(lambda index, odd=odd: odd if index == 7 else {"a": 1}, 20)
        with pytest.raises(SchemaError, match=r"index 7 has the leaves .*one structure"):
            hotset.build(dataset, tmp_path / f"{number}.hotset", version="1", workers=0)


@pytest.mark.parametrize("orientation", [2, 3, 4, 5, 6, 7, 8])
@pytest.mark.parametrize("odd", [0, 7])
def test_images_that_are_to_be_turned_are_stored_with_a_word(
    orientation: int, odd: int, tmp_path: Path
) -> None:
    """EXIF is not kept, so that nothing behind the store could turn them."""
    samples = [
        turned(orientation) if index == odd else picture(index, (4, 3)) for index in range(20)
    ]
    words = r"1 images of a.hotset say by EXIF .* PIL.ImageOps.exif_transpose into the dataset"
    with pytest.warns(OrientationWarning, match=words):
        store = stored(samples, tmp_path / "a.hotset")
    assert store.manifest.made["turned_by_exif"] == 1
    assert_holds(store, samples)


def test_images_from_files_that_are_to_be_turned_are_told_of(tmp_path: Path) -> None:
    """Also where the tag came from a file, and `convert` handed it on."""
    exif = Image.Exif()
    exif[0x0112] = 6
    for name in ("a.jpg", "a.png", "a.webp"):
        picture(0, (8, 6)).save(tmp_path / name, exif=exif)
        image = Image.open(tmp_path / name)
        for mode, one in (("as-it-is", image), ("grey", image.convert("L"))):
            with pytest.warns(OrientationWarning, match="1 images of"):
                stored([one], tmp_path / f"{name}-{mode}.hotset")


def test_images_that_pil_turns_itself_are_stored(tmp_path: Path) -> None:
    """As it does with TIFFs when it decodes them."""
    exif = Image.Exif()
    exif[0x0112] = 6
    image = picture(0, (8, 6))
    image.save(tmp_path / "a.tif", exif=exif)
    store = stored([Image.open(tmp_path / "a.tif")], tmp_path / "a.hotset")
    assert_holds(store, [image.transpose(Image.Transpose.ROTATE_270)])


def test_images_that_stand_upright_are_stored(tmp_path: Path) -> None:
    """Turned by the advised call, without the tag, with one that says nothing, or unreadable."""
    image = turned(6)
    upright = ImageOps.exif_transpose(image)
    image.info.pop("exif")
    broken = picture(3, (4, 3))
    broken.info["exif"] = b"Exif\x00\x00nonsense"
    bare = Image.frombytes("RGB", (4, 3), turned(6).tobytes())
    samples = [upright, bare, turned(1), turned(0), broken]
    assert_holds(stored(samples, tmp_path / "a.hotset"), samples)


def test_images_that_a_table_finishes_need_not_be_turned(tmp_path: Path) -> None:
    """The chain itself takes their pixels as they lie; nobody behind it sees an image."""

    class Images(Given):
        transform = v1.ToTensor()

        def __getitem__(self, index: int) -> Any:
            return self.transform(self.given[index])

    dataset = Images([turned(6) for _ in range(5)])
    store = hotset.build(dataset, tmp_path / "a.hotset", version="1", workers=0)
    assert store.fields[0].schema.kind == "image"
    assert_holds(store, [dataset[index] for index in range(5)])


def test_a_table_is_for_one_number_of_channels(tmp_path: Path) -> None:
    """An image of another is named, and no store is made that could not be read."""

    class Images(Given):
        transform = v1.ToTensor()

        def __getitem__(self, index: int) -> Any:
            return self.transform(self.given[index])

    images = [picture(index, (4, 3), "L" if index == 7 else "RGB") for index in range(20)]
    words = r"sample is a PIL image L 4x3 at index 7, others have 3 channels, .*convert\('RGB'\)"
    with pytest.raises(SchemaError, match=words):
        hotset.build(Images(images), tmp_path / "a.hotset", version="1", workers=0)


def test_refusals_are_of_one_kind(tmp_path: Path) -> None:
    """Whoever catches hotset's errors, or the builtin that they stand for, gets them all."""
    for leaf in (None, OrderedDict({(1, 2): 1}), 2**64):
        with pytest.raises(HotsetError, match=re.escape("sample")) as caught:
            stored([leaf, leaf], tmp_path / "a.hotset")
        assert isinstance(caught.value, ValueError)
