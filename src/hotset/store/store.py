"""`hotset.Store`: samples on disk as a map-style dataset, memory-mapped and checked."""

from __future__ import annotations

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
from hotset.errors import ConfigError, FormatError, MissingDataError, StorageError
from hotset.sample.column import IMAGE_BANDS, IMAGE_DTYPES, Column
from hotset.sample.tree import Spec, unflatten
from hotset.store.blocks import Damage, Guard, samples_in_words
from hotset.store.layout import (
    MANIFEST,
    ROWS,
    TABLE,
    Field,
    Manifest,
    array_dtype,
    array_header,
    loads,
)
from hotset.store.lookup import Lookup
from hotset.store.mapped import column_over, empty_column, index_problem, tensor_over
from hotset.store.structure import DTYPES

Verify = Literal["touch", "open", "never"]
VERIFY = ("touch", "open", "never")
MOST_MANIFEST_BYTES = 1 << 30
_CHANNELS = {**IMAGE_BANDS, **dict.fromkeys(IMAGE_DTYPES, 1)}


class Store(Dataset[Any]):
    """Samples on disk, as `hotset.build` wrote them; a map-style dataset.

    A sample is what the dataset that was built from gives, up to its first random step: same
    containers, types, shapes, dtypes and bits. Reading maps the files into memory: nothing is
    copied, and processes that read the same store share its pages. Of PIL images the mode and the
    pixels are kept, not the notes (`info`).

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
        self.path, self._verify = Path(path), verify
        self.manifest = read_manifest(self.path)
        self._values = {name: self._map(name) for name in self.manifest.files}
        self._guards = {
            name: Guard(
                self._values[name], file.block_bytes, file.checksums, partial(self._refuse, name)
            )
            for name, file in self.manifest.files.items()
        }
        self._rows = self._order()
        self._columns = tuple(self._column(f) for f in self.manifest.fields)
        self._table = self._lookup()
        if verify == "open":
            for guard in self._guards.values():
                guard.look_at_all()

    def __reduce__(self) -> Any:
        # Another process maps the files itself: nothing of the data travels.
        return partial(type(self), verify=self._verify), (str(self.path),)

    def __len__(self) -> int:
        return self.manifest.samples

    def __getitem__(self, index: int) -> Any:
        """One sample, as it was.

        Raises:
            IndexError: if there is no such sample.
            FormatError: if a block that it lies in is damaged.
        """
        position = int(index)
        if not -len(self) <= position < len(self):
            raise IndexError(f"index {index} of a store of {len(self)} samples")
        row = self.rows_of(np.array([position % len(self)]))
        self.touch(row)
        leaves = [column.item(int(row[0])) for column in self._columns]
        if self._table is not None:
            leaves[self.leaf] = self._table(leaves[self.leaf])
        return unflatten(self.spec, iter(leaves))

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """The samples at some indices."""
        return [self[index] for index in indices]

    def __repr__(self) -> str:
        fields = ", ".join(f"{f.name}: {described(f)}" for f in self.fields)
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
        """One per leaf, over the mapped files; `touch` the rows before reading from them."""
        return self._columns

    @property
    def steps(self) -> list[StepCall]:
        """What is done to the leaf when it is read: the table, where bytes are kept."""
        return [] if self._table is None else [self._table]

    @property
    def rows(self) -> Tensor | None:
        """(N,) int64, the row of every sample; None where they stand in order."""
        return None if self._rows is None else torch.from_numpy(self._rows.copy())

    def rows_of(self, samples: np.ndarray) -> np.ndarray:
        """(B,) int64 rows of some samples."""
        if self._rows is None:
            return samples
        self._guards[ROWS].touch(samples * 8, samples * 8 + 8)
        return np.asarray(self._rows[samples])

    def touch(self, rows: np.ndarray) -> None:
        """Looks at the blocks that rows lie in, if none of them was looked at before.

        Args:
            rows: (B,) int64.

        Raises:
            FormatError: if a block is damaged; names file, block and samples.
        """
        if self._verify == "never":
            return
        for f in self.fields:
            starts, stops = self._ranges(f, rows)
            self._guards[f.data_file].touch(starts, stops)

    def _ranges(self, f: Field, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """First byte, and byte behind the last, of the leaves of some rows."""
        if not f.is_ragged:
            starts = rows * f.item_bytes
            return starts, starts + f.item_bytes
        width = 8 * f.index_columns
        self._guards[f.index_file].touch(rows * width, (rows + 1) * width)
        index = self._index(f)[rows]
        size = f.dtype.itemsize
        starts = index[:, 0] * size
        return starts, starts + index[:, 1 : 1 + f.axes].prod(axis=1) * size

    def damaged(self) -> list[Damage]:
        """Every block whose bytes are not those that were written; reads the whole store."""
        return [
            Damage(name, block, self._samples_in(name, block))
            for name, guard in self._guards.items()
            for block in range(len(self.manifest.files[name].checksums))
            if guard.is_damaged(block)
        ]

    def _refuse(self, name: str, block: int) -> None:
        words = samples_in_words(self._samples_in(name, block))
        raise FormatError(
            f"{self.path / name} is damaged: block {block} does not have the checksum that it was "
            f"written with ({words}); `hotset verify {self.path} --repair PKG.MOD:NAME` makes the "
            "block again"
        )

    def _samples_in(self, name: str, block: int) -> tuple[int, ...]:
        """The samples that have bytes in a block of a file."""
        size = self.manifest.files[name].block_bytes
        first, stop = block * size, (block + 1) * size
        samples = np.arange(len(self))
        if name == ROWS:
            return tuple(samples[first // 8 : -(-stop // 8)].tolist())
        f = next((f for f in self.fields if name in (f.data_file, f.index_file)), None)
        if f is None:
            return tuple(samples.tolist())
        rows = samples if self._rows is None else np.asarray(self._rows[samples])
        if name == f.data_file and not f.is_ragged:
            starts, stops = rows * f.item_bytes, (rows + 1) * f.item_bytes
        elif name == f.data_file:
            index = self._index(f)[rows]
            starts = index[:, 0] * f.dtype.itemsize
            stops = starts + index[:, 1 : 1 + f.axes].prod(axis=1) * f.dtype.itemsize
        else:
            starts, stops = rows * 8 * f.index_columns, (rows + 1) * 8 * f.index_columns
        return tuple(samples[(starts < stop) & (stops > first)].tolist())

    def _map(self, name: str) -> np.ndarray:
        """(bytes,) uint8 over the values of a file."""
        path, file = self.path / name, self.manifest.files[name]
        if path.is_symlink() or not path.is_file():
            raise FormatError(f"{path} is missing, or no ordinary file")
        if path.stat().st_size != file.nbytes:
            raise FormatError(
                f"{path} has {path.stat().st_size:,} bytes, the manifest says {file.nbytes:,}: the "
                "store was cut off or changed"
            )
        if file.payload_bytes == 0:
            return np.zeros(0, np.uint8)
        return np.memmap(path, np.uint8, "r", file.header_bytes, file.payload_bytes)

    def _check_header(self, name: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
        file = self.manifest.files[name]
        with open(self.path / name, "rb") as content:
            found = content.read(file.header_bytes)
        try:
            expected = array_header(dtype, shape, file.header_bytes)
        except (ValueError, OverflowError):
            expected = b""
        if found != expected:
            raise FormatError(
                f"{self.path / name} does not begin as an array of {shape} {dtype} does"
            )

    def _order(self) -> np.ndarray | None:
        if ROWS not in self.manifest.files:
            return None
        self._check_header(ROWS, np.dtype("<i8"), (len(self),))
        rows = self._values[ROWS].view("<i8")
        most = min(
            (self._rows_in(f) for f in self.fields if f.is_ragged or f.item_bytes), default=2**62
        )
        if len(rows) and not (int(rows.min()) >= 0 and int(rows.max()) < most):
            raise FormatError(f"{self.path / ROWS} names rows that are not there")
        return rows

    def _rows_in(self, f: Field) -> int:
        files = self.manifest.files
        if f.is_ragged:
            return files[f.index_file].payload_bytes // (8 * f.index_columns)
        return files[f.data_file].payload_bytes // f.item_bytes if f.item_bytes else len(self)

    def _index(self, f: Field) -> np.ndarray:
        return self._values[f.index_file].view("<i8").reshape(-1, f.index_columns)

    def _column(self, f: Field) -> Column:
        rows, values, dtype = self._rows_in(f), self._values[f.data_file], array_dtype(f.dtype)
        shape = (len(values) // dtype.itemsize,) if f.is_ragged else (rows, *f.schema.shape)
        self._check_header(f.data_file, dtype, shape)
        if not f.is_ragged:
            return column_over(f, values, None) if f.item_bytes else empty_column(f, rows)
        index = self._index(f)
        self._check_header(f.index_file, np.dtype("<i8"), index.shape)
        wrong = index_problem(f, index, shape[0], _CHANNELS)
        if wrong is not None:
            raise FormatError(
                f"{self.path / f.index_file} is damaged: row {wrong[0]} has the {wrong[1]}"
            )
        return column_over(f, values, index)

    def _lookup(self) -> Lookup | None:
        if TABLE not in self.manifest.files:
            return None
        f, values = self.fields[self.leaf], self._values[TABLE]
        dtype = DTYPES.get(self.manifest.made.get("table", ""))
        channels = f.schema.shape[0] if f.schema.shape else 0
        if dtype is None or len(values) != channels * 256 * dtype.itemsize or f.is_ragged:
            raise FormatError(f"{self.path / TABLE} does not fit the field {f.name}")
        self._check_header(TABLE, array_dtype(dtype), (channels, 256))
        if self._verify != "never":
            self._guards[TABLE].look_at_all()
        return Lookup(tensor_over(values, dtype).reshape(channels, 256).clone())


def described(f: Field) -> str:
    """A field in a few words."""
    dtype = str(f.dtype).removeprefix("torch.")
    if f.schema.kind in ("str", "bytes"):
        return f"{f.schema.kind}"
    shape = "x".join("?" if f.is_ragged else str(edge) for edge in f.schema.shape)
    kind = f"PIL {'/'.join(f.modes or (f.schema.mode,))} " if f.schema.kind == "image" else ""
    return f"{kind}{dtype}" + (f"[{shape}]" if f.schema.shape else "")


def read_manifest(path: Path) -> Manifest:
    """A store's manifest.

    Raises:
        MissingDataError: if there is no store.
        FormatError: if the manifest is not one.
        StorageError: if it may not be read.
    """
    place = path / MANIFEST
    try:
        if place.stat().st_size > MOST_MANIFEST_BYTES:
            raise FormatError(f"{place} is too large for a manifest")
        text = place.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError) as error:
        partial_there = path.with_name(f"{path.name}.partial").is_dir()
        hint = "; its building was not finished: run it again" if partial_there else ""
        raise MissingDataError(f"there is no store at {path}{hint}") from error
    except UnicodeDecodeError as error:
        raise FormatError(f"{place} is no text ({error})") from error
    except OSError as error:
        raise StorageError(f"{place} cannot be read: {error.strerror}") from error
    try:
        return loads(text)
    except FormatError as error:
        raise FormatError(f"{place}: {error}") from error
