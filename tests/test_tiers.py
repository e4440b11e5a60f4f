"""The choice of a tier: pure, bytes in and a choice out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotset.errors import ConfigError
from hotset.placement.ring import Ring, ring_for
from hotset.placement.tiers import NAMES, Choice, Need, Rooms, check_tier, choose_tier, next_tier

NEED = Need(1000, 100, ring_bytes=5_000)  # 100,000 bytes
WIDE = Rooms(device=10**6, host=10**6, name="cuda:0")
CASES: dict[str, tuple[Rooms, str, str | None, int]] = {
    "all on the device": (WIDE, "device", None, 1000),
    "to the byte": (replace(WIDE, device=100_000), "device", None, 1000),
    "one byte short": (replace(WIDE, device=99_999), "mixed", "host", 949),
    "half": (replace(WIDE, device=55_000), "mixed", "host", 500),
    "too few to be worth it": (replace(WIDE, device=5_999), "host", "host", 0),
    "the least that is": (replace(WIDE, device=6_000), "mixed", "host", 10),
    "nothing on the device": (replace(WIDE, device=0), "host", "host", 0),
    "nor in host memory": (Rooms(0, 99_999, name="cuda:0"), "source", None, 0),
    "but in a folder": (Rooms(0, 99_999, 100_000, name="cuda:0"), "disk", "disk", 0),
    "mixed with the disk": (Rooms(55_000, 0, 100_000, name="cuda:0"), "mixed", "disk", 500),
    "of a store": (Rooms(55_000, 0, is_stored=True), "mixed", "disk", 500),
    "a store and no device memory": (Rooms(0, 10**9, is_stored=True), "disk", "disk", 0),
    "in memory already": (Rooms(0, 0, is_resident=True), "host", "host", 0),
    "on the CPU": (Rooms(None, 10**6, is_apart=False), "device", "host", 1000),
    "on the CPU, too large": (Rooms(None, 99_999, is_apart=False), "source", None, 0),
    "on the CPU, a store": (Rooms(None, 10**6, is_stored=True, is_apart=False), "disk", "disk", 0),
    "made on the host": (Rooms(None, 10**6), "host", "host", 0),
}


@pytest.mark.parametrize("case", CASES)
def test_the_nearest_tier_that_has_room(case: str) -> None:
    """The tier, where the rest lies, and how many samples the device keeps."""
    rooms, tier, rest, cached = CASES[case]
    choice = choose_tier(NEED, rooms)
    assert (choice.tier, choice.rest, choice.cached) == (tier, rest, cached)


def test_why_no_nearer() -> None:
    """One sentence for each tier that had no room."""
    choice = choose_tier(NEED, Rooms(5_000, 99_999, 50, name="cuda:0"))
    assert choice.tier == "source"
    assert choice.reasons == (
        "100.0 KB exceed the budget of 5.0 KB on cuda:0",
        "100.0 KB exceed the budget of 100.0 KB in host memory",
        "100.0 KB exceed the budget of 50 bytes on disk",
    )
    few = choose_tier(NEED, replace(WIDE, device=5_999))
    assert few.reasons[1] == (
        "too few samples would have room on cuda:0 beside the batches on their way"
    )


@pytest.mark.parametrize(
    ("tier", "rooms", "problem"),
    [
        ("device", replace(WIDE, device=10), "100.0 KB exceed the budget of 10 bytes on cuda:0"),
        ("mixed", replace(WIDE, device=10), "too few samples would have room on cuda:0 beside"),
        ("mixed", Rooms(None, 10**6, is_apart=False), "the device has no memory of its own"),
        ("device", Rooms(None, 10**6), "batches are made on the host, sample by sample"),
        ("host", replace(WIDE, host=9), "100.0 KB exceed the budget of 9 bytes in host memory"),
        ("disk", WIDE, "there is no store: give a `cache` folder"),
    ],
)
def test_tiers_that_cannot_be_had(tier: str, rooms: Rooms, problem: str) -> None:
    """Asking for one says why."""
    with pytest.raises(ConfigError, match=f"^tier='{tier}' cannot be had: {problem}"):
        choose_tier(NEED, rooms, tier)


@pytest.mark.parametrize("tier", ["device", "mixed", "host"])
def test_a_tier_that_was_asked_for(tier: str) -> None:
    """Is taken though a nearer one has room."""
    choice = choose_tier(NEED, WIDE, tier)
    assert choice.tier == tier
    assert choice.cached == {"device": 1000, "mixed": 1000, "host": 0}[tier]


def test_a_store_is_read_into_memory_where_that_is_asked_for() -> None:
    """On the CPU it stays mapped otherwise."""
    rooms = Rooms(None, 10**6, is_stored=True, is_apart=False)
    assert choose_tier(NEED, rooms, "device") == Choice("device", "host", 1000)
    assert choose_tier(NEED, rooms, "host").rest == "host"
    assert choose_tier(NEED, rooms, "disk").rest == "disk"


@pytest.mark.parametrize("wrong", ["cuda", "", None, 1])
def test_names_of_tiers(wrong: Any) -> None:
    """Others are refused with those that there are."""
    for name in NAMES:
        assert check_tier(name) == name
    match = "`tier` must be one of auto, device, mixed, host, disk, got "
    with pytest.raises(ConfigError, match=match):
        check_tier(wrong)


def test_the_tier_below() -> None:
    """Half of the samples, then none, then there is none."""
    first = choose_tier(NEED, WIDE)
    second = next_tier(first, NEED, WIDE)
    assert second == Choice("mixed", "host", 500)
    third = next_tier(second, NEED, WIDE)
    assert third == Choice("host", "host")
    assert next_tier(third, NEED, WIDE) is None


@given(
    samples=st.integers(1, 10**6),
    size=st.integers(1, 10**6),
    ring=st.integers(0, 10**9),
    device=st.one_of(st.none(), st.integers(0, 10**12)),
    host=st.integers(0, 10**12),
    disk=st.one_of(st.none(), st.integers(0, 10**12)),
)
def test_no_memory_is_given_more_than_it_may_take(
    samples: int, size: int, ring: int, device: int | None, host: int, disk: int | None
) -> None:
    """Whatever the sizes are."""
    need, rooms = Need(samples, size, ring), Rooms(device, host, disk)
    choice = choose_tier(need, rooms)
    assert 0 <= choice.cached <= samples
    if choice.tier == "mixed":
        assert choice.cached * size + ring <= (device or 0)
    if choice.tier == "device":
        assert choice.cached * size <= (device or 0)
    if choice.rest == "host":
        assert need.nbytes <= host
    if choice.rest == "disk":
        assert need.nbytes <= (disk or 0)
    if choice.tier == "source":
        assert need.nbytes > host


@given(
    rows=st.integers(1, 5000),
    size=st.integers(1, 10**6),
    batches=st.integers(0, 8),
    nbytes=st.integers(1, 10**9),
)
def test_what_is_on_its_way_is_bounded(rows: int, size: int, batches: int, nbytes: int) -> None:
    """In batches and in bytes, but for one sample."""
    ring = ring_for(rows, size, batches=batches, nbytes=nbytes, samples=3000)
    assert ring.place_rows <= 3000
    assert ring.ahead <= batches
    assert ring.places == ring.ahead + 1
    assert ring.place_rows >= 1
    assert ring.ahead * ring.place_rows * size <= max(nbytes, size)


def test_a_ring_becomes_smaller() -> None:
    """Down to one sample at a time."""
    assert Ring(4, 100).smaller() == Ring(2, 100)
    assert Ring(1, 100).smaller() == Ring(1, 50)
    assert Ring(0, 3).smaller() == Ring(0, 1)
    assert Ring(1, 1).smaller() is None
