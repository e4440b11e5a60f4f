"""`hotset.Loader`: batches that follow from (seed, epoch, sample), over datasets and arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils.data import DataLoader, WeightedRandomSampler, default_collate
from torchvision import transforms as v1
from torchvision.transforms import v2

import hotset
from tests import streams
from tests.streams import OwnCode, Pictures, assert_same, stream

RANDOM_STEPS: tuple[Any, ...] = (
    v1.RandomCrop(7, padding=2),
    v1.RandomCrop(9, padding=1, pad_if_needed=True, padding_mode="reflect"),
    v2.RandomCrop((6, 8), padding=[1, 2], fill=3),
    v1.RandomHorizontalFlip(),
    v2.RandomVerticalFlip(0.3),
    v1.RandomApply([v1.RandomVerticalFlip(0.5)], p=0.6),
    v1.ColorJitter(0.3),
    v2.RandomRotation(20),
)
RANDOM_TAILS: tuple[Any, ...] = (
    v1.RandomErasing(),
    v2.RandomErasing(p=1.0, value=[0.1, 0.2, 0.3]),
    v1.RandomHorizontalFlip(),
    v1.Normalize(streams.MEAN, streams.STD),
    streams.Scale(2.0),
    hotset.Cutout(3),
)


@st.composite
def random_chains(draw: st.DrawFn) -> Any:
    """Chains of random and deterministic steps, batched and not."""
    steps = draw(st.lists(st.sampled_from(RANDOM_STEPS), min_size=1, max_size=3))
    steps += draw(st.sampled_from(streams.TO_TENSOR[2:4] + streams.TO_TENSOR[:1]))
    return v1.Compose(steps + draw(st.lists(st.sampled_from(RANDOM_TAILS), max_size=2)))


def by_id(batches: list[Any]) -> dict[int, Tensor]:
    """Each sample's image, by its label."""
    return {int(y): x for images, labels in batches for x, y in zip(images, labels, strict=True)}


def assert_same_samples(found: dict[int, Tensor], wanted: dict[int, Tensor]) -> None:
    """Fails unless the same samples have the same bits."""
    assert found.keys() == wanted.keys()
    for index, image in wanted.items():
        assert_same(found[index], image, f"sample {index}")


@settings(max_examples=40)
@given(
    chain=random_chains(),
    sizes=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    world=st.integers(1, 3),
    seed=st.integers(0, 2**63),
)
def test_samples_depend_on_seed_epoch_and_id_only(
    chain: Any, sizes: tuple[int, int], world: int, seed: int
) -> None:
    """Whatever the batch size, the number of ranks, or the state of any global generator."""
    wanted, found = [], []
    torch.manual_seed(1), np.random.seed(1)
    first = hotset.Loader(
        Pictures(10, chain), sizes[0], shuffle=True, seed=seed, device="cpu", check_every=1
    )
    wanted = [by_id(list(first)) for _ in range(2)]
    torch.manual_seed(2), np.random.seed(2)
    ranks = [
        hotset.Loader(
            Pictures(10, chain),
            sizes[1],
            shuffle=True,
            seed=seed,
            shard=(rank, world),
            device="cpu",
            check_every=0,
        )
        for rank in range(world)
    ]
    found = [by_id([batch for rank in ranks for batch in rank]) for _ in range(2)]
    for some, others in zip(found, wanted, strict=True):
        assert_same_samples(some, others)


MUST_DIFFER = v1.Compose([v1.RandomCrop(16, padding=8), v1.RandomHorizontalFlip(), v1.ToTensor()])
WORKER = v1.Compose([v1.ColorJitter(0.5, 0.5), v1.ToTensor()])


@pytest.mark.parametrize("chain", [MUST_DIFFER, WORKER])
def test_epochs_and_seeds_differ(chain: Any) -> None:
    """No epoch repeats another, no seed another; the same ones come again with the same seed."""

    def epochs(seed: int) -> list[Any]:
        dataset = Pictures(12, chain, size=(16, 16))
        loader = hotset.Loader(dataset, 5, shuffle=True, seed=seed, device="cpu")
        return [by_id(list(loader)) for _ in range(3)]

    first, again, other = epochs(0), epochs(0), epochs(1)
    for a, b in zip(first, again, strict=True):
        assert_same_samples(a, b)
    for a, b in ((first[0], first[1]), (first[1], first[2]), (first[0], other[0])):
        assert sum(torch.equal(a[index], b[index]) for index in a) <= 2


@pytest.mark.parametrize("chain", [MUST_DIFFER, WORKER])
def test_workers_do_not_matter(chain: Any) -> None:
    """0, 1 and 2 processes give the same bits."""
    results = [
        stream(
            hotset.Loader(
                Pictures(10, chain, size=(16, 16)), 4, seed=3, device="cpu", num_workers=workers
            )
        )[0]
        for workers in (0, 1, 2)
    ]
    assert_same(results[1], results[0])
    assert_same(results[2], results[0])


@pytest.mark.parametrize("chain", [MUST_DIFFER, WORKER])
def test_a_sample_that_is_repeated_is_augmented_anew(chain: Any) -> None:
    """Sampling with replacement, within a batch and between batches of an epoch."""
    dataset = Pictures(4, chain, size=(16, 16))
    sampler = WeightedRandomSampler(torch.tensor([1.0, 0, 0, 0]), 9)
    fast = hotset.accelerate(DataLoader(dataset, 4, sampler=sampler), device="cpu", check_every=1)
    images = torch.cat([x for x, _ in fast])
    assert len(images) == 9
    assert len({image.numpy().tobytes() for image in images}) >= 8


def test_set_epoch_goes_to_an_epoch() -> None:
    """And counts on from there."""
    loader = hotset.Loader(
        Pictures(9, MUST_DIFFER, size=(16, 16)), 4, shuffle=True, seed=0, device="cpu"
    )
    epochs = [list(loader) for _ in range(4)]
    loader.set_epoch(2)
    assert_same(list(loader), epochs[2])
    assert_same(list(loader), epochs[3])


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("drop_last", [False, True])
def test_without_a_seed_it_is_a_plain_loader(shuffle: bool, drop_last: bool) -> None:
    """Order and draws from torch's generator are a `DataLoader`'s."""
    dataset = OwnCode(11)
    options: dict[str, Any] = {"shuffle": shuffle, "drop_last": drop_last}
    wanted, state = stream(DataLoader(dataset, 4, **options), epochs=2, seed=5)
    found, found_state = stream(
        hotset.Loader(dataset, 4, device="cpu", **options), epochs=2, seed=5
    )
    assert_same(found, wanted)
    assert torch.equal(found_state, state)


def test_a_transform_goes_behind_the_datasets_own() -> None:
    """On the first field; the dataset is not touched."""
    dataset = Pictures(6, v1.ToTensor())
    loader = hotset.Loader(
        dataset, 6, transform=[v1.CenterCrop(4), streams.twice_less_one], device="cpu"
    )
    images, labels = next(iter(loader))
    plain = default_collate([dataset[i] for i in range(6)])
    assert_same(images, plain[0][:, :, 2:6, 2:6] * 2 - 1)
    assert_same(labels, plain[1])


@pytest.mark.parametrize("as_tensor", [False, True])
def test_arrays_are_sliced(as_tensor: bool) -> None:
    """Tuples and dictionaries of arrays or tensors; fields come out as they would be collated."""
    images = np.arange(5 * 3 * 2 * 2, dtype=np.uint8).reshape(5, 3, 2, 2)
    labels = np.arange(5, dtype=np.int16)
    convert = torch.from_numpy if as_tensor else np.asarray
    data = (convert(images), convert(labels))
    batches = list(hotset.Loader(data, 2, device="cpu", check_every=1))
    assert_same(batches[1], [torch.from_numpy(images[2:4]), torch.tensor([2, 3]).short()])
    assert_same(batches[2], [torch.from_numpy(images[4:]), torch.tensor([4]).short()])
    named = {"x": {"image": convert(images)}, "y": convert(labels)}
    batch = next(iter(hotset.Loader(named, 5, device="cpu", check_every=1)))
    assert_same(batch, {"x": {"image": torch.from_numpy(images)}, "y": torch.arange(5).short()})
    alone = next(iter(hotset.Loader(convert(images), 5, device="cpu", check_every=1)))
    assert_same(alone, torch.from_numpy(images))


def test_dictionaries_take_a_transform_for_a_field() -> None:
    """The other fields stay as they are."""
    data = {"label": torch.arange(4), "image": torch.full((4, 1, 2, 2), 51, dtype=torch.uint8)}
    step = v2.ToDtype(torch.float32, scale=True)
    loader = hotset.Loader(data, 4, transform={"image": step}, device="cpu", check_every=1)
    batch = next(iter(loader))
    assert_same(batch["image"], step(torch.full((4, 1, 2, 2), 51, dtype=torch.uint8)))
    assert_same(batch["label"], torch.arange(4))
    assert [d.action for d in loader.plan.decisions] == ["once", "table"]


def test_data_in_memory_is_not_copied() -> None:
    """A tensor that is given is the one that is read."""
    images = torch.zeros(4, 3, 2, 2, dtype=torch.uint8)
    loader = hotset.Loader(images, 4, transform=v1.RandomHorizontalFlip(1.0), device="cpu")
    assert loader.plan.bytes_held == 48
    images[1] = 7
    assert next(iter(loader))[1].unique().tolist() == [7]


def test_lists_are_fields_or_samples() -> None:
    """A list of arrays is fields; a list of anything else is a dataset."""
    fields = [torch.arange(3.0), torch.arange(3)]
    assert_same(next(iter(hotset.Loader(fields, 3, device="cpu"))), fields)
    samples = [(torch.tensor([float(i)]), i) for i in range(3)]
    batch = next(iter(hotset.Loader(samples, 3, device="cpu")))
    assert_same(batch, [torch.arange(3.0)[:, None], torch.arange(3)])


def test_cached_datasets_are_used_as_they_lie() -> None:
    """Their samples are not read again; their steps behind the cut are taken over."""
    cached = hotset.CachedDataset(Pictures(9, MUST_DIFFER, size=(16, 16)), device="cpu")
    loader = hotset.Loader(cached, 4, shuffle=True, seed=1, device="cpu", check_every=1)
    plain = hotset.Loader(
        Pictures(9, MUST_DIFFER, size=(16, 16)), 4, shuffle=True, seed=1, device="cpu"
    )
    assert [d.action for d in loader.plan.decisions] == ["once", "batch", "batch", "table"]
    column = loader._parts.pipeline._inner._stage._held.columns[0]
    assert column.data is cached._made.resident.columns[0].data  # type: ignore[union-attr]
    assert [y.tolist() for _, y in loader] == [y.tolist() for _, y in plain]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    "chain",
    [
        v1.ToTensor(),
        v1.PILToTensor(),
        v1.Compose([v1.ToTensor(), streams.less_mean]),
        v1.Compose([v1.ToTensor(), v1.RandomCrop(8)]),
    ],
)
def test_the_dtype_of_a_cached_dataset_is_kept(dtype: torch.dtype, chain: Any) -> None:
    """Under a stock loader, accelerated, and under `hotset.Loader` alike."""
    cached = hotset.CachedDataset(Pictures(6, chain), device="cpu", dtype=dtype)
    wanted = list(DataLoader(cached, 4))
    assert wanted[0][0].dtype is dtype
    assert_same(list(hotset.accelerate(DataLoader(cached, 4), device="cpu")), wanted)
    assert_same(list(hotset.Loader(cached, 4, device="cpu")), wanted)


def test_a_budget_that_is_too_small_means_reading_through_the_dataset() -> None:
    """The plan says so, and the batches are the same."""
    loader = DataLoader(OwnCode(9), 4)
    fast = hotset.accelerate(loader, device="cpu", budget=100)
    assert fast.plan.tier == "source"
    assert fast.plan.bytes_held == 0
    assert "exceed the budget of 100 bytes in host memory" in str(fast.plan)
    assert_same(list(fast), list(loader))


def test_data_that_lies_in_memory_already_needs_no_budget() -> None:
    """Leaving it where it is costs nothing."""
    loader = DataLoader(streams.tensor_dataset(9), 4)
    fast = hotset.accelerate(loader, device="cpu", budget=1)
    assert fast.plan.tier == "device"
    assert_same(list(fast), list(loader))


def test_lengths_are_those_of_a_plain_loader() -> None:
    """With and without the last batch, in shards."""
    for length in (1, 7, 8, 9):
        for drop_last in (False, True):
            options: dict[str, Any] = {"batch_size": 4, "drop_last": drop_last}
            plain = DataLoader(OwnCode(length), **options)
            assert len(hotset.Loader(OwnCode(length), device="cpu", **options)) == len(plain)
            seeded = hotset.Loader(OwnCode(length), device="cpu", seed=0, **options)
            assert len(seeded) == len(plain) == len(list(seeded))


def test_progress_is_told() -> None:
    """From the first sample to the last."""
    calls: list[tuple[int, int]] = []
    hotset.Loader(OwnCode(130), 4, device="cpu", progress=lambda *n: calls.append(n))
    assert calls[-1] == (130, 130)
    assert calls == sorted(calls)
    assert {total for _, total in calls} == {130}
