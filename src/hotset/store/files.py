"""A store's files, mapped into memory; every block is looked at before it is first used."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from hotset.errors import FormatError, HotsetError, MissingDataError, StorageError
from hotset.store.blocks import Guard
from hotset.store.layout import MANIFEST, File, Manifest, loads
from hotset.store.npy import array_header

MOST_MANIFEST_BYTES = 1 << 30


class MappedFiles:
    """The files that a manifest lists.

    Args:
        folder: where they are.
        files: by name.
        refuse: called with the name of a file and the number of a damaged block in it; raises.
        is_trusted: whether no block is looked at unless that is asked for.

    Raises:
        FormatError: if one is missing, or is not of its size.
        StorageError: if one may not be read.
    """

    def __init__(
        self,
        folder: Path,
        files: Mapping[str, File],
        refuse: Callable[[str, int], None],
        *,
        is_trusted: bool,
    ) -> None:
        self._folder, self._files, self._is_trusted = folder, files, is_trusted
        self._values = {name: _mapped(folder / name, file) for name, file in files.items()}
        self._guards = {
            name: Guard(self._values[name], file.block_bytes, file.checksums, partial(refuse, name))
            for name, file in files.items()
        }

    def __getitem__(self, name: str) -> np.ndarray:
        """(bytes,) uint8 over the values of a file; `touch` what is to be read."""
        return self._values[name]

    def touch(self, name: str, starts: np.ndarray, stops: np.ndarray) -> None:
        """Looks at the blocks of some ranges of a file, if that was not done before.

        Args:
            name: of the file.
            starts: (R,) int64 first byte of each range.
            stops: (R,) int64 byte behind its last.

        Raises:
            FormatError: if a block is damaged.
        """
        if not self._is_trusted:
            self._guards[name].touch(starts, stops)

    def look_at_all(self, name: str | None = None) -> None:
        """Looks at every block, of one file or of all.

        Raises:
            FormatError: if a block is damaged.
        """
        for guard in self._guards.values() if name is None else (self._guards[name],):
            guard.look_at_all()

    def damaged(self) -> Iterator[tuple[str, int]]:
        """(file, block) of every block whose bytes are not those that were written."""
        for name, guard in self._guards.items():
            for block in range(len(self._files[name].checksums)):
                if guard.is_damaged(block):
                    yield name, block

    def check_header(self, name: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
        """Sees to it that a file begins as an array of a dtype and shape does.

        Raises:
            FormatError: if it does not.
        """
        room = self._files[name].header_bytes
        with reading_errors(self._folder / name), open(self._folder / name, "rb") as content:
            found = content.read(room)
        try:
            is_header = found == array_header(dtype, shape, room)
        except (ValueError, OverflowError):  # there is no such header
            is_header = False
        if not is_header:
            raise FormatError(
                f"{self._folder / name} does not begin as an array of {shape} {dtype} does"
            )


def _mapped(path: Path, file: File) -> np.ndarray:
    with reading_errors(path):
        try:
            found = os.lstat(path)
        except FileNotFoundError:
            raise FormatError(f"{path} is missing; the store is not whole") from None
        if not stat.S_ISREG(found.st_mode):
            raise FormatError(f"{path} is no ordinary file")
        if found.st_size != file.nbytes:
            raise FormatError(
                f"{path} has {found.st_size:,} bytes, the manifest says {file.nbytes:,}: the "
                "store was cut off or changed"
            )
        if file.payload_bytes == 0:
            return np.zeros(0, np.uint8)
        return np.memmap(path, np.uint8, "r", file.header_bytes, file.payload_bytes)


@contextmanager
def reading_errors(path: Path) -> Iterator[None]:
    """Says in words why a file of a store cannot be read.

    Raises:
        StorageError: in place of any `OSError` that is not hotset's own.
    """
    try:
        yield
    except OSError as error:
        if isinstance(error, HotsetError):
            raise
        raise StorageError(f"{path} cannot be read: {error.strerror or error}") from error


def read_manifest(path: Path) -> Manifest:
    """A store's manifest.

    Raises:
        MissingDataError: if there is no store.
        FormatError: if the manifest is not one.
        StorageError: if it may not be read.
    """
    place = path / MANIFEST
    try:
        with reading_errors(place):
            content = _content_of(place)
    except StorageError as error:
        if not isinstance(error.__cause__, (FileNotFoundError, NotADirectoryError)):
            raise
        partial_there = os.path.isdir(f"{os.path.abspath(path)}.partial")
        hint = "; its building was not finished: run it again" if partial_there else ""
        raise MissingDataError(f"there is no store at {path}{hint}") from error
    try:
        return loads(content.decode())
    except UnicodeDecodeError as error:
        raise FormatError(f"{place} is no text ({error})") from error
    except FormatError as error:
        raise FormatError(f"{place}: {error}") from error


def _content_of(place: Path) -> bytes:
    # Not through a link, and not from a pipe, on which opening alone would wait for ever.
    if not stat.S_ISREG(os.lstat(place).st_mode):
        raise FormatError(f"{place} is no ordinary file")
    with open(place, "rb") as file:
        content = file.read(MOST_MANIFEST_BYTES + 1)
    if len(content) > MOST_MANIFEST_BYTES:
        raise FormatError(f"{place} is too large for a manifest")
    return content
