"""The rows that a cache keeps, ranked by keys: whenever there is no room, the lowest goes."""

from __future__ import annotations

import heapq
from typing import Protocol

import numpy as np

from hotset.kernels.threads import has_numba

Parts = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
"""Slots, misses, admitted, into: what a `Lookup` is made of."""


class Ranking(Protocol):
    """Rows in slots, each with a key of two integers; lower keys go first.

    Attributes:
        slot_of: (N,) int64: of every row its slot, or -1.
    """

    slot_of: np.ndarray

    def serve(self, rows: np.ndarray, first: np.ndarray, second: np.ndarray) -> Parts:
        """Looks a request up, and keeps of its rows and those kept so far the highest.

        What is looked up is what was kept before the request. Rows are ranked once it has been
        read, with the keys of their last places in it. So a row of which a copy is there is never
        copied again, and what the request itself asks for twice does not count as a use to come.

        Args:
            rows: (B,) int64.
            first: (B,) int64 the keys' first parts.
            second: (B,) int64 the second ones, which decide where the first are equal.
        """
        ...

    def rekey(self, slots: np.ndarray, first: np.ndarray) -> None:
        """Gives rows that are kept a new first part of their keys.

        Args:
            slots: (K,) int64 where they lie.
            first: (K,) int64.
        """
        ...


def make_ranking(samples: int, capacity: int) -> Ranking:
    """An empty ranking: compiled where Numba is installed, and plain Python elsewhere.

    Args:
        samples: number of rows that there are.
        capacity: slots.
    """
    if not has_numba():
        return PlainRanking(samples, capacity)
    return CompiledRanking(samples, capacity)


class CompiledRanking:
    """A ranking whose loops are compiled; about 0.1 microseconds a row.

    Args:
        samples: number of rows that there are.
        capacity: slots.
    """

    def __init__(self, samples: int, capacity: int) -> None:
        self.slot_of = np.full(samples, -1, np.int64)
        self._row_in = np.full(capacity, -1, np.int64)
        self._keys = np.zeros((capacity, 2), np.int64)
        self._heap = np.zeros(capacity, np.int64)
        self._place = np.zeros(capacity, np.int64)
        self._used = np.zeros(1, np.int64)

    def serve(self, rows: np.ndarray, first: np.ndarray, second: np.ndarray) -> Parts:
        from hotset.kernels import eviction_cpu

        # What Numba compiles has no types for the checker.
        return eviction_cpu.serve(  # type: ignore[no-any-return]
            rows,
            first,
            second,
            self.slot_of,
            self._row_in,
            self._keys,
            self._heap,
            self._place,
            self._used,
        )

    def rekey(self, slots: np.ndarray, first: np.ndarray) -> None:
        from hotset.kernels import eviction_cpu

        eviction_cpu.rekey(slots, first, self._keys, self._heap, self._place, self._used)


class PlainRanking:
    """The same without a compiler: the definition, some fifteen times slower.

    A key that changes leaves its old entry in the heap, to be passed over when it comes to the top.

    Args:
        samples: number of rows that there are.
        capacity: slots.
    """

    def __init__(self, samples: int, capacity: int) -> None:
        self.slot_of = np.full(samples, -1, np.int64)
        self._capacity = capacity
        self._row_in: list[int] = []
        self._keys: list[tuple[int, int]] = []
        self._heap: list[tuple[int, int, int]] = []

    def serve(self, rows: np.ndarray, first: np.ndarray, second: np.ndarray) -> Parts:
        keys = list(zip(first.tolist(), second.tolist(), strict=True))
        slots = self.slot_of[rows]
        missed: dict[int, int] = {}
        misses: list[int] = []
        new_keys: dict[int, tuple[int, int]] = {}
        for i, (row, slot, key) in enumerate(zip(rows.tolist(), slots.tolist(), keys, strict=True)):
            if slot >= 0:
                self._set_key(slot, key)
                continue
            if row not in missed:
                missed[row] = len(missed)
                misses.append(i)
            slots[i] = -1 - missed[row]
            new_keys[row] = key
        for row, key in new_keys.items():
            self._offer(row, key)
        into = self.slot_of[rows[misses]] if misses else np.empty(0, np.int64)
        admitted = np.flatnonzero(into >= 0)
        return slots, np.array(misses, np.int64), admitted, into[admitted]

    def rekey(self, slots: np.ndarray, first: np.ndarray) -> None:
        for slot, part in zip(slots.tolist(), first.tolist(), strict=True):
            self._set_key(slot, (part, self._keys[slot][1]))

    def _offer(self, row: int, key: tuple[int, int]) -> None:
        """Keeps a row where there is room, or where a row with a lower key is kept."""
        if len(self._row_in) < self._capacity:
            slot = len(self._row_in)
            self._row_in.append(row)
            self._keys.append(key)
        else:
            if not self._capacity or key <= self._keys[slot := self._lowest()]:
                return
            self.slot_of[self._row_in[slot]] = -1
            self._row_in[slot] = row
        self.slot_of[row] = slot
        self._set_key(slot, key)

    def _set_key(self, slot: int, key: tuple[int, int]) -> None:
        self._keys[slot] = key
        heapq.heappush(self._heap, (*key, slot))
        if len(self._heap) > 4 * self._capacity + 64:
            self._heap = [(*each, slot) for slot, each in enumerate(self._keys)]
            heapq.heapify(self._heap)

    def _lowest(self) -> int:
        """The slot whose row goes next."""
        while self._keys[self._heap[0][2]] != self._heap[0][:2]:
            heapq.heappop(self._heap)
        return self._heap[0][2]
