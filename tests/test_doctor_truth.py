"""The doctor on loops with a planted cause: the verdict names it, and its gains come true.

No clock decides: the loops are simulated, and what an advice promises is compared with the same
loop simulated once more as the advice says.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

from hotset.doctor.advise import Judgement, Replay, judged
from hotset.doctor.findings import Advice
from tests.examined import examination_of
from tests.loops import Planted, times_of

AGREED = 0.15
"""By which a predicted gain may miss the measured one."""


@dataclass(frozen=True)
class Case:
    """A loop and what the doctor has to say about it.

    Attributes:
        planted: the loop.
        bound: the verdict.
        cause: likewise.
        subject: likewise; None where it does not matter.
        first: the first advice's action; None where nothing is to be done.
        facts: more of what the loader says of itself.
        never: actions that must not be advised.
        under: actions that may bring more than they promise.
        is_left: whether it says so.
    """

    planted: Planted
    bound: str
    cause: str
    subject: str | None = None
    first: str | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    never: tuple[str, ...] = ()
    under: tuple[str, ...] = ()
    is_left: bool = False


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


def applied(planted: Planted, advice: Advice) -> Planted:
    """The loop with an advice taken."""
    count = re.search(r"num_workers=(\d+)", advice.code)
    subjects = {name for name, _ in planted.transforms if name in advice.title}
    lasting = tuple(each for each in planted.transforms if each[0] not in subjects)
    mended = {
        "persistent workers": {"is_persistent": True},
        "workers": {"workers": int(count[1]) if count else 0},
        "no workers": {"workers": 0},
        "threads": {"threads": 1},
        "even workers": {"slowness": ()},
        "collate": {"collate_ms": 0.0},
        "transform": {"transforms": lasting},
        "float work": {"transforms": lasting},
        "read": {"read_ms": 0.0, "slow_chance": 0.0},
        "storage": {"cold_ms": 0.0},
        "pinned copies": {"copy_ms": 0.0, "beside_ms": planted.copy_ms},
        "slow samples": {"slow_chance": 0.0},
        "leave it": {},
    }
    if advice.action == "accelerate":
        return planted.accelerated()
    return planted.with_(**mended[advice.action])


def measured_gain(planted: Planted, advice: Advice) -> float:
    """How many times faster the loop is with an advice taken, epoch starts included."""
    before, after = (times_of(each) for each in (planted, applied(planted, advice)))
    if advice.action == "storage":  # what it gains is over the epochs that were seen
        return sum(e.seconds for e in before.epochs) / sum(e.seconds for e in after.epochs)
    return before.loop_ms / after.loop_ms


def judgement_of(case: Case, *, is_replayed: bool = True) -> Judgement:
    """What the doctor says, who has tried the step by itself on a batch and on the half of it."""
    planted = case.planted
    return judged(
        times_of(planted),
        examination_of(planted, **case.facts),
        replay=Replay(planted.step_ms, planted.sized(0.5).step_ms) if is_replayed else None,
    )


def missed_by(planted: Planted, advice: Advice) -> float:
    """The share by which a predicted gain misses the measured one."""
    return advice.gain.value / measured_gain(planted, advice) - 1


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


CAUSES: dict[str, dict[str, Any]] = {
    "read": {"read_ms": 1.0},
    "transform": {"transforms": (("Blur", 1.0),)},
    "float work": {"transforms": (("Normalize", 1.0),), "float_steps": ("Normalize",)},
    "collate": {"collate_ms": 1.0},
}
"""Where a millisecond of making goes if it is planted there."""


@st.composite
def plain_loops(draw: st.DrawFn) -> Planted:
    """A loop of moderate costs, whose step is not set yet."""
    workers = draw(st.integers(0, 6))
    return Planted(
        read_ms=draw(st.floats(0.5, 8.0)),
        transforms=(("Crop", draw(st.floats(0.5, 8.0))),),
        collate_ms=draw(st.floats(0.5, 8.0)),
        workers=workers,
        cores=draw(st.integers(max(1, workers), workers + 8)),
        prefetch=draw(st.integers(2, 4)),
        hand_ms=draw(st.floats(0.05, 0.3)),
        start_ms=draw(st.floats(1.0, 30.0)),
        boot_ms=draw(st.floats(1.0, 30.0)),
        end_ms=draw(st.floats(0.5, 3.0)),
        is_persistent=draw(st.booleans()),
        jitter=draw(st.floats(0.0, 0.15)),
        batches=draw(st.integers(100, 160)),
        seed=draw(st.integers(0, 99)),
    )


@st.composite
def slow_to_make(draw: st.DrawFn) -> Case:
    """One part of making takes twice what all the others do, and the step less than all of it."""
    planted, cause = draw(plain_loops()), draw(st.sampled_from(sorted(CAUSES)))
    ms = 2 * planted.make_ms * draw(st.floats(1.0, 4.0))
    spread: dict[str, Any] = {name: ms for name in CAUSES[cause] if name.endswith("_ms")}
    if "transforms" in CAUSES[cause]:
        spread = {"transforms": (*planted.transforms, (CAUSES[cause]["transforms"][0][0], ms))}
    planted = planted.with_(**{**CAUSES[cause], **spread})
    data_ms = planted.make_ms / max(1, planted.workers)
    planted = planted.with_(step_ms=data_ms * draw(st.floats(0.1, 0.7)))
    if draw(st.booleans()):
        rest_ms = planted.make_ms * draw(st.floats(0.02, 0.3))
        planted = planted.with_(once=("read",), rest_ms=rest_ms)
    return Case(planted, "data-bound", cause, facts={"has_collate": cause == "collate"})


@st.composite
def slow_to_train(draw: st.DrawFn) -> Case:
    """The step takes twice what the data does, and has a core to itself."""
    planted = draw(plain_loops())
    workers = draw(st.integers(1, 6))
    planted = planted.with_(workers=workers, cores=workers + draw(st.integers(1, 4)))
    data_ms = max(planted.make_ms / workers, 10 * planted.hand_ms, 20.0)
    return Case(
        planted.with_(step_ms=2 * data_ms * draw(st.floats(1.0, 4.0))),
        "compute-bound",
        "step",
        is_left=True,
    )


@st.composite
def slow_to_copy(draw: st.DrawFn) -> Case:
    """Copies take twice what the step does, and more than the data."""
    case = draw(slow_to_train())
    step_ms = case.planted.step_ms
    copy_ms = 2 * step_ms * draw(st.floats(1.0, 3.0))
    return Case(case.planted.with_(copy_ms=copy_ms), "copy-bound", "copy")


@st.composite
def slow_workers(draw: st.DrawFn) -> Case:
    """One of the workers takes more than twice what its siblings do."""
    planted = draw(plain_loops())
    workers = draw(st.integers(2, 6))
    slow, times = draw(st.integers(0, workers - 1)), draw(st.floats(2.0, 5.0))
    slowness = tuple(times if number == slow else 1.0 for number in range(workers))
    data_ms = planted.make_ms / workers
    planted = planted.with_(
        workers=workers,
        cores=workers + 1,
        slowness=slowness,
        step_ms=data_ms * draw(st.floats(0.1, 0.7 * times)),
    )
    return Case(planted, "data-bound", "slow worker")


@st.composite
def slow_to_start(draw: st.DrawFn) -> Case:
    """Starting workers takes longer than the whole epoch behind it."""
    planted = draw(plain_loops())
    workers, batches = draw(st.integers(1, 6)), draw(st.integers(8, 20))
    step_ms = draw(st.floats(2.0, 10.0))
    epoch_ms = batches * max(step_ms, planted.make_ms / workers) + planted.make_ms
    planted = planted.with_(
        workers=workers,
        cores=workers + 1,
        batches=batches,
        epochs=8,
        step_ms=step_ms,
        is_persistent=False,
        # The second batch waits for the last worker to be there, which counts as no epoch's start.
        boot_ms=draw(st.floats(0.0, 0.5)) * step_ms,
        start_ms=2 * epoch_ms / workers * draw(st.floats(1.0, 3.0)),
    )
    return Case(planted, "data-bound", "worker start")


@st.composite
def crowded(draw: st.DrawFn) -> Case:
    """As many workers as cores, each with several threads that wait for each other."""
    planted, cores = draw(plain_loops()), draw(st.integers(2, 8))
    planted = planted.with_(
        transforms=(("Warp", 4 * planted.make_ms),),
        workers=cores,
        cores=cores,
        threads=draw(st.integers(2, 8)),
        penalty=draw(st.floats(0.2, 1.0)),
        step_cores=0.2,
    )
    step_ms = planted.make_ms / cores * draw(st.floats(0.2, 0.7))
    return Case(planted.with_(step_ms=step_ms), "data-bound", "threads")


LOOPS = [slow_to_make, slow_to_train, slow_to_copy, slow_workers, slow_to_start, crowded]


@pytest.mark.parametrize("loops", LOOPS, ids=lambda loops: loops.__name__)
@hypothesis.given(data=st.data())
@hypothesis.settings(max_examples=12)
def test_what_takes_most_is_named_whatever_the_numbers(loops: Any, data: st.DataObject) -> None:
    """And the first advice brings what it promises."""
    case = data.draw(loops())
    found = judgement_of(case)
    assert (found.verdict.bound, found.verdict.cause) == (case.bound, case.cause)
    assert found.verdict.is_left is case.is_left
    first = found.advice[0]
    assert missed_by(case.planted, first) == pytest.approx(0.0, abs=AGREED), first
