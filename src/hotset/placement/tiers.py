"""The tiers, and which of them samples are to lie in. Pure: bytes in, a choice out.

device   all samples on the device
mixed    a part of them there, the rest in host memory or mapped from disk, copied when wanted
host     all in host memory
disk     all mapped from a store
source   none kept: read through the dataset itself
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from hotset.errors import ConfigError
from hotset.placement.size import human_bytes

Tier = Literal["device", "mixed", "host", "disk", "source"]
Rest = Literal["host", "disk"]
NAMES = ("auto", "device", "mixed", "host", "disk")
"""What `tier=` may be."""
LEAST_CACHED = 0.01
"""Where a smaller share of the samples than this has room on the device, none is kept there."""


@dataclass(frozen=True)
class Need:
    """What samples take.

    Attributes:
        samples: how many there are.
        bytes_per_sample: of each, in the mean.
        ring_bytes: what passing batches to the device takes there, where not all samples lie there.
    """

    samples: int
    bytes_per_sample: int
    ring_bytes: int = 0

    @property
    def nbytes(self) -> int:
        """Bytes of all samples."""
        return self.samples * self.bytes_per_sample


@dataclass(frozen=True)
class Rooms:
    """Bytes that each memory may take.

    Attributes:
        device: on the device; None where it has no memory of its own, or batches are made on the
            host.
        host: in host memory.
        disk: in a store; None where no folder for one was given.
        is_apart: whether the device has memory of its own.
        is_stored: whether the samples lie in a store already.
        is_resident: whether they lie in host memory already.
        name: of the device.
    """

    device: int | None
    host: int
    disk: int | None = None
    is_apart: bool = True
    is_stored: bool = False
    is_resident: bool = False
    name: str = "the device"


@dataclass(frozen=True)
class Choice:
    """Where samples are to lie.

    Attributes:
        tier: see the module's table.
        rest: where those lie that are not on the device; None in the tier "device" of a device with
            memory of its own, and in "source".
        cached: samples on the device.
        reasons: why no nearer tier.
        is_near: whether batches are made on the device, else on the host.
    """

    tier: Tier
    rest: Rest | None
    cached: int = 0
    reasons: tuple[str, ...] = ()
    is_near: bool = True


def check_tier(tier: str) -> str:
    """A tier's name.

    Raises:
        ConfigError: if it is none.
    """
    if tier not in NAMES:
        raise ConfigError(f"`tier` must be one of {', '.join(NAMES)}, got {tier!r}")
    return tier


def choose_tier(need: Need, rooms: Rooms, tier: str = "auto") -> Choice:
    """The nearest tier that has room, or the one that was asked for.

    Args:
        need: what the samples take.
        rooms: what each memory may take.
        tier: "auto", or a name.

    Raises:
        ConfigError: if the tier that was asked for has no room, or cannot be had here.
    """
    reasons: list[str] = []
    for candidate in ("device", "mixed", "host", "disk"):
        found = _in(candidate, need, rooms, is_asked=tier == candidate)
        if isinstance(found, Choice) and tier in ("auto", candidate):
            is_near = rooms.device is not None or not rooms.is_apart
            return Choice(found.tier, found.rest, found.cached, tuple(reasons), is_near)
        if tier == candidate:
            raise ConfigError(f"tier={tier!r} cannot be had: {found}")
        if isinstance(found, str) and found and (candidate != "disk" or rooms.disk is not None):
            reasons.append(found)
    return Choice("source", None, 0, tuple(reasons))


def next_tier(choice: Choice, need: Need, rooms: Rooms) -> Choice | None:
    """The tier below one whose memory could not be had after all; None where there is none.

    Args:
        choice: of that tier.
        need: what the samples take.
        rooms: what each memory may take.
    """
    if choice.tier not in ("device", "mixed"):
        return None
    rest: Rest = choice.rest or _rest(need, rooms) or "host"
    if choice.cached > 1 and choice.tier == "device":
        return Choice("mixed", rest, choice.cached // 2)
    return Choice(rest, rest)


def _rest(need: Need, rooms: Rooms) -> Rest | None:
    """Where samples lie that are not on the device."""
    if rooms.is_stored:
        return "disk"
    if rooms.is_resident or need.nbytes <= rooms.host:
        return "host"
    return None if rooms.disk is None or need.nbytes > rooms.disk else "disk"


def _in(tier: str, need: Need, rooms: Rooms, is_asked: bool) -> Choice | str:
    """The choice of one tier, or why it cannot be had; empty where nothing needs to be said.

    A store is read into host memory only where that is asked for: the system keeps what is read of
    it there anyway, as long as nobody else needs the room.
    """
    is_left = rooms.is_stored and not is_asked
    if tier in ("device", "mixed") and rooms.device is None:
        if rooms.is_apart:
            return "batches are made on the host, sample by sample" if is_asked else ""
        return "" if is_left else _beside(tier, need, rooms)
    if tier == "device":
        assert rooms.device is not None
        if need.nbytes <= rooms.device:
            return Choice("device", None, need.samples)
        return _exceeding(need.nbytes, rooms.device, f"on {rooms.name}")
    if tier == "mixed":
        return _mixed(need, rooms)
    if tier == "host":
        if is_left:
            return ""
        if rooms.is_resident or need.nbytes <= rooms.host:
            return Choice("host", "host")
        return _exceeding(need.nbytes, rooms.host, "in host memory")
    if rooms.is_stored:
        return Choice("disk", "disk")
    if rooms.is_resident:
        return "the samples lie in host memory already, and no store is made of them"
    if rooms.disk is None:
        return "there is no store: give a `cache` folder"
    if need.nbytes <= rooms.disk:
        return Choice("disk", "disk")
    return _exceeding(need.nbytes, rooms.disk, "on disk")


def _beside(tier: str, need: Need, rooms: Rooms) -> Choice | str:
    """Of a device without memory of its own: what lies in host memory is there."""
    if tier == "mixed":
        return "the device has no memory of its own, which a part of the samples could lie in"
    if rooms.is_resident or need.nbytes <= rooms.host:
        return Choice("device", "host", need.samples)
    return _exceeding(need.nbytes, rooms.host, "in host memory")


def _mixed(need: Need, rooms: Rooms) -> Choice | str:
    assert rooms.device is not None
    rest = _rest(need, rooms)
    if rest is None:
        return ""
    cached = max(0, rooms.device - need.ring_bytes) // max(1, need.bytes_per_sample)
    cached = min(cached, need.samples)
    if cached < max(1, LEAST_CACHED * need.samples):
        return f"too few samples would have room on {rooms.name} beside the batches on their way"
    return Choice("mixed", rest, cached)


def _exceeding(nbytes: int, room: int, where: str) -> str:

    return f"{human_bytes(nbytes)} exceed the budget of {human_bytes(room)} {where}"
