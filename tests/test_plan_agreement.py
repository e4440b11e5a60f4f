"""`hotset.plan` says what `hotset.accelerate` does, with the same arguments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import hypothesis
import pytest
import torch
from hypothesis import strategies as st
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset
from torchvision import transforms as v1

import hotset
from hotset.errors import ConfigError
from hotset.placement.plan import Plan
from hotset.placement.policy import RAGGED_POLICY
from hotset.testing import SimulatedAccelerator
from tests.streams import MEAN, STD, Pictures, stream

IMAGE_BYTES = 3 * 8 * 8 + 8
"""A picture as the dataset gives it, with its label."""


def mirrored(image: Tensor) -> Tensor:
    """No elementwise step: it cannot be made a table."""
    return image.flip(-1)


@hotset.random
def jittered(image: Any) -> Any:
    """No batched form: it is run per sample."""
    return image * torch.rand(())


STEPS: dict[str, Any] = {
    "resize": v1.Resize((12, 12)),
    "shrink": v1.Resize((4, 4)),
    "flip": v1.RandomHorizontalFlip(),
    "pad": v1.Pad(2),
    "jitter": v1.ColorJitter(0.5),
}
TAILS: dict[str, Any] = {
    "mirror": mirrored,
    "normalize": v1.Normalize(MEAN, STD),
    "noise": jittered,
    "flip": v1.RandomHorizontalFlip(),
}


def agreed(data: Any, **options: Any) -> Plan:
    """The plan, found to be what the loader does."""
    loader = DataLoader(data, 4)
    planned = hotset.plan(loader, device="cpu", samples=2, **options)
    done = hotset.accelerate(loader, device="cpu", **options).plan
    actions = [(d.step, d.action) for d in planned.decisions]
    assert actions == [(d.step, d.action) for d in done.decisions]
    assert (planned.tier, planned.samples) == (done.tier, done.samples)
    assert planned.bytes_held == done.bytes_held
    assert planned.kernel == done.kernel
    chosen = [cut for cut in planned.cuts if cut.is_chosen]
    assert [cut.nbytes for cut in chosen] == ([] if done.tier == "source" else [done.bytes_held])
    if chosen:
        once = sum(action == "once" for _, action in actions)
        assert chosen[0].position == once - 1
    assert all(cut.reason for cut in planned.cuts)
    return planned


@hypothesis.given(
    heads=st.lists(st.sampled_from(sorted(STEPS)), max_size=3),
    tails=st.lists(st.sampled_from(sorted(TAILS)), max_size=3),
    budget=st.sampled_from([None, 0, 500, 10 * IMAGE_BYTES, 20_000, "1GB"]),
)
@hypothesis.settings(max_examples=40)
def test_the_plan_is_what_is_done(
    heads: list[str], tails: list[str], budget: int | str | None
) -> None:
    """Steps, tier and bytes, for chains and budgets of any kind."""
    chain = [*(STEPS[name] for name in heads), v1.ToTensor(), *(TAILS[name] for name in tails)]
    agreed(Pictures(10, v1.Compose(chain)), budget=budget)


def test_an_earlier_cut_is_taken_where_only_it_has_room() -> None:
    """Bytes before a step that is no table, where floats behind it have no room; batches agree."""
    chain = v1.Compose([v1.ToTensor(), mirrored, v1.RandomHorizontalFlip()])
    data = Pictures(10, chain)
    floats = 10 * (4 * 3 * 8 * 8 + 8)
    plan = agreed(data, budget=floats)
    assert [d.action for d in plan.decisions] == ["once", "once", "once", "batch"]
    plan = agreed(data, budget=floats - 1)
    assert [d.action for d in plan.decisions] == ["once", "worker", "worker", "worker"]
    assert plan.decisions[1].reason == (
        "per sample, since mirrored acts on tensor (3, 8, 8) float32, which is no image of bytes"
    )
    assert plan.notes[0] == (
        "kept as Pictures gives them, 2.0 KB: there is no room for 7.8 KB, as they are behind step "
        "1, mirrored"
    )
    assert plan.cuts[2].reason == "7.8 KB exceed the budget: 7.8 KB in host memory"
    assert agreed(data, budget=10 * IMAGE_BYTES - 1).tier == "source"


@pytest.mark.parametrize("budget", [20_000, 5000, 2500, 1000, {"device": 900, "host": 1000}])
@pytest.mark.parametrize("tail", [[], [v1.RandomHorizontalFlip()], [jittered], [mirrored]])
@pytest.mark.parametrize("batch_size", [3, 8])
def test_the_plan_for_a_device_is_what_is_done(
    budget: Any, tail: list[Any], batch_size: int
) -> None:
    """Tier, samples that it keeps, where the others lie, and the policy; nothing is placed."""
    data = Pictures(24, v1.Compose([v1.ToTensor(), *tail]))
    loader = DataLoader(data, batch_size, shuffle=True)
    device = SimulatedAccelerator("1MB", bandwidth="1MB")
    planned = hotset.plan(loader, device=device, budget=budget, samples=2)
    assert (device.allocations, device.bytes_copied) == (0, 0)
    done = hotset.accelerate(loader, device=device, budget=budget).plan
    for name in ("tier", "cached", "rest", "policy", "device", "samples", "bytes_held", "kernel"):
        assert getattr(planned, name) == getattr(done, name), name
    assert [d.action for d in planned.decisions] == [d.action for d in done.decisions]


LENGTHS = [torch.arange(float(3 + number % 5)) for number in range(50)]
"""Samples that differ in length, of ten bytes and labels beside them."""
RAGGED = {"t": LENGTHS, "y": torch.arange(50)}


@pytest.mark.parametrize("ragged", ["pad", "jagged", {"t": hotset.Padded(max_length=4)}])
@pytest.mark.parametrize("storage_dtype", [None, torch.float16, {"t": torch.bfloat16}])
def test_ragged_arrays_are_planned_as_a_loader_takes_them(ragged: Any, storage_dtype: Any) -> None:
    """Bytes, tier, what executes it, and how the field comes out; a step gets such batches."""
    options: dict[str, Any] = {"ragged": ragged, "storage_dtype": storage_dtype, "device": "cpu"}
    seen: list[Any] = []
    planned = hotset.plan(RAGGED, batch_size=10, step=seen.append, samples=3, **options)
    loader = hotset.Loader(RAGGED, 10, **options)
    done = loader.plan
    for name in ("tier", "cached", "rest", "policy", "samples", "bytes_held", "kernel"):
        assert getattr(planned, name) == getattr(done, name), name
    assert done.notes[-1] in planned.notes
    assert "samples differ in size: bytes are about those of 4" in planned.notes
    (batch,) = (batch for number, batch in enumerate(loader) if number == 0)
    assert seen[0]["t"].is_nested == batch["t"].is_nested
    assert seen[0]["t"].ndim == batch["t"].ndim == 2
    assert seen[0]["t"].dtype == batch["t"].dtype == torch.float32


def test_ragged_samples_of_which_a_part_lies_on_the_device_stay() -> None:
    """The policy is static, for one reason; how many have room is an estimate, and said to be."""
    device = SimulatedAccelerator("1MB", bandwidth="1MB")
    options: dict[str, Any] = {"ragged": "pad", "budget": {"device": 900, "host": "1MB"}}
    plan = hotset.plan(RAGGED, batch_size=5, device=device, **options)
    assert (plan.tier, plan.policy) == ("mixed", RAGGED_POLICY)
    assert (
        "samples differ in size: bytes are about those of 4, and about "
        f"{plan.cached} will have room on {device.name}"
    ) in plan.notes
    for ask in (hotset.plan, hotset.Loader):
        with pytest.raises(ConfigError, match="policy='lru' exchanges samples on the device, whi"):
            ask(RAGGED, batch_size=5, device=device, policy="lru", **options)


def test_images_of_differing_size_stay_too() -> None:
    """Where they are resized in batches."""

    class Grown(Pictures):
        def __getitem__(self, index: int) -> Any:
            image, label = Pictures(24, None, size=(8, 8 + index % 3))[index]
            return self.transform(image), label

    chain = v1.Compose([v1.RandomResizedCrop(6), v1.ToTensor()])
    device = SimulatedAccelerator("1MB", bandwidth="1MB")
    loader = DataLoader(Grown(24, chain), 2, shuffle=True)
    plan = hotset.plan(loader, device=device, budget={"device": 3500, "host": "1MB"})
    assert (plan.tier, plan.policy) == ("mixed", RAGGED_POLICY)


@pytest.mark.parametrize("storage_dtype", [torch.float16, torch.float32])
def test_bytes_follow_the_dtype_that_samples_are_kept_in(storage_dtype: torch.dtype) -> None:
    """Also those of a tier, and of each cut."""
    data = (torch.rand(40, 6, dtype=torch.float64), torch.arange(40))
    nbytes = 40 * (6 * storage_dtype.itemsize + 8)
    options: dict[str, Any] = {"storage_dtype": storage_dtype}
    planned = hotset.plan(data, device="cpu", **options)
    done = hotset.Loader(data, 8, device="cpu", **options).plan
    assert planned.bytes_held == done.bytes_held == planned.cuts[0].nbytes == nbytes
    device = SimulatedAccelerator("1MB", bandwidth="1MB")
    for budget, tier in ((nbytes, "device"), (nbytes - 1, "mixed")):
        options = {**options, "device": device, "budget": {"device": budget, "host": "1MB"}}
        found = hotset.plan(data, batch_size=2, **options)
        assert found.tier == hotset.Loader(data, 2, **options).plan.tier == tier
    loader = DataLoader(TensorDataset(*data), 8)
    assert hotset.plan(loader, storage_dtype=storage_dtype).bytes_held == nbytes


def test_a_dtype_without_effect_is_said() -> None:
    """As in a loader's plan; and where nothing is kept at all."""
    data = (torch.arange(8), torch.arange(8))
    planned = hotset.plan(data, device="cpu", storage_dtype=torch.float16)
    done = hotset.Loader(data, 8, device="cpu", storage_dtype=torch.float16).plan
    (note,) = (note for note in done.notes if "storage_dtype" in note)
    assert note in planned.notes
    none = hotset.plan(
        DataLoader(Pictures(8, v1.ToTensor())), device="cpu", budget=0, storage_dtype=torch.float16
    )
    assert "storage_dtype has nothing to act on: nothing is kept" in none.notes


@pytest.mark.parametrize("field", [None, "x"])
def test_a_transform_is_planned_as_a_loader_takes_it(field: str | None) -> None:
    """On the first field of arrays, or a named one."""
    images = torch.zeros(20, 3, 8, 8, dtype=torch.uint8)
    chain: Any = [v1.RandomHorizontalFlip(), v1.ConvertImageDtype(torch.float32)]
    data: Any = (images, torch.arange(20))
    if field is not None:
        data, chain = {"y": torch.arange(20), field: images}, {field: chain}
    planned = hotset.plan(data, device="cpu", transform=chain)
    done = hotset.Loader(data, 8, device="cpu", transform=chain).plan
    assert planned.decisions == done.decisions
    assert len(planned.cuts) == 3
    assert (planned.bytes_held, planned.kernel) == (done.bytes_held, done.kernel)


def test_a_dataset_may_have_a_further_transform() -> None:
    """Behind its own."""
    data, more = Pictures(10, v1.ToTensor()), [mirrored, jittered]
    planned = hotset.plan(data, device="cpu", transform=more)
    assert planned.decisions == hotset.Loader(data, 8, device="cpu", transform=more).plan.decisions
    assert [cut.behind for cut in planned.cuts][-2:] == ["mirrored", "jittered"]


@pytest.mark.parametrize("given", [{"transform": mirrored}, {"ragged": "pad"}])
def test_a_loader_has_neither_transform_nor_ragged(given: dict[str, Any]) -> None:
    """`accelerate` takes none."""
    (name,) = given
    with pytest.raises(ConfigError, match=f"`{name}` is for datasets and arrays, as in hotset.Lo"):
        hotset.plan(DataLoader(Pictures(4, v1.ToTensor())), device="cpu", **given)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"ragged": "fill"}, "`ragged` must be 'pad', 'jagged' or hotset"),
        ({"ragged": {"z": "pad"}}, "`ragged` names the field 'z'; samples have"),
        ({"ragged": {"t": "pad", "y": "pad"}}, "only tensors and arrays with an axis can be padd"),
        ({"ragged": "pad", "storage_dtype": torch.int8}, "`storage_dtype` must be torch.float16"),
        ({"ragged": "pad", "storage_dtype": {"z": torch.float16}}, "names the field 'z'; the data"),
        ({"ragged": "pad", "transform": mirrored}, "for a dictionary, `transform` must be"),
    ],
)
def test_a_plan_refuses_what_a_loader_refuses(options: dict[str, Any], words: str) -> None:
    """In the same words."""
    for ask in (hotset.plan, hotset.Loader):
        with pytest.raises(ConfigError, match=words):
            ask(RAGGED, batch_size=4, device="cpu", **options)


def test_a_store_that_is_there_needs_no_room(tmp_path: Path) -> None:
    """A disk budget is for what is still to be written."""
    data = Pictures(10, v1.Compose([v1.ToTensor(), mirrored, jittered]))
    loader = DataLoader(data, 4)
    options: dict[str, Any] = {"device": "cpu", "cache": tmp_path / "stores"}
    first = hotset.accelerate(loader, **options).plan
    budget = {"disk": 10 * IMAGE_BYTES}
    planned = hotset.plan(loader, budget=budget, **options)
    again = hotset.accelerate(loader, budget=budget, **options).plan
    assert first.bytes_held == planned.bytes_held == again.bytes_held == 10 * (4 * 192 + 8)
    assert [d.action for d in planned.decisions] == [d.action for d in again.decisions]


@pytest.mark.parametrize("workers", [0, 1])
def test_batches_of_an_earlier_cut_are_the_same(workers: int) -> None:
    """Of a deterministic chain, bit for bit."""
    data = Pictures(10, v1.Compose([v1.ToTensor(), mirrored, v1.Pad(1)]))

    def loader() -> DataLoader[Any]:
        return DataLoader(data, 4, shuffle=True, num_workers=workers)

    wanted, _ = stream(loader(), seed=3)
    fast = hotset.accelerate(loader(), device="cpu", budget=10 * IMAGE_BYTES)
    assert fast.plan.bytes_held == 10 * IMAGE_BYTES
    found, _ = stream(fast, seed=3)
    for (images, labels), (own_images, own_labels) in zip(found[0], wanted[0], strict=True):
        assert torch.equal(images, own_images)
        assert torch.equal(labels, own_labels)


def test_a_state_holds_for_another_cut() -> None:
    """Less room on the machine that goes on changes the cut, and neither order nor samples."""
    data = Pictures(10, v1.Compose([v1.ToTensor(), mirrored, jittered]))

    def loader(budget: int | None) -> hotset.Loader:
        plain = DataLoader(data, 4, shuffle=True)
        return hotset.accelerate(plain, device="cpu", budget=budget)

    torch.manual_seed(5)
    first = loader(None)
    batches = iter(first)
    next(batches)
    state = first.state_dict()
    wanted = list(batches)
    second = loader(10 * IMAGE_BYTES)
    assert second.plan.bytes_held < first.plan.bytes_held
    second.load_state_dict(state)
    found = list(second)
    assert len(found) == len(wanted) == 2
    for (images, labels), (own_images, own_labels) in zip(found, wanted, strict=True):
        assert torch.equal(images, own_images)
        assert torch.equal(labels, own_labels)


def test_an_earlier_cut_is_stored_where_only_it_has_room(tmp_path: Path) -> None:
    """A disk budget counts for the store that a cache keeps."""
    data = Pictures(10, v1.Compose([v1.ToTensor(), mirrored, jittered]))
    options: dict[str, Any] = {"cache": tmp_path / "stores", "version": "1"}
    loader = DataLoader(data, 4)
    budget = {"disk": 10 * IMAGE_BYTES}
    plan = hotset.plan(loader, device="cpu", cache=tmp_path / "stores", budget=budget)
    assert not (tmp_path / "stores").exists()
    assert [cut.is_chosen for cut in plan.cuts] == [True, False, False, False]
    assert plan.cuts[2].reason == (
        "7.8 KB exceed the budget of 2.0 KB on disk, where a `cache` keeps them"
    )
    done = hotset.accelerate(loader, device="cpu", budget=budget, **options).plan
    assert (done.tier, done.bytes_held) == (plan.tier, plan.bytes_held) == ("disk", 2000)
    assert [d.action for d in done.decisions] == [d.action for d in plan.decisions]


def test_a_tier_that_is_asked_for_is_had_by_an_earlier_cut() -> None:
    """Where the preferred one has no room in it; an error where none has."""
    data = Pictures(10, v1.Compose([v1.ToTensor(), mirrored, jittered]))
    assert agreed(data, tier="device", budget=10 * IMAGE_BYTES).bytes_held == 2000
    for ask in (hotset.plan, hotset.accelerate):
        with pytest.raises(ConfigError, match=r"tier='device' cannot be had: 7\.8 KB exceed"):
            ask(DataLoader(data, 4), device="cpu", tier="device", budget=10)


@pytest.mark.parametrize("ragged", ["pad", {"x": "pad"}])
def test_lists_of_one_length_are_what_they_are_for_loaders(ragged: Any) -> None:
    """One field of four samples, though four fields of four samples would do as well."""
    data = {"x": [torch.arange(4) + number for number in range(4)], "y": torch.arange(4)}
    loader = hotset.Loader(data, 2, ragged=ragged, device="cpu")
    plan = hotset.plan(data, ragged=ragged, batch_size=2, device="cpu")
    assert (plan.samples, plan.bytes_held) == (loader.plan.samples, loader.plan.bytes_held)
    assert plan.bytes_held == 4 * (4 + 1) * 8
    alone = hotset.plan({"x": data["x"]}, ragged="pad", batch_size=2, device="cpu")
    assert (
        alone.bytes_held
        == hotset.Loader({"x": data["x"]}, 2, ragged="pad", device="cpu").plan.bytes_held
    )
