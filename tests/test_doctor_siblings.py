"""Workers at work together: real ones, of which counts and structure are looked at, never times."""

from __future__ import annotations

import os
import random
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, Dataset, IterableDataset, get_worker_info

from hotset.chain.probe import generator_states
from hotset.doctor.examining.siblings import BATCHES, _Limited, _Run, siblings_of
from hotset.doctor.findings import WorkerTime
from hotset.errors import SampleError


class Written(Dataset[int]):
    """Says in files of what it was asked, by which worker, and with how many threads."""

    def __init__(self, folder: Path, length: int = 10, fails_at: int = -1) -> None:
        self.folder, self.length, self.fails_at = str(folder), length, fails_at
        self.begun = ""
        self.draws = random.Random(3)

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: Any) -> int:
        info = get_worker_info()
        number = -1 if info is None else info.id
        with open(os.path.join(self.folder, str(number)), "a") as file:
            file.write(f"{index} {torch.get_num_threads()} {self.begun}\n")
        if index == self.fails_at:
            raise KeyError("torn")
        self.draws.random()
        return index


def begin(number: int) -> None:
    """Finds the dataset as torch's documentation shows it, and sets a thread too many."""
    info = get_worker_info()
    assert info is not None
    info.dataset.begun = f"by {number}"
    torch.set_num_threads(2)


def summed(items: list[int]) -> int:
    """A collate_fn that only works on what it was made for."""
    return sum(items)


class Shards(IterableDataset[int]):
    """Each worker has its own numbers; those behind the first have as many as wanted."""

    def __init__(self, first: int, others: int) -> None:
        self.first, self.others = first, others

    def __iter__(self) -> Iterator[int]:
        info = get_worker_info()
        assert info is not None
        return iter(range(self.others if info.id else self.first))


def written(folder: Path) -> dict[str, list[list[str]]]:
    """What the dataset was asked for, by worker."""
    return {
        path.name: [line.split(maxsplit=2) for line in path.read_text().splitlines()]
        for path in folder.iterdir()
    }


@pytest.mark.parametrize(("method", "workers"), [("fork", 2), ("spawn", 1)])
def test_workers_and_what_stays_as_it_was(method: str, workers: int, tmp_path: Path) -> None:
    """Each has batches; loader, sampler, dataset and generators do not move."""
    dataset = Written(tmp_path)
    generator = torch.Generator().manual_seed(5)
    loader = DataLoader(
        dataset,
        4,
        shuffle=True,
        num_workers=workers,
        generator=generator,
        worker_init_fn=begin,
        collate_fn=summed,
        multiprocessing_context=method,
    )
    before = dict(vars(loader))
    own = [generator, dataset.draws]
    states = generator_states(own)
    found = siblings_of(loader)
    assert [worker.number for worker in found] == list(range(workers))
    assert all(worker.batches >= BATCHES and worker.ms > 0 for worker in found)
    assert generator_states(own) == states
    assert vars(loader) == before
    assert dataset.begun == ""
    asked = written(tmp_path)
    assert sorted(asked) == ["0", "1"][:workers]
    for number, lines in asked.items():
        assert len(lines) >= 4 * BATCHES
        assert {tuple(line[1:]) for line in lines} == {("2", f"by {number}")}
        assert {int(line[0]) for line in lines} <= set(range(10))


def test_workers_held_to_one_thread(tmp_path: Path) -> None:
    """Behind what the user's worker_init_fn does."""
    loader = DataLoader(Written(tmp_path), 2, num_workers=1, worker_init_fn=begin)
    assert len(siblings_of(loader, is_limited=True)) == 1
    assert {tuple(line[1:]) for line in written(tmp_path)["0"]} == {("1", "by 0")}


def test_libraries_that_are_imported_are_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """OpenCV and Numba where they are there, each in its own way."""
    calls: list[tuple[str, int]] = []
    for name, setter in (("cv2", "setNumThreads"), ("numba", "set_num_threads")):
        module = types.ModuleType(name)
        setattr(module, setter, lambda count, name=name: calls.append((name, count)))
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(torch, "set_num_threads", lambda count: calls.append(("torch", count)))
    limits = types.ModuleType("threadpoolctl")
    limits.threadpool_limits = lambda limits: calls.append(("pools", limits))
    monkeypatch.setitem(sys.modules, "threadpoolctl", limits)
    monkeypatch.setattr("hotset.doctor.examining.siblings.find_spec", lambda name: True)
    _Limited(None)(0)
    assert calls == [("torch", 1), ("cv2", 0), ("numba", 1), ("pools", 1)]


def test_samples_in_order_and_by_lists(tmp_path: Path) -> None:
    """A loader that reads in order has consecutive ones; one of index lists is given lists."""
    (tmp_path / "order").mkdir()
    siblings_of(DataLoader(Written(tmp_path / "order"), 3, num_workers=1))
    lines = written(tmp_path / "order")["0"]
    assert [int(line[0]) for line in lines[:12]] == [n % 10 for n in range(12)]
    lists = BatchSampler(range(10), 2, False)
    keyed = DataLoader(np.arange(10), batch_size=None, sampler=lists, num_workers=1)
    assert siblings_of(keyed)[0].batches == BATCHES
    items = DataLoader(Written(tmp_path), batch_size=None, num_workers=1)
    assert siblings_of(items)[0].batches == BATCHES


def test_long_batches_are_timed_in_part(tmp_path: Path) -> None:
    """Where a sample takes a second, batches have one, not four."""
    loader = DataLoader(Written(tmp_path, length=4), 4, num_workers=1)
    found = siblings_of(loader, sample_s=1.0)
    assert found[0].batches == BATCHES
    assert BATCHES < len(written(tmp_path)["0"]) < 4 * BATCHES


def test_streams() -> None:
    """Each worker has its part; one with few samples counts as far as they go, one without not."""
    even = siblings_of(DataLoader(Shards(400, 400), 4, num_workers=2))
    assert [worker.number for worker in even] == [0, 1]
    short = siblings_of(DataLoader(Shards(0, 6), 4, num_workers=2))
    assert [(worker.number, worker.batches) for worker in short] == [(1, 1)]
    items = siblings_of(DataLoader(Shards(9, 9), batch_size=None, num_workers=1))
    assert items[0].batches == BATCHES


def test_a_worker_that_fails_says_how(tmp_path: Path) -> None:
    """And nothing is started where there are no workers."""
    loader = DataLoader(Written(tmp_path, fails_at=3), 4, num_workers=1)
    with pytest.raises(SampleError, match=r"^a worker of Written failed: KeyError: 'torn'$"):
        siblings_of(loader)
    assert siblings_of(DataLoader(Written(tmp_path))) == ()


class Came:
    """An iterator of records in place of a loader's."""

    def __init__(self, records: list[Any]) -> None:
        self.records, self.is_shut = iter(records), False

    def __iter__(self) -> Came:
        return self

    def __next__(self) -> Any:
        return next(self.records)

    def _shutdown_workers(self) -> None:
        self.is_shut = True


def test_what_is_counted() -> None:
    """What came after the last worker had begun, for batches of 8, of which the last had but 4."""
    run, came = _Run(2), Came([(0, 8, 9.0, 0.0), (0, 8, 7.0, 0.0), (1, 8, 9.0, 0.0)])
    came.records = iter(
        [*came.records, (0, 8, 2.0, 1.0), (1, 8, 4.0, 8.0), (0, 8, 4.0, 2.0), (1, 4, 2.0, 1.0)]
    )
    run.take(came, 60)
    assert came.is_shut
    assert run.times(8) == (
        WorkerTime(0, 2, 3000.0, 0.5),
        WorkerTime(1, 2, 4000.0, 1.5),
    )


def test_workers_of_which_one_never_comes() -> None:
    """The others' first batches are left out, where there are more."""
    run = _Run(2)
    run.take(Came([(0, 1, 9.0, 9.0), (0, 1, 1.0, 0.5)]), 60)
    assert run.times(1) == (WorkerTime(0, 1, 1000.0, 0.5),)
