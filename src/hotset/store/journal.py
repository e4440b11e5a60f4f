"""What a store under construction holds already: one line per chunk, each with its checksum.

A line that was cut off, or whose checksum does not fit, ends the journal: what it told is done
again.
"""

from __future__ import annotations

import json
import os
import zlib
from pathlib import Path
from typing import Any

from hotset.store.arrayfile import storage_errors

JOURNAL = "journal.jsonl"


def read_lines(path: Path) -> tuple[list[dict[str, Any]], list[int]]:
    """The journal's whole lines, and where each ends in the file; none where there is no file.

    Raises:
        StorageError: if it may not be read.
    """
    with storage_errors(path):
        if not path.is_file():
            return [], []
        content = path.read_bytes()
    lines, ends, position = [], [], 0
    for raw in content.splitlines(keepends=True):
        crc, _, text = raw[:-1].partition(b" ")
        if not raw.endswith(b"\n") or crc != _crc(text):
            break
        try:
            line = json.loads(text)
        except (ValueError, RecursionError):
            break
        if not isinstance(line, dict):
            break
        position += len(raw)
        lines.append(line)
        ends.append(position)
    return lines, ends


class Journal:
    """The journal as it is written.

    Args:
        path: of the file.
        end: bytes of it that count; what stands behind them is overwritten.

    Raises:
        StorageError: if it cannot be written.
    """

    def __init__(self, path: Path, end: int = 0) -> None:
        self._path, self._file = path, -1
        with storage_errors(path):
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            os.ftruncate(self._file, end)
            os.lseek(self._file, end, os.SEEK_SET)

    def add(self, line: dict[str, Any]) -> None:
        """Writes a line; the data that it speaks of must be written before.

        Raises:
            StorageError: if the disk is full.
        """
        text = json.dumps(line).encode()
        content = _crc(text) + b" " + text + b"\n"
        with storage_errors(self._path, len(content)):
            while content:
                content = content[os.write(self._file, content) :]

    def close(self) -> None:
        """Closes the file."""
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)


def _crc(text: bytes) -> bytes:
    return b"%08x" % zlib.crc32(text)
