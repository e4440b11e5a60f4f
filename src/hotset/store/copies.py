"""Local copies of remote stores: which there are, who uses them, and which make room."""

from __future__ import annotations

import fcntl
import gc
import os
import shutil
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hotset.errors import StorageError
from hotset.placement.budget import budget_bytes
from hotset.store.arrayfile import free_bytes_at, storage_errors
from hotset.store.layout import MANIFEST

ACCOUNTS = ".copies.lock"
WANTED = "wanted-bytes"
PARTIAL = ".partial"
USED, MADE = ".used", ".made"
"""Endings of files whose locks are held by those who read a copy, and by the one who makes it."""


def cache_folder() -> Path:
    """Where local copies lie: `$HOTSET_CACHE`, or hotset's part of the user's cache folder."""
    own = os.environ.get("HOTSET_CACHE")
    if own:
        return Path(own).expanduser().absolute()
    user = os.environ.get("XDG_CACHE_HOME")
    return (Path(user) if user else Path.home() / ".cache") / "hotset"


class Hold:
    """A lock on a file, shared or not; let go of with the object, or with the process.

    A forked process holds it as well, until it ends.

    Args:
        path: of the file; made where it is not there.

    Raises:
        StorageError: if the file cannot be made.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._open()

    def _open(self) -> None:
        with storage_errors(self._path):
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        self._end = weakref.finalize(self, os.close, self._file)

    def take(self, *, is_shared: bool, is_waiting: bool = True) -> bool:
        """Takes the lock; whether it has it.

        Args:
            is_shared: whether others may share it.
            is_waiting: whether to wait for others.
        """
        kind = fcntl.LOCK_SH if is_shared else fcntl.LOCK_EX
        while True:
            try:
                fcntl.flock(self._file, kind | (0 if is_waiting else fcntl.LOCK_NB))
            except BlockingIOError:
                return False
            if self._is_current():
                return True
            self.release()  # the file was removed meanwhile, and the lock with it
            self._open()

    def _is_current(self) -> bool:
        try:
            return os.path.samestat(os.fstat(self._file), os.stat(self._path))
        except FileNotFoundError:
            return False

    def release(self) -> None:
        """Lets go of it."""
        self._end()


class Copies:
    """Copies of stores in one folder, the least recently opened of which go first.

    Args:
        folder: of the copies; None is `cache_folder()`.
        budget: what all of them together may take: bytes, "50GB", "60%" of what is free on the
            disk, or None for half of that; what the copies take counts as free.

    Attributes:
        folder: of the copies.
    """

    def __init__(
        self, folder: str | os.PathLike[str] | None = None, budget: int | str | None = None
    ) -> None:
        self.folder = cache_folder() if folder is None else Path(os.path.abspath(folder))
        budget_bytes(budget, 0)
        self._budget = budget

    def path(self, name: str) -> Path:
        """Where a whole copy lies."""
        return self.folder / name

    def partial(self, name: str) -> Path:
        """Where it lies until it is whole."""
        return self.folder / f"{name}{PARTIAL}"

    def has(self, name: str) -> bool:
        """Whether there is a whole copy."""
        return (self.path(name) / MANIFEST).is_file()

    def hold(self, name: str) -> Hold:
        """A lock that keeps a copy from being removed as long as it is held.

        Raises:
            StorageError: if the folder cannot be written to.
        """
        hold = self._lock(name, USED)
        hold.take(is_shared=True)
        return hold

    @contextmanager
    def making(self, name: str) -> Iterator[None]:
        """One process at a time makes a copy; others wait.

        Raises:
            StorageError: if the folder cannot be written to.
        """
        lock = self._lock(name, MADE)
        lock.take(is_shared=False)
        try:
            yield
        finally:
            lock.release()

    def _lock(self, name: str, ending: str) -> Hold:
        with storage_errors(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
        return Hold(self._lock_path(name, ending))

    def _lock_path(self, name: str, ending: str) -> Path:
        return self.folder / f".{name}{ending}"

    @contextmanager
    def _accounts(self) -> Iterator[None]:
        """One process at a time counts, and removes copies."""
        hold = Hold(self.folder / ACCOUNTS)
        hold.take(is_shared=False)
        try:
            yield
        finally:
            hold.release()

    def opened(self, name: str) -> None:
        """Notes that a copy is used, now later than all others; they make room if they must.

        Args:
            name: of the copy.
        """
        with self._accounts():
            last = max((number for _, number in self._stamps()), default=0)
            with storage_errors(self.folder):
                self._lock_path(name, USED).write_text(str(last + 1), encoding="ascii")
            sizes = self._sizes()
            self._evict(name, sizes, self._room(sizes) - sizes.get(name, 0))

    def reserve(self, name: str, needed: int, url: str) -> Path:
        """The folder for a copy that is to come, once there is room for it.

        Args:
            name: of the copy, which the caller is making.
            needed: bytes that it takes.
            url: what is copied, for messages.

        Raises:
            StorageError: if the budget or the disk has no room for it.
        """
        with self._accounts(), storage_errors(self.folder):
            sizes = self._sizes()
            room = self._room(sizes)
            if needed > room:
                raise StorageError(
                    f"{url} takes {needed:,} bytes, but the budget of local copies in "
                    f"{self.folder} is {room:,} bytes; give it a larger `budget`"
                )
            left = self._evict(name, sizes, room - needed)
            if left > room - needed:
                raise StorageError(
                    f"{url} takes {needed:,} bytes, but of the budget of {room:,} bytes for local "
                    f"copies in {self.folder}, stores that are open take {left:,} bytes; close "
                    "some, or give it a larger `budget`"
                )
            partial = self.partial(name)
            missing = needed - _allocated(partial)
            if missing > free_bytes_at(self.folder):
                raise StorageError(
                    f"no room for a copy of {url} in {self.folder}: {missing:,} bytes are needed, "
                    f"{free_bytes_at(self.folder):,} bytes are free"
                )
            partial.mkdir(exist_ok=True)
            (partial / WANTED).write_text(str(needed), encoding="ascii")
        return partial

    def remove(self, name: str) -> None:
        """Removes a copy, which the caller is making, or nobody."""
        for path in (self.path(name), self.partial(name)):
            shutil.rmtree(path, ignore_errors=True)

    def _room(self, sizes: dict[str, int]) -> int:
        return budget_bytes(self._budget, free_bytes_at(self.folder) + sum(sizes.values()))

    def _stamps(self) -> Iterator[tuple[str, int]]:
        """(name, when it was opened last, as a number) of every copy, whole or not."""
        for path in self.folder.glob(f".*{USED}"):
            text = path.read_text(encoding="ascii")
            yield path.name[1 : -len(USED)], int(text or 0)

    def _sizes(self) -> dict[str, int]:
        """Bytes that each copy takes, or will."""
        return {name: self._size(name) for name, _ in self._stamps()}

    def _size(self, name: str) -> int:
        try:
            wanted = int((self.partial(name) / WANTED).read_text(encoding="ascii"))
        except (OSError, ValueError):
            wanted = 0
        return max(wanted, _bytes_in(self.path(name)))

    def _evict(self, kept: str, sizes: dict[str, int], room: int) -> int:
        """Removes copies, the least recently opened first, until the others have room.

        Returns:
            The bytes that are left of the others.
        """
        others = sorted((number, name) for name, number in self._stamps() if name != kept)
        left = sum(sizes.get(name, 0) for _, name in others)
        for _, name in others:
            if left <= room:
                break
            locks = [self._lock(name, ending) for ending in (USED, MADE)]
            if _take_all(locks):
                self.remove(name)
                for ending in (USED, MADE):
                    self._lock_path(name, ending).unlink(missing_ok=True)
                left -= sizes.get(name, 0)
            for lock in locks:
                lock.release()
        return left


def _take_all(locks: list[Hold]) -> bool:
    """Whether nobody has any of the locks; they are then taken."""
    for _ in range(2):
        if all(lock.take(is_shared=False, is_waiting=False) for lock in locks):
            return True
        # A store and its files refer to one another: one that nobody has any more is still there.
        gc.collect()
    return False


def _bytes_in(folder: Path) -> int:
    try:
        return sum(entry.stat().st_size for entry in os.scandir(folder))
    except FileNotFoundError:
        return 0


def _allocated(folder: Path) -> int:
    """Bytes on the disk: files that are being filled have holes."""
    try:
        return sum(entry.stat().st_blocks * 512 for entry in os.scandir(folder))
    except FileNotFoundError:
        return 0
