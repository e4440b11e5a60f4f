"""Cuts: where a chain could be cut, what that would save, and which cut has room. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hotset.chain.split import Rest
from hotset.errors import ConfigError
from hotset.placement.tiers import Choice, Need, Rooms, Tier, choose_tier


@dataclass(frozen=True)
class Cut:
    """A point where a chain could be cut: what is before it runs once, the rest always.

    Attributes:
        position: number of steps before it.
        behind: what runs last before it: a step, or reading the dataset.
        ms: what that takes for one sample.
        noise_ms: by how much `ms` differs from one measurement to the next.
        is_deterministic: whether all before it is.
        problem: why samples cannot be kept as they are there; empty where they can.
        bytes_per_sample: of a sample as it is there, in the mean.
        is_one_shape: whether the samples looked at had one shape there.
        nbytes: of all samples.
        saved_ms: what is no longer run in an epoch takes so long, with the workers there are.
        tier: the nearest tier with room for them; None where there is none, or they cannot be kept.
        rest: how what is behind it runs: "batch", on whole batches; "table", by tables alone;
            "worker", per sample; or "nothing", as there is nothing.
        is_chosen: whether the chain is cut here.
        reason: why it is, or why not.
    """

    position: int
    behind: str
    ms: float
    noise_ms: float
    is_deterministic: bool
    problem: str
    bytes_per_sample: int
    is_one_shape: bool
    nbytes: int
    saved_ms: float
    tier: Tier | None
    rest: Rest
    is_chosen: bool = False
    reason: str = ""

    @property
    def saved_ms_per_mb(self) -> float | None:
        """Milliseconds saved in an epoch for each MB that is kept; None where none is."""
        return None if self.problem or self.nbytes == 0 else self.saved_ms / (self.nbytes / 1e6)


Candidate = tuple[Need, Rooms] | str
"""What samples take at a cut, and what each memory may take of them; or why none may."""


def choose_cut(candidates: Sequence[Candidate], tier: str = "auto") -> tuple[int, Choice]:
    """The first cut that has room in some tier; where none has, the first, and no tier.

    Args:
        candidates: in the order of preference; not empty.
        tier: "auto", or the only one that will do.

    Returns:
        The place of the cut among the candidates, and where its samples are to lie.

    Raises:
        ConfigError: if the tier that was asked for has no room for any of them.
    """
    first: Choice | ConfigError | None = None
    for number, candidate in enumerate(candidates):
        found: Choice | ConfigError
        try:
            found = _choice(candidate, tier)
        except ConfigError as error:
            found = error
        if isinstance(found, Choice) and found.tier != "source":
            return number, found
        first = first or found
    if isinstance(first, Choice):
        return 0, first
    assert first is not None
    raise first


def _choice(candidate: Candidate, tier: str) -> Choice:
    if not isinstance(candidate, str):
        return choose_tier(*candidate, tier)
    if tier != "auto":
        raise ConfigError(f"tier={tier!r} cannot be had: {candidate}")
    return Choice("source", None, 0, (candidate,))
