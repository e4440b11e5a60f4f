"""`dtype`: what batches come out as, in each of the three ways to them; labels are never cast."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, TensorDataset
from torchvision import transforms as v1
from torchvision.transforms import v2

import hotset
from tests.cached import JITTERED, RESIZED, Ragged
from tests.streams import MEAN, STD, Pictures, assert_same

HALVES = (torch.float16, torch.bfloat16)
every_half = pytest.mark.parametrize("dtype", HALVES)

# Every value of a byte in each of three channels: one image of 16 by 16.
BYTES = torch.arange(256, dtype=torch.uint8).reshape(1, 1, 16, 16).expand(2, 3, 16, 16).contiguous()
NORMALISED = v2.Compose([v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)])


class Sampled(Dataset[Any]):
    """Samples of a function, with the index as a label, through a chain of the user's."""

    def __init__(self, sample: Callable[[int], Any], length: int, transform: Any = None) -> None:
        self.sample, self.length, self.transform = sample, length, transform

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        value = self.sample(index)
        return value if self.transform is None else self.transform(value), index


def accelerated(dataset: Dataset[Any], dtype: torch.dtype | None) -> Any:
    """Batches of an accelerated `DataLoader`."""
    return list(hotset.accelerate(DataLoader(dataset, 2), device="cpu", dtype=dtype, check_every=1))


def loaded(dataset: Dataset[Any], dtype: torch.dtype | None) -> Any:
    """Batches of a loader of hotset's own."""
    return list(hotset.Loader(dataset, 2, device="cpu", dtype=dtype, check_every=1))


def fetched(dataset: Dataset[Any], dtype: torch.dtype | None) -> Any:
    """Batches of a stock `DataLoader` over a cached dataset."""
    return list(DataLoader(hotset.CachedDataset(dataset, device="cpu", dtype=dtype), 2))


every_way = pytest.mark.parametrize("way", [accelerated, loaded, fetched])


@every_way
@every_half
@pytest.mark.parametrize("is_flipped", [False, True])
def test_bytes_by_table_are_rounded_once(way: Any, dtype: torch.dtype, is_flipped: bool) -> None:
    """Every value of a byte is what the user's chain makes of it in single precision, rounded."""
    flip = [v2.RandomHorizontalFlip(1.0)] * is_flipped
    dataset = Sampled(BYTES.__getitem__, 2, v2.Compose([*flip, NORMALISED]))
    ((images, labels),) = way(dataset, dtype)
    wanted = NORMALISED(BYTES.flip(3) if is_flipped else BYTES).to(dtype)
    assert_same(images, wanted)
    assert_same(labels, torch.tensor([0, 1]))


@every_way
@pytest.mark.parametrize(
    ("dtype", "errors"),
    [
        (torch.float16, (0.00052, 0.00094, 0.00083)),
        (torch.bfloat16, (0.00415, 0.00387, 0.00772)),
    ],
)
def test_the_largest_error_of_normalised_bytes(
    way: Any, dtype: torch.dtype, errors: tuple[float, ...]
) -> None:
    """Over all values of a byte, for each of CIFAR's channels: half of the last bit at most."""
    ((images, _),) = way(Sampled(BYTES.__getitem__, 2, NORMALISED), dtype)
    mean, std = (
        torch.tensor(numbers, dtype=torch.float64)[:, None, None] for numbers in (MEAN, STD)
    )
    exact = (BYTES.double() / 255 - mean) / std
    found = (images.double() - exact).abs().amax(dim=(0, 2, 3))
    assert found.tolist() == pytest.approx(errors, abs=5e-6)
    assert float(found.max()) <= torch.finfo(dtype).eps


@every_way
@every_half
@pytest.mark.parametrize("wide", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(), (5,), (3, 4, 4), (2, 3, 4, 4)])
def test_floating_point_fields(
    way: Any, dtype: torch.dtype, wide: torch.dtype, shape: tuple[int, ...]
) -> None:
    """Of any number of axes; a second floating-point field is a label, and keeps its dtype."""
    values = torch.randn(5, *shape, generator=torch.Generator().manual_seed(1), dtype=wide)
    targets = torch.rand(5, generator=torch.Generator().manual_seed(2), dtype=wide)
    batches = way(TensorDataset(values, targets), dtype)
    assert_same(torch.cat([x for x, _ in batches]), values.to(dtype))
    assert_same(torch.cat([y for _, y in batches]), targets)


@every_half
@pytest.mark.parametrize("way", [hotset.Loader, hotset.CachedDataset])
def test_the_field_that_a_transform_is_for(way: Any, dtype: torch.dtype) -> None:
    """In dictionaries of arrays; another field keeps its dtype, also where it is the first."""
    data = {
        "id": torch.arange(4),
        "x": np.linspace(0, 1, 12, dtype=np.float32).reshape(4, 3),
        "y": np.linspace(0, 1, 4),
    }
    made = way(data, transform={"x": torch.from_numpy}, device="cpu", dtype=dtype)
    batch = next(iter(DataLoader(made, 4) if way is hotset.CachedDataset else _whole(made)))
    assert_same(batch["x"], torch.from_numpy(data["x"]).to(dtype))
    assert_same(batch["id"], data["id"])
    assert_same(batch["y"], torch.from_numpy(data["y"]))


def _whole(loader: hotset.Loader) -> list[Any]:
    batches = list(loader)
    return [{name: torch.cat([batch[name] for batch in batches]) for name in batches[0]}]


@every_way
@every_half
def test_images_of_differing_sizes(way: Any, dtype: torch.dtype) -> None:
    """The very batches of a run without a dtype, rounded."""
    torch.manual_seed(3)
    wanted = way(Ragged(9, RESIZED), None)
    torch.manual_seed(3)
    found = way(Ragged(9, RESIZED), dtype)
    assert len(found) == 5
    for (x, y), (a, b) in zip(found, wanted, strict=True):
        assert_same(x, a.to(dtype))
        assert_same(y, b)


@every_way
@every_half
def test_steps_that_run_per_sample(way: Any, dtype: torch.dtype) -> None:
    """What a user's own random step makes is rounded likewise."""
    torch.manual_seed(3)
    wanted = way(Ragged(5, JITTERED), None)
    torch.manual_seed(3)
    found = way(Ragged(5, JITTERED), dtype)
    assert [tuple(x.shape[1:]) for x, _ in found] == [(3, 6, 6)] * 3
    for (x, y), (a, b) in zip(found, wanted, strict=True):
        assert_same(x, a.to(dtype))
        assert_same(y, b)


@every_way
@every_half
@pytest.mark.parametrize(
    "values",
    [
        torch.arange(12).reshape(4, 3),
        torch.arange(12, dtype=torch.uint8).reshape(4, 3),
        torch.arange(48, dtype=torch.int16).reshape(4, 3, 2, 2),
        torch.tensor([True, False, True, True]),
        torch.arange(4, dtype=torch.uint8),
    ],
    ids=["rows", "rows of bytes", "images of words", "booleans", "labels of bytes"],
)
def test_integers_are_never_cast(way: Any, dtype: torch.dtype, values: Tensor) -> None:
    """Whatever their shape; only images of bytes are no integers to a model."""
    batches = way(TensorDataset(values, torch.rand(4)), dtype)
    assert_same(torch.cat([x for x, _ in batches]), values)


@every_half
def test_a_chain_that_makes_no_image_is_told_of(dtype: torch.dtype) -> None:
    """Where steps run on batches, and where they run per sample."""
    note = f"dtype={dtype} has no floating-point or image leaf to act on"
    for chain in (None, [hotset.random(lambda values: values + int(torch.randint(3, ())))]):
        loader = hotset.Loader(torch.arange(4), 2, transform=chain, device="cpu", dtype=dtype)
        assert note in loader.plan.notes
        assert all(batch.dtype is torch.int64 for batch in loader)


@every_half
@pytest.mark.parametrize("is_channels_last", [False, True])
def test_layout_and_dtype_together(dtype: torch.dtype, is_channels_last: bool) -> None:
    """As an autocast training wants them."""
    chain = v1.Compose([v1.ToTensor(), v1.Normalize(MEAN, STD)])
    options: dict[str, Any] = {"device": "cpu", "channels_last": is_channels_last}
    ((images, _),) = hotset.Loader(Pictures(6, chain), 6, dtype=dtype, **options)
    wanted = torch.stack([Pictures(6, chain)[index][0] for index in range(6)])
    assert_same(images, wanted.to(dtype))
    layout = torch.channels_last if is_channels_last else torch.contiguous_format
    assert images.is_contiguous(memory_format=layout)
