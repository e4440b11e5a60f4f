"""Plots and pages that need nothing else: no script, no font, no network."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterable, Mapping
from html import escape
from typing import Any

PALETTE = {
    "paper": ("#ffffff", "#14171b"),
    "card": ("#f5f6f8", "#1e2329"),
    "ink": ("#1b1f24", "#e6e9ec"),
    "soft": ("#57606a", "#a1abb5"),
    "faint": ("#c4c9d0", "#444c56"),
    "wait": ("#d55e00", "#f0803c"),
    "step": ("#7b9cc4", "#54779f"),
    "fill": ("#e9b000", "#f0c63c"),
    "plain": ("#6e7781", "#939da8"),
    "hotset": ("#00805c", "#2fc391"),
}
"""Colours by what they stand for, on a light page and on a dark one."""
Colours = Mapping[str, str]
STAND_INS: Colours = {name: f"#0102{number:02x}" for number, name in enumerate(PALETTE, 3)}
"""Colours that an SVG is drawn with, which the page's own take the place of, light or dark."""
LIGHT: Colours = {name: light for name, (light, _) in PALETTE.items()}
PNG_DPI = 144


def _variables(which: int) -> str:
    return " ".join(f"--{name}: {pair[which]};" for name, pair in PALETTE.items())


STYLE = (
    f"""
:root {{ color-scheme: light dark; {_variables(0)} }}
@media (prefers-color-scheme: dark) {{ :root {{ {_variables(1)} }} }}
"""
    + """
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 64rem; padding: 1.5rem 1rem 3rem; background: var(--paper);
  color: var(--ink); font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.1rem; margin: 0; }
h2 { font-size: 1.15rem; margin: 2.5rem 0 .75rem; }
h3 { font-size: 1rem; margin: 0; }
p { margin: .25rem 0; }
.soft, footer { color: var(--soft); font-size: .9rem; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 24rem), 1fr));
  gap: 1rem; align-items: start; }
.card { background: var(--card); border-radius: .6rem; padding: 1rem; min-width: 0; }
.key { display: flex; flex-wrap: wrap; gap: 0 1rem; margin: .25rem 0 .5rem; font-size: .9rem; }
.key i { display: inline-block; width: .75em; height: .75em; margin-right: .45em;
  border-radius: .1em; }
svg { display: block; width: 100%; max-width: 27rem; height: auto; }
svg text { font-family: inherit !important; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .95rem; }
th, td { padding: .3rem .75rem .3rem 0; text-align: left; vertical-align: top;
  border-top: 1px solid var(--faint); }
thead th { border: 0; }
thead th { color: var(--soft); font-weight: 600; }
tbody th { font-weight: 600; }
.numbers td, .numbers thead th { text-align: right; white-space: nowrap;
  font-variant-numeric: tabular-nums; }
.numbers thead th:first-child { text-align: left; }
code { font: .9em ui-monospace, monospace; }
li { margin: .3rem 0; }
"""
)
"""What every page looks like."""


def document(title: str, style: str, body: Iterable[str]) -> str:
    """An HTML page.

    Args:
        title: its name, as text.
        style: CSS that comes after `STYLE`.
        body: lines of HTML.
    """
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en">',
            '<meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(title)}</title>",
            f"<style>{STYLE}{style}</style>",
            *body,
            "</html>",
            "",
        ]
    )


def as_svg(
    name: str, size_inches: tuple[float, float], paint: Callable[[Any, Colours], None]
) -> str:
    """What is painted into a figure, as SVG for a page: letters and colours are the page's.

    Args:
        name: keeps its ids apart from those of other drawings.
        size_inches: width and height.
        paint: is given the figure, and colours by name.
    """
    return _inlined(_drawn(name, size_inches, paint, STAND_INS, "svg").decode("utf-8"))


def as_png(size_inches: tuple[float, float], paint: Callable[[Any, Colours], None]) -> bytes:
    """Likewise, as a PNG file on white.

    Args:
        size_inches: width and height.
        paint: is given the figure, and colours by name.
    """
    return _drawn("png", size_inches, paint, LIGHT, "png")


def _drawn(
    name: str,
    size_inches: tuple[float, float],
    paint: Callable[[Any, Colours], None],
    colours: Colours,
    form: str,
) -> bytes:
    import matplotlib
    from matplotlib.figure import Figure

    ink, faint = colours["ink"], colours["faint"]
    style: dict[Any, Any] = {
        "svg.fonttype": "none",
        "svg.hashsalt": name,
        "font.size": 10,
        "text.color": ink,
        "axes.edgecolor": faint,
        "axes.labelcolor": ink,
        "xtick.color": faint,
        "ytick.color": faint,
        "xtick.labelcolor": ink,
        "ytick.labelcolor": ink,
        "ytick.left": False,
        "grid.color": faint,
        "grid.linewidth": 0.5,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.spines.left": False,
        "axes.axisbelow": True,
    }
    file = io.BytesIO()
    with matplotlib.rc_context(style):
        figure = Figure(figsize=size_inches, layout="constrained")
        paint(figure, colours)
        if form == "svg":
            figure.savefig(file, format=form, transparent=True, metadata={"Date": None})
        else:
            figure.savefig(file, format=form, facecolor=colours["paper"], dpi=PNG_DPI)
    return file.getvalue()


def _inlined(svg: str) -> str:
    """An SVG file as a part of a page: without its prologue, and with the page's colours."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r' xmlns(:\w+)?="[^"]*"', "", svg)  # HTML knows the namespaces
    # An id may be there once in a page, and nothing uses those of groups.
    svg = re.sub(r'<g id="[^"]*"', "<g", svg)
    for name, stand_in in STAND_INS.items():
        svg = svg.replace(stand_in, f"var(--{name})")
    opening, rest = svg.split(">", 1)
    return re.sub(r' (width|height)="[^"]*"', "", opening) + ' aria-hidden="true">' + rest
