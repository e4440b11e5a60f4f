"""`hotset.diagnose`: what it watches, what it leaves as it was, and what it refuses."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, RandomSampler, TensorDataset

import hotset
from hotset.chain.probe import generator_states
from hotset.doctor.diagnosis import Clocks, _diagnosed, diagnosed, own_cost_us
from hotset.doctor.examination import Examination
from hotset.doctor.facts import facts_of
from hotset.doctor.findings import Stage, Trap
from hotset.doctor.machine.usage import Usage
from hotset.doctor.measure import Recording
from hotset.doctor.report import LoaderShare, Report
from hotset.errors import ConfigError, DeviceError
from hotset.testing import SimulatedAccelerator
from tests.planned import TICK, Clock, Rows


class Examining:
    """In place of the examination: says what it was asked, and finds what it is told."""

    def __init__(self, **found: Any) -> None:
        self.found, self.asked = found, []

    def __call__(self, loader: Any, **asked: Any) -> Examination:
        self.asked.append(asked)
        return Examination(facts=facts_of(loader), cores=4, **self.found)


def missing(name: str) -> Any:
    """Nothing looks at the machine: its clock is another one."""
    raise ImportError(name)


class Doctored:
    """`hotset.diagnose` on a clock that only what is looked at moves.

    Attributes:
        clock: goes when something takes time.
        examining: in place of the examination.
    """

    def __init__(self, **found: Any) -> None:
        self.clock, self.examining = Clock(), Examining(**found)

    def report(self, loader: Any, step: Any = None, steps: int = 12, **how: Any) -> Report:
        """What it finds."""
        how.setdefault("progress", False)
        clocks = Clocks(self.clock, self.clock, self.sleep, self.examining, missing)
        return _diagnosed(loader, step, steps, clocks=clocks, **how)

    def sleep(self, seconds: float) -> None:
        """Lets some time pass."""
        self.clock.ticks += round(seconds * 1024)

    def loader(self, length: int = 40, **how: Any) -> DataLoader[Any]:
        """Four batches of ten samples, 3 ticks each."""
        return DataLoader(Rows(self.clock, 3, [], length), 10, **how)


def test_a_step_that_is_called() -> None:
    """With each batch, then with a kept one; waits and steps are exact."""
    doctored = Doctored()
    seen: list[int] = []

    def step(batch: Any) -> None:
        seen.append(len(batch[1]))
        doctored.clock.ticks += 6 * len(batch[1])

    report = doctored.report(doctored.loader(), step)
    assert len(report.timeline) == 12
    assert report.timeline.epoch.tolist() == [0] * 4 + [1] * 4 + [2] * 4
    assert (1000 * report.timeline.wait_s).tolist() == [30 * TICK] * 12
    assert (1000 * report.timeline.step_s).tolist() == [60 * TICK] * 12
    assert report.timeline.samples.tolist() == [10] * 12
    assert [epoch.is_whole for epoch in report.loop.epochs] == [True, True, False]
    assert report.loop.wait_ms == pytest.approx(30 * TICK)
    assert report.loop.step_ms == pytest.approx(60 * TICK)
    assert report.loop.step_cores == pytest.approx(1)
    assert seen[:12] == [10] * 12
    assert set(seen[12:]) == {10, 5}
    (asked,) = doctored.examining.asked
    assert asked["step_ms"] == 60 * TICK
    assert (asked["clock"], asked["cpu_clock"]) == (doctored.clock, doctored.clock)
    assert report.title == "DataLoader over Rows"


def test_a_step_of_so_many_milliseconds() -> None:
    """Is slept, and not replayed."""
    doctored = Doctored()
    report = doctored.report(doctored.loader(), 62.5)
    assert report.timeline.step_s.tolist() == [0.0625] * 12
    assert report.loop.step_ms == pytest.approx(62.5)
    assert doctored.examining.asked[0]["step_ms"] == pytest.approx(62.5)
    assert doctored.report(doctored.loader(), 0).loop.step_ms == 0


def test_a_step_that_is_not_known() -> None:
    """Takes no time, and that is told to the examination as not known."""
    doctored = Doctored()
    report = doctored.report(doctored.loader())
    assert report.loop.step_ms == 0
    assert report.loop.wait_ms == pytest.approx(30 * TICK)
    assert doctored.examining.asked[0]["step_ms"] is None


def test_what_was_examined_is_reported() -> None:
    """Traps and stages, with the step; the machine's use goes along."""
    trap = Trap("a", "b", "c", "d", is_wrong=True)
    stages = (Stage("Rows", "read", 30 * TICK),)
    doctored = Doctored(traps=(trap,), stages=stages, seconds=2.5)
    report = doctored.report(doctored.loader(), 62.5)
    assert report.traps == (trap,)
    assert [stage.kind for stage in report.stages] == ["read", "step"]
    assert report.overhead.examined_s == 2.5
    assert report.usage is not None
    assert doctored.examining.asked[0]["usage"] is report.usage
    assert report.usage.seconds == 12 * 30 / 1024 + 12 * 0.0625


def test_it_stops_after_so_many_seconds() -> None:
    """In the middle of an epoch; after one batch at least, however few they are."""
    doctored = Doctored()
    report = doctored.report(doctored.loader(), seconds=0.15)
    assert len(report.timeline) == 6  # of 30 ticks each, which are 0.0293 s
    assert len(doctored.report(doctored.loader(), seconds=1e-9).timeline) == 1
    assert len(doctored.report(doctored.loader(), seconds=1e9, steps=2).timeline) == 2


def test_a_device_of_its_own() -> None:
    """Batches are moved there as a part of the loop, and the replayed step finds them there."""
    doctored = Doctored()
    device = SimulatedAccelerator("1MB", bandwidth="1MB")
    dtypes: list[Any] = []
    report = doctored.report(
        doctored.loader(), lambda batch: dtypes.append(batch[0].dtype), steps=8, device=device
    )
    assert set(dtypes) == {torch.int16}
    nbytes = 10 * (6 * 2 + 8)
    assert device.bytes_copied >= 8 * nbytes
    assert doctored.examining.asked[0]["link"] is device
    assert len(report.timeline) == 8
    copied = device.bytes_copied
    doctored.report(doctored.loader(), None, steps=3, device=device)
    assert device.bytes_copied - copied == 3 * nbytes
    with pytest.raises(DeviceError, match="cuda:99"):
        doctored.report(doctored.loader(), device="cuda:99")


@pytest.mark.parametrize(("least", "helps"), [(10, None), (1, True)])
def test_a_step_that_fails_on_half_batches(least: int, helps: bool | None) -> None:
    """Nothing is known of other batches then; one that takes as long for half of it says more."""
    doctored = Doctored(stages=(Stage("Rows", "read", 30 * TICK),))

    def step(batch: Any) -> None:
        if len(batch[1]) < least:
            raise ValueError("ten, please")
        doctored.clock.ticks += 500

    report = doctored.report(doctored.loader(), step, steps=24)
    assert report.loop.step_ms == pytest.approx(500 * TICK)
    assert report.verdict.bound == "compute-bound"
    assert report.batch_check.helps is helps


def test_batches_that_cannot_be_halved() -> None:
    """Of one sample, parts of many sizes, or no tensors: the step is called with whole ones."""
    for batch in ([torch.zeros(1)], [torch.zeros(4), torch.zeros(6)], ["words"]):
        seen: list[Any] = []
        report = Doctored().report([batch] * 4, seen.append, steps=4)
        assert {len(each) for each in seen} == {len(batch)}
        assert all(len(a) == len(b) for each in seen for a, b in zip(each, batch, strict=True))
        assert report.batch_check.helps is None


def test_a_step_that_raises() -> None:
    """What it raises comes out as it is, and generators are put back all the same."""
    doctored = Doctored()
    error = KeyError("mine")

    def step(batch: Any) -> None:
        random.random()
        raise error

    states = generator_states()
    with pytest.raises(KeyError, match="mine") as caught:
        doctored.report(doctored.loader(shuffle=True), step)
    assert caught.value is error
    assert generator_states() == states
    assert doctored.examining.asked == []


def test_a_loader_that_raises() -> None:
    """Likewise."""

    class Torn(Rows):
        def __getitem__(self, index: int) -> Any:
            raise OSError("torn")

    with pytest.raises(OSError, match=r"^torn$"):
        Doctored().report(DataLoader(Torn(Clock(), 1, []), 10))


class Drawn(Rows):
    """Draws from every kind of generator there is."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock, 1, [])
        self.draws = [np.random.default_rng(2), random.Random(3)]

    def __getitem__(self, index: int) -> Any:
        noise = self.draws[0].random() + self.draws[1].random() + random.random()
        return torch.rand(3) + noise + np.random.rand(), super().__getitem__(index)


def test_generators_stay_as_they_were() -> None:
    """Python's, NumPy's, torch's, the dataset's, the loader's, the sampler's; whatever is drawn."""
    clock = Clock()
    dataset = Drawn(clock)
    orders = [torch.Generator().manual_seed(4), torch.Generator().manual_seed(5)]
    sampler = RandomSampler(dataset, generator=orders[0])
    loader = DataLoader(dataset, 10, sampler=sampler, generator=orders[1])
    before, own = dict(vars(loader)), [*dataset.draws, *orders]
    states = generator_states(own)
    Doctored().report(loader, lambda batch: torch.rand(2) + random.random())
    assert generator_states(own) == states
    assert vars(loader) == before


def test_workers_that_stay_are_ended() -> None:
    """If the loader had none before; else they stay."""
    data = TensorDataset(torch.arange(8.0))
    how: dict[str, Any] = {"persistent_workers": True, "multiprocessing_context": "fork"}
    loader = DataLoader(data, 2, num_workers=1, **how)
    doctored = Doctored()
    doctored.report(loader, steps=3)
    assert loader._iterator is None
    assert [x.tolist() for (x,) in loader] == [[0, 1], [2, 3], [4, 5], [6, 7]]
    running = loader._iterator
    doctored.report(loader, steps=3)
    assert loader._iterator is running
    assert [x.tolist() for (x,) in loader] == [[0, 1], [2, 3], [4, 5], [6, 7]]
    running._shutdown_workers()


def test_a_loader_of_hotsets_stands_where_it_stood() -> None:
    """It gives the batches that it would have given, also in the middle of an epoch."""
    data = TensorDataset(torch.arange(40.0))
    loaders = []
    for _ in range(2):
        torch.manual_seed(6)
        plain = DataLoader(data, 5, shuffle=True, generator=torch.Generator().manual_seed(2))
        loaders.append(hotset.accelerate(plain, device="cpu"))
        batches = iter(loaders[-1])
        for _ in range(3):
            next(batches)
        batches.close()
    watched, alone = loaders
    state = watched.state_dict()
    report = Doctored().report(watched, steps=20)
    assert len(report.timeline) == 20
    assert watched.state_dict() == state
    alone.load_state_dict(alone.state_dict())
    for _ in range(2):
        torch.manual_seed(7)
        given = [batch[0].tolist() for batch in watched]
        torch.manual_seed(7)
        assert given == [batch[0].tolist() for batch in alone]


def test_any_iterable_of_batches() -> None:
    """A list, a stream without end, and one that gives batches but once."""
    listed = [torch.zeros(4, 2)] * 5
    report = Doctored().report(listed, steps=12)
    assert report.timeline.epoch.tolist() == [0] * 5 + [1] * 5 + [2] * 2
    assert report.title == "list"

    class Endless(IterableDataset[Any]):
        def __iter__(self) -> Iterator[Any]:
            while True:
                yield torch.zeros(3)

    report = Doctored().report(DataLoader(Endless(), 6), steps=12)
    assert report.timeline.epoch.tolist() == [0] * 12

    class Once:
        def __init__(self) -> None:
            self.batches = iter(listed)

        def __iter__(self) -> Iterator[Any]:
            return self.batches

    report = Doctored().report(Once(), steps=12)
    assert len(report.timeline) == 5


def test_progress_is_told() -> None:
    """To a function of one's own, with what is to come; nothing is printed then."""
    told: list[tuple[int, int]] = []
    doctored = Doctored()
    doctored.report(doctored.loader(), steps=3, progress=lambda *args: told.append(args))
    assert told == [(1, 3), (2, 3), (3, 3)]


@pytest.mark.parametrize("progress", [None, True, False])
def test_nothing_is_printed_where_nobody_watches(progress: Any, capfd: Any) -> None:
    """Neither to a file nor to a pipe."""
    doctored = Doctored()
    doctored.report(doctored.loader(), lambda batch: None, steps=3, progress=progress)
    assert capfd.readouterr() == ("", "")


LOADER = [torch.zeros(2)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((17,), "`loader` must be a DataLoader or another iterable of batches, got 17"),
        (
            (iter(LOADER),),
            "`loader` must be an iterable that can be started anew, got an iterator; pass the "
            "loader itself",
        ),
        (([],), "`loader` gave no batch, so there is nothing to look at"),
        (
            (LOADER, "fast"),
            "`step` must be a callable that takes a batch, milliseconds per batch, or None, got "
            "'fast'",
        ),
        (
            (LOADER, True),
            "`step` must be a callable that takes a batch, milliseconds per batch, or None, got "
            "True",
        ),
        (
            (LOADER, -1),
            "`step` must be a callable that takes a batch, milliseconds per batch, or None, got -1",
        ),
        (
            (LOADER, float("nan")),
            "`step` must be a callable that takes a batch, milliseconds per batch, or None, got "
            "nan",
        ),
        ((LOADER, None, 0), "`steps` must be a whole number of at least 1, got 0"),
        ((LOADER, None, 2.5), "`steps` must be a whole number of at least 1, got 2.5"),
        ((LOADER, None, True), "`steps` must be a whole number of at least 1, got True"),
    ],
)
def test_arguments_that_cannot_be_used(arguments: Any, message: str) -> None:
    """An error says what was expected, what came, and what to do."""
    with pytest.raises(ConfigError, match=r"^`") as caught:
        hotset.diagnose(*arguments, progress=False)
    assert str(caught.value) == message


@pytest.mark.parametrize("seconds", [0, -1, "long", True, float("nan")])
def test_seconds_that_cannot_be_used(seconds: Any) -> None:
    """Likewise."""
    with pytest.raises(ConfigError, match=r"^`") as caught:
        hotset.diagnose(LOADER, seconds=seconds)
    assert str(caught.value) == f"`seconds` must be more than 0, or None, got {seconds!r}"


def test_the_report_on_any_recorded_loop() -> None:
    """Its title, loaders and notes are as they are given; without a batch there is none."""
    examining = Examining(notes=("noted",))
    clocks = Clocks(examine=examining)
    recording = Recording()
    with pytest.raises(ConfigError, match=r"^no batch came, so there is nothing to report$"):
        diagnosed(LOADER, recording, clocks=clocks)
    recording.begin_epoch()
    for _ in range(3):
        recording.ask()
        recording.come(LOADER[0])
    share = LoaderShare("DataLoader over Rows", 3, 1, 0.5, is_examined=True)
    usage = Usage(1.0, cores_busy=1.0, cores_busy_all=1.0)
    told: list[str] = []
    report = diagnosed(
        LOADER,
        recording,
        title="train.py",
        usage=usage,
        loaders=[share],
        notes=["ended early"],
        told=told.append,
        clocks=clocks,
    )
    assert (report.title, report.loaders, report.usage) == ("train.py", (share,), usage)
    assert report.notes == ("ended early",)
    assert examining.asked[0]["told"] == told.append
    assert (report.loop.batches, report.versions["hotset"]) == (3, hotset.__version__)
    assert report.overhead.batch_us > 0
    assert own_cost_us() > 0


def test_end_to_end() -> None:
    """With real clocks, and no step: structure alone."""
    data = TensorDataset(torch.zeros(64, 4), torch.arange(64))
    loader = DataLoader(data, 8, shuffle=True)
    states = generator_states()
    report = hotset.diagnose(
        loader, lambda batch: batch[0] @ torch.ones(4, 512), 20, progress=False
    )
    assert generator_states() == states
    assert len(report.timeline) == 20
    assert [trap.name for trap in report.traps] == ["tensors in memory, picked one by one"]
    assert str(report).count("\n") > 10
    assert report.as_dict()["loop"]["batches"] == 20


@pytest.mark.parametrize("loader", [DataLoader, "batches", b"batches", {"a": 1}])
def test_what_is_no_loader(loader: Any) -> None:
    """Some of it could be iterated over, and has no batches."""
    with pytest.raises(ConfigError, match="`loader` must be a DataLoader or another iterable of"):
        hotset.diagnose(loader)
    with pytest.raises(ConfigError, match="`loader` must be a DataLoader or another iterable of"):
        hotset.watch(loader)


class Unsendable:
    """A batch that cannot be pickled."""

    def __init__(self, samples: list[Any]) -> None:
        self.call = lambda: samples


def test_batches_that_no_worker_could_hand_over() -> None:
    """Said in a note; nothing waits for them."""
    loader = DataLoader(TensorDataset(torch.ones(64, 2)), batch_size=4, collate_fn=Unsendable)
    report = hotset.diagnose(loader, steps=16, progress=False)
    (note,) = (each for each in report.examination.notes if "hand" in each)
    assert "a worker cannot hand over such batches" in note
