"""Tables and times in words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotset.placement.columns import aligned
from hotset.placement.duration import human_ms


def test_columns_are_aligned() -> None:
    """Two blanks between them, none at the end of a line."""
    rows = [("a", "bb", "what it is"), ("ccc", "", "")]
    assert aligned(rows) == ["a    bb  what it is", "ccc"]


def test_the_last_column_is_broken_to_fit() -> None:
    """Into lines that begin below it; 24 characters are left to it at least."""
    rows = [("step", "one two three four five six")]
    assert aligned(rows, 32) == ["step  one two three four five", "      six"]
    assert aligned(rows, 5) == ["step  one two three four five", "      six"]
    assert aligned(rows) == ["step  one two three four five six"]


@given(
    st.lists(st.tuples(st.text("ab", max_size=9), st.text("cd ", max_size=90)), min_size=1),
    st.integers(40, 100),
)
def test_lines_keep_to_the_width(rows: list[tuple[str, str]], width: int) -> None:
    """Where words are no longer than the last column, and no word is lost."""
    rows = [(first, " ".join(last[:24].split())) for first, last in rows]
    lines = aligned(rows, width)
    assert max(map(len, lines)) <= width
    assert "".join("".join(lines).split()) == "".join("".join(a + b for a, b in rows).split())


@pytest.mark.parametrize(
    ("ms", "words"),
    [
        (0.0, "0.0 ms"),
        (0.00123, "0.0012 ms"),
        (0.996, "1.0 ms"),
        (9.96, "10 ms"),
        (999.4, "999 ms"),
        (999.6, "1.0 s"),
        (119_000, "119 s"),
        (120_000, "2.0 min"),
        (7_200_000, "2.0 h"),
        (3.6e9, "1,000 h"),
    ],
)
def test_times_for_people(ms: float, words: str) -> None:
    """Two digits, in the unit that fits."""
    assert human_ms(ms) == words
