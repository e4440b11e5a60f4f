"""Which samples a device keeps that has no room for all. On the host: NumPy in and out.

static      a pinned set, spread evenly or the heaviest; nothing is exchanged
next-use    those that are wanted soonest, as far as the order is known beforehand
frequency   those that were asked for most often so far
lru         those that were asked for last
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from hotset.errors import ConfigError
from hotset.placement.future import NEVER, Future
from hotset.placement.outlook import Reuse
from hotset.placement.ranking import Ranking, make_ranking

WINDOW_EPOCHS = 4
"""Times the number of samples that next-use wants to know beforehand. Drawn with replacement, 98 %
of the samples come again within so many, and a longer view hardly adds hits."""

RAGGED_POLICY = "static: samples that differ in size cannot take each other's place"
"""Why the policy is what it is for such samples."""


@dataclass(frozen=True, eq=False)
class Lookup:
    """Where the samples of one request are.

    The device reads them from the cache as it stood before the request, and from a buffer that the
    misses are copied to; then the admitted ones among the misses are copied into their slots.

    Attributes:
        slots: (B,) int64: a cache slot (0 <= slot < capacity), or -(1 + m) for the m-th of
            `misses`.
        misses: (M,) int64 places in the request of the samples to be copied, each row once,
            ascending.
        admitted: (A,) int64 which of the misses (0 <= . < M) the cache keeps from now on.
        into: (A,) int64 the slots that they take; each slot at most once.
    """

    slots: np.ndarray
    misses: np.ndarray
    admitted: np.ndarray
    into: np.ndarray

    @property
    def hits(self) -> int:
        """Places of the request for which nothing is copied."""
        return len(self.slots) - len(self.misses)


class Policy(Protocol):
    """Decides which samples lie in a cache. Its methods are called from one thread at a time.

    Attributes:
        name: "static", "next-use", "frequency" or "lru".
        capacity: slots.
        window: how many samples ahead it wants to know the order; 0: none.
    """

    name: str
    capacity: int
    window: int

    def preload(self) -> np.ndarray:
        """(P,) int64 rows that are in slots 0 to P - 1 before the first request."""
        ...

    def begin(self) -> None:
        """An epoch begins: what was announced and not asked for yet will not be asked for."""
        ...

    def announce(self, rows: np.ndarray) -> None:
        """Tells of a request to come; where `window` is positive, of each before its look-up.

        Args:
            rows: (B,) int64 rows of the request, in order.
        """
        ...

    def look_up(self, rows: np.ndarray) -> Lookup:
        """Where the samples of a request are, and which of them are kept from now on.

        Args:
            rows: (B,) int64 rows of the request, in order; 0 <= row < N.

        Raises:
            ConfigError: if `window` is positive and this is not what was announced.
        """
        ...


class Static:
    """A pinned set. No policy has more hits in permutations; see `docs/decisions/0020`.

    Without weights sample i is pinned where floor((i + 1) P / N) exceeds floor(i P / N), so that
    the misses of an order close to the samples' own are spread evenly.

    Args:
        samples: number of rows that there are.
        capacity: slots; those beyond the number of samples are not used.
        weights: (N,) how often each is asked for, in any unit; the heaviest are pinned then, and of
            equal ones the first.

    Raises:
        ConfigError: if an argument cannot be used.

    Example:
        >>> Static(6, 3).preload(), Static(4, 2, np.array([0.1, 0.4, 0.2, 0.3])).preload()
        (array([1, 3, 5]), array([1, 3]))
    """

    name = "static"
    window = 0

    def __init__(self, samples: int, capacity: int, weights: np.ndarray | None = None) -> None:
        self.capacity = _checked(samples, capacity)
        pinned = min(self.capacity, samples)
        if weights is None:
            ends = np.arange(1, samples + 1) * pinned // max(1, samples)
            self._pinned = np.flatnonzero(np.diff(ends, prepend=0))
        else:
            heaviest = np.argsort(-_checked_weights(weights, samples), kind="stable")[:pinned]
            self._pinned = np.sort(heaviest)
        self._slot_of = np.full(samples, -1, np.int64)
        self._slot_of[self._pinned] = np.arange(pinned)

    def preload(self) -> np.ndarray:
        return self._pinned

    def begin(self) -> None:
        pass

    def announce(self, rows: np.ndarray) -> None:
        pass

    def look_up(self, rows: np.ndarray) -> Lookup:
        slots = self._slot_of[rows]
        missing = np.flatnonzero(slots < 0)
        none = np.empty(0, np.int64)
        _, firsts, which = np.unique(rows[missing], return_index=True, return_inverse=True)
        # `np.unique` sorts by row, and misses are numbered as they come.
        order = np.argsort(firsts)
        number = np.empty_like(order)
        number[order] = np.arange(len(order))
        slots[missing] = -1 - number[which]
        return Lookup(slots, missing[firsts[order]], none, none)


class _Ranked:
    """A policy that keeps the highest of all rows that it has seen, by keys."""

    name: str
    window = 0

    def __init__(self, samples: int, capacity: int, first: np.ndarray | None = None) -> None:
        self.capacity = _checked(samples, capacity)
        rows = np.empty(0, np.int64) if first is None else np.asarray(first, np.int64)
        self._preloaded = rows[: self.capacity]
        if len(np.unique(rows)) < len(rows) or not _are_within(rows, samples):
            raise ConfigError(
                f"`first` must hold rows from 0 to {samples - 1:,}, each once, got {rows}"
            )
        self._ranking: Ranking = make_ranking(samples, self.capacity)
        self._clock = 0

    def preload(self) -> np.ndarray:
        return self._preloaded

    def begin(self) -> None:
        pass

    def announce(self, rows: np.ndarray) -> None:
        pass

    def _served(self, rows: np.ndarray, first: np.ndarray, second: np.ndarray) -> Lookup:
        return Lookup(*self._ranking.serve(rows, first, second))

    def _times(self, rows: np.ndarray) -> np.ndarray:
        """(B,) int64 when each place is read, and the clock goes on."""
        self._clock += len(rows)
        return np.arange(self._clock - len(rows), self._clock)


class LeastRecent(_Ranked):
    """The rows that were asked for last; empty at first.

    Args:
        samples: number of rows that there are.
        capacity: slots.

    Raises:
        ConfigError: if an argument cannot be used.
    """

    name = "lru"

    def __init__(self, samples: int, capacity: int) -> None:
        super().__init__(samples, capacity)

    def look_up(self, rows: np.ndarray) -> Lookup:
        rows = np.array(rows, np.int64)
        times = self._times(rows)
        return self._served(rows, times, times)


class Frequency(_Ranked):
    """The rows that were asked for most often, of equal ones the last; empty at first.

    All are counted, kept or not. A row that was asked for less often than every kept one is not
    kept: the weights of a sampler are learnt so without exchanging the cache's last slots.

    Args:
        samples: number of rows that there are.
        capacity: slots.

    Raises:
        ConfigError: if an argument cannot be used.
    """

    name = "frequency"

    def __init__(self, samples: int, capacity: int) -> None:
        super().__init__(samples, capacity)
        self._counts = np.zeros(samples, np.int64)

    def look_up(self, rows: np.ndarray) -> Lookup:
        rows = np.array(rows, np.int64)
        np.add.at(self._counts, rows, 1)
        return self._served(rows, self._counts[rows], self._times(rows))


class NextUse(_Ranked):
    """The rows that are wanted soonest, as far as the order is announced.

    Among requests as they are, none has more hits when all is announced (Belady's rule, with the
    right not to keep a row at all). Rows without an announced use go first; of those the one that
    was read last, which in a permutation is the one that comes back last.

    Args:
        samples: number of rows that there are.
        capacity: slots.
        window: how many samples ahead it wants to know the order; None for four times `samples`.
        first: (P,) rows to be there before the first request; those beyond the slots are left out.

    Raises:
        ConfigError: if an argument cannot be used.

    Source:
        L. A. Belady, A study of replacement algorithms for a virtual-storage computer, 1966.
    """

    name = "next-use"

    def __init__(
        self,
        samples: int,
        capacity: int,
        *,
        window: int | None = None,
        first: np.ndarray | None = None,
    ) -> None:
        super().__init__(samples, capacity, first)
        self.window = WINDOW_EPOCHS * samples if window is None else window
        if self.window < 1:
            raise ConfigError(f"`window` must be at least 1 sample, got {window}")
        self._future = Future(samples)
        rows = self._preloaded
        never = np.full(len(rows), -NEVER)
        self._ranking.serve(rows, never, np.arange(1, len(rows) + 1))

    def begin(self) -> None:
        self._rekey(self._future.forget())

    def announce(self, rows: np.ndarray) -> None:
        self._rekey(self._future.announce(np.asarray(rows, np.int64)))

    def look_up(self, rows: np.ndarray) -> Lookup:
        rows = np.array(rows, np.int64)
        self._future.pass_by(rows)
        return self._served(rows, -self._future.next_use[rows], -self._times(rows))

    def _rekey(self, rows: np.ndarray) -> None:
        """Ranks kept rows anew whose next use has become known, or unknown."""
        slots = self._ranking.slot_of[rows]
        is_kept = slots >= 0
        self._ranking.rekey(slots[is_kept], -self._future.next_use[rows[is_kept]])


def ragged_policy(name: str) -> str:
    """The sentence on what is kept of samples that differ in size: always the same ones.

    Raises:
        ConfigError: if another policy was asked for.
    """
    if name not in ("auto", "static"):
        raise ConfigError(
            f"policy={name!r} exchanges samples on the device, which must be of one size for that; "
            "these differ: take policy='static'"
        )
    return RAGGED_POLICY


def choose_policy(
    name: str,
    reuse: Reuse,
    samples: int,
    capacity: int,
    *,
    weights: np.ndarray | None = None,
    may_read_ahead: bool,
    is_future_known: bool = True,
    first: np.ndarray | None = None,
) -> tuple[Policy, str]:
    """A policy, and a sentence that says why this one.

    Args:
        name: "auto", or the policy that was asked for.
        reuse: how an epoch asks for samples.
        samples: number of rows that there are.
        capacity: slots.
        weights: (N,) of a sampler that draws by them; None where they are not known.
        may_read_ahead: whether the order can be known beforehand.
        is_future_known: whether that of later epochs can, too.
        first: (P,) rows that next-use is to begin with.

    Raises:
        ConfigError: if the policy that was asked for cannot be had, or an argument cannot be used.
    """
    chosen, why = _automatic(reuse, capacity, weights is not None, may_read_ahead)
    if name != "auto":
        chosen, why = name, "asked for"
    if chosen == "next-use":
        if not may_read_ahead:
            raise ConfigError(
                'policy="next-use" must know the order beforehand, and this sampler\'s may not be '
                'read ahead: it could draw other samples then; give policy="auto", or a sampler '
                "whose order follows from a seed of its own"
            )
        if reuse == "repeats" and not is_future_known:
            why += (
                "; only this epoch's order is known, as the sampler draws from torch's own "
                "generator: give it a generator of its own"
            )
        return NextUse(samples, capacity, first=first), f"next-use: {why}"
    if chosen == "lru":
        return LeastRecent(samples, capacity), f"lru: {why}"
    if chosen == "frequency" and weights is None:
        return Frequency(samples, capacity), f"frequency: {why}"
    if chosen in ("static", "frequency"):
        if name != "auto" and weights is not None:
            why = f"asked for; the weights are known, so the {capacity:,} heaviest samples are kept"
        return Static(samples, capacity, weights), f"static: {why}"
    raise ConfigError(
        f"`policy` must be one of auto, static, next-use, frequency, lru, got {name!r}"
    )


def _automatic(reuse: Reuse, capacity: int, is_weighted: bool, is_known: bool) -> tuple[str, str]:
    """The name of the policy that suits an order, and why."""
    if reuse == "once":
        return "static", (
            f"a permutation visits every sample once, so no other set of {capacity:,} has more hits"
        )
    if reuse == "repeats" and is_known:
        return "next-use", "samples repeat, and the order shows which of them come again soon"
    if reuse == "repeats" and is_weighted:
        return "static", (
            f"the order may not be read ahead, and the {capacity:,} heaviest samples have the most "
            "hits to be expected"
        )
    if reuse == "repeats":
        return "frequency", (
            "the order may not be read ahead and its weights are not known, so they are counted"
        )
    if reuse == "ranks" and is_known:
        return "next-use", (
            "a rank sees a part of each permutation, and later epochs show which samples it will "
            "see again soon"
        )
    if reuse == "ranks":
        return "static", (
            "a rank sees a part of each permutation, and which one may not be read ahead; then "
            f"every set of {capacity:,} has as many hits"
        )
    return "lru", "nothing is known of the order"


def _checked(samples: int, capacity: int) -> int:
    if samples < 0 or capacity < 0:
        raise ConfigError(
            f"a cache needs numbers of samples and slots from 0 on, got {samples} and {capacity}"
        )
    return capacity


def _checked_weights(weights: np.ndarray, samples: int) -> np.ndarray:
    weights = np.asarray(weights, np.float64)
    if weights.shape != (samples,) or not bool(np.all(weights >= 0)):
        raise ConfigError(
            f"`weights` must be {samples:,} numbers from 0 on, one for each sample, got an array "
            f"of shape {weights.shape}" + (f" with {weights.min()}" if weights.size else "")
        )
    return weights


def _are_within(rows: np.ndarray, samples: int) -> bool:
    return not len(rows) or bool(rows.min() >= 0 and rows.max() < samples)
