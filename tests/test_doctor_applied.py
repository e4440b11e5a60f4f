"""The doctor on real loaders whose work goes by a clock of its own, and its advice really taken.

Datasets, steps and training move the clock; nothing else does. So all times are exact.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, default_collate

import hotset
from hotset.doctor.diagnosis import Clocks, _diagnosed
from hotset.doctor.report import Report
from hotset.testing import SimulatedAccelerator
from tests.planned import Clock, Rows, Timed, noisy, widened

AGREED = 0.15
"""By which a predicted gain may miss the measured one."""
BATCH = 8
STEPS = 24
"""Batches of a loop: more than an epoch of forty samples has, so that epochs start in between."""


@pytest.fixture(autouse=True)
def one_core(monkeypatch: pytest.MonkeyPatch) -> None:
    """No core is free for workers on any machine: they would have clocks of their own."""
    monkeypatch.setattr("hotset.doctor.examining.examine.usable_cores", lambda: 1)


def clocks_of(clock: Callable[[], float], passes: Callable[[float], object]) -> Clocks:
    """A clock for all that is measured; all of it keeps a core busy. No system reads anything."""
    return Clocks(wall=clock, cpu=clock, sleep=passes, load=missing)


def missing(name: str) -> Any:
    """No package that would look at the machine."""
    raise ModuleNotFoundError(name)


@dataclass
class Trained:
    """A loop on a clock of its own.

    Attributes:
        clock: goes when something takes time.
        ticks: that a step takes.
    """

    clock: Clock = field(default_factory=Clock)
    ticks: int = 40

    def step(self, batch: Any) -> None:
        """Training on a batch."""
        self.clock.ticks += self.ticks

    def report(self, loader: Any) -> Report:
        """What the doctor says of it."""
        clocks = clocks_of(self.clock, lambda seconds: None)
        return _diagnosed(loader, self.step, STEPS, clocks=clocks, progress=False)


def loader_of(dataset: Any, **options: Any) -> DataLoader[Any]:
    """A plain one, without workers."""
    return DataLoader(dataset, BATCH, shuffle=True, **options)


def agree(before: Report, after: Report, action: str) -> None:
    """The loop is as much faster as an advice said."""
    (advice,) = (each for each in before.advice if each.action == action)
    gain = before.loop.loop_ms / after.loop.loop_ms
    assert advice.gain.value == pytest.approx(gain, rel=AGREED)


def filled(loader: Any) -> Any:
    """An accelerated loader behind its first epoch."""
    fast = hotset.accelerate(loader, device="cpu")
    for _ in fast:
        pass
    return fast


def test_slow_decoding() -> None:
    """Reading takes most, and is gone once it is kept; what is random stays."""
    trained = Trained()
    data = Rows(trained.clock, 20, [Timed("noise", noisy, 2, trained.clock)])
    before = trained.report(loader_of(data))
    assert (before.verdict.bound, before.verdict.cause) == ("data-bound", "read")
    assert (before.verdict.subject, before.advice[0].action) == ("Rows", "accelerate")
    agree(before, trained.report(filled(loader_of(data))), "accelerate")


def test_a_slow_step_of_the_chain() -> None:
    """It is named, and is gone once its result is kept."""
    trained = Trained()
    steps = [
        Timed("crop", widened, 1, trained.clock),
        Timed("blur", torch.clone, 30, trained.clock),
        Timed("noise", noisy, 3, trained.clock),
    ]
    data = Rows(trained.clock, 4, steps)
    before = trained.report(loader_of(data))
    assert (before.verdict.bound, before.verdict.cause) == ("data-bound", "transform")
    assert (before.verdict.subject, before.advice[0].action) == ("blur", "accelerate")
    agree(before, trained.report(filled(loader_of(data))), "accelerate")


def test_slow_collating() -> None:
    """A collate_fn of one's own that takes most is said to; without it the loop is that fast."""
    trained = Trained()

    def padded(samples: list[Any]) -> Any:
        trained.clock.ticks += 20 * len(samples)
        return default_collate(samples)

    data = Rows(trained.clock, 2, [Timed("noise", noisy, 2, trained.clock)])
    before = trained.report(loader_of(data, collate_fn=padded))
    assert (before.verdict.bound, before.verdict.cause) == ("data-bound", "collate")
    assert [each.action for each in before.advice] == ["collate", "accelerate"]
    agree(before, trained.report(filled(loader_of(data, collate_fn=padded))), "accelerate")
    agree(before, trained.report(loader_of(data)), "collate")


def test_a_slow_step_is_left() -> None:
    """Nothing is to be gained, and nothing but that is said."""
    trained = Trained(ticks=4000)
    data = Rows(trained.clock, 4, [Timed("noise", noisy, 1, trained.clock)])
    before = trained.report(loader_of(data))
    assert (before.verdict.bound, before.verdict.cause) == ("compute-bound", "step")
    assert before.verdict.is_left
    assert [each.action for each in before.advice] == ["leave it"]
    assert before.gain.value == pytest.approx(4040 / 4000)


def scaled(row: Tensor) -> Tensor:
    """Bytes as floats from 0 to 1."""
    return row.float() / 255


def centred(row: Tensor) -> Tensor:
    """About 0."""
    return (row - 0.5) / 0.25


class Bytes(Dataset[Any]):
    """Images of bytes."""

    def __init__(self, clock: Clock, ticks: int, steps: list[Any]) -> None:
        self.transform = hotset.chain.step.Chained(steps)
        self._clock, self._ticks = clock, ticks

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> Any:
        self._clock.ticks += self._ticks
        image = torch.arange(3 * 8 * 8, dtype=torch.uint8).reshape(3, 8, 8)
        return self.transform(image + index), index


def test_heavy_work_on_floats() -> None:
    """Steps that could be a table of bytes, and become one."""
    trained = Trained()
    steps = [
        Timed("scaled", scaled, 9, trained.clock),
        Timed("centred", centred, 11, trained.clock),
    ]
    data = Bytes(trained.clock, 3, steps)
    before = trained.report(loader_of(data))
    assert (before.verdict.bound, before.verdict.cause) == ("data-bound", "float work")
    assert before.verdict.subject == "scaled, centred"
    assert before.advice[0].action == "accelerate"
    agree(before, trained.report(filled(loader_of(data))), "accelerate")


class Held(Dataset[Any]):
    """Rows of a tensor, picked one by one, which takes a while."""

    def __init__(self, clock: Clock, ticks: int) -> None:
        self.rows = torch.arange(40 * 5).reshape(40, 5)
        self._clock, self._ticks = clock, ticks

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Tensor:
        self._clock.ticks += self._ticks
        return self.rows[index]


def test_tensors_in_memory() -> None:
    """They are said to be, and batches are made of them at once."""
    trained = Trained(ticks=10)
    data = Held(trained.clock, 5)
    before = trained.report(loader_of(data))
    assert (before.verdict.bound, before.verdict.cause) == ("data-bound", "in memory")
    assert before.advice[0].action == "accelerate"
    agree(before, trained.report(filled(loader_of(data))), "accelerate")


class Cold(Rows):
    """Rows that storage is slow to give the first time."""

    def __init__(self, clock: Clock, **options: Any) -> None:
        super().__init__(clock, 2, [Timed("noise", noisy, 2, clock)], **options)
        self._is_warm: set[int] = set()

    def __getitem__(self, index: int) -> Any:
        if index not in self._is_warm:
            self._is_warm.add(index)
            self._clock.ticks += 100
        return super().__getitem__(index)


def test_a_cold_first_epoch() -> None:
    """Storage is named; with all in memory before, the loop's epochs take so much less."""
    trained = Trained()
    data = Cold(trained.clock)
    before, after = (trained.report(loader_of(data)) for _ in range(2))
    assert (before.verdict.bound, before.verdict.cause) == ("data-bound", "storage")
    (advice,) = (each for each in before.advice if each.action == "storage")
    seconds = [sum(epoch.seconds for epoch in found.loop.epochs) for found in (before, after)]
    assert advice.gain.value == pytest.approx(seconds[0] / seconds[1], rel=AGREED)
    assert after.verdict.cause != "storage"


def test_files_that_are_always_cold() -> None:
    """More of them than the loop comes to: each is read for the first time."""
    trained = Trained()
    data = Cold(trained.clock, length=4000)
    before = trained.report(loader_of(data))
    assert (before.verdict.bound, before.verdict.cause) == ("data-bound", "storage")
    for index in range(len(data)):
        data[index]
    agree(before, trained.report(loader_of(data)), "storage")


class Passing(Dataset[Any]):
    """Rows of numbers on the clock of a device."""

    def __init__(self, device: SimulatedAccelerator, seconds: float, width: int) -> None:
        self._device, self._seconds, self._width = device, seconds, width

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> Tensor:
        self._device.run(self._seconds)
        self._device.synchronize()
        return torch.full((self._width,), float(index))


def test_slow_copies_to_a_device() -> None:
    """Each batch is copied, and waited for; where the device keeps all, nothing is copied."""
    device = SimulatedAccelerator("4MB", bandwidth="1MB")
    data = Passing(device, 0.0001, 1000)

    def step(batch: Any) -> None:
        device.run(0.01)
        device.synchronize()

    clocks = clocks_of(lambda: device.time, device.run)
    before = _diagnosed(loader_of(data), step, STEPS, clocks=clocks, device=device, progress=False)
    copy_ms = 1000 * BATCH * 4 * 1000 / 1e6
    assert before.loop.step_ms == pytest.approx(copy_ms + 10)
    assert (before.verdict.bound, before.verdict.cause) == ("copy-bound", "copy")
    fast = hotset.accelerate(loader_of(data), device=device)
    for _ in fast:
        pass
    after = _diagnosed(fast, step, STEPS, clocks=clocks, progress=False)
    assert before.advice[0].action == "accelerate"
    agree(before, after, "accelerate")
