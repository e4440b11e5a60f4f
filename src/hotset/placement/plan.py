"""The plan: what happens to each step, where the data is kept, and why."""

from __future__ import annotations

import textwrap
from dataclasses import asdict, dataclass
from typing import Any

from hotset.chain.split import Decision
from hotset.placement.columns import aligned
from hotset.placement.cut import Cut
from hotset.placement.duration import human_ms
from hotset.placement.prediction import Prediction
from hotset.placement.size import human_bytes
from hotset.placement.tiers import Tier


@dataclass(frozen=True)
class Plan:
    """What an accelerated loader does. Printing it gives a table.

    Attributes:
        decisions: one per step: once, table, batch or worker, with the reason.
        device: where batches come out.
        tier: "device" (resident there), "mixed" (a part there, the rest copied when it is wanted),
            "host" (resident in host memory, copied batch by batch), "disk" (memory-mapped from a
            store, likewise), or "source" (not kept: read through the user's own dataset).
        samples: number of samples.
        bytes_held: bytes the kept data takes.
        kernel: what executes the batched steps.
        notes: further things worth knowing.
        cached: samples that the device has room for.
        rest: where the others lie, "host" or "disk"; empty where there are none.
        policy: which samples the device keeps, and why so; empty where it keeps all or none.
        cuts: where the chain could be cut, what each would save, and why the others lost; of
            `hotset.plan` alone.
        prediction: what epochs will take; of `hotset.plan` alone.
    """

    decisions: tuple[Decision, ...]
    device: str
    tier: Tier
    samples: int
    bytes_held: int
    kernel: str
    notes: tuple[str, ...] = ()
    cached: int = 0
    rest: str = ""
    policy: str = ""
    cuts: tuple[Cut, ...] = ()
    prediction: Prediction | None = None

    def as_dict(self) -> dict[str, Any]:
        """The plan as plain values, for JSON."""
        values = asdict(self)
        for cut, plain in zip(self.cuts, values["cuts"], strict=True):
            plain["saved_ms_per_mb"] = cut.saved_ms_per_mb
        return values

    def __str__(self) -> str:
        return self.text()

    def text(self, width: int | None = None) -> str:
        """The plan in words.

        Args:
            width: of a line, in characters; None breaks none.
        """
        rows = [("step", "what", "why")]
        rows += [(d.step, d.action, d.reason) for d in self.decisions]
        lines = aligned(rows, width) if self.decisions else ["no transform steps"]
        if self.cuts:
            lines += ["", *table_of_cuts(self.cuts, width), ""]
        held = human_bytes(self.bytes_held)
        facts = [("data", f"{self.samples:,} samples, {held}, {self._place()}")]
        if self.policy:
            facts.append(("policy", self.policy))
        facts.append(("kernel", self.kernel))
        facts += [("note", note) for note in self.notes]
        if self.prediction is not None:
            facts += _predicted(self.prediction)
        return "\n".join(
            [*lines, *(line for name, text in facts for line in _fact(name, text, width))]
        )

    def _place(self) -> str:
        """Where the samples are, in words."""
        copied = "" if self.device.startswith("cpu") else f", batches copied to {self.device}"
        if self.tier == "device":
            return f"resident on {self.device}"
        if self.tier == "source":
            return "not kept: read through the dataset itself"
        lies = {"host": "resident in host memory", "disk": "mapped from disk"}
        if self.tier == "mixed":
            others = f"the others {lies[self.rest]} and copied there"
            return f"{self.cached:,} of them on {self.device}, {others}"
        return lies[self.tier] + copied


def _fact(name: str, text: str, width: int | None) -> list[str]:
    line = f"{name}: {text}"
    if width is None:
        return [line]
    return textwrap.wrap(
        line, width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )


CUT_COLUMNS = ("takes", "same twice?", "bytes", "saves", "ms/MB", "then", "fits")
"""What `cells_of` gives of a cut."""


def table_of_cuts(
    cuts: tuple[Cut, ...], width: int | None = None, *, has_losers: bool = True
) -> list[str]:
    """Lines: a row for each cut, and below it why it is made or not.

    Args:
        cuts: at least one.
        width: of a line, in characters; None breaks none.
        has_losers: whether it is said of each cut why it is not made.
    """
    cells = [CUT_COLUMNS, *map(cells_of, cuts)]
    room = (
        None
        if width is None
        else width - sum(2 + max(map(len, c)) for c in zip(*cells, strict=True))
    )
    behind = ["  cut behind"]
    behind += [f"{'*' if cut.is_chosen else ' '} {_short(cut.behind, room)}" for cut in cuts]
    head, *rows = aligned([(name, *row) for name, row in zip(behind, cells, strict=True)])
    lines = [head]
    for row, cut in zip(rows, cuts, strict=True):
        lines.append(row)
        if has_losers or cut.is_chosen:
            lines += _indented(cut.reason, width)
    return lines


def cells_of(cut: Cut) -> tuple[str, ...]:
    """What a table says of a cut, besides its name and why it is made or not."""
    takes, same = human_ms(cut.ms), "yes" if cut.is_deterministic else "no"
    if cut.problem or not cut.is_deterministic:
        return (takes, same, "-", "-", "-", "-", "-")
    nbytes, saves = human_bytes(cut.nbytes), human_ms(abs(cut.saved_ms))
    saves = f"-{saves}" if cut.saved_ms < 0 else saves
    return (takes, same, nbytes, saves, _rate(cut), cut.rest, cut.tier or "nowhere")


def _rate(cut: Cut) -> str:
    rate = cut.saved_ms_per_mb
    if rate is None:
        return "-"
    return f"{rate:,.0f}" if abs(rate) >= 9.95 else f"{rate:.2g}"


LEAST_NAME = 12
"""A name is given so many characters at least, however wide the other columns are."""


def _short(name: str, room: int | None) -> str:
    """A name with its mark in so many characters."""
    if room is None or len(name) + 2 <= room:
        return name
    return name[: max(LEAST_NAME, room - 2) - 1] + "…"


def _indented(text: str, width: int | None) -> list[str]:
    indent = " " * 4
    if width is None:
        return [indent + text]
    return textwrap.wrap(
        text,
        width,
        initial_indent=indent,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _predicted(found: Prediction) -> list[tuple[str, str]]:
    """What is predicted, in words."""
    step = "" if found.step_ms is None else f" + step {human_ms(found.step_ms)}"
    workers = "1 worker" if found.workers == 1 else f"{found.workers or 'no'} workers"
    times = [human_ms(1000 * s) for s in (found.plain_s, found.first_s, found.steady_s)]
    of = "an epoch" if found.step_ms is not None else "the data of an epoch"
    copied = f" + copies {human_ms(found.copy_ms)}" if found.copy_ms else ""
    return [
        (
            f"a batch of {found.batch_size}",
            f"data {human_ms(found.data_ms)} with {workers}{step}; "
            f"with hotset {human_ms(found.rest_ms)}{copied}{step}",
        ),
        (of, f"{times[0]}; with hotset {times[1]} the first, then {times[2]}"),
        (found.verdict, found.reason),
    ]
