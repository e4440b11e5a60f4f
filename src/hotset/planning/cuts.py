"""Every possible cut of a chain as a row: what it saves, and why it lost. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hotset.chain.split import Position
from hotset.placement.cut import Cut
from hotset.placement.duration import human_ms
from hotset.placement.size import human_bytes
from hotset.placement.tiers import Rooms, Tier
from hotset.planning.measure import Row


@dataclass(frozen=True)
class Fact:
    """What is known of one position of the chain.

    Attributes:
        position: what could be done there.
        row: what comes last before it, as measured.
        bytes_per_sample: of a sample as it is there.
        copied: bytes that an epoch would copy to the device.
        rooms: what each memory may take.
        tier: the nearest that has room; None where none has.
        unfit: why none has, where the budgets alone do not tell.
    """

    position: Position
    row: Row
    bytes_per_sample: int
    copied: float
    rooms: Rooms
    tier: Tier | None
    unfit: str = ""


@dataclass(frozen=True)
class Epoch:
    """What an epoch of the plain loader is, times in milliseconds of one process.

    Attributes:
        samples: in it.
        kept: samples that are to be kept.
        parallel: processes that read at once.
        collate_ms: putting a batch together, a sample's share.
        batched_ms: what runs on whole batches in place of the rest of a chain, a sample's share.
        copied: bytes copied to the device.
        bandwidth: of that, in bytes per second; None where nothing is copied.
        unkeepable: why nothing can be kept at all; empty where something can.
    """

    samples: int
    kept: int
    parallel: int
    collate_ms: float = 0.0
    batched_ms: float = 0.0
    copied: int = 0
    bandwidth: float | None = None
    unkeepable: str = ""


def cuts_of(facts: Sequence[Fact], epoch: Epoch, chosen: int | None) -> tuple[Cut, ...]:
    """All cuts, with the reason for each.

    Args:
        facts: one for each position, from 0 on.
        epoch: of the plain loader.
        chosen: the position that the chain is cut at; None for none.
    """
    cuts = [_cut(number, facts, epoch) for number in range(len(facts))]
    reasons = [_reason(number, cuts, facts, epoch, chosen) for number in range(len(facts))]
    return tuple(
        replace(cut, is_chosen=cut.position == chosen, reason=reason)
        for cut, reason in zip(cuts, reasons, strict=True)
    )


def _cut(number: int, facts: Sequence[Fact], epoch: Epoch) -> Cut:
    fact = facts[number]
    problem = fact.position.problem
    if epoch.unkeepable:
        problem = epoch.unkeepable
    return Cut(
        position=number,
        behind=fact.row.name,
        ms=fact.row.timing.ms,
        noise_ms=fact.row.timing.noise_ms,
        is_deterministic=fact.position.is_deterministic and not epoch.unkeepable,
        problem=problem,
        bytes_per_sample=fact.bytes_per_sample,
        is_one_shape=fact.row.is_one_shape,
        nbytes=fact.bytes_per_sample * epoch.kept,
        saved_ms=0.0 if problem else _saved_ms(number, facts, epoch),
        tier=None if problem else fact.tier,
        rest=fact.position.rest,
    )


def _saved_ms(number: int, facts: Sequence[Fact], epoch: Epoch) -> float:
    """What an epoch no longer runs and copies, less what runs on whole batches instead."""
    saved = sum(fact.row.timing.ms for fact in _spared(number, facts)) / epoch.parallel
    if facts[number].position.rest != "worker":
        saved += epoch.collate_ms / epoch.parallel - epoch.batched_ms
    copied = epoch.copied - facts[number].copied
    copying = 1000 * copied / epoch.bandwidth if epoch.bandwidth else 0.0
    return saved * epoch.samples + copying


def _spared(number: int, facts: Sequence[Fact]) -> Sequence[Fact]:
    """What is no longer run for each sample: all of it, where the rest runs on whole batches."""
    return facts[: number + 1] if facts[number].position.rest == "worker" else facts


def _noise_ms(number: int, other: int, facts: Sequence[Fact], epoch: Epoch) -> float:
    """By how much the savings of two cuts differ from one measurement to the next."""
    first, last = sorted(len(_spared(each, facts)) for each in (number, other))
    noise = sum(fact.row.timing.noise_ms for fact in facts[first:last])
    return noise * epoch.samples / epoch.parallel


def _reason(
    number: int, cuts: Sequence[Cut], facts: Sequence[Fact], epoch: Epoch, chosen: int | None
) -> str:
    cut = cuts[number]
    if cut.problem:
        return cut.problem
    if cut.tier is None:
        return facts[number].unfit or exceeding(cut.nbytes, facts[number].rooms)
    if chosen is None:
        return "nothing is kept"
    if number == chosen:
        return _why_chosen(cuts, chosen)
    best = cuts[chosen]
    ahead = best.saved_ms - cut.saved_ms
    is_alike = abs(ahead) <= _noise_ms(number, chosen, facts, epoch)
    if ahead > 0 and not is_alike:
        return f"saves {human_ms(ahead)} less per epoch"
    sizes = f"{human_bytes(cut.nbytes)} for what {human_bytes(best.nbytes)} save"
    if cut.nbytes > best.nbytes:
        if is_alike:
            return f"{sizes} as well"
        return f"{sizes} all but {human_ms(-ahead)} of, per epoch"
    if cut.rest == "worker":
        behind = cuts[number + 1].behind
        saves = "saves as much" if is_alike else f"saves {human_ms(-ahead)} more per epoch"
        return f"{saves}, but leaves {behind} to be run for every sample again"
    return "no fewer bytes, and more would be left to run"


def _why_chosen(cuts: Sequence[Cut], chosen: int) -> str:
    best = cuts[chosen]
    possible = [cut for cut in cuts if not cut.problem]
    if len(possible) == 1:
        return "the only one that can be kept"
    if any(cut.tier is None and _is_before(cut, best) for cut in possible):
        return "the best of those that there is room for"
    if best.rest == "nothing":
        return "nothing is left to run"
    if best.rest == "worker":
        return "saves the most of what runs per sample"
    return "the fewest bytes of those behind which all runs on whole batches"


def _is_before(cut: Cut, best: Cut) -> bool:
    """Whether a cut would be taken before another, were there room for it."""
    if (cut.rest == "worker") != (best.rest == "worker"):
        return best.rest == "worker"
    return cut.position > best.position


def exceeding(nbytes: int, rooms: Rooms) -> str:
    """That samples have room in no memory."""
    amounts = [
        (rooms.device, f"on {rooms.name}"),
        (rooms.host, "in host memory"),
        (rooms.disk, "on disk"),
    ]
    there = [f"{human_bytes(room)} {where}" for room, where in amounts if room is not None]
    budgets = "budget" if len(there) == 1 else "budgets"
    return f"{human_bytes(nbytes)} exceed the {budgets}: {', '.join(there)}"
