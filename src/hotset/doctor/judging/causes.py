"""What a loop is limited by, and what of it. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from dataclasses import astuple, dataclass

from hotset.doctor.examination import Examination
from hotset.doctor.findings import Bound, Cause, Range, Stage
from hotset.doctor.judging.loop import LoopTimes
from hotset.doctor.judging.pace import MAKING, Pace

LEAST_BATCHES = 8
"""Fewer in steady state say nothing."""
LEAST_FIRST = 5
"""Likewise of a first epoch."""
LEAST_LOST = 0.1
"""A smaller share of the time that is waited is not worth a change."""
LEAST_COPY = 0.2
LEAST_CROWDED = 0.2
"""A step that takes less of its time longer beside the workers is not held back by them."""
NEARLY = 0.85
"""Data that takes so much of the step's time has no room left."""
COLD = 2.0
"""First reads that take so many times later ones are storage's."""
LEAST_COLD = 0.25
"""What they take longer is at least such a share of a batch's time."""
UNEVEN = 1.5
"""A worker that takes so many times what its siblings take is slow."""
SLOW = 10.0
"""A sample that takes so many times what others take is slow."""
HALF = 0.5
EXPLAINED = 1.5
"""A pace that differs from what its parts say by so many times is not explained by them."""
CROWDED = 0.8
"""Workers that take so little of it with one thread each have too many."""


@dataclass(frozen=True)
class Found:
    """What limits a loop.

    Attributes:
        bound: in a word.
        cause: what of it.
        subject: the step, worker or dataset; empty where there is none.
    """

    bound: Bound
    cause: Cause
    subject: str = ""


def limit_of(
    loop: LoopTimes, examination: Examination, pace: Pace, *, may_read: bool = True
) -> Found:
    """What limits the loop.

    Args:
        loop: its times.
        examination: of its loader.
        pace: its parts.
        may_read: whether it may be that samples come from storage.
    """
    if loop.steady < LEAST_BATCHES:
        return Found("inconclusive", "unknown")
    lost = loop.wait_ms + loop.start_share_ms
    if pace.copy_ms >= LEAST_COPY * loop.loop_ms and pace.copy_ms >= lost:
        return Found("copy-bound", "copy")
    if lost >= LEAST_LOST * loop.loop_ms or (may_read and is_cold_at_first(loop)):
        cause, subject = cause_of(loop, examination, pace, may_read=may_read)
        return Found("data-bound", cause, subject)
    if pace.crowded_ms >= LEAST_CROWDED * loop.loop_ms:
        return Found("data-bound", "cores", examination.facts.dataset)
    if pace.is_crowded:
        return Found("inconclusive", "cores", examination.facts.dataset)
    if pace.worker_ms and pace.data_ms >= NEARLY * pace.step_ms:
        return Found("balanced", "balance")
    return Found("compute-bound", "step")


def confidence_of(found: Found, loop: LoopTimes, pace: Pace) -> float:
    """How sure that is: would other batches of the same loop have said the same?

    Figures are taken as normally distributed within their range; a loop whose parts explain its
    pace badly is believed less.
    """
    if found.bound == "inconclusive":
        return 0.0
    border = 1 / (1 - LEAST_LOST)
    gain = loop.gain
    if not math.isfinite(gain.value):
        return 1.0
    if found.cause == "cores":
        border = 1 / (1 - LEAST_CROWDED)
        gain = Range(*(each * pace.compute_ms / pace.alone_ms for each in astuple(gain)))
    error = max((gain.high - gain.low) / (2 * 1.645), 1e-9)
    sure = 0.5 * (1 + math.erf(abs(gain.value - border) / error / math.sqrt(2)))
    is_explained = 1 / EXPLAINED <= pace.slack <= EXPLAINED
    return sure if is_explained or found.bound != "data-bound" else 0.8 * sure


def cause_of(
    loop: LoopTimes, examination: Examination, pace: Pace, *, may_read: bool = True
) -> tuple[Cause, str]:
    """What it is about the data, and its name: the first that applies, particulars first.

    Args:
        loop: as for `limit_of`, as all that follow.
        examination: likewise.
        pace: likewise.
        may_read: likewise.
    """
    if loop.start_share_ms > loop.wait_ms and not (may_read and is_cold_at_first(loop)):
        return ("worker start" if pace.worker_ms else "unknown"), examination.facts.dataset
    if pace.crowded_ms > loop.wait_ms + loop.start_share_ms:
        return "cores", examination.facts.dataset
    found = _storage(loop, examination, pace) if may_read else None
    if found is not None:
        return found
    for look in (_slow_worker, _threads, _in_memory, _hand_over):
        found = look(loop, examination, pace)
        if found is not None:
            return found
    return _largest(examination)


Look = Callable[[LoopTimes, Examination, Pace], tuple[Cause, str] | None]


def is_cold_at_first(loop: LoopTimes) -> bool:
    """Whether the first epoch waited much longer than the later ones, and long."""
    first = loop.first_wait_ms
    return (
        first is not None
        and loop.epochs[0].batches >= LEAST_FIRST
        and not loop.is_first_usual
        and first >= COLD * loop.wait_ms
        and first - loop.wait_ms >= LEAST_LOST * (first + loop.step_ms)
    )


def _storage(loop: LoopTimes, examination: Examination, pace: Pace) -> tuple[Cause, str] | None:
    again = examination.ms("read", "transform", "batch")
    longer = (examination.first_read_ms or 0.0) - again
    is_much = longer >= LEAST_COLD * loop.loop_ms * max(1, len(pace.worker_ms))
    is_cold = longer >= (COLD - 1) * again > 0 and is_much and pace.slack >= COLD**0.5
    if is_cold_at_first(loop) or is_cold:
        return "storage", examination.facts.dataset
    return None


def _slow_worker(loop: LoopTimes, examination: Examination, pace: Pace) -> tuple[Cause, str] | None:
    if len(examination.workers) < 2:
        return None
    slowest = max(examination.workers, key=lambda worker: worker.ms)
    others = statistics.median(w.ms for w in examination.workers if w is not slowest)
    if slowest.ms >= UNEVEN * others and not _has_slow_samples(examination, slowest.ms - others):
        return "slow worker", f"worker {slowest.number}"
    return None


def _has_slow_samples(examination: Examination, ms: float) -> bool:
    """Whether a few samples alone take what a worker takes longer, whoever reads them."""
    times = examination.samples
    worst = times.worst[0].ms if times is not None and times.worst else 0.0
    return times is not None and worst >= SLOW * times.p50_ms and worst >= HALF * ms


def _threads(loop: LoopTimes, examination: Examination, pace: Pace) -> tuple[Cause, str] | None:
    if not examination.limited or not examination.workers:
        return None
    held, free = (
        statistics.fmean(worker.ms for worker in workers)
        for workers in (examination.limited, examination.workers)
    )
    return ("threads", examination.facts.dataset) if held <= CROWDED * free else None


def _in_memory(loop: LoopTimes, examination: Examination, pace: Pace) -> tuple[Cause, str] | None:
    facts = examination.facts
    return ("in memory", facts.dataset) if facts.is_in_memory else None


def _hand_over(loop: LoopTimes, examination: Examination, pace: Pace) -> tuple[Cause, str] | None:
    if not pace.worker_ms:
        return None
    # What workers take may have the sending off in it; what one process takes has not.
    made, each = pace.make_ms / len(pace.worker_ms), max(pace.worker_ms) / len(pace.worker_ms)
    if pace.hand_ms > made and pace.hand_ms > 0.5 * each:
        return "hand-over", examination.facts.dataset
    return None


def _largest(examination: Examination) -> tuple[Cause, str]:
    """The stage that takes longest; steps on floats that could be bytes count together."""
    making = [stage for stage in examination.stages if stage.kind in MAKING]
    if not making:
        return "unknown", examination.facts.dataset
    floats = [stage for stage in making if is_float(stage, examination)]
    largest = max((stage for stage in making if stage not in floats), key=_ms, default=None)
    if largest is None or sum(map(_ms, floats)) > largest.ms:
        return "float work", ", ".join(stage.name for stage in floats)
    causes: dict[str, Cause] = {"read": "read", "transform": "transform", "collate": "collate"}
    return causes.get(largest.kind, "unknown"), largest.name


def is_float(stage: Stage, examination: Examination) -> bool:
    """Whether a stage is a step on floats that could be bytes."""
    return stage.kind == "transform" and stage.name in examination.float_steps


def _ms(stage: Stage) -> float:
    return stage.ms
