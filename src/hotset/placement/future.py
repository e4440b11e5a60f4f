"""The order to come, as far as it has been announced: when a row is wanted next."""

from __future__ import annotations

import numpy as np

from hotset.errors import ConfigError

NEVER = 2**62
"""Stands for a next use that is not known."""
LEAST_ROOM = 1024


class Future:
    """Places in the order, counted through all epochs, and for each the next one of its row.

    Args:
        samples: number of rows that there are.

    Attributes:
        next_use: (N,) int64: the place where a row is wanted next, or `NEVER`.
        here: the place of the next request's first row.
    """

    def __init__(self, samples: int) -> None:
        self.next_use = np.full(samples, NEVER, np.int64)
        self.here = 0
        self._end = 0
        self._last = np.full(samples, -1, np.int64)
        # Place p stands at p modulo the length, which is a power of two.
        self._row_at = np.zeros(LEAST_ROOM, np.int64)
        self._then = np.zeros(LEAST_ROOM, np.int64)

    def announce(self, rows: np.ndarray) -> np.ndarray:
        """Appends rows to the order; returns (K,) those among them that were not expected before.

        Args:
            rows: (B,) int64.
        """
        if not len(rows):
            return rows
        self._make_room(len(rows))
        places = np.arange(self._end, self._end + len(rows))
        at = places & (len(self._then) - 1)
        self._row_at[at], self._then[at] = rows, NEVER
        self._end += len(rows)
        # Sorted stably by row, a row's places stand side by side and in order.
        order = np.argsort(rows, kind="stable")
        by_row = rows[order]
        is_same = by_row[1:] == by_row[:-1]
        self._then[at[order[:-1][is_same]]] = places[order[1:][is_same]]
        begins = np.flatnonzero(np.concatenate(([True], ~is_same)))
        ends = np.flatnonzero(np.concatenate((~is_same, [True])))
        unique, foremost = by_row[begins], places[order[begins]]
        is_expected = self._last[unique] >= self.here
        waiting = self._last[unique[is_expected]]
        self._then[waiting & (len(self._then) - 1)] = foremost[is_expected]
        news: np.ndarray = unique[~is_expected]
        self.next_use[news] = foremost[~is_expected]
        self._last[unique] = places[order[ends]]
        return news

    def pass_by(self, rows: np.ndarray) -> None:
        """Goes past a request, which was announced.

        Args:
            rows: (B,) int64 its rows.

        Raises:
            ConfigError: if others were announced.
        """
        at = np.arange(self.here, self.here + len(rows)) & (len(self._then) - 1)
        if self.here + len(rows) > self._end or not np.array_equal(self._row_at[at], rows):
            raise ConfigError(
                "a cache that follows the next use must be told of every request beforehand, in "
                f"order: {self._end - self.here:,} rows are announced, and the {len(rows):,} that "
                "are asked for are not the first of them"
            )
        # Of a row that stands there twice, the last one assigned stays.
        self.next_use[rows] = self._then[at]
        self.here += len(rows)

    def forget(self) -> np.ndarray:
        """Drops what was announced and has not come; returns (K,) the rows that were expected."""
        at = np.arange(self.here, self._end) & (len(self._then) - 1)
        rows = np.unique(self._row_at[at])
        self.next_use[rows] = NEVER
        self.here = self._end
        return rows

    def _make_room(self, count: int) -> None:
        waiting = self._end - self.here
        length = len(self._then)
        if waiting + count <= length:
            return
        while length < waiting + count:
            length *= 2
        places = np.arange(self.here, self._end)
        old, new = places & (len(self._then) - 1), places & (length - 1)
        for name in ("_row_at", "_then"):
            grown = np.zeros(length, np.int64)
            grown[new] = getattr(self, name)[old]
            setattr(self, name, grown)
