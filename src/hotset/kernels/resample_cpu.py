"""Random crops resized on the CPU, compiled by Numba without the GIL.

Every sample's crop is drawn, resized into a scratch image that stays in the processor's cache, and
then goes through the rest of the chain as in `hotset.kernels.numba_cpu`. Each channel by itself is
resized along one axis into a scratch plane, and from there along the other.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from hotset.kernels.columns_cpu import (
    AHEAD_FIELDS,
    AT,
    PLANES_LEFT,
    ROWS_LEFT,
    SHARE,
    STRIDE,
    TALL,
    TO_NEXT_PLANE,
    WIDE,
    axis_of,
    axis_room,
    resample_columns,
)
from hotset.kernels.cropping import CropField
from hotset.kernels.draws_cpu import draw_words
from hotset.kernels.lookup_cpu import byte_planes
from hotset.kernels.numba_cpu import chain_scratch, write_sample
from hotset.kernels.rows_cpu import plan_rows, resample_rows, rows_room
from hotset.ops.erase import TRIES

# Numba reads module globals as constants; enum members must be plain integers for it.
STEP, HEIGHT, WIDTH, FILTER, IS_CHEAPER_FIRST = (
    int(f)
    for f in (
        CropField.STEP,
        CropField.HEIGHT,
        CropField.WIDTH,
        CropField.FILTER,
        CropField.IS_CHEAPER_FIRST,
    )
)


@njit(nogil=True, cache=True)
def draw_crop(
    crop: Any, height: Any, width: Any, sample: Any, occurrence: Any, keys: Any, epoch: Any
) -> Any:
    """(top, left, height, width) of the crop of an image, as `ResizedCrop.draw_for`."""
    numbers, reals, aspects = crop
    for attempt in range(1, TRIES + 1):
        drawn = draw_words(sample, occurrence, epoch, numbers[STEP], attempt, keys[0])
        share = reals[0] + (reals[1] - reals[0]) * (np.float64(drawn[0]) * 2.0**-32)
        area = np.float64(height * width) * share
        aspect = aspects[drawn[1] >> 20]
        wide = np.int64(np.rint(np.sqrt(area * aspect)))
        tall = np.int64(np.rint(np.sqrt(area / aspect)))
        if 0 < wide <= width and 0 < tall <= height:
            top = (drawn[2] * (height - tall + 1)) >> 32
            left = (drawn[3] * (width - wide + 1)) >> 32
            return top, left, tall, wide
    ratio = np.float64(width) / np.float64(height)
    tall, wide = height, width
    if ratio < reals[2]:
        tall = np.int64(max(np.rint(np.float64(width) / reals[2]), 1.0))
    if ratio > reals[3]:
        wide = np.int64(max(np.rint(np.float64(height) * reals[3]), 1.0))
    return (height - tall) // 2, (width - wide) // 2, tall, wide


@njit(nogil=True, cache=True)
def _copy_rows(data: Any, start: Any, stride: Any, rows: Any, width: Any, out: Any) -> None:
    for y in range(rows):
        line = start + y * stride
        out[y * width : (y + 1) * width] = data[line : line + width]


@njit(nogil=True, cache=True)
def resize_plane(
    data: Any,
    start: Any,
    stride: Any,
    size: Any,
    down: Any,
    across: Any,
    is_height_first: Any,
    room: Any,
    out: Any,
) -> None:
    """One channel of a crop, from `start` on in rows `stride` apart, resized to (h*w,) `out`.

    `size` is the crop's (height, width), `down` and `across` its axes, and `room` scratch: what
    `rows_room` makes, a plane between the axes, and sums.
    """
    (tall, wide), (height, width) = size, (len(down[0]), len(across[0]))
    rows_scratch, between, sums, ahead = room
    if tall == height and wide == width:
        _copy_rows(data, start, stride, tall, wide, out)
    elif wide == width:
        resample_columns(data, start, stride, width, down, out, sums, data, ahead)
    elif tall == height:
        resample_rows(data, start, stride, height, wide, across, rows_scratch, out)
    elif is_height_first:
        resample_columns(data, start, stride, wide, down, between, sums, data, ahead)
        resample_rows(between, 0, wide, height, wide, across, rows_scratch, out)
    else:
        top = down[0][0]
        end = down[0][height - 1] + down[1][height - 1]
        resample_rows(
            data, start + top * stride, stride, end - top, wide, across, rows_scratch, between
        )
        resample_columns(between, -top * width, width, width, down, out, sums, data, ahead)


@njit(nogil=True, cache=True)
def run(
    data: Any,
    offsets: Any,
    heights: Any,
    widths: Any,
    rows_of: Any,
    ids: Any,
    occurrence: Any,
    keys: Any,
    epoch: Any,
    crop: Any,
    chain: Any,
    shapes: Any,
    is_channels_last: Any,
    out: Any,
) -> None:
    """Fills `out` for the samples `ids`.

    Args:
        data: flat uint8, the stored images (C, H, W) without gaps.
        offsets: (N,) int64, where each image begins in `data`.
        heights: (N,) int64.
        widths: (N,) int64.
        rows_of: (B,) int64, which images hold the samples.
        ids: (B,) int64 sample ids, which key the draws.
        occurrence: (B,) int64.
        keys: (2,) uint64, the epoch's seed and the run's.
        epoch: number of the epoch.
        crop: numbers, reals and aspects, as in `hotset.kernels.cropping.Crop`.
        chain: what follows, as in `hotset.kernels.numba_cpu.run`.
        shapes: (C, H, W) of a resized image and of an image in the batch.
        is_channels_last: layout of `out`.
        out: (B, C*H*W) or (B, H*W*C), unsigned integers of the output's size.
    """
    numbers, reals, _ = crop
    kind, reach = numbers[FILTER], reals[4]
    channels, height, width = shapes[0]
    tallest, widest = 1, 1
    for row in rows_of:
        tallest, widest = max(tallest, heights[row]), max(widest, widths[row])
    down_room, across_room = axis_room(tallest, height, reach), axis_room(widest, width, reach)
    rows_scratch = rows_room(widest, width)
    between = np.empty(max(tallest * width, height * widest), np.uint8)
    ahead = np.zeros(AHEAD_FIELDS, np.int64)
    room = rows_scratch, between, np.empty(max(width, widest), np.int32), ahead
    image = np.empty(channels * height * width, np.uint8)
    geometry, maps, erasures, scales, aspects, values, base = chain
    in_shape, out_shape = shapes
    out_rows, out_columns, down_by, right_by = chain_scratch(len(geometry), out_shape)
    planes = byte_planes(values, base, out_shape[2])
    if len(ids) == 0:
        return
    row = rows_of[0]
    box = draw_crop(crop, heights[row], widths[row], ids[0], occurrence[0], keys, epoch)
    for b in range(len(ids)):
        row = rows_of[b]
        stride, plane = widths[row], heights[row] * widths[row]
        top, left, tall, wide = box
        if b + 1 < len(ids):
            n = rows_of[b + 1]
            box = draw_crop(crop, heights[n], widths[n], ids[b + 1], occurrence[b + 1], keys, epoch)
            ahead[AT] = offsets[n] + box[0] * widths[n] + box[1]
            ahead[STRIDE], ahead[TALL], ahead[WIDE] = widths[n], box[2], box[3]
            ahead[TO_NEXT_PLANE] = (heights[n] - box[2]) * widths[n]
            ahead[ROWS_LEFT], ahead[PLANES_LEFT] = box[2], channels
            ahead[SHARE] = box[2] // height + 1
        else:
            ahead[:] = 0
        down = axis_of(tall, kind, reach, down_room, height)
        across = axis_of(wide, kind, reach, across_room, width)
        if wide != width:
            plan_rows(across, wide, rows_scratch)
        shrinks, narrows = tall - height, wide - width
        is_height_first = numbers[IS_CHEAPER_FIRST] == 1 and shrinks > 0 and shrinks > 2 * narrows
        start = offsets[row] + top * stride + left
        for c in range(channels):
            resize_plane(
                data,
                start + c * plane,
                stride,
                (tall, wide),
                down,
                across,
                is_height_first,
                room,
                image[c * height * width : (c + 1) * height * width],
            )
        write_sample(
            image,
            image[:0],
            ids[b],
            occurrence[b],
            keys,
            epoch,
            geometry,
            maps,
            erasures,
            scales,
            aspects,
            values,
            base,
            planes,
            in_shape,
            out_shape,
            out_rows,
            out_columns,
            down_by,
            right_by,
            is_channels_last,
            out[b],
        )
