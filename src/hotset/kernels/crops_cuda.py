"""Random crops and the weights of their pixels on CUDA, compiled by Triton."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from hotset.kernels.cropping import FUSED_FILTERS, CropField
from hotset.kernels.triton_cuda import ATTEMPTS, below, edge, seed_of, words
from hotset.ops.resample import PRECISION_BITS

# Triton reads module globals only where they are constexpr.
STEP, IS_CHEAPER_FIRST = (
    tl.constexpr(int(f)) for f in (CropField.STEP, CropField.IS_CHEAPER_FIRST)
)
REALS = tl.constexpr(5)
"""Numbers before the aspect ratios."""
BOX, BILINEAR = (tl.constexpr(FUSED_FILTERS.index(name)) for name in ("box", "bilinear"))
BITS, ONE = tl.constexpr(PRECISION_BITS), tl.constexpr(float(1 << PRECISION_BITS))
HALF = tl.constexpr(1 << (PRECISION_BITS - 1))
BOXES = tl.constexpr(8)
"""Numbers for each sample: top, left, whether the height comes first, and the taps of both axes."""

_NUMBERS = ("taps", "seed_low", "seed_high", "epoch")


@triton.jit
def _crop(
    numbers: tl.tensor, reals: tl.tensor, height: tl.tensor, width: tl.tensor, draws: tl.tensor
) -> Any:
    """(top, left, height, width) of the crop of an image, int32, as `ResizedCrop.draw_for`."""
    number = tl.load(numbers + STEP)
    least, greatest = tl.load(reals), tl.load(reals + 1)
    narrowest, widest = tl.load(reals + 2), tl.load(reals + 3)
    ratio = width.to(tl.float64) / height.to(tl.float64)
    tall = tl.where(ratio < narrowest, _whole(width.to(tl.float64) / narrowest), height)
    wide = tl.where(ratio > widest, _whole(height.to(tl.float64) * widest), width)
    top, left = (height - tall) // 2, (width - wide) // 2
    seeks = height > 0
    attempt = height * 0 + 1  # not a plain 1: a loop's variables keep the type they come with
    while seeks & (attempt <= ATTEMPTS):
        word_0, word_1, word_2, word_3 = words(draws, number, attempt)
        share = least + (greatest - least) * (word_0.to(tl.float64) * 2.0**-32)
        area = (height.to(tl.int64) * width).to(tl.float64) * share
        aspect = tl.load(reals + REALS + (word_1 >> 20))
        across, down = edge(area * aspect), edge(area / aspect)
        if (across > 0) & (across <= width) & (down > 0) & (down <= height):
            top = below(word_2, height - down + 1)
            left = below(word_3, width - across + 1)
            tall, wide = down, across
            seeks = seeks & False
        attempt += 1
    return top, left, tall, wide


@triton.jit
def _whole(value: tl.tensor) -> Any:
    """The nearest whole number, half to even, but at least 1."""
    rounder: tl.constexpr = 2.0**52
    return tl.maximum((value + rounder) - rounder, 1.0).to(tl.int32)


@triton.jit
def _weight(x: tl.tensor, FILTER: tl.constexpr) -> Any:
    if FILTER == BOX:
        weight = tl.where((x > -0.5) & (x <= 0.5), 1.0, 0.0).to(tl.float64)
    elif FILTER == BILINEAR:
        weight = tl.maximum(1.0 - tl.abs(x), 0.0)
    else:
        x = tl.abs(x)
        near = (1.5 * x - 2.5) * x * x + 1.0
        far = (((x - 5.0) * x + 8.0) * x - 4.0) * -0.5
        weight = tl.where(x < 1.0, near, tl.where(x < 2.0, far, 0.0))
    return weight


@triton.jit(
    do_not_specialize=_NUMBERS, do_not_specialize_on_alignment=("rows", "ids", "occurrence")
)
def prepare_crops(
    rows: tl.tensor,
    ids: tl.tensor,
    occurrence: tl.tensor,
    heights: tl.tensor,
    widths: tl.tensor,
    numbers: tl.tensor,
    reals: tl.tensor,
    boxes: tl.tensor,
    bounds: tl.tensor,
    fixed: tl.tensor,
    taps: tl.tensor,
    seed_low: tl.tensor,
    seed_high: tl.tensor,
    epoch: tl.tensor,
    FILTER: tl.constexpr,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    ROOM: tl.constexpr,
) -> None:
    """Draws crops; one instance also computes the weights of one axis of one sample.

    Tensors:
        rows, ids, occurrence (B,) int64, which images hold the samples, and what keys their draws;
        heights, widths (N,) int64, of the images; numbers (5,) int64, `Crop.numbers`;
        reals (5 + 4096,) float64, `Crop.reals` before `Crop.aspects`; boxes (B, 8) int32, filled:
        top, left, whether the height comes first, taps of the height and of the width;
        bounds (B, 2, 2, ROOM) int32, filled: for the height and for the width, each output pixel's
        first source pixel, then their number; fixed (B, 2, taps, ROOM) int32, filled: weights.

    Numbers: taps, room for weights; the words of the epoch's seed, and the epoch, as int32.

    Compiled in: FILTER, position in `FUSED_FILTERS`; HEIGHT and WIDTH, of the output; ROOM, a power
        of two that is neither less.
    """
    sample, axis = (tl.program_id(0) // 2).to(tl.int64), tl.program_id(0) % 2
    row = tl.load(rows + sample)
    height, width = tl.load(heights + row).to(tl.int32), tl.load(widths + row).to(tl.int32)
    draws = (
        tl.load(ids + sample),
        tl.load(occurrence + sample),
        epoch,
        seed_of(seed_low, seed_high),
    )
    top, left, tall, wide = _crop(numbers, reals, height, width, draws)
    shrinks, narrows = tall - HEIGHT, wide - WIDTH
    is_cheaper_first = tl.load(numbers + IS_CHEAPER_FIRST) == 1
    is_height_first = is_cheaper_first & (shrinks > 0) & (shrinks > 2 * narrows)
    box = boxes + sample * BOXES
    if axis == 0:
        tl.store(box, top)
        tl.store(box + 1, left)
        tl.store(box + 2, is_height_first.to(tl.int32))

    in_size, out_size = tl.where(axis == 0, tall, wide), tl.where(axis == 0, HEIGHT, WIDTH)
    scale = in_size.to(tl.float64) / out_size.to(tl.float64)
    filter_scale = tl.maximum(scale, 1.0)
    support, inverse = tl.load(reals + 4) * filter_scale, 1.0 / filter_scale
    x = tl.arange(0, ROOM)
    centre = (x.to(tl.float64) + 0.5) * scale
    first = tl.maximum(centre - support + 0.5, 0.0).to(tl.int32)
    number = tl.minimum(centre + support + 0.5, in_size.to(tl.float64)).to(tl.int32) - first
    number = tl.where(x < out_size, number, 0)
    most = tl.max(number, axis=0)
    tl.store(box + 3 + axis, most)
    place = bounds + (sample * 2 + axis) * (2 * ROOM) + x
    tl.store(place, first)
    tl.store(place + ROOM, number)
    total = centre * 0.0
    for k in range(0, most):  # one after the other: another order would round otherwise
        value = _weight(((k + first).to(tl.float64) - centre + 0.5) * inverse, FILTER)
        total += tl.where(k < number, value, 0.0)
    divisor = tl.where(total != 0.0, total, 1.0)
    place = fixed + (sample * 2 + axis) * taps.to(tl.int64) * ROOM + x
    for k in range(0, most):
        value = _weight(((k + first).to(tl.float64) - centre + 0.5) * inverse, FILTER)
        value = tl.where(k < number, value, 0.0) / divisor
        value = value * ONE + tl.where(value < 0.0, -0.5, 0.5)
        tl.store(place + k * ROOM, value.to(tl.int32))
