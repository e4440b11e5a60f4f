"""Which cut of a chain has room, and in which tier: the same for loaders and for `hotset.plan`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

from hotset.building.locations import Folder
from hotset.loader.keep import Options
from hotset.placement.cut import Candidate, choose_cut
from hotset.placement.device import free_bytes
from hotset.placement.size import human_bytes
from hotset.placement.tiers import Choice, Need, Rooms
from hotset.sources.analyse import Analysis
from hotset.store.arrayfile import free_bytes_at


def need_of(analysis: Analysis) -> Need:
    """What the samples take at the cut of an analysis."""
    return Need(len(analysis.source), analysis.bytes_per_sample)


def rooms_of(analysis: Analysis, options: Options) -> Rooms:
    """What each memory may take of the samples at the cut of an analysis, now."""
    budget, link = options.placing.budget, options.link
    resident = analysis.source.resident() if analysis.split.cut == 0 else None
    is_near = analysis.split.mode == "batch" and options.collate is None
    return Rooms(
        device=budget.left("device", link.free_bytes()) if link.is_apart and is_near else None,
        host=budget.left("host", free_bytes(torch.device("cpu"))),
        disk=None if options.cache is None or resident is not None else _disk(options),
        is_apart=link.is_apart,
        is_stored=resident is not None and resident.store is not None,
        is_resident=resident is not None and resident.store is None,
        name=link.name,
    )


def _disk(options: Options) -> int:
    assert options.cache is not None
    folder = options.cache.folder
    # What goes to a URL is made in the user's own folder of copies first.
    path = folder.path if isinstance(folder, Folder) else Path.home()
    return options.placing.budget.left("disk", free_bytes_at(path))


def candidate_of(analysis: Analysis, options: Options) -> Candidate:
    """What the samples of an analysis take, and where they may; or why they may nowhere.

    With a cache they are to be in a store in any case, whatever tier they are read into from it.
    """
    need, rooms = need_of(analysis), rooms_of(analysis, options)
    if rooms.disk is None:
        return need, rooms
    if need.nbytes > rooms.disk:
        return (
            f"{human_bytes(need.nbytes)} exceed the budget of {human_bytes(rooms.disk)} on disk, "
            "where a `cache` keeps them"
        )
    return need, replace(rooms, is_stored=True)


def fitted(analysis: Analysis, options: Options) -> tuple[Analysis, Choice, tuple[str, ...]]:
    """The analysis with the cut that is to be made, where its samples are to lie, and notes.

    That is the preferred cut, or where no tier has room for it the next one that needs less.

    Raises:
        ConfigError: if the tier that was asked for has no room for any cut.
    """
    analyses = (analysis, *analysis.smaller)
    number, choice = choose_cut(
        [candidate_of(each, options) for each in analyses], options.placing.tier
    )
    if number == 0:
        return analysis, choice, ()
    wanted, taken = (need_of(each).nbytes for each in (analysis, analyses[number]))
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
