"""`CachedDataset` under a stock `DataLoader`: samples as the transforms make them, read once."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Subset, random_split
from torchvision import transforms as v1

import hotset
from hotset.errors import ConfigError, DeviceError
from tests import streams
from tests.streams import OwnCode, Pictures, assert_same, stream

CHAIN = v1.Compose([v1.ToTensor(), v1.Normalize(streams.MEAN, streams.STD)])
RANDOM = v1.Compose([v1.RandomCrop(8, padding=2), v1.RandomHorizontalFlip(), v1.ToTensor()])


@pytest.mark.parametrize("form", sorted(streams.FORMS))
def test_samples_are_the_datasets_own(form: str) -> None:
    """Containers and values; numbers are numbers, text is text."""
    dataset = Pictures(7, CHAIN, form)
    cached = hotset.CachedDataset(dataset, device="cpu")
    assert len(cached) == 7
    for index in (0, 3, -1):
        wanted = dataset[index % 7]
        found = cached[index]
        if form == "nested":
            found["target"][0][1] = found["target"][0][1].numpy()  # arrays come as tensors
        if form == "scalars":
            assert np.isnan(found[-1]) == np.isnan(wanted[-1])
            found, wanted = found[:-1], wanted[:-1]
        assert_same(found, wanted, f"sample {index}")


@pytest.mark.parametrize("form", sorted(streams.FORMS))
@pytest.mark.parametrize("workers", [0, 2])
def test_batches_of_a_stock_loader_are_the_datasets_own(form: str, workers: int) -> None:
    """Bit for bit, in the same order, with torch's generator where it would have been."""
    dataset = Pictures(11, CHAIN, form)
    cached = hotset.CachedDataset(dataset, device="cpu")
    options: dict[str, Any] = {"batch_size": 4, "shuffle": True, "num_workers": workers}
    wanted, state = stream(DataLoader(dataset, **options), epochs=2, seed=1)
    found, found_state = stream(DataLoader(cached, **options), epochs=2, seed=1)
    assert_same(found, wanted)
    assert torch.equal(found_state, state)


def test_whole_batches_are_fetched_in_one_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """A `DataLoader` asks for all of a batch's samples at once, through `Subset` as well."""
    asked = []
    original = hotset.CachedDataset.__getitems__
    monkeypatch.setattr(
        hotset.CachedDataset,
        "__getitems__",
        lambda self, indices: (asked.append(list(indices)), original(self, indices))[1],
    )
    cached = hotset.CachedDataset(Pictures(9, RANDOM), device="cpu")
    list(DataLoader(cached, 4))
    assert asked == [[0, 1, 2, 3], [4, 5, 6, 7], [8]]
    asked.clear()
    list(DataLoader(Subset(cached, [8, 2, 5]), 2))
    assert asked == [[8, 2], [5]]


class Counting:
    """Counts its calls."""

    calls: ClassVar[int] = 0

    def __call__(self, values: Tensor) -> Tensor:
        Counting.calls += 1
        return values + 0.5


def test_pre_transform_runs_once_and_transform_whenever_asked() -> None:
    """The first while the dataset is made, the second for every sample."""
    pre = [v1.ToTensor(), streams.less_mean]
    cached = hotset.CachedDataset(
        Pictures(9), pre_transform=pre, transform=v1.RandomHorizontalFlip(1.0), device="cpu"
    )
    actions = [decision.action for decision in cached.plan.decisions]
    assert actions == ["once", "once", "once", "batch"]
    wanted = streams.less_mean(v1.functional.to_tensor(streams.picture(4))).flip(-1)
    assert_same(cached[4], (wanted, 4))


def test_pre_transform_is_not_called_again() -> None:
    """Nor is any other deterministic step."""
    Counting.calls = 0
    data = (torch.arange(12.0).reshape(6, 2), torch.arange(6))
    cached = hotset.CachedDataset(data, pre_transform=Counting(), device="cpu")
    before = Counting.calls
    assert cached[5][0].tolist() == [10.5, 11.5]
    list(DataLoader(cached, 2))
    assert Counting.calls == before


def test_a_random_pre_transform_is_refused() -> None:
    """It would be frozen for ever."""
    for step in (v1.RandomCrop(4), v1.Lambda(lambda x: x + torch.rand(()))):
        with pytest.raises(
            ConfigError, match=r"`pre_transform` runs once, but .* is random \(.*; m"
        ):
            hotset.CachedDataset(torch.zeros(4, 3, 8, 8), pre_transform=step, device="cpu")


@pytest.mark.parametrize("chain", [RANDOM, v1.Compose([v1.ColorJitter(0.5), v1.ToTensor()])])
def test_random_steps_are_drawn_anew(chain: Any) -> None:
    """For every epoch, every sample and every worker; repeatable from torch's seed."""
    cached = hotset.CachedDataset(Pictures(12, chain), device="cpu")
    torch.manual_seed(5)
    first = [cached[3][0] for _ in range(12)]
    assert len({image.numpy().tobytes() for image in first}) > 6
    torch.manual_seed(5)
    assert_same([cached[3][0] for _ in range(12)], first)
    loader = DataLoader(Subset(cached, [3] * 12), 2, num_workers=2)
    images = torch.cat([x for x, _ in loader])
    assert len({image.numpy().tobytes() for image in images}) > 6
    same_batch = cached.__getitems__([3] * 12)
    assert len({image.numpy().tobytes() for image, _ in same_batch}) > 6


def test_arrays_and_dictionaries() -> None:
    """Fields along the first axis; a transform for one of them."""
    data = {"x": torch.full((3, 1, 2, 2), 255, dtype=torch.uint8), "y": np.arange(3)}
    cached = hotset.CachedDataset(
        data, transform={"x": v1.ConvertImageDtype(torch.float32)}, device="cpu"
    )
    assert_same(cached[1], {"x": torch.ones(1, 2, 2), "y": np.int64(1)})
    with pytest.raises(
        ConfigError, match="`pre_transform` and `transform` must be for the same fi"
    ):
        hotset.CachedDataset(
            {"x": torch.zeros(3), "y": torch.zeros(3)},
            pre_transform={"x": abs},
            transform={"y": abs},
            device="cpu",
        )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_dtype_is_applied_to_images(dtype: torch.dtype) -> None:
    """Rounded once, behind the chain; labels keep theirs."""
    cached = hotset.CachedDataset(Pictures(5, CHAIN), device="cpu", dtype=dtype)
    image, label = cached[2]
    assert_same(image, CHAIN(streams.picture(2)).to(dtype))
    assert label == 2


def test_indices_out_of_range() -> None:
    """As a list's; a `for` loop over the dataset ends."""
    cached = hotset.CachedDataset(OwnCode(4), device="cpu")
    for index in (4, -5):
        with pytest.raises(IndexError, match=f"index {index} of a dataset of 4 samples"):
            cached[index]
    assert [label for _, label in cached] == [0, 1, 2, 3]
    assert [label for _, label in cached.__getitems__([-1, 0])] == [3, 0]


def pretend_cuda(cached: hotset.CachedDataset) -> hotset.CachedDataset:
    """Makes a dataset believe that it lies on a CUDA device."""
    cached._device = torch.device("cuda", 0)
    return cached


def test_on_cuda_it_refuses_workers() -> None:
    """With a word on what to change, out of the worker process."""
    cached = pretend_cuda(hotset.CachedDataset(OwnCode(4), device="cpu"))
    with pytest.raises(
        DeviceError,
        match=r"lies on cuda:0 and cannot be read in a worker process; give the DataLoader "
        r"num_workers=0, or use hotset\.Loader\(dataset, \.\.\.\)",
    ):
        list(DataLoader(cached, 2, num_workers=1))


@pytest.mark.filterwarnings("ignore:'pin_memory' argument is set as true")
@pytest.mark.parametrize("nested", [False, True])
def test_on_cuda_it_refuses_pinning(nested: bool) -> None:
    """Only host memory can be pinned: said before torch fails on it."""
    cached: Any = pretend_cuda(hotset.CachedDataset(OwnCode(4), device="cpu"))
    loader = DataLoader(Subset(cached, [1, 2]) if nested else cached, 2, pin_memory=True)
    iterator = iter(loader)
    iterator._pin_memory = True  # as it is where there is a device to pin for
    with pytest.raises(
        DeviceError,
        match=r"lies on cuda:0, and only host memory can be pinned; .*pin_memory=Fal",
    ):
        next(iterator)


def test_on_cuda_it_works_without_either() -> None:
    """And the check is made once."""
    cached = pretend_cuda(hotset.CachedDataset(OwnCode(4), device="cpu"))
    assert [y.tolist() for _, y in DataLoader(cached, 3)] == [[0, 1, 2], [3]]
    assert cached._is_pinning_checked


def test_nested_in_what_torch_offers() -> None:
    """random_split and subsets of it, under hotset's own loaders."""
    cached = hotset.CachedDataset(Pictures(10, CHAIN), device="cpu")
    part = random_split(cached, [6, 4], torch.Generator().manual_seed(0))[1]
    assert_same(list(hotset.Loader(part, 3, device="cpu")), list(DataLoader(part, 3)))
    assert_same(
        list(hotset.accelerate(DataLoader(part, 3), device="cpu")), list(DataLoader(part, 3))
    )


def test_a_dataset_that_cannot_be_kept_is_read_through() -> None:
    """Random inside: every sample is made anew by the dataset itself."""

    class Noise(OwnCode):
        def __getitem__(self, index: int) -> Any:
            return torch.rand(3), index

    cached = hotset.CachedDataset(Noise(4), device="cpu")
    assert cached.plan.tier == "source"
    assert not torch.equal(cached[0][0], cached[0][0])
    loader = hotset.Loader(cached, 2, device="cpu", seed=0)
    assert [y.tolist() for _, y in loader] == [[0, 1], [2, 3]]


def test_cached_in_cached() -> None:
    """What is kept is not kept twice."""
    inner = hotset.CachedDataset(Pictures(5, CHAIN), device="cpu")
    outer = hotset.CachedDataset(inner, device="cpu")
    assert_same(outer[3], inner[3])
    kept = [c._made.resident.columns[0].data for c in (inner, outer)]  # type: ignore[union-attr]
    assert kept[0] is kept[1]
    further = hotset.CachedDataset(inner, transform=streams.twice_less_one, device="cpu")
    assert_same(further[3][0], inner[3][0] * 2 - 1)
