"""Random crops resized on CUDA, compiled by Triton: two launches per call.

The first draws each sample's crop and computes what its output pixels are made of, on both axes.
In the second, an instance makes one tile of one sample. Between the axes the values are rounded to
bytes; so that nothing has to lie in memory in between, every output pixel makes the few bytes that
it needs anew.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from hotset.kernels.cropping import FUSED_FILTERS, Crop, CropField
from hotset.kernels.triton_cuda import ATTEMPTS, OPTIONS, below, edge, keys_of, seed_of, words
from hotset.ops.op import Shape
from hotset.ops.resample import PRECISION_BITS, most_taps
from hotset.rng import Draws
from hotset.sample.ragged import Ragged

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
PIXELS_PER_TILE = 256
_KEYS = ("seed_low", "seed_high", "epoch")


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


@triton.jit(do_not_specialize=_KEYS, do_not_specialize_on_alignment=("rows", "ids", "occurrence"))
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


@triton.jit
def _to_byte(total: tl.tensor) -> Any:
    return tl.minimum(tl.maximum(total >> BITS, 0), 255)


@triton.jit(do_not_specialize_on_alignment=("rows",))
def resample(
    data: tl.tensor,
    offsets: tl.tensor,
    heights: tl.tensor,
    widths: tl.tensor,
    rows: tl.tensor,
    boxes: tl.tensor,
    bounds: tl.tensor,
    fixed: tl.tensor,
    taps: tl.tensor,
    out: tl.tensor,
    CHANNELS: tl.constexpr,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    ROOM: tl.constexpr,
    PIXELS: tl.constexpr,
) -> None:
    """Fills `out` (B, C, h, w) uint8; one instance makes `PIXELS` pixels of one sample.

    `data` flat uint8, and `offsets`, where its images begin; the others as in `prepare_crops`.
    """
    plane: tl.constexpr = HEIGHT * WIDTH
    tiles: tl.constexpr = (plane + PIXELS - 1) // PIXELS
    # A resident set can exceed 2**31 bytes: offsets of images are int64, those within one int32.
    sample = (tl.program_id(0) // tiles).to(tl.int64)
    row = tl.load(rows + sample)
    height, width = tl.load(heights + row).to(tl.int32), tl.load(widths + row).to(tl.int32)
    box = boxes + sample * BOXES
    top, left, is_height_first = tl.load(box), tl.load(box + 1), tl.load(box + 2) == 1

    pixel = (tl.program_id(0) % tiles) * PIXELS + tl.arange(0, PIXELS)
    is_pixel = pixel < plane
    y, x = pixel // WIDTH, pixel % WIDTH
    # The axis that is resized first is summed inside, the other one around it.
    inner_axis, outer_axis = tl.where(is_height_first, 0, 1), tl.where(is_height_first, 1, 0)
    inner, outer = tl.where(is_height_first, y, x), tl.where(is_height_first, x, y)
    inner_step, outer_step = (
        tl.where(is_height_first, width, 1),
        tl.where(is_height_first, 1, width),
    )
    inner_taps, outer_taps = tl.load(box + 3 + inner_axis), tl.load(box + 3 + outer_axis)
    inner_bounds = bounds + (sample * 2 + inner_axis) * (2 * ROOM) + inner
    outer_bounds = bounds + (sample * 2 + outer_axis) * (2 * ROOM) + outer
    inner_first = tl.load(inner_bounds, mask=is_pixel, other=0)
    outer_first = tl.load(outer_bounds, mask=is_pixel, other=0)
    inner_number = tl.load(inner_bounds + ROOM, mask=is_pixel, other=0)
    outer_number = tl.load(outer_bounds + ROOM, mask=is_pixel, other=0)
    inner_fixed = fixed + (sample * 2 + inner_axis) * taps.to(tl.int64) * ROOM + inner
    outer_fixed = fixed + (sample * 2 + outer_axis) * taps.to(tl.int64) * ROOM + outer

    image = data + tl.load(offsets + row) + top.to(tl.int64) * width + left
    place = inner_first * inner_step + outer_first * outer_step
    target = out + sample * (CHANNELS * plane) + pixel
    for channel in range(0, CHANNELS):
        source = image + channel * (height * width)
        total = tl.full((PIXELS,), HALF, tl.int32)
        for o in range(0, outer_taps):
            is_outer = o < outer_number
            inside = tl.full((PIXELS,), HALF, tl.int32)
            for k in range(0, inner_taps):
                reads = is_outer & (k < inner_number)
                value = tl.load(source + place + o * outer_step + k * inner_step, reads, other=0)
                weight = tl.load(inner_fixed + k * ROOM, mask=reads, other=0)
                inside += value.to(tl.int32) * weight
            weight = tl.load(outer_fixed + o * ROOM, mask=is_outer, other=0)
            total += _to_byte(inside) * weight
        tl.store(target + channel * plane, _to_byte(total).to(tl.uint8), mask=is_pixel)


class ResampleKernel:
    """Crops and resizes images of differing sizes, in two launches per call.

    Args:
        crop: what to execute; its arrays are copied to the device once.
        shape: (C, h, w) of what it puts out.
        device: where the images lie and the batches are made.
    """

    def __init__(self, crop: Crop, shape: Shape, device: torch.device) -> None:
        self._shape, self._device = shape, device
        self._filter = int(crop.numbers[CropField.FILTER])
        self._room = triton.next_power_of_2(max(shape[1:]))
        self._pixels = min(PIXELS_PER_TILE, triton.next_power_of_2(shape[1] * shape[2]))
        arrays = crop.numbers, np.concatenate((crop.reals, crop.aspects))
        self._uploaded = [torch.from_numpy(array).to(device) for array in arrays]
        self._seen: tuple[Ragged, int] | None = None

    def run(self, source: Ragged, rows: Tensor, draws: Draws) -> Tensor:
        """The batch: (B, C, h, w) uint8.

        Args:
            source: the images, on the device.
            rows: (B,) int64, which of them hold the samples, on the device.
            draws: the batch's random words, its tensors on the device.
        """
        count, device = len(rows), self._device
        channels, height, width = self._shape
        out = torch.empty((count, *self._shape), dtype=torch.uint8, device=device)
        if count == 0:
            return out
        taps = self._taps(source)
        boxes = torch.empty((count, BOXES.value), dtype=torch.int32, device=device)
        bounds = torch.empty((count, 2, 2, self._room), dtype=torch.int32, device=device)
        fixed = torch.empty((count, 2, taps, self._room), dtype=torch.int32, device=device)
        rows = rows.contiguous()
        sizes = {"HEIGHT": height, "WIDTH": width, "ROOM": self._room}
        # Triton launches on the current device, whatever device the tensors are on.
        with torch.cuda.device(device) if device.type == "cuda" else nullcontext():
            prepare_crops[(2 * count,)](
                rows,
                draws.ids.contiguous(),
                draws.occurrence.contiguous(),
                source.heights,
                source.widths,
                *self._uploaded,
                boxes,
                bounds,
                fixed,
                taps,
                *(keys_of(draws)[k] for k in (0, 1, 4)),
                FILTER=self._filter,
                **sizes,
                **OPTIONS,
            )
            resample[(count * triton.cdiv(height * width, self._pixels),)](
                source.data,
                source.offsets,
                source.heights,
                source.widths,
                rows,
                boxes,
                bounds,
                fixed,
                taps,
                out,
                CHANNELS=channels,
                PIXELS=self._pixels,
                **sizes,
                **OPTIONS,
            )
        return out

    def _taps(self, source: Ragged) -> int:
        """Room for weights of the largest image; the same source comes with every batch."""
        if self._seen is None or self._seen[0] is not source:
            name = FUSED_FILTERS[self._filter]
            axes = ((source.heights, self._shape[1]), (source.widths, self._shape[2]))
            taps = max(most_taps(int(sizes.max()), out, name) for sizes, out in axes)
            self._seen = source, taps
        return self._seen[1]
