"""Random crops resized on the CPU, compiled by Numba without the GIL.

Every sample's crop is drawn, resized into a scratch image that stays in the processor's cache, and
then goes through the rest of the chain as in `hotset.kernels.numba_cpu`. Each channel by itself is
resized along one axis into a scratch plane, and from there along the other.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from hotset.kernels import avx512
from hotset.kernels.cropping import FUSED_FILTERS, CropField
from hotset.kernels.numba_cpu import byte_planes, chain_scratch, draw_words, write_sample
from hotset.kernels.prefetch import CACHE_LINE_BYTES, prefetch_far
from hotset.ops.erase import TRIES
from hotset.ops.resample import PRECISION_BITS

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
BOX, BILINEAR = FUSED_FILTERS.index("box"), FUSED_FILTERS.index("bilinear")
ONE = float(1 << PRECISION_BITS)
ROUNDING = np.int32(1 << (PRECISION_BITS - 1))
SHIFT = np.int32(PRECISION_BITS)
LANES, BLOCK, DIGITS, TAPS_A_LANE = avx512.LANES, avx512.BLOCK, avx512.DIGITS, avx512.TAPS_A_LANE
MOST_GROUPS = avx512.MOST_GROUPS
STRIP = 32
"""Rows that are resampled before the next sixteen columns of them: they stay in the first cache."""


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
def _axis(in_size: Any, kind: Any, reach: Any, room: Any, out_size: Any) -> Any:
    """First pixels, their numbers, weights and taps of one axis of one crop."""
    first, number, fixed, row = room
    taps = most_taps(in_size, out_size, reach)
    fill_weights(in_size, kind, reach, taps, first, number, fixed, row)
    return first, number, fixed, taps


@njit(nogil=True, cache=True)
def _byte(total: Any) -> Any:
    return np.uint8(min(max(total >> SHIFT, np.int32(0)), np.int32(255)))


# Sums over rows: one function for each number of rows, so that the sums stay in registers and the
# loop over the columns becomes vectors.
@njit(nogil=True, cache=True)
def _sum_2(out: Any, to: Any, data: Any, at: Any, step: Any, w: Any, count: Any) -> None:
    w0, w1, s1 = w[0], w[1], at + step
    for j in range(count):
        total = ROUNDING + np.int32(data[at + j]) * w0 + np.int32(data[s1 + j]) * w1
        out[to + j] = _byte(np.int32(total))


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
        out[to + j] = _byte(np.int32(total))


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
        out[to + j] = _byte(np.int32(total))


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
        out[to + j] = _byte(sums[j])


AT, ROWS_LEFT, PLANES_LEFT, WIDE, TALL, STRIDE, TO_NEXT_PLANE, SHARE = range(8)


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


@njit(nogil=True, cache=True)
def resample_rows(data: Any, start: Any, stride: Any, rows: Any, axis: Any, out: Any) -> None:
    """Along the rows of `data`, from `start` on, `stride` apart -> (rows, out)."""
    first, number, fixed, taps = axis
    width = len(first)
    for y in range(rows):
        line, to = start + y * stride, np.uint64(y * width)
        for x in range(width):
            total, at, w = ROUNDING, np.uint64(line + first[x]), np.uint64(x * taps)
            for k in range(number[x]):
                total = np.int32(
                    total + np.int32(data[at + np.uint64(k)]) * fixed[w + np.uint64(k)]
                )
            out[to + np.uint64(x)] = _byte(total)


@njit(nogil=True, cache=True)
def _plan_vectors(axis: Any, in_size: Any, order: Any, digits: Any, masks: Any) -> Any:
    """Fills what `avx512.narrow_*` reads; how many groups of four taps, 0 if it does not fit."""
    first, number, fixed, taps = axis
    width = len(first)
    most = 0
    for x in range(width):
        most = max(most, number[x])
    groups = (most + TAPS_A_LANE - 1) // TAPS_A_LANE
    if width < LANES or groups > MOST_GROUPS:
        return 0
    for part in range((width + LANES - 1) // LANES):
        begin = min(part * LANES, width - LANES)
        low = first[begin]
        if first[begin + LANES - 1] - low + TAPS_A_LANE > BLOCK:
            return 0
        for lane in range(LANES):
            for k in range(TAPS_A_LANE):
                order[part * BLOCK + lane * TAPS_A_LANE + k] = first[begin + lane] - low + k
        for group in range(groups):
            left = in_size - low - group * TAPS_A_LANE
            bits = np.uint64(0xFFFFFFFFFFFFFFFF)
            if left < BLOCK:
                bits = (np.uint64(1) << np.uint64(max(left, 0))) - np.uint64(1)
            masks[part * groups + group] = bits
            at = (part * groups + group) * DIGITS * BLOCK
            for lane in range(LANES):
                w = (begin + lane) * taps + group * TAPS_A_LANE
                for k in range(TAPS_A_LANE):
                    weight = np.int32(0)
                    if group * TAPS_A_LANE + k < number[begin + lane]:
                        weight = fixed[w + k]
                    # Signed digits: each is what is left modulo 256, from -128 to 127.
                    byte = at + lane * TAPS_A_LANE + k
                    digits[byte] = weight & 0xFF
                    weight = (weight + 128) >> 8
                    digits[byte + BLOCK] = weight & 0xFF
                    digits[byte + 2 * BLOCK] = ((weight + 128) >> 8) & 0xFF
    return groups


@njit(nogil=True, cache=True)
def _resample_rows_in_vectors(
    data: Any, start: Any, stride: Any, rows: Any, width: Any, first: Any, plan: Any, out: Any
) -> None:
    groups, order, digits, masks = plan
    for top in range(0, rows, STRIP):
        here = min(STRIP, rows - top)
        for part in range((width + LANES - 1) // LANES):
            begin = min(part * LANES, width - LANES)
            at, to = start + top * stride + first[begin], top * width + begin
            if groups == 1:
                avx512.narrow_1(data, at, stride, here, out, to, width, order, digits, masks, part)
            elif groups == 2:
                avx512.narrow_2(data, at, stride, here, out, to, width, order, digits, masks, part)
            elif groups == 3:
                avx512.narrow_3(data, at, stride, here, out, to, width, order, digits, masks, part)
            else:
                avx512.narrow_4(data, at, stride, here, out, to, width, order, digits, masks, part)


@njit(nogil=True, cache=True)
def _copy_rows(data: Any, start: Any, stride: Any, rows: Any, width: Any, out: Any) -> None:
    for y in range(rows):
        line = start + y * stride
        out[y * width : (y + 1) * width] = data[line : line + width]


@njit(nogil=True, cache=True)
def _rows_plainly(
    data: Any, start: Any, stride: Any, rows: Any, in_size: Any, axis: Any, room: Any, out: Any
) -> None:
    resample_rows(data, start, stride, rows, axis, out)


@njit(nogil=True, cache=True)
def _rows_in_vectors(
    data: Any, start: Any, stride: Any, rows: Any, in_size: Any, axis: Any, room: Any, out: Any
) -> None:
    groups = room[3][0]
    if groups == 0:
        resample_rows(data, start, stride, rows, axis, out)
    else:
        width = len(axis[0])
        plan = (groups, room[0], room[1], room[2])
        _resample_rows_in_vectors(data, start, stride, rows, width, axis[0], plan, out)


_rows = _rows_in_vectors if avx512.IS_AVAILABLE else _rows_plainly


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
    the loops over rows read, a plane between the axes, and sums.
    """
    (tall, wide), (height, width) = size, (len(down[0]), len(across[0]))
    vectors, between, sums, ahead = room
    if tall == height and wide == width:
        _copy_rows(data, start, stride, tall, wide, out)
    elif wide == width:
        resample_columns(data, start, stride, width, down, out, sums, data, ahead)
    elif tall == height:
        _rows(data, start, stride, height, wide, across, vectors, out)
    elif is_height_first:
        resample_columns(data, start, stride, wide, down, between, sums, data, ahead)
        _rows(between, 0, wide, height, wide, across, vectors, out)
    else:
        top = down[0][0]
        end = down[0][height - 1] + down[1][height - 1]
        _rows(data, start + top * stride, stride, end - top, wide, across, vectors, between)
        resample_columns(between, -top * width, width, width, down, out, sums, data, ahead)


@njit(nogil=True, cache=True)
def _axis_room(most_in: Any, out_size: Any, reach: Any) -> Any:
    taps = most_taps(most_in, out_size, reach)
    return (
        np.empty(out_size, np.int64),
        np.empty(out_size, np.int64),
        np.empty(out_size * taps, np.int32),
        np.empty(taps, np.float64),
    )


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
    down_room, across_room = _axis_room(tallest, height, reach), _axis_room(widest, width, reach)
    parts = (width + LANES - 1) // LANES
    vectors = (
        np.empty(parts * BLOCK, np.uint8),
        np.empty(parts * MOST_GROUPS * DIGITS * BLOCK, np.uint8),
        np.empty(parts * MOST_GROUPS, np.uint64),
        np.zeros(1, np.int64),
    )
    between = np.empty(max(tallest * width, height * widest), np.uint8)
    ahead = np.zeros(8, np.int64)
    room = vectors, between, np.empty(max(width, widest), np.int32), ahead
    image = np.empty(channels * height * width, np.uint8)
    scratch = chain_scratch(len(chain[0]), shapes[1])
    planes = byte_planes(chain[5], chain[6])
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
        down = _axis(tall, kind, reach, down_room, height)
        across = _axis(wide, kind, reach, across_room, width)
        if wide != width:
            vectors[3][0] = _plan_vectors(across, wide, vectors[0], vectors[1], vectors[2])
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
            chain,
            planes,
            shapes,
            scratch,
            is_channels_last,
            out[b],
        )
