"""The data of the demo, and the two ways to it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader

import hotset
from hotset.datasets.files import download_cifar10
from hotset.demo.data import ArrayDataset, Arrays, mnist_5k, photograph_patches, real_cifar10
from hotset.demo.settings import Settings
from hotset.errors import ConfigError, DownloadError, MissingDataError, MissingExtraError
from hotset.progress import Progress

if TYPE_CHECKING:
    from numpy.typing import NDArray

PADDING = 4
PHOTOGRAPHS_TRAIN, PHOTOGRAPHS_TEST = 50_000, 10_000
PREFETCHED_PER_WORKER = 2
"""Batches that each worker of a `DataLoader` makes ahead: its default `prefetch_factor`."""
DEFAULT_EPOCHS = {"cifar10": 2, "photographs": 2, "mnist": 10}


@dataclass(frozen=True, eq=False)
class Material:
    """What the demo trains on.

    Attributes:
        name: "cifar10", "photographs" or "mnist".
        arrays: training and test set.
        note: why it is not what one might expect; "" if it is.
    """

    name: str
    arrays: Arrays
    note: str = ""


def load_material(settings: Settings, progress: Progress) -> Material:
    """The data that the settings ask for; the photographs where CIFAR-10 is not to be had.

    Raises:
        ConfigError: if more samples are asked for than there are.
        MissingDataError: if CIFAR-10 was asked for by name and is not there.
        DownloadError: if it was asked for by name and cannot be fetched.
        MissingExtraError: if a package that carries data is not installed.
        FormatError: if a file is damaged.
    """
    if settings.data == "mnist":
        return _cut(Material("mnist", mnist_5k()), settings.samples)
    note = ""
    if settings.data != "photographs":
        try:
            return _cut(Material("cifar10", _cifar10(settings, progress)), settings.samples)
        except (MissingDataError, DownloadError) as error:
            if settings.data == "cifar10":
                raise
            note = _instead(settings, error)
    train = settings.samples or PHOTOGRAPHS_TRAIN
    arrays = photograph_patches(train=train, test=_test_size(train, PHOTOGRAPHS_TEST))
    return Material("photographs", arrays, note)


def _cifar10(settings: Settings, progress: Progress) -> Arrays:
    try:
        return real_cifar10(settings.root)
    except MissingDataError as error:
        if not settings.is_download_allowed:
            hint = "--root names another folder, --download fetches it"
            raise MissingDataError(f"{error}; {hint}") from error
    download_cifar10(
        settings.root,
        progress=lambda done, total: progress.update("downloading CIFAR-10", done, total or 0),
    )
    progress.clear()
    return real_cifar10(settings.root)


def _instead(settings: Settings, error: Exception) -> str:
    if isinstance(error, DownloadError):
        return f"CIFAR-10 could not be fetched, so photographs stand in: {error}"
    return (
        f"No CIFAR-10 in the folder '{settings.root}' (--root names another, --download fetches "
        "it), so photographs stand in."
    )


def _test_size(train: int, most: int) -> int:
    return max(1, min(most, train // 5))


def _cut(material: Material, samples: int | None) -> Material:
    """The first `samples` of the training set, and a test set that suits it."""
    arrays = material.arrays
    if samples is None:
        return material
    if samples > len(arrays.train_labels):
        raise ConfigError(
            f"`--samples` must be at most {len(arrays.train_labels):,} with this data, "
            f"got {samples:,}"
        )
    test = _test_size(samples, len(arrays.test_labels))
    cut = replace(
        arrays,
        train_images=arrays.train_images[:samples],
        train_labels=arrays.train_labels[:samples],
        test_images=arrays.test_images[:test],
        test_labels=arrays.test_labels[:test],
        description=f"{arrays.description}, the first {samples:,} of them",
    )
    return replace(material, arrays=cut)


@dataclass(frozen=True, eq=False)
class Pipelines:
    """The plain loader, and hotset's of the same.

    Attributes:
        arrays: the data.
        settings: batch size and workers.
        device: where training runs.
    """

    arrays: Arrays
    settings: Settings
    device: torch.device

    def plain(self, samples: int | None = None) -> DataLoader[Any]:
        """A `DataLoader` as one would write it, over the first `samples`, or over all."""
        images, labels = self.arrays.train_images[:samples], self.arrays.train_labels[:samples]
        return DataLoader(
            ArrayDataset(images, labels, self._transform(is_training=True)),
            batch_size=self.settings.batch_size,
            shuffle=True,
            num_workers=self.settings.workers,
            persistent_workers=self.settings.workers > 0,
            pin_memory=self.device.type == "cuda",
        )

    def accelerated(self, progress: Any = None, samples: int | None = None) -> hotset.Loader:
        """What `hotset.accelerate` makes of the plain loader."""
        return hotset.accelerate(self.plain(samples), device=self.device, progress=progress)

    def test_set(self) -> tuple[Tensor, Tensor]:
        """Images (M, C, H, W) float32 by the chain's deterministic part, and labels (M,) int64.

        They are made once, so that both pipelines are judged by the very same values.
        """
        dataset = ArrayDataset(
            self.arrays.test_images, self.arrays.test_labels, self._transform(is_training=False)
        )
        images = torch.stack([dataset[index][0] for index in range(len(dataset))])
        labels = torch.from_numpy(self.arrays.test_labels)
        return images.to(self.device), labels.to(self.device)

    @cached_property
    def _statistics(self) -> tuple[list[float], list[float]]:
        return channel_statistics(self.arrays.train_images)

    def _transform(self, *, is_training: bool) -> Any:
        transforms = require_torchvision()
        images = self.arrays.train_images
        means, deviations = self._statistics
        random = [transforms.RandomCrop(images.shape[1], padding=PADDING)]
        if images.ndim == 4:  # a mirrored digit is no digit
            random.append(transforms.RandomHorizontalFlip())
        fixed = [transforms.ToTensor(), transforms.Normalize(means, deviations)]
        return transforms.Compose([*random, *fixed] if is_training else fixed)

    @property
    def dataset_bytes(self) -> int:
        """Bytes of the training set's arrays, which both pipelines read."""
        return int(self.arrays.train_images.nbytes + self.arrays.train_labels.nbytes)

    @property
    def ahead_bytes(self) -> int:
        """Bytes of the batches that the plain loader's workers make ahead, at most."""
        floats = self.arrays.train_images[0].size * np.dtype(np.float32).itemsize
        batch = min(self.settings.batch_size, len(self.arrays.train_labels))
        return int(max(1, self.settings.workers * PREFETCHED_PER_WORKER) * batch * floats)


def channel_statistics(images: NDArray[np.uint8]) -> tuple[list[float], list[float]]:
    """The mean and the standard deviation of each channel, of values from 0 to 1, to 4 digits.

    Args:
        images: (N, H, W, 3) or (N, H, W) uint8.

    Example:
        >>> channel_statistics(np.array([[[0, 255]]], np.uint8))
        ([0.5], [0.5])
    """
    channels = images.reshape(-1, images.shape[3] if images.ndim == 4 else 1)
    values = np.arange(256) / 255
    means, deviations = [], []
    for channel in range(channels.shape[1]):
        # From a histogram: the pixels as floats would take eight times their memory.
        weights = np.bincount(channels[:, channel], minlength=256) / len(channels)
        mean = float(weights @ values)
        deviation = float(weights @ (values - mean) ** 2) ** 0.5
        means.append(round(mean, 4))
        deviations.append(max(round(deviation, 4), 1e-4))
    return means, deviations


def require_torchvision() -> Any:
    """`torchvision.transforms`.

    Raises:
        MissingExtraError: if torchvision is not installed.
    """
    try:
        from torchvision import transforms
    except ImportError as error:
        raise MissingExtraError("the demo needs torchvision: pip install 'hotset[demo]'") from error
    return transforms
