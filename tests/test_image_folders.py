"""Real files of every kind: a store gives for each what torchvision's `ImageFolder` gives."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hotset
from hotset import cli
from hotset.chain.probe import same_sample
from hotset.errors import OrientationWarning, SampleError

for package in ("skimage", "torchvision"):
    pytest.importorskip(package, reason=f"{package} comes with the extra `demo`")

from PIL import Image, ImageFile, ImageOps, UnidentifiedImageError  # noqa: E402
from skimage import data  # noqa: E402
from torchvision.datasets import ImageFolder  # noqa: E402
from torchvision.transforms import Compose, RandomCrop, Resize, ToTensor  # noqa: E402

ROTATED = 6
"""EXIF: the camera was turned by 90 degrees."""


def photograph() -> Image.Image:
    """A photograph of 160 x 120 pixels."""
    return Image.fromarray(data.astronaut()).resize((160, 120))


def rotated_jpeg(path: Path) -> None:
    """A JPEG that its reader should turn, and `ImageFolder` does not."""
    exif = Image.Exif()
    exif[0x0112] = ROTATED
    photograph().save(path, exif=exif, quality=90)


def palette_png(path: Path) -> None:
    """64 colours, one of them transparent."""
    photograph().quantize(64).save(path, transparency=3)


def deep_png(path: Path) -> None:
    """16 bits of grey."""
    Image.fromarray(np.asarray(photograph().convert("L")).astype(np.uint16) * 257).save(path)


def alpha_png(path: Path) -> None:
    """Half transparent on its left side."""
    image = photograph().convert("RGBA")
    image.putalpha(Image.linear_gradient("L").resize(image.size))
    image.save(path)


MAKERS: dict[str, Callable[[Path], None]] = {
    "plain.jpg": lambda path: photograph().save(path, quality=75, subsampling=2),
    "grey.jpg": lambda path: photograph().convert("L").save(path),
    "cmyk.jpg": lambda path: photograph().convert("CMYK").save(path),
    "progressive.JPG": lambda path: photograph().save(path, progressive=True, quality=60),
    "palette.png": palette_png,
    "deep.png": deep_png,
    "bits.png": lambda path: photograph().convert("1").save(path),
    "alpha.png": alpha_png,
    "grey alpha.png": lambda path: photograph().convert("LA").save(path),
    "tall.png": lambda path: photograph().resize((31, 97)).save(path),
    "dot.png": lambda path: photograph().resize((1, 1)).save(path),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three classes of images, with a file beside them that is none."""
    root = tmp_path_factory.mktemp("photographs")
    for number, (name, make) in enumerate(MAKERS.items()):
        place = root / ("cats", "dogs", "Äpfel")[number % 3]
        place.mkdir(exist_ok=True)
        make(place / name)
    (root / "cats" / "notes.txt").write_text("no image")
    (root / "cats" / "deeper").mkdir()
    photograph().rotate(90).save(root / "cats" / "deeper" / "nested.jpg")
    return root


@pytest.fixture
def turned(tmp_path: Path) -> Path:
    """Images of which one bears EXIF that says how to turn it."""
    root = tmp_path / "turned"
    (root / "a").mkdir(parents=True)
    for number in range(6):
        photograph().rotate(number).save(root / "a" / f"{number}.jpg")
    rotated_jpeg(root / "a" / "2.jpg")
    return root


def cut(path: Path) -> None:
    """A JPEG whose second half is missing."""
    whole = io.BytesIO()
    photograph().save(whole, "JPEG", quality=95)
    path.write_bytes(whole.getvalue()[: len(whole.getvalue()) // 2])


def equal(store: hotset.Store, dataset: Any, indices: list[int]) -> bool:
    """Whether a store has certain samples of a dataset, and no others."""
    assert len(store) == len(indices)
    return all(same_sample(store[place], dataset[index]) for place, index in enumerate(indices))


@pytest.mark.parametrize("workers", [0, 2])
def test_every_kind_of_file_is_read_as_image_folder_reads_it(
    folder: Path, workers: int, tmp_path: Path
) -> None:
    """Pixels, mode, size, label and order."""
    dataset = ImageFolder(str(folder))
    store = hotset.build(dataset, tmp_path / "a.hotset", workers=workers)
    assert len(dataset) == len(MAKERS) + 1
    assert equal(store, dataset, list(range(len(dataset))))
    assert {image.mode for image, _ in store} == {"RGB"}
    assert [label for _, label in store] == dataset.targets
    for (image, _), (path, _) in zip(store, dataset.samples, strict=True):
        with Image.open(path) as file:
            assert image.tobytes() == file.convert("RGB").tobytes()


@pytest.mark.parametrize("size", [64, (48, 40), 200])
def test_resized_images_are_equal(folder: Path, size: Any, tmp_path: Path) -> None:
    """The shorter side, both sides, and made larger."""
    dataset = ImageFolder(str(folder), Resize(size))
    store = hotset.build(dataset, tmp_path / "a.hotset")
    assert store.manifest.made["once"] == ["Resize"]
    assert equal(store, dataset, list(range(len(dataset))))
    assert isinstance(size, tuple) or {min(image.size) for image, _ in store} == {size}


def test_bytes_are_kept_of_tensors(folder: Path, tmp_path: Path) -> None:
    """And give the same floats."""
    dataset = ImageFolder(str(folder), Compose([Resize((32, 32)), ToTensor()]))
    store = hotset.build(dataset, tmp_path / "a.hotset")
    assert store.manifest.made["by_table"] == ["ToTensor"]
    assert str(store.fields[0].dtype) == "torch.uint8"
    assert equal(store, dataset, list(range(len(dataset))))


def test_random_steps_are_left(folder: Path, tmp_path: Path) -> None:
    """What is stored is the image before them."""
    chain = Compose([Resize(40), RandomCrop(16, pad_if_needed=True), ToTensor()])
    store = hotset.build(ImageFolder(str(folder), chain), tmp_path / "a.hotset")
    assert store.manifest.made["left"] == ["RandomCrop", "ToTensor"]
    plain = ImageFolder(str(folder), Resize(40))
    assert equal(store, plain, list(range(len(plain))))


def test_a_turned_image_is_kept_as_it_lies_or_upright(turned: Path, tmp_path: Path) -> None:
    """As the transform says; where it does not, a warning tells that the store keeps no EXIF."""
    dataset = ImageFolder(str(turned))
    with pytest.warns(OrientationWarning, match="1 images of a.hotset say by EXIF"):
        store = hotset.build(dataset, tmp_path / "a.hotset", workers=0)
    assert equal(store, dataset, list(range(6)))
    assert store[2][0].size == (160, 120)
    upright = ImageFolder(str(turned), ImageOps.exif_transpose)
    store = hotset.build(upright, tmp_path / "upright.hotset")
    assert equal(store, upright, list(range(6)))
    assert store[2][0].size == (120, 160)
    floats = ImageFolder(str(turned), Compose([Resize((30, 40)), ToTensor()]))
    assert equal(hotset.build(floats, tmp_path / "floats.hotset"), floats, list(range(6)))


@pytest.mark.parametrize(("options", "size"), [([], None), (["--resize", "64"], 64)])
def test_the_command_gives_what_image_folder_gives(
    options: list[str], size: int | None, folder: Path, turned: Path, tmp_path: Path
) -> None:
    """Of every kind of file; what EXIF says is left alone, as torchvision leaves it."""
    for root in (folder, turned):
        path = tmp_path / f"{root.name}.hotset"
        assert cli.main(["build", "--image-folder", str(root), str(path), *options]) == 0
        dataset = ImageFolder(str(root), None if size is None else Resize(size))
        assert equal(hotset.open(path), dataset, list(range(len(dataset))))


@pytest.fixture
def partly_cut(tmp_path: Path) -> Path:
    """Nine images, of which the first, the fifth and the last are cut off."""
    root = tmp_path / "partly cut"
    (root / "a").mkdir(parents=True)
    for number in range(9):
        path = root / "a" / f"{number}.jpg"
        if number in (0, 4, 8):
            cut(path)
        else:
            photograph().rotate(10 * number).save(path)
    return root


def test_a_cut_file_is_named(partly_cut: Path, tmp_path: Path) -> None:
    """By index and path, wherever it stands; the plain loader raises as well."""
    dataset = ImageFolder(str(partly_cut))
    with pytest.raises(OSError, match="image file is truncated"):
        dataset[4]
    with pytest.raises(SampleError, match="ImageFolder failed at index 0: OSError: image file is"):
        hotset.build(dataset, tmp_path / "a.hotset")
    for number in (0, 8):
        photograph().save(partly_cut / "a" / f"{number}.jpg")
    dataset = ImageFolder(str(partly_cut), Resize(32))
    path = partly_cut / "a" / "4.jpg"
    with pytest.raises(
        SampleError, match=rf"at index 4: OSError: image file is truncated .*\({path}\)"
    ):
        hotset.build(dataset, tmp_path / "a.hotset")


@pytest.mark.parametrize("transform", [None, Resize(32), Compose([RandomCrop(99), ToTensor()])])
def test_cut_files_are_skipped(partly_cut: Path, transform: Any, tmp_path: Path) -> None:
    """Also where they are those that would be looked at first; each is noted, with its path."""
    dataset = ImageFolder(str(partly_cut), transform)
    store = hotset.build(dataset, tmp_path / "a.hotset", on_error="skip")
    plain = ImageFolder(str(partly_cut), transform if isinstance(transform, Resize) else None)
    assert equal(store, plain, [1, 2, 3, 5, 6, 7])
    skipped = store.manifest.made["skipped"]
    assert [index for index, _ in skipped] == [0, 4, 8]
    assert skipped[1][1].endswith(f"({partly_cut / 'a' / '4.jpg'})")


def test_cut_files_are_substituted(partly_cut: Path, tmp_path: Path) -> None:
    """By the next; behind the last comes the first that can be read."""
    dataset = ImageFolder(str(partly_cut), Resize(32))
    store = hotset.build(dataset, tmp_path / "a.hotset", on_error="substitute")
    assert equal(store, dataset, [1, 1, 2, 3, 5, 5, 6, 7, 1])
    assert store.manifest.made["substituted"] == [[0, 1], [4, 5], [8, 1]]


def test_cut_files_are_read_where_pil_is_told_to(
    partly_cut: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store made so is another than one made without."""
    dataset = ImageFolder(str(partly_cut))
    skipped = hotset.build(dataset, tmp_path / "a.hotset", on_error="skip")
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)
    with pytest.warns(hotset.errors.StaleStoreWarning, match="truncated ones too"):
        store = hotset.build(dataset, tmp_path / "a.hotset")
    assert store.path != skipped.path
    assert equal(store, dataset, list(range(9)))


def test_a_file_that_is_no_image_is_named(folder: Path, tmp_path: Path) -> None:
    """If it is called as one."""
    root = tmp_path / "photographs"
    (root / "a").mkdir(parents=True)
    for number in range(8):
        photograph().save(root / "a" / f"{number}.png")
    (root / "a" / "1.png").write_text("no image")
    dataset = ImageFolder(str(root))
    with pytest.raises(UnidentifiedImageError, match="cannot identify image file"):
        dataset[1]
    with pytest.raises(SampleError, match=r"index 1: UnidentifiedImageError: .*a/1\.png"):
        hotset.build(dataset, tmp_path / "a.hotset")
    store = hotset.build(dataset, tmp_path / "a.hotset", on_error="skip")
    assert equal(store, dataset, [0, *range(2, 8)])


def test_a_changed_file_is_noticed(partly_cut: Path, tmp_path: Path) -> None:
    """Another store is built; the first stays."""
    dataset = ImageFolder(str(partly_cut))
    first = hotset.build(dataset, tmp_path / "a.hotset", on_error="skip")
    photograph().save(partly_cut / "a" / "3.jpg", quality=5)
    with pytest.warns(hotset.errors.StaleStoreWarning, match="was made from other data"):
        second = hotset.build(dataset, tmp_path / "a.hotset", on_error="skip")
    assert not same_sample(first[2], second[2])
    assert equal(second, dataset, [1, 2, 3, 5, 6, 7])
