"""What epochs are predicted to take, with hotset and without."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Verdict = Literal["accelerate", "leave it", "it depends"]


@dataclass(frozen=True)
class Prediction:
    """Predicted times, and what follows from them.

    Where the step is not known, times are those of the data alone. The step and the worker
    processes share the processor's cores: a batch takes no less than the processor time of both,
    divided by the cores. The step's is measured where it is given as a callable. Where only its
    milliseconds are given or none, on the CPU it is taken to keep as many cores busy as torch has
    threads, and on another device none.

    Attributes:
        batch_size: samples in a batch.
        workers: processes that the plain loader reads with.
        step_ms: what training takes for a batch; None where that is not known.
        step_cores: cores that the step keeps busy.
        data_ms: what the plain loader takes for a batch.
        rest_ms: what is left to be done for a batch takes behind the cut.
        copy_ms: what is copied for a batch takes.
        plain_s: an epoch of the plain loader.
        first_s: hotset's first epoch, with all that runs once.
        steady_s: each epoch after it.
        gain: how many times faster than the plain epoch those are; None where of the data nothing
            is left that takes time, and the step is not known.
        worth_below_ms: the step time from which on hotset gains too little; None where it always
            gains enough, 0 where it never does.
        verdict: "accelerate", "leave it", or "it depends" (on the step).
        reason: why, in a sentence.
    """

    batch_size: int
    workers: int
    step_ms: float | None
    step_cores: float
    data_ms: float
    rest_ms: float
    copy_ms: float
    plain_s: float
    first_s: float
    steady_s: float
    gain: float | None
    worth_below_ms: float | None
    verdict: Verdict
    reason: str
