"""Plots and pages: in the page's colours, without anything from elsewhere."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("matplotlib")

from hotset.drawing import LIGHT, PALETTE, STAND_INS, STYLE, Colours, as_png, as_svg, document


def _line(figure: Any, colours: Colours) -> None:
    figure.add_subplot().plot([0, 1], [0, 1], color=colours["wait"])


def test_svg_takes_the_colours_of_the_page() -> None:
    """Every stand-in is replaced, ids differ between drawings, and the size is the page's."""
    svg = as_svg("one", (3.0, 2.0), _line)
    assert "stroke: var(--wait)" in svg
    assert not any(stand_in in svg for stand_in in STAND_INS.values())
    assert svg.startswith("<svg")
    assert 'aria-hidden="true"' in svg.split(">", 1)[0]
    assert " width=" not in svg.split(">", 1)[0]
    assert svg == as_svg("one", (3.0, 2.0), _line)
    assert svg != as_svg("two", (3.0, 2.0), _line)


def test_png_is_drawn_in_the_light_colours() -> None:
    """Of the size that was asked for."""
    seen: list[Colours] = []
    picture = as_png((3.0, 2.0), lambda figure, colours: seen.append(colours))
    assert picture.startswith(b"\x89PNG")
    assert seen == [LIGHT]
    assert [int.from_bytes(picture[at : at + 4]) for at in (16, 20)] == [432, 288]


def test_page_knows_every_colour_twice() -> None:
    """For light and for dark; its title is text, not markup."""
    assert len(set(STAND_INS.values())) == len(PALETTE)
    for name, (light, dark) in PALETTE.items():
        assert f"--{name}: {light};" in STYLE
        assert f"--{name}: {dark};" in STYLE
    page = document("a < b", ".x {}", ["<p>text</p>"])
    assert "<title>a &lt; b</title>" in page
    assert page.endswith("<p>text</p>\n</html>\n")
