"""A URL as the place of a store: built on this machine, then copied there."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from hotset.building.locations import Location, Place, is_whole, unlike
from hotset.keys.fingerprint import Fingerprint
from hotset.progress import shown
from hotset.store.copies import Copies
from hotset.store.layout import Manifest
from hotset.store.objects import Objects
from hotset.store.remote import adopt, open_remote
from hotset.store.store import Store
from hotset.store.transfer import begin_upload, remote_manifest, upload, uploading

BUILDING = "building"


@dataclass(frozen=True)
class RemotePlace(Place):
    """A store that is at a URL, or is to be.

    Attributes:
        objects: the URL's; always given.
    """

    objects: Objects = field(kw_only=True)

    @property
    def name(self) -> str:
        return self.objects.name

    def publish(self) -> None:
        copies = Copies()
        # Whether it is there already is asked when nobody else of this machine brings it there.
        with copies.making(f"{BUILDING}-{self.path.name}"):
            if not is_whole(self.path):
                return
            if remote_manifest(self.objects) is None:
                with shown(None, f"uploading {self.name}", unit="bytes") as told:
                    upload(self.objects, self.path, told)
            adopt(self.objects, self.path, copies)

    def opened(self) -> Store:
        self.publish()
        return open_remote(self.objects.url, storage_options=self.objects.storage_options)


class RemoteLocation:
    """A URL that a store may stand at; as `Location` says.

    Args:
        url: of the store, or of a folder of stores.
        storage_options: what its file system is told.
    """

    def __init__(self, url: str, storage_options: Mapping[str, Any] | None = None) -> None:
        self._objects = Objects(url, storage_options)

    def __str__(self) -> str:
        return self._objects.url

    @property
    def name(self) -> str:
        return self._objects.name

    def manifest(self) -> Manifest | None:
        found = remote_manifest(self._objects)
        if found is None:
            self._objects.check_bucket()  # before anything is built that could not be written
        return None if found is None else found[0]

    def is_taken(self) -> bool:
        return bool(self._objects.names()) and uploading(self._objects) is None

    def unfree(self, wanted: Fingerprint) -> str | None:
        begun = uploading(self._objects)
        words = unlike(begun.get("fingerprint"), self, wanted) if begun else None
        return words and f"{self} holds the beginnings of another store ({words})"

    def sibling(self, name: str) -> Location:
        return _of(self._objects.sibling(name))

    def child(self, name: str) -> Location:
        return _of(self._objects.child(name))

    def stores(self, name: str) -> list[Location]:
        found = [other for other in self._objects.names() if fnmatch(other, f"{name}-*.hotset")]
        return [self.child(other) for other in found]

    def work(self, wanted: Fingerprint) -> Path:
        words = json.dumps([self._objects.url, wanted.digest])
        digest = hashlib.blake2b(words.encode(), digest_size=10).hexdigest()
        stem = self.name.removesuffix(".hotset")
        return Copies().folder / BUILDING / f"{stem}-{digest}.hotset"

    def place(self, wanted: Fingerprint, *, is_there: bool, stale: tuple[str, ...] = ()) -> Place:
        path = self.work(wanted)
        if not is_there:
            # Says at once whether it may be written, and tells others what is to come.
            begin_upload(self._objects, wanted.as_dict())
        return RemotePlace(path, is_there or is_whole(path), stale, objects=self._objects)


def _of(objects: Objects) -> RemoteLocation:
    return RemoteLocation(objects.url, objects.storage_options)
