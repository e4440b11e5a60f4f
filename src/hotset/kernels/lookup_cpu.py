"""Look-ups of long runs of bytes in a table, on 64-byte vectors, compiled by Numba."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from hotset.kernels import avx512
from hotset.kernels.avx512_tables import look_up_1, look_up_2, look_up_4
from hotset.kernels.prefetch import CACHE_LINE_BYTES, prefetch

LEAST_RUN = avx512.BLOCK if avx512.IS_AVAILABLE else 2**62
"""Pixels of a row from which on vectors are filled; more than any row where there are none."""
ROWS_AT_ONCE = 8
"""Rows between two requests for the next image; at each, the table is read into registers anew."""


@njit(nogil=True, cache=True)
def byte_planes(values: Any, base: Any, width: Any) -> Any:
    """(C, size * 256) uint8: of 256 entries the lowest bytes, then the next ones, and so on.

    Left as it is where images `width` pixels wide or values without a table need none.
    """
    planes = np.empty((len(values), values.itemsize * 256), np.uint8)
    if base == 256 and width >= LEAST_RUN:
        for c in range(len(values)):
            for k in range(values.itemsize):
                for v in range(256):
                    planes[c, k * 256 + v] = (values[c, v] >> np.uint64(8 * k)) & np.uint64(255)
    return planes


@njit(nogil=True, cache=True)
def _fill_beside(rows: Any, run: Any, fill: Any, out: Any, target: Any, width: Any) -> None:
    """Sets what no row of the run covers: both sides, and rows that are fills."""
    first, end, _ = run
    for i in range(len(rows)):
        place = np.uint64(target + i * width)
        head, tail = (first, end) if rows[i] >= 0 else (0, 0)
        for j in range(head):
            out[place + np.uint64(j)] = fill
        for j in range(tail, width):
            out[place + np.uint64(j)] = fill


@njit(nogil=True, cache=True, inline="never")
def _write_in_vectors(
    image: Any,
    rows: Any,
    columns: Any,
    run: Any,
    values: Any,
    planes: Any,
    fill_entry: Any,
    in_shape: Any,
    out: Any,
    following: Any,
) -> None:
    """As `numba_cpu._write_runs`, for runs of `LEAST_RUN` and entries of up to four bytes."""
    first, end, stride = run
    width, count, is_mirrored = len(columns), end - first, stride != 1
    plane, in_width = in_shape[1] * in_shape[2], in_shape[2]
    share = len(following) // (in_shape[0] * len(rows))
    line, position = CACHE_LINE_BYTES // following.itemsize, 0
    at_once = ROWS_AT_ONCE if share > 0 else len(rows)
    for c in range(in_shape[0]):
        parts, start, target = planes[c], c * plane + columns[first], c * len(rows) * width
        _fill_beside(rows, run, values[c, fill_entry], out, target, width)
        target += first
        for top in range(0, len(rows), at_once):
            here = min(at_once, len(rows) - top)
            for _ in range(share * here // line):
                prefetch(following, position)
                position += line
            if out.itemsize == 4:
                look_up_4(
                    out,
                    target,
                    width,
                    image,
                    start,
                    in_width,
                    rows,
                    top,
                    here,
                    count,
                    is_mirrored,
                    parts,
                )
            elif out.itemsize == 2:
                look_up_2(
                    out,
                    target,
                    width,
                    image,
                    start,
                    in_width,
                    rows,
                    top,
                    here,
                    count,
                    is_mirrored,
                    parts,
                )
            else:
                look_up_1(
                    out,
                    target,
                    width,
                    image,
                    start,
                    in_width,
                    rows,
                    top,
                    here,
                    count,
                    is_mirrored,
                    parts,
                )


@njit(nogil=True, cache=True)
def _never(
    image: Any,
    rows: Any,
    columns: Any,
    run: Any,
    values: Any,
    planes: Any,
    fill_entry: Any,
    in_shape: Any,
    out: Any,
    following: Any,
) -> None:
    """Stands where no run is long enough: the vectors must not even be compiled."""


write_long_runs = _write_in_vectors if avx512.IS_AVAILABLE else _never
"""Writes one sample whose columns read one run of at least `LEAST_RUN`."""
