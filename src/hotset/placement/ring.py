"""The ring that batches pass through on their way to a device: its places and their size. Pure."""

from __future__ import annotations

from dataclasses import dataclass

TOGETHER_BYTES, MOST_TOGETHER = 1 << 20, 8
"""Batches pass several at once, for one launch, while they take no more than this."""


@dataclass(frozen=True)
class Ring:
    """What requests pass through.

    Attributes:
        ahead: requests on their way at once; 0 where none may be asked for before it is wanted.
        place_rows: samples of a request, which is of one batch or of several small ones, at most.
    """

    ahead: int
    place_rows: int

    @property
    def places(self) -> int:
        """Requests that are on their way or in use at once."""
        return self.ahead + 1

    def smaller(self) -> Ring | None:
        """A ring of half the memory or less, for where there is no room; None below one sample."""
        if self.ahead > 1:
            return Ring(self.ahead // 2, self.place_rows)
        return Ring(self.ahead, self.place_rows // 2) if self.place_rows > 1 else None


def ring_for(batch_rows: int, row_bytes: int, *, batches: int, nbytes: int, samples: int) -> Ring:
    """A ring for batches of some size.

    Args:
        batch_rows: samples of a batch.
        row_bytes: of a sample.
        batches: batches on their way at once, at most; 0 for none.
        nbytes: bytes on their way at once, at most; but one sample there always is.
        samples: that there are at all.
    """
    batch_bytes = max(1, batch_rows * row_bytes)
    ahead = min(batches, max(1, nbytes // batch_bytes))
    together = max(1, min(MOST_TOGETHER, TOGETHER_BYTES // batch_bytes))
    rows = nbytes // (max(1, ahead) * max(1, row_bytes))
    return Ring(ahead, max(1, min(batch_rows * together, rows, samples)))
