"""Times in words."""

from __future__ import annotations


def human_ms(ms: float) -> str:
    """A time with a unit, in few digits.

    Example:
        >>> [human_ms(ms) for ms in (0.0123, 3.456, 36, 1234, 61_000, 300_000, 9_000_000)]
        ['0.012 ms', '3.5 ms', '36 ms', '1.2 s', '61 s', '5.0 min', '2.5 h']
    """
    if ms < 999.5:
        return f"{_short(ms)} ms"
    for unit, size, most in (("s", 1000, 120), ("min", 60_000, 120)):
        if ms / size < most:
            return f"{_short(ms / size)} {unit}"
    return f"{_short(ms / 3_600_000)} h"


def _short(number: float) -> str:
    if number >= 9.95:
        return f"{number:,.0f}"
    return f"{number:.1f}" if number >= 0.995 or number == 0 else f"{number:.2g}"
