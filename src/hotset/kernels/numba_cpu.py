"""The fused batch path on the CPU, compiled by Numba without the GIL.

A kernel works on a slice of the batch, so that ordinary threads share a batch (Numba's own parallel
threads and `fork` do not mix). Pixels are moved as unsigned integers of their size: a table of
float16 and one of int16 are the same code.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from hotset.kernels.draws_cpu import draw_words
from hotset.kernels.erasing_cpu import erase, rectangle_of
from hotset.kernels.lookup_cpu import LEAST_RUN, byte_planes, write_long_runs
from hotset.kernels.prefetch import CACHE_LINE_BYTES, prefetch
from hotset.kernels.program import Field, Kind
from hotset.rng import RUN_EPOCH

# Numba reads module globals as constants; enum members must be plain integers for it.
KIND, STEP, IS_DRAWN, THRESHOLD = (
    int(f) for f in (Field.KIND, Field.STEP, Field.IS_DRAWN, Field.THRESHOLD)
)
TOP, LEFT, DOWN, SIDEWAYS = (int(f) for f in (Field.TOP, Field.LEFT, Field.DOWN, Field.SIDEWAYS))
HEIGHT, WIDTH, ROW_MAP, COLUMN_MAP = (
    int(f) for f in (Field.HEIGHT, Field.WIDTH, Field.ROW_MAP, Field.COLUMN_MAP)
)
VALUE, GATE_STEP, GATE_THRESHOLD = (
    int(f) for f in (Field.VALUE, Field.GATE_STEP, Field.GATE_THRESHOLD)
)
WINDOW, HORIZONTAL = int(Kind.WINDOW), int(Kind.HORIZONTAL_FLIP)


@njit(nogil=True, cache=True)
def _draw_geometry(
    geometry: Any, top: Any, left: Any, sample: Any, occurrence: Any, keys: Any, epoch: Any
) -> None:
    """Fills (steps,) `top` and `left`; a flip is top 1; a closed gate is top -1."""
    for k in range(len(geometry)):
        row = geometry[k]
        if row[GATE_STEP] >= 0:
            gate = draw_words(sample, occurrence, epoch, row[GATE_STEP], 0, keys[0])
            if gate[0] >= row[GATE_THRESHOLD]:
                top[k] = -1
                continue
        if row[KIND] == WINDOW:
            if row[IS_DRAWN] == 1:
                words = draw_words(sample, occurrence, epoch, row[STEP], 0, keys[0])
                top[k] = (words[0] * row[DOWN]) >> 32
                left[k] = (words[1] * row[SIDEWAYS]) >> 32
            else:
                top[k], left[k] = row[TOP], row[LEFT]
        elif row[IS_DRAWN] == 2:
            words = draw_words(sample, occurrence, RUN_EPOCH, row[STEP], 0, keys[1])
            top[k] = np.int64(words[0] < row[THRESHOLD]) ^ (epoch & 1)
        else:
            words = draw_words(sample, occurrence, epoch, row[STEP], 0, keys[0])
            top[k] = np.int64(words[0] < row[THRESHOLD])


@njit(nogil=True, cache=True)
def _trace(geometry: Any, top: Any, left: Any, maps: Any, rows: Any, columns: Any) -> None:
    """Source row and column of every output row and column; a fill stands as -1 - its number.

    Goes through the steps from the last to the first. Where a row and a column are both fills, the
    later step, the one with the lower code, counts.
    """
    for i in range(len(rows)):
        rows[i] = i
    for j in range(len(columns)):
        columns[j] = j
    for k in range(len(geometry) - 1, -1, -1):
        row = geometry[k]
        if top[k] < 0:
            continue
        if row[KIND] == WINDOW:
            fill = -1 - row[VALUE]
            for i in range(len(rows)):
                if rows[i] >= 0:
                    source = maps[row[ROW_MAP] + top[k] + rows[i]]
                    rows[i] = source if source >= 0 else fill
            for j in range(len(columns)):
                if columns[j] >= 0:
                    source = maps[row[COLUMN_MAP] + left[k] + columns[j]]
                    columns[j] = source if source >= 0 else fill
        elif top[k] == 1:
            if row[KIND] == HORIZONTAL:
                for j in range(len(columns)):
                    if columns[j] >= 0:
                        columns[j] = row[WIDTH] - 1 - columns[j]
            else:
                for i in range(len(rows)):
                    if rows[i] >= 0:
                        rows[i] = row[HEIGHT] - 1 - rows[i]


@njit(nogil=True, cache=True)
def _run(columns: Any) -> Any:
    """(first, end, stride) of the output columns that read neighbouring source columns.

    Stride is 1 or -1 where all columns in between do, 0 where they do not (reflected borders).
    """
    width = len(columns)
    first, end = 0, width
    while first < width and columns[first] < 0:
        first += 1
    while end > first and columns[end - 1] < 0:
        end -= 1
    if end - first < 2:
        return first, end, 1
    stride = columns[first + 1] - columns[first]
    if stride != 1 and stride != -1:
        return first, end, 0
    for j in range(first + 1, end):
        if columns[j] - columns[j - 1] != stride or columns[j] < 0:
            return first, end, 0
    return first, end, stride


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
def _scatter(
    out: Any, target: Any, image: Any, line: Any, columns: Any, table: Any, base: Any, row: Any
) -> None:
    """One row, pixel by pixel, whatever its columns read; a negative `row` is a fill."""
    for j in range(len(columns)):
        code = min(row, columns[j])
        if code < 0:
            out[target + np.uint64(j)] = table[np.uint64(base - 1 - code)]
        else:
            pixel = image[np.uint64(line + columns[j])]
            out[target + np.uint64(j)] = pixel if base == 0 else table[pixel]


@njit(nogil=True, cache=True)
def _one_fill(rows: Any, columns: Any) -> Any:
    """The code of the only fill among rows and columns; 0 for none, 1 for several."""
    found = 0
    for codes in (rows, columns):
        for code in codes:
            if code < 0:
                if found < 0 and code != found:
                    return 1
                found = code
    return found


@njit(nogil=True, cache=True)
def _write_scattered(
    image: Any, rows: Any, columns: Any, values: Any, base: Any, in_shape: Any, out: Any
) -> None:
    """One sample, channels first, whatever rows and columns read: (C*H*W,) -> (C*H'*W',)."""
    for c in range(in_shape[0]):
        for i in range(len(rows)):
            target = np.uint64((c * len(rows) + i) * len(columns))
            line = (c * in_shape[1] + rows[i]) * in_shape[2]
            _scatter(out, target, image, line, columns, values[c], base, rows[i])


@njit(nogil=True, cache=True)
def _write_runs(
    image: Any,
    rows: Any,
    columns: Any,
    run: Any,
    values: Any,
    fill_entry: Any,
    in_shape: Any,
    out: Any,
    following: Any,
) -> None:
    """One sample, channels first, whose columns read one run: (C*H*W,) -> (C*H'*W',).

    The next sample is fetched meanwhile, a share with every row: the processor keeps few requests.
    """
    first, end, stride = run
    start = columns[first] if first < end else 0
    head, tail, width = np.uint64(first), np.uint64(end), np.uint64(len(columns))
    plane, count = in_shape[1] * in_shape[2], np.uint64(end - first)
    share = len(following) // (in_shape[0] * len(rows))
    line = CACHE_LINE_BYTES // following.itemsize
    target, position, due = np.uint64(0), 0, 0
    for c in range(in_shape[0]):
        table = values[c]
        fill = table[np.uint64(fill_entry)]
        for i in range(len(rows)):
            due += share
            while position < due:  # a range with a step would divide for every row
                prefetch(following, position)
                position += line
            row = rows[i]
            if row < 0:
                for j in range(width):
                    out[target + j] = fill
            else:
                for j in range(head):
                    out[target + j] = fill
                for j in range(tail, width):
                    out[target + j] = fill
                source = np.uint64(c * plane + row * in_shape[2] + start)
                if stride == 1:
                    _look_up(out, target + head, image, source, table, count)
                else:
                    _look_up_mirrored(out, target + head, image, source, table, count)
            target += width


@njit(nogil=True, cache=True)
def _write_channels_last(
    image: Any, rows: Any, columns: Any, values: Any, base: Any, in_shape: Any, out: Any
) -> None:
    """One sample, channels last: image (C*H*W,) -> out (H'*W'*C,)."""
    channels, plane = in_shape[0], in_shape[1] * in_shape[2]
    for i in range(len(rows)):
        for j in range(len(columns)):
            code = min(rows[i], columns[j])
            source = rows[i] * in_shape[2] + columns[j]
            target = (i * len(columns) + j) * channels
            for c in range(channels):
                if code < 0:
                    out[np.uint64(target + c)] = values[c, base - 1 - code]
                else:
                    pixel = image[np.uint64(c * plane + source)]
                    out[np.uint64(target + c)] = pixel if base == 0 else values[c, pixel]


@njit(nogil=True, cache=True)
def write_sample(
    image: Any,
    following: Any,
    sample: Any,
    occurrence: Any,
    keys: Any,
    epoch: Any,
    geometry: Any,
    maps: Any,
    erasures: Any,
    scales: Any,
    aspects: Any,
    values: Any,
    base: Any,
    planes: Any,
    in_shape: Any,
    out_shape: Any,
    rows: Any,
    columns: Any,
    top: Any,
    left: Any,
    is_channels_last: Any,
    out: Any,
) -> None:
    """One sample through the chain: image (C*H*W,) -> out (C*H'*W',) or (H'*W'*C,).

    `following` is fetched meanwhile; `planes` are the table's `byte_planes`; `rows`, `columns`,
    `top` and `left` are room, as `chain_scratch` makes it; the rest is as in `run`. One by one,
    since taking a tuple apart for every sample costs a tenth of a small one.
    """
    _draw_geometry(geometry, top, left, sample, occurrence, keys, epoch)
    _trace(geometry, top, left, maps, rows, columns)
    columns_run, fill = _run(columns), _one_fill(rows, columns)
    if is_channels_last:
        _write_channels_last(image, rows, columns, values, base, in_shape, out)
    elif base == 0 or columns_run[2] == 0 or fill > 0:
        _write_scattered(image, rows, columns, values, base, in_shape, out)
    else:
        entry = base - 1 - fill if fill < 0 else 0
        if columns_run[1] - columns_run[0] >= LEAST_RUN and values.itemsize < 8:
            write_long_runs(
                image, rows, columns, columns_run, values, planes, entry, in_shape, out, following
            )
        else:
            _write_runs(image, rows, columns, columns_run, values, entry, in_shape, out, following)
    for k in range(len(erasures)):
        rectangle = rectangle_of(
            erasures[k], scales[k], aspects[k], sample, occurrence, keys, epoch
        )
        entry = base + erasures[k, VALUE]
        erase(out, out_shape, rectangle, values, entry, is_channels_last)


@njit(nogil=True, cache=True)
def chain_scratch(steps: Any, out_shape: Any) -> Any:
    """Room for one sample's rows, columns and draws."""
    rows, columns = np.empty(out_shape[1], np.int64), np.empty(out_shape[2], np.int64)
    return rows, columns, np.zeros(steps, np.int64), np.zeros(steps, np.int64)


@njit(nogil=True, cache=True)
def run(
    source: Any,
    rows_of: Any,
    ids: Any,
    occurrence: Any,
    keys: Any,
    epoch: Any,
    chain: Any,
    shapes: Any,
    is_channels_last: Any,
    out: Any,
) -> None:
    """Fills `out` for the samples `ids`.

    Args:
        source: (N, C*H*W) stored images, as unsigned integers of their size.
        rows_of: (B,) int64 rows of `source` that hold the samples.
        ids: (B,) int64 sample ids, which key the draws.
        occurrence: (B,) int64.
        keys: (2,) uint64, the epoch's seed and the run's.
        epoch: number of the epoch.
        chain: geometry, maps, erasures, scales, aspects, values, base, as in
            `hotset.kernels.program.Program`; values as unsigned integers of their size.
        shapes: (C, H, W) of a stored image and of an image in the batch.
        is_channels_last: layout of `out`.
        out: (B, C*H*W) or (B, H*W*C), unsigned integers of the output's size.
    """
    geometry, maps, erasures, scales, aspects, values, base = chain
    in_shape, out_shape = shapes
    rows, columns, top, left = chain_scratch(len(geometry), out_shape)
    planes = byte_planes(values, base, out_shape[2])
    for b in range(len(ids)):
        following = source[rows_of[min(b + 1, len(ids) - 1)]]
        write_sample(
            source[rows_of[b]],
            following,
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
            rows,
            columns,
            top,
            left,
            is_channels_last,
            out[b],
        )
