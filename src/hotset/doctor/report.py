"""What the doctor found, as a whole: in words, as JSON, as a page, and as a trace."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hotset.doctor.examination import Examination
from hotset.doctor.findings import Advice, BatchCheck, Overhead, Range, Stage, Trap, Verdict
from hotset.doctor.loop import LoopTimes
from hotset.doctor.measure import Timeline
from hotset.doctor.usage import Usage

SCHEMA = "hotset-doctor-report"
VERSION = 1


@dataclass(frozen=True)
class LoaderShare:
    """One of several loaders of a script.

    Attributes:
        name: its class and its dataset's.
        batches: that came.
        epochs: that began.
        wait_s: that it was waited for.
        is_examined: whether the report is about it.
    """

    name: str
    batches: int
    epochs: int
    wait_s: float
    is_examined: bool


@dataclass(frozen=True, eq=False)
class Report:
    """Whether data holds a loop back, where, and what would help.

    Attributes:
        title: the script or the loader that it is about.
        created: when, as ISO 8601 writes it.
        verdict: what the loop is limited by.
        gain: how many times faster the loop would be if data took no time at all.
        loop: the loop's times.
        stages: what is done for a batch, in order, the step included, each with its ceiling.
        advice: what would help, the most first.
        traps: known ones that the loader is in.
        batch_check: whether a larger batch would help.
        examination: what was found out outside of the loop.
        timeline: the loop's times, batch by batch; None where no loop ran.
        usage: the machine while the loop ran; None where it was not looked at.
        overhead: what the doctor itself took.
        loaders: all loaders of a script, the most waited for first; empty where there is but one.
        versions: of the packages; None for what is not installed.
        hardware: what it ran on.
        notes: what else is worth knowing.
    """

    title: str
    created: str
    verdict: Verdict
    gain: Range
    loop: LoopTimes
    stages: tuple[Stage, ...]
    advice: tuple[Advice, ...]
    traps: tuple[Trap, ...]
    batch_check: BatchCheck
    examination: Examination
    timeline: Timeline
    usage: Usage | None
    overhead: Overhead
    loaders: tuple[LoaderShare, ...] = ()
    versions: dict[str, str | None] = field(default_factory=dict)
    hardware: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
