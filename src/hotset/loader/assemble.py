"""Puts a loader together: analysis and budgets in; plan, resident data and pipeline out."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

from hotset.chain.split import Decision
from hotset.chain.step import Chained
from hotset.kernels.dispatch import Engine, choose_engine, choose_ragged_engine
from hotset.kernels.gather import RowGather, choose_gather
from hotset.loader.batch import Pipeline
from hotset.loader.cast import Cast, cast_schemas, is_castable
from hotset.loader.check import CheckedPipeline, SpotCheck
from hotset.loader.collated import CollatedPipeline
from hotset.loader.cut import fitted
from hotset.loader.digest import fingerprint_of
from hotset.loader.epochs import Parts
from hotset.loader.filling import FillingPipeline
from hotset.loader.fit import check_batches, check_fit, fits_stages, forms_of
from hotset.loader.forms import Forms
from hotset.loader.gathered import BatchPipeline, ragged_images
from hotset.loader.keep import keep
from hotset.loader.moved import MovedPipeline
from hotset.loader.options import Options
from hotset.loader.order import Order
from hotset.loader.place import Kept
from hotset.loader.worker import CachedReader, WorkerPipeline
from hotset.ops.resample import makes_one_size
from hotset.placement.plan import Plan
from hotset.placement.ring import MOST_TOGETHER
from hotset.placement.stats import Tally
from hotset.sample.column import DenseColumn, ListColumn
from hotset.sources.analyse import Analysis, analyse
from hotset.sources.resident import Resident
from hotset.sources.source import Reader, Source, UnkeepableError


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
        tally: counts what it does.
    """

    analysis: Analysis
    plan: Plan
    pipeline: Pipeline
    resident: Resident | None
    reader: Reader | None
    tally: Tally


def assemble(source: Source, options: Options) -> Assembled:
    """Analyses a source, keeps what can be kept where it fits, and makes the pipeline.

    Raises:
        HotsetError: as `analyse`, `keep` and `check_collatable` do.
    """
    with nullcontext() if options.cache is None else options.cache.opened:
        analysis = analyse(source)
    if options.collate is None:
        check_batches(analysis, options)
    tally = Tally()
    if not analysis.dataset.is_deterministic:
        return _unkept(analysis, options, analysis.dataset.reason, tally)
    kept: Kept | str
    analysis, _, notes = fitted(analysis, options)
    try:
        kept = keep(analysis, options, tally)
    except UnkeepableError as found:
        kept = str(found)
    if isinstance(kept, str):
        return _unkept(analysis, options, kept, tally)
    kept = replace(kept, notes=(*notes, *kept.notes))
    if analysis.split.mode == "worker" or not fits_stages(analysis, kept.resident):
        return _per_sample(analysis, options, kept, tally)
    return _batched(analysis, options, kept, tally)


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
        tally=made.tally,
    )


def _batched(analysis: Analysis, options: Options, kept: Kept, tally: Tally) -> Assembled:
    resident, device = kept.resident, kept.device
    is_stacking = options.collate is None
    dtype = options.dtype if is_castable(analysis.final[resident.leaf]) else None
    engine = _engine(analysis, options, kept, dtype)
    gathers = _gathers(resident, engine, device, options.threads)
    maker = gathers if engine is None else engine
    most_batches = MOST_TOGETHER if kept.stage.is_passing else 1
    if maker is not None:
        most_batches = maker.side_by_side
    if not options.outlook.may_read_ahead:
        most_batches = 1
    images = {"images_of": ragged_images} if makes_one_size(analysis.split.ops) else {}
    forms = forms_of(analysis, options, resident)
    batches = BatchPipeline(
        resident,
        kept.stage,
        device,
        engine,
        dtype,
        most_batches,
        is_stacking,
        forms=forms,
        gathers=gathers,
        **images,
    )
    pipeline: Pipeline = _checked(analysis, options, batches, kept, dtype, forms)
    if options.collate is not None:
        schemas = cast_schemas(analysis.final, resident.leaf, dtype)
        pipeline = CollatedPipeline(pipeline, options.collate, analysis.spec, schemas)
    is_moved = options.link.is_apart and not (kept.choice.is_near and options.collate is None)
    if is_moved:
        pipeline = MovedPipeline(pipeline, options.link, tally)
    if kept.filling is not None:
        fits = partial(check_fit, analysis, options)
        pipeline = FillingPipeline(pipeline, kept.filling, options.settings, fits)
    notes = [*kept.notes, *forms.notes]
    if is_moved:
        notes.append(MOVED)
    if options.collate is not None:
        notes.append("a collate_fn of your own gets single samples on the CPU")
    notes.extend(_uncast(analysis, options))
    bytes_held = resident.nbytes
    if kept.filling is not None:
        bytes_held = analysis.bytes_per_sample * len(analysis.source)
    plan = Plan(
        decisions=analysis.decisions,
        device=options.link.name,
        tier=kept.tier,
        cached=kept.choice.cached,
        rest=kept.choice.rest or "",
        policy=kept.policy,
        samples=len(analysis.source),
        bytes_held=bytes_held,
        kernel="gather by index" if engine is None else engine.description,
        notes=tuple(notes),
    )
    return Assembled(analysis, plan, pipeline, resident, None, tally)


def _engine(
    analysis: Analysis, options: Options, kept: Kept, dtype: torch.dtype | None
) -> Engine | None:
    """What executes the operations; None where a leaf is gathered as it is."""
    ops, column = analysis.split.ops, kept.resident.columns[kept.resident.leaf]
    schema = analysis.stored[kept.resident.leaf]
    is_image = not isinstance(column, ListColumn) and len(schema.shape) == 3
    if not is_image or not (ops or options.is_channels_last or dtype is not None):
        return None
    channels, height, width = schema.shape
    how: dict[str, Any] = {
        "out_dtype": dtype,
        "device": kept.device,
        "is_channels_last": options.is_channels_last,
        "threads": options.threads,
    }
    if makes_one_size(analysis.split.ops):
        return choose_ragged_engine(ops, channels, **how)
    if not isinstance(column, DenseColumn):
        return None
    shape, wide = (channels, height, width), schema.dtype
    return choose_engine(ops, shape, column.data.dtype, wide=wide, **how)


def _gathers(
    resident: Resident, engine: Engine | None, device: torch.device, threads: int | None
) -> RowGather | None:
    """What gathers the dense leaves that no engine makes."""
    made = None if engine is None else resident.leaf
    left = (column for number, column in enumerate(resident.columns) if number != made)
    gathered = sum(column.nbytes for column in left if isinstance(column, DenseColumn))
    return choose_gather(gathered, device, threads=threads)


def _per_sample(analysis: Analysis, options: Options, kept: Kept, tally: Tally) -> Assembled:
    split, source = analysis.split, analysis.source
    resident = kept.resident.to(torch.device("cpu"))
    decisions = analysis.decisions
    if split.mode == "batch":  # samples differ after all
        reason = "runs per sample, since the samples differ in shape"
        rest = tuple(Decision(d.step, "worker", reason) for d in split.decisions[split.cut :])
        decisions = (*decisions[: len(decisions) - len(rest)], *rest)
        analysis = replace(analysis, split=replace(split, mode="worker", stages=()))
    rest_calls = Chained([step.call for step in split.steps[split.cut :]])
    reader = CachedReader(resident, rest_calls)
    forms = forms_of(analysis, options, resident)
    pipeline = WorkerPipeline(
        reader,
        source.name,
        Cast(source.leaf, options.dtype),
        options.link,
        tally,
        options.settings,
        forms,
    )
    plan = Plan(
        decisions=decisions,
        device=options.link.name,
        tier=kept.tier,
        rest=kept.choice.rest or "",
        samples=len(source),
        bytes_held=resident.nbytes,
        kernel=_workers(options),
        notes=(*kept.notes, *forms.notes, *_unheeded(analysis, options), *_moved(options)),
    )
    near = replace(kept, resident=resident)
    checked = _checked(analysis, options, pipeline, near, options.dtype, forms)
    return Assembled(analysis, plan, checked, resident, reader, tally)


def _unkept(analysis: Analysis, options: Options, note: str, tally: Tally) -> Assembled:
    source, split = analysis.source, analysis.split
    chain = Chained([step.call for step in split.steps])
    reader = source.reader(chain if split.steps else None)
    forms = forms_of(analysis, options, None)
    pipeline = WorkerPipeline(
        reader,
        source.name,
        Cast(source.leaf, options.dtype),
        options.link,
        tally,
        options.settings,
        forms,
    )
    decisions = tuple(Decision(d.step, "worker", note) for d in analysis.decisions)
    plan = Plan(
        decisions=decisions,
        device=options.link.name,
        tier="source",
        samples=len(source),
        bytes_held=0,
        kernel=_workers(options),
        notes=(
            "left as it is: nothing of it could be kept",
            *forms.notes,
            *_unheeded(analysis, options),
            *_not_narrowed(options),
            *_moved(options),
        ),
    )
    return Assembled(analysis, plan, pipeline, None, reader, tally)


MOVED = "batches are made on the host, and copied when they are handed out"


def _moved(options: Options) -> tuple[str, ...]:
    return (MOVED,) * options.link.is_apart


def _unheeded(analysis: Analysis, options: Options) -> tuple[str, ...]:
    """What was asked for and is not done where samples are made one by one."""
    layout = ("channels_last is for steps that run on whole batches",) * options.is_channels_last
    return (*layout, *_uncast(analysis, options))


def _uncast(analysis: Analysis, options: Options) -> tuple[str, ...]:
    is_heeded = options.dtype is None or is_castable(analysis.final[analysis.source.leaf])
    return (f"dtype={options.dtype} has no floating-point or image leaf to act on",) * (
        not is_heeded
    )


def _not_narrowed(options: Options) -> tuple[str, ...]:
    is_asked = options.storage_dtype is not None
    return ("storage_dtype has nothing to act on: nothing is kept",) * is_asked


def _workers(options: Options) -> str:
    count = options.settings.get("num_workers", 0)
    where = f"{count} worker processes" if count else "the main process"
    return f"none: your own callables, sample by sample, in {where}"


def _checked(
    analysis: Analysis,
    options: Options,
    pipeline: Pipeline,
    kept: Kept,
    dtype: torch.dtype | None,
    forms: Forms,
) -> Pipeline:
    if options.check_every == 0:
        return pipeline
    check = SpotCheck(
        analysis.source,
        analysis.spec,
        analysis.split,
        kept.resident.leaves,
        Cast(kept.resident.leaf, dtype),
        narrowed=kept.narrowed,
        every=options.check_every,
        is_stacking=options.collate is None,
        forms=forms.by_leaf,
    )
    return CheckedPipeline(pipeline, check)
