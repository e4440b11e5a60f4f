"""Resampling along the columns, and the weights of either axis, compiled by Numba.

An axis of a crop is (first, number, fixed, taps): of each output pixel the first source pixel, how
many there are, and `taps` weights in units of 2**-22, end to end.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from hotset.kernels.cropping import FUSED_FILTERS
from hotset.kernels.prefetch import CACHE_LINE_BYTES, prefetch_far
from hotset.ops.resample import PRECISION_BITS

BOX, BILINEAR = FUSED_FILTERS.index("box"), FUSED_FILTERS.index("bilinear")
ONE = float(1 << PRECISION_BITS)
ROUNDING = np.int32(1 << (PRECISION_BITS - 1))
SHIFT = np.int32(PRECISION_BITS)

# What is still to be fetched of the next sample's crop, and how many rows at a time.
AT, ROWS_LEFT, PLANES_LEFT, WIDE, TALL, STRIDE, TO_NEXT_PLANE, SHARE = range(8)
AHEAD_FIELDS = 8


@njit(nogil=True, cache=True)
def _weight(kind: Any, x: Any) -> Any:
    x = abs(x) if kind != BOX else x
    if kind == BILINEAR:
        return 1.0 - x if x < 1.0 else 0.0
    if kind == BOX:
        return 1.0 if -0.5 < x <= 0.5 else 0.0
    if x < 1.0:
        return (1.5 * x - 2.5) * x * x + 1.0
    if x < 2.0:
        return (((x - 5.0) * x + 8.0) * x - 4.0) * -0.5
    return 0.0


@njit(nogil=True, cache=True)
def most_taps(in_size: Any, out_size: Any, reach: Any) -> Any:
    """How many source pixels one output pixel can be made of."""
    return np.int64(np.ceil(reach * max(in_size / out_size, 1.0))) * 2 + 1


@njit(nogil=True, cache=True)
def fill_weights(
    in_size: Any, kind: Any, reach: Any, taps: Any, first: Any, count: Any, fixed: Any, row: Any
) -> None:
    """Fills `first` and `count` (out,) int64 and `fixed` (out * taps,) int32; `row` is scratch."""
    scale = np.float64(in_size) / np.float64(len(first))
    filter_scale = max(scale, 1.0)
    support, inverse = reach * filter_scale, 1.0 / filter_scale
    for x in range(len(first)):
        centre = (x + 0.5) * scale
        low = np.int64(max(centre - support + 0.5, 0.0))
        number = np.int64(min(centre + support + 0.5, np.float64(in_size))) - low
        total = 0.0
        for k in range(number):
            row[k] = _weight(kind, (k + low - centre + 0.5) * inverse)
            total += row[k]
        for k in range(number):
            value = row[k] / total if total != 0.0 else row[k]
            fixed[x * taps + k] = np.int32(value * ONE + (-0.5 if value < 0.0 else 0.5))
        for k in range(number, taps):
            fixed[x * taps + k] = 0
        first[x], count[x] = low, number


@njit(nogil=True, cache=True)
def axis_of(in_size: Any, kind: Any, reach: Any, room: Any, out_size: Any) -> Any:
    """First pixels, their numbers, weights and taps of one axis of one crop."""
    first, number, fixed, row = room
    taps = most_taps(in_size, out_size, reach)
    fill_weights(in_size, kind, reach, taps, first, number, fixed, row)
    return first, number, fixed, taps


@njit(nogil=True, cache=True)
def axis_room(most_in: Any, out_size: Any, reach: Any) -> Any:
    """Room for what `axis_of` fills, for crops of up to `most_in` pixels."""
    taps = most_taps(most_in, out_size, reach)
    return (
        np.empty(out_size, np.int64),
        np.empty(out_size, np.int64),
        np.empty(out_size * taps, np.int32),
        np.empty(taps, np.float64),
    )


# Sums over rows: one function for each number of rows, so that the sums stay in registers and the
# loop over the columns becomes vectors.
@njit(nogil=True, cache=True)
def to_byte(total: Any) -> Any:
    """A sum in units of 2**-22 as a byte, clipped."""
    return np.uint8(min(max(total >> SHIFT, np.int32(0)), np.int32(255)))


@njit(nogil=True, cache=True)
def _sum_2(out: Any, to: Any, data: Any, at: Any, step: Any, w: Any, count: Any) -> None:
    w0, w1, s1 = w[0], w[1], at + step
    for j in range(count):
        total = ROUNDING + np.int32(data[at + j]) * w0 + np.int32(data[s1 + j]) * w1
        out[to + j] = to_byte(np.int32(total))


@njit(nogil=True, cache=True)
def _sum_3(out: Any, to: Any, data: Any, at: Any, step: Any, w: Any, count: Any) -> None:
    w0, w1, w2, s1, s2 = w[0], w[1], w[2], at + step, at + step + step
    for j in range(count):
        total = (
            ROUNDING
            + np.int32(data[at + j]) * w0
            + np.int32(data[s1 + j]) * w1
            + np.int32(data[s2 + j]) * w2
        )
        out[to + j] = to_byte(np.int32(total))


@njit(nogil=True, cache=True)
def _sum_4(out: Any, to: Any, data: Any, at: Any, step: Any, w: Any, count: Any) -> None:
    w0, w1, w2, w3 = w[0], w[1], w[2], w[3]
    s1, s2, s3 = at + step, at + step + step, at + step + step + step
    for j in range(count):
        total = (
            ROUNDING
            + np.int32(data[at + j]) * w0
            + np.int32(data[s1 + j]) * w1
            + np.int32(data[s2 + j]) * w2
            + np.int32(data[s3 + j]) * w3
        )
        out[to + j] = to_byte(np.int32(total))


@njit(nogil=True, cache=True)
def _sum_many(
    out: Any, to: Any, data: Any, at: Any, step: Any, w: Any, number: Any, count: Any, sums: Any
) -> None:
    for j in range(count):
        sums[j] = ROUNDING
    for k in range(number):
        weight = w[k]
        for j in range(count):
            sums[j] = np.int32(sums[j] + np.int32(data[at + j]) * weight)
        at += step
    for j in range(count):
        out[to + j] = to_byte(sums[j])


@njit(nogil=True, cache=True)
def _fetch(pixels: Any, ahead: Any) -> None:
    """Asks for a few more rows of the next sample's crop."""
    for _ in range(ahead[SHARE]):
        if ahead[ROWS_LEFT] == 0:
            if ahead[PLANES_LEFT] <= 1:
                return
            ahead[PLANES_LEFT] -= 1
            ahead[ROWS_LEFT] = ahead[TALL]
            ahead[AT] += ahead[TO_NEXT_PLANE]
        at, end = ahead[AT], ahead[AT] + ahead[WIDE] - 1
        while at < end:
            prefetch_far(pixels, at)
            at += CACHE_LINE_BYTES
        prefetch_far(pixels, end)
        ahead[AT] += ahead[STRIDE]
        ahead[ROWS_LEFT] -= 1


@njit(nogil=True, cache=True)
def resample_columns(
    data: Any,
    start: Any,
    stride: Any,
    columns: Any,
    axis: Any,
    out: Any,
    sums: Any,
    pixels: Any,
    ahead: Any,
) -> None:
    """Along the columns: rows of `data`, from `start` on, `stride` apart -> (out, columns)."""
    first, number, fixed, taps = axis
    count, step = np.uint64(columns), np.uint64(stride)
    for y in range(len(first)):
        _fetch(pixels, ahead)
        at, to, n = np.uint64(start + first[y] * stride), np.uint64(y * columns), number[y]
        w = fixed[y * taps : (y + 1) * taps]
        if n == 3:
            _sum_3(out, to, data, at, step, w, count)
        elif n == 4:
            _sum_4(out, to, data, at, step, w, count)
        elif n == 2:
            _sum_2(out, to, data, at, step, w, count)
        else:
            _sum_many(out, to, data, at, step, w, n, count, sums)
