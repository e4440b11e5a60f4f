"""Where a store of a certain fingerprint is, or is to be built."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from hotset.building.locations import Folder, Location, Place, unlike
from hotset.errors import StorageError
from hotset.keys.fingerprint import Fingerprint, differences
from hotset.store.urls import check_local, given_path, is_remote, local_path

DIGITS = 12
"""Digits of its fingerprint in the name of a store that is built beside another."""


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


def location_of(
    path: Any, storage_options: Mapping[str, Any] | None = None, *, argument: str = "path"
) -> Location:
    """The location of a path or URL.

    Args:
        path: of a store, or of a folder of stores.
        storage_options: what the file system of a URL is told.
        argument: what messages call the path.

    Raises:
        ConfigError: for what is no path, or options without a URL.
    """
    path = given_path(path, argument)
    if is_remote(path):
        from hotset.building.remote import RemoteLocation

        return RemoteLocation(path, storage_options)
    check_local(path, storage_options=storage_options)
    return Folder(Path(os.path.abspath(local_path(path))))


def find_place(location: Location, wanted: Fingerprint) -> Place:
    """The store of a fingerprint, or where it is to be built: at a location, or beside it.

    What was made from something else is neither used nor touched; the place knows what differs.

    Raises:
        StorageError: if something that is no store stands in the way.
        FormatError: if the manifest of a store that is there is damaged.
    """
    if not location.name:
        raise StorageError(f"{location} cannot be a store; name a directory to make within it")
    stem, dot, suffix = location.name.rpartition(".")
    stem, suffix = (stem, dot + suffix) if stem else (location.name, "")
    beside = location.sibling(f"{stem}-{wanted.digest[:DIGITS]}{suffix}")
    stale: list[str] = []
    free: Location | None = None
    for each in (location, beside):
        manifest = each.manifest()
        if manifest is not None:
            words = unlike(manifest.fingerprint, each, wanted)
            if words is None:
                return each.place(wanted, is_there=True, stale=tuple(stale))
            stale.append(f"{each} was made from other data ({words})")
        elif each.is_taken():
            raise StorageError(f"{each} is there already, and is no store; name another path")
        elif free is None:
            words = each.unfree(wanted)
            free = each if words is None else None
            stale += [] if words is None else [words]
    if free is None:
        raise StorageError(f"{location} cannot be built: {'; '.join(stale)}; remove one of them")
    return free.place(wanted, is_there=False, stale=tuple(stale))


def location_in(folder: Location, name: str, wanted: Fingerprint) -> Location:
    """Where a folder of many stores has the one of a fingerprint."""
    return folder.child(f"{name}-{wanted.digest[:DIGITS]}.hotset")


def find_in(folder: Location, name: str, wanted: Fingerprint) -> Place:
    """The store of a fingerprint in a folder of many, or where it is to be built.

    Args:
        folder: of the stores.
        name: of the dataset.
        wanted: the fingerprint.
    """
    location = location_in(folder, name, wanted)
    if location.manifest() is not None:
        return location.place(wanted, is_there=True)
    others = [
        (other, differences(Fingerprint.from_dict(manifest.fingerprint), wanted))
        for other, manifest in ((other, other.manifest()) for other in folder.stores(name))
        if manifest is not None
    ]
    if not others:
        return location.place(wanted, is_there=False)
    closest, words = min(others, key=lambda other: len(other[1]))
    stale = f"{closest} was made from other data ({'; '.join(words)})"
    return location.place(wanted, is_there=False, stale=(stale,))
