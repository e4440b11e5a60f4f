"""Counts of what a loader did: batches, hits, bytes copied."""

from __future__ import annotations

from dataclasses import asdict, astuple, dataclass
from typing import Any

from hotset.placement.size import human_bytes


@dataclass(frozen=True)
class Stats:
    """What a loader did so far. Subtract an earlier one for what was done since.

    Attributes:
        epochs: epochs that were finished.
        batches: batches handed out.
        samples: samples that were asked for of what is kept.
        hits: those of them that were on the device already.
        bytes_copied: bytes of samples copied to the device for batches.
        bytes_placed: bytes of samples copied there to stay, before the first batch.

    Example:
        >>> later, earlier = Stats(samples=10, hits=7, bytes_copied=30), Stats(samples=4, hits=2)
        >>> since = later - earlier
        >>> since.samples, since.hits, round(since.hit_rate, 3), since.bytes_copied
        (6, 5, 0.833, 30)
    """

    epochs: int = 0
    batches: int = 0
    samples: int = 0
    hits: int = 0
    bytes_copied: int = 0
    bytes_placed: int = 0

    @property
    def misses(self) -> int:
        """Samples that had to be copied to the device."""
        return self.samples - self.hits

    @property
    def hit_rate(self) -> float:
        """Hits over samples; 0 where there were none."""
        return self.hits / self.samples if self.samples else 0.0

    def __sub__(self, earlier: Stats) -> Stats:
        pairs = zip(astuple(self), astuple(earlier), strict=True)
        return Stats(*(now - then for now, then in pairs))

    def __str__(self) -> str:
        epochs = "1 epoch" if self.epochs == 1 else f"{self.epochs:,} epochs"
        return (
            f"{epochs}, {self.batches:,} batches, {self.samples:,} samples: "
            f"{self.hit_rate:.1%} on the device already, {human_bytes(self.bytes_copied)} copied "
            f"({human_bytes(self.bytes_placed)} placed before)"
        )

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {**asdict(self), "misses": self.misses, "hit_rate": self.hit_rate}


@dataclass
class Tally:
    """Counts that go on; one for each loader. The fields are those of `Stats`."""

    epochs: int = 0
    batches: int = 0
    samples: int = 0
    hits: int = 0
    bytes_copied: int = 0
    bytes_placed: int = 0

    def snapshot(self) -> Stats:
        """The counts now."""
        return Stats(*astuple(self))
