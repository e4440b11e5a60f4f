"""What is random and unknown runs per sample: the same for any number of workers, and untangled."""

from __future__ import annotations

import itertools
import random
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader
from torchvision import transforms as v1
from torchvision.transforms import v2

import hotset
from tests import streams
from tests.streams import Pictures, assert_same, stream


def numpy_noise(values: Tensor) -> Tensor:
    """Draws from NumPy's global generator, which forked workers share the state of."""
    return values + float(np.random.rand())


def python_noise(values: Tensor) -> Tensor:
    """Draws from Python's."""
    return values + random.random()


def torch_noise(values: Tensor) -> Tensor:
    """Draws from torch's."""
    return values + torch.rand(())


CHAINS = {
    "jitter": v1.Compose([v1.Resize(6), v1.ColorJitter(0.4, 0.4), v1.ToTensor()]),
    "numpy": v1.Compose([v1.ToTensor(), v1.Lambda(numpy_noise)]),
    "python": v1.Compose([v1.ToTensor(), python_noise]),
    "torch": v1.Compose([v1.ToTensor(), torch_noise, v1.Normalize(0.5, 0.5)]),
    "moved": v1.Compose([v1.RandomAffine(60, (0.3, 0.3)), v1.ToTensor()]),
    "v2": v2.Compose([v2.ToImage(), v2.RandomRotation(30), v2.ToDtype(torch.float32, scale=True)]),
    "noisy erasing": v1.Compose([v1.ToTensor(), v1.RandomErasing(p=1.0, value="random")]),
}


def accelerated(chain: Any, workers: int, **options: Any) -> hotset.Loader:
    """A loader over twelve pictures, shuffled."""
    dataset = Pictures(12, chain, options.pop("form", "pair"))
    loader = DataLoader(dataset, 4, shuffle=True, num_workers=workers, **options)
    return hotset.accelerate(loader, device="cpu", check_every=3)


@pytest.mark.parametrize("chain", CHAINS)
def test_the_same_batches_for_any_number_of_workers(chain: str) -> None:
    """0, 1 and 2 processes: bit for bit, over two epochs that differ."""
    results = [
        stream(accelerated(CHAINS[chain], workers), epochs=2, seed=1)[0] for workers in (0, 1, 2)
    ]
    assert_same(results[1], results[0])
    assert_same(results[2], results[0])
    images = [dict(zip(y.tolist(), x, strict=True)) for x, y in itertools.chain(*results[0])]
    first, second = ({k: v for part in images[a : a + 3] for k, v in part.items()} for a in (0, 3))
    assert sum(torch.equal(first[index], second[index]) for index in first) < 3
    plan = accelerated(CHAINS[chain], 0).plan
    assert "worker" in [decision.action for decision in plan.decisions]


@pytest.mark.parametrize("chain", ["numpy", "python", "torch"])
@pytest.mark.parametrize("workers", [0, 2])
def test_workers_do_not_repeat_each_others_draws(chain: str, workers: int) -> None:
    """Every sample of every epoch has noise of its own: NumPy's trap cannot happen."""
    dataset = Pictures(12, CHAINS[chain])
    plain = torch.stack([v1.functional.to_tensor(streams.picture(i)) for i in range(12)])
    if chain == "torch":
        plain = plain * 2 - 1
    loader = hotset.Loader(dataset, 4, device="cpu", num_workers=workers, seed=0)
    noise = [
        round(float((x[row] - plain[index]).mean()), 5)
        for _ in range(3)
        for x, y in loader
        for row, index in enumerate(y.tolist())
    ]
    assert len(noise) == 36
    assert len(set(noise)) == 36


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("chain", CHAINS)
def test_global_generators_are_untouched(chain: str, workers: int) -> None:
    """Whatever the user's callables draw from, between batches and behind the epoch."""
    fast = accelerated(CHAINS[chain], workers)
    random.seed(1)
    np.random.seed(1)
    torch.manual_seed(1)
    iterator = iter(fast)
    next(iterator)
    before = random.getstate(), np.random.get_state()[1].tobytes(), torch.get_rng_state()
    for _ in iterator:
        now = random.getstate(), np.random.get_state()[1].tobytes(), torch.get_rng_state()
        assert now[:2] == before[:2]
        assert torch.equal(now[2], before[2])


def test_the_deterministic_prefix_runs_once() -> None:
    """Only what stands behind the first unknown random step is run again."""
    calls = {"first": 0, "second": 0}

    def first(image: Any) -> Any:
        calls["first"] += 1
        return image

    def second(image: Any) -> Any:
        calls["second"] += 1
        return v1.functional.adjust_brightness(image, 0.5 + random.random())

    chain = v1.Compose([first, second, v1.ToTensor()])
    loader = DataLoader(Pictures(12, chain), 4)
    fast = hotset.accelerate(loader, device="cpu", check_every=0)
    assert [d.action for d in fast.plan.decisions] == ["once", "once", "worker", "worker"]
    before = dict(calls)
    list(fast)
    list(fast)
    assert calls["first"] == before["first"]
    assert calls["second"] == before["second"] + 24


def listed(samples: list[Any]) -> Any:
    """Samples as lists of their fields."""
    return [list(field) for field in zip(*samples, strict=True)]


def cut_somewhere(image: Any) -> Tensor:
    """Of a random width."""
    tensor = v1.functional.to_tensor(image)
    return tensor[:, :, : 3 + int(torch.randint(0, 5, ()))]


@pytest.mark.parametrize("workers", [0, 2])
def test_samples_of_varying_shape_with_a_collate(workers: int) -> None:
    """A collate_fn of the user's own gets them one by one."""
    loader = DataLoader(Pictures(12, cut_somewhere), 5, num_workers=workers, collate_fn=listed)
    batches = list(hotset.accelerate(loader, device="cpu"))
    assert [len(labels) for _, labels in batches] == [5, 5, 2]
    widths = {image.shape[-1] for images, _ in batches for image in images}
    assert len(widths) > 1
    for images, labels in batches:
        for image, label in zip(images, labels, strict=True):
            full = v1.functional.to_tensor(streams.picture(label))
            assert_same(image, full[:, :, : image.shape[-1]].contiguous())


class Ragged(Pictures):
    """Images of differing sizes."""

    def __getitem__(self, index: int) -> Any:
        image: Any = streams.picture(index, (8 + index % 3, 9 - index % 2))
        return self.transform(image) if self.transform else image, index


def test_images_of_differing_sizes_that_are_cropped_to_one() -> None:
    """RandomResizedCrop: kept as bytes of their own sizes, cut out anew in every epoch."""
    chain = v1.Compose([v1.RandomResizedCrop(4), v1.ToTensor()])
    fast = hotset.accelerate(DataLoader(Ragged(9, chain), 4), device="cpu", check_every=1)
    assert fast.plan.bytes_held == 9 * 8 + sum(
        3 * (8 + index % 3) * (9 - index % 2) for index in range(9)
    )
    first, second = list(fast), list(fast)
    assert [x.shape for x, _ in first] == [(4, 3, 4, 4), (4, 3, 4, 4), (1, 3, 4, 4)]
    assert not torch.equal(first[0][0], second[0][0])


def test_images_of_differing_sizes_and_batched_steps() -> None:
    """A padded random crop has a batched form, but not for images of differing sizes."""
    chain = v1.Compose([v1.RandomCrop(8, padding=2), v1.ToTensor()])
    loader = DataLoader(Ragged(9, chain), 4, num_workers=0)
    fast = hotset.accelerate(loader, device="cpu", check_every=1)
    assert fast.plan.decisions[1].action == "worker"
    assert [x.shape for x, _ in fast] == [(4, 3, 8, 8), (4, 3, 8, 8), (1, 3, 8, 8)]


class LateRagged(Pictures):
    """One image of another size, at an index that no probe looks at."""

    def __getitem__(self, index: int) -> Any:
        image: Any = streams.picture(index, (9 if index == 7 else 8, 8))
        return self.transform(image) if self.transform else image, index


def test_a_single_image_of_another_size_found_late() -> None:
    """The plan changes to the worker path, and says why; or, if nothing makes it one, the error."""
    chain = v1.Compose([v1.RandomCrop(8, padding=2), v1.ToTensor()])
    loader = DataLoader(LateRagged(20, chain), 4, collate_fn=listed)
    fast = hotset.accelerate(loader, device="cpu", check_every=1)
    assert fast.plan.decisions[1].reason == "runs per sample, since the samples differ in shape"
    assert sum(len(labels) for _, labels in fast) == 20
    fast = hotset.accelerate(DataLoader(LateRagged(20, chain), 4), device="cpu", check_every=1)
    assert [tuple(images.shape) for images, _ in fast] == [(4, 3, 8, 8)] * 5
    chain = v1.Compose([v1.RandomHorizontalFlip(), v1.ToTensor()])
    with pytest.raises(ValueError, match=r"at index 0 but a PIL image RGB 8x9 at index 7"):
        hotset.accelerate(DataLoader(LateRagged(20, chain), 4), device="cpu")


def test_mixup_in_a_collate_over_the_worker_path() -> None:
    """torchvision's way of mixing batches, over colour jitter."""
    mix = v2.MixUp(num_classes=20)

    def collate(samples: list[Any]) -> Any:
        return mix(*torch.utils.data.default_collate(samples))

    fast = accelerated(CHAINS["jitter"], 0, collate_fn=collate)
    for images, targets in fast:
        assert images.shape == (4, 3, 6, 6)
        torch.testing.assert_close(targets.sum(1), torch.ones(4))


def test_mixup_as_a_step_behind_the_loader_is_the_users() -> None:
    """Batches are ordinary tensors that v2's CutMix takes."""
    images, labels = next(iter(accelerated(CHAINS["torch"], 0)))
    mixed, targets = v2.CutMix(num_classes=20)(images, labels)
    assert mixed.shape == images.shape
    torch.testing.assert_close(targets.sum(1), torch.ones(4))


def report_id(worker: int) -> None:
    """A worker_init_fn that the user's step can tell has run."""
    torch.utils.data.get_worker_info().dataset.seen = worker  # type: ignore[union-attr]


class ReadsWorker:
    """Random by its mark; gives the worker's number where it was initialised."""

    def __call__(self, image: Any) -> Tensor:
        torch.rand(())
        info = torch.utils.data.get_worker_info()
        return torch.tensor(-1 if info is None else info.dataset.seen)


def test_settings_of_the_users_loader_are_taken_over() -> None:
    """worker_init_fn and the number of workers."""
    loader = DataLoader(
        Pictures(8, ReadsWorker()), 2, num_workers=2, worker_init_fn=report_id, prefetch_factor=3
    )
    fast = hotset.accelerate(loader, device="cpu", check_every=0)
    assert {int(x) for batch, _ in fast for x in batch} == {0, 1}
    assert "2 worker processes" in str(fast.plan)


@pytest.mark.parametrize("form", ["named", "nested", "dict", "scalars"])
def test_containers_of_samples_are_kept(form: str) -> None:
    """As `default_collate` would give them."""
    fast = accelerated(CHAINS["torch"], 0, form=form)
    wanted = next(iter(DataLoader(Pictures(12, CHAINS["torch"], form), 4)))
    torch.manual_seed(0)
    found = next(iter(fast))
    assert type(found) is type(wanted)
    if form == "named":
        assert found.image.dtype == wanted.image.dtype
        assert found.label.dtype == wanted.label.dtype


def test_the_spot_check_compares_what_is_kept() -> None:
    """The random rest is the user's own code and needs no comparison."""
    fast = accelerated(CHAINS["jitter"], 0)
    list(fast)
    pipeline: Any = fast._parts.pipeline
    assert pipeline._check.checked == 4


def test_float16_of_the_worker_path() -> None:
    """A dtype is applied behind the user's own steps."""
    loader = DataLoader(Pictures(6, CHAINS["torch"]), 3)
    full, half = (
        stream(hotset.accelerate(loader, device="cpu", dtype=dtype), seed=1)[0][0]
        for dtype in (None, torch.float16)
    )
    for (x, y), (a, b) in zip(half, full, strict=True):
        assert_same(x, a.half())
        assert_same(y, b)


def test_a_memory_format_that_cannot_be_given_is_told() -> None:
    """In the plan, kept or not."""
    loader = DataLoader(Pictures(12, CHAINS["jitter"]), 4)
    fast = hotset.accelerate(loader, device="cpu", channels_last=True)
    assert "channels_last is for steps that run on whole batches" in fast.plan.notes
    assert next(iter(fast))[0].is_contiguous()
