"""Padding leaves of differing shapes, and putting them end to end, compiled by Numba.

Values are moved as integers of their size. Positions are unsigned, since signed ones would be
looked at for whether they count from the end.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit


@njit(nogil=True, cache=True)
def pad_lines(
    data: Any, starts: Any, sizes: Any, width: Any, is_left: Any, fill: Any, out: Any
) -> None:
    """Pads, or cuts, each line to `width` values.

    Args:
        data: (values,) integers.
        starts: (B,) int64, where each line starts in `data`.
        sizes: (B,) int64, its values.
        width: values of a line of `out`.
        is_left: whether it is padded, and cut, before its values.
        fill: what it is padded with.
        out: (B * width,) of data's dtype.
    """
    for row in range(len(starts)):
        size = min(sizes[row], width)
        at, to = np.uint64(starts[row]), np.uint64(row * width)
        gap = np.uint64(width - size)
        if is_left:
            at += np.uint64(sizes[row] - size)
            for place in range(gap):
                out[to + np.uint64(place)] = fill
            to += gap
        for place in range(size):
            out[to + np.uint64(place)] = data[at + np.uint64(place)]
        if not is_left:
            to += np.uint64(size)
            for place in range(gap):
                out[to + np.uint64(place)] = fill


@njit(nogil=True, cache=True)
def pad_boxes(
    data: Any, starts: Any, shapes: Any, shape: Any, left: Any, fill: Any, out: Any
) -> None:
    """The same for leaves of several axes: their last one is copied line by line.

    Args:
        data: (values,) integers.
        starts: (B,) int64, where each leaf starts in `data`.
        shapes: (B, axes) int64.
        shape: (axes,) int64 that every leaf is padded, or cut, to.
        left: the axis that is padded, and cut, before its values; -1 for none.
        fill: what it is padded with.
        out: (B * values of shape,) of data's dtype.
    """
    last = len(shape) - 1
    volume = 1
    for edge in shape:
        volume *= edge
    for place in range(len(out)):
        out[place] = fill
    for row in range(len(starts)):
        lines = 1
        for axis in range(last):
            lines *= min(shapes[row, axis], shape[axis])
        size = min(shapes[row, last], shape[last])
        for line in range(lines):
            rest, stride, out_stride = line, shapes[row, last], shape[last]
            at, to = starts[row], row * volume
            if left == last:
                at += shapes[row, last] - size
                to += shape[last] - size
            for axis in range(last - 1, -1, -1):
                edge = min(shapes[row, axis], shape[axis])
                here = rest % edge
                rest //= edge
                if left == axis:
                    at += (shapes[row, axis] - edge) * stride
                    to += (shape[axis] - edge) * out_stride
                at += here * stride
                to += here * out_stride
                stride *= shapes[row, axis]
                out_stride *= shape[axis]
            source, target = np.uint64(at), np.uint64(to)
            for place in range(size):
                out[target + np.uint64(place)] = data[source + np.uint64(place)]


@njit(nogil=True, cache=True)
def join_lines(data: Any, starts: Any, sizes: Any, out: Any) -> None:
    """Puts lines end to end.

    Args:
        data: (values,) integers.
        starts: (B,) int64, where each line starts in `data`.
        sizes: (B,) int64, its values.
        out: (sum of sizes,) of data's dtype.
    """
    to = np.uint64(0)
    for row in range(len(starts)):
        at, size = np.uint64(starts[row]), np.uint64(sizes[row])
        for place in range(size):
            out[to + np.uint64(place)] = data[at + np.uint64(place)]
        to += size
