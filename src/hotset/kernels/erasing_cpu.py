"""Rectangles that take one value, drawn and written by code that Numba compiles."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from hotset.kernels.draws_cpu import draw_words
from hotset.kernels.program import Field, Kind
from hotset.ops.erase import TRIES

# Numba reads module globals as constants; enum members must be plain integers for it.
KIND, STEP, THRESHOLD, TOP, LEFT = (
    int(f) for f in (Field.KIND, Field.STEP, Field.THRESHOLD, Field.TOP, Field.LEFT)
)
HEIGHT, WIDTH, GATE_STEP, GATE_THRESHOLD = (
    int(f) for f in (Field.HEIGHT, Field.WIDTH, Field.GATE_STEP, Field.GATE_THRESHOLD)
)
RANDOM_ERASE = int(Kind.RANDOM_ERASE)


@njit(nogil=True, cache=True)
def rectangle_of(
    row: Any, scale: Any, aspects: Any, sample: Any, occurrence: Any, keys: Any, epoch: Any
) -> Any:
    """(top, left, height, width) of one erasure of one sample; height 0 where there is none."""
    if row[GATE_STEP] >= 0:
        gate = draw_words(sample, occurrence, epoch, row[GATE_STEP], 0, keys[0])
        if gate[0] >= row[GATE_THRESHOLD]:
            return 0, 0, 0, 0
    words = draw_words(sample, occurrence, epoch, row[STEP], 0, keys[0])
    if row[KIND] != RANDOM_ERASE:
        height, width = row[TOP], row[LEFT]
        top = (words[0] * (row[HEIGHT] - height + 1)) >> 32
        left = (words[1] * (row[WIDTH] - width + 1)) >> 32
        return top, left, height, width
    if words[0] >= row[THRESHOLD]:
        return 0, 0, 0, 0
    for attempt in range(1, TRIES + 1):
        words = draw_words(sample, occurrence, epoch, row[STEP], attempt, keys[0])
        share = scale[0] + (scale[1] - scale[0]) * (np.float64(words[0]) * 2.0**-32)
        area = np.float64(row[HEIGHT] * row[WIDTH]) * share
        aspect = aspects[words[1] >> 20]
        height = np.int64(np.rint(np.sqrt(area * aspect)))
        width = np.int64(np.rint(np.sqrt(area / aspect)))
        if height < row[HEIGHT] and width < row[WIDTH]:
            top = (words[2] * (row[HEIGHT] - height + 1)) >> 32
            left = (words[3] * (row[WIDTH] - width + 1)) >> 32
            return top, left, height, width
    return 0, 0, 0, 0


@njit(nogil=True, cache=True)
def erase(out: Any, out_shape: Any, rectangle: Any, values: Any, entry: Any, is_last: Any) -> None:
    """Sets a rectangle (top, left, height, width) of one flat image to an entry per channel."""
    top, left, height, width = rectangle
    for c in range(out_shape[0]):
        for i in range(top, top + height):
            for j in range(left, left + width):
                if is_last:
                    out[(i * out_shape[2] + j) * out_shape[0] + c] = values[c, entry]
                else:
                    out[(c * out_shape[1] + i) * out_shape[2] + j] = values[c, entry]
