"""Keeps a source's samples where they fit: on the device, in host memory, or in a store on disk."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
import torch
from torch.utils.data import default_collate

from hotset.building.build import stored
from hotset.building.finding import find_in, location_in
from hotset.building.locations import Location, Place, is_whole
from hotset.building.recipe import Recipe, recipe_for
from hotset.chain.step import Chained
from hotset.errors import ConfigError, SchemaError
from hotset.keys.fingerprint import Fingerprint
from hotset.keys.source import SourceIdentity, identity_of
from hotset.loader.digest import samples_in
from hotset.loader.filling import Filling, begin_filling, filling_at
from hotset.loader.narrowing import Narrowing, narrowing_of
from hotset.ops.resample import makes_one_size
from hotset.placement.device import free_bytes
from hotset.placement.link import Link
from hotset.placement.placing import Placing
from hotset.placement.size import human_bytes
from hotset.placement.tiers import Tier
from hotset.progress import Told, shown
from hotset.sample.collate import can_batch, difference
from hotset.sample.column import DenseColumn, LeafSchema, RaggedColumn, describe
from hotset.sources.analyse import Analysis
from hotset.sources.fill import fill_columns
from hotset.sources.opened import Opened
from hotset.sources.resident import Resident, of_store
from hotset.sources.source import UnkeepableError
from hotset.sources.sweep import Progress
from hotset.store.store import Store

CHECK_EVERY = 1000
CPU = torch.device("cpu")
Fill = Literal["eager", "lazy"]
FILL = ("eager", "lazy")


@dataclass(frozen=True)
class Cache:
    """Where samples are to be kept on disk.

    Attributes:
        folder: holds one store per dataset and chain; of this machine, or at a URL.
        dataset: the user's, which tells what a store was made from.
        fill: "eager" before the first epoch, "lazy" in it.
        version: the user's word for what cannot be keyed.
        identity: of the dataset, taken before anything was read from it; None takes it later.
        opened: listens to which files reading samples opens.
    """

    folder: Location
    dataset: Any
    fill: Fill = "eager"
    version: str | None = None
    identity: SourceIdentity | None = None
    opened: Opened = field(default_factory=Opened)


@dataclass(frozen=True)
class Options:
    """How batches are to come out, and what may be used for it.

    Attributes:
        link: to the device where batches come out.
        placing: where samples may be kept, and which of them.
        dtype: floating dtype of the chain's leaf; None leaves it as the chain makes it.
        storage_dtype: floating dtype that the chain's leaf is kept in, where it is floating-point;
            None keeps it as it is. By field for dictionaries.
        ragged: how leaves whose length differs come out; None refuses them.
        is_channels_last: memory format of images.
        check_every: one sample in so many of the first epoch is compared; 0 compares none.
        settings: of the `DataLoader` that runs what has no batched form.
        progress: told how far the filling is.
        threads: CPU threads of a kernel; None for torch's number.
        may_read_ahead: whether the order may be asked for batches before they are wanted.
        cache: where samples are to be kept on disk; None keeps them in memory.
    """

    link: Link
    placing: Placing = field(default_factory=Placing)
    dtype: torch.dtype | None = None
    storage_dtype: Any = None
    ragged: Any = None
    is_channels_last: bool = False
    check_every: int = CHECK_EVERY
    settings: dict[str, Any] = field(default_factory=lambda: {"num_workers": 0, "collate_fn": None})
    progress: Progress | None = None
    threads: int | None = None
    may_read_ahead: bool = False
    cache: Cache | None = None

    @property
    def device(self) -> torch.device:
        """Where batches come out."""
        return self.link.device

    @property
    def collate(self) -> Callable[[list[Any]], Any] | None:
        """A collate function of the user's own; None for torch's default."""
        collate = self.settings.get("collate_fn")
        return None if collate in (None, default_collate) else collate

    @property
    def workers(self) -> int:
        """Processes that may read."""
        return int(self.settings.get("num_workers", 0))


@dataclass(frozen=True, eq=False)
class Kept:
    """Samples that are kept.

    Attributes:
        resident: the samples, where they are kept.
        tier: what that is.
        notes: why it is no nearer, and what else is worth knowing.
        filling: what fills them in the first epoch; None where they are there.
        narrowed: per leaf that is kept in a narrower dtype, the dtype.
    """

    resident: Resident
    tier: Tier
    notes: tuple[str, ...] = ()
    filling: Filling | None = None
    narrowed: Mapping[int, torch.dtype] = field(default_factory=dict)

    @property
    def device(self) -> torch.device:
        """Where the samples lie."""
        column = self.resident.columns[0]
        return getattr(column, "data", torch.empty(0)).device


def keep(analysis: Analysis, options: Options) -> Kept | str:
    """The samples as the cut says, in the nearest tier that has room; or why in none.

    Raises:
        HotsetError: as `hotset.build`, `fill_columns`, `narrowing_of` and `Narrowing.apply` do.
        UnkeepableError: if reading shows that they cannot be kept.
    """
    narrowing = narrowing_of(analysis, options.storage_dtype)
    found = analysis.source.resident() if analysis.split.cut == 0 else None
    if options.cache is not None and found is None:
        return _on_disk(analysis, options, options.cache, narrowing)
    needed = narrowing.bytes_per_sample(analysis) * len(analysis.source)
    is_near, notes = _fits_device(needed, analysis, options)
    exceeding = "" if is_near else _exceeding_host(needed, options)
    if found is not None:
        if options.cache is not None:
            notes.append("nothing to cache: the samples lie in memory or in a store already")
        narrowing = narrowing.given_up(exceeding) if exceeding else narrowing
        found, more = narrowing.apply(found)
        return _placed(found, is_near, [*notes, *more], options, narrowing)
    if exceeding:
        return "; ".join([*notes, exceeding])
    resident, more = _in_memory(analysis, options, narrowing)
    return _placed(resident, is_near, [*notes, *more], options, narrowing)


def _exceeding_host(needed: int, options: Options) -> str:
    """Why samples cannot be held in host memory; nothing where they can."""
    room = options.placing.budget.left("host", free_bytes(CPU))
    if needed <= room:
        return ""
    return f"{human_bytes(needed)} exceed the budget of {human_bytes(room)} in host memory"


def _placed(
    resident: Resident, is_near: bool, notes: list[str], options: Options, narrowing: Narrowing
) -> Kept:
    resident = resident.to(options.device if is_near else CPU)
    is_far = options.link.is_apart and not is_near
    tier: Tier = "disk" if resident.store is not None else "host" if is_far else "device"
    return Kept(resident, tier, tuple(notes), narrowed=narrowing.dtypes)


def _fits_device(needed: int, analysis: Analysis, options: Options) -> tuple[bool, list[str]]:
    """Whether samples are to lie on a CUDA device, and why not where there is no room."""
    is_on_host = analysis.split.mode == "worker" or options.collate is not None
    if not options.link.is_apart or is_on_host:
        return False, []
    room = options.placing.budget.left("device", options.link.free_bytes())
    if needed <= room:
        return True, []
    exceeding = f"{human_bytes(needed)} exceed the budget of {human_bytes(room)}"
    return False, [f"{exceeding} on {options.device}"]


def fits_stages(analysis: Analysis, resident: Resident) -> bool:
    """Whether the operations can take all samples at once; they may differ in shape after all."""
    column = resident.columns[resident.leaf]
    if not analysis.split.stages or isinstance(column, DenseColumn):
        return True
    is_images = isinstance(column, RaggedColumn) and column.channels is not None
    return makes_one_size(analysis.split.ops) and is_images


def check_fit(analysis: Analysis, options: Options, resident: Resident) -> None:
    """Makes sure that batches can be made of what a first epoch has filled so far.

    Raises:
        SchemaError: if samples differ in shape where all were taken to be alike; names one.
    """
    _check_stackable(analysis, options, resident)
    if fits_stages(analysis, resident):
        return
    unlike = _unlike(analysis, resident, resident.leaf)
    words = "they differ in kind" if unlike is None else _words(analysis, resident.leaf, *unlike)
    raise SchemaError(
        f"{analysis.source.name}: {words.partition('; ')[0]}, and steps that run on whole batches "
        "need them alike. What was read is kept: run it again, and the rest is read before the "
        "first epoch, and these steps run per sample"
    )


def _is_per_sample(analysis: Analysis, options: Options) -> bool:
    return analysis.split.mode == "worker" or options.collate is not None


def _check_stackable(analysis: Analysis, options: Options, resident: Resident) -> None:
    """Refuses leaves that differ in shape and that nothing makes one, before batches fail by them.

    Raises:
        SchemaError: names two samples and their shapes.
    """
    if _is_per_sample(analysis, options):
        return
    for number in range(len(resident.columns)):
        unlike = _unlike(analysis, resident, number)
        is_acted_on = number == resident.leaf and bool(analysis.split.stages)
        if unlike is not None and not (is_acted_on and _become_alike(analysis, *unlike)):
            raise SchemaError(_words(analysis, number, *unlike))


Found = tuple[int, LeafSchema]
"""A sample, and the schema of a leaf of its."""


def _words(analysis: Analysis, number: int, first: Found, other: Found) -> str:
    return difference(analysis.spec.paths()[number], *first, *other)


def _become_alike(analysis: Analysis, first: Found, other: Found) -> bool:
    """Whether the operations make images of one shape of two that differ."""
    shapes = [first[1].shape, other[1].shape]
    for op in analysis.split.ops:
        shapes = [op.out_shape((shape[0], shape[1], shape[2])) for shape in shapes]
    return shapes[0] == shapes[1]


def _unlike(analysis: Analysis, resident: Resident, number: int) -> tuple[Found, Found] | None:
    """Two samples whose leaves cannot stand in one batch; None where all can.

    Images that are resized first may differ in all but their number of channels.
    """
    column = resident.columns[number]
    if isinstance(column, DenseColumn):
        return None
    if isinstance(column, RaggedColumn):
        if not column.schema.is_storable:
            return None
        is_resized = number == resident.leaf and makes_one_size(analysis.split.ops)
        axes = 1 if is_resized else len(column.schema.shape)
        shapes = column.index[:, 1 : 1 + axes]
        others = np.flatnonzero((shapes != shapes[:1]).any(axis=1))
        found = [(row, describe(column.item(row))) for row in (0, *others[:1].tolist())]
    else:
        found = [(row, i[1]) for row, i in enumerate(column.items) if isinstance(i, tuple)]
        found = found[:1] + [(row, s) for row, s in found if not can_batch(found[0][1], s)][:1]
    if len(found) < 2:
        return None
    first, other = ((_sample_at(resident, row), schema) for row, schema in found)
    return first, other


def _sample_at(resident: Resident, row: int) -> int:
    if resident.rows is None:
        return row
    return int((resident.rows == row).nonzero()[0, 0])


def _in_memory(
    analysis: Analysis, options: Options, narrowing: Narrowing
) -> tuple[Resident, tuple[str, ...]]:
    source, split = analysis.source, analysis.split
    narrowers = narrowing.narrowers(analysis.spec, len(source))
    prefix = Chained([step.call for step in split.steps[: split.cut]])
    told = cast(Told | bool | None, options.progress)
    with shown(told or False, f"reading {source.name}") as progress:
        filled = fill_columns(
            source.watched_reader(prefix),
            len(source),
            name=source.name,
            spec=analysis.spec,
            is_ragged_allowed=bool(split.stages) or _is_per_sample(analysis, options),
            workers=options.workers,
            progress=cast(Progress | None, progress),
            narrowers=narrowers,
        )
    resident = Resident(tuple(filled), analysis.spec, source.leaf)
    _check_stackable(analysis, options, resident)
    return resident, narrowing.notes_on(narrowers)


def _on_disk(analysis: Analysis, options: Options, cache: Cache, narrowing: Narrowing) -> Kept:
    source = analysis.source
    recipe = recipe_for(
        cache.dataset,
        analysis,
        is_whole=False,
        version=cache.version,
        identity=cache.identity,
        opened=cache.opened,
    )
    identity = cache.identity or identity_of(cache.dataset)
    find = partial(find_in, cache.folder, source.name, files=identity.files)
    location = location_in(cache.folder, source.name, recipe.fingerprint)
    path = location.work(recipe.fingerprint)
    is_there = is_whole(path) or location.manifest() is not None
    notes: list[str] = []
    filling = None if is_there else filling_at(path)
    if cache.fill == "lazy" and not is_there:
        if narrowing.dtypes:
            notes.append("filled before the first epoch: storage_dtype looks at every value first")
        elif analysis.split.mode == "batch":
            filling = filling or begin_filling(recipe, path, find)
            if filling is not None and fits_stages(analysis, filling.resident):
                filling.read(samples_in(len(source)))
                check_fit(analysis, options, filling.resident)
                note = f"the first epoch fills {location}"
                return Kept(filling.resident, "disk", (note, *narrowing.notes), filling)
            if filling is not None:
                notes.append("filled before the first epoch: samples differ in shape")
        else:
            notes.append("filled before the first epoch: steps that run per sample need all of it")
    if filling is not None:
        with shown(cast(Told | None, options.progress), f"building {path.name}") as progress:
            filling.complete(options.workers, progress)
    store = _stored(recipe, path, find, options)
    saved = analysis.bytes_per_sample - narrowing.bytes_per_sample(analysis)
    needed = store.nbytes - saved * len(source)
    is_near, why = _fits_device(needed, analysis, options)
    notes = [f"store: {location}", *notes, *why]
    resident = of_store(store, source.leaf)
    _check_stackable(analysis, options, resident)
    exceeding = "" if is_near else _exceeding_host(needed, options)
    narrowing = narrowing.given_up(exceeding) if exceeding else narrowing
    resident, more = narrowing.apply(resident)
    return _placed(resident, is_near, [*notes, *more], options, narrowing)


def _stored(
    recipe: Recipe, path: Path, find: Callable[[Fingerprint], Place], options: Options
) -> Store:
    told = cast(Told | None, options.progress)  # how many samples there are is known
    try:
        with shown(told, f"building {path.name}") as progress:
            return stored(recipe, path, find, workers=options.workers, progress=progress)
    except ConfigError as error:  # it draws random numbers now and then
        raise UnkeepableError(str(error.__cause__ or error)) from error
