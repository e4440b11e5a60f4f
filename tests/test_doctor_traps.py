"""Known traps: for each a loader that is in it, and one just outside it."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.random import rand
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    Subset,
    TensorDataset,
    get_worker_info,
)

from hotset.chain.probe import generator_states
from hotset.doctor.examination import Examination
from hotset.doctor.facts import facts_of
from hotset.doctor.findings import Stage, Trap, WorkerTime
from hotset.doctor.machine.usage import Usage
from hotset.doctor.traps.traps import traps_of

RNG = np.random.default_rng(5)
REPEATED = "workers that repeat their random draws"
FORKED: dict[str, Any] = {"num_workers": 2, "multiprocessing_context": "fork"}


def examination_of(loader: Any, **found: Any) -> Examination:
    """What is found out about a loader, so far as a test says."""
    return Examination(**{"facts": facts_of(loader), "cores": 4, **found})


def names_of(loader: Any, usage: Usage | None = None, **found: Any) -> list[str]:
    """The names of the traps that a loader is in."""
    return [trap.name for trap in traps_of(loader, examination_of(loader, **found), usage)]


def trap_of(loader: Any, usage: Usage | None = None, **found: Any) -> Trap:
    """The one trap that a loader is in."""
    (trap,) = traps_of(loader, examination_of(loader, **found), usage)
    return trap


def run(code: str, loader: Any) -> dict[str, Any]:
    """What there is when the code of a trap has run."""
    names: dict[str, Any] = {"loader": loader, "dataset": loader.dataset}
    exec(compile(code, "trap", "exec"), names)
    return names


class Numbers(Dataset[Any]):
    """Each sample is what a function gives."""

    def __init__(self, draw: Callable[[int], Any], length: int = 8) -> None:
        self.draw, self.length = draw, length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        return self.draw(index)


class Drawing(Dataset[Any]):
    """Draws from a generator of its own."""

    def __init__(self, rng: Any, draw: Callable[[Any], float]) -> None:
        self.rng, self.draw = rng, draw

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> float:
        return self.draw(self.rng)


OWN: dict[str, tuple[Callable[[], Any], Callable[[Any], float]]] = {
    "numpy.random.Generator": (lambda: np.random.default_rng(3), lambda rng: rng.random()),
    "numpy.random.RandomState": (lambda: np.random.RandomState(3), lambda rng: rng.rand()),
    "random.Random": (lambda: random.Random(3), lambda rng: rng.random()),
    "torch.Generator": (
        lambda: torch.Generator().manual_seed(3),
        lambda rng: torch.rand((), generator=rng).item(),
    ),
}


def epochs_of(loader: DataLoader[Any], count: int = 2) -> list[list[float]]:
    """The samples of some epochs."""
    return [[float(x) for batch in loader for x in batch] for _ in range(count)]


def numbers_of(loader: DataLoader[Any]) -> list[float]:
    """The samples of two epochs."""
    return [number for epoch in epochs_of(loader) for number in epoch]


@pytest.mark.parametrize("kind", OWN)
def test_generators_of_the_datasets_own_repeat(kind: str) -> None:
    """A real loader gives each number twice, and in each epoch again; with the code given never."""
    make, draw = OWN[kind]
    loader = DataLoader(Drawing(make(), draw), 2, **FORKED)
    first, second = epochs_of(loader)
    assert first[:2] == first[2:4]
    assert first == second
    states = generator_states([loader.dataset.rng])
    trap = trap_of(loader)
    assert generator_states([loader.dataset.rng]) == states
    assert (trap.name, trap.is_wrong) == (REPEATED, True)
    assert trap.what == (
        f"two workers that read the same samples drew the same numbers from {kind}, and will in "
        "every epoch, since they are started anew for each (dataset.rng)"
    )
    made = run(trap.code, loader)["loader"]
    torch.manual_seed(1)
    numbers = numbers_of(made)
    assert len(set(numbers)) == 16
    assert names_of(made) == []


def test_generators_that_torch_seeds_do_not_repeat() -> None:
    """Neither `numpy.random` nor `random` nor torch: a real loader gives no number twice."""
    torch.manual_seed(1)
    for draw in (np.random.rand, rand, random.random, lambda: torch.rand(()).item()):
        loader = DataLoader(Numbers(lambda index, draw=draw: draw()), 2, **FORKED)
        assert len(set(numbers_of(loader))) == 16
        assert names_of(loader) == []


@pytest.mark.parametrize(("workers", "stays"), [(0, False), (1, True), (1, False), (2, True)])
def test_one_worker_repeats_itself_only_if_it_is_started_anew(workers: int, stays: bool) -> None:
    """Without workers nothing is a copy; one that stays draws on."""
    how = {"num_workers": workers, "persistent_workers": stays}
    loader = DataLoader(Drawing(np.random.default_rng(3), OWN["numpy.random.Generator"][1]), 2)
    if workers:
        loader = DataLoader(loader.dataset, 2, multiprocessing_context="fork", **how)
    traps = traps_of(loader, examination_of(loader))
    whats = {
        (1, False): "a worker drew the same numbers from numpy.random.Generator in two epochs, "
        "since it is started anew for each (dataset.rng)",
        (2, True): "two workers that read the same samples drew the same numbers from "
        "numpy.random.Generator (dataset.rng)",
    }
    what = whats.get((workers, stays))
    assert [trap.what for trap in traps] == ([] if what is None else [what])


def from_module(index: int) -> float:
    """Draws from a generator of the module."""
    return float(RNG.random())


def test_generators_of_a_module_and_of_transforms() -> None:
    """Are found through functions, and behind a list too long to look through."""
    loader = DataLoader(Numbers(from_module), 2, **FORKED)
    trap = trap_of(loader)
    assert trap.what.endswith("since they are started anew for each")
    made = run(trap.code, loader)["loader"]
    assert len(set(numbers_of(made))) == 16

    class Jitter:
        def __init__(self) -> None:
            self.parts = [SimpleNamespace(rng=random.Random(2))]

        def __call__(self, index: int) -> float:
            return index + self.parts[0].rng.random()

    dataset = Numbers(lambda index: dataset.transform(index))
    dataset.rows, dataset.transform = list(range(30_000)), Jitter()
    trap = trap_of(DataLoader(dataset, 2, **FORKED))
    assert trap.what.endswith("(dataset.transform.parts[0].rng)")
    assert "info.dataset.transform.parts[0].rng.seed(info.seed)" in trap.code


def seeded_by_worker(worker: int) -> None:
    """Seeds the dataset's own generator, as torch advises."""
    info = get_worker_info()
    info.dataset.rng = np.random.default_rng(info.seed)


def seeded_by_number(worker: int) -> None:
    """Seeds it with the same in every epoch."""
    get_worker_info().dataset.rng = np.random.default_rng(worker)


def seeded_alike(worker: int) -> None:
    """Seeds what torch has seeded well."""
    np.random.seed(7)


class Lazy(Drawing):
    """Makes its generator when it is first asked, in each worker its own."""

    def __getitem__(self, index: int) -> float:
        info = get_worker_info()
        if info is not None and not hasattr(self, "own"):
            self.own = np.random.default_rng(info.seed)
        return self.draw(getattr(self, "own", self.rng))


def test_generators_that_workers_seed_for_themselves() -> None:
    """By `worker_init_fn` or in `__getitem__`; what they seed badly is told too."""
    make, draw = OWN["numpy.random.Generator"]
    how: dict[str, Any] = {**FORKED, "batch_size": 2}
    dataset = Drawing(make(), draw)
    assert names_of(DataLoader(dataset, worker_init_fn=seeded_by_worker, **how)) == []
    assert names_of(DataLoader(Lazy(make(), draw), **how)) == []
    trap = trap_of(DataLoader(dataset, worker_init_fn=seeded_by_number, **how))
    assert trap.what.startswith("a worker drew the same numbers from numpy.random.Generator in two")
    loader = DataLoader(Numbers(lambda index: np.random.rand()), worker_init_fn=seeded_alike, **how)
    first, second = epochs_of(loader)
    assert first == second
    trap = trap_of(loader)
    assert trap.what.startswith(
        "two workers that read the same samples drew the same numbers from numpy.random,"
    )
    assert trap.why.endswith("`worker_init_fn` seeds them again with numbers that come again")
    made = run(trap.code, loader)["loader"]
    assert made.worker_init_fn is None
    assert len(set(numbers_of(made))) == 16
    assert names_of(DataLoader(Numbers(float), worker_init_fn=seeded_alike, **how)) == []


class Stream(IterableDataset[Any]):
    """A stream that draws."""

    def __init__(self) -> None:
        self.rng = random.Random(4)

    def __iter__(self) -> Iterator[float]:
        for _ in range(9):
            yield self.rng.random()


def test_streams_collate_functions_and_lists_of_indices() -> None:
    """All that workers run counts."""
    alike = "samples that come once from each worker"  # as numbers of the same generator do
    assert names_of(DataLoader(Stream(), 3, **FORKED)) == [REPEATED, alike]
    draws = random.Random(1)

    def collate(items: list[Any]) -> Any:
        return [item + draws.random() for item in items]

    assert names_of(DataLoader(Numbers(float), 2, collate_fn=collate, **FORKED)) == [REPEATED]
    dataset = Numbers(lambda indices: torch.tensor(indices) + draws.random())
    sampler = BatchSampler(range(8), 2, False)
    loader = DataLoader(dataset, batch_size=None, sampler=sampler, **FORKED)
    assert names_of(loader) == [REPEATED]
    assert names_of(DataLoader(Numbers(lambda i: i + draws.random()), None, **FORKED)) == [REPEATED]


def test_a_dataset_that_fails() -> None:
    """Is in no trap that reading would show; that it fails is noted where it is timed."""

    def torn(index: int) -> float:
        RNG.random()
        if get_worker_info() is not None:
            raise ValueError("torn")
        return 0.0

    assert names_of(DataLoader(Numbers(torn), 2, **FORKED)) == []


def test_tensors_on_a_device() -> None:
    """One by one; asked for by whole batches they are in no trap, nor if they stay inside."""
    data = TensorDataset(torch.zeros(40, 3, device="meta"))
    trap = trap_of(DataLoader(data, 10))
    assert trap.name == "tensors on a device, picked one by one"
    assert trap.what == "each of the 10 samples of a batch is a tensor of its own on meta"
    assert 'hotset.accelerate(loader, device="meta")' in trap.code
    sampler = BatchSampler(range(40), 10, False)
    assert names_of(DataLoader(data, batch_size=None, sampler=sampler)) == []
    inner = Numbers(float)
    inner.mean = torch.zeros(3, device="meta")
    assert names_of(DataLoader(inner, 2)) == []

    class Whole(TensorDataset):
        def __getitems__(self, indices: list[int]) -> Any:
            return [self[index] for index in indices]

    assert names_of(DataLoader(Whole(torch.zeros(40, 3, device="meta")), 10)) == []


def test_tensors_in_memory() -> None:
    """One by one; not where the dataset makes its samples, or gives whole batches."""
    data = TensorDataset(torch.zeros(40, 3), torch.arange(40))
    stages = (Stage("TensorDataset", "read", 0.3), Stage("collate", "collate", 0.2))
    trap = trap_of(DataLoader(data, 10, shuffle=True), stages=stages)
    assert trap.name == "tensors in memory, picked one by one"
    assert trap.what == (
        "the 10 samples of a batch are picked one by one, and put together again, which takes "
        "0.5 ms a batch"
    )
    loader = DataLoader(data, 10)
    (batch, *_) = run(trap.code, loader)["loader"]
    assert [leaf.shape for leaf in batch] == [(10, 3), (10,)]
    assert names_of(DataLoader(Numbers(float), 10)) == []
    assert names_of(DataLoader(data, None)) == []


class Listed(Dataset[Any]):
    """Holds rows in a container."""

    def __init__(self, rows: Any) -> None:
        self.samples = rows

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> Any:
        return float(index)


GROWING = "memory that grows as workers read"


def paths(count: int) -> list[tuple[str, int]]:
    """As torchvision's folders have them."""
    return [(f"{index:06}.jpg", 1000 + index) for index in range(count)]


def test_memory_that_grows() -> None:
    """Of 40,000 rows of three objects each; with what the loop's memory did."""
    loader = DataLoader(Listed(paths(40_000)), 10, **FORKED)
    trap = trap_of(loader)
    assert trap.name == GROWING
    assert trap.what == (
        "dataset.samples is a list of about 120,000 objects, 5.7 MB, which 2 workers may each "
        "come to hold a copy of"
    )
    told = trap_of(loader, Usage(3.0, growth_bytes=7_000_000)).what
    assert told == f"{trap.what}; memory grew by 7.0 MB while the loop ran"
    assert trap_of(loader, Usage(3.0, growth_bytes=-5)).what == trap.what
    packed = run(trap.code, loader)["dataset"].samples
    assert len(packed) == 40_000
    assert (packed[0], packed[-1], packed[77]) == (*paths(40_000)[::39_999], paths(78)[77])
    with pytest.raises(IndexError, match="out of range"):
        packed[40_000]
    assert names_of(DataLoader(loader.dataset, 10, **FORKED)) == []


def test_memory_that_grows_in_numbers_and_dictionaries() -> None:
    """Indices of a Subset count; for a dictionary there is no code."""
    length = 110_000
    loader = DataLoader(Subset(Listed([]), range(length)), 10, **FORKED)
    assert names_of(loader) == []
    loader.dataset.indices = list(range(length))
    trap = trap_of(loader)
    assert trap.what.startswith("dataset.indices is a list of about ")
    indices = run(trap.code, loader)["dataset"].indices
    assert indices.dtype == np.int64
    assert indices.tolist() == list(range(length))
    by_name = {f"{index}.jpg": [float(index)] for index in range(60_000)}
    trap = trap_of(DataLoader(Listed(by_name), 10, **FORKED))
    assert trap.what.startswith("dataset.samples is a dict of about 120,000 objects")
    assert trap.code == ""


def test_memory_that_does_not_grow() -> None:
    """Few objects, objects of which there is one, arrays, and workers that are not forked."""
    for rows in (
        paths(33_000),
        ["one"] * 200_000,
        list(range(200)) * 1000,
        np.zeros(200_000),
        torch.zeros(200_000),
    ):
        assert names_of(DataLoader(Listed(rows), 10, **FORKED)) == []
    many = Listed(paths(40_000))
    assert names_of(DataLoader(many, 10)) == []
    spawned = DataLoader(many, 10, num_workers=2, multiprocessing_context="spawn")
    assert names_of(spawned) == []


def test_shared_memory(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Five batches may be in flight: of two workers, two each, and one that is looked at."""
    room = SimpleNamespace(f_bavail=499, f_frsize=10, f_bfree=10_000)
    asked: list[str] = []
    monkeypatch.setattr(os, "statvfs", lambda path: asked.append(path) or room)
    loader = DataLoader(Numbers(float), 2, **FORKED)
    examination = examination_of(loader, batch_bytes=1000)
    (trap,) = traps_of(loader, examination, shared_memory=str(tmp_path))
    assert asked == [str(tmp_path)]
    assert trap.name == "little shared memory"
    assert trap.what == (f"{tmp_path} has 5.0 KB free, and 5 batches in flight take 5.0 KB")
    made = run(trap.code, loader)["loader"]
    assert (made.num_workers, made.prefetch_factor) == (2, 1)
    room.f_bavail = 250
    (trap,) = traps_of(loader, examination, shared_memory=str(tmp_path))
    assert run(trap.code, loader)["loader"].num_workers == 1
    room.f_bavail = 150
    (trap,) = traps_of(loader, examination, shared_memory=str(tmp_path))
    assert run(trap.code, loader)["loader"].num_workers == 0
    room.f_bavail = 500
    assert traps_of(loader, examination, shared_memory=str(tmp_path)) == ()
    assert traps_of(loader, examination, shared_memory=str(tmp_path / "none")) == ()


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Tensor:
    """A tensor that says that it is on CUDA, in a process that says that it uses it."""
    for place in ("workers", "seen"):
        monkeypatch.setattr(f"hotset.doctor.traps.{place}.is_used", lambda: True)
    with FakeTensorMode():
        return torch.zeros(3, device="cuda")


def test_fork_after_cuda(cuda: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the dataset has something on CUDA, workers are forked, and this process uses it."""
    dataset = Numbers(float)
    assert names_of(DataLoader(dataset, 2, **FORKED)) == []
    dataset.noise = {"scale": [cuda]}
    loader = DataLoader(dataset, 2, shuffle=True, **FORKED)
    trap = trap_of(loader)
    assert (trap.name, trap.is_wrong) == ("fork after CUDA", True)
    assert trap.what == (
        "dataset.noise['scale'][0] is a tensor on cuda:0, and 2 forked workers would use it"
    )
    made = run(trap.code, loader)["loader"]
    assert (made.num_workers, len(list(made))) == (0, 4)
    assert names_of(DataLoader(dataset, 2)) == []
    assert names_of(DataLoader(dataset, 2, num_workers=2, multiprocessing_context="spawn")) == []
    monkeypatch.setattr("hotset.doctor.traps.workers.is_used", lambda: False)
    assert names_of(loader) == []


def test_samples_that_come_on_the_device(cuda: Tensor) -> None:
    """Though the dataset holds none there: each was copied by itself."""
    del cuda
    loader = DataLoader(Numbers(lambda index: torch.zeros(2, device="meta")), 2)
    assert names_of(loader) == ["tensors on a device, picked one by one"]
    assert names_of(DataLoader(Numbers(lambda index: torch.zeros(2)), 2)) == []


def test_work_on_floats() -> None:
    """With what it takes; not where that is little."""
    stages = (
        Stage("Files", "read", 9.0),
        Stage("ToTensor", "transform", 0.6),
        Stage("Normalize", "transform", 0.4),
    )
    loader = DataLoader(Numbers(float), 2)
    trap = trap_of(loader, stages=stages, float_steps=("ToTensor", "Normalize"))
    assert trap.name == "work on floats that could be bytes"
    assert trap.what == (
        "ToTensor, Normalize: 1.0 ms of the 10 ms that a batch takes in one process"
    )
    assert names_of(loader, stages=stages, float_steps=("Normalize",)) == []
    assert names_of(loader, stages=stages) == []


def workers_of(*ms: float, cores: float = 1.0) -> tuple[WorkerTime, ...]:
    """So many workers."""
    return tuple(WorkerTime(number, 4, each, cores) for number, each in enumerate(ms))


def test_a_worker_start_per_epoch() -> None:
    """Of four batches, 30 ms each by the slower of two workers; 7 ms are more than a twentieth."""
    loader = DataLoader(Numbers(float), 2, drop_last=True, **FORKED)
    found: dict[str, Any] = {"workers": workers_of(20.0, 60.0), "start_ms": 7.0}
    trap = trap_of(loader, **found)
    assert trap.name == "a worker start per epoch"
    assert trap.what == ("2 workers started anew for each epoch of 4 batches: 7.0 ms, 5.5 % of it")
    made = run(trap.code, loader)["loader"]
    assert made.persistent_workers
    assert (made.batch_size, made.drop_last, made.num_workers) == (2, True, 2)
    assert made.multiprocessing_context is loader.multiprocessing_context
    assert names_of(loader, **{**found, "start_ms": 6.0}) == []
    assert names_of(loader, **found, hand_ms=40.0) == []
    assert names_of(made, **found) == []
    assert names_of(loader, start_ms=7.0, stages=(Stage("a", "read", 60.0),)) == [trap.name]
    assert names_of(loader, start_ms=6.0, stages=(Stage("a", "read", 60.0),)) == []


def test_pinning_without_an_accelerator(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where torch finds one there is no trap."""
    loader = DataLoader(Numbers(float), 2, pin_memory=True, collate_fn=list)
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    trap = trap_of(loader)
    assert trap.name == "pinned memory without an accelerator"
    made = run(trap.code, loader)["loader"]
    assert (made.pin_memory, made.collate_fn) == (False, list)
    assert names_of(DataLoader(Numbers(float), 2)) == []
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    assert names_of(loader) == []


def test_more_workers_than_cores() -> None:
    """That keep them busy; workers that wait for storage may be many."""
    loader = DataLoader(Numbers(float), 2, **FORKED)
    busy, waiting = workers_of(9.0, 9.0, cores=0.45), workers_of(9.0, 9.0, cores=0.35)
    trap = trap_of(loader, cores=1, workers=busy)
    assert trap.name == "more workers than cores"
    assert trap.what == "2 workers on 1 core, of which they keep 0.9 busy"
    assert run(trap.code, loader)["loader"].num_workers == 1
    assert names_of(loader, cores=1, workers=waiting) == []
    assert names_of(loader, cores=2, workers=workers_of(9.0, 9.0)) == []
    assert names_of(loader, cores=1, cpu_cores=0.5) == ["more workers than cores"]
    assert names_of(loader, cores=1, cpu_cores=0.3) == []


def test_code_keeps_what_else_is_set() -> None:
    """Samplers, generators, a batch sampler, and no batches at all."""
    dataset, generator = Numbers(float), torch.Generator()
    how: dict[str, Any] = {"num_workers": 0, "pin_memory": True}
    order = torch.utils.data.RandomSampler(dataset, replacement=True)
    cases = [
        DataLoader(dataset, 3, sampler=order, generator=generator, **how),
        DataLoader(dataset, batch_sampler=BatchSampler(order, 3, False), **how),
        DataLoader(dataset, None, sampler=order, **how),
        DataLoader(dataset, 1, shuffle=True, timeout=0, in_order=False, **how),
    ]
    for loader in cases:
        made = run(trap_of(loader).code, loader)["loader"]
        for name in ("batch_size", "num_workers", "generator", "in_order", "collate_fn"):
            assert getattr(made, name) == getattr(loader, name), name
        assert type(made.sampler) is type(loader.sampler)
        if loader.batch_size is None:
            assert made.batch_sampler is loader.batch_sampler
    assert run(trap_of(cases[0]).code, cases[0])["loader"].sampler is order


def test_what_is_no_dataloader_is_in_no_trap() -> None:
    """Nothing is taken from it."""
    batches = iter([torch.zeros(2)])
    assert names_of(batches) == []
    assert len(list(batches)) == 1
