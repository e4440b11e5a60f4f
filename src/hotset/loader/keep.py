"""Keeps a source's samples where they fit: on the device, in host memory, or in a store on disk."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal, cast

import torch
from torch.utils.data import default_collate

from hotset.chain.step import Chained
from hotset.loader.filling import Filling
from hotset.ops.resample import ResizedCrop
from hotset.placement.budget import budget_bytes, free_bytes
from hotset.placement.plan import Tier, human_bytes
from hotset.progress import Told, shown
from hotset.sources.analyse import Analysis
from hotset.sources.build import stored
from hotset.sources.fill import fill_columns
from hotset.sources.places import find_in, is_whole, path_in
from hotset.sources.recipe import recipe_for
from hotset.sources.resident import Resident, of_store
from hotset.sources.sweep import Progress

CHECK_EVERY = 1000
CPU = torch.device("cpu")
Fill = Literal["eager", "lazy"]
FILL = ("eager", "lazy")


@dataclass(frozen=True)
class Cache:
    """Where samples are to be kept on disk.

    Attributes:
        folder: holds one store per dataset and chain.
        dataset: the user's, which tells what a store was made from.
        fill: "eager" before the first epoch, "lazy" in it.
        version: the user's word for what cannot be keyed.
    """

    folder: Path
    dataset: Any
    fill: Fill = "eager"
    version: str | None = None


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
        cache: where samples are to be kept on disk; None keeps them in memory.
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
    cache: Cache | None = None

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
        fingerprint: what they were made from, where that is known.
        filling: what fills them in the first epoch; None where they are there.
    """

    resident: Resident
    tier: Tier
    notes: tuple[str, ...] = ()
    fingerprint: str | None = None
    filling: Filling | None = None

    @property
    def device(self) -> torch.device:
        """Where the samples lie."""
        column = self.resident.columns[0]
        return getattr(column, "data", torch.empty(0)).device


def keep(analysis: Analysis, options: Options) -> Kept | str:
    """The samples as the cut says, in the nearest tier that has room; or why in none.

    Raises:
        HotsetError: as `hotset.build` and `fill_columns` do.
        UnkeepableError: if reading shows that they cannot be kept.
    """
    found = analysis.source.resident() if analysis.split.cut == 0 else None
    if options.cache is not None and found is None:
        return _on_disk(analysis, options, options.cache)
    needed = analysis.bytes_per_sample * len(analysis.source)
    is_near, notes = _fits_device(needed, analysis, options)
    if found is not None:
        if options.cache is not None:
            notes.append("nothing to cache: the samples lie in memory or in a store already")
        return _placed(found, is_near, notes, options)
    is_cuda = options.device.type == "cuda"
    room = budget_bytes(None if is_cuda else options.budget, free_bytes(CPU))
    if not is_near and needed > room:
        exceeding = f"{human_bytes(needed)} exceed the budget of {human_bytes(room)} in host memory"
        return "; ".join([*notes, exceeding])
    return _placed(_in_memory(analysis, options), is_near, notes, options)


def _placed(resident: Resident, is_near: bool, notes: list[str], options: Options) -> Kept:
    if is_near:
        return Kept(resident.to(options.device), "device", tuple(notes))
    resident = resident.to(CPU)
    is_cuda = options.device.type == "cuda"
    tier: Tier = "disk" if resident.store is not None else "host" if is_cuda else "device"
    return Kept(resident, tier, tuple(notes))


def _fits_device(needed: int, analysis: Analysis, options: Options) -> tuple[bool, list[str]]:
    """Whether samples are to lie on a CUDA device, and why not where there is no room."""
    is_on_host = analysis.split.mode == "worker" or options.collate is not None
    if options.device.type != "cuda" or is_on_host:
        return False, []
    room = budget_bytes(options.budget, free_bytes(options.device))
    if needed <= room:
        return True, []
    exceeding = f"{human_bytes(needed)} exceed the budget of {human_bytes(room)}"
    return False, [f"{exceeding} on {options.device}"]


def begins_with_resize(analysis: Analysis) -> bool:
    """Whether the first operation makes images of one size of images of differing sizes."""
    ops = analysis.split.ops
    return bool(ops) and isinstance(ops[0], ResizedCrop)


def _may_be_ragged(analysis: Analysis, options: Options) -> bool:
    """Whether samples of differing shapes can be kept, since something makes them one."""
    is_per_sample = analysis.split.mode == "worker" or options.collate is not None
    return is_per_sample or begins_with_resize(analysis)


def _in_memory(analysis: Analysis, options: Options) -> Resident:
    source, split = analysis.source, analysis.split
    prefix = Chained([step.call for step in split.steps[: split.cut]])
    filled = fill_columns(
        source.watched_reader(prefix),
        len(source),
        name=source.name,
        spec=analysis.spec,
        is_ragged_allowed=_may_be_ragged(analysis, options),
        workers=options.workers,
        progress=options.progress,
    )
    return Resident(tuple(filled), analysis.spec, source.leaf)


def _on_disk(analysis: Analysis, options: Options, cache: Cache) -> Kept:
    source = analysis.source
    recipe = recipe_for(cache.dataset, analysis, is_whole=False, version=cache.version)
    find = partial(find_in, cache.folder, source.name)
    path = path_in(cache.folder, source.name, recipe.fingerprint)
    digest, notes = recipe.fingerprint.digest, []
    if cache.fill == "lazy" and not is_whole(path):
        if analysis.split.mode == "batch":
            filling = Filling(recipe, path, find)
            note = f"the first epoch fills {path}"
            return Kept(filling.resident, "disk", (note,), digest, filling)
        notes.append("filled before the first epoch: steps that run per sample need all of it")
    told = cast(Told | None, options.progress)  # how many samples there are is known
    with shown(told, f"building {path.name}") as progress:
        store = stored(recipe, path, find, workers=options.workers, progress=progress)
    is_near, why = _fits_device(store.nbytes, analysis, options)
    notes = [f"store: {store.path}", *notes, *why]
    kept = _placed(of_store(store, source.leaf), is_near, notes, options)
    return Kept(kept.resident, kept.tier, kept.notes, digest)
