"""Places kept samples: in the tier that has room, and ready to be gathered there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import torch

from hotset.errors import DeviceMemoryError
from hotset.kernels.gather import gather_rows
from hotset.loader.filling import Filling
from hotset.loader.fit import fits_stages, is_per_sample
from hotset.loader.options import Options
from hotset.placement.device import free_bytes, local_ranks
from hotset.placement.lanes import bytes_of, chosen_on, is_passing, place_bytes
from hotset.placement.link import Link, place
from hotset.placement.policy import Policy, Static, choose_policy, ragged_policy
from hotset.placement.ring import Ring, ring_for
from hotset.placement.stage import InPlace, Stage
from hotset.placement.staging import Staged
from hotset.placement.stats import Tally
from hotset.placement.tiers import Choice, Need, Rooms, Tier, choose_tier, next_tier
from hotset.sample.column import Column, ListColumn, RaggedColumn
from hotset.sources.analyse import Analysis
from hotset.sources.resident import Resident

CPU = torch.device("cpu")


@dataclass(frozen=True, eq=False)
class Kept:
    """Samples that are kept.

    Attributes:
        resident: all of them: where batches are made, or on the host where only some lie there.
        choice: the tier.
        stage: gives them where batches are made.
        device: where that is.
        notes: why the tier is no nearer, and what else is worth knowing.
        policy: which samples the device keeps, and why so; empty where it keeps all or none.
        filling: what fills them in the first epoch; None where they are there.
        narrowed: per leaf that is kept in a narrower dtype, the dtype.
    """

    resident: Resident
    choice: Choice
    stage: Stage
    device: torch.device
    notes: tuple[str, ...] = ()
    policy: str = ""
    filling: Filling | None = None
    narrowed: Mapping[int, torch.dtype] = field(default_factory=dict)

    @property
    def tier(self) -> Tier:
        """The tier's name."""
        return self.choice.tier


def rooms_for(
    analysis: Analysis, options: Options, resident: Resident | None, *, is_near: bool | None = None
) -> Rooms:
    """What each memory may take now.

    Args:
        analysis: of the source.
        options: what was asked for.
        resident: the samples, where they lie in memory or in a store; None where they do not yet.
        is_near: whether batches can be made on the device; None takes it from the analysis.
    """
    link, budget = options.link, options.placing.budget
    if is_near is None:
        is_near = not is_per_sample(analysis, options)
    is_stored = resident is not None and resident.store is not None
    return Rooms(
        device=budget.left("device", link.free_bytes()) if link.is_apart and is_near else None,
        host=budget.left("host", free_bytes(CPU) // local_ranks(), is_device=not link.is_apart),
        is_stored=is_stored,
        is_resident=resident is not None and not is_stored,
        is_apart=link.is_apart,
        name=link.name,
    )


RING_SHARE = 8
"""What is on its way to a device takes no more than one in so many bytes of what may be taken."""


def need_of(samples: int, bytes_per_sample: int, options: Options, rooms: Rooms) -> Need:
    """What samples take."""
    ring = ring_of(samples, bytes_per_sample, options, rooms)
    return Need(samples, bytes_per_sample, ring.places * ring.place_rows * bytes_per_sample)


def ring_of(samples: int, bytes_per_sample: int, options: Options, rooms: Rooms) -> Ring:
    """What batches pass through on their way to a device."""
    outlook, placing = options.outlook, options.placing
    room = placing.prefetch_bytes if rooms.device is None else rooms.device // RING_SHARE
    rows = min(outlook.batch_rows, samples)
    return ring_for(
        rows,
        bytes_per_sample,
        batches=placing.prefetch_batches if outlook.may_read_ahead else 0,
        # A batch passes whole even where nothing may be kept: one by one its samples would crawl.
        nbytes=min(placing.prefetch_bytes, max(room, rows * bytes_per_sample)),
        samples=samples,
    )


def placed(
    resident: Resident,
    analysis: Analysis,
    options: Options,
    tally: Tally,
    *,
    notes: list[str],
    is_own: bool,
    filling: Filling | None = None,
) -> Kept:
    """Samples in the nearest tier that has room; where memory cannot be had, in the next.

    Args:
        resident: the samples, on the host.
        analysis: of the source.
        options: what was asked for.
        tally: counts.
        notes: what is worth knowing so far.
        is_own: whether hotset read them into memory itself, so that they count in its budget.
        filling: what fills them in the first epoch; None where they are there.

    Raises:
        ConfigError: if the tier that was asked for has no room, or cannot be had here.
        DeviceMemoryError: if the device has no room even for the batches on their way.
    """
    passing = [column for column in resident.columns if is_passing(column)]
    is_near = not is_per_sample(analysis, options) and fits_stages(analysis, resident)
    rooms = rooms_for(analysis, options, resident, is_near=is_near and bool(passing))
    if filling is not None:
        rooms = replace(rooms, is_stored=True, is_resident=False)
    count, stored = len(resident), len(resident.columns[0])
    if filling is None:
        # Of a subset only its own samples move; of one with repetitions, each of them once.
        nbytes = sum(c.nbytes for c in passing if not is_there(c, options.link))
        mean, moving = -(-nbytes // max(1, stored)), min(count, stored)
    else:
        mean, moving = analysis.bytes_per_sample, count
    ring = ring_of(count, mean, options, rooms)
    need = Need(moving, mean, ring.places * place_bytes(passing, ring.place_rows))
    if passing and all(is_there(column, options.link) for column in passing):
        choice = Choice("device", None, count)
    else:
        choice = choose_tier(need, rooms, options.placing.tier)
    if filling is not None and choice.tier in ("device", "mixed") and rooms.is_apart:
        choice = Choice("disk", "disk", 0, ("the samples are not there yet: they pass, this time",))
    notes = [*notes, *choice.reasons]
    if filling is None and not (choice.is_near and choice.tier == "device"):
        resident = resident.to(CPU)  # those of a store that grows take each other's place
    while True:
        try:
            with torch.inference_mode(False):  # its memory is written to in every mode
                kept = _in(choice, resident, options, tally, ring)
            break
        except DeviceMemoryError as error:
            lower, less = next_tier(choice, need, rooms), ring.smaller()
            if lower is None and less is None:
                raise
            instead = f"in the tier {choice.tier if lower is None else lower.tier}"
            if lower is None:
                instead = "batches pass in smaller parts"
            notes.append(
                f"out of memory while placing in the tier {choice.tier}: {error}; {instead} instead"
            )
            choice = choice if lower is None else lower
            ring = ring if less is None or lower is not None else less
    if is_own and kept.choice.rest == "host":
        options.placing.budget.take("host", resident.nbytes, kept.resident)
        if local_ranks() > 1:
            notes.append(
                f"each of the {local_ranks()} ranks on this machine holds a copy in host memory; "
                "a store in a `cache` folder is there once for all"
            )
    return replace(kept, notes=(*notes, *kept.notes), filling=filling)


def _in(choice: Choice, resident: Resident, options: Options, tally: Tally, ring: Ring) -> Kept:
    """The samples in a tier.

    Raises:
        DeviceMemoryError: if the device has no room.
    """
    link, budget = options.link, options.placing.budget
    if not choice.is_near or not link.is_apart:
        host = resident
        if choice.rest == "host" and host.store is not None:
            host = host.read()
        return Kept(host, choice, InPlace(host, CPU, tally, is_there=not link.is_apart), CPU)
    if choice.tier == "device":
        near, moved = on_device(resident, link)
        tally.bytes_placed += moved
        budget.take("device", moved, near)
        return Kept(near, choice, InPlace(near, link.device, tally), link.device)
    room = budget.left("device", link.free_bytes())
    room -= ring.places * place_bytes(resident.columns, ring.place_rows)
    policies, reason = _policies(choice, resident, options, room)
    staged = Staged(
        resident,
        link,
        ring,
        policies,
        tally,
        gather=gather_rows,
        peek=options.outlook.peek,
    )
    budget.take("device", staged.device_bytes, staged)
    policy = reason if choice.tier == "mixed" else ""
    if choice.tier == "mixed" and staged.capacity == 0:
        choice = replace(choice, tier=choice.rest or "host")
    choice = replace(choice, cached=staged.capacity)
    return Kept(resident, choice, staged, link.device, (), policy)


def _policies(
    choice: Choice, resident: Resident, options: Options, room: int
) -> tuple[Callable[[bool], Policy], str]:
    """What makes the policy of a tier, and why it is the one; `room` is in bytes."""
    name, outlook, count = options.placing.policy, options.outlook, len(resident)
    if choice.cached == 0:
        return lambda is_first: Static(count, 0), ""
    if any(isinstance(c, RaggedColumn) and is_passing(c) for c in resident.columns):
        capacity, reason = _fitting(choice.cached, resident, room), ragged_policy(name)
        return lambda is_first: Static(count, capacity), reason

    def make(is_first: bool) -> tuple[Policy, str]:
        return choose_policy(
            name,
            outlook.reuse,
            count,
            choice.cached,
            weights=outlook.weights,
            may_read_ahead=outlook.may_read_ahead,
            is_future_known=outlook.is_future_known,
            first=_first(options, choice.cached) if is_first else None,
        )

    return lambda is_first: make(is_first)[0], make(True)[1]


def _fitting(capacity: int, resident: Resident, room: int) -> int:
    """How many samples that differ in size have room, at most so many."""
    rows = None if resident.rows is None else resident.rows.numpy()
    while capacity:
        kept = Static(len(resident), capacity).preload()
        taken = bytes_of(resident.columns, kept if rows is None else rows[kept])
        if taken <= room:
            break
        capacity = min(capacity - 1, capacity * max(0, room) // taken)
    return capacity


def _first(options: Options, count: int) -> np.ndarray | None:
    """What this rank asks for first; None where that is not known."""
    outlook = options.outlook
    if outlook.reuse != "ranks" or outlook.peek is None:
        return None
    found: list[np.ndarray] = []
    for ids in outlook.peek(0):
        found.append(ids)
        if sum(map(len, found)) >= count:
            break
    return np.concatenate(found)[:count]


def on_device(resident: Resident, link: Link) -> tuple[Resident, int]:
    """The samples on a device, and the bytes that were copied there.

    Columns that lie there already are left as they are; text and lists stay on the host.

    Raises:
        DeviceMemoryError: if it has no room.
    """
    count, rows = len(resident.columns[0]), resident.rows
    there = [is_there(column, link) for column in resident.columns]
    chosen = None
    if rows is not None and len(rows) < count and not any(there):
        chosen, rows = rows.cpu().numpy(), None  # only the samples of a subset need go there
    resident.touch(np.arange(count) if chosen is None else chosen)
    columns = tuple(
        column.to(link.device) if is_near else chosen_on(link, column.to(CPU), chosen)
        for column, is_near in zip(resident.columns, there, strict=True)
    )
    moved = sum(
        column.nbytes
        for column, is_near in zip(columns, there, strict=True)
        if is_passing(column) and not is_near
    )
    if rows is not None and not any(there):
        rows = place(link, rows)
    elif rows is not None:
        rows = rows.to(link.device)
    return replace(resident, columns=columns, rows=rows, store=None), moved


def is_there(column: Column, link: Link) -> bool:
    """Whether a column lies on the device already; a link to the CPU has that memory's name too."""
    if isinstance(column, ListColumn) or link.device.type == "cpu":
        return False
    return column.data.device == link.device
