"""What the doctor says of a simulated loop, and what comes of its advice once it is taken."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from hotset.doctor.findings import Advice
from hotset.doctor.judging.advise import Judgement, Replay, judged
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
