"""Floating-point samples kept in a narrower dtype, and what that did to their values.

Every value is rounded once, to the nearest that the narrower dtype has, ties to even, and widened
again whenever it is read. How far that moved the values is measured over all of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hotset.errors import ConfigError, PrecisionError
from hotset.placement.size import human_bytes
from hotset.sample.column import (
    Column,
    DenseColumn,
    LeafSchema,
    ListColumn,
    RaggedColumn,
    decode,
    describe,
    encode,
    widened,
)

DTYPES = (torch.float16, torch.bfloat16, torch.float32)
"""What samples may be kept in."""
CHUNK_VALUES = 1 << 20
"""Values rounded and measured at once."""
VANISHED_SHARE = 0.001
"""The plan tells of values that became zero where they are a larger share than this."""


@dataclass(frozen=True)
class Rounding:
    """What keeping a leaf in a narrower dtype did to its finite values.

    Attributes:
        path: how the leaf is reached, as `sample[0]`.
        dtype: what it is kept in.
        largest: the largest absolute error.
        sample: a sample that has it, the first as they lie in memory.
        mean: the mean absolute error; 0 where there are no values.
        vanished: the share of the values other than zero that became zero.
        nbytes: bytes of the leaf of all samples now.
        full_nbytes: bytes of it before.
    """

    path: str
    dtype: torch.dtype
    largest: float
    sample: int
    mean: float
    vanished: float
    nbytes: int
    full_nbytes: int

    def __str__(self) -> str:
        saved = f"{human_bytes(self.nbytes)} instead of {human_bytes(self.full_nbytes)}"
        if self.largest == 0:
            return f"kept as {name_of(self.dtype)}: no value of {self.path} changed; {saved}"
        where = f"sample {self.sample}, {self.path}"
        words = f"largest error {self.largest:.2g} ({where}), mean {self.mean:.2g}; {saved}"
        if self.vanished > VANISHED_SHARE:
            words += f"; {self.vanished:.1%} of the values other than zero became zero"
        return f"kept as {name_of(self.dtype)}: {words}"


def name_of(dtype: torch.dtype) -> str:
    """A dtype's name without its module.

    Example:
        >>> name_of(torch.float16)
        'float16'
    """
    return str(dtype).removeprefix("torch.")


def is_narrowed_by(schema: LeafSchema, dtype: torch.dtype) -> bool:
    """Whether leaves are floating-point values of more bytes than the dtype has."""
    own = schema.dtype
    return own is not None and own.is_floating_point and own.itemsize > dtype.itemsize


def check_narrower(schema: LeafSchema, dtype: torch.dtype, path: str) -> bool:
    """Whether keeping leaves in the dtype would do anything; not for integers, or if they have it.

    Raises:
        ConfigError: if they are floating-point values of no more bytes than it has.
    """
    own = schema.dtype
    if own is None or not own.is_floating_point or own is dtype:
        return False
    if not is_narrowed_by(schema, dtype):
        raise ConfigError(
            f"`storage_dtype` must be narrower than the data, but {path} is {name_of(own)} and "
            f"{dtype} takes {'more' if dtype.itemsize > own.itemsize else 'as many'} bytes; leave "
            "it out, which keeps every bit"
        )
    return True


def rounded(values: Tensor, dtype: torch.dtype) -> Tensor:
    """The nearest values of a narrower dtype, ties to even; rounded once.

    PyTorch goes from float64 to half precision by way of float32, and rounds twice.
    """
    if values.dtype is not torch.float64 or dtype.itemsize >= 4:
        return values.to(dtype)
    single = values.float()
    towards = torch.nextafter(single, torch.zeros_like(single))
    single = torch.where(single.double().abs() > values.abs(), towards, single)
    # Cut off, with the last bit set where anything was lost: half precision then rounds as if it
    # had seen all bits. An infinity that a finite value became is cut to the largest number.
    bits = single.view(torch.int32)
    is_inexact = (single.double() != values) & values.isfinite()
    return torch.where(is_inexact, bits | 1, bits).view(torch.float32).to(dtype)


def kept_as(leaf: Any, dtype: torch.dtype) -> Any:
    """One leaf as it is read from a column that `narrowed` made; others come back themselves."""
    schema = describe(leaf)
    if not is_narrowed_by(schema, dtype):
        return leaf
    return decode(widened(rounded(encode(leaf, schema), dtype), schema), schema)


class Narrower:
    """Rounds the values of one leaf to a narrower dtype, and sums up how far they moved.

    Args:
        dtype: one of `DTYPES`.
        path: how messages call the leaf.
        length: rows.
        rows: (N,) int64, the row of every sample; None for all in order. Other rows are rounded
            too, but not looked at.
    """

    def __init__(
        self, dtype: torch.dtype, path: str, *, length: int, rows: Tensor | None = None
    ) -> None:
        self.dtype, self._path = dtype, path
        self._samples = _Samples(length, rows)
        self._sums: list[float] = []
        self._count = self._other_than_zero = self._vanished = 0
        self._nbytes = self._full_nbytes = 0
        self._largest, self._sample = 0.0, 0

    def take(self, values: Tensor, rows_of: RowsOf) -> Tensor:
        """(n,) values in the dtype.

        Args:
            values: (n,) floating-point, wider.
            rows_of: the rows that those at some positions are of.

        Raises:
            PrecisionError: if a finite value lies outside the dtype's range.
        """
        kept = rounded(values, self.dtype)
        self._nbytes += len(kept) * kept.element_size()
        self._full_nbytes += len(values) * values.element_size()
        if len(values) == 0:
            return kept
        full, now = values.double(), kept.double()
        is_counted = full.isfinite()
        if not self._samples.are_all:
            is_used = self._samples.are_used(rows_of(np.arange(len(values))))
            is_counted &= torch.from_numpy(is_used).to(values.device)
        is_beyond = is_counted & now.isinf()
        if bool(is_beyond.any()):
            place = _first(is_beyond)
            self._refuse(self._sample_at(rows_of, place), full[place].item())
        error = torch.where(is_counted, (full - now).abs(), 0.0)
        self._sums.append(float(error.sum()))
        self._count += int(is_counted.sum())
        is_other = is_counted & (full != 0)
        self._other_than_zero += int(is_other.sum())
        self._vanished += int((is_other & (now == 0)).sum())
        largest = error.max()
        if float(largest) > self._largest:
            self._largest = float(largest)
            self._sample = self._sample_at(rows_of, _first(error == largest))
        return kept

    def item(self, item: Any, row: int) -> Any:
        """An item of a `ListColumn`, of a row, in the dtype where it is a wider tensor."""
        if not isinstance(item, tuple) or not is_narrowed_by(item[1], self.dtype):
            return item
        stored, schema = item
        values = self.take(stored.reshape(-1), lambda positions: np.full_like(positions, row))
        return values.reshape(stored.shape), schema

    def result(self) -> Rounding:
        """What was done to all values so far."""
        return Rounding(
            path=self._path,
            dtype=self.dtype,
            largest=self._largest,
            sample=self._sample,
            mean=math.fsum(self._sums) / max(1, self._count),
            vanished=self._vanished / max(1, self._other_than_zero),
            nbytes=self._nbytes,
            full_nbytes=self._full_nbytes,
        )

    def _sample_at(self, rows_of: RowsOf, place: int) -> int:
        return self._samples.number(int(rows_of(np.array([place]))[0]))

    def _refuse(self, sample: int, value: float) -> None:
        most = torch.finfo(self.dtype).max
        advice = "leave `storage_dtype` out"
        if self.dtype is torch.float16 and abs(value) <= torch.finfo(torch.bfloat16).max:
            advice = f"use torch.bfloat16, which has the range of float32, or {advice}"
        raise PrecisionError(
            f"sample {sample} has the value {value!r} at {self._path}, but {name_of(self.dtype)} "
            f"ends at {most:g}: it would become infinite; {advice}"
        )


def narrowed(column: Column, narrower: Narrower, *, chosen: Tensor | None = None) -> Column:
    """The same leaves kept in a narrower dtype; those that are not floating-point or wide stay.

    Args:
        column: the leaves, of every row.
        narrower: rounds them, and measures what that does.
        chosen: (M,) int64, the only rows of a dense column that are kept, in that order; None for
            all. They are then rows of the result, for the narrower too.

    Raises:
        PrecisionError: if a finite value lies outside the dtype's range; names sample and value.
    """
    if isinstance(column, ListColumn):
        items = [narrower.item(item, row) for row, item in enumerate(column.items)]
        return ListColumn(column.schema, items)
    if not is_narrowed_by(column.schema, narrower.dtype):
        return column
    data = column.data.detach().as_subclass(Tensor)
    shape = data.shape if chosen is None else (len(chosen), *data.shape[1:])
    target = torch.empty(shape, dtype=narrower.dtype, device=data.device)
    rows_of = _rows_of(column)
    for first, values, room in _chunks(data, target, chosen):
        room.copy_(narrower.take(values, partial(_shifted, rows_of, first)))
    return replace(column, data=target)


RowsOf = Callable[[np.ndarray], np.ndarray]
"""The rows that the values at some positions are of."""


def _rows_of(column: DenseColumn | RaggedColumn) -> RowsOf:
    if isinstance(column, DenseColumn):
        size = max(1, math.prod(column.schema.shape))
        return lambda positions: positions // size
    starts, sizes = column.index[:, 0], column.index[:, 1 : 1 + len(column.schema.shape)].prod(1)
    order = np.lexsort((sizes, starts))  # of leaves that start together only the last has values
    return lambda positions: order[np.searchsorted(starts[order], positions, side="right") - 1]


def _shifted(rows_of: RowsOf, first: int, positions: np.ndarray) -> np.ndarray:
    return rows_of(positions + first)


def _chunks(
    data: Tensor, target: Tensor, chosen: Tensor | None
) -> Iterator[tuple[int, Tensor, Tensor]]:
    """Where each chunk begins, its values, and the room for them, both flat.

    Chunk by chunk, since the arithmetic is in double precision, and a user's array need not lie
    without gaps.
    """
    size = max(1, math.prod(data.shape[1:]))
    per_chunk = max(1, CHUNK_VALUES // size)
    for row in range(0, len(target), per_chunk):
        part = slice(row, row + per_chunk)
        rows = data[part] if chosen is None else data.index_select(0, chosen[part])
        flat, room = rows.reshape(-1), target[part].view(-1)
        for first in range(0, len(flat), CHUNK_VALUES):
            some = slice(first, first + CHUNK_VALUES)
            yield row * size + first, flat[some], room[some]


class _Samples:
    """Which sample a row is of; rows that are no sample's are not looked at."""

    def __init__(self, length: int, rows: Tensor | None) -> None:
        self._rows = None if rows is None else rows.cpu().numpy()
        self._is_used = np.ones(length, dtype=bool)
        if self._rows is not None:
            self._is_used[:] = False
            self._is_used[self._rows] = True
        self.are_all = bool(self._is_used.all())

    def are_used(self, rows: np.ndarray) -> np.ndarray:
        used: np.ndarray = self._is_used[rows]
        return used

    def number(self, row: int) -> int:
        return row if self._rows is None else int(np.flatnonzero(self._rows == row)[0])


def _first(where: Tensor) -> int:
    return int(where.nonzero()[0, 0])
