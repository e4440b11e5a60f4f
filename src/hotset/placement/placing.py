"""What a user asks for of the placement: tier, budget, policy, and how far ahead to copy."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hotset.errors import ConfigError
from hotset.placement.budget import Budget, as_budget, budget_bytes
from hotset.placement.tiers import check_tier

POLICIES = ("auto", "static", "next-use", "frequency", "lru")
"""What `policy=` may be."""
PREFETCH_BATCHES = 2
PREFETCH_BYTES = "256MB"


@dataclass(frozen=True)
class Placing:
    """What is asked for.

    Attributes:
        tier: "auto", or a tier's name.
        budget: what may be held; shared with other loaders or not.
        policy: which samples a device keeps that has no room for all; see `placement.policy`.
        prefetch_batches: batches on their way to the device at once.
        prefetch_bytes: bytes on their way at once, at most.
    """

    tier: str = "auto"
    budget: Budget = field(default_factory=Budget)
    policy: str = "auto"
    prefetch_batches: int = PREFETCH_BATCHES
    prefetch_bytes: int = budget_bytes(PREFETCH_BYTES, 0)


def placing_of(
    *,
    tier: Any,
    budget: Any,
    reserve: Any,
    policy: Any,
    prefetch_batches: Any,
    prefetch_bytes: Any,
    is_apart: bool,
) -> Placing:
    """What was asked for, looked at.

    Raises:
        ConfigError: if any of it cannot be used.
    """
    if policy not in POLICIES:
        raise ConfigError(f"`policy` must be one of {', '.join(POLICIES)}, got {policy!r}")
    is_whole = isinstance(prefetch_batches, int) and not isinstance(prefetch_batches, bool)
    if not is_whole or prefetch_batches < 1:
        raise ConfigError(
            f"`prefetch_batches` must be a whole number of at least 1, got {prefetch_batches!r}"
        )
    if prefetch_bytes is None or (isinstance(prefetch_bytes, str) and "%" in prefetch_bytes):
        raise ConfigError(f"`prefetch_bytes` must be bytes, or '256MB', got {prefetch_bytes!r}")
    return Placing(
        check_tier(tier),
        as_budget(budget, reserve, is_apart=is_apart),
        policy,
        prefetch_batches,
        budget_bytes(prefetch_bytes, 0, "prefetch_bytes"),
    )
