"""The files that values name, and what tells whether one has changed."""

from __future__ import annotations

import hashlib
import os
import stat
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from hotset.keys.piece import ATOMS, DIGEST_BYTES, SEQUENCES, digest_of, label

NUMBERS = ATOMS - {str, bytes}
LONGEST_NAME = 4096
READERS = 8
"""Threads that read files whole; they wait for the disk, and hashing leaves the interpreter."""


@dataclass(frozen=True)
class FileState:
    """What tells whether a file has changed.

    Attributes:
        size_bytes: its length.
        modified_ns: when it was written last, in nanoseconds since 1970; 0 where that is not known.
        content: digest of what it holds, or what tells that; empty where it was not asked for.
    """

    size_bytes: int
    modified_ns: int
    content: bytes = b""


class FileLedger:
    """Collects texts that may be names of files, and finds out which are.

    A text counts as the name of a file if there is one of that name, seen from the current
    directory or from a folder that the same object names. Folders themselves count nothing.
    """

    def __init__(self) -> None:
        self._names: dict[tuple[str, ...], dict[str, None]] = {}
        self._elsewhere: dict[str, FileState] = {}

    def add(self, files: Mapping[str, tuple[int, str]]) -> None:
        """Takes in files that are not on this machine.

        Args:
            files: for each name the size in bytes, and what tells whether it has changed.
        """
        for name, (size_bytes, tag) in files.items():
            self._elsewhere[name] = FileState(size_bytes, 0, tag.encode())

    def note(self, value: Any, folders: tuple[str, ...]) -> None:
        """Collects the texts in a plain value.

        Args:
            value: text, bytes, or a container of atoms down to its second level.
            folders: that names may be relative to.
        """
        names = self._names.setdefault(folders, {})
        if type(value) is str:
            names[value] = None
        elif type(value) is bytes:
            names.update(dict.fromkeys(_texts((value,))))
        elif value:
            is_dict = type(value) is dict
            if is_dict or not set(map(type, value)) <= NUMBERS:
                names.update(dict.fromkeys(_texts(value)))

    def files(self, *, everything: bool = False) -> dict[str, FileState]:
        """The files that were named, by the names under which they were found.

        Args:
            everything: whether to read them whole.
        """
        found: dict[str, FileState] = {}
        for folders, names in self._names.items():
            for name in names:
                if not 0 < len(name) <= LONGEST_NAME or "\0" in name or "\n" in name:
                    continue
                for folder in ("", *folders):
                    path = os.path.join(folder, name)
                    state = None if path in found else _state_of(path)
                    if state is not None:
                        found[path] = state
        if not everything:
            return found | self._elsewhere
        with ThreadPoolExecutor(READERS) as pool:
            contents = pool.map(_content_of, found)
            return {
                path: FileState(state.size_bytes, state.modified_ns, content)
                for (path, state), content in zip(found.items(), contents, strict=True)
            } | self._elsewhere


def digest_of_files(files: dict[str, FileState]) -> bytes:
    """The digest of names, sizes and times of change; of contents in their place, where known."""
    return digest_of(
        label(path, state.size_bytes, state.content or state.modified_ns)
        for path, state in sorted(files.items())
    )


def not_named(paths: Iterable[str], named: Collection[str]) -> list[str]:
    """Those of some files, by their absolute paths, that names do not lead to."""
    left = [path for path in paths if path not in named]
    # Whatever links lead where, most names end alike; there may be millions of them.
    ends = {os.path.basename(path) for path in left}
    for names in ([name for name in named if os.path.basename(name) in ends], named):
        if left:
            real = {os.path.realpath(name) for name in names}
            left = [path for path in left if os.path.realpath(path) not in real]
    return left


def words_for(files: dict[str, FileState]) -> str:
    """How many files, how large and how new, in local time."""
    size = sum(state.size_bytes for state in files.values())
    newest = max(state.modified_ns for state in files.values()) // 10**9
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(newest))
    noun = "file" if len(files) == 1 else "files"
    # Of files elsewhere no time is known.
    return f"{len(files):,} {noun}, {size:,} bytes" + (f", newest {when}" if newest else "")


def is_folder(name: Any) -> bool:
    """Whether it is the name of a folder that exists."""
    try:
        return isinstance(name, (str, os.PathLike)) and os.path.isdir(name)
    except (OSError, ValueError):
        return False


def _texts(value: Any) -> Iterator[str]:
    """The texts in a container, its keys, and the containers directly within."""
    for item in value:
        if type(item) is str:
            yield item
        elif type(item) in SEQUENCES:
            yield from (text for text in item if type(text) is str)
            yield from (os.fsdecode(text) for text in item if _may_name(text))
        elif _may_name(item):
            yield os.fsdecode(item)
    if isinstance(value, dict):
        yield from _texts(list(value.values()))


def _may_name(value: Any) -> bool:
    return type(value) is bytes and len(value) <= LONGEST_NAME


def _state_of(path: str) -> FileState | None:
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    if not stat.S_ISREG(found.st_mode):
        return None
    return FileState(found.st_size, found.st_mtime_ns)


def _content_of(path: str) -> bytes:
    hasher = hashlib.blake2b(digest_size=DIGEST_BYTES)
    with open(path, "rb") as stream:
        while block := stream.read(1 << 20):
            hasher.update(block)
    return hasher.digest()
