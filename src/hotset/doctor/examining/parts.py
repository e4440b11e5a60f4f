"""What is done for a batch, part by part: reading, steps, putting together, pinning, copying."""

from __future__ import annotations

import itertools
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, default_convert

from hotset.chain.step import StepCall
from hotset.chain.torchvision import is_torchvision
from hotset.doctor.examining.singles import Singles
from hotset.doctor.facts import Fetch
from hotset.doctor.findings import Stage
from hotset.doctor.measure import Clock
from hotset.kernels.threads import usable_cores
from hotset.loader.worker import worker_settings
from hotset.placement.link import Link
from hotset.placement.plan import Plan
from hotset.planning.handing import Handing, handing_of
from hotset.planning.measure import (
    ROUNDS,
    Measured,
    batch_of,
    measure,
    measured_size,
    nbytes_of,
    time_of,
)
from hotset.sample.tree import flatten
from hotset.sources.analyse import Analysis, analyse
from hotset.sources.mapstyle import dataset_source

GEOMETRIC = frozenset(
    (
        "CenterCrop",
        "RandomCrop",
        "RandomHorizontalFlip",
        "RandomResizedCrop",
        "RandomVerticalFlip",
        "Resize",
    )
)
"""Steps of torchvision's that move pixels, and give of bytes what they give of floats, but for how
resizing rounds."""
SHORT_MS = 500.0
"""Batches that take no longer, all together, are read whole: the clock has no share in that."""
ALONE = 2
"""Workers whose cost is measured for a loader that has none."""


@dataclass(frozen=True, eq=False)
class Chain:
    """A dataset whose reading and steps were told apart.

    Attributes:
        analysis: what each step is.
        measured: what each takes.
    """

    analysis: Analysis
    measured: Measured

    @property
    def names(self) -> tuple[str, ...]:
        """Of the steps; the second of a name, and those behind it, are numbered."""
        seen: Counter[str] = Counter()
        names = []
        for row in self.measured.rows[1:]:
            seen[row.name] += 1
            names.append(row.name if seen[row.name] == 1 else f"{row.name} ({seen[row.name]})")
        return tuple(names)

    def stages(self, fetch: Fetch, lanes: int) -> tuple[Stage, ...]:
        """Reading, and each step, for a batch."""
        read, *steps = (row.timing for row in self.measured.rows)
        found = [Stage(fetch.name, "read", read.ms, read.noise_ms)]
        for name, timing in zip(self.names, steps, strict=True):
            found.append(Stage(name, "transform", timing.ms, timing.noise_ms))
        size = fetch.items
        return tuple(
            Stage(each.name, each.kind, each.ms * size, each.noise_ms * size, lanes)
            for each in found
        )

    def float_steps(self, plan: Plan | None) -> tuple[str, ...]:
        """Steps that work on floats, or turn bytes into them, and need not.

        These are tables of bytes in the plan; or they move pixels, and could do so before.
        """
        trace = next(iter(self.analysis.traced.values()))
        dtypes = [schema.dtype for schema in trace]
        is_float = [dtype is not None and dtype.is_floating_point for dtype in dtypes]
        steps = self.analysis.split.steps
        turns = [n for n in range(len(steps)) if dtypes[n] is torch.uint8 and is_float[n + 1]]
        if not turns:
            return ()
        actions = [each.action for each in plan.decisions[1:]] if plan else [""] * len(steps)
        return tuple(
            name
            for number, name in enumerate(self.names)
            if number >= turns[0]
            and (
                actions[number] == "table"
                or (is_float[number] and is_geometric(steps[number].call))
            )
        )


def is_geometric(call: StepCall) -> bool:
    """Whether a step of torchvision's only moves pixels, and pads nothing."""
    pads = getattr(call, "padding", None) is not None or getattr(call, "pad_if_needed", False)
    return is_torchvision(call) and type(call).__name__ in GEOMETRIC and not pads


def chain_of(dataset: Any, samples: int, *, clock: Clock, cpu_clock: Clock) -> Chain:
    """Reads a few samples, and tells reading and steps apart; generators may move.

    Raises:
        HotsetError: if that cannot be done.
    """
    analysis = analyse(dataset_source(dataset))
    names = [step.name for step in analysis.split.steps]
    measured = measure(
        analysis.source,
        names,
        samples=samples,
        reader=None if names else dataset.__getitem__,
        clock=clock,
        cpu_clock=cpu_clock,
    )
    return Chain(analysis, measured)


def read_stage(fetch: Fetch, singles: Singles, lanes: int, clock: Clock) -> Stage:
    """All of the reading of a batch, the steps in it included.

    Args:
        fetch: how the loader comes by its batches.
        singles: times of its samples.
        lanes: how many read at once.
        clock: gives seconds.
    """
    is_short = singles.ms * fetch.items * (ROUNDS + 1) < SHORT_MS and not singles.notes
    if not fetch.is_whole and (fetch.makes_batches or fetch.is_stream or not is_short):
        ms, noise_ms = singles.ms * fetch.items, singles.noise_ms * fetch.items
        return Stage(fetch.name, "read", ms, noise_ms, lanes)
    times = []
    for rows in itertools.islice(fetch.rows(fetch.size), ROUNDS + 1):
        began = clock()
        fetch.read(rows)
        times.append(1000 * (clock() - began))
    times = sorted(times[1:])  # the first waits for modules and files to be opened as well
    return Stage(fetch.name, "read", statistics.median(times), (times[-2] - times[1]) / 2, lanes)


@dataclass(frozen=True, eq=False)
class Finished:
    """A finished batch, or a part of one where it is large.

    Attributes:
        batch: made of a few real items.
        scale: by what it is to be multiplied for a whole one.
    """

    batch: Any
    scale: float

    @property
    def nbytes(self) -> int:
        """Of a whole batch."""
        return round(nbytes_of(self.batch) * self.scale)


def finished(fetch: Fetch, items: Sequence[Any]) -> Finished:
    """A batch of a few items, which come again and again.

    Raises:
        SampleError: if a collate_fn fails.
    """
    size = _size(fetch, items)
    return Finished(batch_of(items, fetch.finish, size), fetch.items / size)


def _size(fetch: Fetch, items: Sequence[Any]) -> int:
    return measured_size(fetch.items, -(-sum(map(nbytes_of, items)) // len(items)))


def collate_stage(fetch: Fetch, items: Sequence[Any], lanes: int, clock: Clock) -> Stage:
    """Putting a batch together.

    Raises:
        SampleError: if a collate_fn fails.
    """
    size = _size(fetch, items)
    ms = time_of(lambda: batch_of(items, fetch.finish, size), clock) * fetch.items / size
    return Stage("collate", "collate", ms, lanes=lanes)


def is_collated(fetch: Fetch) -> bool:
    """Whether batches are put together at all."""
    return not fetch.makes_batches or fetch.collate is not default_convert


def pin_stage(made: Finished, clock: Clock) -> Stage:
    """Copying a batch to pinned memory; needs CUDA."""
    leaves = [leaf for leaf in flatten(made.batch)[0] if isinstance(leaf, Tensor)]
    ms = time_of(lambda: [leaf.pin_memory() for leaf in leaves], clock) * made.scale
    return Stage("pin", "pin", ms)


def copy_stage(nbytes: int, link: Link) -> Stage | None:
    """Copying a batch to the device; None where nothing is copied."""
    rate = link.bandwidth() if link.is_apart else None
    return Stage("copy", "copy", 1000 * nbytes / rate) if rate else None


def handed(loader: DataLoader[Any], made: Finished, clock: Clock) -> Handing:
    """What worker processes cost beside their work; of two, where the loader has none."""
    found = handing_of(
        [made.batch],
        lambda batches: batches[0],
        batch_size=1,
        workers=loader.num_workers or ALONE,
        cores=usable_cores(),
        settings=worker_settings(loader),
        clock=clock,
    )
    return Handing(found.start_ms, found.batch_ms * made.scale)
