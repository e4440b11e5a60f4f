"""The plots of the page, as SVG that takes its colours and its letters from the page's style."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from hotset.demo.wording import seconds
from hotset.drawing import STAND_INS, as_svg

if TYPE_CHECKING:
    from hotset.demo.report import Report

INK, FAINT, PLAIN, HOTSET = (STAND_INS[name] for name in ("ink", "faint", "plain", "hotset"))
WAIT, STEP, FILL = (STAND_INS[name] for name in ("wait", "step", "fill"))
WIDTH_INCHES = 4.0
"""Narrow, so that letters keep their size on a phone."""
BAR_INCHES, DOT_INCHES, AXIS_INCHES = 0.42, 0.36, 0.7
MOST_EPOCHS = 4
"""Further ones are left out of the plot of epochs."""
LEAST_POINTS = 2.0
"""Width of the axis of accuracies, at least: a difference of a tenth must not look like a gulf."""


def epochs_plot(report: Report) -> str:
    """Stacked bars per epoch and pipeline: filling, waiting, step; the median over the seeds."""
    numbers = range(min(report.epochs, MOST_EPOCHS))
    pipelines = (("plain", report.plain), ("hotset", report.fast))
    labels = [f"epoch {number + 1}, {name}" for number in numbers for name, _ in pipelines]
    epochs = [summary.at(number).median for number in numbers for _, summary in pipelines]
    stacks = [
        (FILL, [epoch.fill_s for epoch in epochs]),
        (WAIT, [epoch.wait_s for epoch in epochs]),
        (STEP, [epoch.step_s for epoch in epochs]),
    ]
    return _bars("epochs", labels, stacks, seconds, "seconds")


def rates_plot(report: Report) -> str:
    """Bars of samples per second, of the first epoch and of later ones."""
    pairs = [("first", report.plain.first, report.fast.first)]
    if report.plain.later and report.fast.later:
        pairs.append(("later", report.plain.later, report.fast.later))
    labels = [f"{when}, {name}" for when, *_ in pairs for name in ("plain", "hotset")]
    plain = [rate for _, slow, _ in pairs for rate in (slow.median.samples_per_s, 0.0)]
    fast = [rate for *_, quick in pairs for rate in (0.0, quick.median.samples_per_s)]
    stacks = [(PLAIN, plain), (HOTSET, fast)]
    return _bars("rates", labels, stacks, lambda rate: f"{rate:,.0f}", "samples per second")


def accuracy_plot(report: Report) -> str:
    """Two marks per seed, a circle for the plain loader and a diamond for hotset, and the means."""
    names = [f"seed {run.seed}" for run in report.plain.runs]
    marks = []
    for summary, colour, mark in ((report.plain, PLAIN, "o"), (report.fast, HOTSET, "D")):
        values = [100 * value for value in summary.accuracies]
        marks.append(
            ([*values, *([100 * summary.accuracy] if len(names) > 1 else [])], colour, mark)
        )
    names += ["mean"] if len(names) > 1 else []
    low = min(min(values) for values, *_ in marks)
    high = max(max(values) for values, *_ in marks)
    margin = max(0.15 * (high - low), (LEAST_POINTS - (high - low)) / 2)

    def paint(axes: Any) -> None:
        places = range(len(names))
        axes.hlines(places, low - margin, high + margin, color=FAINT, linewidth=0.5)
        for (values, colour, mark), aside in zip(marks, (-0.12, 0.12), strict=True):
            # A little aside, so that equal accuracies do not hide each other.
            axes.plot(values, [place + aside for place in places], mark, color=colour, markersize=7)
        axes.set_xlim(low - margin, high + margin)
        axes.set_ylim(len(names) - 0.4, -0.6)
        axes.set_yticks(places, names)
        axes.locator_params(axis="x", nbins=5)
        axes.set_xlabel("test accuracy, %")

    return _draw("accuracy", DOT_INCHES * len(names) + AXIS_INCHES, paint)


def _bars(
    name: str,
    labels: Sequence[str],
    stacks: Sequence[tuple[str, Sequence[float]]],
    written: Callable[[float], str],
    unit: str,
) -> str:
    """Horizontal bars in pairs: of a pair, the plain loader's stands above hotset's.

    Args:
        name: of the drawing.
        labels: one per bar.
        stacks: colours, and a length for every bar; laid end to end.
        written: how the whole length is written at a bar's end.
        unit: what the axis measures.
    """
    places = [row + row // 2 * 0.5 for row in range(len(labels))]
    totals = [sum(lengths) for lengths in zip(*(lengths for _, lengths in stacks), strict=True)]

    def paint(axes: Any) -> None:
        starts = [0.0] * len(labels)
        for colour, lengths in stacks:
            axes.barh(places, lengths, left=starts, color=colour, height=0.8)
            starts = [start + length for start, length in zip(starts, lengths, strict=True)]
        for place, total in zip(places, totals, strict=True):
            axes.annotate(
                written(total), (total, place), (4, 0), textcoords="offset points", va="center"
            )
        axes.set_yticks(places, labels)
        axes.invert_yaxis()
        axes.set_xlim(0, max(totals) * 1.2)  # room for what is written at the longest bar's end
        axes.grid(axis="x")
        axes.locator_params(axis="x", nbins=4)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,g}")
        axes.set_xlabel(unit)

    return _draw(name, BAR_INCHES * len(labels) + AXIS_INCHES, paint)


def _draw(name: str, height_inches: float, paint: Callable[[Any], None]) -> str:
    """What `paint` paints into axes, as SVG; `name` keeps its ids apart from other drawings'."""
    return as_svg(
        name, (WIDTH_INCHES, height_inches), lambda figure, _: paint(figure.add_subplot())
    )
