"""Rules of the judgement that no planted loop needs: what was read, who else was busy, ranks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hotset.doctor.judging.advise import judged
from hotset.doctor.machine.usage import Usage
from tests.examined import examination_of
from tests.loops import Planted, times_of

COLD = Planted(
    read_ms=20, cold_ms=200, cold_epochs=3, workers=4, cores=4, step_ms=15, transforms=()
)
CROWDED = Planted(read_ms=14, workers=2, cores=2, step_ms=15, step_cores=1.0, transforms=())
BATCH_BYTES = 1_000_000


def test_samples_of_files_may_come_from_storage() -> None:
    """First reads take long, and files were read: from storage, or from what the system had."""
    loop, examined = times_of(COLD), examination_of(COLD)
    examined = replace(examined, batch_bytes=BATCH_BYTES)
    read = int(0.02 * BATCH_BYTES * loop.batches)
    for usage in (Usage(1.0, read_bytes=read, cached_bytes=0), Usage(1.0), None):
        assert judged(loop, examined, usage=usage).verdict.cause == "storage"


def test_what_reads_no_files_waits_for_no_storage() -> None:
    """However long first reads take."""
    loop, examined = times_of(COLD), examination_of(COLD)
    examined = replace(examined, batch_bytes=BATCH_BYTES)
    found = judged(loop, examined, usage=Usage(1.0, read_bytes=0, cached_bytes=4096))
    assert found.verdict.cause == "read"
    assert "storage" not in [advice.action for advice in found.advice]


def test_times_of_a_crowded_machine_are_believed_less() -> None:
    """By half of the share of the cores that others use; all else stays."""
    loop, examined = times_of(COLD), examination_of(COLD)
    alone, beside = (
        judged(loop, examined, usage=Usage(1.0, cores_busy=1.0, cores_busy_all=busy))
        for busy in (1.0, 3.0)
    )
    assert beside.verdict.confidence == pytest.approx(0.75 * alone.verdict.confidence)
    assert replace(beside.verdict, confidence=1.0) == replace(alone.verdict, confidence=1.0)


def test_half_of_what_is_only_the_most_counts_for_its_rank() -> None:
    """A slow worker comes before workers that stay, though only the latter's gain is sure."""
    planted = Planted(
        read_ms=60,
        workers=4,
        cores=8,
        slowness=(1.0, 1.0, 4.0, 1.0),
        step_ms=10,
        start_ms=60,
        batches=40,
        transforms=(),
    )
    advice = judged(times_of(planted), examination_of(planted)).advice
    ranks = [(1 + (a.gain.value - 1) / 2) if a.is_most else a.gain.value for a in advice]
    assert ranks == sorted(ranks, reverse=True)
    assert [each.action for each in advice][:2] == ["even workers", "persistent workers"]


def test_what_nobody_can_tell_is_inconclusive() -> None:
    """Step and workers fill the cores; the step by itself was not seen, and might be faster."""
    loop = times_of(CROWDED)
    unseen = replace(loop, alone_step_ms=None)
    found = judged(unseen, examination_of(CROWDED))
    assert (found.verdict.bound, found.verdict.cause) == ("inconclusive", "cores")
    assert found.verdict.sentence.endswith("hotset.diagnose(loader, step) tells")
    assert found.gain.high > found.gain.value
    seen = judged(replace(loop, alone_step_ms=loop.usual_step_ms), examination_of(CROWDED))
    assert seen.verdict.bound != "inconclusive"
