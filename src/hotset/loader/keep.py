"""Keeps a source's samples: reads them into memory or into a store, and has them placed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import cast

from hotset.building.build import stored
from hotset.building.finding import find_in, location_in
from hotset.building.locations import Place, is_whole
from hotset.building.recipe import Recipe, recipe_for
from hotset.chain.step import Chained
from hotset.errors import ConfigError
from hotset.keys.fingerprint import Fingerprint
from hotset.keys.source import identity_of
from hotset.loader.digest import samples_in
from hotset.loader.filling import begin_filling, filling_at
from hotset.loader.fit import check_fit, check_stackable, fits_stages, is_per_sample
from hotset.loader.narrowing import Narrowing, narrowing_of
from hotset.loader.options import Cache, Options
from hotset.loader.place import Kept, need_of, placed, rooms_for
from hotset.placement.size import human_bytes
from hotset.placement.stats import Tally
from hotset.placement.tiers import choose_tier
from hotset.progress import Told, shown
from hotset.sources.analyse import Analysis
from hotset.sources.fill import fill_columns
from hotset.sources.resident import Resident, of_store
from hotset.sources.source import UnkeepableError
from hotset.sources.sweep import Progress
from hotset.store.arrayfile import free_bytes_at
from hotset.store.store import Store


def keep(analysis: Analysis, options: Options, tally: Tally) -> Kept | str:
    """The samples as the cut says, in the nearest tier that has room; or why in none.

    Raises:
        HotsetError: as `hotset.build`, `fill_columns`, `narrowing_of` and `placed` do.
        UnkeepableError: if reading shows that they cannot be kept.
    """
    narrowing = narrowing_of(analysis, options.storage_dtype)
    found = analysis.source.resident() if analysis.split.cut == 0 else None
    if options.cache is not None and found is None:
        return _on_disk(analysis, options, options.cache, tally, narrowing)
    notes: list[str] = []
    if found is not None:
        if options.cache is not None:
            notes.append("nothing to cache: the samples lie in memory or in a store already")
        check_stackable(analysis, options, found)
        return _found(found, analysis, options, tally, narrowing, notes)
    rooms = rooms_for(analysis, options, None)
    need = need_of(len(analysis.source), narrowing.bytes_per_sample(analysis), options, rooms)
    choice = choose_tier(need, rooms, options.placing.tier)
    if choice.tier == "source":
        return "; ".join(choice.reasons)
    resident, more = _in_memory(analysis, options, narrowing)
    kept = placed(resident, analysis, options, tally, notes=[*notes, *more], is_own=True)
    return replace(kept, narrowed=narrowing.dtypes)


def _found(
    found: Resident,
    analysis: Analysis,
    options: Options,
    tally: Tally,
    narrowing: Narrowing,
    notes: list[str],
) -> Kept:
    """Samples that lie in memory or in a store; where they are kept narrow, a copy in memory."""
    needed, room = narrowing.copy_bytes(found), rooms_for(analysis, options, found).host
    if needed > room:
        exceeding = f"{human_bytes(needed)} exceed the budget of {human_bytes(room)}"
        narrowing = narrowing.given_up(f"{exceeding} in host memory")
    found, more = narrowing.apply(found)
    is_own = bool(narrowing.dtypes)
    kept = placed(found, analysis, options, tally, notes=[*notes, *more], is_own=is_own)
    return replace(kept, narrowed=narrowing.dtypes)


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
            is_ragged_allowed=bool(split.stages)
            or is_per_sample(analysis, options)
            or options.ragged is not None,
            workers=options.workers,
            progress=cast(Progress | None, progress),
            narrowers=narrowers,
        )
    resident = Resident(tuple(filled), analysis.spec, source.leaf)
    check_stackable(analysis, options, resident)
    return resident, narrowing.notes_on(narrowers)


def _on_disk(
    analysis: Analysis, options: Options, cache: Cache, tally: Tally, narrowing: Narrowing
) -> Kept | str:
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
    if not is_there:
        needed, free = analysis.bytes_per_sample * len(source), free_bytes_at(path)
        room = options.placing.budget.left("disk", free)
        if needed > room:
            return f"{human_bytes(needed)} exceed the budget of {human_bytes(room)} on disk"
    notes: list[str] = []
    filling = None if is_there else filling_at(path)
    if cache.fill == "lazy" and not is_there:
        if options.link.is_apart and options.placing.tier in ("device", "mixed"):
            tier = options.placing.tier
            notes.append(f"filled before the first epoch: tier={tier!r} needs the samples then")
        elif narrowing.dtypes:
            notes.append("filled before the first epoch: storage_dtype looks at every value first")
        elif analysis.split.mode == "batch":
            filling = filling or begin_filling(recipe, path, find)
            if filling is not None and fits_stages(analysis, filling.resident):
                filling.read(samples_in(len(source)))
                check_fit(analysis, options, filling.resident)
                return placed(
                    filling.resident,
                    analysis,
                    options,
                    tally,
                    notes=[f"the first epoch fills {location}", *narrowing.notes],
                    is_own=False,
                    filling=filling,
                )
            if filling is not None:
                notes.append("filled before the first epoch: samples differ in shape")
        else:
            notes.append("filled before the first epoch: steps that run per sample need all of it")
    if filling is not None:
        with shown(cast(Told | None, options.progress), f"building {path.name}") as progress:
            filling.complete(options.workers, progress)
    store = _stored(recipe, path, find, options)
    if not is_there:
        options.placing.budget.take("disk", store.nbytes, store)
    resident = of_store(store, source.leaf)
    check_stackable(analysis, options, resident)
    notes = [f"store: {location}", *notes]
    return _found(resident, analysis, options, tally, narrowing, notes)


def _stored(
    recipe: Recipe, path: Path, find: Callable[[Fingerprint], Place], options: Options
) -> Store:
    told = cast(Told | None, options.progress)  # how many samples there are is known
    try:
        with shown(told, f"building {path.name}") as progress:
            return stored(recipe, path, find, workers=options.workers, progress=progress)
    except ConfigError as error:  # it draws random numbers now and then
        raise UnkeepableError(str(error.__cause__ or error)) from error
