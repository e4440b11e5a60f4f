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
from hotset.sample.column import DenseColumn, LeafSchema, column_of
from hotset.sample.tree import flatten, strip
from hotset.sources.resident import Resident
from hotset.sources.source import ArraySource


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
        once = _on_tensors(pre_transform)
        columns = (
            column_of(images, "images"),
            DenseColumn(LeafSchema("int", (), torch.int64, int), labels),
        )
        source = ArraySource(
            Resident(columns, strip(flatten((0, 0))[1]), 0),
            transform=[*once, *_on_tensors(transform)],
            name=type(self).__name__,
            once=len(once),
        )
        super().__init__(source, device=device, dtype=dtype)


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
    """torchvision's `ToTensor` or `PILToTensor`, on a (C, H, W) tensor.

    The one takes (H, W, C) arrays; the other makes of a PIL image what the tensor is already.
    """

    def __init__(self, call: StepCall) -> None:
        self._call = call
        self.__name__ = type(call).__name__

    def __call__(self, image: Tensor) -> Any:
        if self.__name__ == "PILToTensor":
            return image
        return self._call(image.permute(1, 2, 0).contiguous().numpy())


def _on_tensors(transform: Any) -> list[StepCall]:
    """A chain in which every v1 `ToTensor` accepts tensors."""
    return [
        _ArrayStep(call) if _takes_arrays_only(call) else call for call in flatten_chain(transform)
    ]


def _takes_arrays_only(call: StepCall) -> bool:
    kind = type(call)
    home = kind.__module__
    return home.startswith("torchvision.transforms") and kind.__name__ in (
        "ToTensor",
        "PILToTensor",
    )
