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
from hotset.kernels.crops_cuda import BITS, BOXES, HALF, prepare_crops
from hotset.kernels.triton_cuda import OPTIONS, keys_of
from hotset.ops.op import Shape
from hotset.ops.resample import most_taps
from hotset.rng import Draws
from hotset.sample.ragged import Ragged

PIXELS_PER_TILE = 256


@triton.jit
def _to_byte(total: tl.tensor) -> Any:
    return tl.minimum(tl.maximum(total >> BITS, 0), 255)


@triton.jit(do_not_specialize=("taps",), do_not_specialize_on_alignment=("rows",))
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
        self._seen: tuple[Ragged, tuple[Tensor, ...], int] | None = None

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
        (data, offsets, heights, widths), taps = self._images(source)
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
                heights,
                widths,
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
                data,
                offsets,
                heights,
                widths,
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

    def _images(self, source: Ragged) -> tuple[tuple[Tensor, ...], int]:
        """The images' memory, offsets and sizes, and room for the weights of the largest.

        The same source comes with every batch.
        """
        if self._seen is None or self._seen[0] is not source:
            name = FUSED_FILTERS[self._filter]
            most = source.most or (int(source.heights.max()), int(source.widths.max()))
            axes = zip(most, self._shape[1:], strict=True)
            taps = max(most_taps(edge, out, name) for edge, out in axes)
            parts = (source.data, source.offsets, source.heights, source.widths)
            self._seen = source, tuple(part.contiguous() for part in parts), taps
        return self._seen[1:]
