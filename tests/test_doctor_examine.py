"""A loader looked at outside of its loop, on a clock that datasets and steps move."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    Subset,
    TensorDataset,
)
from torchvision import transforms as v1

import hotset
from hotset.chain.probe import generator_states
from hotset.doctor.examination import Examination
from hotset.doctor.examining.examine import examine
from hotset.doctor.findings import SlowSample, Stage, Trap, WorkerTime
from hotset.doctor.machine.usage import Usage
from hotset.errors import SampleError
from hotset.placement.link import link_to
from hotset.planning.handing import Handing
from hotset.testing import SimulatedAccelerator
from tests.planned import TICK, Clock, Rows, Timed, noisy, widened

WORKERS = (WorkerTime(0, 4, 50.0, 0.5), WorkerTime(1, 4, 70.0, 0.5))


@pytest.fixture(autouse=True)
def handing(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Four cores; starting workers takes 80 ms, handing over 3: nothing is started."""
    calls: list[dict[str, Any]] = []

    def handed(samples: Any, collate: Any, **how: Any) -> Handing:
        calls.append(how)
        return Handing(80.0, 3.0) if how["workers"] else Handing()

    for place in ("hotset.planning.estimate", "hotset.doctor.examining.parts"):
        monkeypatch.setattr(f"{place}.handing_of", handed)
        monkeypatch.setattr(f"{place}.usable_cores", lambda: 4)
    monkeypatch.setattr("hotset.doctor.examining.examine.usable_cores", lambda: 4)
    return calls


def never(loader: Any, **how: Any) -> tuple[WorkerTime, ...]:
    """In place of what starts workers, where none are to be started."""
    raise AssertionError("no workers were to be started")


def examined(loader: Any, clock: Clock, **how: Any) -> Examination:
    """On that clock; all time is processor time too."""
    link = link_to(how.pop("device", "cpu"))
    how.setdefault("siblings", never)
    how.setdefault("cpu_clock", clock)
    return examine(loader, link=link, clock=clock, **how)


def chain_on(clock: Clock) -> list[Any]:
    """Widening in 2 ticks, again in 2, then noise in 3."""
    return [
        Timed("widened", widened, 2, clock),
        Timed("widened", widened, 2, clock),
        hotset.random(Timed("noisy", noisy, 3, clock)),
    ]


def test_every_part_of_a_batch() -> None:
    """Of 10 samples: reading in 5 ticks each, three steps, of which two have one name."""
    clock = Clock()
    loader = DataLoader(Rows(clock, 5, chain_on(clock)), 10)
    found = examined(loader, clock, step_ms=4.0, step_cores=1.5)
    assert found.facts.dataset == "Rows"
    assert found.cores == 4
    assert found.stages == (
        Stage("Rows", "read", 50 * TICK),
        Stage("widened", "transform", 20 * TICK),
        Stage("widened (2)", "transform", 20 * TICK),
        Stage("noisy", "transform", 30 * TICK),
        Stage("collate", "collate", 0.0),
    )
    assert found.ms("read", "transform") == 120 * TICK
    assert found.first_read_ms == 120 * TICK
    assert found.cpu_cores == 1
    assert found.batch_bytes == 10 * (6 * 16 * 4 + 8)
    assert found.samples is not None
    assert (found.samples.count, found.samples.p50_ms) == (40, 12 * TICK)
    assert (found.start_ms, found.hand_ms) == (80.0, 3.0)
    assert (found.workers, found.limited) == ((), ())
    assert found.float_steps == ()
    assert found.plan is not None
    assert [cut.behind for cut in found.plan.cuts] == ["Rows", "widened", "widened", "noisy"]
    assert found.plan.prediction is not None
    assert found.plan.prediction.step_ms == 4.0
    assert found.plan.prediction.step_cores == 1.5
    assert (found.plan_problem, found.notes) == ("", ())
    assert found.seconds == clock()


def test_workers_and_what_is_handed_over(handing: list[dict[str, Any]]) -> None:
    """Stages that workers run have as many lanes; starting counts though they stay."""
    clock = Clock()
    dataset = Rows(clock, 5, [], length=40)
    loader = DataLoader(dataset, 10, num_workers=2, persistent_workers=True)
    asked: list[dict[str, Any]] = []
    told: list[str] = []

    def siblings(given: Any, **how: Any) -> tuple[WorkerTime, ...]:
        assert given is loader
        asked.append(how)
        return WORKERS

    found = examined(loader, clock, siblings=siblings, told=told.append)
    assert found.stages == (
        Stage("Rows", "read", 50 * TICK, lanes=2),
        Stage("collate", "collate", 0.0, lanes=2),
        Stage("hand-over", "hand-over", 3.0),
    )
    assert found.workers == WORKERS
    assert found.limited == ()
    assert asked == [{"seconds": 3.0, "sample_s": 5 / 1024, "is_limited": False}]
    assert (found.start_ms, found.hand_ms) == (80.0, 3.0)
    assert len(handing) == 1
    assert found.plan is not None
    assert found.plan.prediction is not None
    assert found.plan.prediction.data_ms == 50 * TICK / 2  # without the start, since they stay
    assert told == ["timing single samples", "looking at what could be kept", "starting 2 workers"]


@pytest.mark.parametrize(
    ("busy", "workers", "is_limited"), [(3, 2, True), (2, 2, False), (1, 8, False)]
)
def test_workers_that_compute_with_many_threads(busy: int, workers: int, is_limited: bool) -> None:
    """Are timed with one thread each too, where all together want more than the four cores."""
    clock, cpu = Clock(), Clock()

    class Threaded(Rows):
        def __getitem__(self, index: int) -> Any:
            cpu.ticks += 5 * busy
            return super().__getitem__(index)

    class Many(DataLoader[Any]):
        num_workers = workers  # torch warns where there are more than cores

    loader = Many(Threaded(clock, 5, []), 10)
    vars(loader).pop("num_workers")
    asked: list[bool] = []

    def siblings(given: Any, *, is_limited: bool, **how: Any) -> tuple[WorkerTime, ...]:
        asked.append(is_limited)
        return WORKERS[is_limited:]

    found = examined(loader, clock, cpu_clock=cpu, siblings=siblings)
    assert found.cpu_cores == busy
    assert asked == [False, True][: 1 + is_limited]
    assert found.workers == WORKERS
    assert found.limited == (WORKERS[1:] if is_limited else ())


def test_workers_that_fail_are_noted() -> None:
    """And all else is there."""
    clock = Clock()

    def siblings(given: Any, **how: Any) -> tuple[WorkerTime, ...]:
        raise SampleError("a worker of Rows failed: KeyError: 'torn'")

    loader = DataLoader(Rows(clock, 5, []), 10, num_workers=1)
    found = examined(loader, clock, siblings=siblings)
    assert found.workers == ()
    assert found.ms("read") == 50 * TICK
    assert found.notes == (
        "the workers could not be timed: a worker of Rows failed: KeyError: 'torn'",
    )


def test_copying_on_a_device_of_its_own() -> None:
    """A batch of 600 bytes at 6,000 a second."""
    clock = Clock()
    data = TensorDataset(torch.zeros(40, 13), torch.arange(40))
    device = SimulatedAccelerator("1MB", bandwidth=6000)
    found = examined(DataLoader(data, 10, pin_memory=True), clock, device=device)
    assert found.batch_bytes == 10 * (13 * 4 + 8)
    assert found.stages[-1] == Stage("copy", "copy", 100.0)
    assert found.facts.is_in_memory
    assert [stage.kind for stage in found.stages] == ["read", "collate", "copy"]


class Slow(Rows):
    """Some samples take longer, and each opens a file."""

    def __init__(self, clock: Clock, folder: Path, fails_at: int = -1) -> None:
        super().__init__(clock, 2, [])
        self.folder, self.fails_at = folder, fails_at

    def __getitem__(self, index: int) -> Any:
        path = self.folder / f"{index}.bin"
        path.exists() or path.write_bytes(b"x")
        path.read_bytes()
        if index == self.fails_at:
            raise ValueError("torn")
        self._clock.ticks += 50 * (index in (0, 39))
        return super().__getitem__(index)


def test_slow_samples_with_their_files(tmp_path: Path) -> None:
    """Through a Subset, by the index that the loader uses."""
    clock = Clock()
    dataset = Subset(Slow(clock, tmp_path), range(39, -1, -1))
    found = examined(DataLoader(dataset, 10), clock)
    assert found.samples is not None
    assert found.samples.worst[:2] == (
        SlowSample(0, 52 * TICK, str(tmp_path / "39.bin")),
        SlowSample(39, 52 * TICK, str(tmp_path / "0.bin")),
    )
    assert (found.samples.p50_ms, found.samples.p99_ms) == (2 * TICK, 52 * TICK)
    assert found.facts.dataset == "Slow"


def test_a_sample_that_fails_is_noted(tmp_path: Path) -> None:
    """Where a plan reads it too there is none; the others are timed."""
    clock = Clock()
    found = examined(DataLoader(Slow(clock, tmp_path, fails_at=0), 10), clock)
    assert found.notes == (
        "Slow failed at index 0: ValueError: torn",
        "the steps of Slow are timed with its reading, and not apart: Slow failed at index 0: "
        "ValueError: torn",
    )
    assert found.plan is None
    assert found.plan_problem == "Slow failed at index 0: ValueError: torn"
    assert found.samples is not None
    assert found.samples.count == 39
    assert found.ms("read") == pytest.approx(10 * (39 * 2 + 50) / 39 * TICK)


def test_a_stream() -> None:
    """Reading as a whole; it has no plan, and the reason says what to do."""

    class Stream(IterableDataset[Any]):
        def __iter__(self) -> Iterator[Any]:
            for number in range(500):
                clock.ticks += 3
                yield {"row": torch.zeros(4), "number": number}

    clock = Clock()
    found = examined(DataLoader(Stream(), 8), clock)
    assert found.stages[0] == Stage("Stream", "read", 24 * TICK)
    assert [stage.kind for stage in found.stages] == ["read", "collate"]
    assert found.batch_bytes == 8 * (16 + 8)
    assert found.first_read_ms == 24 * TICK
    assert found.samples is not None
    assert (found.samples.count, found.samples.p99_ms) == (500, 3 * TICK)
    assert found.plan is None
    assert found.plan_problem.startswith("Stream is an IterableDataset")
    assert found.notes == ()


class Fields(Rows):
    """Dictionaries."""

    def __getitem__(self, index: int) -> Any:
        row, label = super().__getitem__(index)
        return {"row": row, "label": label}


def test_dictionaries_and_a_collate_of_the_users_own() -> None:
    """It takes 7 ticks for a batch of 5, which a batch sampler gives."""
    clock = Clock()

    def collate(samples: list[Any]) -> Any:
        clock.ticks += 7
        rows = torch.stack([sample["row"] for sample in samples])
        return {"rows": rows.float(), "twice": [rows, rows]}

    dataset = Fields(clock, 1, [Timed("widened", widened, 2, clock)])
    sampler = BatchSampler(range(40), 5, False)
    found = examined(DataLoader(dataset, batch_sampler=sampler, collate_fn=collate), clock)
    assert found.stages == (
        Stage("Fields", "read", 5 * TICK),
        Stage("widened", "transform", 10 * TICK),
        Stage("collate", "collate", 7 * TICK),
    )
    assert found.batch_bytes == 5 * 24 * (4 + 2 + 2)
    assert found.facts.has_collate


def test_a_collate_that_fails() -> None:
    """There is no batch then, and no plan; reading is timed all the same."""
    clock = Clock()

    def collate(samples: list[Any]) -> Any:
        raise ValueError("odd")

    found = examined(DataLoader(Rows(clock, 5, []), 10, collate_fn=collate), clock)
    assert found.stages == (Stage("Rows", "read", 50 * TICK),)
    assert found.batch_bytes == 0
    assert found.notes == (
        "no batch could be put together: the collate_fn failed: ValueError: odd",
    )
    assert found.plan_problem == "the collate_fn failed: ValueError: odd"


def test_datasets_that_are_random_as_a_whole() -> None:
    """One part, and a plan that keeps nothing; no generator moves, the dataset's own included."""

    class Drawn(Rows):
        def __init__(self, clock: Clock) -> None:
            super().__init__(clock, 5, [])
            self.draws = np.random.default_rng(2)

        def __getitem__(self, index: int) -> Any:
            row, label = super().__getitem__(index)
            return row + int(self.draws.integers(9)) + random.random() + torch.rand(6), label

    clock = Clock()
    dataset = Drawn(clock)
    generator = torch.Generator().manual_seed(3)
    loader = DataLoader(dataset, 10, shuffle=True, generator=generator)
    before, own = dict(vars(loader)), [generator, dataset.draws]
    states = generator_states(own)
    found = examined(loader, clock)
    assert generator_states(own) == states
    assert vars(loader) == before
    assert [stage.name for stage in found.stages] == ["Drawn", "collate"]
    assert found.ms("read") == 50 * TICK
    assert found.plan is not None
    assert found.plan.prediction is not None
    assert found.plan.prediction.verdict == "leave it"


def test_datasets_that_are_asked_for_whole_batches() -> None:
    """All of it in 4 ticks, where one by one would take 5 each; or by lists of indices."""

    class Whole(Rows):
        def __getitems__(self, indices: list[int]) -> Any:
            clock.ticks += 4
            return [(torch.zeros(6), index) for index in indices]

    clock = Clock()
    found = examined(DataLoader(Whole(clock, 5, []), 10), clock)
    assert found.stages[0] == Stage("Whole", "read", 4 * TICK)
    assert found.notes == (
        "Whole has __getitems__, which makes whole batches: its steps are timed with its reading",
    )

    class Lists(Rows):
        def __getitem__(self, index: Any) -> Any:
            clock.ticks += 6
            return torch.zeros(len(index), 3)

    sampler = BatchSampler(range(40), 8, False)
    found = examined(DataLoader(Lists(clock, 5, []), None, sampler=sampler), clock)
    assert found.stages == (Stage("Lists", "read", 6 * TICK),)
    assert (found.samples, found.batch_bytes, found.plan) == (None, 96, None)
    assert found.notes == ("each item of Lists is a whole batch, and is timed as one",)


class Pictures(Dataset[Any]):
    """Pictures of bytes."""

    def __init__(self, *steps: Any) -> None:
        self.transform = v1.Compose(list(steps))

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> Tensor:
        from PIL import Image

        return self.transform(Image.fromarray(np.full((8, 8, 3), 20 * index, np.uint8)))


NORMALIZE = v1.Normalize([0.5] * 3, [0.5] * 3)


@pytest.mark.parametrize(
    ("steps", "names"),
    [
        ([v1.Resize(4), v1.ToTensor(), NORMALIZE], ("ToTensor", "Normalize")),
        ([v1.ToTensor(), v1.RandomHorizontalFlip()], ("ToTensor", "RandomHorizontalFlip")),
        ([v1.ToTensor(), v1.RandomCrop(8, padding=2)], ("ToTensor",)),
        ([v1.RandomHorizontalFlip(), v1.PILToTensor()], ()),
    ],
)
def test_work_on_floats(steps: list[Any], names: tuple[str, ...]) -> None:
    """What a table of bytes stands for in the plan, and moving pixels that could be done before."""
    found = examined(DataLoader(Pictures(*steps), 4), Clock())
    assert found.float_steps == names


def test_traps_are_looked_for_in_what_was_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the loader, with all that is known of it."""
    trap = Trap("a", "b", "c", "d")
    asked: list[Any] = []

    def traps_of(loader: Any, examination: Examination, usage: Any) -> tuple[Trap, ...]:
        asked.append((loader, examination.facts.name, examination.stages, usage))
        return (trap,)

    monkeypatch.setattr("hotset.doctor.examining.examine.traps_of", traps_of)
    loader, usage = DataLoader(Rows(Clock(), 5, []), 10), Usage(3.0)
    found = examined(loader, Clock(), usage=usage)
    assert found.traps == (trap,)
    assert asked == [(loader, "DataLoader", found.stages, usage)]


def test_what_is_no_dataloader() -> None:
    """Nothing is taken from it; batches in a list can be seen."""
    batches = iter([torch.zeros(2)])
    found = examined(batches, Clock())
    assert found.plan_problem == (
        "a list_iterator is no torch DataLoader: what it reads cannot be seen"
    )
    assert len(found.notes) == 1
    assert len(list(batches)) == 1
    device = SimulatedAccelerator("1MB", bandwidth=800)
    listed = examined([torch.zeros(5, 4)], Clock(), device=device)
    assert (listed.batch_bytes, listed.stages) == (80, (Stage("copy", "copy", 100.0),))
    own = hotset.Loader(torch.zeros(8, 2), 4, device="cpu")
    state = own.state_dict()
    found = examined(own, Clock())
    assert found.plan_problem == "this loader is hotset's own already; what it does is its `.plan`"
    assert (found.plan, found.notes) == (None, ())
    assert own.state_dict() == state


def test_a_dataset_so_slow_that_a_plan_would_take_minutes() -> None:
    """There is none, and reading is timed as a whole, of the few samples that there is time for."""
    clock = Clock()
    loader = DataLoader(Rows(clock, 5000, chain_on(clock)), 10)
    found = examined(loader, clock)
    assert found.plan_problem == (
        "a plan reads 30 samples at least, which take 4.9 s each; hotset.plan(loader) takes the "
        "time"
    )
    assert found.stages[0] == Stage("Rows", "read", 50070 * TICK)
    assert found.samples is not None
    assert found.samples.count == 1


def test_end_to_end_with_real_workers_and_clocks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Structure alone, and that nothing of the user's moves."""
    monkeypatch.undo()
    dataset = Pictures(v1.Resize(4), v1.RandomHorizontalFlip(), v1.ToTensor())
    loader = DataLoader(dataset, 4, shuffle=True, num_workers=2, multiprocessing_context="fork")
    before, steps = dict(vars(loader)), list(dataset.transform.transforms)
    states = generator_states()
    found = examine(loader, link=link_to("cpu"), step_ms=1.0, seconds=2.0)
    assert generator_states() == states
    assert vars(loader) == before
    assert dataset.transform.transforms == steps
    assert [stage.kind for stage in found.stages] == [
        *("read", "transform", "transform", "transform", "collate", "hand-over")
    ]
    assert [worker.number for worker in found.workers] == [0, 1]
    assert found.start_ms > 0
    assert found.plan is not None
    assert found.notes == ()
