"""Where a store of a certain fingerprint is, or is to be built."""

from __future__ import annotations

import os
import warnings
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from hotset.building.locations import Folder, Location, Place, unlike
from hotset.errors import StorageError
from hotset.keys.fingerprint import Fingerprint, differences
from hotset.store.layout import Manifest
from hotset.store.urls import check_local, given_path, is_remote, local_path

DIGITS = 12
"""Digits of its fingerprint in the name of a store that is built beside another."""
DATA = "place"
"""What a store that stands among many calls the common path of its dataset's files."""


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


def find_in(
    folder: Location, name: str, wanted: Fingerprint, *, files: Collection[str] = ()
) -> Place:
    """The store of a fingerprint in a folder of many, or where it is to be built.

    What was made from the same data, as far as that can be told, is stale; what belongs to other
    datasets is not.

    Args:
        folder: of the stores.
        name: of the dataset.
        wanted: the fingerprint.
        files: that the dataset names.
    """
    location = location_in(folder, name, wanted)
    if location.manifest() is not None:
        return location.place(wanted, is_there=True)
    data = common_path(files)
    others = [
        (other, differences(Fingerprint.from_dict(manifest.fingerprint), wanted))
        for other, manifest in ((other, other.manifest()) for other in folder.stores(name))
        if manifest is not None and _is_stale(manifest, wanted, data)
    ]
    stale: tuple[str, ...] = ()
    if others:
        closest, words = min(others, key=lambda other: len(other[1]))
        stale = (f"{closest} was made from other data ({'; '.join(words)})",)
    return replace(location.place(wanted, is_there=False, stale=stale), data=data)


def common_path(files: Collection[str]) -> str:
    """The longest path that all files are within, or that of the only one; empty for none.

    Where some are at URLs, it is theirs alone.

    Example:
        >>> common_path(["/data/train/cat/0.png", "/data/train/dog/0.png"])
        '/data/train'
    """
    urls = [file for file in files if is_remote(file)]
    names = urls or [os.path.join(os.getcwd(), file) for file in files]
    if not names:
        return ""
    # What the first and the last in order have in common, those between have too.
    ends = [min(names), max(names)]
    if not urls:
        return os.path.commonpath([os.path.normpath(name) for name in ends])
    return os.path.commonpath(ends).replace(":/", "://", 1)


def _is_stale(manifest: Manifest, wanted: Fingerprint, data: str) -> bool:
    """Whether a store in a folder of many was made from data that has changed, or in another way.

    The part "source" cannot tell alone: samples count in it, which other steps change as well.

    Args:
        manifest: the store's.
        wanted: the fingerprint of the one that is looked for.
        data: the common path of its files.
    """
    old = {part.name: part for part in Fingerprint.from_dict(manifest.fingerprint).parts}
    new = {part.name: part for part in wanted.parts}
    was, now = old.pop("source", None), new.pop("source", None)
    is_made_alike = {n: p.digest for n, p in old.items()} == {n: p.digest for n, p in new.items()}
    # The text counts samples, or files and how large and new they are.
    is_alike = was is not None and now is not None and was.text == now.text
    before = manifest.made.get(DATA, "")
    if before and data:  # of files that are as they were, others may have been chosen
        return bool(before == data) and not (is_made_alike and is_alike)
    return is_alike and not is_made_alike
