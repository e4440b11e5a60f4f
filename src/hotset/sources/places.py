"""Where a store of a certain fingerprint is, or is to be built."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from hotset.errors import FormatError, StaleStoreWarning, StorageError
from hotset.keys.fingerprint import Fingerprint, differences
from hotset.store.files import read_manifest
from hotset.store.journal import JOURNAL, read_lines
from hotset.store.layout import MANIFEST

DIGITS = 12
"""Digits of its fingerprint in the name of a store that is built beside another."""


@dataclass(frozen=True)
class Place:
    """Where a store is or is to be.

    Attributes:
        path: its directory.
        is_there: whether it is whole.
        stale: what was found there that was made from something else, and what differs.
    """

    path: Path
    is_there: bool
    stale: tuple[str, ...] = ()

    @property
    def partial(self) -> Path:
        """The directory that it is built in."""
        return self.path.with_name(f"{self.path.name}.partial")

    def warn(self) -> None:
        """Warns of what was made from something else, if there is any."""
        what = "is used" if self.is_there else "is built"
        for words in self.stale:
            warnings.warn(
                f"{words}; it stays as it is, and {self.path.name} beside it {what}",
                StaleStoreWarning,
                stacklevel=4,
            )


def take_lock(path: Path, *, is_waiting: bool) -> FileLock | None:
    """The lock of a path, held: one process at a time builds there.

    Args:
        path: of the store.
        is_waiting: whether to wait for another that holds it; else None comes back.

    Raises:
        StorageError: if the lock cannot be made.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(path.with_name(f".{path.name}.lock"), thread_local=False)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            if not is_waiting:
                return None
            warnings.warn(
                f"another process builds {path}; waiting for it", UserWarning, stacklevel=5
            )
            lock.acquire()
    except OSError as error:
        raise StorageError(
            f"{path} cannot be built: {error.strerror or error} ({error.filename or path.parent})"
        ) from error
    return lock


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Holds the lock of a path, and waits for it."""
    lock = take_lock(path, is_waiting=True)
    assert lock is not None
    try:
        yield
    finally:
        lock.release()


def find_place(path: Path, wanted: Fingerprint) -> Place:
    """The store of a fingerprint, or where it is to be built: at `path`, or beside it.

    What was made from something else is neither used nor touched; the place knows what differs.

    Raises:
        StorageError: if something that is no store stands in the way.
        FormatError: if the manifest of a store that is there is damaged.
    """
    beside = path.with_name(f"{path.stem}-{wanted.digest[:DIGITS]}{path.suffix}")
    stale: list[str] = []
    free: Path | None = None
    for place in (path, beside):
        if is_whole(place):
            words = _unlike(read_manifest(place).fingerprint, place, wanted)
            if words is None:
                return Place(place, True, tuple(stale))
            stale.append(f"{place} was made from other data ({words})")
        elif os.path.lexists(place):
            raise StorageError(f"{place} is there already, and is no store; name another path")
        elif free is None:
            words = _unfree(Place(place, False).partial, wanted)
            free = place if words is None else None
            stale += [] if words is None else [words]
    if free is None:
        raise StorageError(f"{path} cannot be built: {'; '.join(stale)}; remove one of them")
    return Place(free, False, tuple(stale))


def path_in(folder: Path, name: str, wanted: Fingerprint) -> Path:
    """Where a folder of many stores has the one of a fingerprint."""
    return folder / f"{name}-{wanted.digest[:DIGITS]}.hotset"


def is_whole(path: Path) -> bool:
    """Whether there is a whole store at a path."""
    return os.path.isfile(path / MANIFEST)


def find_in(folder: Path, name: str, wanted: Fingerprint) -> Place:
    """The store of a fingerprint in a folder of many, or where it is to be built.

    Args:
        folder: of the stores.
        name: of the dataset.
        wanted: the fingerprint.
    """
    path = path_in(folder, name, wanted)
    if is_whole(path):
        return Place(path, True)
    others = {
        other.parent: differences(
            Fingerprint.from_dict(read_manifest(other.parent).fingerprint), wanted
        )
        for other in sorted(folder.glob(f"{name}-*.hotset/{MANIFEST}"))
    }
    if not others:
        return Place(path, False)
    closest = min(others, key=lambda other: len(others[other]))
    words = "; ".join(others[closest])
    return Place(path, False, (f"{closest} was made from other data ({words})",))


def _unfree(partial: Path, wanted: Fingerprint) -> str | None:
    """Why a store cannot be begun or gone on with in a directory; None where it can."""
    if not os.path.lexists(partial):
        return None
    if not partial.is_dir() or partial.is_symlink():
        return f"{partial} is no directory"
    if not (partial / JOURNAL).is_file():
        return f"{partial} holds something else than a store" if any(partial.iterdir()) else None
    lines, _ = read_lines(partial / JOURNAL)
    words = _unlike(lines[0].get("fingerprint"), partial, wanted) if lines else None
    return words and f"{partial} holds the beginnings of another store ({words})"


def _unlike(values: Any, path: Path, wanted: Fingerprint) -> str | None:
    """What differs between a fingerprint in a file and the one that is wanted; None if nothing."""
    try:
        found = Fingerprint.from_dict(values)
    except FormatError as error:
        raise FormatError(f"{path}: {error}") from error
    if found.digest == wanted.digest:
        return None
    return "; ".join(differences(found, wanted))
