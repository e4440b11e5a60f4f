"""The damaged blocks of one file, made again beside the store before any of it is written."""

from __future__ import annotations

import os
import tempfile
import zlib

from hotset.store.arrayfile import storage_errors
from hotset.store.blocks import HEADER
from hotset.store.damage import Contents, is_ordinary


class Draft:
    """What is to be written into a file.

    Args:
        contents: the store, looked at.
        name: of the file.

    Raises:
        StorageError: if there is no place for it.
    """

    def __init__(self, contents: Contents, name: str) -> None:
        self._path, self._file = contents.path / name, contents.manifest.files[name]
        self._blocks, self._header = contents.bad[name], contents.header(name)
        with storage_errors(contents.path.parent):
            self._values = tempfile.TemporaryFile(dir=contents.path.parent)  # noqa: SIM115

    def write(self, start: int, values: bytes) -> bool:
        """Takes values in that begin at a byte; whether the file has room for them there."""
        if start < 0 or start + len(values) > self._file.payload_bytes:
            return False
        with storage_errors(self._path.parent):
            self._values.seek(start)
            self._values.write(values)
        return True

    def wrong_block(self) -> int | None:
        """The first block that does not come out as it was; None if all do."""
        for block in self._blocks:
            if block != HEADER and zlib.crc32(self._read(block)) != self._file.checksums[block]:
                return block
        return None

    def _read(self, block: int) -> bytes:
        size = self._file.block_bytes
        self._values.seek(block * size)
        return self._values.read(min(size, self._file.payload_bytes - block * size))

    def apply(self) -> None:
        """Writes the blocks into the file.

        Raises:
            StorageError: if it cannot be written.
        """
        with storage_errors(self._path):
            if not is_ordinary(self._path):
                self._path.unlink(missing_ok=True)
            handle = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o666)
            with open(handle, "r+b") as file:
                file.truncate(self._file.nbytes)
                for block in self._blocks:
                    if block == HEADER:
                        file.seek(0)
                        file.write(self._header)
                    else:
                        file.seek(self._file.header_bytes + block * self._file.block_bytes)
                        file.write(self._read(block))
                file.flush()
                os.fsync(file.fileno())

    def close(self) -> None:
        """Lets go of the draft."""
        self._values.close()
