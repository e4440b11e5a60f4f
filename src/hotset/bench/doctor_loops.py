"""Loops with a planted cause, in real time, and what each advice makes of them."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset

import hotset
from hotset.bench.data import ImageDataset, composed, normalising
from hotset.bench.doctor_costs import Collated, Costs, Inverted, Samples, Speckled, Step
from hotset.bench.doctor_settings import LOOPS
from hotset.doctor.findings import Advice, Bound, Cause
from hotset.errors import ConfigError

BATCH = 16
SIDE = 96


@dataclass(frozen=True, eq=False)
class Planted:
    """A loop whose cause is known.

    Attributes:
        key: its name in JSON.
        name: what is planted, in words.
        bound: what it is limited by …
        cause: … and what of that.
        dataset: of its loader.
        step: what is done with a batch.
        options: further arguments of its `DataLoader`.
        without: the same dataset and options with the planted cost gone, for advice that says to
            take that away; empty where none does.
    """

    key: str
    name: str
    bound: Bound
    cause: Cause
    dataset: Dataset[Any]
    step: Step
    options: Mapping[str, Any] = field(default_factory=dict)
    without: Mapping[str, Any] = field(default_factory=dict)

    def loader(self, **changes: Any) -> DataLoader[Any]:
        """A new loader, shuffled.

        Args:
            changes: arguments of `DataLoader` that differ.
        """
        usual = {"dataset": self.dataset, "batch_size": BATCH, "shuffle": True, "num_workers": 0}
        arguments = {**usual, **self.options, **changes}
        if not arguments["num_workers"]:
            arguments.pop("persistent_workers", None)
        with many_workers():
            return DataLoader(**arguments)

    def advised(self, advice: Advice) -> Iterable[Any]:
        """The loader with an advice taken.

        Raises:
            ConfigError: for advice that this loop has no remedy for.
        """
        if advice.action == "leave it":
            return self.loader()
        if advice.action == "accelerate":
            return hotset.accelerate(self.loader(), device="cpu")
        if advice.action in ("workers", "no workers"):
            return self.loader(num_workers=_workers_in(advice.code))
        if advice.action == "persistent workers":
            return self.loader(persistent_workers=True)
        if advice.action in TAKING_AWAY and self.without:
            return self.loader(**self.without)
        raise ConfigError(f"the loop {self.key!r} has no remedy for {advice.action!r}")


@contextmanager
def many_workers() -> Iterator[None]:
    """Where a `DataLoader` does not warn of more workers than cores: those that sleep need none."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "This DataLoader will create", UserWarning)
        yield


TAKING_AWAY = ("even workers", "collate", "transform", "read", "float work")
"""Advice to make something cheaper: what it costs is taken away altogether."""


def _workers_in(code: str) -> int:
    found = re.search(r"num_workers=(\d+)", code)
    if found is None:
        raise ConfigError(f"advice on workers must say how many, got the code {code!r}")
    return int(found[1])


def planted(costs: Costs, keys: Sequence[str] = LOOPS, *, scale: float = 1.0) -> list[Planted]:
    """The loops.

    Args:
        costs: makes costs from milliseconds.
        keys: which of them.
        scale: times as many milliseconds for everything, for tests.
    """
    makers = {maker.__name__.removeprefix("_"): maker for maker in MAKERS}
    return [makers[key](_Scaled(costs, scale)) for key in keys]


@dataclass(frozen=True)
class _Scaled:
    costs: Costs
    scale: float

    def work(self, ms: float) -> Any:
        return self.costs.work(ms * self.scale)

    def sleep(self, ms: float) -> Any:
        return self.costs.sleep(ms * self.scale)


def _read(costs: _Scaled) -> Planted:
    return Planted(
        "read",
        "slow decoding, 0 workers",
        "data-bound",
        "read",
        Samples(20 * BATCH, costs.work(1)),
        Step(costs.sleep(4)),
        without={"dataset": Samples(20 * BATCH)},
    )


def _transform(costs: _Scaled) -> Planted:
    return Planted(
        "transform",
        "slow transform, 2 workers",
        "data-bound",
        "transform",
        Samples(40 * BATCH, transform=Inverted(costs.work(1))),
        Step(costs.sleep(2)),
        {"num_workers": 2, "persistent_workers": True},
        {"dataset": Samples(40 * BATCH)},
    )


def _random_transform(costs: _Scaled) -> Planted:
    return Planted(
        "random_transform",
        "slow random transform, 0 workers",
        "data-bound",
        "transform",
        Samples(50 * BATCH, transform=Speckled(costs.work(1)), is_random=True),
        Step(costs.sleep(8)),
        without={"dataset": Samples(50 * BATCH, is_random=True)},
    )


def _collate(costs: _Scaled) -> Planted:
    return Planted(
        "collate",
        "slow collate_fn, 1 worker",
        "data-bound",
        "collate",
        Samples(40 * BATCH, is_random=True),
        Step(costs.sleep(4)),
        {"num_workers": 1, "persistent_workers": True, "collate_fn": Collated(costs.work(12))},
        {"collate_fn": None},
    )


def _step(costs: _Scaled) -> Planted:
    return Planted(
        "step",
        "slow step, 1 worker",
        "compute-bound",
        "step",
        Samples(40 * BATCH, costs.work(0.05)),
        Step(costs.work(20)),
        {"num_workers": 1, "persistent_workers": True},
    )


def _few_workers(costs: _Scaled) -> Planted:
    return Planted(
        "few_workers",
        "waiting reads, 1 worker",
        "data-bound",
        "read",
        Samples(40 * BATCH, costs.sleep(2), is_random=True),
        Step(costs.sleep(10)),
        {"num_workers": 1, "persistent_workers": True},
        {"dataset": Samples(40 * BATCH, is_random=True)},
    )


def _slow_worker(costs: _Scaled) -> Planted:
    count, read = 40 * BATCH, costs.sleep(1)
    return Planted(
        "slow_worker",
        "waiting reads, 1 of 3 workers slow",
        "data-bound",
        "slow worker",
        Samples(count, read, is_random=True, slow_worker=1, times=4),
        Step(costs.sleep(8)),
        {"num_workers": 3, "persistent_workers": True},
        {"dataset": Samples(count, read, is_random=True)},
    )


def _worker_start(costs: _Scaled) -> Planted:
    return Planted(
        "worker_start",
        "4 batches an epoch, 2 workers",
        "data-bound",
        "worker start",
        Samples(4 * BATCH, costs.work(0.1), is_random=True),
        Step(costs.sleep(5)),
        {"num_workers": 2},
    )


def _in_memory(costs: _Scaled) -> Planted:
    rows = torch.randn(51_200, 16, generator=torch.Generator().manual_seed(0))
    return Planted(
        "in_memory",
        "rows in memory, 0 workers",
        "data-bound",
        "in memory",
        TensorDataset(rows, torch.arange(len(rows))),
        Step(costs.sleep(2)),
        {"batch_size": 1024},
    )


def _float_work(costs: _Scaled) -> Planted:
    draws = np.random.default_rng(0)
    images = draws.integers(0, 256, (20 * BATCH, SIDE, SIDE, 3), dtype=np.uint8)
    return Planted(
        "float_work",
        f"ToTensor, Normalize at {SIDE}x{SIDE}",
        "data-bound",
        "float work",
        ImageDataset(images, [0] * len(images), composed(*normalising())),
        Step(costs.sleep(2)),
    )


def _balanced(costs: _Scaled) -> Planted:
    return Planted(
        "balanced",
        "reads as slow as the step, 1 worker",
        "balanced",
        "balance",
        Samples(160, costs.sleep(2.5), is_random=True),
        Step(costs.sleep(11.5)),
        {"num_workers": 1, "persistent_workers": True, "batch_size": 4},
    )


MAKERS: tuple[Callable[[_Scaled], Planted], ...] = (
    _read,
    _transform,
    _random_transform,
    _collate,
    _step,
    _few_workers,
    _slow_worker,
    _worker_start,
    _in_memory,
    _float_work,
    _balanced,
)
