"""The result of a demo in words and in rows, for the terminal and the page alike."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hotset.demo.measure import EpochTime
from hotset.placement.size import human_bytes

if TYPE_CHECKING:
    from hotset.demo.report import Report

NOTICEABLE = 1.05
"""Ratios closer to 1 than this are not called faster: two runs of the same differ by as much."""
WIDTH = 100
SHARED_CORES = (
    "Worker processes and network share the cores here: part of what the plain loader costs shows "
    "as a slower step, not as waiting."
)


@dataclass(frozen=True)
class Row:
    """One line of the comparison, ready to be shown.

    Attributes:
        label: what is compared.
        plain: the plain loader's figure.
        fast: hotset's.
        ratio: of the two; "" where it means nothing.
        is_part: whether it is a part of what stands above it.
    """

    label: str
    plain: str
    fast: str
    ratio: str = ""
    is_part: bool = False


def as_text(report: Report, width: int = WIDTH) -> str:
    """The report for a terminal; sentences are broken at `width`, tables are not."""
    cells = [("", "plain loader", "hotset", "ratio")]
    cells += [
        (("  " if row.is_part else "") + row.label, row.plain, row.fast, row.ratio)
        for row in comparison(report)
    ]
    a, b, c, d = (max(len(line[column]) for line in cells) for column in range(4))
    table = [f"{w:<{a}}  {x:>{b}}  {y:>{c}}  {z:>{d}}".rstrip() for w, x, y, z in cells]
    plan = [f"  {line}" for line in str(report.plan).splitlines()]
    result = [
        line
        for sentences in (headline(report), str(report.agreement))
        for line in textwrap.wrap(sentences, width)
    ]
    bullets = [
        textwrap.fill(note, width, initial_indent="- ", subsequent_indent="  ")
        for note in notes(report)
    ]
    return "\n".join(["The plan", *plan, "", *table, "", *result, "", *bullets])


def comparison(report: Report) -> tuple[Row, ...]:
    """The comparison, line by line."""
    plain, fast = report.plain, report.fast
    found = report.ratios
    rows = _epoch("first epoch", plain.first.median, fast.first.median, found.first_epoch)
    if plain.later and fast.later and found.later_epochs:
        name = "second epoch" if report.epochs == 2 else "later epochs, each"
        rows += _epoch(name, plain.later.median, fast.later.median, found.later_epochs)
    rows += [
        Row(
            "whole training",
            seconds(plain.total_s),
            seconds(fast.total_s),
            times_as(found.training),
        ),
        Row("dataset in memory", human_bytes(plain.dataset_bytes), human_bytes(fast.dataset_bytes)),
        Row(
            "kept besides",
            human_bytes(plain.held_bytes),
            human_bytes(fast.held_bytes),
            is_part=True,
        ),
        Row("test accuracy, mean", percent(plain.accuracy), percent(fast.accuracy)),
    ]
    if len(plain.runs) > 1:
        for label, pick in (("lowest seed", min), ("highest seed", max)):
            found_two = percent(pick(plain.accuracies)), percent(pick(fast.accuracies))
            rows.append(Row(label, *found_two, is_part=True))
    return tuple(rows)


def _epoch(name: str, plain: EpochTime, fast: EpochTime, ratio: float) -> list[Row]:
    waits = times_as(plain.wait_s / fast.wait_s) if fast.wait_s else ""
    rates = f"{plain.samples_per_s:,.0f}", f"{fast.samples_per_s:,.0f}"
    rows = [
        Row(name, seconds(plain.epoch_s), seconds(fast.epoch_s), times_as(ratio)),
        Row("waiting for data", seconds(plain.wait_s), seconds(fast.wait_s), waits, True),
        Row("in the step", seconds(plain.step_s), seconds(fast.step_s), is_part=True),
        Row("samples per second", *rates, is_part=True),
    ]
    if fast.fill_s:
        rows.insert(1, Row("reading all data once", "–", seconds(fast.fill_s), is_part=True))
    return rows


def headline(report: Report) -> str:
    """The result in a sentence or two."""
    plain, fast = report.plain.steady.median, report.fast.steady.median
    ratio = plain.epoch_s / fast.epoch_s
    what = "The second epoch" if report.epochs == 2 else "A later epoch"
    if report.epochs == 1:
        what = "The first epoch, reading all data included,"
    took = f"{what} takes {seconds(fast.epoch_s)} instead of {seconds(plain.epoch_s)}"
    if ratio < NOTICEABLE:
        return f"{took}: hotset makes this training no faster here."
    return (
        f"{took}: {ratio:.1f} times as fast. {seconds(fast.wait_s)} of it is waiting for data, "
        f"instead of {seconds(plain.wait_s)}. The whole training, reading all data once included, "
        f"takes {seconds(report.fast.total_s)} instead of {seconds(report.plain.total_s)}."
    )


def notes(report: Report) -> tuple[str, ...]:
    """How the figures came about, and what to bear in mind."""
    fill_s = report.fast.first.median.fill_s
    found = [
        "Waiting is the time inside next(), and in starting to iterate; the step is the rest of "
        "the epoch.",
        f"hotset read all data once per training, in {seconds(fill_s)}; that is part of the first "
        f"epoch. Getting its kernel ready took {seconds(report.kernel_s)}, once, before all "
        "trainings, and is part of none.",
        "The pipelines took turns. A figure is that of the median epoch, or training, over all "
        "seeds; a ratio is the quotient of the two figures before they were rounded.",
        same_start(report),
    ]
    if report.check_every:
        found.append(
            f"In each first epoch, hotset compared one sample in {report.check_every:,} with what "
            "the plain chain makes of it, bit for bit."
        )
    if report.device != "cpu":
        found.append(
            "The device is waited for at the end of an epoch only; copying a plain batch to it is "
            "part of the step."
        )
    elif report.settings.workers:
        found.append(SHARED_CORES)
    return tuple(found)


def same_start(report: Report) -> str:
    """What the two trainings of one seed have in common."""
    # Without workers the plain chain draws from the generator that the order is drawn from too.
    when = "" if report.settings.workers or report.epochs == 1 else " in the first epoch"
    return (
        f"For each seed, both start with the same weights and see the samples in the same order"
        f"{when}. What is drawn for a sample differs, so that accuracies differ as they do from "
        "seed to seed."
    )


def seconds(value: float) -> str:
    """Seconds with a unit that suits them.

    Example:
        >>> seconds(12.34), seconds(0.056), seconds(0.0004)
        ('12.3 s', '0.06 s', '0.4 ms')
    """
    if value >= 1:
        return f"{value:.1f} s"
    return f"{value:.2f} s" if value >= 0.01 else f"{value * 1000:.1f} ms"


def times_as(ratio: float) -> str:
    """A ratio as it is shown.

    Example:
        >>> times_as(3.14159), times_as(87.3)
        ('3.1×', '87×')
    """
    return f"{ratio:.1f}×" if ratio < 20 else f"{ratio:,.0f}×"


def percent(share: float) -> str:
    """A share in percent.

    Example:
        >>> percent(0.8812)
        '88.12 %'
    """
    return f"{share * 100:.2f} %"
