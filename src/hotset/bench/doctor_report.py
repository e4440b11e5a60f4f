"""The result of the doctor's benchmark, as text and as plain values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hotset.bench.doctor_gains import Gain
from hotset.bench.doctor_overhead import Overhead
from hotset.bench.doctor_script import ScriptTime
from hotset.bench.doctor_settings import DoctorSettings
from hotset.bench.report import about, said
from hotset.bench.table import number, span, table

SCHEMA, SCHEMA_VERSION = "hotset.bench.doctor", 1
WITHIN = 0.15
"""A gain predicted that is no further from the one measured is right."""
LOADERS = {"ready": "a list of batches", "sliced": "slices of tensors"}


@dataclass(frozen=True, eq=False)
class DoctorReport:
    """Everything that was measured.

    Attributes:
        settings: what was asked for.
        date: when it began, ISO 8601, UTC.
        hardware: what it was measured on.
        versions: what it was measured with.
        overhead: of `hotset.watch`.
        gains: what was found of planted loops, and what came of it.
        script: a report's time; None where that was left out.
    """

    settings: DoctorSettings
    date: str
    hardware: dict[str, Any]
    versions: dict[str, str | None]
    overhead: Overhead
    gains: Sequence[Gain]
    script: ScriptTime | None

    @property
    def named(self) -> int:
        """Loops of which the doctor named what was planted."""
        return sum(gain.is_named for gain in self.gains)

    @property
    def agreements(self) -> list[float]:
        """Gains predicted over those measured, where there was advice."""
        return [gain.agreement for gain in self.gains if gain.agreement is not None]

    @property
    def within(self) -> int:
        """Predictions that came true."""
        return sum(abs(agreement - 1) <= WITHIN for agreement in self.agreements)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "schema": SCHEMA,
            "schema_version": SCHEMA_VERSION,
            "date": self.date,
            "versions": self.versions,
            "hardware": self.hardware,
            "parameters": self.settings.as_dict(),
            "overhead": self.overhead.as_dict(),
            "loops": [gain.as_dict() for gain in self.gains],
            "named": self.named,
            "predicted": len(self.agreements),
            "predicted_within_15_percent": self.within,
            "script": None if self.script is None else self.script.as_dict(),
        }

    def __str__(self) -> str:
        head = about("The doctor: what it costs, and what it says", self.hardware, self.versions)
        parts = [head, self._overhead(), self._gains(), self._most()]
        parts += [_method(self.settings), self._figures()]
        return "\n\n".join(parts)

    def _overhead(self) -> str:
        header = ["hotset.watch", "step", "bare µs/batch", "added µs", "min – max"]
        header += ["watched / bare", "min – max"]
        rows = []
        for cost in self.overhead.costs:
            added, ratio = cost.added_us, cost.ratio
            step = f"{cost.step_ms:g} ms" if cost.step_ms else "none"
            cells = [LOADERS[cost.loader], step, number(cost.bare_us.median)]
            cells += [number(added.median), span(added)]
            rows.append([*cells, f"{ratio.median:.4f}", f"{ratio.least:.4f} – {ratio.most:.4f}"])
        return table(header, rows)

    def _gains(self) -> str:
        header = ["planted", "named", "first advice", "predicted", "measured", "min – max", "p / m"]
        rows = [[gain.loop.name, _named(gain), *_advised(gain)] for gain in self.gains]
        return table(header, rows)

    def _most(self) -> str:
        header = ["if data took no time", "predicted", "measured", "min – max", "p / m"]
        rows = []
        for gain in self.gains:
            measured = gain.measured_most
            cells = [gain.loop.name, number(gain.most.value), number(measured.median)]
            rows.append([*cells, span(measured), number(gain.agreement_most)])
        return table(header, rows)

    def _figures(self) -> str:
        settings, count = self.settings, len(self.gains)
        lines = [
            f"causes named as planted: {self.named} of {count} (goal: all)",
            f"gains predicted within 15 %: {self.within} of {len(self.agreements)} (goal: all)",
            f"beginning and ending to watch: {said(self.overhead.once_ms)} ms, once",
            f"goal of hotset.watch: under 1 % at {settings.step_ms:g} ms per step",
        ]
        if self.script is not None:
            name, seconds = self.script.name, said(self.script.seconds)
            lines.append(
                f"hotset doctor --steps {self.script.steps} {name}: {seconds} s (goal: 30)"
            )
        return "\n".join(lines)


def _method(settings: DoctorSettings) -> str:
    return f"""\
hotset.watch: {settings.watch_rounds} interleaved rounds of {settings.batches:,} batches; medians, \
and differences and ratios within a round.
planted loops: the doctor watches {settings.steps} batches and examines the loader; then come \
{settings.rounds} interleaved rounds of whole epochs, {settings.steps} batches at least: of the \
loop as it is, with the first advice taken, and with all batches ready.
predicted, measured: how many times faster the loop is; measured are medians of ratios within a \
round. Not timed: an epoch that fills, compiles, or starts workers that stay.
p / m: predicted over measured."""


def _named(gain: Gain) -> str:
    if gain.is_named:
        return gain.verdict.cause
    return f"{gain.verdict.cause}, not {gain.loop.cause}"


def _advised(gain: Gain) -> list[str]:
    if gain.advice is None or gain.measured is None or gain.agreement is None:
        return ["none", "", "", "", ""]
    measured = gain.measured
    return [
        gain.advice.action,
        number(gain.advice.gain.value),
        number(measured.median),
        span(measured),
        number(gain.agreement),
    ]
