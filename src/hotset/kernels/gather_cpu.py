"""Rows of bytes gathered by index, compiled by Numba: any length, several fields in one call.

Rows are copied in vectors of up to 64 bytes. A length that is no multiple of one ends with a vector
that overlaps the one before it, so that no row needs a loop over its last bytes. Shuffled rows lie
anywhere in memory, so those that come some rows later are asked for while one is copied.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from hotset.kernels.prefetch import CACHE_LINE_BYTES, prefetch_address

AHEAD_BYTES = 4096
"""So much of the rows to come is asked for ahead, which hides the wait for memory."""
MOST_AHEAD = 24
"""Rows asked for ahead at most: a core waits for no more than so many lines at once."""


def _mover(width: int) -> Any:
    """A copy of `width` bytes between two addresses, in one register where it has room."""

    def move(typing_context: Any, source: Any, target: Any) -> Any:
        """Copies bytes; neither address need be aligned.

        Args:
            typing_context: Numba's.
            source: int64, an address.
            target: int64, an address.
        """

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            byte = ir.IntType(8)
            kind = ir.IntType(8 * width) if width <= 8 else ir.VectorType(byte, width)
            read, written = (builder.inttoptr(at, kind.as_pointer()) for at in arguments)
            builder.store(builder.load(read, align=1), written, align=1)
            return context.get_dummy_value()

        return types.void(types.int64, types.int64), generate

    return intrinsic(move)


_move_1, _move_2, _move_4, _move_8 = _mover(1), _mover(2), _mover(4), _mover(8)
_move_16, _move_32, _move_64 = _mover(16), _mover(32), _mover(64)


def _of_width(move: Any, width: int) -> Any:
    """Copies rows of exactly `width` bytes."""

    @njit(nogil=True, cache=True)
    def copy(source: Any, row_bytes: Any, rows: Any, target: Any) -> None:
        count = len(rows)
        begun = max(0, count - MOST_AHEAD)
        for i in range(begun):
            prefetch_address(source + rows[np.uint64(i + MOST_AHEAD)] * width)
            move(source + rows[np.uint64(i)] * width, target + i * width)
        for i in range(begun, count):
            move(source + rows[np.uint64(i)] * width, target + i * width)

    return copy


def _of_twice(move: Any, width: int) -> Any:
    """Copies rows of more than `width` bytes and at most twice as many."""

    @njit(nogil=True, cache=True)
    def copy(source: Any, row_bytes: Any, rows: Any, target: Any) -> None:
        last, rest = len(rows) - 1, row_bytes - width
        for i in range(len(rows)):
            ahead = source + rows[np.uint64(min(i + MOST_AHEAD, last))] * row_bytes
            prefetch_address(ahead)
            prefetch_address(ahead + row_bytes - 1)
            at, to = source + rows[np.uint64(i)] * row_bytes, target + i * row_bytes
            move(at, to)
            move(at + rest, to + rest)

    return copy


_copy_1, _copy_2, _copy_4 = _of_width(_move_1, 1), _of_width(_move_2, 2), _of_width(_move_4, 4)
_copy_8, _copy_16 = _of_width(_move_8, 8), _of_width(_move_16, 16)
_copy_to_4, _copy_to_8 = _of_twice(_move_2, 2), _of_twice(_move_4, 4)
_copy_to_16, _copy_to_32 = _of_twice(_move_8, 8), _of_twice(_move_16, 16)
_copy_to_64 = _of_twice(_move_32, 32)


@njit(nogil=True, cache=True)
def _copy_long(source: Any, row_bytes: Any, rows: Any, target: Any) -> None:
    """Copies rows of at least 64 bytes."""
    last, rest = len(rows) - 1, row_bytes - CACHE_LINE_BYTES
    ahead_rows = max(1, min(MOST_AHEAD, AHEAD_BYTES // row_bytes))
    for i in range(len(rows)):
        ahead = source + rows[np.uint64(min(i + ahead_rows, last))] * row_bytes
        at, to = source + rows[np.uint64(i)] * row_bytes, target + i * row_bytes
        for k in range(0, rest, CACHE_LINE_BYTES):
            prefetch_address(ahead + k)
            _move_64(at + k, to + k)
        prefetch_address(ahead + row_bytes - 1)
        _move_64(at + rest, to + rest)


@njit(nogil=True, cache=True)
def copy_rows(source: Any, row_bytes: Any, rows: Any, target: Any) -> None:
    """Copies rows that lie `row_bytes` apart to where they follow one another; checks nothing.

    Args:
        source: address of the first row.
        row_bytes: of each.
        rows: (B,) int64, which ones.
        target: address of B * row_bytes bytes.
    """
    if row_bytes >= CACHE_LINE_BYTES:
        _copy_long(source, row_bytes, rows, target)
    elif row_bytes > 32:
        _copy_to_64(source, row_bytes, rows, target)
    elif row_bytes > 16:
        _copy_to_32(source, row_bytes, rows, target)
    elif row_bytes == 16:
        _copy_16(source, row_bytes, rows, target)
    elif row_bytes > 8:
        _copy_to_16(source, row_bytes, rows, target)
    elif row_bytes == 8:
        _copy_8(source, row_bytes, rows, target)
    elif row_bytes > 4:
        _copy_to_8(source, row_bytes, rows, target)
    elif row_bytes == 4:
        _copy_4(source, row_bytes, rows, target)
    elif row_bytes == 3:
        _copy_to_4(source, row_bytes, rows, target)
    elif row_bytes == 2:
        _copy_2(source, row_bytes, rows, target)
    elif row_bytes == 1:
        _copy_1(source, row_bytes, rows, target)


@njit(nogil=True, cache=True)
def greatest(rows: Any) -> Any:
    """The greatest row, where a negative one counts as greater than all others; 0 of none."""
    most = np.uint64(0)
    for i in range(len(rows)):
        most = max(most, np.uint64(rows[i]))
    return most


@njit(nogil=True, cache=True)
def gather_segments(segments: Any, rows: Any, start: Any, stop: Any) -> None:
    """Copies the rows `start` to `stop` of every segment that they are part of; checks nothing.

    Args:
        segments: (S, 5) int64, each the address of a field's first row, the bytes of a row, the
            address where the segment's rows go, and which of `rows` they are: the first, and the
            end.
        rows: (B,) int64, those of all batches end to end.
        start: the first of them to be copied.
        stop: their end.
    """
    for s in range(len(segments)):
        first, end = max(segments[s, 3], start), min(segments[s, 4], stop)
        if first < end:
            row_bytes = segments[s, 1]
            target = segments[s, 2] + (first - segments[s, 3]) * row_bytes
            copy_rows(segments[s, 0], row_bytes, rows[first:end], target)
