"""Stores at a URL: read through a local copy, which is kept for the next time."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Literal

from hotset.errors import ConfigError, FormatError, MissingDataError, StorageError
from hotset.progress import Told, shown
from hotset.store.arrayfile import storage_errors
from hotset.store.blocks import Damage
from hotset.store.copies import WANTED, Copies, Hold
from hotset.store.layout import MANIFEST, Manifest
from hotset.store.objects import Objects
from hotset.store.store import VERIFY, Store, Verify
from hotset.store.transfer import download, remote_manifest
from hotset.store.writer import sync_folder, write_synced

SUFFIX = ".hotset"
CHANGES = 3
"""How often a store may change while it is being copied."""


class RemoteStore(Store):
    """A store at a URL, read through a local copy that stays while the store is open.

    Args:
        path: the copy.
        verify: as for `Store`.
        url: of the store.
        seal: of its manifest.
        hold: the copy's lock, shared.
        reopen: opens it again in another process.

    Attributes:
        url: of the store.
    """

    def __init__(
        self,
        path: Path,
        *,
        verify: Verify,
        url: str,
        hold: Hold,
        reopen: partial[RemoteStore],
    ) -> None:
        self.url, self._hold, self._reopen = url, hold, reopen
        super().__init__(path, verify=verify)

    def __reduce__(self) -> Any:
        return self._reopen, ()

    def __repr__(self) -> str:
        return super().__repr__().replace(repr(str(self.path)), repr(self.url), 1)


def open_remote(
    url: str,
    *,
    verify: Verify = "touch",
    local: str | os.PathLike[str] | None = None,
    budget: int | str | None = None,
    storage_options: Mapping[str, Any] | None = None,
    progress: Told | Literal[False] | None = None,
) -> RemoteStore:
    """A store at a URL, copied to this machine if it is not there yet.

    Args:
        url: of the store.
        verify: as for `Store`; blocks are looked at while they are copied, unless it is "never".
        local: folder of the copies; None is `cache_folder()`.
        budget: as for `Copies`.
        storage_options: what fsspec's file system is told.
        progress: called with bytes that are there, and in all; None is a bar on a terminal.

    Raises:
        ConfigError: for arguments that cannot be used.
        MissingDataError: if there is no store.
        FormatError: if it is damaged; names file, block and samples.
        StorageError: if it cannot be read, or there is no room for it.
        MissingExtraError: if the package that knows the protocol is not installed.
    """
    if verify not in VERIFY:
        raise ConfigError(f"`verify` must be one of {', '.join(VERIFY)}, got {verify!r}")
    objects, copies = Objects(url, storage_options), Copies(local, budget)
    for attempt in range(CHANGES):
        manifest, text, seal = _manifest_at(objects)
        try:
            return _opened(objects, copies, manifest, text, seal, verify, progress)
        except FormatError:
            if attempt == CHANGES - 1 or _manifest_at(objects)[2] == seal:
                raise
    raise AssertionError


def _manifest_at(objects: Objects) -> tuple[Manifest, bytes, str]:
    found = remote_manifest(objects)
    if found is None:
        objects.check_bucket()
        raise MissingDataError(f"there is no store at {objects.url}")
    return found


def copy_name(url: str, seal: str) -> str:
    """What the local copy of a store is called."""
    digest = hashlib.blake2b(f"{url} {seal}".encode(), digest_size=10).hexdigest()
    stem = url.rstrip("/").rpartition("/")[2].removesuffix(SUFFIX)
    return f"{stem}-{digest}{SUFFIX}"


def _opened(
    objects: Objects,
    copies: Copies,
    manifest: Manifest,
    text: bytes,
    seal: str,
    verify: Verify,
    progress: Told | Literal[False] | None,
) -> RemoteStore:
    name, is_made = copy_name(objects.url, seal), False
    while True:
        store, is_damaged = None, False
        try:
            store = _open_copy(objects, copies, seal, verify)
        except FormatError:
            if is_made:
                raise
            is_damaged = True  # it is fetched anew; who has it open keeps the old files
        if store is not None:
            return store
        with copies.making(name):
            if is_damaged:
                copies.remove(name)
            if not copies.has(name):
                with shown(progress, f"copying {objects.name}", unit="bytes") as told:
                    _copy(objects, copies, manifest, text, name, verify != "never", told)
                copies.opened(name)
                is_made = True


def _open_copy(objects: Objects, copies: Copies, seal: str, verify: Verify) -> RemoteStore | None:
    """The store, by its copy; None where there is none."""
    name = copy_name(objects.url, seal)
    hold = copies.hold(name)
    try:
        if not copies.has(name):
            hold.release()
            return None
        reopen = partial(
            _reopened, objects.url, seal, copies, objects.storage_options, verify=verify
        )
        path = copies.path(name)
        store = RemoteStore(path, verify=verify, url=objects.url, hold=hold, reopen=reopen)
        copies.opened(name)
    except BaseException:
        hold.release()
        raise
    return store


def _reopened(
    url: str, seal: str, copies: Copies, storage_options: dict[str, Any], *, verify: Verify
) -> RemoteStore:
    """The same store in another process, by the same copy where it is still there."""
    objects = Objects(url, storage_options)
    store = _open_copy(objects, copies, seal, verify)
    if store is not None:
        return store
    manifest, text, now = _manifest_at(objects)
    if now != seal:
        raise StorageError(f"{url} is no longer the store that it was when it was opened")
    return _opened(objects, copies, manifest, text, seal, verify, False)


def _copy(
    objects: Objects,
    copies: Copies,
    manifest: Manifest,
    text: bytes,
    name: str,
    is_checked: bool,
    told: Told | None,
) -> None:
    """Copies a store here; its name appears when it is whole."""
    folder = copies.reserve(name, manifest.nbytes + len(text), objects.url)
    bad = download(objects, manifest, folder, is_checked=is_checked, told=told)
    with storage_errors(folder):
        write_synced(folder / MANIFEST, text)
        if bad:
            raise FormatError(_damage(objects, folder, bad))
        try:
            Store(folder, verify="never")
        except FormatError as error:
            words = str(error).replace(str(folder), objects.url)
            raise FormatError(words) from error
        (folder / WANTED).unlink()
        sync_folder(folder)
        shutil.rmtree(copies.path(name), ignore_errors=True)
        os.rename(folder, copies.path(name))
        sync_folder(copies.folder)


def _damage(objects: Objects, folder: Path, bad: list[tuple[str, int]]) -> str:
    """What is damaged, in words, with the samples where the rest of the files tells them."""
    try:
        found = Store(folder, verify="never").damaged()
    except FormatError:
        found = [Damage(name, block, ()) for name, block in bad]
    words = "; ".join(map(str, found[:3])) + (f"; {len(found) - 3} more" if found[3:] else "")
    return (
        f"{objects.url} is damaged: blocks do not have the checksums that they were written with "
        f"({words})"
    )


def adopt(objects: Objects, folder: Path, copies: Copies) -> None:
    """Makes a store's folder, which was copied to a URL, the local copy of what is there.

    Args:
        objects: where it was copied to.
        folder: the store's, on the disk of the copies.
        copies: where it belongs.

    Raises:
        StorageError: if it cannot be moved.
    """
    seal = json.loads((folder / MANIFEST).read_bytes())["seal"]
    name = copy_name(objects.url, seal)
    with copies.making(name), storage_errors(folder):
        if not copies.has(name):
            shutil.rmtree(copies.path(name), ignore_errors=True)
            os.rename(folder, copies.path(name))
        else:
            shutil.rmtree(folder)
        copies.opened(name)
