"""The accelerated stream is the plain loader's: bit for bit where the chain is deterministic."""

from __future__ import annotations

import random
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils.data import DataLoader, DistributedSampler, Sampler, Subset, TensorDataset
from torchvision import transforms as v1
from torchvision.transforms import v2

import hotset
from tests import streams
from tests.streams import Folder, OwnCode, Pictures, assert_same, plain_loader, stream


def assert_same_stream(
    plain: DataLoader[Any], again: DataLoader[Any], *, epochs: int, **options: Any
) -> hotset.Loader:
    """Fails unless the accelerated loader gives what the plain one gives, generators included.

    Args:
        plain: run as it is.
        again: a second one like it, with samplers of its own: accelerated.
        epochs: how often.
        **options: for `accelerate`.
    """
    samplers = [
        [loader.sampler] if isinstance(loader.sampler, DistributedSampler) else []
        for loader in (plain, again)
    ]
    wanted, state = stream(plain, epochs=epochs, seed=7, samplers=samplers[0])
    fast = hotset.accelerate(again, device="cpu", **{"check_every": 2, **options})
    found, found_state = stream(fast, epochs=epochs, seed=7, samplers=samplers[1])
    assert [len(epoch) for epoch in found] == [len(epoch) for epoch in wanted]
    for epoch, (some, others) in enumerate(zip(found, wanted, strict=True)):
        for number, (batch, other) in enumerate(zip(some, others, strict=True)):
            assert_same(batch, other, f"epoch {epoch}, batch {number}")
    assert torch.equal(found_state, state), "torch's generator is elsewhere afterwards"
    for name in ("generator", "sampler"):
        mine, theirs = (
            loader.generator if name == "generator" else getattr(loader.sampler, name, None)
            for loader in (again, plain)
        )
        if isinstance(theirs, torch.Generator):
            assert torch.equal(mine.get_state(), theirs.get_state()), f"the {name}'s own generator"
    return fast


@st.composite
def chains(draw: st.DrawFn) -> Any:
    """Deterministic chains from PIL images to tensors, as a user may nest them."""
    steps = [
        *draw(st.lists(st.sampled_from(streams.PICTURE_STEPS), max_size=2)),
        *draw(st.sampled_from(streams.TO_TENSOR)),
    ]
    if steps[-1].__class__.__name__ not in ("PILToTensor",):
        steps += draw(st.lists(st.sampled_from(streams.TENSOR_STEPS), max_size=3))
    nesting = draw(st.sampled_from(("v1", "v2", "nested", "alone")))
    if nesting == "v1":
        return v1.Compose(steps)
    if nesting == "v2":
        return v2.Compose(steps)
    if nesting == "nested":
        return v1.Compose([v1.Compose(steps[:1]), *steps[1:]])
    return steps[0] if len(steps) == 1 else v1.Compose(steps)


@settings(max_examples=60)
@given(
    chain=chains(),
    form=st.sampled_from(sorted(streams.FORMS)),
    length=st.integers(8, 21),
    batch_size=st.integers(1, 9),
    drop_last=st.booleans(),
    sampler=st.sampled_from(streams.SAMPLERS),
    nesting=st.sampled_from(streams.NESTINGS),
)
def test_stream_over_random_chains_is_bit_equal(
    chain: Any,
    form: str,
    length: int,
    batch_size: int,
    drop_last: bool,
    sampler: str,
    nesting: str,
) -> None:
    """Containers, shapes, dtypes, values, order and generators, over two epochs."""

    def loader() -> DataLoader[Any]:
        dataset = streams.nest(
            Pictures(length, chain, form), nesting, twin=Pictures(4, chain, form)
        )
        return plain_loader(dataset, sampler, batch_size, drop_last)

    fast = assert_same_stream(loader(), loader(), epochs=2)
    assert all(d.action in ("once", "table", "batch") for d in fast.plan.decisions)


@settings(max_examples=40)
@given(
    kind=st.sampled_from(("tensors", "own code", "folder", "grey", "tensors of images")),
    length=st.integers(8, 14),
    batch_size=st.integers(1, 9),
    drop_last=st.booleans(),
    sampler=st.sampled_from(streams.SAMPLERS),
    nesting=st.sampled_from(streams.NESTINGS),
    has_target=st.booleans(),
)
@example("tensors", 9, 4, False, "shuffled", "nested subset", False)
def test_stream_over_kinds_of_datasets_is_bit_equal(
    kind: str,
    length: int,
    batch_size: int,
    drop_last: bool,
    sampler: str,
    nesting: str,
    has_target: bool,
) -> None:
    """Tensors in memory, torchvision's convention with target_transform, hidden code, grey."""
    grey = v1.Compose([v1.ToTensor(), v1.Normalize((0.5,), (0.25,))])
    target = streams.one_hot if has_target else None

    def dataset(count: int) -> Any:
        if kind == "tensors":
            return streams.tensor_dataset(count)
        if kind == "tensors of images":
            return TensorDataset(streams.tensor_dataset(count).tensors[1])
        if kind == "own code":
            return OwnCode(count)
        if kind == "folder":
            return Folder(count, v2.Compose([v2.ToImage(), v2.CenterCrop(5)]), target)
        return Pictures(count, grey, mode="L")

    def loader() -> DataLoader[Any]:
        nested = streams.nest(dataset(length), nesting, twin=dataset(4))
        return plain_loader(nested, sampler, batch_size, drop_last)

    assert_same_stream(loader(), loader(), epochs=3)


@pytest.mark.parametrize("sampler", ["shuffled", "own generator", "eager batches", "replacement"])
@pytest.mark.parametrize("persistent", [False, True])
def test_order_is_that_of_a_loader_with_workers(sampler: str, persistent: bool) -> None:
    """With workers a DataLoader asks its sampler twice; persistent ones draw one base seed."""
    chain = v1.Compose([v1.ToTensor(), v1.Normalize(streams.MEAN, streams.STD)])

    def loader() -> DataLoader[Any]:
        return plain_loader(
            Pictures(13, chain), sampler, 4, False, num_workers=2, persistent_workers=persistent
        )

    assert_same_stream(loader(), loader(), epochs=3)


class DrawsPerBatch(torch.utils.data.Sampler[list[int]]):
    """A batch sampler that draws every batch when it is asked for it."""

    def __len__(self) -> int:
        return 12

    def __iter__(self) -> Any:
        for _ in range(12):
            yield torch.randint(0, 10, (3,)).tolist()


@pytest.mark.parametrize("workers", [0, 2])
def test_samplers_that_draw_late_draw_when_a_plain_loader_lets_them(workers: int) -> None:
    """The training step may draw between batches; workers are handed batches ahead of it."""
    taken = []
    for accelerated in (False, True):
        loader: Any = DataLoader(OwnCode(10), batch_sampler=DrawsPerBatch(), num_workers=workers)
        if accelerated:
            loader = hotset.accelerate(loader, device="cpu")
        torch.manual_seed(3)
        taken.append([(labels.tolist(), torch.rand(()).item()) for _, labels in loader])
    assert taken[0] == taken[1]


def test_order_of_a_random_chain_is_that_of_a_loader_with_workers() -> None:
    """What is random is drawn elsewhere, so the order stays the plain loader's."""
    chain = v1.Compose([v1.RandomCrop(8, padding=2), v1.RandomHorizontalFlip(), v1.ToTensor()])
    plain = DataLoader(Pictures(20, chain), 6, shuffle=True, num_workers=2)
    wanted, state = stream(plain, epochs=2, seed=1)
    fast = hotset.accelerate(plain, device="cpu", check_every=1)
    found, found_state = stream(fast, epochs=2, seed=1)
    for some, others in zip(found, wanted, strict=True):
        assert [y.tolist() for _, y in some] == [y.tolist() for _, y in others]
    assert torch.equal(state, found_state)


def test_every_global_generator_is_left_alone() -> None:
    """Planning, filling and checking put back what they touch."""
    chain = v1.Compose([v1.RandomCrop(8, padding=2), v1.ToTensor(), v1.RandomErasing()])
    random.seed(1), np.random.seed(1), torch.manual_seed(1)
    before = random.getstate(), np.random.get_state()[1].tobytes(), torch.get_rng_state()
    fast = hotset.accelerate(DataLoader(Pictures(9, chain), 4), device="cpu", check_every=1)
    assert torch.equal(before[2], torch.get_rng_state())
    list(fast)
    after = random.getstate(), np.random.get_state()[1].tobytes()
    assert after == before[:2]


def test_custom_collate_gets_the_samples_it_expects() -> None:
    """Each leaf as the dataset gives it: type, dtype, value; also text and nested ones."""
    seen: list[Any] = []

    def keep(samples: list[Any]) -> Any:
        seen.append(samples)
        return len(samples)

    dataset = Pictures(7, v1.ToTensor(), "nested")
    fast = hotset.accelerate(DataLoader(dataset, 3, collate_fn=keep), device="cpu", check_every=1)
    assert list(fast) == [3, 3, 1]
    for index, sample in enumerate(sample for samples in seen for sample in samples):
        assert_same(sample, dataset[index], f"sample {index}")


class Detection(torch.utils.data.Dataset[Any]):
    """Images of one size, with so many boxes each, a name that may be missing, and an object."""

    def __init__(self, transform: Any = None) -> None:
        self.transform = transform

    def __len__(self) -> int:
        return 9

    def __getitem__(self, index: int) -> Any:
        image: Any = streams.picture(index)
        if self.transform is not None:
            image = self.transform(image)
        boxes = torch.arange(float(index % 3 * 4)).reshape(-1, 4)
        return image, {"boxes": boxes, "name": None if index % 2 else f"n{index}"}, {index, -1}


def listed(samples: list[Any]) -> Any:
    """Samples as lists of their fields."""
    return [list(field) for field in zip(*samples, strict=True)]


@pytest.mark.parametrize(
    "transform", [None, v1.ToTensor(), v1.Compose([v1.ToTensor(), streams.less_mean])]
)
def test_what_cannot_be_stacked_reaches_a_custom_collate(transform: Any) -> None:
    """Ragged leaves, None, PIL images and sets, with the spot check on."""

    def loader() -> DataLoader[Any]:
        return DataLoader(Detection(transform), 4, collate_fn=listed, shuffle=True)

    assert_same_stream(loader(), loader(), epochs=2, check_every=1)


def test_random_steps_with_a_custom_collate_are_checked() -> None:
    """A batched crop under a collate_fn, beside ragged leaves, passes the spot check."""
    chain = v1.Compose([v1.RandomCrop(8, padding=2), v1.ToTensor()])
    loader = DataLoader(Detection(chain), 4, collate_fn=listed)
    fast = hotset.accelerate(loader, device="cpu", check_every=1)
    images, targets, _ = next(iter(fast))
    assert [image.shape for image in images] == [(3, 8, 8)] * 4
    assert [len(target["boxes"]) for target in targets] == [0, 1, 2, 0]


class MixingCollate:
    """MixUp over default-collated samples, as torchvision's guide has it."""

    def __init__(self) -> None:
        self.mix = v2.MixUp(num_classes=20)

    def __call__(self, samples: list[Any]) -> Any:
        return self.mix(*torch.utils.data.default_collate(samples))


@pytest.mark.parametrize("is_random", [False, True])
def test_a_collate_that_draws_leaves_the_order_alone(is_random: bool) -> None:
    """MixUp in a collate_fn draws in workers of the plain loader: the order is not its business."""
    random_steps = [v1.ColorJitter(0.2)] if is_random else []
    dataset = Pictures(12, v1.Compose([*random_steps, v1.ToTensor()]))
    plain = DataLoader(dataset, 4, shuffle=True, num_workers=2, collate_fn=MixingCollate())
    _, state = stream(plain, epochs=2, seed=4)
    fast = hotset.accelerate(plain, device="cpu")
    found, found_state = stream(fast, epochs=2, seed=4)
    assert torch.equal(state, found_state)
    again, _ = stream(hotset.accelerate(plain, device="cpu"), epochs=2, seed=4)
    assert_same(again, found)
    images, targets = found[0][0]
    assert images.shape == (4, 3, 8, 8)
    torch.testing.assert_close(targets.sum(1), torch.ones(4))
    assert not torch.equal(found[0][0][1], found[0][1][1])


def test_collate_draws_do_not_depend_on_workers() -> None:
    """The same mixture with 0 and 2 workers, for random chains as for deterministic ones."""
    for steps in ([v1.ToTensor()], [v1.ColorJitter(0.2), v1.ToTensor()]):
        dataset = Pictures(8, v1.Compose(steps))
        results = []
        for workers in (0, 2):
            loader = DataLoader(dataset, 4, num_workers=workers, collate_fn=MixingCollate())
            results.append(stream(hotset.accelerate(loader, device="cpu"), epochs=1, seed=2)[0])
        assert_same(results[0], results[1])


class DerivedLeaf(Pictures):
    """A further leaf is computed from what the transform gave."""

    def __getitem__(self, index: int) -> Any:
        image = self.transform(streams.picture(index))
        return image, image.mean()


class TwoViews(Pictures):
    """The transform runs twice."""

    def __getitem__(self, index: int) -> Any:
        return self.transform(streams.picture(index)), self.transform(streams.picture(index))


class Afterwards(Pictures):
    """The transform's result is changed behind it."""

    def __getitem__(self, index: int) -> Any:
        return self.transform(streams.picture(index)) + 1, index


@pytest.mark.parametrize("kind", [DerivedLeaf, TwoViews, Afterwards])
@pytest.mark.parametrize("is_random", [False, True])
def test_transforms_whose_result_is_not_simply_a_leaf(kind: Any, is_random: bool) -> None:
    """They are left inside the dataset, which is then kept or read anew as a whole."""
    steps = [v1.ToTensor()]
    if not is_random:
        loaders = [DataLoader(kind(9, v1.Compose(steps)), 4, shuffle=True) for _ in range(2)]
        assert assert_same_stream(*loaders, epochs=2, check_every=1).plan.tier == "device"
        return
    chain = v1.Compose([v1.RandomCrop(8, padding=2), *steps])
    loader = DataLoader(kind(9, chain), 4)
    fast = hotset.accelerate(loader, device="cpu", check_every=1)
    assert fast.plan.tier == "source"
    first = next(iter(fast))
    if kind is DerivedLeaf:
        torch.testing.assert_close(first[0].mean((1, 2, 3)), first[1])


def plus_one(values: Tensor) -> Tensor:
    """One more."""
    return values + 1


def plus_two(values: Tensor) -> Tensor:
    """Two more."""
    return values + 2


class Shift(torch.nn.Module):
    """Adds a buffer."""

    def __init__(self, amount: float) -> None:
        super().__init__()
        self.register_buffer("amount", torch.tensor(amount))

    def forward(self, values: Tensor) -> Tensor:
        """values: any shape."""
        return values + self.amount


@pytest.mark.parametrize(
    "pair",
    [
        (plus_one, plus_two),
        (Shift(1.0), Shift(2.0)),
        (v1.Lambda(plus_one), v1.Lambda(plus_two)),
        (torch.nn.Threshold(0.5, 1.0), torch.nn.Threshold(0.5, 2.0)),
        (v1.Normalize(torch.zeros(3), torch.ones(3)), v1.Normalize(torch.ones(3), torch.ones(3))),
    ],
)
def test_concatenated_datasets_keep_their_own_chains(pair: tuple[Any, Any]) -> None:
    """Two functions or modules of one kind are not one transform."""

    def loader() -> DataLoader[Any]:
        parts = [Pictures(5, v1.Compose([v1.ToTensor(), step])) for step in pair]
        return DataLoader(torch.utils.data.ConcatDataset(parts), 4, shuffle=True)

    assert_same_stream(loader(), loader(), epochs=2, check_every=0)


def test_equal_chains_of_concatenated_datasets_are_one() -> None:
    """Objects of their own with the same parameters: the chain is still seen, and cut."""

    def chain() -> Any:
        steps = [v2.RandomCrop(8, padding=2), v2.ToImage(), v2.ToDtype(torch.float32, scale=True)]
        return v2.Compose([*steps, v2.Normalize(list(streams.MEAN), list(streams.STD)), Shift(1.0)])

    parts = [Pictures(5, chain()), Subset(Pictures(5, chain()), [0, 2])]
    loader = DataLoader(torch.utils.data.ConcatDataset(parts), 4)
    fast = hotset.accelerate(loader, device="cpu", check_every=1)
    assert [d.action for d in fast.plan.decisions][-1] in ("table", "batch")
    assert [len(y) for _, y in fast] == [4, 3]


def test_bytes_held_are_those_of_the_images_and_labels() -> None:
    """Images stay bytes, whatever the tail: N*3*32*32, and 8 for each label."""
    for tail in ([], [v1.Normalize(streams.MEAN, streams.STD), streams.twice_less_one]):
        chain = v1.Compose([v1.RandomCrop(32, padding=4), v1.ToTensor(), *tail])
        dataset = Pictures(10, chain, size=(32, 32))
        plan = hotset.accelerate(DataLoader(dataset, 4), device="cpu").plan
        assert plan.bytes_held == 10 * 3 * 32 * 32 + 10 * 8
        assert [d.action for d in plan.decisions] == [
            "once",
            "batch",
            *["table"] * (1 + len(tail)),
        ]


class Counting:
    """Counts how often a step is called."""

    def __init__(self, call: Any) -> None:
        self.call, self.calls = call, 0

    def __call__(self, value: Any) -> Any:
        self.calls += 1
        return self.call(value)


@pytest.mark.parametrize("every", [0, 1, 5])
def test_steps_are_not_called_after_the_first_epoch(every: int) -> None:
    """Once and table steps, and the dataset: only the spot check calls them, in the first epoch."""
    steps = [Counting(v1.CenterCrop(6)), Counting(v1.ToTensor()), Counting(streams.twice_less_one)]
    dataset = Pictures(20, v1.Compose(steps))
    fast = hotset.accelerate(DataLoader(dataset, 8), device="cpu", check_every=every)
    assert [d.action for d in fast.plan.decisions] == ["once", "once", "table", "table"]
    before = [step.calls for step in steps]
    list(fast)
    checked = -(-20 // every) if every else 0
    assert [step.calls - b for step, b in zip(steps, before, strict=True)] == [checked] * 3
    list(fast)
    list(fast)
    assert [step.calls - b for step, b in zip(steps, before, strict=True)] == [checked] * 3


def test_batched_steps_are_not_called_per_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torchvision's own crop and flip are called by the probes and the spot check alone."""
    calls = []
    for kind in (v1.RandomCrop, v1.RandomHorizontalFlip):
        original = kind.forward
        monkeypatch.setattr(
            kind,
            "forward",
            lambda self, image, original=original: (calls.append(1), original(self, image))[1],
        )
    chain = v1.Compose([v1.RandomCrop(8, padding=2), v1.RandomHorizontalFlip(), v1.ToTensor()])
    fast = hotset.accelerate(DataLoader(Pictures(30, chain), 8), device="cpu", check_every=15)
    calls.clear()
    list(fast)
    assert len(calls) == 2 * 2
    list(fast)
    assert len(calls) == 2 * 2


def test_attributes_of_the_plain_loader_are_there() -> None:
    """What training code reads from a DataLoader: length, sampler, sizes, dataset."""
    dataset = OwnCode(10)
    loader = DataLoader(dataset, 4, shuffle=True, drop_last=True)
    fast = hotset.accelerate(loader, device="cpu")
    assert len(fast) == 2
    assert fast.dataset is dataset
    assert fast.batch_size == 4
    assert fast.sampler is loader.sampler
    assert fast.batch_sampler is loader.batch_sampler
    assert fast.drop_last is True
    assert fast.num_workers == 0


def test_the_users_loader_and_dataset_are_untouched() -> None:
    """Accelerating reads them; the plain loader still works, and gives the same."""
    dataset = Folder(9, v1.ToTensor(), streams.one_hot)
    loader = DataLoader(dataset, 4, shuffle=True)
    before = dict(vars(dataset)), dict(vars(loader))
    fast = hotset.accelerate(loader, device="cpu")
    found, _ = stream(fast, seed=1)
    assert (dict(vars(dataset)), dict(vars(loader))) == before
    assert_same(found, stream(loader, seed=1)[0])


def test_a_random_target_is_read_anew() -> None:
    """Where what is random does not stand in the chain, nothing may be kept."""

    def noisy(target: int) -> float:
        return target + torch.rand(()).item()

    fast = hotset.accelerate(DataLoader(Folder(6, v1.ToTensor(), noisy), 3), device="cpu")
    assert fast.plan.tier == "source"
    assert fast.plan.decisions[0].action == "worker"
    (first, second), _ = stream(fast, epochs=2, seed=0)
    assert not torch.equal(first[0][1], second[0][1])
    assert torch.equal(first[0][0], second[0][0])


def test_warnings_of_torch_are_not_provoked() -> None:
    """More workers than cores or pinning without a device: the plain loader's business."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fast = hotset.accelerate(DataLoader(OwnCode(6), 2, shuffle=True), device="cpu")
        list(fast)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_dtype_is_that_of_the_whole_chain_cast_once(dtype: torch.dtype) -> None:
    """The table is computed as the user's chain does and rounded once; labels keep theirs."""
    chain = v1.Compose([v1.ToTensor(), v1.Normalize(streams.MEAN, streams.STD)])
    loader = DataLoader(Pictures(9, chain), 4)
    for (x, y), (a, b) in zip(
        hotset.accelerate(loader, device="cpu", dtype=dtype, check_every=1), loader, strict=True
    ):
        assert_same(x, a.to(dtype))
        assert_same(y, b)


@pytest.mark.parametrize("is_random", [False, True])
def test_channels_last_changes_the_layout_only(is_random: bool) -> None:
    """Same values, in `torch.channels_last`."""
    steps = [v1.RandomCrop(8, padding=2)] if is_random else []
    loader = DataLoader(Pictures(9, v1.Compose([*steps, v1.ToTensor()])), 4)
    plain, _ = stream(hotset.accelerate(loader, device="cpu"), seed=0)
    last, _ = stream(hotset.accelerate(loader, device="cpu", channels_last=True), seed=0)
    assert_same(last, plain)
    assert last[0][0][0].is_contiguous(memory_format=torch.channels_last)


class _Following(Sampler[int]):
    """Gives what the training loop asks for next, as hard-example mining does."""

    def __init__(self) -> None:
        self.wanted, self.given = 0, 0

    def __len__(self) -> int:
        return 12

    def __iter__(self) -> Iterator[int]:
        for _ in range(12):
            self.given += 1
            yield self.wanted


def test_a_sampler_that_follows_the_loop_is_not_read_ahead() -> None:
    """Without workers, a sampler of unknown kind is asked for one batch at a time, as by torch."""
    images = torch.arange(8, dtype=torch.uint8)[:, None, None, None].expand(8, 1, 4, 4)
    data = TensorDataset(images.contiguous(), torch.arange(8))
    sampler = _Following()
    fast = hotset.accelerate(
        DataLoader(data, batch_size=2, sampler=sampler), device="cpu", dtype=torch.float32
    )
    for number, (_, labels) in enumerate(fast):
        assert labels.tolist() == [sampler.wanted] * 2
        assert sampler.given == 2 * (number + 1)
        sampler.wanted += 1
