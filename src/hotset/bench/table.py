"""Tables of text."""

from __future__ import annotations

from collections.abc import Sequence

from hotset.bench.timing import Spread


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns under a header: the first one to the left, the others to the right.

    Example:
        >>> print(table(("row", "n"), [("a", "1"), ("b", "10")]))
        row   n
        ---  --
        a     1
        b    10
    """
    widths = [max(len(cell) for cell in column) for column in zip(header, *rows, strict=True)]
    lines = [header, ["-" * width for width in widths], *rows]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if place else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def number(value: float) -> str:
    """A number with as many digits as matter.

    Example:
        >>> number(612345.6), number(61.23), number(6.123), number(0.0612)
        ('612,346', '61.2', '6.12', '0.0612')
    """
    if value == 0 or abs(value) >= 100:
        return f"{value:,.0f}"
    if abs(value) >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}" if abs(value) >= 1 else f"{value:.3g}"


def span(spread: Spread) -> str:
    """The smallest and the largest value."""
    return f"{number(spread.least)} – {number(spread.most)}"
