"""What the doctor says of planted loops, and what its advice brings when it is taken."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import hotset
from hotset.bench.doctor_loops import Planted, many_workers
from hotset.bench.doctor_settings import DoctorSettings
from hotset.bench.timing import Clock, Say, Spread, interleaved
from hotset.doctor.findings import Advice, Range, Verdict
from hotset.doctor.report import Report

Diagnose = Callable[..., Report]


@dataclass(frozen=True, eq=False)
class Gain:
    """A planted loop, what was found, and what came of it.

    Attributes:
        loop: what was planted.
        verdict: what the doctor named.
        advice: its first; None where it has none.
        most: predicted where data takes no time at all.
        before_ms: a batch as it is, epoch starts included; likewise all below.
        after_ms: a batch with the advice taken; None where there is none.
        least_ms: a batch where all batches of an epoch lie ready.
        doctor_s: seconds that the report took.
    """

    loop: Planted
    verdict: Verdict
    advice: Advice | None
    most: Range
    before_ms: Spread
    after_ms: Spread | None
    least_ms: Spread
    doctor_s: float

    @property
    def is_named(self) -> bool:
        """Whether what was planted is what was named."""
        found = (self.verdict.bound, self.verdict.cause)
        return found == (self.loop.bound, self.loop.cause)

    @property
    def measured(self) -> Spread | None:
        """How many times faster the loop has become, round by round."""
        return None if self.after_ms is None else self.before_ms.over(self.after_ms)

    @property
    def measured_most(self) -> Spread:
        """How many times faster it is with batches that lie ready, round by round."""
        return self.before_ms.over(self.least_ms)

    @property
    def agreement(self) -> float | None:
        """The gain predicted over the median of that measured; None without advice."""
        if self.advice is None or self.measured is None:
            return None
        return self.advice.gain.value / self.measured.median

    @property
    def agreement_most(self) -> float:
        """The same of the most."""
        return self.most.value / self.measured_most.median

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON; null for what is not finite."""
        loop, verdict, advice, measured = self.loop, self.verdict, self.advice, self.measured
        return {
            "key": loop.key,
            "name": loop.name,
            "planted": {"bound": loop.bound, "cause": loop.cause},
            "named": {
                "bound": verdict.bound,
                "cause": verdict.cause,
                "subject": verdict.subject,
                "confidence": verdict.confidence,
            },
            "is_named": self.is_named,
            "advice": None
            if advice is None
            else {
                "action": advice.action,
                "title": advice.title,
                "is_most": advice.is_most,
                "predicted": _range(advice.gain),
            },
            "measured": None if measured is None else measured.as_dict(),
            "predicted_to_measured": _finite(self.agreement),
            "most_predicted": _range(self.most),
            "most_measured": self.measured_most.as_dict(),
            "most_predicted_to_measured": _finite(self.agreement_most),
            "before_ms_per_batch": self.before_ms.as_dict(),
            "after_ms_per_batch": None if self.after_ms is None else self.after_ms.as_dict(),
            "least_ms_per_batch": self.least_ms.as_dict(),
            "doctor_s": self.doctor_s,
        }


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _range(gain: Range) -> dict[str, float | None]:
    return {name: _finite(getattr(gain, name)) for name in ("value", "low", "high")}


def measure_gains(
    loops: Sequence[Planted],
    settings: DoctorSettings,
    say: Say,
    *,
    clock: Clock = time.perf_counter,
    diagnose: Diagnose = hotset.diagnose,
) -> list[Gain]:
    """Diagnoses every loop, takes the first advice, and measures.

    Args:
        loops: with planted causes.
        settings: steps and rounds.
        say: told what is being done.
        clock: gives seconds.
        diagnose: as `hotset.diagnose`.
    """
    with many_workers():
        return [_gain(loop, settings, say, clock, diagnose) for loop in loops]


def _gain(
    loop: Planted, settings: DoctorSettings, say: Say, clock: Clock, diagnose: Diagnose
) -> Gain:
    say(f"{loop.name}: the doctor")
    before, start = loop.loader(), clock()
    report = diagnose(before, step=loop.step, steps=settings.steps, device="cpu", progress=False)
    doctor_s = clock() - start
    advice = report.advice[0] if report.advice else None
    ready = list(before)
    ways: dict[str, Iterable[Any]] = {"as it is": before, "batches ready": ready}
    if advice is not None:
        ways["advice taken"] = loop.advised(advice)
        for _ in ways["advice taken"]:  # fills and compiles, or starts workers that stay
            pass
    epochs = math.ceil(settings.steps / len(ready))

    def timed(loader: Iterable[Any]) -> Callable[[], float]:
        return lambda: _ms_per_batch(loader, loop.step, epochs, clock)

    tasks = {name: timed(loader) for name, loader in ways.items()}
    found = interleaved(tasks, settings.rounds, say, what=f"{loop.name}: ")
    return Gain(
        loop=loop,
        verdict=report.verdict,
        advice=advice,
        most=report.gain,
        before_ms=found["as it is"],
        after_ms=found.get("advice taken"),
        least_ms=found["batches ready"],
        doctor_s=doctor_s,
    )


def _ms_per_batch(
    loader: Iterable[Any], step: Callable[[Any], object], epochs: int, clock: Clock
) -> float:
    """Milliseconds of a batch over whole epochs, their beginning and their end included."""
    start, count = clock(), 0
    for _ in range(epochs):
        for batch in loader:
            step(batch)
            count += 1
    return 1000 * (clock() - start) / count
