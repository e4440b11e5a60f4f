"""Where a store of a certain fingerprint is, or is to be built."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

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
    """

    path: Path
    is_there: bool

    @property
    def partial(self) -> Path:
        """The directory that it is built in."""
        return self.path.with_name(f"{self.path.name}.partial")


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

    What was made from something else is neither used nor touched; a `StaleStoreWarning` says which
    part differs.

    Raises:
        StorageError: if something that is no store stands in the way.
        FormatError: if the manifest of a store that is there is damaged.
    """
    beside = path.with_name(f"{path.stem}-{wanted.digest[:DIGITS]}{path.suffix}")
    for place in (Place(path, False), Place(beside, False)):
        if is_whole(place.path):
            found = Fingerprint.from_dict(read_manifest(place.path).fingerprint)
            if found.digest == wanted.digest:
                return Place(place.path, True)
            _warn(place.path, beside, differences(found, wanted))
        elif place.path.exists():
            raise StorageError(f"{place.path} is there already, and is no store; name another path")
        elif _is_free(place.partial, wanted):
            return place
    raise FormatError(f"{beside} has another fingerprint than its name says")


def path_in(folder: Path, name: str, wanted: Fingerprint) -> Path:
    """Where a folder of many stores has the one of a fingerprint."""
    return folder / f"{name}-{wanted.digest[:DIGITS]}.hotset"


def is_whole(path: Path) -> bool:
    """Whether there is a whole store at a path."""
    return (path / MANIFEST).is_file()


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
    if others:
        closest = min(others, key=lambda other: len(others[other]))
        _warn(closest, path, others[closest])
    return Place(path, False)


def _is_free(partial: Path, wanted: Fingerprint) -> bool:
    """Whether a store can be begun or gone on with there."""
    if not (partial / JOURNAL).is_file():
        return not partial.exists() or not any(partial.iterdir())
    lines, _ = read_lines(partial / JOURNAL)
    if not lines:
        return True
    found = Fingerprint.from_dict(lines[0].get("fingerprint", {}))
    if found.digest != wanted.digest:
        _warn(partial, None, differences(found, wanted))
    return found.digest == wanted.digest


def _warn(path: Path, beside: Path | None, words: list[str]) -> None:
    what = "holds the beginnings of another store" if beside is None else "was made from other data"
    warnings.warn(
        f"{path} {what} ({'; '.join(words)}); it stays as it is, and the store is built beside it",
        StaleStoreWarning,
        stacklevel=5,
    )
