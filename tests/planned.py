"""Datasets and steps on a clock of their own, so that plans of them are exact."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset

import hotset
from hotset.chain.step import Chained
from hotset.placement.link import link_to
from hotset.placement.plan import Plan
from hotset.planning.planner import planned
from hotset.planning.request import asked_for

TICK = 1000 / 1024
"""Milliseconds of a tick of the clock: times are whole numbers of them, and exact in binary."""


class Clock:
    """A clock that goes only when something says that it took time."""

    def __init__(self) -> None:
        self.ticks = 0

    def __call__(self) -> float:
        return self.ticks / 1024


class Timed:
    """A step that takes some ticks."""

    def __init__(self, name: str, call: Callable[[Any], Any], ticks: int, clock: Clock) -> None:
        self.__name__, self._call, self._ticks, self._clock = name, call, ticks, clock

    def __call__(self, value: Any) -> Any:
        self._clock.ticks += self._ticks
        return self._call(value)

    def __reduce__(self) -> Any:
        raise TypeError("a clock is of one process")


class Rows(Dataset[Any]):
    """Rows of numbers and their labels, each read in some ticks."""

    def __init__(
        self, clock: Clock, ticks: int, steps: list[Any], length: int = 40, width: int = 6
    ) -> None:
        self.transform = Chained(steps) if steps else None
        self._clock, self._ticks, self._length, self._width = clock, ticks, length, width

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> tuple[Any, int]:
        self._clock.ticks += self._ticks
        row = torch.full((self._width,), index % 7, dtype=torch.int16)
        return (row if self.transform is None else self.transform(row)), index


def widened(row: Tensor) -> Tensor:
    """Four times as many numbers."""
    return row.repeat(4)


def narrowed(row: Tensor) -> Tensor:
    """The first two numbers."""
    return row[:2].clone()


@hotset.random
def noisy(row: Tensor) -> Tensor:
    """Some noise on each."""
    return row + torch.rand(())


def plan_of(
    data: Any,
    clock: Clock,
    *,
    cpu_clock: Callable[[], float] | None = None,
    device: Any = "cpu",
    **asked: Any,
) -> Plan:
    """The plan on that clock, asked for as `hotset.plan` is; all time is processor time too."""
    names = ("tier", "budget", "reserve", "policy")
    defaults = {"tier": "auto", "budget": None, "reserve": 0, "policy": "auto"}
    placing = {name: asked.pop(name, defaults[name]) for name in names}
    link = link_to(device)
    wanted = asked_for(data, link=link, placing=placing, **asked)
    return planned(wanted, clock=clock, cpu_clock=cpu_clock or clock)
