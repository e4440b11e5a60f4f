"""Which rows a cache keeps, compiled by Numba: the same as `placement.ranking.PlainRanking`.

The slots in use form a binary heap: the slot whose row is to go next stands at its top. `keys` is
(slots, 2) int64, compared in order, the lower one goes first; `place` says where in the heap a slot
stands, so that a key can change in place; `used` is (1,), the number of slots in use.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit


@njit(nogil=True, cache=True)
def _is_before(keys: Any, a: Any, b: Any) -> Any:
    """Whether the row in slot a goes before the one in slot b."""
    return keys[a, 0] < keys[b, 0] or (keys[a, 0] == keys[b, 0] and keys[a, 1] < keys[b, 1])


@njit(nogil=True, cache=True)
def _settle(slot: Any, keys: Any, heap: Any, place: Any, used: Any) -> None:
    """Moves a slot whose key has changed to where it belongs."""
    here = place[slot]
    while here > 0:
        above = (here - 1) // 2
        if not _is_before(keys, slot, heap[above]):
            break
        heap[here] = heap[above]
        place[heap[here]] = here
        here = above
    while True:
        below = 2 * here + 1
        if below >= used:
            break
        if below + 1 < used and _is_before(keys, heap[below + 1], heap[below]):
            below += 1
        if not _is_before(keys, heap[below], slot):
            break
        heap[here] = heap[below]
        place[heap[here]] = here
        here = below
    heap[here] = slot
    place[slot] = here


@njit(nogil=True, cache=True)
def rekey(slots: Any, first: Any, keys: Any, heap: Any, place: Any, used: Any) -> None:
    """Gives slots in use a new first part of their keys."""
    for i in range(len(slots)):
        keys[slots[i], 0] = first[i]
        _settle(slots[i], keys, heap, place, used[0])


@njit(nogil=True, cache=True)
def serve(
    rows: Any,
    first: Any,
    second: Any,
    slot_of: Any,
    row_in: Any,
    keys: Any,
    heap: Any,
    place: Any,
    used: Any,
) -> Any:
    """The parts of a `Lookup`; see `placement.ranking.Ranking.serve`."""
    count, capacity = len(rows), len(row_in)
    slots, misses = np.empty(count, np.int64), np.empty(count, np.int64)
    last = np.empty(count, np.int64)
    missed = 0
    for i in range(count):
        slot = slot_of[rows[i]]
        if slot >= 0:
            slots[i] = slot
            keys[slot, 0], keys[slot, 1] = first[i], second[i]
            _settle(slot, keys, heap, place, used[0])
        elif slot == -1:
            # Until the request ends, -(2 + m) marks the row as the m-th miss.
            slot_of[rows[i]] = -2 - missed
            slots[i], misses[missed], last[missed] = -1 - missed, i, i
            missed += 1
        else:
            slots[i], last[-2 - slot] = slot + 1, i
    for m in range(missed):
        i = last[m]
        row = rows[i]
        slot_of[row] = -1
        if used[0] < capacity:
            slot = used[0]
            used[0] += 1
            heap[slot] = place[slot] = slot
        else:
            if capacity == 0:
                continue
            slot = heap[0]
            if first[i] < keys[slot, 0]:
                continue
            if first[i] == keys[slot, 0] and second[i] <= keys[slot, 1]:
                continue
            slot_of[row_in[slot]] = -1
        slot_of[row], row_in[slot] = slot, row
        keys[slot, 0], keys[slot, 1] = first[i], second[i]
        _settle(slot, keys, heap, place, used[0])
    admitted, into, kept = np.empty(missed, np.int64), np.empty(missed, np.int64), 0
    for m in range(missed):
        slot = slot_of[rows[misses[m]]]
        if slot >= 0:
            admitted[kept], into[kept] = m, slot
            kept += 1
    return slots, misses[:missed], admitted[:kept], into[:kept]
