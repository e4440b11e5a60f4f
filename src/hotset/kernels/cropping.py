"""Lowering a random crop with a resize: its numbers as arrays that a kernel can read. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from hotset.ops.erase import aspect_table
from hotset.ops.resample import FILTERS, Filter, ResizedCrop


class CropField(IntEnum):
    """Entries of `Crop.numbers`."""

    STEP = 0
    HEIGHT = 1  # of what it puts out
    WIDTH = 2
    FILTER = 3  # position in FUSED_FILTERS
    IS_CHEAPER_FIRST = 4
    FIELDS = 5


FUSED_FILTERS: tuple[Filter, ...] = ("box", "bilinear", "bicubic")
"""Filters whose weights are sums, products and quotients, and so the same bits everywhere."""


@dataclass(frozen=True, eq=False)
class Crop:
    """A random crop with a resize, as a kernel reads it.

    Attributes:
        numbers: (5,) int64, as in `CropField`.
        reals: (5,) float64, least and greatest area, narrowest and widest ratio, and how far the
            filter reaches.
        aspects: (4096,) float64, aspect ratios.
    """

    numbers: np.ndarray
    reals: np.ndarray
    aspects: np.ndarray


def lower_crop(op: ResizedCrop) -> Crop | str:
    """The arrays of an operation, or why a kernel cannot do it."""
    if op.filter not in FUSED_FILTERS:
        return f"the {op.filter} filter has no fused form"
    is_cheaper_first = int(op.order == "cheaper first")
    number = FUSED_FILTERS.index(op.filter)
    return Crop(
        np.array([op.step, *op.size, number, is_cheaper_first], dtype=np.int64),
        np.array([*op.scale, min(op.ratio), max(op.ratio), FILTERS[op.filter][1]]),
        aspect_table(op.ratio),
    )
