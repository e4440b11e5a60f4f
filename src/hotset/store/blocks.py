"""Checksums, one per block of a file's values: made while writing, looked at before reading."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

BLOCK_BYTES = 256 << 10
"""Least size of a block."""
MOST_BLOCKS = 1 << 16
"""A file that is expected to be so large that it would have more blocks gets larger ones."""


def block_bytes_for(expected_bytes: int) -> int:
    """The size of blocks of a file: a power of two."""
    size = BLOCK_BYTES
    while expected_bytes > size * MOST_BLOCKS:
        size *= 2
    return size


class BlockSums:
    """The checksums of values that come in one after the other.

    Args:
        block_bytes: size of a block.
    """

    def __init__(self, block_bytes: int) -> None:
        self.block_bytes = block_bytes
        self.complete: list[int] = []
        self._crc, self._filled = 0, 0

    def add(self, values: memoryview) -> None:
        """Takes further bytes in."""
        position = 0
        while position < len(values):
            part = values[position : position + self.block_bytes - self._filled]
            self._crc = zlib.crc32(part, self._crc)
            self._filled += len(part)
            position += len(part)
            if self._filled == self.block_bytes:
                self.complete.append(self._crc)
                self._crc, self._filled = 0, 0

    @property
    def tail(self) -> int:
        """Checksum of the last, unfinished block; 0 where there is none."""
        return self._crc

    def all(self) -> tuple[int, ...]:
        """The checksums, with that of the last, short block."""
        return (*self.complete, self._crc) if self._filled else tuple(self.complete)


HEADER = -1
"""Stands for what is in front of a file's blocks, and for its size."""


@dataclass(frozen=True)
class Damage:
    """A block whose bytes are not those that were written.

    Attributes:
        file: name of the file.
        block: number of the block in it, or `HEADER`.
        samples: the samples that have bytes in it.
    """

    file: str
    block: int
    samples: Sequence[int]

    def __str__(self) -> str:
        if self.block == HEADER:
            return f"{self.file}: its header or its size"
        return f"{self.file}, block {self.block}: {samples_in_words(self.samples)}"


def samples_in_words(samples: Sequence[int]) -> str:
    """Sample numbers, at most six of them by number.

    Example:
        >>> samples_in_words([3]), samples_in_words(range(4, 100))
        ('sample 3', 'samples 4 to 99')
    """
    if len(samples) == 0:
        return "no sample"
    if len(samples) == 1:
        return f"sample {samples[0]}"
    first, last = min(samples), max(samples)
    if last - first + 1 == len(samples):
        return f"samples {first} to {last}"
    shown = ", ".join(map(str, samples[:6]))
    return f"samples {shown}" + (f" and {len(samples) - 6} more" if len(samples) > 6 else "")


class Guard:
    """Looks at every block of a file once, before it is first used.

    Args:
        values: the file's values as (bytes,) uint8, memory-mapped.
        block_bytes: size of a block.
        checksums: one per block.
        refuse: called with the number of a damaged block; raises.
    """

    def __init__(
        self,
        values: np.ndarray,
        block_bytes: int,
        checksums: Sequence[int],
        refuse: Callable[[int], None],
    ) -> None:
        self._values, self._block_bytes, self._checksums = values, block_bytes, checksums
        self._refuse = refuse
        self._seen = np.zeros(len(checksums), dtype=bool)
        self._unseen = len(checksums)

    def touch(self, starts: np.ndarray, stops: np.ndarray) -> None:
        """Looks at the blocks of some ranges.

        Args:
            starts: (R,) int64 first byte of each range.
            stops: (R,) int64 byte behind its last.
        """
        if self._unseen == 0 or len(starts) == 0:
            return
        first, last = starts // self._block_bytes, (stops - 1) // self._block_bytes
        is_new = (stops > starts) & ~(self._seen[np.minimum(first, len(self._seen) - 1)])
        is_long = (stops > starts) & (last > first)
        for low, high in zip(first[is_new | is_long], last[is_new | is_long], strict=True):
            for block in range(int(low), int(high) + 1):
                if not self._seen[block]:
                    self.look(block)

    def look(self, block: int) -> None:
        """Looks at one block."""
        if self.is_damaged(block):
            self._refuse(block)
        elif not self._seen[block]:
            self._seen[block] = True
            self._unseen -= 1

    def look_at_all(self) -> None:
        """Looks at every block that was not looked at."""
        for block in np.flatnonzero(~self._seen).tolist():
            self.look(block)

    def is_damaged(self, block: int) -> bool:
        """Whether a block's bytes are not those that were written."""
        part = self._values[block * self._block_bytes : (block + 1) * self._block_bytes]
        return zlib.crc32(part) != self._checksums[block]  # type: ignore[arg-type]
