"""Where a store may stand: in a folder of this machine, or at a URL."""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from hotset.errors import FormatError, StaleStoreWarning
from hotset.keys.fingerprint import Fingerprint, differences
from hotset.store.files import read_manifest
from hotset.store.journal import JOURNAL, read_lines
from hotset.store.layout import MANIFEST, Manifest
from hotset.store.store import Store


@dataclass(frozen=True)
class Place:
    """Where a store is or is to be.

    Attributes:
        path: its directory.
        is_there: whether it is whole.
        stale: what was found there that was made from something else, and what differs.
        data: the common path of the files that the dataset names; empty where that is not known.
    """

    path: Path
    is_there: bool
    stale: tuple[str, ...] = ()
    data: str = ""

    @property
    def name(self) -> str:
        """What messages call it."""
        return self.path.name

    @property
    def partial(self) -> Path:
        """The directory that it is built in."""
        return self.path.with_name(f"{self.path.name}.partial")

    def warn(self) -> None:
        """Warns of what was made from something else, if there is any."""
        what = "is used" if self.is_there else "is built"
        for words in self.stale:
            warnings.warn(
                f"{words}; it stays as it is, and {self.name} beside it {what}",
                StaleStoreWarning,
                stacklevel=4,
            )

    def publish(self) -> None:
        """Brings a store that was just built to where it belongs, if that is elsewhere."""

    def opened(self) -> Store:
        """The store, which is whole."""
        return Store(self.path)


class Location(Protocol):
    """Where a store may stand, or a folder of stores: on this machine, or at a URL."""

    @property
    def name(self) -> str:
        """Its last part."""

    def manifest(self) -> Manifest | None:
        """That of the whole store there; None where there is none.

        Raises:
            FormatError: if it is damaged.
        """

    def is_taken(self) -> bool:
        """Whether something that is no store, and is not to be one, stands there."""

    def unfree(self, wanted: Fingerprint) -> str | None:
        """Why a store cannot be begun or gone on with there; None where it can."""

    def sibling(self, name: str) -> Location:
        """Another one beside it."""

    def child(self, name: str) -> Location:
        """One within it."""

    def stores(self, name: str) -> list[Location]:
        """Those within it that are called so and a fingerprint, in order."""

    def work(self, wanted: Fingerprint) -> Path:
        """The folder of this machine that a store is made in."""

    def place(self, wanted: Fingerprint, *, is_there: bool, stale: tuple[str, ...] = ()) -> Place:
        """The store of a fingerprint there, whole or to be made."""


@dataclass(frozen=True)
class Folder:
    """A location on this machine; as `Location` says.

    Attributes:
        path: the directory.
    """

    path: Path

    def __str__(self) -> str:
        return str(self.path)

    @property
    def name(self) -> str:
        return self.path.name

    def manifest(self) -> Manifest | None:
        return read_manifest(self.path) if is_whole(self.path) else None

    def is_taken(self) -> bool:
        return os.path.lexists(self.path) and not _is_replaceable(self.path)

    def unfree(self, wanted: Fingerprint) -> str | None:
        partial = Place(self.path, False).partial
        if not os.path.lexists(partial):
            return None
        if not partial.is_dir() or partial.is_symlink():
            return f"{partial} is no directory"
        if not (partial / JOURNAL).is_file():
            is_empty = not any(partial.iterdir())
            return None if is_empty else f"{partial} holds something else than a store"
        lines, _ = read_lines(partial / JOURNAL)
        words = unlike(lines[0].get("fingerprint"), partial, wanted) if lines else None
        return words and f"{partial} holds the beginnings of another store ({words})"

    def sibling(self, name: str) -> Folder:
        return Folder(self.path.with_name(name))

    def child(self, name: str) -> Folder:
        return Folder(self.path / name)

    def stores(self, name: str) -> list[Location]:
        return [Folder(p.parent) for p in sorted(self.path.glob(f"{name}-*.hotset/{MANIFEST}"))]

    def work(self, wanted: Fingerprint) -> Path:
        return self.path

    def place(self, wanted: Fingerprint, *, is_there: bool, stale: tuple[str, ...] = ()) -> Place:
        return Place(self.path, is_there, stale)


def is_whole(path: Path) -> bool:
    """Whether there is a whole store at a path."""
    return os.path.isfile(path / MANIFEST)


def _is_replaceable(path: Path) -> bool:
    """Whether a directory is empty, and another may be renamed to it."""
    if path.is_symlink() or not path.is_dir() or os.path.ismount(path):
        return False
    try:
        # A process would be left behind in a working directory that has no name any more.
        return not os.listdir(path) and not os.path.samefile(path, os.curdir)
    except OSError:
        return False


def unlike(values: Any, where: object, wanted: Fingerprint) -> str | None:
    """What differs between a fingerprint in a file and the one that is wanted; None if nothing.

    Args:
        values: of the fingerprint, as in the file.
        where: the file or what it belongs to, for messages.
        wanted: the other one.

    Raises:
        FormatError: if the values are no fingerprint.
    """
    try:
        found = Fingerprint.from_dict(values)
    except FormatError as error:
        raise FormatError(f"{where}: {error}") from error
    if found.digest == wanted.digest:
        return None
    return "; ".join(differences(found, wanted))
