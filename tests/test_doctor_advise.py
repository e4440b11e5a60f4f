"""Rules of the judgement that no planted loop needs: what was read, who else was busy, ranks."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import pytest

from hotset.doctor.findings import Cause, SampleTimes, SlowSample
from hotset.doctor.judging.advise import _about, judged
from hotset.doctor.judging.causes import Found
from hotset.doctor.judging.pace import pace_of
from hotset.doctor.judging.remedies import Case
from hotset.doctor.machine.usage import Usage
from hotset.placement.cut import Cut
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


def test_a_few_batches_are_not_acted_upon() -> None:
    """They say how much would be gained, but nothing is advised."""
    planted = Planted(read_ms=60, step_ms=10, batches=6, epochs=1, transforms=())
    found = judged(times_of(planted), examination_of(planted))
    assert (found.verdict.bound, found.advice) == ("inconclusive", ())
    words = "too little to tell by: 5 batches in steady state; let it run longer"
    assert found.verdict.sentence == words


def test_a_loop_that_nothing_would_help_is_not_said_to_be_well() -> None:
    """Data is the limit, and no remedy is known: nothing is advised, not even to leave it."""
    planted = Planted(read_ms=60, step_ms=1, workers=0, cores=1, transforms=())
    examined = replace(examination_of(planted), stages=(), plan=None)
    found = judged(times_of(planted), examined)
    assert found.verdict.bound == "data-bound"
    assert not found.verdict.is_left
    assert "leave it" not in [advice.action for advice in found.advice]


def test_a_worker_that_met_a_slow_sample_is_not_slow() -> None:
    """The sample is looked at, and not the worker."""
    planted = Planted(
        read_ms=60, workers=4, cores=8, slowness=(1.0, 1.0, 4.0, 1.0), step_ms=10, transforms=()
    )
    loop, examined = times_of(planted), examination_of(planted)
    assert judged(loop, examined).verdict.cause == "slow worker"
    times = SampleTimes(100, 0.5, 300.0, (SlowSample(17, 300.0),))
    found = judged(loop, replace(examined, samples=times))
    assert found.verdict.cause == "read"
    assert "even workers" not in [advice.action for advice in found.advice]


def test_a_moment_says_nothing_of_others() -> None:
    """Systems count processor time in ticks."""
    assert Usage(0.05, cores_busy=0.5, cores_busy_all=30.0).others_busy == 0.0
    assert Usage(2.0, cores_busy=0.5, cores_busy_all=1.5).others_busy == 1.0


def test_workers_that_only_wait_are_no_more_than_two_for_a_core() -> None:
    """They still take turns to hand over."""
    planted = Planted(read_ms=200, workers=0, cores=2, step_ms=5, transforms=())
    examined = replace(examination_of(planted), cpu_cores=0.01)
    (advice,) = (a for a in judged(times_of(planted), examined).advice if a.action == "workers")
    assert advice.code == "DataLoader(..., num_workers=4)"


def test_a_random_step_is_not_said_to_be_run_once() -> None:
    """Where a plan has seen that it is random."""
    planted = Planted(
        read_ms=8, transforms=(("Jitter", 90.0),), once=("read",), cores=1, step_ms=10
    )
    loop, examined = times_of(planted), examination_of(planted)
    assert examined.plan is not None
    cuts = [
        Cut(0, "Files", 1.0, 0.0, True, "", 10, True, 1000, 5.0, "host", "worker", is_chosen=True),
        Cut(1, "Jitter", 1.0, 0.0, False, "random", 10, True, 1000, 0.0, None, "worker"),
    ]
    examined = replace(examined, plan=replace(examined.plan, cuts=tuple(cuts)))
    (advice,) = (a for a in judged(loop, examined).advice if a.action == "transform")
    assert (advice.title, advice.code) == ("make Jitter cheaper, or give it a batched form", "")


def test_advice_comes_with_code_that_says_what_its_title_does() -> None:
    """Word by word, since somebody will paste it."""
    short = Planted(read_ms=10, workers=4, batches=6, epochs=12, start_ms=60, transforms=())
    copies = Planted(read_ms=20, workers=4, copy_ms=30, step_ms=25, transforms=())
    reads = Planted(read_ms=90, workers=2, cores=2, step_ms=10, transforms=())
    found = {
        advice.action: advice.code
        for planted in (short, copies, reads)
        for advice in judged(times_of(planted), examination_of(planted)).advice
    }
    assert found["persistent workers"] == "DataLoader(..., persistent_workers=True)"
    assert found["pinned copies"] == (
        "DataLoader(..., pin_memory=True)\nbatch = batch.to(device, non_blocking=True)"
    )
    assert found["read"] == ('loader = hotset.accelerate(loader, cache="folder")  # once, on disk')


def test_an_epoch_has_no_use_for_more_workers_than_batches() -> None:
    """Each makes one at least."""
    planted = Planted(read_ms=200, cores=8, step_ms=5, batches=3, epochs=12, transforms=())
    examined = replace(examination_of(planted), cpu_cores=0.01)
    codes = [a.code for a in judged(times_of(planted), examined).advice if a.action == "workers"]
    assert codes == ["DataLoader(..., num_workers=3)"]


def test_reading_that_is_random_is_not_said_to_be_done_once() -> None:
    """Where a plan keeps nothing of it."""
    planted = Planted(read_ms=90, step_ms=10, once=("read",), cores=1, transforms=())
    loop, examined = times_of(planted), examination_of(planted)
    assert examined.plan is not None
    examined = replace(examined, plan=replace(examined.plan, tier="source"))
    (advice,) = judged(loop, examined).advice
    assert (advice.title, advice.code) == ("make reading Files cheaper", "")


def test_every_cause_has_words_of_its_own() -> None:
    """Data that is the limit is explained by its cause; only what is not known is not."""
    loop, examined = times_of(COLD), examination_of(COLD)
    pace = pace_of(loop, examined)
    others = {"unknown", "copy", "step", "balance", "cores"}  # they have whole sentences
    told = {
        cause: _about(Case(Found("data-bound", cause, "Files"), loop, examined, pace))
        for cause in get_args(Cause)
        if cause not in others
    }
    assert len(set(told.values())) == len(told) == len(get_args(Cause)) - len(others)
    assert not any("could not be told apart" in words for words in told.values())
