"""Batches on a simulated accelerator: the same bits in every tier, exact bytes, exact time."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils.data import (
    DataLoader,
    Dataset,
    RandomSampler,
    Sampler,
    Subset,
    TensorDataset,
    WeightedRandomSampler,
)
from torch.utils.data.distributed import DistributedSampler
from torchvision.transforms import v2

import hotset
from hotset.errors import ConfigError, DeviceError, DeviceMemoryError
from hotset.kernels.threads import Threads
from hotset.placement.policy import RAGGED_POLICY
from hotset.testing import SimulatedAccelerator
from tests.streams import assert_same

COUNT, ROW = 1000, 3 * 8 * 8 + 8
IMAGES = torch.randint(0, 256, (COUNT, 3, 8, 8), dtype=torch.uint8, generator=torch.manual_seed(0))
LABELS = torch.arange(COUNT)
AUGMENT = [v2.RandomCrop(8, padding=2), v2.RandomHorizontalFlip()]
TIERS: dict[str, dict[str, Any]] = {
    "device": {},
    "mixed": {"budget": 100_000},
    "lru": {"budget": 100_000, "policy": "lru"},
    "next-use": {"budget": 100_000, "policy": "next-use"},
    "frequency": {"budget": 100_000, "policy": "frequency"},
    "host": {"tier": "host"},
    "one at a time": {"tier": "host", "prefetch_batches": 1},
    "in parts": {"tier": "host", "prefetch_bytes": 5 * ROW},
}


def simulated(**options: Any) -> SimulatedAccelerator:
    """An accelerator with room for everything, that copies a sample in ROW microseconds."""
    return SimulatedAccelerator(options.pop("capacity", "10MB"), bandwidth="1MB", **options)


def loader_on(device: Any, **options: Any) -> hotset.Loader:
    """Shuffled and augmented images."""
    data = options.pop("data", (IMAGES, LABELS))
    made = {"shuffle": True, "transform": AUGMENT, "seed": 1, "check_every": 0, **options}
    return hotset.Loader(data, made.pop("batch_size", 32), device=device, **made)


def copied(loader: Any) -> list[Any]:
    """The batches of an epoch, which hold nothing that is used again."""
    return [tuple(leaf.clone() for leaf in batch) for batch in loader]


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("transform", [AUGMENT, None], ids=["augmented", "as they are"])
def test_every_tier_gives_the_same_batches(tier: str, transform: Any) -> None:
    """Over three epochs, as on the CPU, bit for bit."""
    plain = loader_on("cpu", transform=transform)
    fast = loader_on(simulated(), transform=transform, **TIERS[tier])
    for _ in range(3):
        for expected, found in zip(copied(plain), copied(fast), strict=True):
            assert_same(expected, found)


@given(
    count=st.integers(1, 60),
    batch_size=st.integers(1, 20),
    budget=st.integers(1, 20_000),
    ahead=st.integers(1, 5),
    on_the_way=st.integers(1, 20_000),
    policy=st.sampled_from(["auto", "lru", "next-use", "frequency", "static"]),
    is_subset=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_whatever_the_budget(
    count: int,
    batch_size: int,
    budget: int,
    ahead: int,
    on_the_way: int,
    policy: str,
    is_subset: bool,
) -> None:
    """Batches are the same, and the device never holds more than it may."""
    data: Any = (IMAGES[:count], LABELS[:count])
    if is_subset:
        data = Subset(TensorDataset(IMAGES, LABELS), list(range(7, 7 + 3 * count, 3)))
    device = simulated()
    made: dict[str, Any] = {"data": data, "batch_size": batch_size}
    fast = loader_on(
        device,
        budget=budget,
        policy=policy,
        prefetch_batches=ahead,
        prefetch_bytes=on_the_way,
        **made,
    )
    plain = loader_on("cpu", **made)
    for _ in range(2):
        for expected, found in zip(copied(plain), copied(fast), strict=True):
            assert_same(expected, found)
    least = 2 * min(batch_size, count) * ROW  # one batch on its way and one in use
    assert device.peak_bytes <= max(budget, min(least, on_the_way + batch_size * ROW), 2 * ROW)
    assert fast.stats().samples == 2 * count


def test_on_the_device_nothing_is_copied() -> None:
    """0 bytes an epoch after placing, which copies every sample once."""
    device = simulated()
    loader = loader_on(device)
    assert loader.plan.tier == "device"
    assert device.bytes_copied == loader.stats().bytes_placed == COUNT * ROW
    for _ in range(2):
        list(loader)
    assert device.bytes_copied == COUNT * ROW
    stats = loader.stats()
    assert (stats.epochs, stats.batches, stats.samples) == (2, 2 * len(loader), 2 * COUNT)
    assert (stats.hit_rate, stats.bytes_copied) == (1.0, 0)


@pytest.mark.parametrize("budget", [60_000, 100_000, 180_000])
@pytest.mark.parametrize("shuffle", [True, False])
def test_mixed_copies_the_others_exactly(budget: int, shuffle: bool) -> None:
    """(1 - f) N samples an epoch, to the byte."""
    device = simulated()
    loader = loader_on(device, budget=budget, shuffle=shuffle)
    kept = loader.plan.cached
    assert loader.plan.tier == "mixed"
    assert budget - ROW < device.used_bytes <= budget
    assert device.bytes_copied == kept * ROW
    for epoch in range(1, 4):
        list(loader)
        assert device.bytes_copied == kept * ROW + epoch * (COUNT - kept) * ROW
    stats = loader.stats()
    assert stats.bytes_copied == 3 * (COUNT - kept) * ROW
    assert stats.hits == 3 * kept
    assert stats.bytes_placed == kept * ROW


class Recording(SimulatedAccelerator):
    """One that keeps the size of every copy."""

    def __init__(self) -> None:
        super().__init__("10MB", bandwidth="1MB")
        self.sizes: list[int] = []

    def copied(self, nbytes: int, earliest: float) -> float:
        self.sizes.append(nbytes)
        return super().copied(nbytes, earliest)


def test_misses_are_spread_evenly() -> None:
    """In order, no batch has more of them than its share."""
    device = Recording()
    loader = loader_on(device, budget=100_000, shuffle=False, transform=None)
    share = 32 * (1 - loader.plan.cached / COUNT)
    device.sizes.clear()
    list(loader)
    missed = np.array(device.sizes[::2]) / (ROW - 8)  # images; their labels come behind
    assert len(missed) == len(loader)
    assert abs(missed[:-1] - share).max() < 1
    assert missed.sum() == COUNT - loader.plan.cached


def test_bytes_cross_the_link() -> None:
    """Images that come out as floats cross it as the bytes that they are kept in."""
    device = simulated()
    steps = [v2.RandomHorizontalFlip(), v2.ToDtype(torch.float32, scale=True)]
    loader = loader_on(device, tier="host", transform=steps, dtype=torch.float16)
    images, _ = copied(loader)[0]
    assert images.dtype is torch.float16
    assert device.bytes_copied == COUNT * ROW


WIDE, WIDE_ROW = torch.arange(1280.0)[:, None].expand(1280, 10_000), 40_000


def wide(**options: Any) -> tuple[SimulatedAccelerator, hotset.Loader]:
    """Batches of 32 samples that are copied in 32 ms, too large to pass several at once."""
    device = SimulatedAccelerator("1GB", bandwidth=1000 * WIDE_ROW)
    made: dict[str, Any] = {"data": WIDE, "transform": None, "tier": "host", **options}
    return device, loader_on(device, **made)


@pytest.mark.parametrize("step", [0.032, 0.05, 1.0])
@pytest.mark.parametrize("ahead", [1, 2, 4])
def test_copies_shorter_than_steps_cost_nothing(step: float, ahead: int) -> None:
    """The step never waits after the first batch."""
    device, loader = wide(prefetch_batches=ahead)
    for _ in loader:
        device.run(step)
    assert len(device.waits) == len(loader)
    assert device.waits[0] == pytest.approx(0.032, rel=1e-12)
    assert max(device.waits[1:]) <= 1e-12  # seconds; what adding them up rounds
    assert device.time == pytest.approx(0.032 + len(loader) * step, rel=1e-12)


@pytest.mark.parametrize("factor", [1.0, 1.5])
@pytest.mark.parametrize("transform", [AUGMENT, None], ids=["augmented", "as they are"])
@pytest.mark.parametrize("batch_size", [4, 32])
def test_batches_that_pass_together_are_not_waited_for(
    factor: float, transform: Any, batch_size: int
) -> None:
    """Small ones are grouped alike from the first on: no step waits but the first, in any epoch."""
    device = simulated()
    loader = loader_on(device, tier="host", transform=transform, batch_size=batch_size)
    for _ in range(3):
        for images, _ in loader:
            device.run(factor * len(images) * ROW / 1e6)
    assert len(device.waits) < 3 * len(loader) or batch_size == 32
    starts = [number for number, wait in enumerate(device.waits) if wait > 1e-12]
    assert len(starts) <= 3  # the first of each epoch
    assert starts[0] == 0


def test_a_loader_made_in_inference_mode() -> None:
    """Serves outside of it, and the other way about."""
    with torch.inference_mode():
        inside = loader_on(simulated(), **TIERS["lru"])
    outside = loader_on(simulated(), **TIERS["lru"])
    expected = copied(loader_on("cpu"))
    for wanted, found in zip(expected, copied(inside), strict=True):
        assert_same(wanted, found)
    with torch.inference_mode():
        assert all(
            torch.equal(wanted[0], found[0])
            for wanted, found in zip(expected, outside, strict=True)
        )


@pytest.mark.parametrize("step", [0.0, 0.005, 0.03])
@pytest.mark.parametrize("is_synchronous", [False, True])
def test_copies_longer_than_steps_run_at_the_rate_of_the_link(
    step: float, is_synchronous: bool
) -> None:
    """Within 3 % of what the link can do, also where the host waits for every step."""
    device, loader = wide()
    for _ in loader:
        device.run(step)
        if is_synchronous:
            device.synchronize()
    assert 1.28 <= device.time - step <= 1.03 * 1.28  # 1,280 samples of a millisecond


@pytest.mark.parametrize("tier", ["mixed", "lru", "host"])
def test_leaving_early_ends_all(tier: str) -> None:
    """No thread is left, the next epoch is whole, and its batches are the right ones."""
    device = simulated()
    fast, plain = loader_on(device, **TIERS[tier]), loader_on("cpu")
    for stop in (1, 5, 17):
        for number, _ in enumerate(fast):
            if number == stop:
                break
        gc.collect()
        assert not [t for t in threading.enumerate() if t.name.startswith("hotset")]
        fast.set_epoch(stop)
        plain.set_epoch(stop)
        for expected, found in zip(copied(plain), copied(fast), strict=True):
            assert_same(expected, found)


def test_two_iterators_at_once() -> None:
    """The second does without the ring; both give the right batches."""
    device = simulated()
    loader = loader_on(device, budget=100_000, policy="lru")
    plain = copied(loader_on("cpu"))
    other = loader_on("cpu")
    other.set_epoch(1)
    seconds = copied(other)
    for first, second, a, b in zip(loader, loader, plain, seconds, strict=True):
        assert_same(a, tuple(first))
        assert_same(b, tuple(second))


def test_resuming_in_the_middle() -> None:
    """Batches that were on their way and not handed out come again."""
    device = simulated()
    loader = loader_on(device, budget=100_000, policy="lru")
    whole = copied(loader_on("cpu"))
    found = []
    for batch in loader:
        found.append(tuple(leaf.clone() for leaf in batch))
        if len(found) == 7:
            break
    state = loader.state_dict()
    other = loader_on(simulated(), tier="host")
    other.load_state_dict(state)
    for expected, batch in zip(whole, [*found, *copied(other)], strict=True):
        assert_same(expected, batch)


class Unknown(Sampler[int]):
    """An order that nobody knows: it looks at how far training is."""

    def __init__(self) -> None:
        super().__init__()
        self.handed_out: list[int] = []

    def __len__(self) -> int:
        return COUNT

    def __iter__(self) -> Iterator[int]:
        for index in range(COUNT):
            self.handed_out.append(index)
            yield index * 7 % COUNT


def test_unknown_orders_are_not_read_ahead() -> None:
    """The sampler is asked for a batch when it is wanted, and the policy is LRU."""
    sampler = Unknown()
    plain = DataLoader(TensorDataset(IMAGES, LABELS), 32, sampler=sampler)
    fast = hotset.accelerate(plain, device=simulated(), budget=100_000)
    assert fast.plan.policy.startswith("lru: ")
    for number, (images, labels) in enumerate(fast, 1):
        assert len(sampler.handed_out) == min(COUNT, 32 * number)
        assert torch.equal(images, IMAGES[labels])


@pytest.mark.parametrize(
    ("sampler", "word"),
    [
        (None, "static"),
        (RandomSampler(range(COUNT), replacement=True, num_samples=3 * COUNT), "next-use"),
        (WeightedRandomSampler(torch.arange(COUNT) + 1.0, 3 * COUNT), "next-use"),
    ],
)
def test_the_policy_follows_the_sampler(sampler: Any, word: str) -> None:
    """The plan names it with its reason, and the values are right."""
    data = TensorDataset(IMAGES, LABELS)
    plain = DataLoader(data, 32, sampler=sampler, shuffle=sampler is None)
    device = simulated()
    fast = hotset.accelerate(plain, device=device, budget=100_000)
    assert fast.plan.policy.startswith(f"{word}: ")
    assert f"policy: {word}: " in str(fast.plan)
    placed = device.bytes_copied
    for images, labels in fast:
        assert torch.equal(images, IMAGES[labels])
    stats = fast.stats()
    assert stats.bytes_copied == stats.misses * ROW == device.bytes_copied - placed
    share = fast.plan.cached / COUNT
    assert stats.hit_rate > share + 0.05 if word == "next-use" else stats.hits == fast.plan.cached


def test_nothing_kept_is_no_reason_to_crawl() -> None:
    """With a budget of nothing batches pass whole."""
    device = simulated()
    loader = loader_on(device, budget=0, transform=None)
    assert loader.plan.tier == "host"
    before = device.copies
    list(loader)
    assert device.copies - before == 2 * len(loader)  # images and labels
    assert device.used_bytes == 2 * 32 * ROW


def test_what_is_made_on_the_host_is_no_hit() -> None:
    """A collate function of the user's own gets its samples there."""
    plain = DataLoader(TensorDataset(IMAGES, LABELS), 50, collate_fn=lambda samples: len(samples))
    fast = hotset.accelerate(plain, device=simulated())
    assert sum(fast) == COUNT
    assert (fast.stats().samples, fast.stats().hits) == (COUNT, 0)


def test_ranks_know_their_next_epochs() -> None:
    """With a seed, the parts of the epochs to come are known: more hits than a fixed set has."""
    rates = {}
    for policy in ("auto", "static"):
        loader = loader_on(simulated(), budget=60_000, shard=(1, 4), policy=policy, batch_size=8)
        for _ in range(12):
            list(loader)
        rates[policy] = loader.stats().hit_rate
    share = loader.plan.cached / COUNT
    assert rates["static"] == pytest.approx(share, abs=0.05)
    assert rates["auto"] > share + 0.1


def test_ranks_of_a_distributed_sampler() -> None:
    """Its epochs to come are known too, if `set_epoch` is called for each."""
    data = TensorDataset(IMAGES, LABELS)
    rates = {}
    for policy in ("auto", "static"):
        sampler: Any = DistributedSampler(data, num_replicas=4, rank=1, seed=2)
        plain = DataLoader(data, 8, sampler=sampler)
        fast = hotset.accelerate(plain, device=simulated(), budget=60_000, policy=policy)
        for epoch in range(12):
            sampler.set_epoch(epoch)
            expected = list(sampler)
            assert [int(y) for _, labels in fast for y in labels] == expected
        rates[policy] = fast.stats().hit_rate
    assert fast.plan.policy == "static: asked for"
    assert rates["auto"] > rates["static"] + 0.1


def test_ranks_on_one_machine_share_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each may take its part, and the plan says what would be there once for all."""
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    fast = hotset.accelerate(DataLoader(Scaled(), 4), device=simulated(), tier="host")
    assert fast.plan.notes[-1].startswith("each of the 4 ranks on this machine holds a copy")
    monkeypatch.setattr("hotset.loader.place.free_bytes", lambda device: 4000)
    found = hotset.accelerate(DataLoader(Scaled(), 4), device="cpu", budget="100%")
    assert found.plan.tier == "device"  # 480 of 1000 bytes
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "9")
    none = hotset.accelerate(DataLoader(Scaled(), 4), device="cpu", budget="100%")
    assert none.plan.tier == "source"


def test_small_batches_pass_together() -> None:
    """Several in one transfer and one launch, where the order may be read ahead."""
    device = simulated()
    fast, plain = loader_on(device, tier="host", batch_size=4), loader_on("cpu", batch_size=4)
    for expected, found in zip(copied(plain), copied(fast), strict=True):
        assert_same(expected, found)
    side_by_side = fast._parts.pipeline._most_batches
    assert side_by_side == Threads().count
    assert len(device.waits) == -(-len(fast) // side_by_side)


def test_layout_and_dtype_on_the_way_out() -> None:
    """The bytes that crossed come out channels last, in half precision."""
    steps = [v2.RandomHorizontalFlip(), v2.ToDtype(torch.float32, scale=True)]
    made: dict[str, Any] = {"transform": steps, "dtype": torch.bfloat16, "channels_last": True}
    plain = loader_on("cpu", **made)
    fast = loader_on(simulated(), budget=100_000, **made)
    for expected, found in zip(copied(plain), fast, strict=True):
        assert found[0].is_contiguous(memory_format=torch.channels_last)
        assert found[0].dtype is torch.bfloat16
        assert torch.equal(found[0], expected[0])


def test_memory_that_is_not_there_after_all() -> None:
    """Out of memory while placing means the next tier, and a line in the plan."""
    for failing, tier in ((1, "mixed"), (2, "mixed")):
        device = simulated(fail_allocation=failing)
        loader = loader_on(device)
        assert loader.plan.tier == tier
        assert any(
            "out of memory while placing in the tier device" in note for note in loader.plan.notes
        )
        for expected, found in zip(copied(loader_on("cpu")), copied(loader), strict=True):
            assert_same(expected, found)
        del loader
        gc.collect()
        assert device.used_bytes == 0


def test_memory_that_others_took() -> None:
    """Each tier is tried in turn; what was allocated for one that failed is given back."""

    class Shrinking(SimulatedAccelerator):
        """Memory that others take between the question and the allocation."""

        def free_bytes(self) -> int:
            return 10**9 if self.allocations == 0 else super().free_bytes()

    device = Shrinking(100_000, bandwidth="1MB")
    loader = loader_on(device, budget=10**9)
    assert loader.plan.tier == "host"
    assert [note.split(": ")[0] for note in loader.plan.notes] == [
        "out of memory while placing in the tier device",
        "out of memory while placing in the tier mixed",
        "out of memory while placing in the tier host",
        "out of memory while placing in the tier host",
    ]
    assert loader.plan.notes[-1].endswith("; batches pass in smaller parts instead")
    assert device.used_bytes <= 100_000
    for expected, found in zip(copied(loader_on("cpu")), copied(loader), strict=True):
        assert_same(expected, found)
    tiny = Shrinking(100, bandwidth="1MB")
    with pytest.raises(DeviceMemoryError, match="the simulated accelerator has no room for"):
        loader_on(tiny, budget=10**9)
    gc.collect()
    assert tiny.used_bytes == 0


@pytest.mark.parametrize("tier", ["mixed", "lru", "host"])
@pytest.mark.parametrize("late", [1, 2, 9])
def test_a_copy_that_fails(tier: str, late: int) -> None:
    """Is raised at its batch; the loader goes on from there with the right batches."""
    device = simulated()
    loader = loader_on(device, **TIERS[tier])
    device._fail_copy = device.copies + late
    whole, found = copied(loader_on("cpu")), []
    with pytest.raises(DeviceError, match=r"^copy \d+ to the simulated accelerator failed$"):
        found.extend(tuple(leaf.clone() for leaf in batch) for batch in loader)
    state = loader.state_dict()
    assert state["started"]["batches"] == len(found)
    loader.load_state_dict(state)
    for expected, batch in zip(whole, [*found, *copied(loader)], strict=True):
        assert_same(expected, batch)
    gc.collect()
    assert not [t for t in threading.enumerate() if t.name.startswith("hotset")]


def test_two_loaders_share_a_budget() -> None:
    """The second has what the first left; what a loader held is free when it is gone."""
    shared = hotset.Budget(250_000, host="50%")
    device = simulated()
    train = loader_on(device, budget=shared)
    assert train.plan.tier == "device"
    assert shared.held("device") == COUNT * ROW
    valid = loader_on(device, budget=shared, data=(IMAGES[:500], LABELS[:500]))
    assert valid.plan.tier == "mixed"
    assert device.used_bytes == shared.held("device") <= 250_000
    assert sum(len(labels) for _, labels in valid) == 500
    del train
    gc.collect()
    assert shared.held("device") == device.used_bytes < 50_001
    again = loader_on(device, budget=shared, data=(IMAGES[:500], LABELS[:500]))
    assert again.plan.tier == "device"


def test_what_is_reserved_is_left_free() -> None:
    """The model comes first."""
    device = simulated(capacity=300_000)
    loader = loader_on(device, budget="100%", reserve=150_000)
    assert loader.plan.tier == "mixed"
    assert device.free_bytes() >= 150_000
    list(loader)
    assert device.capacity_bytes - device.peak_bytes >= 150_000


@pytest.mark.parametrize("tier", ["device", "mixed", "lru", "host"])
def test_fifty_epochs_take_no_more_than_two(tier: str) -> None:
    """No growth of device memory, no allocation after the first epoch, no thread left."""
    device = simulated()
    loader = loader_on(device, data=(IMAGES[:200], LABELS[:200]), **TIERS[tier])
    list(loader)
    used, peak, allocations = device.used_bytes, device.peak_bytes, device.allocations
    objects = []
    for epoch in range(1, 50):
        for _ in loader:
            pass
        if epoch in (4, 49):
            gc.collect()
            objects.append(sum(issubclass(type(o), (Tensor, np.ndarray)) for o in gc.get_objects()))
    assert objects[0] == objects[1]
    assert (device.used_bytes, device.peak_bytes) == (used, peak)
    assert device.allocations == allocations
    assert loader.stats().epochs == 50
    assert not [t for t in threading.enumerate() if t.name.startswith("hotset")]


def test_one_ring_for_the_life_of_a_loader() -> None:
    """Its buffers are made when it is, and never again."""

    class Counting(SimulatedAccelerator):
        buffers = 0

        def buffer(self, nbytes: int) -> Tensor:
            self.buffers += 1
            return super().buffer(nbytes)

    device = Counting("10MB", bandwidth="1MB")
    loader = loader_on(device, tier="host", prefetch_batches=3)
    for _ in range(3):
        list(loader)
    assert device.buffers == 4  # three on their way and one in use


ODD: dict[str, Tensor] = {
    "numbers": torch.arange(40.0, dtype=torch.float64),
    "nothing": torch.zeros(40, 0),
    "nothing in two axes": torch.zeros(40, 3, 0, dtype=torch.int16),
    "flags": torch.arange(40) % 3 == 0,
    "bfloat16": torch.randn(40, 5).bfloat16(),
    "complex": torch.randn(40, 2, dtype=torch.complex64).conj(),
    "negated": torch.randn(40, 2, dtype=torch.complex64).imag,
    "turned": torch.arange(80).reshape(2, 40).t(),
    "every second": torch.arange(160).reshape(80, 2)[::2],
    "learned": torch.randn(40, 3, requires_grad=True),
    "one byte": torch.arange(40, dtype=torch.uint8),
    "one row": torch.arange(3.0).expand(40, 3),
}


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("tier", ["device", "mixed", "host"])
def test_tensors_of_every_kind(name: str, tier: str) -> None:
    """Any dtype, any strides, also none at all."""
    device, data = simulated(), {"it": ODD[name], "place": torch.arange(40)}
    row = ODD[name][:1].numel() * ODD[name].element_size() + 8
    budget = 25 * row if tier == "mixed" else None
    loader = hotset.Loader(data, 6, shuffle=True, seed=2, device=device, tier=tier, budget=budget)
    assert loader.plan.tier == tier
    for batch in loader:
        expected = ODD[name].detach()[batch["place"]]
        assert batch["it"].dtype is expected.dtype
        assert torch.equal(batch["it"], expected)
    expected_bytes = {"device": 0, "mixed": 40 - loader.plan.cached, "host": 40}[tier] * row
    assert loader.stats().bytes_copied == expected_bytes


class Words(Dataset[Any]):
    """Samples with text, of which only the numbers go to the device."""

    def __len__(self) -> int:
        return 50

    def __getitem__(self, index: int) -> Any:
        return {"x": torch.full((4,), float(index)), "name": f"sample {index}", "y": index}


@pytest.mark.parametrize("tier", ["device", "mixed", "host"])
def test_text_stays_on_the_host(tier: str) -> None:
    """Beside what is on the device, in the same order."""
    device = simulated()
    budget = 900 if tier == "mixed" else None
    loader = hotset.Loader(
        Words(), 8, shuffle=True, seed=3, device=device, tier=tier, budget=budget
    )
    assert loader.plan.tier == tier
    for batch in loader:
        assert batch["name"] == [f"sample {y}" for y in batch["y"].tolist()]
        assert torch.equal(batch["x"][:, 0].long(), batch["y"])
    expected = {"device": 0, "mixed": 50 - loader.plan.cached, "host": 50}[tier]
    assert loader.stats().bytes_copied == expected * (4 * 4 + 8)


class Sized(Dataset[Any]):
    """Images of differing sizes."""

    def __init__(self, transform: Any) -> None:
        self.transform = transform

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> Any:
        image = torch.full((3, 9 + index % 5, 12 - index % 3), index, dtype=torch.uint8)
        return self.transform(image), index


@pytest.mark.parametrize("tier", ["device", "mixed", "host"])
def test_images_of_differing_sizes(tier: str) -> None:
    """Cropped and resized on the device, from the bytes that are kept."""
    crop = v2.RandomResizedCrop(8, antialias=True)
    made: dict[str, Any] = {"shuffle": True, "seed": 5, "check_every": 0}
    plain = hotset.Loader(Sized(crop), 6, device="cpu", **made)
    device = simulated()
    budget = 14_000 if tier == "mixed" else None
    fast = hotset.Loader(Sized(crop), 6, device=device, tier=tier, budget=budget, **made)
    assert fast.plan.tier == tier
    for _ in range(2):
        for expected, found in zip(copied(plain), copied(fast), strict=True):
            assert_same(expected, found)
    if tier == "mixed":
        assert 0 < fast.plan.cached < 40
        assert device.used_bytes <= 14_000


def test_samples_of_differing_sizes_stay_where_they_are() -> None:
    """They cannot be exchanged for one another, whatever the sampler."""
    data = Sized(v2.RandomResizedCrop(8))
    plain = DataLoader(data, 6, sampler=RandomSampler(range(40), replacement=True))
    device = simulated()
    fast = hotset.accelerate(plain, device=device, budget=14_000)
    assert fast.plan.policy == RAGGED_POLICY
    before = fast.stats()
    for epoch in range(1, 4):
        list(fast)
        assert fast.stats().samples == 40 * epoch
    sequential = hotset.accelerate(DataLoader(data, 6), device=device, budget=14_000)
    list(sequential)
    assert sequential.stats().hits == sequential.plan.cached > 0
    assert before.samples == 0
    with pytest.raises(ConfigError, match="policy='lru' exchanges samples"):
        hotset.Loader(
            Sized(v2.RandomResizedCrop(8)), 6, device=simulated(), budget=14_000, policy="lru"
        )


@pytest.mark.parametrize("tier", ["device", "mixed", "disk"])
def test_stores_on_a_device(tier: str, tmp_path: Any) -> None:
    """What has no room there is mapped from disk, and passes."""
    data = TensorDataset(IMAGES, LABELS)
    store = hotset.build(data, tmp_path / "store.hotset", workers=0)
    device = simulated()
    made = {"budget": 100_000} if tier == "mixed" else {"tier": tier}
    fast = loader_on(device, data=store, **made)
    assert fast.plan.tier == tier
    assert fast.plan.rest == {"device": "", "mixed": "disk", "disk": "disk"}[tier]
    for expected, found in zip(copied(loader_on("cpu")), copied(fast), strict=True):
        assert_same(expected, found)


def slow(x: Tensor) -> Tensor:
    """A deterministic step that hotset cannot see into."""
    return x * 1.5


@pytest.mark.parametrize("fill", ["eager", "lazy"])
def test_a_cache_folder_on_a_device(fill: Any, tmp_path: Any) -> None:
    """Filled at once or in the first epoch; the bytes that are kept cross the link."""
    plain = DataLoader(Scaled(), 4)
    device = simulated()
    fast = hotset.accelerate(plain, device=device, cache=tmp_path, fill=fill)
    assert fast.plan.tier == ("device" if fill == "eager" else "disk")
    for _ in range(2):
        for (x, y), (found, label) in zip(plain, fast, strict=True):
            assert torch.equal(x, found)
            assert torch.equal(y, label)


class Scaled(Dataset[Any]):
    """Rows of two numbers."""

    scale = 1.0

    def __len__(self) -> int:
        return 30

    def __getitem__(self, index: int) -> Any:
        return slow(torch.tensor([index, index + 0.5])), index


@pytest.mark.parametrize("tier", ["device", "mixed"])
def test_a_tier_that_needs_the_samples_first(tier: str, tmp_path: Any) -> None:
    """Asked for beside lazy filling, it is what is done, and the plan says when."""
    device = simulated()
    budget = 480 if tier == "mixed" else None
    fast = hotset.accelerate(
        DataLoader(Scaled(), 4),
        device=device,
        cache=tmp_path,
        fill="lazy",
        tier=tier,
        budget=budget,
    )
    assert fast.plan.tier == tier
    note = f"filled before the first epoch: tier='{tier}' needs the samples then"
    assert note in fast.plan.notes


def test_stores_count_in_a_budget(tmp_path: Any) -> None:
    """What one loader makes, the next may not take as well."""
    shared = hotset.Budget(disk="900")
    first = hotset.accelerate(DataLoader(Scaled(), 4), device="cpu", cache=tmp_path, budget=shared)
    assert first.plan.tier == "disk"
    assert shared.held("disk") > 30 * 16  # with what a store says of itself
    other = DataLoader(Scaled(), 4)
    other.dataset.scale = 2.0
    second = hotset.accelerate(other, device="cpu", cache=tmp_path, budget=shared)
    assert second.plan.tier == "source"
    again = hotset.accelerate(DataLoader(Scaled(), 4), device="cpu", cache=tmp_path, budget=shared)
    assert again.plan.tier == "disk"  # it is there, and takes no more
    loader = DataLoader(TensorDataset(IMAGES, LABELS))
    with pytest.raises(ConfigError, match="lie in host memory already, and no store is made"):
        hotset.accelerate(loader, device="cpu", cache=tmp_path, tier="disk")


def noisy(x: Tensor) -> Tensor:
    """A random step of the user's own."""
    return x + torch.rand(())


class Transformed(Dataset[Any]):
    """Rows with a random step that is the user's own."""

    transform: Callable[[Tensor], Tensor] = staticmethod(noisy)

    def __len__(self) -> int:
        return 20

    def __getitem__(self, index: int) -> Any:
        return self.transform(torch.full((4,), float(index))), index


def test_samples_made_one_by_one_are_moved() -> None:
    """The plan says why they are kept on the host; what is moved is counted."""
    device = simulated()
    fast = hotset.accelerate(DataLoader(Transformed(), 5), device=device)
    assert fast.plan.tier == "host"
    assert sum(len(y) for _, y in fast) == 20
    assert fast.stats().bytes_copied == device.bytes_copied == 20 * (4 * 4 + 8)
    assert fast.plan.notes[-1] == (
        "batches are made on the host, and copied when they are handed out"
    )
    with pytest.raises(ConfigError, match="tier='device' cannot be had: batches are made on the"):
        hotset.accelerate(DataLoader(Transformed(), 5), device=device, tier="device")
