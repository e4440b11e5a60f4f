"""Look-ups of runs of bytes in a table, compiled by Numba."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from hotset.kernels import avx512, avx512_tables

BLOCK = avx512.BLOCK


# The innermost loops. Positions are unsigned and images flat: it spares the compiler the checks for
# negative indices and the row views, and each loop stands alone so that it is unrolled: half the
# time.
@njit(nogil=True, cache=True)
def _look_up(out: Any, target: Any, image: Any, source: Any, table: Any, count: Any) -> None:
    for j in range(count):
        out[target + np.uint64(j)] = table[image[source + np.uint64(j)]]


@njit(nogil=True, cache=True)
def _look_up_mirrored(
    out: Any, target: Any, image: Any, source: Any, table: Any, count: Any
) -> None:
    for j in range(count):
        out[target + np.uint64(j)] = table[image[source - np.uint64(j)]]


@njit(nogil=True, cache=True)
def look_up_plainly(
    out: Any, target: Any, image: Any, source: Any, table: Any, planes: Any, count: Any, stride: Any
) -> None:
    """A run of `count` bytes of `image`, from `source` on or backwards, looked up into `out`."""
    if stride == 1:
        _look_up(out, target, image, source, table, count)
    else:
        _look_up_mirrored(out, target, image, source, table, count)


@njit(nogil=True, cache=True, inline="always")
def look_up_in_vectors(
    out: Any, target: Any, image: Any, source: Any, table: Any, planes: Any, count: Any, stride: Any
) -> None:
    """The same, by shuffles; `planes` are the table's `byte_planes`."""
    is_mirrored = stride != 1
    if count < BLOCK or out.itemsize == 8:
        look_up_plainly(out, target, image, source, table, planes, count, stride)
    elif out.itemsize == 4:
        avx512_tables.look_up_4(out, target, image, source, count, is_mirrored, planes)
    elif out.itemsize == 2:
        avx512_tables.look_up_2(out, target, image, source, count, is_mirrored, planes)
    else:
        avx512_tables.look_up_1(out, target, image, source, count, is_mirrored, planes)


look_up_run = look_up_in_vectors if avx512.IS_AVAILABLE else look_up_plainly
"""What this processor is faster with."""


@njit(nogil=True, cache=True)
def byte_planes(values: Any, base: Any) -> Any:
    """(C, size * 256) uint8: of 256 entries the lowest bytes, then the next ones, and so on."""
    planes = np.empty((len(values), values.itemsize * 256), np.uint8)
    if base == 256:
        for c in range(len(values)):
            for k in range(values.itemsize):
                for v in range(256):
                    planes[c, k * 256 + v] = (values[c, v] >> np.uint64(8 * k)) & np.uint64(255)
    return planes
