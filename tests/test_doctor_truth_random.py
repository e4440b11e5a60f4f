"""The doctor on loops of random costs, one of which is planted to take twice what others do."""

from __future__ import annotations

from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

from tests.loops import Planted
from tests.promises import AGREED, Case, judgement_of, missed_by

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
    planted = planted.with_(cores=planted.cores + 1)  # one for the step
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
        is_persistent=True,  # starting them could take longer than waiting for the slow one
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
        penalty=draw(st.floats(0.2, 0.6)),
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
