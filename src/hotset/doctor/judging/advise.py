"""The verdict on a loop, with its ceilings and what would help. Pure: times in, findings out."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from hotset.doctor.examination import Examination
from hotset.doctor.findings import Advice, BatchCheck, Cause, Range, Stage, Verdict
from hotset.doctor.judging.causes import LEAST_BATCHES, Found, confidence_of, limit_of
from hotset.doctor.judging.loop import LoopTimes
from hotset.doctor.judging.pace import MAKING, Pace, pace_of
from hotset.doctor.judging.remedies import LEAST_GAIN, Case, remedies_of
from hotset.doctor.machine.usage import Usage
from hotset.doctor.phrases import counted, percent, times_as
from hotset.placement.duration import human_ms

LEAST_READ = 0.01
"""Files that give less of what batches hold do not hold the samples; images are packed far less."""


@dataclass(frozen=True)
class Replay:
    """The step by itself, on batches that were kept: no worker runs beside it.

    Attributes:
        full_ms: on a batch as it came, on the device already.
        half_ms: on the half of one; None where that cannot be had.
    """

    full_ms: float
    half_ms: float | None = None


@dataclass(frozen=True)
class Judgement:
    """What follows from a loop's times and its loader's costs.

    Attributes:
        verdict: what the loop is limited by.
        gain: how many times faster it would be if data took no time at all.
        stages: what is done for a batch, the step included, each with its ceiling.
        advice: what would help, the most first.
        batch_check: whether a larger batch would help.
    """

    verdict: Verdict
    gain: Range
    stages: tuple[Stage, ...]
    advice: tuple[Advice, ...]
    batch_check: BatchCheck


def judged(
    loop: LoopTimes,
    examination: Examination,
    *,
    replay: Replay | None = None,
    is_step_known: bool = True,
    usage: Usage | None = None,
) -> Judgement:
    """The judgement.

    Args:
        loop: its times.
        examination: of its loader.
        replay: of the step; None where there was none.
        is_step_known: whether what is not waiting is a training step; without one, only what the
            data takes can be told.
        usage: of the machine while the loop ran; None where it was not looked at.
    """
    pace = pace_of(loop, examination, step_ms=None if replay is None else replay.full_ms)
    may_read = usage is None or _may_read(usage, loop, examination)
    found = limit_of(loop, examination, pace, may_read=may_read)
    if not is_step_known:
        found = Found("inconclusive", "unknown")
    case = Case(found, loop, examination, pace)
    advice = remedies_of(case)
    if loop.steady < LEAST_BATCHES:
        advice = ()  # what a few batches seem to say is not to be acted upon
    is_left = found.bound in ("compute-bound", "balanced")
    if is_left:
        advice = (_leave(case), *advice)
    return Judgement(
        verdict=Verdict(
            found.bound,
            found.cause,
            found.subject,
            confidence_of(found, loop, pace) * _trust(usage, examination),
            _sentence(case, is_step_known),
            is_left,
        ),
        gain=_most(case),
        stages=_stages(case),
        advice=advice,
        batch_check=_batch_check(case, replay),
    )


def _trust(usage: Usage | None, examination: Examination) -> float:
    """How far times are to be believed: half of the share of the cores that others use is not."""
    if usage is None:
        return 1.0
    return 1 - 0.5 * min(1.0, usage.others_busy / examination.cores)


def _may_read(usage: Usage, loop: LoopTimes, examination: Examination) -> bool:
    """Whether samples may come from files, as far as the system tells what was read at all."""
    if usage.read_bytes is None or usage.cached_bytes is None:
        return True
    made = loop.batches * examination.batch_bytes
    return usage.read_bytes + usage.cached_bytes >= LEAST_READ * made


def _most(case: Case) -> Range:
    """The largest gain possible: no waiting, no copying, and the step by itself."""
    gain = case.gain(case.pace.alone_ms)
    if case.pace.is_crowded:
        return replace(gain, high=max(gain.high, case.gain(case.pace.freed_ms).value))
    return gain


def _stages(case: Case) -> tuple[Stage, ...]:
    """Each with its ceiling; the lowest of those that set the pace is marked."""
    loop, pace, examination = case.loop, case.pace, case.examination
    size = loop.samples or 1.0
    lanes = max(1, len(pace.worker_ms))
    stages = [
        replace(stage, lanes=lanes) if stage.kind in MAKING else stage
        for stage in examination.stages
    ]
    if not any(stage.kind in MAKING for stage in stages):
        stages.insert(0, Stage(examination.facts.name, "batch", loop.wait_ms))
    stages.append(Stage("step", "step", pace.compute_ms))
    stages = [
        replace(s, samples_per_s=1000 * size * s.lanes / s.ms if s.ms > 0 else math.inf)
        for s in stages
    ]
    is_data = case.found.bound in ("data-bound", "inconclusive")
    limiting = [s for s in stages if (s.kind == "step") != is_data and s.kind != "copy"]
    if case.found.bound == "copy-bound":
        limiting = [s for s in stages if s.kind == "copy"]
    lowest = min(limiting, key=lambda stage: stage.samples_per_s, default=None)
    return tuple(replace(stage, is_lowest=stage is lowest) for stage in stages)


def _leave(case: Case) -> Advice:
    most = _most(case).value
    return Advice(
        "leave it",
        "leave the data loading as it is",
        Range(1.0, 1.0, 1.0),
        is_most=False,
        why=f"if data took no time at all, the loop would be {times_as(most)} as fast",
    )


def _sentence(case: Case, is_step_known: bool) -> str:
    loop, pace, found = case.loop, case.pace, case.found
    if not is_step_known:
        return (
            f"no step was given: the data alone takes {human_ms(loop.loop_ms)} a batch, and holds "
            "back every step that takes less"
        )
    if found.bound == "inconclusive" and found.cause == "cores":
        return (
            f"workers and step fill the cores, and whether they hold each other back was not seen: "
            f"the step takes {human_ms(pace.compute_ms)} a batch beside the workers, and "
            f"{human_ms(pace.freed_ms)} at least without; hotset.diagnose(loader, step) tells"
        )
    if found.bound == "inconclusive":
        batches = counted(loop.steady, "batch", "batches")
        return f"too little to tell by: {batches} in steady state; let it run longer"
    share = f"{percent(loop.wait_share)} of the time"
    if found.bound == "compute-bound":
        return (
            f"the step is the limit: it takes {human_ms(pace.step_ms)} a batch, and data is waited "
            f"for in {share}"
        )
    if found.bound == "balanced":
        return (
            f"data and step keep pace: {human_ms(pace.data_ms)} and {human_ms(pace.step_ms)} a "
            f"batch; data is waited for in {share}, but a faster step would wait"
        )
    if found.bound == "copy-bound":
        return (
            f"copying batches to the device is the limit: {human_ms(pace.copy_ms)} of "
            f"{human_ms(loop.loop_ms)} a batch"
        )
    if found.cause == "cores":
        return (
            f"the workers are the limit: they take the cores that the step needs, which takes "
            f"{human_ms(pace.compute_ms)} a batch beside them and {human_ms(pace.alone_ms)} without"
        )
    return f"data is the limit: it is waited for in {share}; {_about(case)}"


def _about(case: Case) -> str:
    """The cause of waiting, in words."""
    loop, pace, examination = case.loop, case.pace, case.examination
    subject = case.found.subject or "the dataset"
    making = human_ms(pace.make_ms)
    ms = {stage.name: stage.ms for stage in examination.stages}
    own = human_ms(ms.get(subject, 0.0))
    words: dict[Cause, str] = {
        "read": f"most of it for reading {subject}, {own} of the {making} a batch takes to make",
        "transform": f"most of it for {subject}, {own} of the {making} a batch takes to make",
        "float work": f"most of it for {subject}, on floats that could be bytes",
        "collate": f"most of it for putting batches together, {own} of {making}",
        "hand-over": f"most of it for handing batches over from the workers, "
        f"{human_ms(pace.hand_ms)} each",
        "in memory": f"{subject} lies in memory already, and is picked sample by sample",
        "worker start": f"most of it at the start of an epoch, {human_ms(loop.start_ms)} each time",
        "slow worker": f"{subject} takes longer than its siblings, and all wait for it",
        "threads": f"{len(pace.worker_ms)} workers with several threads each crowd "
        f"{examination.cores} cores",
        "storage": "samples come from storage, and not from memory, the first time they are read",
    }
    return words.get(case.found.cause, "what it is about it could not be told apart")


def _batch_check(case: Case, replay: Replay | None) -> BatchCheck:
    loop, pace = case.loop, case.pace
    if case.found.bound == "inconclusive":
        return BatchCheck(None, None, "what limits the loop is not known")
    if case.found.bound == "data-bound" and loop.wait_ms >= loop.start_share_ms:
        return BatchCheck(
            helps=False,
            gain=1.0,
            reason="a larger batch needs as much more data, and data is the limit",
        )
    if replay is None or replay.half_ms is None:
        return BatchCheck(None, None, "the step was seen with batches of one size only")
    step = max(replay.full_ms, 1e-9)
    twice = max(step, step + 2 * (step - replay.half_ms))
    after = _with_step(pace, twice, size=2).steady_ms
    gain = 2 * _with_step(pace, step, size=1).steady_ms / after
    fixed = max(0.0, 2 * replay.half_ms - step)
    return BatchCheck(
        helps=gain >= LEAST_GAIN,
        gain=gain,
        reason=(
            f"half a batch takes the step {human_ms(replay.half_ms)}, a whole one "
            f"{human_ms(step)}: {human_ms(fixed)} do not depend on its size"
        ),
    )


def _with_step(pace: Pace, step_ms: float, *, size: int) -> Pace:
    """With batches so many times larger, for which the step takes so long."""
    return replace(
        pace,
        compute_ms=step_ms,
        copy_ms=0.0,
        make_ms=size * pace.make_ms,
        worker_ms=tuple(size * each for each in pace.worker_ms),
        hand_ms=size * pace.hand_ms,
    )
