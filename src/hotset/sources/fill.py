"""Reads every sample once, and stores its leaves in columns."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from contextlib import closing
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import get_worker_info

from hotset.chain.probe import generator_states, preserved_generators
from hotset.errors import SchemaError
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

    Raises:
        SampleError: if a sample fails; names the index.
        SchemaError: if samples differ; names an index and both shapes.
        UnkeepableError: if reading draws random numbers, or the reader says so.
    """
    with preserved_generators():
        before = generator_states()
        columns = _filled(reader, length, name, spec, is_ragged_allowed, workers, progress)
        refuse_draws(before)
    return columns


def _filled(
    reader: Reader,
    length: int,
    name: str,
    spec: Spec,
    is_ragged_allowed: bool,
    workers: int,
    progress: Progress | None,
) -> list[Column]:
    builder: _Builder | None = None
    # Closed in any case: workers would live on until they are collected.
    with closing(_samples(reader, length, name, spec, workers)) as samples:
        for index, leaves in enumerate(samples):
            if builder is None:
                builder = _Builder(length, leaves, spec.paths(), is_ragged_allowed)
            builder.add(index, leaves)
            if progress is not None and (index % SAMPLES_PER_TASK == 0 or index == length - 1):
                progress(index + 1, length)
    assert builder is not None
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
    data = torch.empty(int(sizes.sum()), dtype=first.dtype)
    for row, (start, size) in enumerate(zip(index[:, 0].tolist(), sizes.tolist(), strict=True)):
        data[start : start + size] = items[row][0].reshape(-1)
        items[row] = None
    return RaggedColumn(first, data, index, modes)


class _Builder:
    """Columns that grow; dense until a leaf comes that differs."""

    def __init__(self, length: int, leaves: Sequence[Any], paths: list[str], ragged: bool) -> None:
        self._paths, self._is_ragged_allowed = paths, ragged
        self.columns: list[Column] = []
        self._rows: list[np.ndarray | Tensor] = []
        for leaf in leaves:
            schema = describe(leaf)
            data = torch.empty((length, *schema.shape), dtype=schema.dtype or torch.uint8)
            is_dense = schema.dtype is not None
            self.columns.append(DenseColumn(schema, data) if is_dense else ListColumn(schema, []))
            # Rows are written through NumPy where it has the dtype: torch takes ten times as long.
            self._rows.append(data.numpy() if has_numpy(data.dtype) else data)

    def add(self, index: int, leaves: Sequence[Any]) -> None:
        for number, (leaf, column) in enumerate(zip(leaves, self.columns, strict=True)):
            schema = column.schema
            if isinstance(column, DenseColumn) and _fits(leaf, schema):
                self._rows[number][index] = _stored(leaf, schema)
                continue
            if isinstance(column, DenseColumn) or type(leaf) is not schema.cls:
                self._refuse_difference(number, index, schema, describe(leaf))
            if isinstance(column, DenseColumn):
                items = [list_item(column.item(row)) for row in range(index)]
                column = self.columns[number] = ListColumn(schema, items)
            assert isinstance(column, ListColumn)
            column.items.append(list_item(leaf))

    def _refuse_difference(
        self, number: int, index: int, first: LeafSchema, other: LeafSchema
    ) -> None:
        if not self._is_ragged_allowed and not can_batch(first, other):
            raise SchemaError(difference(self._paths[number], 0, first, index, other))


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
