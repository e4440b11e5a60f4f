"""The spot check: batches are compared with the user's own chain, and a difference is named."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader, default_collate
from torchvision import transforms as v1
from torchvision.transforms import v2

import hotset
from hotset.errors import FaithfulnessError
from hotset.loader.check import CheckedPipeline, SpotCheck
from tests import streams
from tests.streams import Pictures, assert_same

BATCHED = v1.Compose([v1.RandomCrop(8, padding=2), v1.RandomHorizontalFlip(), v1.ToTensor()])
WORKER = v1.Compose([v1.ColorJitter(0.4), v1.ToTensor()])
ADVICE = "mark it with @hotset.random; if the dataset changes over time, it cannot be kept"


def check_of(loader: hotset.Loader) -> SpotCheck:
    """The spot check inside a loader."""
    pipeline: Any = loader._parts.pipeline
    while not isinstance(pipeline, CheckedPipeline):
        pipeline = pipeline._inner
    return pipeline._check


class Changing(Pictures):
    """A dataset of which one image can be exchanged."""

    changed: int | None = None

    def __getitem__(self, index: int) -> Any:
        image: Any = streams.picture(index + (100 if index == self.changed else 0))
        if self.transform is not None:
            image = self.transform(image)
        return image, index + (1 if index == self.changed else 0)


@pytest.mark.parametrize(
    ("chain", "where"),
    [
        (BATCHED, r" in what was kept of it \(the dataset itself\): "),
        (v1.ToTensor(), r" in what was kept of it \(the dataset itself\): "),
        (WORKER, r" in what was kept of it: "),
    ],
)
def test_a_dataset_that_changes_is_caught(chain: Any, where: str) -> None:
    """The index is named, the value that differs, and what may be the cause."""
    dataset = Changing(12, chain)
    fast = hotset.accelerate(DataLoader(dataset, 4), device="cpu", check_every=1)
    dataset.changed = 6
    with pytest.raises(
        FaithfulnessError,
        match=f"sample 6 of Changing differs from what your own chain gives{where}.*{ADVICE}",
    ):
        list(fast)


class ChangingLabel(Pictures):
    """A dataset of which one label can be exchanged."""

    changed: int | None = None

    def __getitem__(self, index: int) -> Any:
        image, label = super().__getitem__(index)
        return image, 77 if index == self.changed else label


@pytest.mark.parametrize("chain", [BATCHED, v1.ToTensor(), WORKER])
def test_another_leaf_that_changes_is_named_by_its_path(chain: Any) -> None:
    """A label, say."""
    dataset = ChangingLabel(12, chain)
    fast = hotset.accelerate(DataLoader(dataset, 4), device="cpu", check_every=1)
    dataset.changed = 3
    message = r"sample 3 of ChangingLabel differs .* at sample\[1\]: 3, expected 77"
    with pytest.raises(FaithfulnessError, match=message):
        list(fast)


class Unsteady:
    """Claims to be deterministic, and is while it is probed."""

    drift = 0.0

    def __call__(self, values: Tensor) -> Tensor:
        return values + self.drift


@pytest.mark.parametrize("is_random", [False, True])
def test_a_lying_marker_is_caught(is_random: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """@hotset.deterministic on what changes later: before the cut, and in a table behind it."""
    steps = [v1.RandomHorizontalFlip()] if is_random else []
    chain = v1.Compose([*steps, v1.ToTensor(), hotset.deterministic(Unsteady())])
    fast = hotset.accelerate(DataLoader(Pictures(12, chain), 4), device="cpu", check_every=1)
    assert len(list(fast)) == 3
    fast = hotset.accelerate(DataLoader(Pictures(12, chain), 4), device="cpu", check_every=5)
    iterator = iter(fast)
    next(iterator)
    monkeypatch.setattr(Unsteady, "drift", 1.0)
    with pytest.raises(FaithfulnessError, match="sample 5 of Pictures differs"):
        next(iterator)


def sabotage(monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    """Makes the kernel write a wrong value into one sample's place in the batch."""
    from hotset.kernels.dispatch import NumbaEngine

    original = NumbaEngine._batches

    def wrong(self: Any, threads: Any, source: Tensor, rows: Tensor, draws: Any, sizes: Any) -> Any:
        outs = original(self, threads, source, rows, draws, sizes)
        for out, ids in zip(outs, draws.ids.split(list(sizes)), strict=True):
            for place in (ids == at).nonzero().flatten().tolist():
                out[place, 1, 2, 3] += 1
        return outs

    monkeypatch.setattr(NumbaEngine, "_batches", wrong)


@pytest.mark.parametrize(
    "chain",
    [
        v1.ToTensor(),
        BATCHED,
        v1.Compose([BATCHED, v1.Normalize(0.5, 0.25), v1.RandomErasing(p=1.0)]),
        v2.Compose([v2.RandomApply([v2.Pad(0), v2.RandomVerticalFlip(1.0)]), v2.ToImage()]),
    ],
)
def test_a_sabotaged_kernel_is_caught_and_blamed(
    chain: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The operations, replayed one by one, agree with the user's steps: so it is the kernel."""
    sabotage(monkeypatch, at=5)
    fast = hotset.accelerate(DataLoader(Pictures(12, chain), 4), device="cpu", check_every=1)
    with pytest.raises(
        FaithfulnessError,
        match=r"sample 5 of Pictures differs .* in the fused kernel: .*, at \(1, 2, 3\)",
    ):
        list(fast)


def test_a_wrong_operation_is_blamed_on_its_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reference itself differs from torchvision: the step is named."""
    from hotset.ops.geometry import Flip

    monkeypatch.setattr(Flip, "apply", lambda self, images, params: images.flip(-2))
    chain = v1.Compose([v1.RandomCrop(8, padding=2), v1.RandomHorizontalFlip(1.0), v1.ToTensor()])
    fast = hotset.accelerate(DataLoader(Pictures(12, chain), 4), device="cpu", check_every=1)
    sabotage(monkeypatch, at=0)
    with pytest.raises(FaithfulnessError, match=r"sample 0 .* at the step RandomHorizontalFlip: "):
        list(fast)


def test_nothing_is_checked_with_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then a wrong kernel goes unnoticed, and no sample is made again."""
    sabotage(monkeypatch, at=5)
    calls = []
    original = Pictures.__getitem__
    monkeypatch.setattr(
        Pictures, "__getitem__", lambda self, i: (calls.append(i), original(self, i))[1]
    )
    fast = hotset.accelerate(DataLoader(Pictures(12, BATCHED), 4), device="cpu", check_every=0)
    calls.clear()
    assert len(list(fast)) == 3
    assert calls == []


@pytest.mark.parametrize("chain", [BATCHED, v1.ToTensor(), WORKER])
@pytest.mark.parametrize("size", [1, 3, 4, 25])
@pytest.mark.parametrize("every", [1, 2, 7, 25, 1000])
def test_the_number_of_samples_checked(chain: Any, size: int, every: int) -> None:
    """One in so many, whatever the batches; in the first epoch only."""
    fast = hotset.accelerate(DataLoader(Pictures(25, chain), size), device="cpu", check_every=every)
    check = check_of(fast)
    assert check.checked == 0
    list(fast)
    assert check.checked == -(-25 // every)
    list(fast)
    assert check.checked == -(-25 // every)


def test_one_in_a_thousand_is_the_default() -> None:
    """For `accelerate` and for `Loader`."""
    data = (torch.zeros(2500, 1, 1, 1), torch.arange(2500))
    loader = hotset.Loader(data, 100, device="cpu")
    list(loader)
    assert check_of(loader).checked == 3


def test_a_resumed_epoch_goes_on_checking_where_it_was() -> None:
    """Positions count from the beginning of the epoch."""

    def make() -> hotset.Loader:
        return hotset.Loader(Pictures(25, BATCHED), 4, seed=0, device="cpu", check_every=10)

    first, second = make(), make()
    iterator = iter(first)
    for _ in range(3):
        next(iterator)
    assert check_of(first).checked == 2
    second.load_state_dict(first.state_dict())
    list(second)
    assert check_of(second).checked == 1


def test_checked_samples_are_the_users_own_results() -> None:
    """Every sample of a random chain equals torchvision's result for the same draws."""
    chain = v1.Compose(
        [
            v1.RandomCrop(9, padding=3, padding_mode="reflect"),
            v1.RandomApply([v1.RandomHorizontalFlip(0.7), v1.RandomVerticalFlip()], 0.5),
            v1.ToTensor(),
            v1.RandomErasing(p=0.7),
        ]
    )
    fast = hotset.accelerate(DataLoader(Pictures(60, chain), 16), device="cpu", check_every=1)
    list(fast)
    assert check_of(fast).checked == 60


def test_deterministic_leaves_are_compared_bit_for_bit() -> None:
    """The check's idea of a batch is `default_collate`'s."""
    dataset = Pictures(6, v1.ToTensor(), "nested")
    fast = hotset.accelerate(DataLoader(dataset, 6), device="cpu", check_every=1)
    assert_same(next(iter(fast)), default_collate([dataset[i] for i in range(6)]))
    assert check_of(fast).checked == 6


class MixedNumbers(Pictures):
    """Labels that are whole numbers or not, as Python gives them."""

    def __getitem__(self, index: int) -> Any:
        dtype = torch.int64 if index % 2 else torch.int32
        return 0.5 if index == 7 else index, torch.tensor(index, dtype=dtype)


def test_numbers_that_a_batch_promotes_are_no_difference() -> None:
    """`default_collate` makes one dtype of mixed numbers, batch by batch."""
    loader = DataLoader(MixedNumbers(30), 4)
    fast = hotset.accelerate(loader, device="cpu", check_every=1)
    assert_same(list(fast), list(loader))


def test_checking_leaves_generators_alone() -> None:
    """The user's chain draws while it is compared; the states are put back."""
    fast = hotset.accelerate(DataLoader(Pictures(12, WORKER), 4), device="cpu", check_every=1)
    iterator = iter(fast)
    next(iterator)
    before = torch.get_rng_state()
    next(iterator)
    assert torch.equal(torch.get_rng_state(), before)
