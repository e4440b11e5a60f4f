"""Rows of text with their columns aligned."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

LEAST_LAST = 24
"""The last column is given so many characters at least, however wide the others are."""


def aligned(rows: Sequence[Sequence[str]], width: int | None = None) -> list[str]:
    """Lines, a row each; more where the last column is broken to fit.

    Args:
        rows: of one length; not empty.
        width: of a line, in characters; None breaks none.

    Example:
        >>> aligned([("step", "why"), ("Resize", "it depends on its input alone")], 32)
        ['step    why', 'Resize  it depends on its input', '        alone']
    """
    widths = [max(map(len, column)) for column in list(zip(*rows, strict=True))[:-1]]
    lines = []
    for *cells, last in rows:
        start = "".join(f"{cell:<{size}}  " for cell, size in zip(cells, widths, strict=True))
        if width is None:
            lines.append((start + last).rstrip())
            continue
        room = max(LEAST_LAST, width - len(start))
        parts = textwrap.wrap(last, room, break_long_words=False, break_on_hyphens=False) or [""]
        lines.append((start + parts[0]).rstrip())
        lines += [" " * len(start) + part for part in parts[1:]]
    return lines
