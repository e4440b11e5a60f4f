"""`hotset.running.proof`: which loaders provably give the same batches."""

from __future__ import annotations

import random
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, SequentialSampler, TensorDataset
from torchvision import tv_tensors

import hotset
from hotset.chain.split import Decision
from hotset.placement.plan import Plan
from hotset.running.proof import (
    doubt_about,
    doubt_in,
    doubt_of_batches,
    doubt_of_tensors,
    name_of,
    twin_of,
)

DATA = TensorDataset(torch.arange(10.0))


def seeding(worker: int) -> None:
    """As torch's documentation has it."""
    np.random.seed(torch.initial_seed() % 2**32)
    random.seed(worker)


def looking(worker: int) -> None:
    """Changes what its worker reads."""
    torch.utils.data.get_worker_info().dataset.tensors = ()


def calling(worker: int) -> None:
    """Does so by another function."""
    looking(worker)


def naming(worker: int) -> None:
    """Changes the dataset itself."""
    DATA.tensors = ()


class Holder:
    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def init(self, worker: int) -> None:
        self.dataset.worker = worker

    def __call__(self, worker: int) -> None:
        pass


@pytest.mark.parametrize(
    "init",
    [seeding, partial(seeding), torch.manual_seed, Holder(3).init, lambda worker: None],
)
def test_what_seeds_workers_raises_no_doubt(init: Any) -> None:
    """Nothing of the dataset is within its reach."""
    assert doubt_about(DataLoader(DATA, num_workers=1, worker_init_fn=init)) == ""
    assert doubt_about(DataLoader(DATA, num_workers=0, worker_init_fn=looking)) == ""


@pytest.mark.parametrize(
    ("init", "name"),
    [
        (looking, "looking"),
        (calling, "calling"),
        (naming, "naming"),
        (Holder(DATA).init, "Holder.init"),
        (Holder(3), "Holder"),
        (partial(seeding, worker=DATA), "seeding"),
    ],
)
def test_what_may_change_a_workers_dataset_raises_doubt(init: Any, name: str) -> None:
    """By its name."""
    loader = DataLoader(DATA, num_workers=1, worker_init_fn=init)
    expected = f"its worker_init_fn ({name}) may change what a worker reads"
    assert doubt_about(loader) == expected


def test_a_collate_fn_of_ones_own_raises_doubt() -> None:
    """torch's default does not, given or not."""
    assert doubt_about(DataLoader(DATA, collate_fn=torch.utils.data.default_collate)) == ""
    loader = DataLoader(DATA, collate_fn=partial(max, key=len))
    assert doubt_about(loader) == "its collate_fn (max) is its own"


class Through(DataLoader):
    def __iter__(self) -> Any:
        return super().__iter__()


class Inside(DataLoader):
    @property
    def _index_sampler(self) -> Any:
        return [[3]]


def test_the_twin_of_a_loader_has_its_parts() -> None:
    """A plain loader is its own; what tells the batches must be inherited."""
    plain = DataLoader(DATA, batch_size=2)
    assert twin_of(plain) is plain
    sampler = BatchSampler(SequentialSampler(DATA), 3, True)
    generator = torch.Generator()
    loader = Through(
        DATA,
        batch_sampler=sampler,
        num_workers=1,
        generator=generator,
        persistent_workers=True,
        prefetch_factor=4,
    )
    twin = twin_of(loader)
    assert isinstance(twin, DataLoader)
    assert type(twin) is DataLoader
    assert (twin.dataset, twin.batch_sampler, twin.generator) == (DATA, sampler, generator)
    assert (twin.num_workers, twin.prefetch_factor, twin.persistent_workers) == (1, 4, True)
    assert twin_of(Inside(DATA)) == "Inside has its own _index_sampler"
    assert "batch_size=None" in str(twin_of(Through(DATA, batch_size=None)))
    loader._get_iterator = lambda: iter(())
    assert twin_of(loader) == "Through has its own _get_iterator"


class Batched:
    def __init__(self, is_alike: bool) -> None:
        self.is_alike = is_alike

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> Any:
        return torch.rand(2) + index

    def __getitems__(self, indices: Any) -> Any:
        return [self[i] if self.is_alike else torch.tensor(min(indices)) for i in indices]


def test_samples_read_together_must_be_those_read_alone() -> None:
    """Under the same seeds; generators stay as they were."""
    before = torch.get_rng_state()
    assert doubt_of_batches(Batched(True)) == ""
    expected = "Batched.__getitems__ gives other samples than its __getitem__"
    assert doubt_of_batches(Batched(False)) == expected
    assert doubt_of_batches(torch.utils.data.Subset(Batched(False), [0, 2])) == expected
    assert doubt_of_batches(torch.utils.data.Subset(DATA, [1])) == ""
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    ("decision", "words"),
    [
        (Decision("Noise", "worker", "per sample, since Noise is random"), "Noise is random"),
        (Decision("Late", "worker", "per sample, since Noise is"), "Late: Noise is"),
        (Decision("Flip", "batch", "drawn per sample"), ""),
    ],
)
def test_a_plan_must_leave_nothing_to_workers(decision: Decision, words: str) -> None:
    """The first step that it does is named."""
    plan = Plan((Decision("Data", "once", ""), decision), "cpu", "device", 4, 0, "")
    assert doubt_in(plan) == words


def test_a_plan_that_keeps_nothing_raises_doubt() -> None:
    """With the reason that its prediction has."""
    rows = [torch.arange(4.0)] * 9
    plan = hotset.plan(DataLoader(rows), device="cpu", budget=1)
    assert plan.tier == "source"
    assert doubt_in(plan) == "list: 144 bytes exceed the budget: 1 bytes in host memory"
    assert doubt_in(Plan((), "cpu", "source", 4, 0, "")) == "nothing of it can be kept"


def test_callables_have_names() -> None:
    """Functions, methods, what is given some arguments, and objects."""
    calls = (seeding, partial(partial(seeding), 1), Holder(1).init, Holder(1))
    assert [name_of(call) for call in calls] == ["seeding", "seeding", "Holder.init", "Holder"]


class Marked(torch.Tensor):
    pass


def test_tensors_of_a_class_of_their_own_raise_doubt() -> None:
    """Plain ones and torchvision's do not."""
    image = tv_tensors.Image(torch.zeros(3, 2, 2))
    assert doubt_of_tensors([(torch.zeros(2), 3), {"x": image, "y": "name"}]) == ""
    marked = torch.zeros(2).as_subclass(Marked)
    expected = "its samples have tensors of a class of their own (Marked)"
    assert doubt_of_tensors([(image, 3), {"x": [marked]}]) == expected
