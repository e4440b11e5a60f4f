"""Lowering: a chain of operations as plain arrays that one kernel can execute. Pure.

A chain can be fused when it is pad/crop/flip steps and elementwise steps in any order, then
erasing, then elementwise steps. Such a chain has two independent halves:

* where a pixel comes from: a row index and a column index per sample, since every geometric step
  acts on rows and columns separately;
* what a value becomes: one row of values per channel. For bytes it is the 256 entries of the
  chain's elementwise steps; after them stand the values of fills and erasures, each carried through
  the elementwise steps behind it. So fills before and after normalisation are both exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import torch
from torch import Tensor

from hotset.ops.erase import Cutout, RandomErase, aspect_table
from hotset.ops.geometry import FILL, Flip, Window
from hotset.ops.op import Gate, Op, Shape, constant
from hotset.ops.pointwise import Elementwise, Table
from hotset.rng import threshold


class Kind(IntEnum):
    """What a row of `Program.geometry` or `Program.erasures` does."""

    WINDOW = 0
    HORIZONTAL_FLIP = 1
    VERTICAL_FLIP = 2
    RANDOM_ERASE = 3
    CUTOUT = 4


class Field(IntEnum):
    """Columns of `Program.geometry` and `Program.erasures`, each (rows, 16) int64."""

    KIND = 0
    STEP = 1
    IS_DRAWN = 2  # window: position is drawn; flip: 1, and 2 if alternating
    THRESHOLD = 3  # flip, random erase: how many of 2**32 words mean yes
    TOP = 4  # window: fixed position; cutout: height
    LEFT = 5  # window: fixed position; cutout: width
    DOWN = 6  # window: number of positions downwards
    SIDEWAYS = 7  # window: number of positions sideways
    HEIGHT = 8  # what it puts out; erasures: what they act on
    WIDTH = 9
    ROW_MAP = 10  # offset into Program.maps
    COLUMN_MAP = 11
    VALUE = 12  # entry of the fill or erasure behind the table
    GATE_STEP = 13  # -1 without a gate
    GATE_THRESHOLD = 14
    FIELDS = 16


@dataclass(frozen=True, eq=False)
class Program:
    """A fused chain.

    Attributes:
        in_shape: (C, H, W) of a stored image.
        out_shape: (C, H, W) of an image in the batch.
        in_dtype: stored dtype.
        out_dtype: dtype of the batch.
        geometry: (steps, 16) int64, columns as in `Field`, in the chain's order.
        erasures: (steps, 16) int64, likewise.
        maps: int32, all index maps end to end; FILL outside the image.
        scales: (erasures, 2) float64, least and greatest area.
        aspects: (erasures, 4096) float64, aspect ratios.
        values: (C, base + fills) of `out_dtype`, on the CPU.
        base: 256 for bytes, which are all looked up; 0 for other values, which are copied.
    """

    in_shape: Shape
    out_shape: Shape
    in_dtype: torch.dtype
    out_dtype: torch.dtype
    geometry: np.ndarray
    erasures: np.ndarray
    maps: np.ndarray
    scales: np.ndarray
    aspects: np.ndarray
    values: Tensor
    base: int


@dataclass(frozen=True)
class NotFusable:
    """Why a chain cannot be fused; it runs operation by operation instead."""

    reason: str


def lower(
    ops: Sequence[Op], shape: Shape, dtype: torch.dtype, out_dtype: torch.dtype | None = None
) -> Program | NotFusable:
    """A program for the chain, or why there is none.

    Args:
        ops: the operations, in order.
        shape: (C, H, W) of a stored image.
        dtype: stored dtype.
        out_dtype: what the batch is cast to at the end; None leaves it as the chain makes it.
    """
    builder = _Builder(shape, dtype)
    for op in ops:
        problem = builder.add(op)
        if problem is not None:
            return NotFusable(problem)
    return builder.finish(out_dtype)


class _Builder:
    """Follows an image's shape and its possible values through the chain."""

    def __init__(self, shape: Shape, dtype: torch.dtype) -> None:
        self.in_shape, self.in_dtype = shape, dtype
        self.shape = shape
        self.is_bytes = dtype is torch.uint8
        self.base = 256 if self.is_bytes else 0
        channels = shape[0]
        self.values = torch.arange(self.base, dtype=torch.int64).to(dtype).repeat(channels, 1)
        self.geometry: list[list[int]] = []
        self.erasures: list[list[int]] = []
        self.maps: list[np.ndarray] = []
        self.scales: list[tuple[float, float]] = []
        self.aspects: list[np.ndarray] = []

    def add(self, op: Op) -> str | None:
        """Takes one operation in; says why if it cannot."""
        if op.out_shape(self.shape) != self.shape and op.gate is not None:
            return "a gated step changes the size of the image"
        if isinstance(op, (Window, Flip)):
            if self.erasures:
                return "a step moves pixels after erasing"
            row = self._window(op) if isinstance(op, Window) else self._flip(op)
            self.geometry.append(row)
        elif isinstance(op, (RandomErase, Cutout)):
            self.erasures.append(self._erasure(op))
        elif isinstance(op, (Table, Elementwise)):
            if op.gate is not None:
                return "a gated step changes values"
            if not self.is_bytes:
                return f"values are {_name(self.in_dtype)}, too many for a table"
            # What happens to each possible value is what happens to an image made of them.
            self.values = op.apply(self.values[None, :, None, :], {})[0, :, 0, :]
        else:
            return f"{type(op).__name__} has no fused form"
        self.shape = op.out_shape(self.shape)
        return None

    def finish(self, out_dtype: torch.dtype | None) -> Program | NotFusable:
        out_dtype = out_dtype or self.values.dtype
        if out_dtype != self.values.dtype:
            if not self.is_bytes:
                return NotFusable(f"{_name(self.in_dtype)} values are cast to {_name(out_dtype)}")
            self.values = self.values.to(out_dtype)
        return Program(
            in_shape=self.in_shape,
            out_shape=self.shape,
            in_dtype=self.in_dtype,
            out_dtype=out_dtype,
            geometry=np.array(self.geometry, dtype=np.int64).reshape(-1, Field.FIELDS),
            erasures=np.array(self.erasures, dtype=np.int64).reshape(-1, Field.FIELDS),
            maps=np.concatenate([np.zeros(0, np.int32), *self.maps]),
            scales=np.array(self.scales, dtype=np.float64).reshape(-1, 2),
            aspects=np.stack(self.aspects) if self.aspects else np.zeros((0, 1)),
            values=self.values.contiguous(),
            base=self.base,
        )

    def _window(self, op: Window) -> list[int]:
        rows, columns = op.maps(self.shape)
        row = self._row(Kind.WINDOW, op.step, op.gate)
        row[Field.IS_DRAWN] = int(op.position is None)
        row[Field.TOP], row[Field.LEFT] = op.position or (0, 0)
        row[Field.DOWN], row[Field.SIDEWAYS] = op.range(self.shape)
        row[Field.HEIGHT], row[Field.WIDTH] = op.size
        row[Field.ROW_MAP] = self._map(rows)
        row[Field.COLUMN_MAP] = self._map(columns)
        if (rows == FILL).any() or (columns == FILL).any():
            row[Field.VALUE] = self._value(op.fill)
        return row

    def _flip(self, op: Flip) -> list[int]:
        kind = Kind.HORIZONTAL_FLIP if op.axis == "horizontal" else Kind.VERTICAL_FLIP
        row = self._row(kind, op.step, op.gate)
        row[Field.IS_DRAWN] = 2 if op.is_alternating else 1
        row[Field.THRESHOLD] = threshold(op.p)
        return row

    def _erasure(self, op: RandomErase | Cutout) -> list[int]:
        if isinstance(op, RandomErase):
            row = self._row(Kind.RANDOM_ERASE, op.step, op.gate)
            row[Field.THRESHOLD] = threshold(op.p)
            self.scales.append(op.scale)
            self.aspects.append(aspect_table(op.ratio))
        else:
            row = self._row(Kind.CUTOUT, op.step, op.gate)
            row[Field.TOP], row[Field.LEFT] = (min(op.size, edge) for edge in self.shape[1:])
            self.scales.append((0.0, 0.0))
            self.aspects.append(aspect_table((1.0, 1.0)))
        row[Field.VALUE] = self._value(op.value)
        return row

    def _row(self, kind: Kind, step: int, gate: Gate | None) -> list[int]:
        row = [0] * Field.FIELDS
        row[Field.KIND], row[Field.STEP] = kind, step
        row[Field.HEIGHT], row[Field.WIDTH] = self.shape[1:]
        row[Field.GATE_STEP] = -1 if gate is None else gate.step
        row[Field.GATE_THRESHOLD] = 0 if gate is None else threshold(gate.p)
        return row

    def _map(self, index: np.ndarray) -> int:
        offset = sum(len(m) for m in self.maps)
        self.maps.append(index)
        return offset

    def _value(self, value: tuple[float, ...]) -> int:
        """Puts a constant behind the table; later steps change it with the rest. Its number."""
        column = constant(value, self.values.dtype)[:, 0].expand(self.shape[0], 1)
        self.values = torch.cat((self.values, column), dim=1)
        return self.values.shape[1] - 1 - self.base


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
