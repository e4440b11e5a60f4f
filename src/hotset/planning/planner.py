"""`hotset.plan`: what would be done to a loader, and what that would gain, without doing it."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any

import torch
from torch.utils.data import Dataset

from hotset.chain.probe import own_generators, preserved_generators
from hotset.chain.split import Position, positions
from hotset.loader.cut import candidate_of, fitted
from hotset.loader.fit import check_batches, check_stackable, forms_of
from hotset.loader.options import Options
from hotset.placement.budget import Budget
from hotset.placement.link import Link, link_to
from hotset.placement.plan import Plan
from hotset.placement.tiers import Choice
from hotset.planning.cuts import exceeding
from hotset.planning.estimate import Estimate
from hotset.planning.measure import Clock, measure
from hotset.planning.request import Asked, Step, asked_for
from hotset.sources.analyse import Analysis, analyse


def plan(
    data: Any,
    *,
    device: str | torch.device | Link | None = None,
    budget: int | str | Mapping[str, Any] | Budget | None = None,
    reserve: int | str = 0,
    tier: str = "auto",
    cache: str | os.PathLike[str] | None = None,
    policy: str = "auto",
    step: Step = None,
    workers: int | None = None,
    batch_size: int | None = None,
    samples: int = 16,
    storage_dtype: torch.dtype | Mapping[Any, torch.dtype] | None = None,
    ragged: Any = None,
    transform: Any = None,
) -> Plan:
    """What a loader would do with the same arguments, and what that would gain.

    That is `hotset.accelerate` for a `DataLoader`, and `hotset.Loader` for all else.

    A few samples are read and timed; nothing is kept, no file is written, and every generator, the
    dataset and the loader stay as they were.

    Args:
        data: a `DataLoader`; a map-style dataset; or a tensor, array, or tuple, list or dictionary
            of them.
        device: where batches are to come out; None is torch's default device.
        budget: what kept samples may take (see `hotset.accelerate`).
        reserve: bytes to be left free on the device for the model.
        tier: where samples are to be kept; "auto" takes the first tier that has room.
        cache: the folder that stores are to be kept in.
        policy: which samples a device keeps that has no room for all.
        step: what training does with a batch, to be timed: a callable that takes a batch on the
            device, and is called a few times; or milliseconds per batch. None leaves it open.
        workers: processes that the plain loader reads with; None takes the loader's own, and none
            for a dataset.
        batch_size: samples per batch; None takes the loader's own, and 64 for a dataset.
        samples: how many samples to measure at most; fewer where they take long.
        storage_dtype: narrower dtype that samples are to be kept in (see `hotset.accelerate`).
        ragged: how fields whose length differs are to come out (see `hotset.Loader`); not for a
            `DataLoader`, as what follows.
        transform: callable, or list of callables, as for `hotset.Loader`.

    Returns:
        The plan, with every possible cut and a prediction.

    Raises:
        HotsetError: as `hotset.accelerate` and `hotset.Loader` do.

    Example:
        >>> import torch, hotset
        >>> data = torch.utils.data.TensorDataset(torch.zeros(600, 4), torch.arange(600))
        >>> plan = hotset.plan(data, device="cpu", batch_size=20, workers=2, step=100)
        >>> plan.tier, plan.bytes_held, plan.prediction.verdict
        ('device', 14400, 'leave it')
    """
    asked = asked_for(
        data,
        link=link_to(device),
        placing={"tier": tier, "budget": budget, "reserve": reserve, "policy": policy},
        cache=cache,
        step=step,
        workers=workers,
        batch_size=batch_size,
        samples=samples,
        storage_dtype=storage_dtype,
        ragged=ragged,
        transform=transform,
    )
    return planned(asked)


def planned(
    asked: Asked, *, clock: Clock = time.perf_counter, cpu_clock: Clock = time.process_time
) -> Plan:
    """The plan that is asked for; see `estimated`."""
    return estimated(asked, clock=clock, cpu_clock=cpu_clock)[0]


def estimated(
    asked: Asked, *, clock: Clock = time.perf_counter, cpu_clock: Clock = time.process_time
) -> tuple[Plan, Estimate]:
    """The plan that is asked for, and what was measured for it.

    Args:
        asked: what is.
        clock: gives seconds.
        cpu_clock: gives seconds of the processor, all threads of the process together.

    Raises:
        HotsetError: as `hotset.accelerate` does.
    """
    with preserved_generators(own_generators(asked.dataset)):
        source, found = asked.source_of(), list[Position]()
        analysis = analyse(
            source, look=lambda steps, traces: found.extend(positions(steps, traces))
        )
        if asked.options.collate is None:
            check_batches(analysis, asked.options)
        unkept = "" if analysis.dataset.is_deterministic else analysis.dataset.reason
        cut, choice = analysis, Choice("source", None)
        notes: tuple[str, ...] = ()
        if not unkept:
            cut, choice, notes = fitted(analysis, asked.options)
            unkept = _without_room(cut, asked.options) if choice.tier == "source" else ""
        names = [step.name for step in analysis.split.steps]
        is_plain = not names and isinstance(asked.dataset, Dataset)
        measured = measure(
            source,
            names,
            samples=asked.samples,
            reader=asked.dataset.__getitem__ if is_plain else None,
            clock=clock,
            cpu_clock=cpu_clock,
        )
        resident = source.resident() if cut.split.cut == 0 else None
        forms = forms_of(cut, asked.options, resident)
        if resident is not None:
            check_stackable(cut, asked.options, resident)
        made = Estimate(
            asked, analysis, cut, choice, found, measured, unkept, forms, clock, cpu_clock
        )
        return made.plan(notes), made


def _without_room(analysis: Analysis, options: Options) -> str:
    candidate = candidate_of(analysis, options)
    if isinstance(candidate, str):
        return candidate
    return exceeding(candidate[0].nbytes, candidate[1])
