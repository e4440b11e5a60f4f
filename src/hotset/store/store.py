"""`hotset.Store`: samples on disk as a map-style dataset, memory-mapped and checked."""

from __future__ import annotations

import operator
import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from hotset.chain.step import StepCall
from hotset.errors import ConfigError, FormatError
from hotset.sample.column import Column
from hotset.sample.tree import Spec, unflatten
from hotset.store.blocks import Damage, samples_in_words
from hotset.store.field import Field
from hotset.store.files import MappedFiles, read_manifest
from hotset.store.layout import ROWS, TABLE, VALUES
from hotset.store.mapped import column_over, empty_column, index_problem, tensor_over
from hotset.store.npy import array_dtype
from hotset.store.table import Lookup
from hotset.store.urls import given_path, local_path

Verify = Literal["touch", "open", "never"]
VERIFY = ("touch", "open", "never")
INDEX = np.dtype("<i8")


class Store(Dataset[Any]):
    """Samples on disk, as `hotset.build` wrote them; a map-style dataset.

    A sample is what the dataset that was built from gives, up to its first random step: same
    containers, types, shapes, dtypes and bits. Reading maps the files into memory: nothing is
    copied, and processes that read the same store share its pages.

    Not kept are the order of a dictionary's keys, which is that of the first sample; the memory
    layout of arrays and tensors (Fortran order, channels last), which come back contiguous; and
    of PIL images the notes (`info`): mode and pixels are.

    Args:
        path: the store's directory.
        verify: when a block's checksum is looked at: "touch" before it is first used, "open" all
            at once, or "never".

    Attributes:
        path: the store's directory.
        manifest: what it says of itself.

    Raises:
        MissingDataError: if there is no store.
        FormatError: if it is damaged, or of a newer version; reading a damaged block raises it as
            well, and names file, block and samples.

    Example:
        >>> import hotset, tempfile
        >>> folder = tempfile.mkdtemp()
        >>> squares = [(n, n * n) for n in range(4)]
        >>> store = hotset.build(squares, f"{folder}/squares.hotset", version="1")
        >>> len(store), store[3]
        (4, (3, 9))
    """

    def __init__(self, path: str | os.PathLike[str], *, verify: Verify = "touch") -> None:
        if verify not in VERIFY:
            raise ConfigError(f"`verify` must be one of {', '.join(VERIFY)}, got {verify!r}")
        self.path, self._verify = Path(local_path(given_path(path))), verify
        self._home = os.path.abspath(self.path)
        self.manifest = read_manifest(self.path)
        self._files = MappedFiles(
            self.path, self.manifest.files, self._refuse, is_trusted=verify == "never"
        )
        counts = [self.manifest.rows_in(f) for f in self.fields]
        self._held = next((count for count in counts if count is not None), None)
        self._rows = self._order()
        self._columns = tuple(self._column(f) for f in self.manifest.fields)
        self._table = self._lookup()
        self._touched = np.zeros(self._held or 0, dtype=bool)
        if verify == "open":
            self._files.look_at_all()
            self.touch(self.rows_of(np.arange(len(self))))

    def __reduce__(self) -> Any:
        # Another process maps the files itself: nothing of the data travels.
        return partial(type(self), verify=self._verify), (self._home,)

    def __len__(self) -> int:
        return self.manifest.samples

    def __getitem__(self, index: int) -> Any:
        """One sample, as it was.

        Raises:
            IndexError: if there is no such sample.
            FormatError: if a block that it lies in is damaged.
        """
        position = operator.index(index)
        if not -len(self) <= position < len(self):
            raise IndexError(f"index {index} of a store of {len(self)} samples")
        row = self.rows_of(np.array([position % len(self)]))
        self.touch(row)
        try:
            leaves = [column.item(int(row[0])) for column in self._columns]
        except (ValueError, RuntimeError) as error:  # text that is none, if nobody looked before
            raise FormatError(f"{self.path}: sample {position} makes no sense ({error})") from error
        if self._table is not None:
            leaves[self.leaf] = self._table(leaves[self.leaf])
        return unflatten(self.spec, iter(leaves))

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """The samples at some indices."""
        return [self[index] for index in indices]

    def __repr__(self) -> str:
        fields = ", ".join(f"{f.name}: {f}" for f in self.fields)
        return f"Store({str(self.path)!r}, {len(self):,} samples, {fields})"

    @property
    def fields(self) -> tuple[Field, ...]:
        """What each leaf of a sample is."""
        return self.manifest.fields

    @property
    def spec(self) -> Spec:
        """The structure of a sample."""
        return self.manifest.spec

    @property
    def leaf(self) -> int:
        """Which leaf transforms act on."""
        return self.manifest.leaf

    @property
    def nbytes(self) -> int:
        """Bytes on disk, but for the manifest."""
        return self.manifest.nbytes

    @property
    def columns(self) -> tuple[Column, ...]:
        """One per leaf, over the mapped files; `touch` the rows before reading from them.

        Their tensors lie in read-only memory: writing to it ends the process.
        """
        return self._columns

    @property
    def steps(self) -> list[StepCall]:
        """What is done to the leaf when it is read: the table, where bytes are kept."""
        return [] if self._table is None else [self._table]

    @property
    def rows(self) -> Tensor | None:
        """(N,) int64, the row of every sample; None where they stand in order.

        Raises:
            FormatError: if they are damaged.
        """
        if self._rows is None:
            return None
        return torch.from_numpy(self.rows_of(np.arange(len(self))))

    def rows_of(self, samples: np.ndarray) -> np.ndarray:
        """(B,) int64 rows of some samples.

        Raises:
            FormatError: if they are damaged.
        """
        if self._rows is None:
            return samples
        starts = samples * INDEX.itemsize
        self._files.touch(ROWS, starts, starts + INDEX.itemsize)
        rows = np.array(self._rows[samples])
        if not self._are_rows(rows).all():
            raise FormatError(f"{self.path / ROWS} names rows that are not there")
        return rows

    def _are_rows(self, rows: np.ndarray) -> np.ndarray:
        return (rows >= 0) & (rows < (len(self) if self._held is None else self._held))

    def touch(self, rows: np.ndarray) -> None:
        """Looks at the blocks that rows lie in, if none of them was looked at before.

        What an index says of the rows is looked at in any case: they lie within the values.

        Args:
            rows: (B,) int64.

        Raises:
            FormatError: if a block is damaged; names file, block and samples.
        """
        if self._held is None:
            return  # no leaf of any sample has a byte
        rows = rows[~self._touched[rows]]
        if len(rows) == 0:
            return
        for f in self.fields:
            if f.is_ragged:
                starts, stops = self._ranges(f, rows)
            else:
                starts = rows * f.item_bytes
                stops = starts + f.item_bytes
            self._files.touch(f.data_file, starts, stops)
        self._touched[rows] = True

    def _ranges(self, f: Field, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """First byte, and byte behind the last, of the ragged leaves of some rows."""
        width = INDEX.itemsize * f.index_columns
        self._files.touch(f.index_file, rows * width, (rows + 1) * width)
        index, size = self._index(f)[rows], f.dtype.itemsize
        is_tabled = self.manifest.finished is not None and f is self.fields[self.leaf]
        channels = f.schema.shape[0] if is_tabled else None
        wrong = index_problem(f, index, len(self._files[f.data_file]) // size, channels)
        if wrong is not None:
            raise FormatError(
                f"{self.path / f.index_file} is damaged: row {rows[wrong[0]]} has the {wrong[1]}"
            )
        starts = index[:, 0] * size
        return starts, starts + index[:, 1 : 1 + f.axes].prod(axis=1) * size

    def damaged(self) -> list[Damage]:
        """Every block whose bytes are not those that were written; reads the whole store."""
        return [
            Damage(name, block, self._samples_in(name, block))
            for name, block in self._files.damaged()
        ]

    def _refuse(self, name: str, block: int) -> None:
        words = samples_in_words(self._samples_in(name, block))
        raise FormatError(
            f"{self.path / name} is damaged: block {block} does not have the checksum that it was "
            f"written with ({words}); `hotset verify {self.path} --repair PKG.MOD:NAME` makes the "
            "block again"
        )

    def _samples_in(self, name: str, block: int) -> Sequence[int]:
        """The samples that have bytes in a block of a file, as far as other damage lets know."""
        size = self.manifest.files[name].block_bytes
        first, stop = block * size, (block + 1) * size
        if name == ROWS:
            width = INDEX.itemsize
            return range(first // width, min(len(self), -(-stop // width)))
        f = next((f for f in self.fields if name in (f.data_file, f.index_file)), None)
        if f is None:
            return range(len(self))
        samples = np.arange(len(self))
        rows = samples if self._rows is None else np.asarray(self._rows)
        samples, rows = samples[self._are_rows(rows)], rows[self._are_rows(rows)]
        if name == f.index_file:
            width = INDEX.itemsize * f.index_columns
            starts, stops = rows * width, (rows + 1) * width
        elif f.is_ragged:
            index = self._index(f)[rows]
            starts = index[:, 0] * f.dtype.itemsize
            stops = starts + index[:, 1 : 1 + f.axes].prod(axis=1) * f.dtype.itemsize
        else:
            starts, stops = rows * f.item_bytes, (rows + 1) * f.item_bytes
        is_in = (starts < stop) & (stops > first) & (stops > starts)
        return tuple(samples[is_in].tolist())

    def _order(self) -> np.ndarray | None:
        if ROWS not in self.manifest.files:
            return None
        self._files.check_header(ROWS, INDEX, (len(self),))
        return self._files[ROWS].view(INDEX)

    def _index(self, f: Field) -> np.ndarray:
        return self._files[f.index_file].view(INDEX).reshape(-1, f.index_columns)

    def _column(self, f: Field) -> Column:
        values, dtype = self._files[f.data_file], array_dtype(f.dtype)
        rows = len(self) if self._held is None else self._held
        shape = (len(values) // dtype.itemsize,) if f.is_ragged else (rows, *f.schema.shape)
        self._files.check_header(f.data_file, dtype, shape)
        if not f.is_ragged:
            return column_over(f, values, None) if f.item_bytes else empty_column(f, rows)
        index = self._index(f)
        self._files.check_header(f.index_file, INDEX, index.shape)
        return column_over(f, values, index)

    def _lookup(self) -> Lookup | None:
        finished = self.manifest.finished
        if finished is None or finished.dtype is None:
            return None
        values, dtype = self._files[TABLE], finished.dtype
        shape = (len(values) // (VALUES * dtype.itemsize), VALUES)
        self._files.check_header(TABLE, array_dtype(dtype), shape)
        if self._verify != "never":
            self._files.look_at_all(TABLE)
        return Lookup(tensor_over(values, dtype).reshape(shape).clone(), finished.cls)
