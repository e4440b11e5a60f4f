"""A store's files as they are on disk, damaged or not: what is damaged, and which samples by it."""

from __future__ import annotations

import math
import os
import stat
import zlib
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hotset.store.blocks import HEADER, Damage
from hotset.store.field import Field
from hotset.store.files import read_manifest, reading_errors
from hotset.store.layout import ROWS, TABLE, VALUES, File
from hotset.store.npy import array_dtype, array_header

INDEX = np.dtype("<i8")


class Contents:
    """The files of a store of which only the manifest need be whole.

    Args:
        path: the store's directory.

    Attributes:
        path: the store's directory.
        manifest: what it says of itself.
        bad: numbers of the damaged blocks of each file, `HEADER` for what stands before them;
            known after `look`.

    Raises:
        MissingDataError: if there is no store.
        FormatError: if its manifest is damaged.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.manifest = path, read_manifest(path)
        self.bad: dict[str, list[int]] = {name: [] for name in self.manifest.files}
        self._arrays: dict[str, np.ndarray] = {}
        self._places: dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]] = {}

    def look(
        self,
        told: Callable[[int, int], object] | None = None,
        names: Collection[str] | None = None,
    ) -> list[Damage]:
        """Reads files; gives every block that is not as it was written.

        Args:
            told: called with bytes read so far, and in all.
            names: of the files; None is all.

        Raises:
            StorageError: if a file may not be read.
        """
        names = self.manifest.files if names is None else names
        files = {name: self.manifest.files[name] for name in names}
        before, total = 0, sum(file.nbytes for file in files.values())
        for name, file in files.items():
            self.bad[name] = []
            for block, is_whole in enumerate(self._blocks(name, file), HEADER):
                if not is_whole:
                    self.bad[name].append(block)
                if told is not None:
                    done = min((block + 1) * file.block_bytes, file.payload_bytes)
                    told(before + done, total)
            before += file.nbytes
        self._arrays.clear()
        self._places.clear()
        return [
            Damage(name, block, self.samples_in(name, block))
            for name in files
            for block in self.bad[name]
        ]

    def _blocks(self, name: str, file: File) -> Iterator[bool]:
        """Whether the header is as it should be, and then every block."""
        path = self.path / name
        with reading_errors(path):
            if not is_ordinary(path):
                yield from [False] * (1 + len(file.checksums))
                return
            with open(path, "rb") as content:
                is_whole = content.read(file.header_bytes) == self.header(name)
                yield is_whole and os.fstat(content.fileno()).st_size == file.nbytes
                content.seek(file.header_bytes)
                for crc in file.checksums:
                    part = content.read(file.block_bytes)
                    yield zlib.crc32(part) == crc

    def header(self, name: str) -> bytes:
        """What a file begins with."""
        dtype, shape = self._array_of(name)
        return array_header(dtype, shape, self.manifest.files[name].header_bytes)

    def _array_of(self, name: str) -> tuple[np.dtype[Any], tuple[int, ...]]:
        """Dtype and shape of the array in a file."""
        manifest, payload = self.manifest, self.manifest.files[name].payload_bytes
        if name == ROWS:
            return INDEX, (manifest.samples,)
        if name == TABLE:
            assert manifest.finished is not None
            assert manifest.finished.dtype is not None
            dtype = array_dtype(manifest.finished.dtype)
            return dtype, (payload // (VALUES * dtype.itemsize), VALUES)
        f = self.field_of(name)
        if name == f.index_file:
            return INDEX, (self.rows_in(f), f.index_columns)
        dtype = array_dtype(f.dtype)
        shape = (payload // dtype.itemsize,) if f.is_ragged else (self.rows_in(f), *f.schema.shape)
        return dtype, shape

    def field_of(self, name: str) -> Field:
        """The field that a file belongs to."""
        return next(f for f in self.manifest.fields if name in (f.data_file, f.index_file))

    def rows_in(self, f: Field) -> int:
        """Rows that a field has."""
        rows = self.manifest.rows_in(f)
        return self.manifest.samples if rows is None else rows

    def index(self, f: Field) -> np.ndarray:
        """(rows, columns) int64: start and shape of each leaf of a ragged field, in memory.

        What is damaged in the file is wrong here too, and may be put right.
        """
        return self._whole(f.index_file).reshape(-1, f.index_columns)

    def rows(self) -> np.ndarray:
        """(N,) int64, the row of every sample, in memory; damaged ones may be put right."""
        if ROWS in self.manifest.files:
            return self._whole(ROWS)
        return np.arange(self.manifest.samples)

    def _whole(self, name: str) -> np.ndarray:
        """The values of a file of whole numbers; zeros for what is cut off."""
        if name not in self._arrays:
            file, path = self.manifest.files[name], self.path / name
            array = np.zeros(file.payload_bytes, np.uint8)
            if is_ordinary(path):
                with reading_errors(path), open(path, "rb") as content:
                    content.seek(file.header_bytes)
                    part = np.frombuffer(content.read(file.payload_bytes), np.uint8)
                array[: len(part)] = part
            self._arrays[name] = array.view(INDEX)
        return self._arrays[name]

    def bad_rows(self, name: str, width: int) -> np.ndarray:
        """Rows of a file of whole numbers that have bytes in damaged blocks, in order.

        Args:
            name: of the file.
            width: bytes of a row.
        """
        file = self.manifest.files[name]
        rows = [
            np.arange(
                block * file.block_bytes // width,
                -(-min((block + 1) * file.block_bytes, file.payload_bytes) // width),
            )
            for block in self.bad[name]
            if block != HEADER
        ]
        return np.unique(np.concatenate(rows)) if rows else np.zeros(0, np.int64)

    def bad_index_rows(self, f: Field) -> np.ndarray:
        """Rows of a ragged field whose place is not known."""
        return self.bad_rows(f.index_file, INDEX.itemsize * f.index_columns)

    def rows_in_block(self, name: str, block: int) -> np.ndarray:
        """Rows that have bytes in a block, or may have where the index is damaged; in order."""
        file, f = self.manifest.files[name], self.field_of(name)
        first = block * file.block_bytes
        stop = min(first + file.block_bytes, file.payload_bytes)
        if name == f.index_file or not f.is_ragged:
            width = f.item_bytes if name == f.data_file else INDEX.itemsize * f.index_columns
            return np.arange(first // width, -(-stop // width))
        good, starts, stops = self._ranges(f)
        # Leaves stand end to end, in the order of the rows; those whose place is not known are
        # somewhere between their neighbours.
        low, high = np.searchsorted(stops, first, "right"), np.searchsorted(starts, stop, "left")
        after = int(good[low - 1]) + 1 if low else 0
        before = int(good[high]) if high < len(good) else self.rows_in(f)
        return np.setdiff1d(
            np.arange(after, before), good[low:high][starts[low:high] == stops[low:high]]
        )

    def _ranges(self, f: Field) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Rows of a ragged field whose place is known, and their first and last bytes."""
        if f.name not in self._places:
            good = np.delete(np.arange(self.rows_in(f)), self.bad_index_rows(f))
            index = self.index(f)[good]
            starts = index[:, 0] * f.dtype.itemsize
            sizes = index[:, 1 : 1 + f.axes].prod(axis=1) * f.dtype.itemsize
            self._places[f.name] = good, starts, starts + sizes
        return self._places[f.name]

    def samples_in(self, name: str, block: int) -> Sequence[int]:
        """The samples that have bytes in a block, or may have where the index is damaged."""
        if block == HEADER:
            return ()
        if name == TABLE:
            return range(self.manifest.samples)
        if name == ROWS:
            size, width = self.manifest.files[ROWS].block_bytes, INDEX.itemsize
            stop = min(self.manifest.samples, -(-(block + 1) * size // width))
            return range(block * size // width, stop)
        found = self.samples_of(self.rows_in_block(name, block))
        if len(found) and found[-1] - found[0] + 1 == len(found):
            return range(int(found[0]), int(found[-1]) + 1)
        return tuple(found.tolist())

    def leaves(self, row: int) -> list[tuple[list[int], bytes]]:
        """Shape and bytes of each leaf of a row; text has none."""
        found = []
        for f in self.manifest.fields:
            shape, start, size = list(f.schema.shape), row * f.item_bytes, f.item_bytes
            if f.is_ragged:
                entry = self.index(f)[row].tolist()
                shape = entry[1 : 1 + f.axes] if f.schema.is_storable else []
                start = entry[0] * f.dtype.itemsize
                size = math.prod(entry[1 : 1 + f.axes]) * f.dtype.itemsize
            with reading_errors(self.path / f.data_file), open(self.path / f.data_file, "rb") as c:
                c.seek(self.manifest.files[f.data_file].header_bytes + start)
                found.append((shape, c.read(size)))
        return found

    def samples_of(self, rows: np.ndarray) -> np.ndarray:
        """The samples that rows belong to, in order; those whose row is not known are left out."""
        if ROWS not in self.manifest.files:
            return rows
        samples = np.arange(self.manifest.samples)
        samples = np.delete(samples, self.bad_rows(ROWS, INDEX.itemsize))
        return samples[np.isin(self.rows()[samples], rows)]


def is_ordinary(path: Path) -> bool:
    """Whether there is a file at a path, and not a link to one."""
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except FileNotFoundError:
        return False
