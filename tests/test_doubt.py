"""What cannot be known to be deterministic is never kept: datasets that mislead the few probes."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms as v1

import hotset
from hotset.errors import ConfigError, FaithfulnessError, SampleError

COUNT = 400
IMAGES = torch.randint(
    0, 256, (COUNT, 3, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)
)


class Plain(Dataset[Any]):
    """Images under a transform, by the usual convention."""

    def __init__(self, transform: Any) -> None:
        self.transform = transform

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> Any:
        return self.transform(IMAGES[index]), index


class AllButSome(Plain):
    """A few samples, none of them probed, are exempt from the transform."""

    def __getitem__(self, index: int) -> Any:
        image = IMAGES[index]
        return (image if index % 20 == 7 else self.transform(image)), index


class OnlySome(Plain):
    """Only a few samples, none of them probed, are transformed."""

    def __getitem__(self, index: int) -> Any:
        image = IMAGES[index]
        return (self.transform(image) if index % 20 == 7 else image), index


class Retrying(Plain):
    """Gives another sample, drawn at random, in place of a damaged one."""

    def __getitem__(self, index: int) -> Any:
        if index % 97 == 5:
            return self[random.randrange(COUNT)]
        return IMAGES[index], index


class Named(Plain):
    """Calls its transform as albumentations is called."""

    def __getitem__(self, index: int) -> Any:
        return self.transform(image=IMAGES[index])["image"], index


class Choosy(Plain):
    """Insists on the class of its transform."""

    def __getitem__(self, index: int) -> Any:
        assert isinstance(self.transform, v1.Compose)
        return self.transform(IMAGES[index]), index


def brighten(image: Tensor) -> dict[str, Tensor]:
    """A transform of albumentations' kind."""
    return {"image": image + 1}


def accelerated(dataset: Plain, **settings: Any) -> hotset.Loader:
    """A loader made of a plain one with one batch."""
    settings = {"batch_size": COUNT, **settings}
    return hotset.accelerate(DataLoader(dataset, **settings), device="cpu")


def images_of(loader: hotset.Loader) -> Tensor:
    """The first batch's images."""
    return next(iter(loader))[0]


@pytest.mark.parametrize("workers", [0, 2])
def test_samples_exempt_from_the_transform_stay_exempt(
    workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fill sees that a sample does not show the transform's result, and nothing is kept."""
    monkeypatch.setattr("hotset.sources.sweep.WORKERS_PAY_SECONDS", 0.0)
    fast = accelerated(AllButSome(v1.RandomHorizontalFlip(1.0)), num_workers=workers)
    expected = IMAGES.flip(-1)
    expected[7::20] = IMAGES[7::20]
    assert torch.equal(torch.cat([images for images, _ in fast]), expected)
    assert fast.plan.tier == "source"
    assert "not applied once to every sample, as at index 7" in str(fast.plan)


def test_a_random_transform_of_a_few_samples_is_not_frozen() -> None:
    """A transform known to be random, in whatever use, bars keeping the dataset's results."""
    fast = accelerated(OnlySome(v1.RandomHorizontalFlip()))
    first, second = images_of(fast), images_of(fast)
    changed = (first != second).flatten(1).any(1).nonzero().flatten()
    assert len(changed) > 0
    assert all(int(index) % 20 == 7 for index in changed)
    assert "RandomHorizontalFlip is random" in str(fast.plan)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    "dataset",
    [
        Retrying(None),
        Plain(lambda image: image.float() + (torch.rand(()) if image[0, 0, 0] > 240 else 0)),
    ],
    ids=["retries", "rare branch"],
)
def test_rare_draws_are_seen_when_all_is_read(
    dataset: Plain, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Probes miss what is drawn for a few samples; a generator that moves in the fill does not."""
    monkeypatch.setattr("hotset.sources.sweep.WORKERS_PAY_SECONDS", 0.0)
    state = torch.get_rng_state(), random.getstate()
    fast = accelerated(dataset, num_workers=workers, multiprocessing_context=_fork(workers))
    assert torch.equal(torch.get_rng_state(), state[0])
    assert random.getstate() == state[1]
    assert fast.plan.tier == "source"
    assert "a random generator moved while its samples were read" in str(fast.plan)


def _fork(workers: int) -> str | None:
    return "fork" if workers else None  # a lambda does not travel otherwise


@pytest.mark.parametrize(
    ("dataset", "expected"),
    [
        (Named(brighten), IMAGES + 1),
        (Choosy(v1.Compose([v1.RandomHorizontalFlip(1.0)])), IMAGES.flip(-1)),
    ],
    ids=["keyword call", "isinstance"],
)
def test_a_dataset_that_asks_more_of_its_transform_works(dataset: Plain, expected: Tensor) -> None:
    """Where the transform cannot be exchanged, the dataset is taken as a whole."""
    assert torch.equal(images_of(accelerated(dataset)), expected)


def test_a_result_within_a_graph_is_not_kept() -> None:
    """A module with weights as a transform gives tensors that carry gradients, as in the loader."""
    convolution = torch.nn.Conv2d(3, 3, 1)
    chain = v1.Compose([v1.ConvertImageDtype(torch.float32), convolution])
    fast = accelerated(Plain(chain), batch_size=50)
    assert images_of(fast).requires_grad
    assert "carries gradients" in str(fast.plan) or "random" in str(fast.plan)


def _other_parameter(dataset: Plain) -> None:
    dataset.transform.transforms[0].p = 1.0


def _other_transform(dataset: Plain) -> None:
    dataset.transform = v1.ConvertImageDtype(torch.float32)


def _further_step(dataset: Plain) -> None:
    dataset.transform.transforms.append(v1.RandomVerticalFlip())


@pytest.mark.parametrize("change", [_other_parameter, _other_transform, _further_step])
def test_a_transform_changed_afterwards_is_noticed(change: Callable[[Plain], None]) -> None:
    """A loader that keeps what the old transform gave does not go on in silence."""
    dataset = Plain(v1.Compose([v1.RandomHorizontalFlip(0.0)]))
    fast = accelerated(dataset)
    list(fast)
    change(dataset)
    with pytest.raises(FaithfulnessError, match="transforms were changed since"):
        iter(fast)


class Methodical(Plain):
    """Its transform is a method, a new object whenever it is asked for."""

    def __init__(self) -> None:
        pass

    def transform(self, image: Tensor) -> Tensor:
        """Deterministic."""
        return image + 2


def test_a_transform_that_is_a_method_is_no_change() -> None:
    """Bound methods are new objects every time; epochs go on."""
    fast = accelerated(Methodical())
    assert torch.equal(images_of(fast), IMAGES + 2)
    assert torch.equal(images_of(fast), IMAGES + 2)


@pytest.mark.parametrize(
    ("transform", "match"),
    [(3, "must be callable or a list of callables, got 3"), (v1.ToTensor, "class ToTensor; make")],
)
def test_what_is_no_transform_is_refused(transform: Any, match: str) -> None:
    """Numbers, and classes without their parentheses, are named as such."""
    with pytest.raises(ConfigError, match=match):
        hotset.Loader((IMAGES, torch.arange(COUNT)), transform=transform, device="cpu")
    with pytest.raises(ConfigError, match=match):
        hotset.CachedDataset(IMAGES, pre_transform=transform, device="cpu")


def test_a_step_that_raises_is_named() -> None:
    """The step and the samples looked at stand in the message; the cause is chained."""
    with pytest.raises(SampleError, match=r"step 0 of the transform, <lambda>, failed") as caught:
        hotset.Loader(IMAGES, transform=lambda image: 1 / 0, device="cpu")
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


@pytest.mark.parametrize("mark", [hotset.deterministic, hotset.random])
def test_what_cannot_bear_a_mark_is_refused(mark: Callable[[Any], Any]) -> None:
    """Builtins have no room for a marker."""
    with pytest.raises(ConfigError, match="cannot be marked"):
        mark(len)
