"""CIFAR-10 and -100, MNIST and Fashion-MNIST, read from their official files and kept on a device.

A sample is an image, (C, H, W) uint8 in 0 to 255, and a label, int; transforms act on the image.
They may be the ones written for torchvision's own classes: `ToTensor` is given the array it
expects.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from hotset.chain.step import StepCall, flatten_chain
from hotset.datasets.files import download_cifar10, read_cifar, read_mnist
from hotset.loader.cached import CachedDataset


class _Images(CachedDataset):
    """Images and labels from files.

    Attributes:
        classes: names of the classes, in order of their labels; empty where the files name none.
        targets: (N,) int64 labels.
    """

    def __init__(
        self,
        images: Tensor,
        labels: Tensor,
        classes: tuple[str, ...],
        *,
        pre_transform: Any,
        transform: Any,
        device: str | torch.device | None,
        dtype: torch.dtype | None,
    ) -> None:
        self.classes, self.targets = classes, labels
        super().__init__(
            (images, labels.numpy()),
            pre_transform=_on_tensors(pre_transform),
            transform=_on_tensors(transform),
            device=device,
            dtype=dtype,
        )


class CIFAR10(_Images):
    """CIFAR-10: 50,000 training and 10,000 test images of 3x32x32, 10 classes.

    Reads the official pickle layout (without unpickling arbitrary objects) and the binary one.

    Args:
        root: folder that holds `cifar-10-batches-py` or `cifar-10-batches-bin`, or either itself.
        train: training or test images.
        pre_transform: callable, or list of callables, on (3, 32, 32) uint8 images; run once.
        transform: callable, or list of callables, on the result; run for every sample.
        device: where the images are kept; None is torch's default device.
        dtype: floating dtype that images come out as.
        download: whether to fetch the files into `root` if they are not there.

    Raises:
        MissingDataError: if the files are not there.
        FormatError: if a file is damaged.
        DownloadError: if a download fails.

    Source: Krizhevsky: Learning Multiple Layers of Features from Tiny Images, 2009.
    """

    def __init__(
        self,
        root: str | Path,
        *,
        train: bool = True,
        pre_transform: Any = None,
        transform: Any = None,
        device: str | torch.device | None = None,
        dtype: torch.dtype | None = None,
        download: bool = False,
    ) -> None:
        if download:
            download_cifar10(root)
        super().__init__(
            *read_cifar(root, "cifar10", train=train),
            pre_transform=pre_transform,
            transform=transform,
            device=device,
            dtype=dtype,
        )


class CIFAR100(_Images):
    """CIFAR-100: 50,000 training and 10,000 test images of 3x32x32, 100 classes in 20 groups.

    Args:
        root: folder that holds `cifar-100-python` or `cifar-100-binary`, or either itself.
        train: training or test images.
        coarse: the 20 groups as labels, not the 100 classes.
        pre_transform: as for `CIFAR10`.
        transform: as for `CIFAR10`.
        device: as for `CIFAR10`.
        dtype: as for `CIFAR10`.

    Raises:
        MissingDataError: if the files are not there.
        FormatError: if a file is damaged.
    """

    def __init__(
        self,
        root: str | Path,
        *,
        train: bool = True,
        coarse: bool = False,
        pre_transform: Any = None,
        transform: Any = None,
        device: str | torch.device | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(
            *read_cifar(root, "cifar100", train=train, coarse=coarse),
            pre_transform=pre_transform,
            transform=transform,
            device=device,
            dtype=dtype,
        )


class MNIST(_Images):
    """MNIST: 60,000 training and 10,000 test images of 1x28x28, 10 digits.

    Args:
        root: folder that holds the four IDX files, plain or gzipped, or torchvision's folder
            `MNIST/raw`.
        train: training or test images.
        pre_transform: as for `CIFAR10`, on (1, 28, 28) uint8 images.
        transform: as for `CIFAR10`.
        device: as for `CIFAR10`.
        dtype: as for `CIFAR10`.

    Raises:
        MissingDataError: if the files are not there.
        FormatError: if a file is damaged.

    Source: LeCun, Cortes, Burges: The MNIST database of handwritten digits.
    """

    _files: Literal["mnist", "fashion-mnist"] = "mnist"

    def __init__(
        self,
        root: str | Path,
        *,
        train: bool = True,
        pre_transform: Any = None,
        transform: Any = None,
        device: str | torch.device | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        images, labels = read_mnist(root, self._files, train=train)
        super().__init__(
            images,
            labels,
            (),
            pre_transform=pre_transform,
            transform=transform,
            device=device,
            dtype=dtype,
        )


class FashionMNIST(MNIST):
    """Fashion-MNIST: MNIST's layout with ten kinds of clothing.

    Takes what `MNIST` takes; torchvision's folder is `FashionMNIST/raw`.

    Source: Xiao, Rasul, Vollgraf: Fashion-MNIST (arXiv 1708.07747).
    """

    _files = "fashion-mnist"


class _ArrayStep:
    """torchvision's v1 `ToTensor`, which takes (H, W, C) arrays, on a (C, H, W) tensor."""

    def __init__(self, to_tensor: StepCall) -> None:
        self._to_tensor = to_tensor
        self.__name__ = "ToTensor"

    def __call__(self, image: Tensor) -> Any:
        return self._to_tensor(image.permute(1, 2, 0).contiguous().numpy())


def _on_tensors(transform: Any) -> list[StepCall]:
    """A chain in which every v1 `ToTensor` accepts tensors."""
    return [
        _ArrayStep(call) if _is_v1_to_tensor(call) else call for call in flatten_chain(transform)
    ]


def _is_v1_to_tensor(call: StepCall) -> bool:
    kind = type(call)
    return (kind.__module__, kind.__name__) == ("torchvision.transforms.transforms", "ToTensor")
