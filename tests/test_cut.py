"""Which cut is made: the first in the order of preference that has room in some tier."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotset.errors import ConfigError
from hotset.placement.cut import Candidate, choose_cut
from hotset.placement.tiers import Need, Rooms

ROOMS = Rooms(device=100, host=400, name="cuda:0")


def needs(*sizes: int, rooms: Rooms = ROOMS) -> list[Candidate]:
    """A candidate for each number of bytes per sample, of ten samples."""
    return [(Need(10, size), rooms) for size in sizes]


def test_the_preferred_cut_is_made_where_it_has_room() -> None:
    """Also in a tier farther away than another cut's would be."""
    number, choice = choose_cut(needs(40, 10))
    assert (number, choice.tier, choice.cached) == (0, "mixed", 2)
    number, choice = choose_cut(needs(10, 5))
    assert (number, choice.tier) == (0, "device")


def test_the_next_cut_with_room_is_made_where_it_has_none() -> None:
    """In the order given, not the smallest."""
    number, choice = choose_cut(needs(90, 80, 30, 10))
    assert (number, choice.tier) == (2, "mixed")


def test_what_cannot_be_kept_at_all_is_passed_over() -> None:
    """A reason stands in for what it takes."""
    number, choice = choose_cut(["no room on disk", *needs(10)])
    assert (number, choice.tier) == (1, "device")


def test_without_room_the_preferred_cut_tells_why() -> None:
    """And nothing is kept."""
    number, choice = choose_cut(needs(90, 80))
    assert (number, choice.tier) == (0, "source")
    assert choice.reasons[0] == "900 bytes exceed the budget of 100 bytes on cuda:0"
    assert choose_cut(["no room on disk"])[1].reasons == ("no room on disk",)


def test_a_tier_that_is_asked_for_may_take_another_cut() -> None:
    """Only where none has room in it, it is refused, for the preferred one's reason."""
    assert choose_cut(needs(40, 10), "device")[0] == 1
    with pytest.raises(ConfigError, match="tier='device' cannot be had: 400 bytes exceed the"):
        choose_cut(needs(40, 20), "device")
    with pytest.raises(ConfigError, match="tier='host' cannot be had: no room on disk"):
        choose_cut(["no room on disk"], "host")


@given(st.lists(st.integers(1, 100), min_size=1, max_size=5), st.integers(0, 500))
def test_the_choice_is_the_first_that_has_room(sizes: list[int], host: int) -> None:
    """For any sizes and any room."""
    rooms = Rooms(device=None, host=host, is_apart=False)
    number, choice = choose_cut(needs(*sizes, rooms=rooms))
    fitting = [place for place, size in enumerate(sizes) if 10 * size <= host]
    assert number == (fitting[0] if fitting else 0)
    assert choice.tier == ("device" if fitting else "source")
