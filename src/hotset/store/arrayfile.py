"""One growing file of a store under construction."""

from __future__ import annotations

import errno
import os
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from hotset.errors import StorageError
from hotset.store.blocks import BlockSums
from hotset.store.layout import File, array_header

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class ArrayFile:
    """Values that are appended, with room for a header in front of them.

    Args:
        path: of the file; made where it is not there.
        header_bytes: room in front.
        block_bytes: bytes per checksum.
    """

    def __init__(self, path: Path, header_bytes: int, block_bytes: int) -> None:
        self.path, self.header_bytes = path, header_bytes
        self.end = 0
        self.sums = BlockSums(block_bytes)
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        self._room, self._view = 0, np.zeros(0, np.uint8)

    def append(self, values: np.ndarray) -> None:
        """Writes further bytes.

        Args:
            values: contiguous, any dtype.

        Raises:
            StorageError: if they do not fit on the disk.
        """
        part = memoryview(values.reshape(-1).view(np.uint8))  # type: ignore[arg-type]
        self.sums.add(part)
        position = self.header_bytes + self.end
        self.end += len(part)
        while len(part):
            try:
                written = os.pwrite(self._file, part, position)
            except OSError as error:
                raise as_storage_error(error, self.path, len(part)) from error
            part, position = part[written:], position + written

    def rewind(self, end: int) -> None:
        """Goes back to where the file had `end` bytes of values, and reads their checksums."""
        self.end = end
        self.sums = BlockSums(self.sums.block_bytes)
        for start in range(0, end, self.sums.block_bytes):
            self.sums.add(memoryview(self.read(start, min(end, start + self.sums.block_bytes))))

    def has(self, end: int, tail: int) -> bool:
        """Whether the file has so many bytes of values, the last of them with a checksum."""
        first = end - end % self.sums.block_bytes
        part = self.read(first, end)
        return len(part) == end - first and zlib.crc32(part) == tail

    def has_block(self, block: int, crc: int) -> bool:
        """Whether a whole block is there, with a checksum."""
        size = self.sums.block_bytes
        part = self.read(block * size, (block + 1) * size)
        return len(part) == size and zlib.crc32(part) == crc

    def read(self, start: int, stop: int) -> bytes:
        """The bytes of a range of values; fewer where the file ends before."""
        return os.pread(self._file, stop - start, self.header_bytes + start)

    def view(self, room: int) -> np.ndarray:
        """(room or more,) uint8 over the values, those that are still to come included.

        Args:
            room: bytes of values wanted, at least those that are there.
        """
        if self._room < max(room, self.end):
            self._room = max(room, self.end)
            size = self.header_bytes + self._room
            if os.fstat(self._file).st_size < size:
                os.ftruncate(self._file, size)
            if self._room:
                self._view = np.memmap(self.path, np.uint8, "r", self.header_bytes, self._room)
        return self._view

    @property
    def room(self) -> int:
        """Bytes of values that views of it see already."""
        return self._room

    def finish(self, dtype: np.dtype[Any], shape: tuple[int, ...]) -> File:
        """Writes the header of an array, brings all of it to the disk, and closes the file."""
        header = array_header(dtype, shape, self.header_bytes)
        try:
            os.ftruncate(self._file, self.header_bytes + self.end)
            os.pwrite(self._file, header, 0)
            os.fsync(self._file)
        except OSError as error:
            raise as_storage_error(error, self.path, len(header)) from error
        self.close()
        return File(self.header_bytes, self.end, self.sums.block_bytes, self.sums.all())

    def close(self) -> None:
        """Closes the file; views of it stay usable."""
        if self._file >= 0:
            os.close(self._file)
        self._file = -1


def as_storage_error(error: OSError, path: Path, needed: int) -> StorageError:
    """The error that says in words why a file cannot be written."""
    if error.errno in FULL:
        return StorageError(
            f"no room left for {path}: {needed:,} bytes were to be written, "
            f"{free_bytes_at(path):,} bytes are free; make room and build again, it goes on where "
            "it was"
        )
    return StorageError(f"{path} cannot be written: {error.strerror or error}")


def free_bytes_at(path: Path) -> int:
    """Bytes free on the file system of a path, or of its nearest parent that is there."""
    place = path
    while not place.exists() and place != place.parent:
        place = place.parent
    found: Any = os.statvfs(place)
    return int(found.f_bavail * found.f_frsize)
