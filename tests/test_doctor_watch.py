"""`hotset.watch`: the same batches in somebody's own loop, and a report on it."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

import hotset
from hotset.doctor.measure import Recording, Timeline
from hotset.doctor.watch import Watched
from hotset.errors import ConfigError
from tests.planned import Clock

NAN = float("nan")


def loader_of(length: int = 40, **how: Any) -> DataLoader[Any]:
    """Batches of ten numbers."""
    return DataLoader(TensorDataset(torch.arange(float(length))), 10, **how)


def firsts(batches: Any) -> list[float]:
    """The first number of each batch."""
    return [float(batch[0][0]) for batch in batches]


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What reports are asked for; none is made, and no loader is examined."""
    asked: list[Any] = []

    def diagnosed(loader: Any, recording: Recording, **how: Any) -> Timeline:
        asked.append((loader, how))
        return recording.timeline()

    monkeypatch.setattr("hotset.doctor.watch.diagnosed", diagnosed)
    return asked


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch, seen: list[Any]) -> Clock:
    """A clock that goes only when something says so; reports are the times by it."""
    del seen
    clock = Clock()

    def recording(**how: Any) -> Recording:
        return Recording(clock=clock, cpu_clock=clock, **how)

    monkeypatch.setattr("hotset.doctor.watch.Recording", recording)
    return clock


class Ticking:
    """Batches that take some ticks each, and so does the end."""

    def __init__(self, clock: Clock, *ticks: int) -> None:
        self._clock, self._ticks = clock, ticks

    def __iter__(self) -> Iterator[torch.Tensor]:
        for ticks in self._ticks:
            self._clock.ticks += ticks
            yield torch.zeros(ticks)
        self._clock.ticks += 100


def test_times_of_a_loop(clock: Clock) -> None:
    """Of two epochs; what is done between them is no part of them."""
    watched = hotset.watch(Ticking(clock, 8, 16))
    for _ in range(2):
        for batch in watched:
            clock.ticks += 2 * len(batch)
        clock.ticks += 5000
    times = watched.report()
    assert times.epoch.tolist() == [0, 0, 1, 1]
    assert (1024 * times.wait_s).tolist() == [8, 16] * 2
    assert (1024 * times.step_s).tolist() == [16, 32] * 2
    assert (1024 * times.cpu_s).tolist() == [16, 32] * 2
    assert (1024 * times.end_s).tolist() == [100, 100]
    assert times.samples.tolist() == [8, 16] * 2


def test_a_loop_that_is_left(clock: Clock) -> None:
    """By `break`: its last step has no time; the loader is gone through anew after."""
    watched = hotset.watch(Ticking(clock, 8, 16))
    for _ in watched:
        clock.ticks += 3
        break
    clock.ticks += 1000
    assert len(list(watched)) == 2
    times = watched.report()
    np.testing.assert_array_equal(1024 * times.step_s, [NAN, 0, 0])
    np.testing.assert_array_equal(1024 * times.end_s, [NAN, 100])


def test_a_loop_that_fails(clock: Clock) -> None:
    """The error comes out as it is, through the context manager too, and there is a report."""
    error, watched = ValueError("diverged"), hotset.watch(Ticking(clock, 8, 16))

    def train() -> None:
        with watched:
            for _ in watched:
                raise error

    with pytest.raises(ValueError, match="diverged") as caught:
        train()
    assert caught.value is error
    np.testing.assert_array_equal(watched.report().step_s, [NAN])


def test_a_loader_that_fails(clock: Clock) -> None:
    """Likewise; batches before are there."""

    class Torn(Ticking):
        def __iter__(self) -> Iterator[torch.Tensor]:
            yield from super().__iter__()
            raise OSError("torn")

    watched = hotset.watch(Torn(clock, 8, 16))
    with pytest.raises(OSError, match="torn"):
        list(watched)
    times = watched.report()
    assert (1024 * times.wait_s).tolist() == [8, 16]
    assert np.isnan(times.end_s).all()


def test_watching_ends_with_the_context(clock: Clock) -> None:
    """The loader goes on giving batches, also in the middle of an epoch; no more are counted."""
    loader = Ticking(clock, 8, 16, 32, 64)
    with hotset.watch(loader) as watched:
        assert isinstance(watched, Watched)
        batches = iter(watched)
        taken = [len(next(batches)), len(next(batches))]
    taken += [len(batch) for batch in batches]
    assert taken == [8, 16, 32, 64]
    assert [len(batch) for batch in watched] == taken
    times = watched.report()
    assert (1024 * times.wait_s).tolist() == [8, 16]
    assert watched.report().wait_s.tolist() == times.wait_s.tolist()


def test_two_iterators_at_once(clock: Clock) -> None:
    """Both give all batches; only the one that was begun last counts from then on."""
    watched = hotset.watch(Ticking(clock, 8, 16, 32))
    first = iter(watched)
    taken = [len(next(first))]
    clock.ticks += 7
    second = iter(watched)
    others = [len(next(second))]
    taken += [len(batch) for batch in first]
    others += [len(batch) for batch in second]
    assert taken == others == [8, 16, 32]
    times = watched.report()
    assert times.epoch.tolist() == [0, 1, 1, 1]
    assert (1024 * times.wait_s).tolist() == [8, 8, 16, 32]
    # The other's batches were taken while this one's first step went on.
    np.testing.assert_array_equal(1024 * times.step_s, [NAN, 16 + 32 + 100, 0, 0])


def test_an_iterator_that_is_not_begun() -> None:
    """Starts nothing, and counts for nothing."""
    watched = hotset.watch(loader_of())
    iter(watched)
    with pytest.raises(ConfigError, match=r"^no batch came, so there is nothing to report$"):
        watched.report(progress=False)


def test_no_batch_is_an_error() -> None:
    """Whether none was asked for, or none came."""
    for loader in (loader_of(), []):
        with hotset.watch(loader) as watched:
            assert loader or not list(watched)
        with pytest.raises(ConfigError, match=r"^no batch came, so there is nothing to report$"):
            watched.report(progress=False)


def test_what_the_loader_has_is_passed_on() -> None:
    """Its length, its attributes and methods; and its own errors where it has none."""
    loader = loader_of(shuffle=True)
    watched = hotset.watch(loader)
    assert len(watched) == 4
    assert watched.dataset is loader.dataset
    assert watched.sampler is loader.sampler
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        watched.nothing  # noqa: B018
    with pytest.raises(TypeError, match="has no len"):
        len(hotset.watch(Ticking(Clock(), 1)))
    again = copy.copy(watched)
    assert again.dataset is loader.dataset


def test_batches_are_those_of_the_loader() -> None:
    """For the same seed, with workers too."""
    how: dict[str, Any] = {"shuffle": True, "num_workers": 1, "multiprocessing_context": "fork"}
    plain, watched = loader_of(**how), hotset.watch(loader_of(**how))
    for _ in range(2):
        torch.manual_seed(3)
        expected = [batch[0].tolist() for batch in plain]
        torch.manual_seed(3)
        assert [batch[0].tolist() for batch in watched] == expected


@pytest.mark.parametrize("given", [17, None])
def test_what_cannot_be_watched(given: Any) -> None:
    """An error says what was expected, and what came."""
    message = f"^`loader` must be a DataLoader or another iterable of batches, got {given}$"
    with pytest.raises(ConfigError, match=message):
        hotset.watch(given)


def test_iterators_cannot_be_watched() -> None:
    """Nothing is taken from them."""
    batches = (number for number in range(2))
    message = "^`loader` must be the loader itself, got an iterator of it$"
    with pytest.raises(ConfigError, match=message):
        hotset.watch(batches)
    assert list(batches) == [0, 1]


def test_what_a_report_is_asked_for(seen: list[Any]) -> None:
    """Of the loader itself, on the device that is named, with what the machine did."""
    loader = loader_of()
    watched = hotset.watch(loader)
    firsts(watched)
    watched.report(device="cpu", progress=False)
    watched.report()
    (first, how), (again, more) = seen
    assert first is again is loader
    assert (how["device"], more["device"]) == ("cpu", None)
    assert how["usage"] is more["usage"]
    assert how["usage"].seconds >= 0


def test_the_machine_is_told_of_each_batch(monkeypatch: pytest.MonkeyPatch, seen: Any) -> None:
    """From the first epoch on, and until watching ends; memory settles after eight batches."""
    del seen
    calls: list[str] = []

    class Machine:
        def __getattr__(self, name: str) -> Any:
            return lambda: calls.append(name)

    monkeypatch.setattr("hotset.doctor.watch.Machine", Machine)
    watched = hotset.watch(loader_of(50))
    assert calls == []
    for _ in range(2):
        firsts(watched)
    watched.report()
    watched.stop()
    firsts(watched)
    assert calls == ["begin", *["look"] * 8, "settle", "look", "look", "end"]


def test_reports_end_to_end() -> None:
    """Of a `DataLoader`, twice; nothing is printed, and the loader can be gone through again."""
    watched = hotset.watch(loader_of(200))
    for _ in range(2):
        firsts(watched)
    report, again = watched.report(progress=False), watched.report(progress=False)
    assert report.loop == again.loop
    assert report.loop.batches == 40
    assert [epoch.is_whole for epoch in report.loop.epochs] == [True, True]
    assert report.examination.facts.kind == "DataLoader"
    assert report.title == "DataLoader over TensorDataset"
    assert [trap.name for trap in report.traps] == ["tensors in memory, picked one by one"]
    assert "Tensors in memory, picked one by one" in report.text()
    assert firsts(watched) == [10.0 * number for number in range(20)]


def test_a_loader_of_hotsets() -> None:
    """It is known in depth, and stands where the loop left it."""
    fast = hotset.accelerate(loader_of(200, shuffle=True), device="cpu")
    watched = hotset.watch(fast)
    firsts(watched)
    state = fast.state_dict()
    assert watched.state_dict() == state
    report = watched.report(progress=False)
    assert report.examination.facts.kind == "hotset.Loader"
    assert report.loop.batches == 20
    assert fast.state_dict() == state


class Stream(IterableDataset[Any]):
    """Forty numbers."""

    def __iter__(self) -> Iterator[float]:
        yield from map(float, range(40))


def test_the_loader_of_a_stream() -> None:
    """Is examined on a few of its samples."""
    watched = hotset.watch(DataLoader(Stream(), 10))
    with watched:
        assert [float(batch[0]) for batch in watched] == [0.0, 10.0, 20.0, 30.0]
    report = watched.report(progress=False)
    assert report.examination.facts.is_stream
    assert report.loop.batches == 4
    assert report.timeline.samples.tolist() == [10] * 4


def test_any_iterable() -> None:
    """Little is known of it, and that is noted."""
    watched = hotset.watch([torch.zeros(4, 2)] * 12)
    assert len(list(watched)) == 12
    report = watched.report(progress=False)
    assert report.examination.facts.kind == "iterable"
    assert report.loop.samples == 4
    assert report.examination.notes[0].startswith("list is no torch DataLoader")
