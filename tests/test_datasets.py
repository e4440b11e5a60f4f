"""CIFAR and MNIST equal torchvision's own classes, with the same transforms, over tiny files."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torchvision
from torch import Tensor
from torch.utils.data import DataLoader
from torchvision import transforms as v1
from torchvision.transforms import v2

import hotset
from hotset.errors import ConfigError, FormatError, MissingDataError
from tests.streams import MEAN, STD, assert_same, stream
from tests.test_dataset_files import (
    COARSE_NAMES,
    FINE_NAMES,
    python2_pickle,
    random_batch,
    write_cifar10_binary,
    write_cifar10_python,
)


@pytest.fixture
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """torchvision's classes read the tiny files, whose checksums are not the official ones."""
    always = lambda *args, **options: True  # noqa: E731
    monkeypatch.setattr("torchvision.datasets.cifar.check_integrity", always)


def write_cifar100(root: Path) -> None:
    """Writes CIFAR-100's pickle layout, four images each."""
    folder = root / "cifar-100-python"
    folder.mkdir()
    for seed, name in enumerate(("train", "test")):
        pixels, fine = random_batch(seed, 100)
        groups = [label // 5 for label in fine]
        entry = {"fine_labels": fine, "coarse_labels": groups, "data": pixels, "filenames": ["x"]}
        (folder / name).write_bytes(python2_pickle(entry))
    meta = {"fine_label_names": FINE_NAMES, "coarse_label_names": COARSE_NAMES}
    (folder / "meta").write_bytes(python2_pickle(meta))


def write_mnist(root: Path, kind: str = "MNIST") -> None:
    """Writes MNIST's IDX files where torchvision looks for them, six images each."""
    folder = root / kind / "raw"
    folder.mkdir(parents=True)
    for seed, name in enumerate(("train", "t10k")):
        rng = np.random.default_rng(seed)
        images = rng.integers(0, 256, (6, 28, 28), dtype=np.uint8)
        labels = rng.integers(0, 10, 6, dtype=np.uint8)
        header = struct.pack(">IIII", 0x803, 6, 28, 28)
        (folder / f"{name}-images-idx3-ubyte").write_bytes(header + images.tobytes())
        header = struct.pack(">II", 0x801, 6)
        (folder / f"{name}-labels-idx1-ubyte").write_bytes(header + labels.tobytes())


def write_all(root: Path, name: str) -> None:
    """Writes the files of one data set."""
    if name == "CIFAR10":
        write_cifar10_python(root)
    elif name == "CIFAR100":
        write_cifar100(root)
    else:
        write_mnist(root, name)


NAMES = ("CIFAR10", "CIFAR100", "MNIST", "FashionMNIST")


def chains(name: str) -> list[Any]:
    """Deterministic transforms as people write them for torchvision's classes."""
    channels = 3 if "CIFAR" in name else 1
    mean, std = MEAN[:channels], STD[:channels]
    return [
        v1.ToTensor(),
        v1.Compose([v1.ToTensor(), v1.Normalize(mean, std)]),
        v1.Compose([v1.CenterCrop(20), v1.ToTensor(), v1.Lambda(lambda x: x * 2 - 1)]),
        v1.Compose([v1.Pad(4, padding_mode="reflect"), v1.ToTensor()]),
        v1.PILToTensor(),
        v1.Compose([v1.PILToTensor(), v1.ConvertImageDtype(torch.float32)]),
        v2.Compose([v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.Normalize(mean, std)]),
        v2.PILToTensor(),
    ]


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize("number", range(8))
@pytest.mark.parametrize("name", NAMES)
def test_equal_to_torchvisions_own_class(
    name: str, number: int, train: bool, tmp_path: Path
) -> None:
    """Samples and batches, from the same files with the same transform."""
    write_all(tmp_path, name)
    chain = chains(name)[number]
    theirs = getattr(torchvision.datasets, name)(str(tmp_path), train=train, transform=chain)
    ours = getattr(hotset.datasets, name)(tmp_path, train=train, transform=chain, device="cpu")
    assert len(ours) == len(theirs)
    for index in range(len(theirs)):
        image, label = ours[index]
        wanted, wanted_label = theirs[index]
        assert_same(image.as_subclass(Tensor), wanted.as_subclass(Tensor))
        assert type(label) is int
        assert label == wanted_label
    options: dict[str, Any] = {"batch_size": 3, "shuffle": True}
    wanted, state = stream(DataLoader(theirs, **options), epochs=2, seed=0)
    for loader in (
        DataLoader(ours, **options),
        hotset.accelerate(DataLoader(ours, **options), device="cpu", check_every=1),
        hotset.accelerate(DataLoader(theirs, **options), device="cpu", check_every=1),
    ):
        found, found_state = stream(loader, epochs=2, seed=0)
        assert_same(found, wanted)
        assert torch.equal(found_state, state)


@pytest.mark.filterwarnings("ignore:The transform `ToTensor... is deprecated")
def test_the_deprecated_to_tensor_of_v2(tmp_path: Path) -> None:
    """It would leave a tensor as it is; here it scales, as it does with an image."""
    write_cifar10_python(tmp_path)
    old, new = (
        hotset.datasets.CIFAR10(tmp_path, transform=t, device="cpu")
        for t in (v2.ToTensor(), v1.ToTensor())
    )
    assert_same(old[3], new[3])


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("name", NAMES)
def test_targets_and_classes(name: str, tmp_path: Path) -> None:
    """Labels as a tensor, and the names of the classes where the files have them."""
    write_all(tmp_path, name)
    theirs = getattr(torchvision.datasets, name)(str(tmp_path))
    ours = getattr(hotset.datasets, name)(tmp_path, device="cpu")
    assert ours.targets.dtype == torch.int64
    assert ours.targets.tolist() == [int(label) for label in theirs.targets]
    assert list(ours.classes) == (theirs.classes if "CIFAR" in name else [])
    assert ours.plan.decisions[0].step == name
    channels = 3 if "CIFAR" in name else 1
    assert ours[0][0].shape[0] == channels
    assert ours[0][0].dtype == torch.uint8
    assert ours.plan.bytes_held == len(ours) * (ours[0][0].numel() + 8)


def test_cifar100_in_its_groups(tmp_path: Path) -> None:
    """`coarse=True` takes the 20 groups as labels."""
    write_cifar100(tmp_path)
    fine = hotset.datasets.CIFAR100(tmp_path, device="cpu")
    coarse = hotset.datasets.CIFAR100(tmp_path, coarse=True, device="cpu")
    assert (fine.targets // 5).tolist() == coarse.targets.tolist()
    assert coarse.classes == tuple(COARSE_NAMES)
    assert fine.classes == tuple(FINE_NAMES)


def test_binary_and_pickle_layouts_agree(tmp_path: Path) -> None:
    """Either layout gives the same data set."""
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    write_cifar10_python(tmp_path / "a")
    write_cifar10_binary(tmp_path / "b")
    first, second = (
        hotset.datasets.CIFAR10(tmp_path / part, transform=v1.ToTensor(), device="cpu")
        for part in ("a", "b")
    )
    assert_same(list(DataLoader(first, 7)), list(DataLoader(second, 7)))


@pytest.mark.parametrize("name", NAMES)
def test_random_transforms_and_dtype(name: str, tmp_path: Path) -> None:
    """Crop and flip in batches, the tail as a table, in half precision."""
    write_all(tmp_path, name)
    chain = v1.Compose([v1.RandomCrop(28, padding=4), v1.RandomHorizontalFlip(), v1.ToTensor()])
    ours = getattr(hotset.datasets, name)(
        tmp_path, transform=chain, device="cpu", dtype=torch.float16
    )
    assert [d.action for d in ours.plan.decisions] == ["once", "batch", "batch", "table"]
    loader = hotset.Loader(ours, 3, shuffle=True, seed=0, device="cpu", check_every=1)
    for images, labels in loader:
        assert images.dtype == torch.float16
        assert images.shape[2:] == (28, 28)
        assert labels.dtype == torch.int64


def test_pre_transform_runs_once(tmp_path: Path) -> None:
    """A resize before the cut, kept as bytes; and a random one is refused."""
    write_mnist(tmp_path)
    ours = hotset.datasets.MNIST(
        tmp_path, pre_transform=v1.CenterCrop(14), transform=v1.ToTensor(), device="cpu"
    )
    assert [d.action for d in ours.plan.decisions] == ["once", "once", "table"]
    assert ours.plan.bytes_held == 6 * (14 * 14 + 8)
    with pytest.raises(ConfigError, match="`pre_transform` runs once, but RandomCrop is random"):
        hotset.datasets.MNIST(tmp_path, pre_transform=v1.RandomCrop(14), device="cpu")


@pytest.mark.parametrize("name", NAMES)
def test_missing_files_are_named(name: str, tmp_path: Path) -> None:
    """What was looked for, and where."""
    with pytest.raises(MissingDataError, match=str(tmp_path)):
        getattr(hotset.datasets, name)(tmp_path, device="cpu")


def test_damaged_files_are_named(tmp_path: Path) -> None:
    """A file cut short."""
    write_mnist(tmp_path)
    path = tmp_path / "MNIST" / "raw" / "train-images-idx3-ubyte"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(FormatError, match="train-images-idx3-ubyte"):
        hotset.datasets.MNIST(tmp_path, device="cpu")
