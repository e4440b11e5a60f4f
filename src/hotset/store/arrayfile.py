"""One growing file of a store under construction."""

from __future__ import annotations

import errno
import os
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from hotset.errors import HotsetError, StorageError
from hotset.store.blocks import BlockSums
from hotset.store.layout import File
from hotset.store.npy import array_header

SYNC_BYTES = 64 << 20
"""After so many bytes they are brought to the disk, while others are read."""
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Sync(threading.Thread):
    """Brings what was written to the disk while more is read: the end need not wait for all of it.

    Args:
        file: descriptor, which is closed at the end.
    """

    def __init__(self, file: int) -> None:
        super().__init__(name="hotset-sync", daemon=True)
        self._file = file
        self._error: OSError | None = None

    def run(self) -> None:
        """Waits for the disk."""
        try:
            os.fsync(self._file)
        except OSError as error:  # the system tells of it once, and that was now
            self._error = error
        finally:
            os.close(self._file)

    def check(self) -> None:
        """Waits for the end, and raises what went wrong."""
        self.join()
        if self._error is not None:
            raise self._error


class ArrayFile:
    """Values that are appended, with room for a header in front of them.

    Args:
        path: of the file; made where it is not there.
        header_bytes: room in front.
        block_bytes: bytes per checksum.

    Raises:
        StorageError: if the file cannot be made.
    """

    def __init__(self, path: Path, header_bytes: int, block_bytes: int) -> None:
        self.path, self.header_bytes = path, header_bytes
        self.end = 0
        self.sums = BlockSums(block_bytes)
        self._room, self._view = 0, np.zeros(0, np.uint8)
        self._unsynced = 0
        self._sync: Sync | None = None
        self._file = -1
        with storage_errors(path):
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)

    def append(self, values: np.ndarray) -> None:
        """Writes further bytes.

        Args:
            values: contiguous, any dtype.

        Raises:
            StorageError: if they do not fit on the disk.
        """
        part = memoryview(values.reshape(-1).view(np.uint8))  # type: ignore[arg-type]
        self._write(part, self.header_bytes + self.end)
        self.sums.add(part)
        self.end += len(part)
        self._unsynced += len(part)
        if self._unsynced >= SYNC_BYTES and (self._sync is None or not self._sync.is_alive()):
            self._unsynced = 0
            self._sync = Sync(os.dup(self._file))
            self._sync.start()

    def _write(self, part: memoryview | bytes, position: int) -> None:
        with storage_errors(self.path, len(part)):
            while len(part):
                written = os.pwrite(self._file, part, position)
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
        with storage_errors(self.path):
            return os.pread(self._file, stop - start, self.header_bytes + start)

    def view(self, room: int) -> np.ndarray:
        """(room or more,) uint8 over the values, those that are still to come included.

        Args:
            room: bytes of values wanted, at least those that are there.

        Raises:
            StorageError: if the disk has no such room.
        """
        if self._room < max(room, self.end):
            wanted = max(room, self.end)
            size = self.header_bytes + wanted
            with storage_errors(self.path, wanted):
                if os.fstat(self._file).st_size < size:
                    os.ftruncate(self._file, size)
                if wanted:
                    self._view = np.memmap(self.path, np.uint8, "r", self.header_bytes, wanted)
            self._room = wanted
        return self._view

    @property
    def room(self) -> int:
        """Bytes of values that views of it see already."""
        return self._room

    def finish(self, dtype: np.dtype[Any], shape: tuple[int, ...]) -> File:
        """Writes the header of an array, brings all of it to the disk, and closes the file."""
        header = array_header(dtype, shape, self.header_bytes)
        self._write(header, 0)
        with storage_errors(self.path):
            os.ftruncate(self._file, self.header_bytes + self.end)
            os.fsync(self._file)
            if self._sync is not None:
                self._sync.check()
        self.close()
        return File(self.header_bytes, self.end, self.sums.block_bytes, self.sums.all())

    def close(self) -> None:
        """Closes the file; views of it stay usable."""
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)


@contextmanager
def storage_errors(path: Path, needed: int = 0) -> Iterator[None]:
    """Says in words why a file cannot be written, where the system only gives a number.

    Args:
        path: of the file.
        needed: bytes that were to be written.

    Raises:
        StorageError: in place of any `OSError` that is not hotset's own.
    """
    try:
        yield
    except OSError as error:
        if isinstance(error, HotsetError):
            raise
        raise as_storage_error(error, path, needed) from error


def as_storage_error(error: OSError, path: Path, needed: int) -> StorageError:
    """The error that says in words why a file cannot be written."""
    if error.errno in FULL:
        what = f"{needed:,} bytes were to be written, " if needed else ""
        return StorageError(
            f"no room left for {path}: {what}{free_bytes_at(path):,} bytes are free; make room and "
            "build again, it goes on where it was"
        )
    return StorageError(f"{path} cannot be written: {error.strerror or error}")


def free_bytes_at(path: Path) -> int:
    """Bytes free on the file system of a path, or of its nearest parent that is there."""
    for place in (path, *path.absolute().parents):
        try:
            found: Any = os.statvfs(place)
        except OSError:
            continue
        return int(found.f_bavail * found.f_frsize)
    return 0
