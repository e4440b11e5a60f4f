"""The comparison of cache policies as curves: a picture, and a page that needs nothing else."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from html import escape
from typing import Any

import numpy as np

from hotset.bench.cache_orders import ORDERS, PERMUTATION, RANKS_2, RANKS_4, REPLACEMENT, Order
from hotset.bench.cache_report import POLICIES, CacheReport
from hotset.bench.cache_theory import theory
from hotset.drawing import Colours, as_png, as_svg, document

PANEL_INCHES = 4.0, 3.1
COLUMNS = 3
LINE_POINTS = 201
READ_AT = 0.5
"""The share at which the curves are put into words."""


@dataclass(frozen=True)
class Look:
    """How a policy is drawn.

    Attributes:
        colour: of the palette.
        marker: matplotlib's name for the shape of its points.
        sign: the same shape as a letter.
        size: of a point; where policies coincide, the smaller one lies within the larger.
        dashes: of its line.
        is_filled: whether its points are.
    """

    colour: str
    marker: str
    sign: str
    size: float
    dashes: str
    is_filled: bool


LOOKS = {
    "static": Look("step", "s", "□", 8.5, "-", False),
    "next-use": Look("hotset", "o", "●", 4.5, "--", True),
    "frequency": Look("fill", "^", "▲", 4.5, "--", True),
    "lru": Look("wait", "D", "◇", 8.0, "-", False),
}
STYLE = """
.key b { font-weight: 400; margin-right: .3em; }
.numbers { max-width: 46rem; margin-bottom: .25rem; }
h3 + .scroll { margin-top: .25rem; }
.card ul { margin: .5rem 0 0; padding-left: 1.2rem; }
.table { margin: 1.25rem 0; }
@media (max-width: 34rem) {
  .numbers { font-size: .8rem; } .numbers th, .numbers td { padding-right: .4rem; } }
"""


def as_page(report: CacheReport) -> str:
    """The report as an HTML page."""
    return document("hotset bench cache", STYLE, _body(report))


def as_picture(report: CacheReport) -> bytes:
    """All curves in one PNG file."""
    rows = -(-(len(ORDERS) + 1) // COLUMNS)
    width, height = PANEL_INCHES

    def paint(figure: Any, colours: Colours) -> None:
        panels = figure.subplots(rows, COLUMNS).ravel()
        for axes, order in zip(panels[: len(ORDERS)], ORDERS, strict=True):
            _paint(axes, report, order, colours)
            axes.set_title(order.name, loc="left", fontsize=11, fontweight="bold")
        for axes in panels[len(ORDERS) :]:
            axes.axis("off")
        handles, labels = panels[0].get_legend_handles_labels()
        panels[-1].legend(
            handles,
            labels,
            loc="center left",
            frameon=False,
            fontsize=11,
            title="points: simulated\nlines: theory, where there is a formula",
            alignment="left",
            labelspacing=0.7,
        )

    return as_png((width * COLUMNS, height * rows), paint)


def _paint(axes: Any, report: CacheReport, order: Order, colours: Colours) -> None:
    """One order's curves: what theory gives as lines, what was simulated as points."""
    shares = np.linspace(0, 1, LINE_POINTS)
    for policy in POLICIES:
        look = LOOKS[policy]
        colour = colours[look.colour]
        curve = theory(order, policy, report.settings.samples)
        if curve is not None:
            axes.plot(shares, curve(shares), look.dashes, color=colour, linewidth=1.4, zorder=2)
        points = report.of(order, policy)
        axes.plot(
            [point.share for point in points],
            [point.hit_rate for point in points],
            look.marker,
            color=colour,
            markersize=look.size,
            markerfacecolor=colour if look.is_filled else "none",
            markeredgewidth=1.3,
            zorder=4 if look.is_filled else 3,
            label=policy,
            clip_on=False,
        )
    axes.set(xlim=(0, 1), ylim=(0, 1), xlabel="room, as a share f of the samples")
    axes.set_ylabel("hit rate")
    axes.grid()


def _paint_alone(report: CacheReport, order: Order, figure: Any, colours: Colours) -> None:
    """One order's curves, in a figure of their own."""
    _paint(figure.add_subplot(), report, order, colours)


def _body(report: CacheReport) -> Iterable[str]:
    settings = report.settings
    yield "<h1>hotset bench cache: hit rates of a device cache, by policy and order</h1>"
    yield (
        f'<p class="soft">{settings.samples:,} samples, batches of {settings.batch_size}. Points '
        "are simulated, lines are theory where there is a formula.</p>"
    )
    yield '<h2>In pictures</h2><div class="cards">'
    for order in ORDERS:
        plot = as_svg(f"cache-{order.key}", PANEL_INCHES, partial(_paint_alone, report, order))
        yield f'<div class="card"><h3>{escape(order.name)}</h3>{_key()}{plot}</div>'
    yield from _reading(report)
    yield "</div><h2>In numbers</h2>"
    yield '<p class="soft">Simulated, and in brackets what theory gives.</p>'
    for order in ORDERS:
        yield from _table(report, order)
    yield "<h2>How it was simulated</h2><ul>"
    yield from (f"<li>{escape(sentence)}</li>" for sentence in report.method())
    yield "</ul>"
    found = ", ".join(f"{name} {version}" for name, version in report.versions.items() if version)
    yield f"<footer><p>{escape(found)}.</p><p>{escape(report.date)}.</p></footer>"


def _reading(report: CacheReport) -> Iterable[str]:
    """A card that says what the curves show, where room for half of the samples was simulated."""
    if READ_AT not in report.settings.shares:
        return
    at = {
        (point.order, point.policy): f"{point.hit_rate:.2f}"
        for point in report.points
        if point.share == READ_AT
    }
    sentences = (
        f"A permutation asks for every sample once, so a fixed set cannot be beaten: "
        f"{at[PERMUTATION, 'static']} of the reads, where the least recently used rule finds "
        f"{at[PERMUTATION, 'lru']}.",
        f"With replacement some samples come again soon. Who knows the order keeps those: "
        f"{at[REPLACEMENT, 'next-use']} against {at[REPLACEMENT, 'static']}.",
        f"A rank sees a part of each permutation. Later epochs show which samples it will see "
        f"itself: {at[RANKS_2, 'next-use']} for two ranks, {at[RANKS_4, 'next-use']} for four.",
    )
    yield f'<div class="card"><h3>With room for half of the samples (f = {READ_AT:g})</h3><ul>'
    yield from (f"<li>{escape(sentence)}</li>" for sentence in sentences)
    yield "</ul></div>"


def _key() -> str:
    """What each shape and colour means."""
    return (
        '<div class="key">'
        + "".join(
            f'<span><b style="color:var(--{LOOKS[policy].colour})">{LOOKS[policy].sign}</b>'
            f"{escape(policy)}</span>"
            for policy in POLICIES
        )
        + "</div>"
    )


def _table(report: CacheReport, order: Order) -> Iterable[str]:
    yield f'<div class="table"><h3>{escape(order.name)}</h3>'
    yield '<div class="scroll"><table class="numbers"><thead><tr>'
    yield "".join(f"<th>{escape(name)}</th>" for name in ("f", *POLICIES)) + "</tr></thead><tbody>"
    for share, *cells in report.rows(order):
        columns = "".join(f"<td>{escape(text)}</td>" for text in cells)
        yield f"<tr><th>{share}</th>{columns}</tr>"
    yield f'</tbody></table></div><p class="soft">{escape(report.deviation(order))}</p></div>'
