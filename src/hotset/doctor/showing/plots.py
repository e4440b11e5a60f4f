"""The plots of a report's page, as SVG that takes its colours and its letters from the page."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hotset.doctor.measure import Floats
from hotset.doctor.phrases import per_second, shortened
from hotset.doctor.showing.rows import are_uneven
from hotset.drawing import STAND_INS, as_svg
from hotset.placement.duration import human_ms

if TYPE_CHECKING:
    from hotset.doctor.report import Report

INK, FAINT, PLAIN, HOTSET = (STAND_INS[name] for name in ("ink", "faint", "plain", "hotset"))
WAIT, STEP, FILL = (STAND_INS[name] for name in ("wait", "step", "fill"))
GPU_COLOURS = ("hotset", "wait", "step", "fill", "plain")
"""Of the GPUs, in turn; names of the page's colours."""
NARROW_INCHES, WIDE_INCHES = 4.0, 9.5
"""As wide as a phone and as the page, so that letters keep their size on both."""
BAR_INCHES, AXIS_INCHES, MARGIN_INCHES = 0.36, 0.7, 0.25
LETTER_INCHES = 0.075
"""Of a letter, in the mean."""
MOST_POINTS = {NARROW_INCHES: 240, WIDE_INCHES: 720}
"""Of a plot over the run; beyond, neighbours are put together, as a screen would."""
LONGEST_NAME = 20
WORST = 8
"""Slow samples that are drawn."""
CLIPPED = 2.5
"""Batches that take so many times what nine of ten take are cut off, and their time written."""
MOST_LABELLED = 16
"""Bars that each have a label and a figure."""
MOST_EDGES = 40
"""Epochs whose beginnings are drawn."""


def run_plot(report: Report, width_inches: float = NARROW_INCHES) -> str:
    """Where each batch's time went: step, waiting and epoch starts, stacked, over the run."""
    size, parts = binned(report, MOST_POINTS[width_inches])
    stacked = np.cumsum(list(parts.values()), axis=0)
    totals = stacked[-1]
    usual, longest = float(np.quantile(totals, 0.9)), float(totals.max())
    top = 1.3 * usual if usual > 0 and longest > CLIPPED * usual else 1.15 * longest or 1.0
    scale, unit = (1000.0, "s") if top >= 2000 else (1.0, "ms")
    count = len(report.timeline)
    edges = np.append(np.arange(len(totals)) * size, count)
    starts = np.flatnonzero(np.diff(report.timeline.epoch)) + 1

    def paint(axes: Any) -> None:
        floor = np.zeros_like(totals)
        for colour, ceiling in zip((STEP, WAIT, FILL), stacked, strict=True):
            low, high = (np.append(each, each[-1]) / scale for each in (floor, ceiling))
            axes.fill_between(edges, low, high, step="post", color=colour, linewidth=0)
            floor = ceiling
        axes.set_xlim(0, count)
        axes.set_ylim(0, top / scale)
        if len(starts) <= MOST_EDGES:
            axes.vlines(starts, 0, top / scale, color=INK, linewidth=0.6, linestyle=(0, (2, 3)))
        for place in _apart(totals, top, size, count * 1.1 / width_inches):
            # Beside its bar: on the right, but for what stands at the right edge.
            is_inside = edges[place] < 0.85 * count
            side, aside = ("left", 2) if is_inside else ("right", -2)
            axes.annotate(
                human_ms(totals[place]),
                (edges[place + is_inside], 1),
                (aside, -3),
                xycoords=("data", "axes fraction"),
                textcoords="offset points",
                ha=side,
                va="top",
            )
        _name_epochs(axes, starts, count, width_inches)
        axes.grid(axis="y")
        axes.locator_params(axis="x", nbins=int(2 * width_inches), integer=True)
        axes.set_xlabel("batch" if size == 1 else f"batch; {size:,} of them in each bar")
        axes.set_ylabel(f"{unit} a batch")

    return _draw(f"run{width_inches:.0f}", (width_inches, 2.6), paint)


def binned(report: Report, most: int) -> tuple[int, dict[str, Floats]]:
    """Milliseconds of step, wait and epoch start of a batch, over the run.

    Args:
        report: with a batch at least.
        most: points; beyond, neighbours are put together, and theirs is the mean.

    Returns:
        Batches in a point; and by "step", "wait" and "start" (points,) float64.
    """
    times = report.timeline
    place = np.arange(len(times)) - np.searchsorted(times.epoch, times.epoch)
    is_first = place == 0
    is_seen = report.loop.is_device_seen & ~is_first
    waits = np.where(is_seen, times.idle_s, times.wait_s)
    steps = np.nan_to_num(times.step_s) + times.wait_s - waits
    size = -(-len(times) // most)
    at = np.arange(0, len(times), size)
    counts = np.diff(np.append(at, len(times)))
    parts = {
        "step": steps,
        "wait": np.where(is_first, 0.0, waits),
        "start": np.where(is_first, waits, 0.0),
    }
    return size, {name: 1000 * np.add.reduceat(part, at) / counts for name, part in parts.items()}


def _apart(totals: Floats, top: float, size: int, least: float) -> list[int]:
    """Bars higher than the plot, the highest first, so far apart that they can be labelled."""
    found: list[int] = []
    for place in np.argsort(-totals, kind="stable").tolist():
        if totals[place] <= top:
            break
        if all(abs(place - other) * size >= least for other in found):
            found.append(place)
    return found


def _name_epochs(axes: Any, starts: Any, count: int, width_inches: float) -> None:
    """Above the plot: which part is the first epoch, and which are later ones."""
    if not len(starts):
        return
    first = int(starts[0])
    parts = [(0, first, "first epoch")]
    parts.append((first, count, "later epochs" if len(starts) > 1 else "second epoch"))
    for begin, end, name in parts:
        if (end - begin) / count * width_inches < 1.1:
            continue  # no room for its name
        axes.annotate(
            name,
            (begin, 1),
            (2, 4),
            xycoords=("data", "axes fraction"),
            textcoords="offset points",
        )


def stages_plot(report: Report) -> str:
    """Bars of what each stage takes for a batch, shared among those that run it at once."""
    stages = report.stages
    lengths = [stage.ms / stage.lanes for stage in stages]
    colours = [
        WAIT if stage.is_lowest else STEP if stage.kind == "step" else PLAIN for stage in stages
    ]
    written = [
        f"{human_ms(length)} · {per_second(stage.samples_per_s)}/s"
        for length, stage in zip(lengths, stages, strict=True)
    ]
    names = [stage.name for stage in stages]
    return _bars("stages", names, lengths, colours, written)


def bursts_plot(report: Report) -> str:
    """The mean wait at each place in the workers' turn."""
    found = report.loop.sawtooth
    assert found is not None
    waits = found.wait_ms

    def paint(axes: Any) -> None:
        axes.bar(range(1, found.period + 1), waits, color=WAIT, width=0.8)
        axes.locator_params(axis="x", nbins=8, integer=True)
        axes.set_xlim(0.4, found.period + 0.6)
        axes.set_ylim(0, 1.1 * max(waits) or 1.0)
        axes.grid(axis="y")
        axes.set_xlabel(f"place in the turn of the {found.period} workers")
        axes.set_ylabel("ms of waiting")

    return _draw("bursts", (NARROW_INCHES, 2.2), paint)


def samples_plot(report: Report) -> str:
    """Bars of what a usual sample takes, and the slowest."""
    found = report.examination.samples
    assert found is not None
    worst = found.worst[:WORST]
    names = ["half of them", "99 of 100", *(f"index {each.index}" for each in worst)]
    lengths = [found.p50_ms, found.p99_ms, *(each.ms for each in worst)]
    colours = [PLAIN, PLAIN, *[WAIT] * len(worst)]
    return _bars("samples", names, lengths, colours, [human_ms(ms) for ms in lengths], unit="ms")


def workers_plot(report: Report) -> str:
    """Bars of what each worker takes for a batch; marks where it was held to one thread."""
    workers, limited = report.examination.workers, report.examination.limited
    names = [f"worker {worker.number}" for worker in workers]
    lengths = [worker.ms for worker in workers]
    slowest = max(lengths)
    is_odd = are_uneven(workers)
    colours = [WAIT if is_odd and ms == slowest else PLAIN for ms in lengths]
    written = [human_ms(ms) for ms in lengths]
    marks = [each.ms for each in limited] if len(limited) == len(workers) else []
    return _bars("workers", names, lengths, colours, written, marks=marks)


def gpus_plot(report: Report, width_inches: float = NARROW_INCHES) -> str:
    """The share of its time that each GPU was busy, over the run."""
    assert report.usage is not None
    gpus = [gpu for gpu in report.usage.gpus if gpu.samples]

    def paint(axes: Any) -> None:
        for number, gpu in enumerate(gpus):
            points = np.array(gpu.samples)
            at = np.arange(0, len(points), -(-3 * len(points) // MOST_POINTS[width_inches]))
            counts = np.diff(np.append(at, len(points)))
            seconds, busy = (np.add.reduceat(each, at) / counts for each in points.T)
            colour = STAND_INS[GPU_COLOURS[number % len(GPU_COLOURS)]]
            axes.plot(seconds, 100 * busy, color=colour, linewidth=1.5)
            if len(gpus) == 1:
                axes.fill_between(seconds, 100 * busy, color=colour, alpha=0.2, linewidth=0)
        axes.set_ylim(0, 103)
        axes.set_xlim(left=0)
        axes.grid(axis="y")
        axes.set_xlabel("seconds")
        axes.set_ylabel("% busy")

    return _draw(f"gpus{width_inches:.0f}", (width_inches, 1.9), paint)


def _bars(
    name: str,
    labels: Sequence[str],
    lengths: Sequence[float],
    colours: Sequence[str],
    written: Sequence[str],
    *,
    marks: Sequence[float] = (),
    unit: str = "ms a batch",
) -> str:
    """Horizontal bars, from the top down.

    Args:
        name: of the drawing.
        labels: one for each; of too many only the first and the last are written.
        lengths: likewise.
        colours: likewise.
        written: what stands at their ends.
        marks: further figures, one for each bar, or none.
        unit: what the axis measures.
    """
    places = range(len(labels))
    is_labelled = len(labels) <= MOST_LABELLED
    names = [shortened(label, LONGEST_NAME) for label in labels] if is_labelled else []
    inches = NARROW_INCHES - MARGIN_INCHES - LETTER_INCHES * max(map(len, names), default=0)
    ends = [
        length * inches / (inches - LETTER_INCHES * (len(text) + 1)) if is_labelled else length
        for length, text in zip(lengths, written, strict=True)
    ]
    bar_inches = BAR_INCHES if is_labelled else BAR_INCHES * MOST_LABELLED / len(labels)

    def paint(axes: Any) -> None:
        axes.barh(places, lengths, color=colours, height=0.75)
        if marks:
            axes.plot(marks, places, "D", color=HOTSET, markersize=5)
        if is_labelled:
            for place, length, text in zip(places, lengths, written, strict=True):
                axes.annotate(
                    text, (length, place), (4, 0), textcoords="offset points", va="center"
                )
            # A name may hold two dollars, and is no formula.
            axes.set_yticks(places, names, parse_math=False)
        else:
            axes.set_yticks([0, len(labels) - 1], [labels[0], labels[-1]], parse_math=False)
        axes.set_ylim(len(labels) - 0.4, -0.6)
        axes.set_xlim(0, 1.05 * max([*ends, *marks]) or 1.0)
        axes.grid(axis="x")
        axes.locator_params(axis="x", nbins=4)
        axes.set_xlabel(unit)

    return _draw(name, (NARROW_INCHES, bar_inches * len(labels) + AXIS_INCHES), paint)


def _draw(name: str, size_inches: tuple[float, float], paint: Callable[[Any], None]) -> str:
    """What `paint` paints into axes, as SVG; `name` keeps its ids apart from other drawings'."""
    with warnings.catch_warnings():
        # The page's own letters are used, and it has those that the one measured with lacks.
        warnings.filterwarnings("ignore", r"Glyph \d+", UserWarning)
        return as_svg(name, size_inches, lambda figure, _: paint(figure.add_subplot()))
