"""Datasets, chains and samplers that loaders are compared over, and what it means to be the same.

Everything here stands at module level, so that worker processes can be given it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import (
    BatchSampler,
    ConcatDataset,
    DataLoader,
    Dataset,
    DistributedSampler,
    RandomSampler,
    Sampler,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
    random_split,
)
from torchvision import transforms as v1
from torchvision.datasets import VisionDataset
from torchvision.transforms import v2

import hotset


def assert_same(found: Any, wanted: Any, where: str = "batch") -> None:
    """Fails unless two batches agree in containers, types, shapes, dtypes and every bit."""
    assert type(found) is type(wanted), f"{where}: {type(found)} instead of {type(wanted)}"
    if isinstance(wanted, Tensor):
        assert found.shape == wanted.shape, f"{where}: {found.shape} instead of {wanted.shape}"
        assert found.dtype == wanted.dtype, f"{where}: {found.dtype} instead of {wanted.dtype}"
        assert torch.equal(_bits(found), _bits(wanted)), f"{where}: other values"
    elif isinstance(wanted, dict):
        assert list(found) == list(wanted), f"{where}: keys {list(found)}"
        for key in wanted:
            assert_same(found[key], wanted[key], f"{where}[{key!r}]")
    elif isinstance(wanted, (list, tuple)):
        assert len(found) == len(wanted), f"{where}: {len(found)} instead of {len(wanted)} items"
        for place, (a, b) in enumerate(zip(found, wanted, strict=True)):
            assert_same(a, b, f"{where}[{place}]")
    elif isinstance(wanted, np.ndarray):
        assert found.dtype == wanted.dtype, f"{where}: {found.dtype} instead of {wanted.dtype}"
        np.testing.assert_array_equal(found, wanted)
    else:
        assert found == wanted, f"{where}: {found!r} instead of {wanted!r}"


def _bits(tensor: Tensor) -> Tensor:
    # A clone: one element's stride may be anything, and `view` minds.
    plain = tensor.as_subclass(Tensor).flatten()
    return plain.clone(memory_format=torch.contiguous_format).view(torch.uint8)


def snapshot(batch: Any) -> Any:
    """A copy of a batch that shares no memory with it."""
    if isinstance(batch, Tensor):
        return batch.clone()
    if isinstance(batch, dict):
        return {key: snapshot(value) for key, value in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*map(snapshot, batch))
    return type(batch)(map(snapshot, batch)) if isinstance(batch, (list, tuple)) else batch


def stream(
    loader: Iterable[Any], *, epochs: int = 1, seed: int | None = None, samplers: Sequence[Any] = ()
) -> tuple[list[list[Any]], Tensor]:
    """The batches of some epochs, and torch's generator behind them.

    Args:
        loader: what is run.
        epochs: how often.
        seed: for torch's generator at the start; None leaves it.
        samplers: told the number of each epoch.
    """
    if seed is not None:
        torch.manual_seed(seed)
    batches = []
    for epoch in range(epochs):
        for sampler in samplers:
            sampler.set_epoch(epoch)
        batches.append(list(loader))
    return batches, torch.get_rng_state()


def pixels(index: int, size: tuple[int, int] = (8, 8), channels: int = 3) -> np.ndarray:
    """(H, W, C) uint8 of no structure, another one for each index."""
    rng = np.random.default_rng(index)
    return rng.integers(0, 256, (*size, channels), dtype=np.uint8)


def picture(index: int, size: tuple[int, int] = (8, 8), mode: str = "RGB") -> Image.Image:
    """The same as a PIL image."""
    if mode == "L":
        return Image.fromarray(pixels(index, size, 1)[..., 0])
    return Image.fromarray(pixels(index, size))


class Pictures(Dataset[Any]):
    """PIL images behind the `transform` convention, with whatever else a sample holds."""

    def __init__(
        self,
        length: int,
        transform: Any = None,
        form: str = "pair",
        mode: str = "RGB",
        size: tuple[int, int] = (8, 8),
    ) -> None:
        self.length, self.transform, self.form, self.mode = length, transform, form, mode
        self.size = size

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        if index >= self.length:
            raise IndexError(index)
        index = int(index) % self.length
        image: Any = picture(index, self.size, self.mode)
        if self.transform is not None:
            image = self.transform(image)
        return FORMS[self.form](image, index)


class Named(NamedTuple):
    """A sample as a named tuple."""

    image: Any
    label: int


FORMS: dict[str, Callable[[Any, int], Any]] = {
    "pair": lambda image, i: (image, i),
    "single": lambda image, i: image,
    "list": lambda image, i: [image, float(i) / 3],
    "named": lambda image, i: Named(image, i),
    "dict": lambda image, i: {"id": f"n{i}", "image": image, "label": i},
    "ordered": lambda image, i: OrderedDict(image=image, is_odd=bool(i % 2)),
    "nested": lambda image, i: {
        "inputs": (image, {"weight": np.float32(i / 7)}),
        "target": Named([i, np.arange(3) + i], -i),
        "key": f"k{i}".encode(),
    },
    "label first": lambda image, i: (np.int64(i), image, torch.tensor([i, 0.5])),
    "scalars": lambda image, i: (
        image,
        np.int16(i),
        np.uint8(i),
        np.float16(i / 3),
        np.float64(i / 3),
        np.bool_(i % 2),
        i % 3 == 0,
        float("nan") if i % 2 else 1.5,
    ),
}


class Folder(VisionDataset):
    """As torchvision's own data sets: `transform` and `target_transform`, through `transforms`."""

    def __init__(self, length: int, transform: Any = None, target_transform: Any = None) -> None:
        super().__init__("nowhere", transform=transform, target_transform=target_transform)
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        index = int(index) % self.length
        image: Any = picture(index)
        target: Any = index % 5
        if self.transforms is not None:
            image, target = self.transforms(image, target)
        return image, target


class OwnCode(Dataset[Any]):
    """Everything inside `__getitem__`."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        index = int(index) % self.length
        return torch.from_numpy(pixels(index)).permute(2, 0, 1) / 255, index


def one_hot(target: int) -> Tensor:
    """(5,) int64."""
    return torch.nn.functional.one_hot(torch.tensor(target), 5)


def twice_less_one(values: Tensor) -> Tensor:
    """To -1 … 1."""
    return values * 2 - 1


def mirrored(image: Image.Image) -> Image.Image:
    """Left and right exchanged."""
    return image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)


@hotset.deterministic
def less_mean(values: Tensor) -> Tensor:
    """Less the image's own mean: not elementwise."""
    return values - values.mean()


@hotset.deterministic
class Scale:
    """Times a factor."""

    def __init__(self, factor: float) -> None:
        self.factor = factor

    def __call__(self, values: Tensor) -> Tensor:
        """values: any shape."""
        return values * self.factor


MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)

PICTURE_STEPS: tuple[Any, ...] = (
    v1.CenterCrop(6),
    v1.CenterCrop(9),
    v1.Pad(2, padding_mode="reflect"),
    v1.Resize((5, 7)),
    v1.Grayscale(3),
    v2.CenterCrop((6, 4)),
    v2.Pad([1, 2], fill=7),
    v2.Resize((6, 6)),
    v1.Lambda(mirrored),
    mirrored,
)
TO_TENSOR: tuple[tuple[Any, ...], ...] = (
    (v1.ToTensor(),),
    (v1.PILToTensor(),),
    (v1.PILToTensor(), v1.ConvertImageDtype(torch.float32)),
    (v2.ToImage(), v2.ToDtype(torch.float32, scale=True)),
    (v2.PILToTensor(), v2.ToDtype(torch.float16, scale=True)),
    (v2.Compose([v2.ToImage()]), v2.ToDtype(torch.float32, scale=True), v2.ToPureTensor()),
)
TENSOR_STEPS: tuple[Any, ...] = (
    v1.Normalize(MEAN, STD),
    v2.Normalize(MEAN, STD),
    v1.Lambda(twice_less_one),
    Scale(3.0),
    less_mean,
    v1.CenterCrop(4),
    v2.Pad(1, fill=0),
    twice_less_one,
)


class EagerBatches(Sampler[list[int]]):
    """A batch sampler that draws as soon as it is asked for an iterator."""

    def __init__(self, length: int, batch_size: int) -> None:
        self.length, self.batch_size = length, batch_size

    def __len__(self) -> int:
        return -(-self.length // self.batch_size)

    def __iter__(self) -> Iterator[list[int]]:
        order = torch.randperm(self.length).tolist()
        size = self.batch_size
        return iter([order[a : a + size] for a in range(0, self.length, size)])


def plain_loader(
    dataset: Any, kind: str, batch_size: int, drop_last: bool, **settings: Any
) -> DataLoader[Any]:
    """A stock `DataLoader` with one of `SAMPLERS`, new objects throughout."""
    length = len(dataset)
    generator = torch.Generator().manual_seed(5) if kind.startswith("own generator") else None
    sampler: Any = None
    if kind == "in order" or kind == "shuffled" or kind == "own generator":
        return DataLoader(
            dataset,
            batch_size,
            shuffle=kind != "in order",
            drop_last=drop_last,
            generator=generator,
            **settings,
        )
    if kind == "eager batches":
        return DataLoader(dataset, batch_sampler=EagerBatches(length, batch_size), **settings)
    if kind == "batch sampler":
        batches = BatchSampler(RandomSampler(range(length)), batch_size, drop_last)
        return DataLoader(dataset, batch_sampler=batches, **settings)
    if kind == "list of batches":
        lists = [[length - 1, 0], [0], list(range(length))]
        return DataLoader(dataset, batch_sampler=lists, **settings)
    if kind == "weighted":
        weights = torch.arange(1, length + 1, dtype=torch.float64)
        sampler = WeightedRandomSampler(weights, length + 3)
    elif kind == "own generator, replacement":
        sampler = RandomSampler(
            range(length), replacement=True, num_samples=2 * length + 1, generator=generator
        )
    elif kind == "replacement":
        sampler = RandomSampler(range(length), replacement=True, num_samples=length + 35)
    elif kind == "more than once":
        sampler = RandomSampler(range(length), num_samples=2 * length + 1)
    elif kind == "part":
        sampler = SubsetRandomSampler(list(range(0, length, 2)))
    elif kind == "distributed":
        sampler = DistributedSampler(dataset, num_replicas=3, rank=1, drop_last=drop_last)
    elif kind == "list":
        sampler = list(range(length - 1, -1, -1))
    else:
        assert kind == "negative"
        sampler = [-1, 0, -length, length - 1]
    return DataLoader(dataset, batch_size, sampler=sampler, drop_last=drop_last, **settings)


SAMPLERS = (
    "in order",
    "shuffled",
    "own generator",
    "batch sampler",
    "list of batches",
    "eager batches",
    "weighted",
    "own generator, replacement",
    "replacement",
    "more than once",
    "part",
    "distributed",
    "list",
    "negative",
)


def tensor_dataset(length: int) -> TensorDataset:
    """Features, images and labels as tensors."""
    generator = torch.Generator().manual_seed(length)
    return TensorDataset(
        torch.randn(length, 5, generator=generator),
        torch.randint(0, 256, (length, 3, 4, 4), generator=generator).to(torch.uint8),
        torch.arange(length, dtype=torch.int32),
    )


def nest(dataset: Any, how: str, twin: Any) -> Any:
    """A dataset inside what torch offers for it.

    Args:
        dataset: with at least 8 samples.
        how: one of `NESTINGS`.
        twin: another one, for concatenation.
    """
    length = len(dataset)
    if how == "subset":
        return Subset(dataset, list(range(length - 1, 0, -2)))
    if how == "split":
        parts = random_split(dataset, [5, length - 5], torch.Generator().manual_seed(1))
        return parts[1]
    if how == "nested subset":
        return Subset(Subset(dataset, range(2, length)), [3, 1, 1, 0, 4])
    if how == "concatenated":
        return ConcatDataset([dataset, Subset(twin, [2, 0])])
    assert how == "bare"
    return dataset


NESTINGS = ("bare", "subset", "split", "nested subset", "concatenated")
