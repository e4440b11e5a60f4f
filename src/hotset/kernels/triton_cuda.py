"""The fused batch path on CUDA, compiled by Triton: one launch per call, whatever the chain.

An instance of the kernel makes one tile of one sample: it draws the sample's parameters, traces the
tile's pixels back through the chain, and moves each channel. Pixels are moved as integers of their
size: tables of float16 and of bfloat16 are the same code. Which steps the chain has is compiled in.
Their numbers (probabilities, offsets, step numbers) are read from the device, so that chains that
differ in nothing else share a compiled kernel, as do all batch sizes, seeds and epochs.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from hotset.errors import ConfigError
from hotset.kernels.program import Field, Kind, Program
from hotset.ops.erase import TRIES
from hotset.rng import MASK_32, Draws

# Triton reads module globals only where they are constexpr.
STEP, THRESHOLD, TOP, LEFT = (
    tl.constexpr(int(f)) for f in (Field.STEP, Field.THRESHOLD, Field.TOP, Field.LEFT)
)
DOWN, SIDEWAYS, HEIGHT, WIDTH = (
    tl.constexpr(int(f)) for f in (Field.DOWN, Field.SIDEWAYS, Field.HEIGHT, Field.WIDTH)
)
ROW_MAP, COLUMN_MAP, VALUE, FIELDS = (
    tl.constexpr(int(f)) for f in (Field.ROW_MAP, Field.COLUMN_MAP, Field.VALUE, Field.FIELDS)
)
GATE_STEP, GATE_THRESHOLD = (tl.constexpr(int(f)) for f in (Field.GATE_STEP, Field.GATE_THRESHOLD))
WINDOW, HORIZONTAL, RANDOM_ERASE = (
    tl.constexpr(int(k)) for k in (Kind.WINDOW, Kind.HORIZONTAL_FLIP, Kind.RANDOM_ERASE)
)
ATTEMPTS = tl.constexpr(TRIES)
ROUNDER = tl.constexpr(2.0**52)
"""From here on float64 has no fractions: adding it and taking it away rounds, half to even."""

PIXELS_PER_TILE = 512
"""Four a thread: one vector store per channel, and still many tiles to fill the device."""

# Rounding a product and a sum only once, as contraction does, would change the rectangles.
OPTIONS = {"num_warps": 4, "enable_fp_fusion": False}

_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_KEYS = ("seed_low", "seed_high", "run_seed_low", "run_seed_high", "epoch")


@triton.jit
def words(draws: tl.tensor, step: tl.tensor, draw: tl.tensor) -> Any:
    """Four uint32 random words, as `hotset.rng.Draws.words`.

    `draws` is (sample, its occurrence, epoch, seed): int64, int64, int32, uint64; `step` is int64.
    """
    sample, occurrence, epoch, seed = draws
    return tl.philox(
        seed,
        sample.to(tl.uint32),
        (((sample >> 32) << 16) | (occurrence & 0xFFFF)).to(tl.uint32),
        epoch.to(tl.uint32, bitcast=True),
        ((step << 16) | draw).to(tl.uint32),
    )


@triton.jit
def seed_of(low: tl.tensor, high: tl.tensor) -> Any:
    """A uint64 seed from the int32 words that it is handed over in."""
    low, high = low.to(tl.uint32, bitcast=True), high.to(tl.uint32, bitcast=True)
    return (high.to(tl.uint64) << 32) | low.to(tl.uint64)


@triton.jit
def below(word: tl.tensor, bound: tl.tensor) -> Any:
    """An int32 in 0 to `bound` - 1, as `hotset.rng.below`."""
    return tl.umulhi(word, bound.to(tl.uint32)).to(tl.int32)


@triton.jit
def _number(field: tl.tensor) -> Any:
    return tl.load(field).to(tl.int32)


@triton.jit
def _is_open(step: tl.tensor, is_gated: tl.constexpr, draws: tl.tensor) -> Any:
    """Whether the sample passes the step's gate."""
    if is_gated:
        word, _, _, _ = words(draws, tl.load(step + GATE_STEP), 0)
        is_open = word.to(tl.int64) < tl.load(step + GATE_THRESHOLD)
    else:
        is_open = tl.full((), 1, tl.int1)
    return is_open


@triton.jit
def _window(
    step: tl.tensor,
    is_drawn: tl.constexpr,
    is_open: tl.tensor,
    row: tl.tensor,
    column: tl.tensor,
    maps: tl.tensor,
    draws: tl.tensor,
) -> Any:
    """Where the pixels of a window come from; what is a fill already stays it."""
    if is_drawn:
        word_0, word_1, _, _ = words(draws, tl.load(step + STEP), 0)
        top, left = below(word_0, _number(step + DOWN)), below(word_1, _number(step + SIDEWAYS))
    else:
        top, left = _number(step + TOP), _number(step + LEFT)
    fill = -1 - _number(step + VALUE)
    has_row, has_column = is_open & (row >= 0), is_open & (column >= 0)
    in_rows, in_columns = _number(step + ROW_MAP) + top, _number(step + COLUMN_MAP) + left
    from_row = tl.load(maps + in_rows + row, mask=has_row, other=0)
    from_column = tl.load(maps + in_columns + column, mask=has_column, other=0)
    row = tl.where(has_row, tl.where(from_row >= 0, from_row, fill), row)
    column = tl.where(has_column, tl.where(from_column >= 0, from_column, fill), column)
    return row, column


@triton.jit
def _is_flipped(
    step: tl.tensor, is_drawn: tl.constexpr, draws: tl.tensor, run_draws: tl.tensor
) -> Any:
    if is_drawn == 2:
        word, _, _, _ = words(run_draws, tl.load(step + STEP), 0)
        flips = (word.to(tl.int64) < tl.load(step + THRESHOLD)) ^ ((draws[2] & 1) != 0)
    else:
        word, _, _, _ = words(draws, tl.load(step + STEP), 0)
        flips = word.to(tl.int64) < tl.load(step + THRESHOLD)
    return flips


@triton.jit
def edge(area: tl.tensor) -> Any:
    """The square root of a float64, rounded to int32, half to even."""
    return ((tl.sqrt(area) + ROUNDER) - ROUNDER).to(tl.int32)


@triton.jit
def _rectangle(
    step: tl.tensor, kind: tl.constexpr, is_open: tl.tensor, reals: tl.tensor, draws: tl.tensor
) -> Any:
    """(top, left, height, width) of an erasure of the sample; height 0 where there is none."""
    number = tl.load(step + STEP)
    full_height, full_width = _number(step + HEIGHT), _number(step + WIDTH)
    word_0, word_1, word_2, word_3 = words(draws, number, 0)
    if kind == RANDOM_ERASE:
        least, greatest = tl.load(reals), tl.load(reals + 1)
        none = full_height * 0  # not a plain 0: a loop's variables keep the type they come with
        top, left, height, width = none, none, none, none
        seeks = is_open & (word_0.to(tl.int64) < tl.load(step + THRESHOLD))
        attempt = none + 1
        while seeks & (attempt <= ATTEMPTS):
            word_0, word_1, word_2, word_3 = words(draws, number, attempt)
            share = least + (greatest - least) * (word_0.to(tl.float64) * 2.0**-32)
            area = (full_height * full_width).to(tl.float64) * share
            aspect = tl.load(reals + 2 + (word_1 >> 20))
            tall, wide = edge(area * aspect), edge(area / aspect)
            if (tall < full_height) & (wide < full_width):
                top = below(word_2, full_height - tall + 1)
                left = below(word_3, full_width - wide + 1)
                height, width = tall, wide
                seeks = seeks & False
            attempt += 1
    else:
        height, width = _number(step + TOP), _number(step + LEFT)
        top, left = below(word_0, full_height - height + 1), below(word_1, full_width - width + 1)
        height = tl.where(is_open, height, 0)
    return top, left, height, width


@triton.jit(
    do_not_specialize=_KEYS, do_not_specialize_on_alignment=("source", "rows", "ids", "occurrence")
)
def prepare(
    source: tl.tensor,
    rows: tl.tensor,
    ids: tl.tensor,
    occurrence: tl.tensor,
    out: tl.tensor,
    numbers: tl.tensor,
    maps: tl.tensor,
    reals: tl.tensor,
    values: tl.tensor,
    seed_low: tl.tensor,
    seed_high: tl.tensor,
    run_seed_low: tl.tensor,
    run_seed_high: tl.tensor,
    epoch: tl.tensor,
    GEOMETRY: tl.constexpr,
    ERASURES: tl.constexpr,
    LEVELS: tl.constexpr,
    ENTRIES: tl.constexpr,
    BASE: tl.constexpr,
    IN_SHAPE: tl.constexpr,
    OUT_SHAPE: tl.constexpr,
    IS_CHANNELS_LAST: tl.constexpr,
    PIXELS: tl.constexpr,
    GROUP: tl.constexpr,
) -> None:
    """Fills `out`; one instance makes `PIXELS` pixels of one sample, `GROUP` channels at a time.

    Tensors, pixels and values as integers of their size:
        source (N, C, H, W), stored images; rows (B,) int64, which of them hold the samples;
        ids, occurrence (B,) int64, which key the draws; out (B, C, H', W') or (B, H', W', C);
        numbers (steps, 16) int64, `Program.geometry`, then `Program.erasures`; maps, as there;
        reals (erasures, 2 + LEVELS) float64, `Program.scales` beside `Program.aspects`;
        values (C, ENTRIES), as there.

    Numbers: the words of the two seeds, and the epoch, as int32.

    Compiled in: GEOMETRY and ERASURES, of each step its kind, how it is drawn, and whether it has a
        gate; LEVELS, aspect ratios per erasure; ENTRIES, columns of `values`, and BASE, how many of
        them are the table; the images' shapes, (C, H, W); the layout of `out`; PIXELS and GROUP,
        the size of a tile, powers of two.
    """
    channels: tl.constexpr = OUT_SHAPE[0]
    plane: tl.constexpr = OUT_SHAPE[1] * OUT_SHAPE[2]
    in_plane: tl.constexpr = IN_SHAPE[1] * IN_SHAPE[2]
    tiles: tl.constexpr = (plane + PIXELS - 1) // PIXELS
    # A resident set can exceed 2**31 bytes: offsets of samples are int64, those within one int32.
    sample = (tl.program_id(0) // tiles).to(tl.int64)
    number, again = tl.load(ids + sample), tl.load(occurrence + sample)
    draws = (number, again, epoch, seed_of(seed_low, seed_high))
    # All bits set is the epoch number of draws that hold for the whole run.
    run_draws = (number, again, epoch | -1, seed_of(run_seed_low, run_seed_high))

    pixel = (tl.program_id(0) % tiles) * PIXELS + tl.arange(0, PIXELS)
    is_pixel = pixel < plane
    out_row, out_column = pixel // OUT_SHAPE[2], pixel % OUT_SHAPE[2]
    # A negative coordinate is a fill, -1 - its number; so no map is read for what is no pixel.
    row, column = tl.where(is_pixel, out_row, -1), tl.where(is_pixel, out_column, -1)
    for k in tl.static_range(len(GEOMETRY) - 1, -1, -1):
        step = numbers + k * FIELDS
        is_open = _is_open(step, GEOMETRY[k][2], draws)
        if GEOMETRY[k][0] == WINDOW:
            row, column = _window(step, GEOMETRY[k][1], is_open, row, column, maps, draws)
        else:
            flips = is_open & _is_flipped(step, GEOMETRY[k][1], draws, run_draws)
            if GEOMETRY[k][0] == HORIZONTAL:
                mirrored = _number(step + WIDTH) - 1 - column
                column = tl.where(flips & (column >= 0), mirrored, column)
            else:
                mirrored = _number(step + HEIGHT) - 1 - row
                row = tl.where(flips & (row >= 0), mirrored, row)

    # Where both are fills the later step, the one with the lower code, counts.
    is_filled = (row < 0) | (column < 0)
    code = tl.where(is_filled, tl.minimum(row, column), row * IN_SHAPE[2] + column)
    for k in tl.static_range(len(ERASURES)):
        step = numbers + (len(GEOMETRY) + k) * FIELDS
        is_open = _is_open(step, ERASURES[k][2], draws)
        top, left, height, width = _rectangle(
            step, ERASURES[k][0], is_open, reals + k * (2 + LEVELS), draws
        )
        in_rows = (out_row >= top) & (out_row < top + height)
        in_columns = (out_column >= left) & (out_column < left + width)
        code = tl.where(in_rows & in_columns, -1 - _number(step + VALUE), code)

    image = source + tl.load(rows + sample) * (channels * in_plane)
    target = out + sample * (channels * plane)
    place, code, is_pixel = pixel[:, None], code[:, None], is_pixel[:, None]
    for first in range(0, channels, GROUP):
        channel = (first + tl.arange(0, GROUP))[None, :]
        is_value = is_pixel & (channel < channels)
        reads = is_value & (code >= 0)
        value = tl.load(image + channel * in_plane + code, mask=reads, other=0)
        constant = channel * ENTRIES + (BASE - 1 - code)
        if BASE > 0:
            entry = tl.where(reads, channel * ENTRIES + value.to(tl.int32), constant)
            value = tl.load(values + entry, mask=is_value, other=0)
        elif ENTRIES > 0:
            filled = tl.load(values + constant, mask=is_value & (code < 0), other=0)
            value = tl.where(reads, value, filled)
        if IS_CHANNELS_LAST:
            tl.store(target + place * channels + channel, value, mask=is_value)
        else:
            tl.store(target + channel * plane + place, value, mask=is_value)


def constants(program: Program, *, channels_last: bool = False) -> dict[str, Any]:
    """What is compiled into `prepare` for a program."""
    geometry, erasures = (
        tuple((row[Field.KIND], row[Field.IS_DRAWN], row[Field.GATE_STEP] >= 0) for row in rows)
        for rows in (program.geometry.tolist(), program.erasures.tolist())
    )
    channels, height, width = program.out_shape
    return {
        "GEOMETRY": geometry,
        "ERASURES": erasures,
        "LEVELS": program.aspects.shape[1],
        "ENTRIES": program.values.shape[1],
        "BASE": program.base,
        "IN_SHAPE": program.in_shape,
        "OUT_SHAPE": program.out_shape,
        "IS_CHANNELS_LAST": channels_last,
        "PIXELS": min(PIXELS_PER_TILE, triton.next_power_of_2(height * width)),
        # Channels that lie side by side are written side by side, planes one after the other.
        "GROUP": min(4, triton.next_power_of_2(channels)) if channels_last else 1,
    }


class TritonKernel:
    """Executes a program, in one launch per call.

    Args:
        program: what to execute; its arrays are copied to the device once.
        device: where the images lie and the batches are made.
        channels_last: memory format of the batches.
    """

    def __init__(self, program: Program, device: torch.device, channels_last: bool = False) -> None:
        self._program = program
        self._device = device
        self._format = torch.channels_last if channels_last else torch.contiguous_format
        self._constants = constants(program, channels_last=channels_last)
        plane = program.out_shape[1] * program.out_shape[2]
        self._tiles = triton.cdiv(plane, self._constants["PIXELS"])
        arrays = (
            np.concatenate((program.geometry, program.erasures)),
            program.maps,
            np.concatenate((program.scales, program.aspects), axis=1),
        )
        values = _as_integers(program.values).to(device)
        self._uploaded = (*(torch.from_numpy(array).to(device) for array in arrays), values)

    def run(self, source: Tensor, rows: Tensor, draws: Draws, out: Tensor | None = None) -> Tensor:
        """The batch: (B, C, H', W') of the program's `out_dtype`.

        Several batches of one epoch, their rows and draws end to end, are made in the same launch.

        Args:
            source: (N, C, H, W) contiguous stored images, on the device.
            rows: (B,) int64 rows of `source` that hold the samples, on the device.
            draws: the batch's random words, its tensors on the device.
            out: where to write the batch; a new tensor if None.

        Raises:
            ConfigError: `source` or `out` has another shape, dtype or layout.
        """
        program = self._program
        shape = (len(rows), *program.out_shape)
        if out is None:
            out = torch.empty(
                shape, dtype=program.out_dtype, device=self._device, memory_format=self._format
            )
        _check("out", out, shape, program.out_dtype, self._format)
        stored = (len(source), *program.in_shape)
        _check("source", source, stored, program.in_dtype, torch.contiguous_format)
        if len(rows) == 0:
            return out
        # Triton launches on the current device, whatever device the tensors are on.
        is_cuda = self._device.type == "cuda"
        with torch.cuda.device(self._device) if is_cuda else nullcontext():
            prepare[(len(rows) * self._tiles,)](
                _as_integers(source),
                rows.contiguous(),
                draws.ids.contiguous(),
                draws.occurrence.contiguous(),
                _as_integers(out),
                *self._uploaded,
                *keys_of(draws),
                **self._constants,
                **OPTIONS,
            )
        return out


def _check(
    name: str,
    images: Tensor,
    shape: tuple[int, ...],
    dtype: torch.dtype,
    memory_format: torch.memory_format,
) -> None:
    is_fit = images.shape == shape and images.dtype is dtype
    if not (is_fit and images.is_contiguous(memory_format=memory_format)):
        raise ConfigError(
            f"`{name}` must be {dtype} of shape {shape} in {memory_format}, got {images.dtype} of "
            f"shape {tuple(images.shape)} with strides {images.stride()}"
        )


def _as_integers(images: Tensor) -> Tensor:
    return images.view(_INTEGERS[images.dtype.itemsize])


def keys_of(draws: Draws) -> tuple[int, ...]:
    """The words of both seeds, low before high, and the epoch, as int32."""
    key = draws.key
    halves = (key.seed, key.seed >> 32, key.run_seed, key.run_seed >> 32, key.epoch)
    return tuple(((half + 2**31) & MASK_32) - 2**31 for half in halves)
