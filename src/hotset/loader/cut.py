"""Which cut of a chain has room, and in which tier: the same for loaders and for `hotset.plan`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from hotset.building.finding import location_in
from hotset.building.locations import Folder, is_whole
from hotset.building.recipe import recipe_for
from hotset.loader.narrowing import narrowing_of
from hotset.loader.options import Cache, Options
from hotset.loader.place import is_there, need_of, rooms_for
from hotset.placement.cut import Candidate, choose_cut
from hotset.placement.lanes import is_passing
from hotset.placement.size import human_bytes
from hotset.placement.tiers import Choice
from hotset.sources.analyse import Analysis
from hotset.sources.resident import Resident
from hotset.store.arrayfile import free_bytes_at


def kept_bytes(analysis: Analysis) -> int:
    """About what all samples take at the cut of an analysis."""
    return len(analysis.source) * analysis.bytes_per_sample


def candidate_of(analysis: Analysis, options: Options) -> Candidate:
    """What the samples of an analysis take, and where they may; or why they may nowhere.

    With a cache they are to be in a store in any case, whatever tier they are read into from it.
    """
    resident = analysis.source.resident() if analysis.split.cut == 0 else None
    rooms = rooms_for(analysis, options, resident)
    narrow = narrowing_of(analysis, options.storage_dtype).bytes_per_sample(analysis)
    need = need_of(len(analysis.source), narrow, options, rooms)
    if resident is not None:
        if _is_on_device(resident, options):
            rooms = replace(rooms, device=need.nbytes)  # it takes no more there
        return need, rooms
    if options.cache is None:
        return need, rooms
    room, stored = _disk(options.cache, options), kept_bytes(analysis)  # a store keeps every bit
    if stored > room and not _is_stored(analysis, options.cache):
        return (
            f"{human_bytes(stored)} exceed the budget of {human_bytes(room)} on disk, where a "
            "`cache` keeps them"
        )
    return need, replace(rooms, is_stored=True)


def _is_on_device(resident: Resident, options: Options) -> bool:
    passing = [column for column in resident.columns if is_passing(column)]
    return bool(passing) and all(is_there(column, options.link) for column in passing)


def _disk(cache: Cache, options: Options) -> int:
    # What goes to a URL is made in the user's own folder of copies first.
    path = cache.folder.path if isinstance(cache.folder, Folder) else Path.home()
    return options.placing.budget.left("disk", free_bytes_at(path))


def _is_stored(analysis: Analysis, cache: Cache) -> bool:
    """Whether the store is there from an earlier run: then it takes no more room."""
    recipe = recipe_for(
        cache.dataset,
        analysis,
        is_whole=False,
        version=cache.version,
        identity=cache.identity,
        opened=cache.opened,
    )
    location = location_in(cache.folder, analysis.source.name, recipe.fingerprint)
    return is_whole(location.work(recipe.fingerprint)) or location.manifest() is not None


def fitted(analysis: Analysis, options: Options) -> tuple[Analysis, Choice, tuple[str, ...]]:
    """The analysis with the cut that is to be made, where its samples are to lie, and notes.

    That is the preferred cut, or where no tier has room for it the next one that needs less.

    Raises:
        ConfigError: if the tier that was asked for has no room for any cut.
    """
    found = analysis.source.resident() if analysis.split.cut == 0 else None
    if found is not None and _is_on_device(found, options):  # whatever tier was asked for
        return analysis, Choice("device", None, len(found)), ()
    analyses = (analysis, *analysis.smaller)
    number, choice = choose_cut(
        [candidate_of(each, options) for each in analyses], options.placing.tier
    )
    if number == 0:
        return analysis, choice, ()
    wanted, taken = (kept_bytes(each) for each in (analysis, analyses[number]))
    note = (
        f"kept {_behind(analyses[number])}, {human_bytes(taken)}: there is no room for "
        f"{human_bytes(wanted)}, {_behind(analysis)}"
    )
    return analyses[number], choice, (note,)


def _behind(analysis: Analysis) -> str:
    cut = analysis.split.cut
    if cut == 0:
        return f"as {analysis.source.name} gives them"
    return f"as they are behind step {cut - 1}, {analysis.split.steps[cut - 1].name}"
