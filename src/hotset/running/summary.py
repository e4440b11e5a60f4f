"""What was done to the loaders of a script, and what that brought: in words and as plain values."""

from __future__ import annotations

import textwrap
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from hotset.placement.duration import human_ms
from hotset.placement.size import human_bytes

if TYPE_CHECKING:
    from hotset.placement.plan import Plan

SCHEMA = "hotset-run-summary"
VERSION = 1
LABEL = 10
"""Characters of a line's label."""


@dataclass(frozen=True)
class LoaderRun:
    """A loader of a script: what was done to it, and the times of its loop.

    Attributes:
        name: its class.
        dataset: its dataset's.
        samples: in the dataset; None where nobody knows.
        batch_size: None likewise.
        loaders: that are alike, over one dataset; they count together.
        is_accelerated: whether it was, or in a dry run would be.
        why: what speaks for that, or against it.
        plan: what was done; None where none could be made.
        epochs: that began.
        accelerated_epochs: of them.
        batches: that came.
        wait_s: seconds that it was waited for.
        rest_s: seconds between its batches, without what other loaders were waited for; of a loop
            that was left, but for its last batch.
        planned_s: seconds that planning took.
        filled_s: seconds that reading all samples once took.
        loop_s: seconds of the accelerated epochs, waiting and all; 0 where there was none.
        plain_s: seconds that the plain loader would have taken for these, as predicted: from what
            the plan measured on a few samples, and from the time between batches; None where there
            is nothing to predict.
        notes: what else is worth knowing.
    """

    name: str
    dataset: str
    samples: int | None
    batch_size: int | None
    loaders: int
    is_accelerated: bool
    why: str
    plan: Plan | None = None
    epochs: int = 0
    accelerated_epochs: int = 0
    batches: int = 0
    wait_s: float = 0.0
    rest_s: float = 0.0
    planned_s: float = 0.0
    filled_s: float = 0.0
    loop_s: float = 0.0
    plain_s: float | None = None
    notes: tuple[str, ...] = ()

    @property
    def brought(self) -> float | None:
        """How many times longer the plain loop would have taken, as predicted."""
        return None if self.plain_s is None or not self.loop_s else self.plain_s / self.loop_s

    @property
    def saved_s(self) -> float | None:
        """Seconds saved, as predicted, less what planning and reading all once took."""
        if self.plain_s is None:
            return None
        return self.plain_s - self.loop_s - self.planned_s - self.filled_s

    def lines(self, *, is_dry: bool = False) -> list[tuple[str, str]]:
        """What there is to say, each with its label."""
        rows = [] if self.is_accelerated and not self.why else [("why", self.why)]
        if self.is_accelerated and self.plan is not None:
            rows += _planned(self.plan)
            if is_dry and self.plan.prediction is not None:
                rows.append(("predicted", self.plan.prediction.reason))
        if self.batches:
            loop = f"{_counted(self.epochs, 'epoch')}, {_counted(self.batches, 'batch')}"
            waited, rest = human_ms(1000 * self.wait_s), human_ms(1000 * self.rest_s)
            rows.append(("loop", f"{loop}: waited {waited}, all else {rest}"))
        if self.planned_s or self.filled_s:
            took = f"planning {human_ms(1000 * self.planned_s)}"
            if self.filled_s:
                took += f", reading all samples once {human_ms(1000 * self.filled_s)}"
            rows.append(("before", took))
        if not is_dry and self.brought is not None:
            rows.append(("brought", self._brought()))
        return rows + [("note", note) for note in self.notes]

    def _brought(self) -> str:
        assert self.plain_s is not None
        assert self.saved_s is not None
        assert self.brought is not None
        plain, loop, saved = (
            human_ms(1000 * abs(s)) for s in (self.plain_s, self.loop_s, self.saved_s)
        )
        times = f"{self.brought:,.0f}" if self.brought >= 9.95 else f"{self.brought:.2g}"
        words = f"{loop} instead of {plain} as predicted, {times} times as fast"
        if self.saved_s < 0:
            return f"{words}; with what went before, it cost {saved} more than that brought"
        return f"{words}; {saved} saved, with what went before"


@dataclass(frozen=True)
class Summary:
    """What was done to the loaders of a script.

    Attributes:
        title: the script.
        is_dry: whether nothing was done, and only said what would be.
        seconds: that the script ran.
        loaders: each of them, in the order that they were first gone through in.
        notes: what else is worth knowing.
    """

    title: str
    is_dry: bool
    seconds: float
    loaders: tuple[LoaderRun, ...] = ()
    notes: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        values = asdict(self)
        for run, plain in zip(self.loaders, values["loaders"], strict=True):
            plain["plan"] = None if run.plan is None else run.plan.as_dict()
            plain["brought"], plain["saved_s"] = run.brought, run.saved_s
        return {"schema": SCHEMA, "version": VERSION, **values}

    def __str__(self) -> str:
        return self.text()

    def text(self, width: int | None = None) -> str:
        """All of it in words.

        Args:
            width: of a line, in characters; None breaks none.
        """
        count = sum(run.is_accelerated for run in self.loaders)
        done = "would be accelerated" if self.is_dry else "accelerated"
        of = f"{count} of {_counted(len(self.loaders), 'loader')} {done}"
        if not self.loaders:
            of = "it went through no DataLoader"
        head = f"hotset run {self.title}: {of}, {human_ms(1000 * self.seconds)} in all"
        parts = [_wrapped(head, width, "", "  ")]
        for run in self.loaders:
            head = _wrapped(self._head(run), width, "", "    ")
            parts.append("\n".join([head, *self._rows(run, width)]))
        if self.notes:
            parts.append("\n".join(_wrapped(note, width, "", "  ") for note in self.notes))
        return "\n\n".join(parts)

    def _head(self, run: LoaderRun) -> str:
        state = "left alone"
        if run.is_accelerated:
            state = "would be accelerated" if self.is_dry else "accelerated"
            if not self.is_dry and run.accelerated_epochs < run.epochs:
                state += f" for {_counted(run.accelerated_epochs, 'epoch')}, then left alone"
        head = f"{run.name} of {run.dataset}"
        if run.samples is not None:
            head += f", {_counted(run.samples, 'sample')}"
        if run.batch_size is not None:
            head += f" by {run.batch_size}"
        if run.loaders > 1:
            head += f", {run.loaders} of them"
        return f"{head}: {state}"

    def _rows(self, run: LoaderRun, width: int | None) -> list[str]:
        indent = " " * (2 + LABEL)
        return [
            _wrapped(text, width, f"  {label:<{LABEL}}", indent)
            for label, text in run.lines(is_dry=self.is_dry)
        ]


def _planned(plan: Plan) -> list[tuple[str, str]]:
    """A plan in short."""
    steps = ", ".join(f"{d.step} → {d.action}" for d in plan.decisions)
    kept = f"{plan.samples:,} samples, {human_bytes(plan.bytes_held)}, tier {plan.tier}"
    return [("steps", steps), ("kept", f"{kept}; batches come out on {plan.device}")]


def _counted(count: int, of: str) -> str:
    if count == 1:
        return f"1 {of}"
    return f"{count:,} {of}{'es' if of == 'batch' else 's'}"


def _wrapped(text: str, width: int | None, first: str, indent: str) -> str:
    if width is None:
        return first + text
    return textwrap.fill(
        text,
        width,
        initial_indent=first,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
