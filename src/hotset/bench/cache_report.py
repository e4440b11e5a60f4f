"""The result of the comparison of cache policies, as text and as plain values."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from hotset.bench.cache_orders import ORDERS, ZIPF_EXPONENT, Order, simulate
from hotset.bench.cache_theory import theory
from hotset.bench.table import table
from hotset.bench.timing import Say
from hotset.errors import ConfigError
from hotset.placement.policy import (
    WINDOW_EPOCHS,
    Frequency,
    LeastRecent,
    NextUse,
    Policy,
    Static,
)

SCHEMA, SCHEMA_VERSION = "hotset.bench.cache", 1
POLICIES = ("static", "next-use", "frequency", "lru")
SHARES = (0.05, 0.1, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.9)
QUICK_SHARES = (0.1, 0.25, 0.5, 0.75, 0.9)
LEAST_SAMPLES = 100
WIDTH = 100


@dataclass(frozen=True)
class CacheSettings:
    """Parameters of the comparison of cache policies.

    Attributes:
        samples: rows of the data set, N.
        batch_size: samples of a request.
        shares: of the samples that have room.
        settle: times N samples that are asked for before the count begins.
        count: times N samples that are counted.
        seed: of the orders.

    Raises:
        ConfigError: if a number is too small.
    """

    samples: int = 50_000
    batch_size: int = 256
    shares: tuple[float, ...] = SHARES
    settle: int = 12
    count: int = 4
    seed: int = 0

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise ConfigError(f"`--batch-size` must be at least 1, got {self.batch_size}")
        if self.seed < 0:
            raise ConfigError(f"`--seed` must be at least 0, got {self.seed}")
        if self.samples < LEAST_SAMPLES:
            raise ConfigError(f"`--samples` must be at least {LEAST_SAMPLES}, got {self.samples}")

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class Point:
    """One simulated cache.

    Attributes:
        order: how samples are drawn.
        policy: its name.
        share: of the samples that have room.
        reads: samples that were asked for.
        misses: samples that were copied for them.
        hit_rate: share of the reads that were there.
        theory: the hit rate that theory gives; None where no formula is known to us.
    """

    order: Order
    policy: str
    share: float
    reads: int
    misses: int
    hit_rate: float
    theory: float | None

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {**asdict(self), "order": self.order.key}


@dataclass(frozen=True, eq=False)
class CacheReport:
    """Everything that was simulated.

    Attributes:
        settings: what was asked for.
        date: when it began, ISO 8601, UTC.
        versions: what it was simulated with.
        points: the simulated caches.
    """

    settings: CacheSettings
    date: str
    versions: dict[str, str | None]
    points: Sequence[Point]

    def of(self, order: Order, policy: str) -> list[Point]:
        """The points of one policy under one order, by share."""
        return [point for point in self.points if (point.order, point.policy) == (order, policy)]

    def furthest(self, order: Order) -> Point:
        """The point of an order that is furthest from its theory."""
        known = [
            point for point in self.points if point.order == order and point.theory is not None
        ]
        return max(known, key=_distance)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "schema": SCHEMA,
            "schema_version": SCHEMA_VERSION,
            "date": self.date,
            "versions": self.versions,
            "parameters": self.settings.as_dict(),
            "points": [point.as_dict() for point in self.points],
        }

    def rows(self, order: Order) -> list[list[str]]:
        """Lines of an order's table: the share, and a cell for each policy."""
        columns = [self.of(order, policy) for policy in POLICIES]
        return [
            [f"{points[0].share:g}", *map(cell, points)] for points in zip(*columns, strict=True)
        ]

    def method(self) -> list[str]:
        """How it was simulated, in sentences."""
        settings = self.settings
        return [
            f"{settings.samples:,} samples in batches of {settings.batch_size}; "
            f"{settings.count * settings.samples:,} reads are counted after "
            f"{settings.settle * settings.samples:,} in which the cache settles.",
            "f: share of the samples that one device has room for. In brackets what theory gives "
            "for many samples and a cache that has settled; a dash where we know no formula.",
            f"by Zipf-like weights: the r-th heaviest sample has weight 1 / r^{ZIPF_EXPONENT:g}; "
            "static keeps the heaviest, and frequency has to learn them.",
            "one of R ranks: each epoch's permutation is dealt out among R devices, and this one "
            "keeps what it will see itself.",
            f"next-use knows {WINDOW_EPOCHS * settings.samples:,} samples ahead, through later "
            "epochs.",
        ]

    def __str__(self) -> str:
        parts = ["Hit rates of a device cache, by policy and by the order of the samples"]
        for order in ORDERS:
            figures = table(["f", *POLICIES], self.rows(order))
            parts.append(f"{order.name}\n{figures}\n{self.deviation(order)}")
        parts.append("\n".join(textwrap.fill(sentence, WIDTH) for sentence in self.method()))
        return "\n\n".join(parts)

    def deviation(self, order: Order) -> str:
        """A sentence on how far an order's points are from theory at most."""
        point = self.furthest(order)
        return (
            f"furthest from theory: {_distance(point):.3f} ({point.policy} at f = {point.share:g})"
        )


def cell(point: Point) -> str:
    """A hit rate, and in brackets what theory gives."""
    known = "–" if point.theory is None else f"{point.theory:.3f}"
    return f"{point.hit_rate:.3f} ({known})"


def compare(settings: CacheSettings, say: Say) -> list[Point]:
    """Simulates every policy under every order.

    Args:
        settings: sizes.
        say: told what is being done.
    """
    points: list[Point] = []
    for order in ORDERS:
        passes = settings.settle + settings.count + WINDOW_EPOCHS
        epochs = order.epochs(settings.samples, passes, settings.seed)
        for name in POLICIES:
            say("simulating", f"{order.name}, {name}")
            curve = theory(order, name, settings.samples)
            expected = None if curve is None else curve(np.array(settings.shares))
            for place, share in enumerate(settings.shares):
                counts = simulate(
                    _policy(name, order, settings.samples, round(share * settings.samples)),
                    epochs,
                    batch_size=settings.batch_size,
                    skip=settings.settle * order.ranks,
                    count=settings.count * order.ranks,
                )
                points.append(
                    Point(
                        order,
                        name,
                        share,
                        counts.reads,
                        counts.misses,
                        counts.hit_rate,
                        None if expected is None else float(expected[place]),
                    )
                )
    return points


def _policy(name: str, order: Order, samples: int, capacity: int) -> Policy:
    if name == "static":
        weights = order.weights(samples) if order.exponent else None
        return Static(samples, capacity, weights)
    if name == "next-use":
        return NextUse(samples, capacity)
    return Frequency(samples, capacity) if name == "frequency" else LeastRecent(samples, capacity)


def _distance(point: Point) -> float:
    assert point.theory is not None
    return abs(point.hit_rate - point.theory)
