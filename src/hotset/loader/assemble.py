"""Puts a loader together: analysis and budgets in; plan, resident data and pipeline out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch.utils.data import default_collate

from hotset.chain.split import Decision
from hotset.chain.step import Chained
from hotset.errors import SchemaError
from hotset.kernels.dispatch import choose_engine
from hotset.loader.batch import (
    BatchPipeline,
    CollatedPipeline,
    MovedPipeline,
    Pipeline,
)
from hotset.loader.cast import Cast, cast_schemas, is_castable
from hotset.loader.check import CheckedPipeline, SpotCheck
from hotset.loader.epochs import Parts
from hotset.loader.fingerprint import fingerprint_of
from hotset.loader.order import Order
from hotset.loader.worker import CachedReader, WorkerPipeline
from hotset.placement.budget import budget_bytes, free_bytes
from hotset.placement.plan import Plan, Tier, human_bytes
from hotset.sample.collate import can_batch, check_collatable, difference
from hotset.sample.column import DenseColumn
from hotset.sources.analyse import Analysis, analyse
from hotset.sources.fill import fill_columns
from hotset.sources.resident import Resident
from hotset.sources.source import Reader, Source, UnkeepableError
from hotset.sources.sweep import Progress

CHECK_EVERY = 1000


@dataclass(frozen=True)
class Options:
    """How batches are to come out, and what may be used for it.

    Attributes:
        device: where batches come out.
        dtype: floating dtype of the chain's leaf; None leaves it as the chain makes it.
        is_channels_last: memory format of images.
        budget: bytes, "8GB" or "60%" that resident data may take on the device.
        check_every: one sample in so many of the first epoch is compared; 0 compares none.
        settings: of the `DataLoader` that runs what has no batched form.
        progress: told how far the filling is.
        threads: CPU threads of a kernel; None for torch's number.
        may_read_ahead: whether the order may be asked for batches before they are wanted.
    """

    device: torch.device
    dtype: torch.dtype | None = None
    is_channels_last: bool = False
    budget: int | str | None = None
    check_every: int = CHECK_EVERY
    settings: dict[str, Any] = field(default_factory=lambda: {"num_workers": 0, "collate_fn": None})
    progress: Progress | None = None
    threads: int | None = None
    may_read_ahead: bool = False

    @property
    def collate(self) -> Callable[[list[Any]], Any] | None:
        """A collate function of the user's own; None for torch's default."""
        collate = self.settings.get("collate_fn")
        return None if collate in (None, default_collate) else collate


@dataclass(frozen=True, eq=False)
class Assembled:
    """What was put together.

    Attributes:
        analysis: what was found out.
        plan: what was decided.
        pipeline: makes batches.
        resident: what is kept; None if nothing is.
        reader: makes one sample, drawing from the global generators; None where batches are made
            whole.
    """

    analysis: Analysis
    plan: Plan
    pipeline: Pipeline
    resident: Resident | None
    reader: Reader | None


def assemble(source: Source, options: Options) -> Assembled:
    """Analyses a source, keeps what can be kept where it fits, and makes the pipeline.

    Raises:
        HotsetError: as `analyse`, `fill_columns` and `check_collatable` do.
    """
    analysis = analyse(source)
    if options.collate is None:
        check_collatable(list(analysis.final), analysis.spec)
        _refuse_differing(analysis)
    if not analysis.dataset.is_deterministic:
        return _unkept(analysis, options, analysis.dataset.reason)
    tier, note = _place(analysis, options)
    if tier == "source":
        return _unkept(analysis, options, note)
    try:
        resident = _keep(analysis, options)
    except UnkeepableError as found:
        return _unkept(analysis, options, str(found))
    column = resident.columns[resident.leaf]
    if analysis.split.mode == "worker" or (
        analysis.split.stages and not isinstance(column, DenseColumn)
    ):
        return _per_sample(analysis, options, resident, note)
    return _batched(analysis, options, resident, tier, note)


def as_parts(made: Assembled, order: Order, dataset: Any, batch_size: int | None) -> Parts:
    """The parts of a loader, with an order."""
    return Parts(
        plan=made.plan,
        pipeline=made.pipeline,
        order=order,
        length=len(made.analysis.source),
        fingerprint=fingerprint_of(made.analysis, made.resident),
        dataset=dataset,
        batch_size=batch_size,
        is_current=made.analysis.source.is_current,
    )


def _refuse_differing(analysis: Analysis) -> None:
    first_index, first = next(iter(analysis.finals.items()))
    for index, schemas in analysis.finals.items():
        for path, was, now in zip(analysis.spec.paths(), first, schemas, strict=True):
            if not can_batch(was, now):
                raise SchemaError(difference(path, first_index, was, index, now))


def _place(analysis: Analysis, options: Options) -> tuple[Tier, str]:
    """The first tier whose budget holds the data, and a note where that is not the device."""
    needed = analysis.bytes_per_sample * len(analysis.source)
    device, is_cuda = options.device, options.device.type == "cuda"
    wanted = human_bytes(needed)
    notes = []
    is_on_host = analysis.split.mode == "worker" or options.collate is not None
    if is_cuda and not is_on_host:
        room = budget_bytes(options.budget, free_bytes(device))
        if needed <= room:
            return "device", ""
        notes.append(f"{wanted} exceed the budget of {human_bytes(room)} on {device}")
    room = budget_bytes(None if is_cuda else options.budget, free_bytes(torch.device("cpu")))
    is_there = analysis.split.cut == 0 and analysis.source.resident() is not None
    if is_there or needed <= room:
        return ("host" if is_cuda else "device"), "; ".join(notes)
    notes.append(f"{wanted} exceed the budget of {human_bytes(room)} in host memory")
    return "source", "; ".join(notes)


def _keep(analysis: Analysis, options: Options) -> Resident:
    """The samples in columns on the CPU, or where they lay already."""
    source, split = analysis.source, analysis.split
    in_memory = source.resident()
    if in_memory is not None and split.cut == 0:
        return in_memory
    prefix = Chained([step.call for step in split.steps[: split.cut]])
    filled = fill_columns(
        source.watched_reader(prefix),
        len(source),
        name=source.name,
        spec=analysis.spec,
        is_ragged_allowed=split.mode == "worker" or options.collate is not None,
        workers=int(options.settings.get("num_workers", 0)),
        progress=options.progress,
    )
    return Resident(tuple(filled), analysis.spec, source.leaf)


def _batched(
    analysis: Analysis, options: Options, resident: Resident, tier: Tier, note: str
) -> Assembled:
    on_host = tier == "host" or options.collate is not None
    device = torch.device("cpu") if on_host else options.device
    resident = resident.to(device)
    final = analysis.final[resident.leaf]
    dtype = options.dtype if is_castable(final) else None
    engine = None
    column = resident.columns[resident.leaf]
    is_image = isinstance(column, DenseColumn) and column.data.ndim == 4
    is_changed = analysis.split.ops or options.is_channels_last or dtype is not None
    if isinstance(column, DenseColumn) and is_image and is_changed:
        shape = (column.data.shape[1], column.data.shape[2], column.data.shape[3])
        engine = choose_engine(
            analysis.split.ops,
            shape,
            column.data.dtype,
            out_dtype=dtype,
            device=device,
            is_channels_last=options.is_channels_last,
            threads=options.threads,
        )
    most_batches = engine.side_by_side if engine is not None and options.may_read_ahead else 1
    is_stacking = options.collate is None
    batches = BatchPipeline(resident, device, engine, dtype, most_batches, is_stacking)
    pipeline: Pipeline = _checked(analysis, options, batches, resident, dtype)
    if options.collate is not None:
        schemas = cast_schemas(analysis.final, resident.leaf, dtype)
        pipeline = CollatedPipeline(
            pipeline, options.collate, analysis.spec, schemas, options.device
        )
    elif on_host:
        pipeline = MovedPipeline(pipeline, options.device)
    notes = [note] if note else []
    if options.collate is not None:
        notes.append("a collate_fn of your own gets single samples on the CPU")
    if options.dtype is not None and dtype is None:
        notes.append(f"dtype={options.dtype} has no floating-point or image leaf to act on")
    plan = Plan(
        decisions=analysis.decisions,
        device=str(options.device),
        tier="host" if on_host and options.device.type == "cuda" else "device",
        samples=len(analysis.source),
        bytes_held=resident.nbytes,
        kernel="gather by index" if engine is None else engine.description,
        notes=tuple(notes),
    )
    return Assembled(analysis, plan, pipeline, resident, None)


def _per_sample(analysis: Analysis, options: Options, resident: Resident, note: str) -> Assembled:
    split, source = analysis.split, analysis.source
    resident = resident.to(torch.device("cpu"))
    decisions = analysis.decisions
    if split.mode == "batch":  # samples differ after all
        reason = "runs per sample, since the samples differ in shape"
        rest = tuple(Decision(d.step, "worker", reason) for d in split.decisions[split.cut :])
        decisions = (*decisions[: len(decisions) - len(rest)], *rest)
        analysis = replace(analysis, split=replace(split, mode="worker", stages=()))
    rest_calls = Chained([step.call for step in split.steps[split.cut :]])
    reader = CachedReader(resident, rest_calls)
    pipeline = WorkerPipeline(
        reader,
        source.name,
        Cast(source.leaf, options.dtype),
        options.device,
        options.settings,
    )
    plan = Plan(
        decisions=decisions,
        device=str(options.device),
        tier="device" if options.device.type == "cpu" else "host",
        samples=len(source),
        bytes_held=resident.nbytes,
        kernel=_workers(options),
        notes=(note,) if note else (),
    )
    checked = _checked(analysis, options, pipeline, resident, options.dtype)
    return Assembled(analysis, plan, checked, resident, reader)


def _unkept(analysis: Analysis, options: Options, note: str) -> Assembled:
    source, split = analysis.source, analysis.split
    chain = Chained([step.call for step in split.steps])
    reader = source.reader(chain if split.steps else None)
    pipeline = WorkerPipeline(
        reader,
        source.name,
        Cast(source.leaf, options.dtype),
        options.device,
        options.settings,
    )
    decisions = tuple(Decision(d.step, "worker", note) for d in analysis.decisions)
    plan = Plan(
        decisions=decisions,
        device=str(options.device),
        tier="source",
        samples=len(source),
        bytes_held=0,
        kernel=_workers(options),
        notes=("left as it is: nothing of it could be kept",),
    )
    return Assembled(analysis, plan, pipeline, None, reader)


def _workers(options: Options) -> str:
    count = options.settings.get("num_workers", 0)
    where = f"{count} worker processes" if count else "the main process"
    return f"none: your own callables, sample by sample, in {where}"


def _checked(
    analysis: Analysis,
    options: Options,
    pipeline: Pipeline,
    resident: Resident,
    dtype: torch.dtype | None,
) -> Pipeline:
    if options.check_every == 0:
        return pipeline

    check = SpotCheck(
        analysis.source,
        analysis.spec,
        analysis.split,
        resident.leaves,
        Cast(resident.leaf, dtype),
        every=options.check_every,
        is_stacking=options.collate is None,
    )
    return CheckedPipeline(pipeline, check)
