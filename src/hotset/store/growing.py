"""One field of a store under construction: its values and, once shapes differ, its index."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from hotset.errors import SchemaError
from hotset.sample.collate import difference
from hotset.sample.column import Column, LeafSchema
from hotset.store.arrayfile import ArrayFile
from hotset.store.blocks import block_bytes_for
from hotset.store.field import Field, field_from_dict
from hotset.store.layout import File
from hotset.store.mapped import column_over, empty_column
from hotset.store.npy import array_dtype, header_room

BATCHES = "; they cannot stand in one batch"
INDEX_DTYPE = np.dtype("<i8")
GROWTH = 1.25
"""Room that is made for ragged values beyond what their mean so far says."""


class GrowingField:
    """A field that samples are appended to.

    Args:
        folder: where its files are.
        described: the field as it begins.
        block_bytes: bytes per checksum of its values.
    """

    def __init__(self, folder: Path, described: Field, block_bytes: int) -> None:
        self.described, self._folder = described, folder
        self.rows = 0
        shape = described.schema.shape if described.schema.is_storable else ()
        room = header_room(array_dtype(described.dtype), shape)
        path = folder / f"{described.name}.values"
        self._restore_name(path)
        self._values = ArrayFile(path, room, block_bytes)
        self._index: ArrayFile | None = None
        if described.is_ragged:
            self._index = self._new_index()

    def _restore_name(self, path: Path) -> None:
        """Files bear the names of a whole store where its making ended just before its end."""
        for is_ragged in (True, False):
            whole = self._folder / replace(self.described, is_ragged=is_ragged).data_file
            if whole.exists() and not path.exists():
                whole.rename(path)

    def _new_index(self) -> ArrayFile:
        room = header_room(INDEX_DTYPE, (self.described.index_columns,))
        return ArrayFile(self._folder / self.described.index_file, room, block_bytes_for(0))

    @property
    def files(self) -> dict[str, ArrayFile]:
        """Its files, by the names that the journal has for them."""
        files = {"values": self._values}
        return files if self._index is None else {**files, "index": self._index}

    def take_in(self, description: Any) -> None:
        """Takes over what a journal says the field became."""
        found = field_from_dict(description)
        self.described = replace(found, path=self.described.path)
        if found.is_ragged and self._index is None:
            self._index = self._new_index()

    def fit(self, samples: Sequence[int], schemas: Sequence[LeafSchema], first: int) -> bool:
        """Makes the field such that leaves fit into it; whether that changed it.

        Args:
            samples: which samples they are of.
            schemas: of each leaf.
            first: a sample that is there already, for the error.

        Raises:
            SchemaError: if a leaf is not of the field's kind.
        """
        before = after = self.described
        for sample, schema in zip(samples, schemas, strict=True):
            after = _fitted(after, sample, schema, first)
        if after.is_ragged and self._index is None:
            self._index = self._index_of_equals()
        self.described = after
        return after is not before

    def _index_of_equals(self) -> ArrayFile:
        """The index of what was written while all shapes were the same."""
        f, index = self.described, self._new_index()
        rows = np.zeros((self.rows, f.index_columns), INDEX_DTYPE)
        rows[:, 0] = np.arange(self.rows) * (f.item_bytes // f.dtype.itemsize)
        rows[:, 1 : 1 + f.axes] = f.schema.shape
        index.append(rows)
        return index

    def append(
        self, values: np.ndarray, schemas: Sequence[LeafSchema], lengths: np.ndarray
    ) -> None:
        """Writes the leaves of further samples.

        Args:
            values: (bytes,) uint8 of all of them.
            schemas: of each.
            lengths: (samples,) bytes of each.
        """
        f = self.described
        if self._index is not None:
            rows = np.zeros((len(schemas), f.index_columns), INDEX_DTYPE)
            sizes = lengths // f.dtype.itemsize
            rows[:, 0] = self._values.end // f.dtype.itemsize + sizes.cumsum() - sizes
            if not f.schema.is_storable:
                rows[:, 1] = lengths
            else:
                rows[:, 1 : 1 + f.axes] = np.array(
                    [schema.shape for schema in schemas], INDEX_DTYPE
                ).reshape(len(schemas), f.axes)
            if f.schema.kind == "image":
                rows[:, -1] = [f.modes.index(schema.mode) for schema in schemas]
            self._index.append(rows)
        self._values.append(values)
        self.rows += len(schemas)

    def rewind(self, rows: int, ends: dict[str, int]) -> None:
        """Goes back to where the field had so many rows."""
        self.rows = rows
        for name, file in self.files.items():
            file.rewind(ends[name])

    def column(self, rows: int) -> Column:
        """What was written, as a column; with room for `rows` samples in all."""
        f, values = self.described, self._values
        if self._index is None:
            if f.item_bytes == 0:
                return empty_column(f, rows)
            return column_over(f, values.view(rows * f.item_bytes), None)
        index = self._index.view(rows * f.index_columns * INDEX_DTYPE.itemsize)
        room = values.room
        if values.end > room:
            room = int(values.end * rows * GROWTH / max(1, self.rows))
        written = index.view(INDEX_DTYPE).reshape(-1, f.index_columns)[: self.rows]
        return column_over(f, values.view(room), written)

    def finish(self) -> dict[str, File]:
        """Its finished files, by the names that they have in a whole store."""
        f = self.described
        dtype = array_dtype(f.dtype)
        shape = (self.rows, *f.schema.shape)
        if f.is_ragged:
            shape = (self._values.end // dtype.itemsize,)
        files = {f.data_file: self._values.finish(dtype, shape)}
        if self._index is not None:
            shape = (self.rows, f.index_columns)
            files[f.index_file] = self._index.finish(INDEX_DTYPE, shape)
        else:
            (self._folder / f.index_file).unlink(missing_ok=True)
        self._values.path.rename(self._folder / f.data_file)
        return files

    def close(self) -> None:
        """Closes the files."""
        for file in self.files.values():
            file.close()


def _fitted(f: Field, sample: int, schema: LeafSchema, first: int) -> Field:
    """The field such that one more leaf fits into it."""
    if schema == f.schema:
        return f
    if not _is_alike(schema, f.schema):
        words, _, _ = difference(f.path, first, f.schema, sample, schema).rpartition(BATCHES)
        raise SchemaError(
            f"{words}; a store keeps one type, one dtype and one number of axes per field"
        )
    if schema.kind != "image":
        return f if f.is_ragged else replace(f, is_ragged=True)
    is_same = (schema.shape, schema.mode) == (f.schema.shape, f.schema.mode)
    if schema.mode in f.modes or (is_same and not f.is_ragged):
        return f  # PIL's classes differ with the file that an image is from
    known = f.modes or (f.schema.mode,)
    modes = known if schema.mode in known else (*known, schema.mode)
    return replace(f, is_ragged=True, modes=modes)


def _is_alike(schema: LeafSchema, first: LeafSchema) -> bool:
    """Whether two leaves can stand in one field, whatever their shapes."""
    is_same = schema.kind == first.kind and schema.dtype == first.dtype
    return is_same and (
        schema.kind == "image"
        or (schema.cls is first.cls and len(schema.shape) == len(first.shape) > 0)
    )
