"""What is measured on: synthetic images of CIFAR-10's shape, and data sets as people write them.

The bytes are random. Nothing that is timed depends on what an image shows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset
from torchvision import transforms

SIZE = 32
CLASSES = 10
PADDING = 4
MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)

Transform = Callable[[Any], Any]


class ImageDataset(Dataset[tuple[Any, int]]):
    """Images in memory, each made a PIL image when asked for, as torchvision's CIFAR10 does.

    Attributes:
        data: (N, 32, 32, 3) uint8, 0-255.
        targets: N labels.
        transform: called on the PIL image.
    """

    def __init__(
        self, data: NDArray[np.uint8], targets: list[int], transform: Transform | None = None
    ) -> None:
        self.data, self.targets, self.transform = data, targets, transform

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        image: Any = Image.fromarray(self.data[index])
        if self.transform is not None:
            image = self.transform(image)
        return image, self.targets[index]

    @property
    def nbytes(self) -> int:
        """Bytes of the images and of labels of 8 bytes each."""
        return self.data.nbytes + 8 * len(self.targets)

    def with_transform(self, transform: Transform) -> ImageDataset:
        """The same images behind another transform."""
        return ImageDataset(self.data, self.targets, transform)


class FloatDataset(Dataset[tuple[Tensor, int]]):
    """The deterministic part run once, as it is done by hand: a tensor for each image, kept.

    Attributes:
        data: (N, 3, 32, 32) float32, normalised.
        targets: N labels.
        transform: called on the tensor.
    """

    def __init__(self, data: Tensor, targets: list[int], transform: Transform) -> None:
        self.data, self.targets, self.transform = data, targets, transform

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.transform(self.data[index]), self.targets[index]

    @property
    def nbytes(self) -> int:
        """Bytes of the tensors and of labels of 8 bytes each."""
        return self.data.nbytes + 8 * len(self.targets)


def synthetic(samples: int, *, seed: int = 0) -> ImageDataset:
    """Random images and labels of CIFAR-10's shape, the same for the same seed."""
    generator = np.random.default_rng(seed)
    data = generator.integers(0, 256, (samples, SIZE, SIZE, 3), dtype=np.uint8)
    return ImageDataset(data, generator.integers(0, CLASSES, samples).tolist())


def run_once(images: ImageDataset, transform: Transform) -> Tensor:
    """(N, 3, 32, 32) float32: a deterministic transform run on every image."""
    done = images.with_transform(transform)
    data = torch.empty(len(images), 3, SIZE, SIZE)
    for index in range(len(images)):
        data[index] = done[index][0]
    return data


def augmenting() -> list[Transform]:
    """The random steps: crop with padding, horizontal flip."""
    return [transforms.RandomCrop(SIZE, padding=PADDING), transforms.RandomHorizontalFlip()]


def normalising() -> list[Transform]:
    """The deterministic steps, from a PIL image to a normalised float32 tensor."""
    return [transforms.ToTensor(), transforms.Normalize(MEAN, STD)]


def normalising_bytes() -> list[Transform]:
    """The deterministic steps, from a uint8 tensor to a normalised float32 tensor."""
    return [transforms.ConvertImageDtype(torch.float32), transforms.Normalize(MEAN, STD)]


def composed(*steps: Transform) -> Transform:
    """The steps as torchvision's `Compose`."""
    return transforms.Compose(list(steps))  # type: ignore[no-any-return]
