"""Resampling along the rows, compiled by Numba: plainly, transposed, and on 64-byte vectors.

Along the columns, neighbouring output pixels are made of neighbouring ones, and compilers make
vectors of that by themselves. So a strip of rows is transposed, resampled along its columns, and
transposed back; or, where the processor can, a window of the row is shuffled instead.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from hotset.kernels import avx512
from hotset.kernels.avx512_rows import (
    DIGITS,
    MOST_GROUPS,
    TAPS_A_LANE,
    narrow_1,
    narrow_2,
    narrow_3,
    narrow_4,
)
from hotset.kernels.columns_cpu import AHEAD_FIELDS, ROUNDING, resample_columns, to_byte
from hotset.kernels.transpose import EDGE, transpose

LANES, BLOCK = avx512.LANES, avx512.BLOCK
SHUFFLED_STRIP = 32
"""Rows that are resampled before the next sixteen columns of them: they stay in the first cache."""
TRANSPOSED_STRIP = 64
"""Rows that are transposed at a time: enough of them to outweigh the calls for each column."""


@njit(nogil=True, cache=True)
def rows_room(most_in: Any, width: Any) -> Any:
    """Scratch for rows of up to `most_in` pixels that become `width`."""
    parts = (width + LANES - 1) // LANES
    shuffles = (
        np.zeros(1, np.int64),
        np.empty(parts * BLOCK, np.uint8),
        np.empty(parts * MOST_GROUPS * DIGITS * BLOCK, np.uint8),
        np.empty(parts * MOST_GROUPS, np.uint64),
    )
    transposed = (
        np.empty(most_in * TRANSPOSED_STRIP, np.uint8),
        np.empty(width * TRANSPOSED_STRIP, np.uint8),
        np.empty(TRANSPOSED_STRIP, np.int32),
        np.zeros(AHEAD_FIELDS, np.int64),
    )
    return shuffles, transposed


@njit(nogil=True, cache=True)
def rows_plainly(data: Any, start: Any, stride: Any, rows: Any, axis: Any, out: Any) -> None:
    """Along the rows of `data`, from `start` on, `stride` apart -> (rows, out)."""
    first, number, fixed, taps = axis
    width = len(first)
    for y in range(rows):
        line, to = start + y * stride, np.uint64(y * width)
        for x in range(width):
            at, w, n = np.uint64(line + first[x]), np.uint64(x * taps), number[x]
            total = ROUNDING
            for k in range(n):
                total += np.int32(data[at + np.uint64(k)]) * fixed[w + np.uint64(k)]
            out[to + np.uint64(x)] = to_byte(np.int32(total))


@njit(nogil=True, cache=True)
def _turn(
    data: Any, start: Any, stride: Any, rows: Any, columns: Any, out: Any, to: Any, step: Any
) -> None:
    """Transposes at least 16 rows and columns; the last block overlaps the one before."""
    for r in range(0, rows, EDGE):
        row = min(r, rows - EDGE)
        for c in range(0, columns, EDGE):
            column = min(c, columns - EDGE)
            at = start + row * stride + column
            transpose(data, at, stride, out, to + column * step + row, step)


@njit(nogil=True, cache=True)
def rows_transposed(
    data: Any, start: Any, stride: Any, rows: Any, in_size: Any, axis: Any, room: Any, out: Any
) -> None:
    """The same, by transposing strips of rows of `in_size` pixels."""
    width = len(axis[0])
    if min(rows, in_size, width) < EDGE:
        rows_plainly(data, start, stride, rows, axis, out)
        return
    strip, turned, sums, nothing_ahead = room[1]
    for top in range(0, rows, TRANSPOSED_STRIP):
        first = max(min(top, rows - TRANSPOSED_STRIP), 0)
        here = min(TRANSPOSED_STRIP, rows - first)
        _turn(data, start + first * stride, stride, here, in_size, strip, 0, here)
        resample_columns(strip, 0, here, here, axis, turned, sums, strip, nothing_ahead)
        _turn(turned, 0, here, width, here, out, first * width, width)


@njit(nogil=True, cache=True)
def no_plan(axis: Any, in_size: Any, room: Any) -> None:
    """What goes before `rows_transposed`."""


@njit(nogil=True, cache=True)
def shuffle_plan(axis: Any, in_size: Any, room: Any) -> None:
    """Fills what `avx512_rows` reads, for an axis; no groups if it does not fit in its vectors."""
    first, number, fixed, taps = axis
    found, order, digits, masks = room[0]
    width = len(first)
    most = 0
    for x in range(width):
        most = max(most, number[x])
    groups = (most + TAPS_A_LANE - 1) // TAPS_A_LANE
    found[0] = 0
    if width < LANES or groups > MOST_GROUPS:
        return
    for part in range((width + LANES - 1) // LANES):
        begin = min(part * LANES, width - LANES)
        low = first[begin]
        if first[begin + LANES - 1] - low + TAPS_A_LANE > BLOCK:
            return
        for lane in range(LANES):
            for k in range(TAPS_A_LANE):
                order[part * BLOCK + lane * TAPS_A_LANE + k] = first[begin + lane] - low + k
        for group in range(groups):
            left = in_size - low - group * TAPS_A_LANE
            bits = np.uint64(0xFFFFFFFFFFFFFFFF)
            if left < BLOCK:
                bits = (np.uint64(1) << np.uint64(max(left, 0))) - np.uint64(1)
            masks[part * groups + group] = bits
            at = (part * groups + group) * DIGITS * BLOCK
            for lane in range(LANES):
                w = (begin + lane) * taps + group * TAPS_A_LANE
                for k in range(TAPS_A_LANE):
                    weight = np.int32(0)
                    if group * TAPS_A_LANE + k < number[begin + lane]:
                        weight = fixed[w + k]
                    # Signed digits: each is what is left modulo 256, from -128 to 127.
                    byte = at + lane * TAPS_A_LANE + k
                    digits[byte] = weight & 0xFF
                    weight = (weight + 128) >> 8
                    digits[byte + BLOCK] = weight & 0xFF
                    digits[byte + 2 * BLOCK] = ((weight + 128) >> 8) & 0xFF
    found[0] = groups


@njit(nogil=True, cache=True)
def rows_shuffled(
    data: Any, start: Any, stride: Any, rows: Any, in_size: Any, axis: Any, room: Any, out: Any
) -> None:
    """The same, by shuffles, where `shuffle_plan` found room for them."""
    found, order, digits, masks = room[0]
    first, width, groups = axis[0], len(axis[0]), found[0]
    if groups == 0:
        rows_transposed(data, start, stride, rows, in_size, axis, room, out)
        return
    for top in range(0, rows, SHUFFLED_STRIP):
        here = min(SHUFFLED_STRIP, rows - top)
        for part in range((width + LANES - 1) // LANES):
            begin = min(part * LANES, width - LANES)
            at, to = start + top * stride + first[begin], top * width + begin
            if groups == 1:
                narrow_1(data, at, stride, here, out, to, width, order, digits, masks, part)
            elif groups == 2:
                narrow_2(data, at, stride, here, out, to, width, order, digits, masks, part)
            elif groups == 3:
                narrow_3(data, at, stride, here, out, to, width, order, digits, masks, part)
            else:
                narrow_4(data, at, stride, here, out, to, width, order, digits, masks, part)


plan_rows = shuffle_plan if avx512.IS_AVAILABLE else no_plan
resample_rows = rows_shuffled if avx512.IS_AVAILABLE else rows_transposed
"""What this processor is faster with; `plan_rows` goes before it."""
