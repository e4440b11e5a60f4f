"""The doctor on loops with a planted cause: the verdict names it, and its gains come true.

No clock decides: the loops are simulated, and what an advice promises is compared with the same
loop simulated once more as the advice says.
"""

from __future__ import annotations

import pytest

from tests.loops import Planted, times_of
from tests.promises import AGREED, Case, judgement_of, missed_by

CROP, FLIP = ("Crop", 4.0), ("Flip", 2.0)
IMAGES = Planted(
    read_ms=80,
    transforms=(CROP, FLIP),
    collate_ms=4,
    hand_ms=0.5,
    step_ms=12,
    start_ms=15,
    boot_ms=10,
    end_ms=2,
    batches=200,
    cores=16,
    jitter=0.1,
    once=("read",),
    rest_ms=3,
)
"""Files that take long to decode."""

CASES: dict[str, Case] = {
    "slow decode, workers": Case(
        IMAGES.with_(workers=4, cores=4), "data-bound", "read", "Files", "accelerate"
    ),
    "slow decode, no workers": Case(
        IMAGES.with_(cores=1), "data-bound", "read", "Files", "accelerate"
    ),
    "slow decode, that cannot be kept": Case(
        IMAGES.with_(workers=4, cores=4, once=None), "data-bound", "read", "Files", "read"
    ),
    "a slow transform, workers": Case(
        IMAGES.with_(
            read_ms=8,
            transforms=(CROP, ("Blur", 90.0), FLIP),
            workers=3,
            cores=4,
            once=("read", "Crop", "Blur"),
        ),
        "data-bound",
        "transform",
        "Blur",
        "accelerate",
    ),
    "a slow random transform, no workers": Case(
        IMAGES.with_(read_ms=8, transforms=(CROP, ("Jitter", 90.0), FLIP), once=None, cores=1),
        "data-bound",
        "transform",
        "Jitter",
        "transform",
    ),
    "a slow collate, no workers": Case(
        IMAGES.with_(read_ms=8, collate_ms=70, once=None, cores=1),
        "data-bound",
        "collate",
        "collate",
        "collate",
        {"has_collate": True},
    ),
    "a slow collate, workers": Case(
        IMAGES.with_(read_ms=8, collate_ms=90, once=None, workers=3, cores=3),
        "data-bound",
        "collate",
        "collate",
        "collate",
        {"has_collate": True},
    ),
    "a slow step, workers": Case(
        IMAGES.with_(step_ms=150, workers=4, cores=8), "compute-bound", "step", is_left=True
    ),
    "a slow step, no workers": Case(
        IMAGES.with_(read_ms=4, step_ms=300, once=("read",)),
        "compute-bound",
        "step",
        is_left=True,
    ),
    "a slow step that a device does": Case(
        IMAGES.with_(workers=3, step_ms=60, launch_ms=2, step_cores=0.2),
        "compute-bound",
        "step",
        is_left=True,
    ),
    "a slow worker": Case(
        IMAGES.with_(workers=4, cores=5, slowness=(1.0, 1.0, 3.0, 1.0), step_ms=25, once=None),
        "data-bound",
        "slow worker",
        "worker 2",
        "even workers",
    ),
    "a cold first epoch": Case(
        IMAGES.with_(read_ms=20, cold_ms=200, workers=4, step_ms=15, once=None),
        "data-bound",
        "storage",
        "Files",
        "storage",
    ),
    "files that are always cold": Case(
        IMAGES.with_(
            read_ms=20, cold_ms=200, cold_epochs=3, workers=4, cores=4, step_ms=15, once=None
        ),
        "data-bound",
        "storage",
        "Files",
        "storage",
    ),
    "a tiny dataset with worker restarts": Case(
        IMAGES.with_(
            read_ms=10, workers=4, batches=6, epochs=12, start_ms=60, boot_ms=40, once=None
        ),
        "data-bound",
        "worker start",
        "Files",
        "persistent workers",
    ),
    "heavy normalisation of floats": Case(
        IMAGES.with_(
            read_ms=6,
            transforms=(("ToTensor", 20.0), ("Normalize", 60.0), FLIP),
            float_steps=("ToTensor", "Normalize"),
            workers=2,
            cores=4,
            once=("read",),
            rest_ms=4,
        ),
        "data-bound",
        "float work",
        "ToTensor, Normalize",
        "accelerate",
    ),
    "tensors in memory": Case(
        IMAGES.with_(read_ms=6, transforms=(), collate_ms=3, step_ms=2, once=(), rest_ms=0.2),
        "data-bound",
        "in memory",
        "Files",
        "accelerate",
        {"is_in_memory": True},
    ),
    "too many threads": Case(
        IMAGES.with_(
            read_ms=5,
            transforms=(("Warp", 40.0),),
            threads=8,
            penalty=0.4,
            workers=8,
            cores=8,
            step_ms=8,
            step_cores=0.3,
            once=None,
        ),
        "data-bound",
        "threads",
        "Files",
        "threads",
        never=("workers",),
    ),
    "balanced": Case(
        IMAGES.with_(workers=4, cores=8, step_ms=23.5, jitter=0, prefetch=4, batches=400),
        "balanced",
        "balance",
        is_left=True,
    ),
    "taking large batches over": Case(
        IMAGES.with_(
            read_ms=3, transforms=(), collate_ms=1, hand_ms=14, step_ms=8, workers=4, once=None
        ),
        "data-bound",
        "hand-over",
        "Files",
        "no workers",
        never=("workers",),
    ),
    "sending large batches off": Case(
        IMAGES.with_(
            read_ms=3, transforms=(), collate_ms=1, ship_ms=60, step_ms=8, workers=4, once=None
        ),
        "data-bound",
        "hand-over",
        "Files",
        "no workers",
    ),
    "few workers, free cores": Case(
        IMAGES.with_(workers=1, step_ms=20, once=None),
        "data-bound",
        "read",
        "Files",
        "workers",
    ),
    "no workers, free cores": Case(
        IMAGES.with_(step_ms=20, once=None), "data-bound", "read", "Files", "workers"
    ),
    "slow copies, which a plan takes away": Case(
        IMAGES.with_(read_ms=20, workers=4, copy_ms=30, step_ms=12),
        "copy-bound",
        "copy",
        first="accelerate",
    ),
    "slow copies, some of which a plan takes away": Case(
        IMAGES.with_(read_ms=20, workers=4, copy_ms=30, rest_copy_ms=20, step_ms=12),
        "copy-bound",
        "copy",
        first="accelerate",
    ),
    "slow copies": Case(
        IMAGES.with_(read_ms=20, workers=4, copy_ms=30, step_ms=25, once=None),
        "copy-bound",
        "copy",
        first="pinned copies",
    ),
    "workers that take the step's cores": Case(
        IMAGES.with_(
            read_ms=80, workers=4, cores=4, prefetch=4, step_ms=15, step_cores=4.0, once=("read",)
        ),
        "data-bound",
        "cores",
        "Files",
        "accelerate",
        never=("workers",),
    ),
    "full cores": Case(
        IMAGES.with_(workers=3, cores=4, step_ms=10, once=None),
        "data-bound",
        "read",
        "Files",
        "read",
        never=("workers",),
    ),
    "rare slow samples": Case(
        IMAGES.with_(
            read_ms=30, slow_chance=0.2, slow_ms=500, workers=4, cores=5, batches=400, once=None
        ),
        "data-bound",
        "read",
        "Files",
        first="slow samples",
        under=("read",),  # of what the slow ones take, none is known to be reading
    ),
}


REPLAYED = pytest.mark.parametrize("is_replayed", [True, False], ids=["diagnosed", "watched"])
"""Whether the step was tried by itself: `hotset.watch` has none to try."""


@REPLAYED
@pytest.mark.parametrize("name", CASES)
def test_the_verdict_names_what_was_planted(name: str, is_replayed: bool) -> None:
    """And says whether to leave it, and is sure of it."""
    case = CASES[name]
    verdict = judgement_of(case, is_replayed=is_replayed).verdict
    assert (verdict.bound, verdict.cause) == (case.bound, case.cause)
    assert verdict.subject == case.subject or case.subject is None
    assert verdict.is_left is case.is_left
    assert verdict.confidence >= 0.75


@REPLAYED
@pytest.mark.parametrize("name", CASES)
def test_what_is_advised_brings_what_it_promises(name: str, is_replayed: bool) -> None:
    """The first that applies is what was to be found, and each one's gain comes true."""
    case = CASES[name]
    advice = judgement_of(case, is_replayed=is_replayed).advice
    actions = [each.action for each in advice]
    assert actions[0] == ("leave it" if case.is_left else case.first)
    assert not set(actions) & set(case.never)
    missed = {each.action: missed_by(case.planted, each) for each in advice}
    wrong = {action: by for action, by in missed.items() if abs(by) > AGREED}
    assert all(action in case.under and by < 0 for action, by in wrong.items()), wrong


@pytest.mark.parametrize("name", CASES)
def test_the_most_to_be_gained_is_that_of_data_that_takes_no_time(name: str) -> None:
    """Nothing is made, handed over, copied or waited for."""
    planted = CASES[name].planted
    found = judgement_of(CASES[name]).gain
    most = times_of(planted).loop_ms / times_of(planted.with_(workers=0, **NO_DATA)).loop_ms
    assert found.value == pytest.approx(most, rel=AGREED)
    assert found.low <= found.value <= found.high


BATCHES: dict[str, tuple[Planted, bool]] = {
    "a step with much that is fixed": (
        IMAGES.with_(read_ms=20, workers=4, step_ms=40, fixed_ms=30),
        True,
    ),
    "a step with nothing fixed": (IMAGES.with_(read_ms=20, workers=4, step_ms=40), False),
    "a fixed step that hides little more data": (
        IMAGES.with_(read_ms=80, workers=4, step_ms=26, fixed_ms=24),
        True,
    ),
    "slow data": (IMAGES.with_(workers=2, fixed_ms=10), False),
}


@pytest.mark.parametrize("name", BATCHES)
def test_a_larger_batch_helps_where_it_is_said_to(name: str) -> None:
    """Samples per second with twice the batch, to those now."""
    planted, helps = BATCHES[name]
    found = judgement_of(Case(planted, "", "")).batch_check
    twice = 2 * times_of(planted).loop_ms / times_of(planted.sized(2)).loop_ms
    assert found.helps is helps
    assert found.gain == pytest.approx(twice, rel=AGREED)


def test_bursts_of_the_workers_are_seen() -> None:
    """A period of as many batches as there are workers; with much jitter there is none."""
    planted = CASES["slow decode, workers"].planted
    found = times_of(planted.with_(jitter=0.0)).sawtooth
    assert found is not None
    assert (found.is_seen, found.period) == (True, 4)
    smooth = times_of(planted.with_(jitter=1.0)).sawtooth
    assert smooth is not None
    assert not smooth.is_seen


NO_DATA = {
    "read_ms": 0.0,
    "transforms": (),
    "collate_ms": 0.0,
    "hand_ms": 0.0,
    "copy_ms": 0.0,
    "cold_ms": 0.0,
    "slow_chance": 0.0,
}
