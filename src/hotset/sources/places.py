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
from hotset.store.journal import JOURNAL, read_lines
from hotset.store.layout import MANIFEST
from hotset.store.store import read_manifest

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


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Holds the lock of a path: one process at a time looks there and builds there.

    Raises:
        StorageError: if the lock cannot be made.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(path.with_name(f".{path.name}.lock"))
        try:
            lock.acquire(timeout=0)
        except Timeout:
            warnings.warn(
                f"another process builds {path}; waiting for it", UserWarning, stacklevel=4
            )
            lock.acquire()
    except OSError as error:
        raise StorageError(
            f"{path} cannot be built: {error.strerror or error} ({error.filename or path.parent})"
        ) from error
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
        if (place.path / MANIFEST).is_file():
            found = Fingerprint.from_dict(read_manifest(place.path).fingerprint)
            if found.digest == wanted.digest:
                return Place(place.path, True)
            _warn(place.path, beside, differences(found, wanted))
        elif place.path.exists():
            raise StorageError(f"{place.path} is there already, and is no store; name another path")
        elif _is_free(place.partial, wanted):
            return place
    raise FormatError(f"{beside} has another fingerprint than its name says")


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
