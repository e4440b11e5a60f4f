"""Reads every sample once, and stores its leaves in columns."""

from __future__ import annotations

import math
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import closing
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import get_worker_info

from hotset.chain.probe import generator_states, preserved_generators
from hotset.errors import SchemaError
from hotset.placement.precision import CHUNK_VALUES, Narrower, is_narrowed_by
from hotset.sample.collate import can_batch, difference
from hotset.sample.column import (
    Column,
    DenseColumn,
    LeafSchema,
    ListColumn,
    RaggedColumn,
    describe,
    encode,
    has_numpy,
    is_int64,
    list_item,
)
from hotset.sample.tree import Spec
from hotset.sources.source import Reader
from hotset.sources.sweep import Progress, leaves_of, refuse_draws, sweep

SAMPLES_PER_TASK = 64


def fill_columns(
    reader: Reader,
    length: int,
    *,
    name: str,
    spec: Spec,
    is_ragged_allowed: bool,
    workers: int = 0,
    progress: Progress | None = None,
    narrowers: Mapping[int, Narrower] | None = None,
) -> list[Column]:
    """All samples, as one column per leaf.

    Args:
        reader: gives the samples.
        length: number of samples.
        name: what messages call the dataset.
        spec: structure that every sample must have.
        is_ragged_allowed: whether leaves may differ in shape; they then lie end to end, or in a
            list where they differ in kind.
        workers: processes that may read, where reading is slow.
        progress: told how far it is.
        narrowers: by leaf, what rounds the values of those that are kept in a narrower dtype; they
            are at no time all in memory at their own.

    Raises:
        SampleError: if a sample fails; names the index.
        SchemaError: if samples differ; names an index and both shapes.
        UnkeepableError: if reading draws random numbers, or the reader says so.
        PrecisionError: if a value lies outside the range of the dtype that it is to be kept in.
    """
    builder = _Builder(length, spec.paths(), is_ragged_allowed, narrowers or {})
    with preserved_generators():
        before = generator_states()
        # Closed in any case: workers would live on until they are collected.
        with closing(_samples(reader, length, name, spec, workers)) as samples:
            for index, leaves in enumerate(samples):
                builder.add(index, leaves)
                if progress is not None and (index % SAMPLES_PER_TASK == 0 or index == length - 1):
                    progress(index + 1, length)
        refuse_draws(before)
    return [_compacted(column) for column in builder.columns]


def _compacted(column: Column) -> Column:
    """Values of differing shapes end to end; the list is emptied on the way, to spare memory."""
    if not isinstance(column, ListColumn) or not isinstance(column.items[0], tuple):
        return column
    items, first = column.items, column.items[0][1]
    alike = {(s.kind, s.cls, s.dtype, len(s.shape)) for _, s in items}
    if len(alike) > 1 or not first.shape:
        return column
    modes = tuple(dict.fromkeys(s.mode for _, s in items)) if first.kind == "image" else ()
    index = np.zeros((len(items), 1 + len(first.shape) + len(modes[:1])), np.int64)
    sizes = np.array([stored.numel() for stored, _ in items])
    index[:, 0] = sizes.cumsum() - sizes
    index[:, 1 : 1 + len(first.shape)] = [s.shape for _, s in items]
    if modes:
        index[:, -1] = [modes.index(s.mode) for _, s in items]
    data = torch.empty(int(sizes.sum()), dtype=items[0][0].dtype)
    for row, (start, size) in enumerate(zip(index[:, 0].tolist(), sizes.tolist(), strict=True)):
        data[start : start + size] = items[row][0].reshape(-1)
        items[row] = None
    return RaggedColumn(first, data, index, modes)


class _Builder:
    """Columns that grow; dense until a leaf comes that differs."""

    def __init__(
        self, length: int, paths: list[str], ragged: bool, narrowers: Mapping[int, Narrower]
    ) -> None:
        self._length, self._paths, self._is_ragged_allowed = length, paths, ragged
        self._narrowers = narrowers
        self.columns: list[Column] = []
        self._rows: list[np.ndarray | Tensor | _NarrowRows] = []

    def _begin(self, leaf: Any, narrower: Narrower | None) -> None:
        schema, length = describe(leaf), self._length
        if schema.dtype is None:
            self.columns.append(ListColumn(schema, []))
            self._rows.append(torch.empty(0))
            return
        is_narrowed = narrower is not None and is_narrowed_by(schema, narrower.dtype)
        dtype = narrower.dtype if narrower is not None and is_narrowed else schema.dtype
        column = DenseColumn(schema, torch.empty((length, *schema.shape), dtype=dtype))
        self.columns.append(column)
        if narrower is not None and is_narrowed:
            self._rows.append(_NarrowRows(column, narrower))
        else:
            self._rows.append(_assignable(column.data))

    def add(self, index: int, leaves: Sequence[Any]) -> None:
        if not self.columns:
            for number, leaf in enumerate(leaves):
                self._begin(leaf, self._narrowers.get(number))
        for number, (leaf, column) in enumerate(zip(leaves, self.columns, strict=True)):
            schema = column.schema
            if isinstance(column, DenseColumn) and _fits(leaf, schema):
                self._rows[number][index] = _stored(leaf, schema)
                continue
            if isinstance(column, DenseColumn) or type(leaf) is not schema.cls:
                self._refuse_difference(number, index, schema, describe(leaf))
            if isinstance(column, DenseColumn):
                rows = self._rows[number]
                if isinstance(rows, _NarrowRows):
                    rows.flush(index)
                items: list[Any] = [(stored.clone(), schema) for stored in column.data[:index]]
                column = self.columns[number] = ListColumn(schema, items)
            assert isinstance(column, ListColumn)
            item, narrower = list_item(leaf), self._narrowers.get(number)
            column.items.append(item if narrower is None else narrower.item(item, index))

    def _refuse_difference(
        self, number: int, index: int, first: LeafSchema, other: LeafSchema
    ) -> None:
        if not self._is_ragged_allowed and not can_batch(first, other):
            raise SchemaError(difference(self._paths[number], 0, first, index, other))


class _NarrowRows:
    """Rows on their way into a column of a narrower dtype, rounded some at a time."""

    def __init__(self, column: DenseColumn, narrower: Narrower) -> None:
        self._target, self._narrower = column.data, narrower
        self._size = math.prod(column.schema.shape)
        count = max(1, min(len(column), CHUNK_VALUES // max(1, self._size)))
        self._room = torch.empty((count, *column.schema.shape), dtype=column.schema.dtype)
        self._rows = _assignable(self._room)
        self._first = 0

    def __setitem__(self, index: int, values: Any) -> None:
        self._rows[index - self._first] = values
        if index + 1 - self._first == len(self._room) or index + 1 == len(self._target):
            self.flush(index + 1)

    def flush(self, stop: int) -> None:
        """Rounds what has come up to a row."""
        first, size = self._first, self._size
        values = self._room[: stop - first].reshape(-1)
        kept = self._narrower.take(values, lambda positions: first + positions // size)
        self._target[first:stop] = kept.view(self._target[first:stop].shape)
        self._first = stop


def _assignable(data: Tensor) -> np.ndarray | Tensor:
    """What rows are assigned to: NumPy's view where there is one; torch takes ten times as long."""
    return data.numpy() if has_numpy(data.dtype) else data


def _fits(leaf: Any, schema: LeafSchema) -> bool:
    """Whether a leaf has the schema; `describe(leaf) == schema`, quickly."""
    cls: Any = schema.cls
    if type(leaf) is not cls:
        return False
    if schema.kind == "image":
        return bool(leaf.mode == schema.mode and leaf.size == schema.shape[:0:-1])
    if schema.kind in ("tensor", "array"):
        return leaf.shape == schema.shape and describe(leaf) == schema
    return schema.kind != "int" or is_int64(leaf)


def _stored(leaf: Any, schema: LeafSchema) -> Any:
    """What is assigned to a row; `encode(leaf, schema)`, quickly."""
    if schema.kind == "image":
        pixels = np.asarray(leaf)
        return pixels if pixels.ndim == 2 else pixels.transpose(2, 0, 1)
    if schema.kind == "tensor" and has_numpy(leaf.dtype):
        return encode(leaf, schema).numpy()
    return leaf


def _samples(
    reader: Reader, length: int, name: str, spec: Spec, workers: int
) -> Generator[list[Any], None, None]:
    """The leaves of each sample, in order; by workers where that is quicker."""
    task = _Leaves(reader, name, spec)
    tasks = sweep(task, range(length), per_task=SAMPLES_PER_TASK, workers=workers)
    with closing(tasks) as results:
        for items in results:
            for leaves in items:
                yield [_unpack(leaf) for leaf in leaves]


class _Leaves:
    """Reads samples, and packs their leaves where they go to another process."""

    def __init__(self, reader: Reader, name: str, spec: Spec) -> None:
        self._reader, self._name, self._spec = reader, name, spec

    def __call__(self, ids: Sequence[int]) -> Iterable[list[Any]]:
        if get_worker_info() is None:  # one by one: a dataset may use its memory again
            return (leaves_of(self._reader, index, self._name, self._spec) for index in ids)
        before = generator_states()
        items = [
            [_pack(leaf) for leaf in leaves_of(self._reader, index, self._name, self._spec)]
            for index in ids
        ]
        refuse_draws(before)
        return items


class _Packed:
    """A tensor on its way between processes as plain bytes; as itself it would hold a file open."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.array, self.cls = tensor.detach().as_subclass(torch.Tensor).numpy(), type(tensor)


def _pack(leaf: Any) -> Any:
    is_packable = isinstance(leaf, torch.Tensor) and describe(leaf).is_storable
    return _Packed(leaf) if is_packable and has_numpy(leaf.dtype) else leaf


def _unpack(leaf: Any) -> Any:
    return torch.from_numpy(leaf.array).as_subclass(leaf.cls) if isinstance(leaf, _Packed) else leaf
