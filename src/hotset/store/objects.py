"""Files under a URL, through fsspec: read, written, and every failure said in one sentence."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from hotset.errors import (
    ConfigError,
    HotsetError,
    MissingDataError,
    MissingExtraError,
    StorageError,
)
from hotset.store.urls import protocol_of

BUCKETS = ("s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl", "oss", "oci", "r2")
"""Protocols whose first part is a bucket, and whose folders need not be made."""
NO_CREDENTIALS = ("NoCredentialsError", "PartialCredentialsError", "DefaultCredentialsError")

_FILE_SYSTEMS: dict[tuple[Any, ...], Any] = {}
# Never emptied. A file system that a forked process let go of would close its parent's connections
# while it is finalised, through an event loop whose thread is not there.


class Objects:
    """The files under a URL; picklable, and safe to use in a forked process.

    Args:
        url: of the folder, as "s3://bucket/train.hotset".
        storage_options: what its file system is told: keys, an endpoint.

    Attributes:
        url: of the folder, without a slash at the end.
        storage_options: what its file system is told.

    Raises:
        ConfigError: for a URL without a path.
    """

    def __init__(self, url: str, storage_options: Mapping[str, Any] | None = None) -> None:
        self.url, self.storage_options = url.rstrip("/"), dict(storage_options or {})
        if self.url.endswith(":"):
            raise ConfigError(f"a URL needs a path, as in s3://bucket/train.hotset, got {url!r}")

    def __str__(self) -> str:
        return self.url

    @property
    def name(self) -> str:
        """The last part of the URL."""
        return self.url.rpartition("/")[2]

    def sibling(self, name: str) -> Objects:
        """Another folder beside this one."""
        return Objects(f"{self.url.rpartition('/')[0]}/{name}", self.storage_options)

    def child(self, name: str) -> Objects:
        """A folder within this one."""
        return Objects(f"{self.url}/{name}", self.storage_options)

    def connect(self) -> tuple[Any, str]:
        """The file system, one for each process, and the folder's path in it.

        Raises:
            MissingExtraError: if the package that knows the protocol is not installed.
            ConfigError: if nobody knows the protocol.
            StorageError: if the file system refuses what it is told.
        """
        # Both the event loop's thread and the open connections stay behind when a process forks.
        key = (os.getpid(), self.url, repr(sorted(self.storage_options.items(), key=repr)))
        if key not in _FILE_SYSTEMS:
            _FILE_SYSTEMS[key] = _connected(self.url, self.storage_options)
        found: tuple[Any, str] = _FILE_SYSTEMS[key]
        return found

    def read(self, name: str, most: int) -> bytes:
        """A whole file.

        Args:
            name: of the file.
            most: bytes that it may have.

        Raises:
            MissingDataError: if it is not there.
            StorageError: if it cannot be read, or has more bytes.
        """
        size = self.size(name)
        if size is None:
            raise MissingDataError(f"there is nothing at {self.url}/{name}")
        if size > most:
            raise StorageError(f"{self.url}/{name} has {size:,} bytes, {most:,} were expected")
        with self._errors(name) as (fs, path):
            content: bytes = fs.cat_file(path)
        return content

    def read_range(self, name: str, start: int | None = None, stop: int | None = None) -> bytes:
        """A part of a file, or all of it; fewer bytes where it ends before.

        Raises:
            MissingDataError: if it is not there.
            StorageError: if it cannot be read.
        """
        with self._errors(name) as (fs, path):
            part: bytes = fs.cat_file(path, start=start, end=stop)
        return part

    def size(self, name: str) -> int | None:
        """Bytes of a file; None where there is none."""
        try:
            with self._errors(name) as (fs, path):
                fs.invalidate_cache()
                info = fs.info(path)
        except MissingDataError:
            return None
        return None if info["type"] == "directory" else int(info["size"])

    def names(self) -> list[str]:
        """What is directly in the folder, in order; nothing where it is not there.

        Raises:
            StorageError: if the folder cannot be read.
        """
        try:
            with self._errors() as (fs, path):
                fs.invalidate_cache()
                found = [str(name).rstrip("/").rpartition("/")[2] for name in fs.ls(path, False)]
        except MissingDataError:
            return []
        return sorted(found)

    def tree(self) -> list[tuple[str, dict[str, Any]]]:
        """(path below this folder, what the file system says of it) of all files and first folders.

        Raises:
            MissingDataError: if the folder is not there.
            StorageError: if it cannot be read.
        """
        with self._errors() as (fs, path):
            fs.invalidate_cache()
            first = [info for info in fs.ls(path, detail=True) if info["type"] == "directory"]
            found = {info["name"].rstrip("/"): info for info in first}
            files = fs.find(path, detail=True).items()
            # Consoles keep an empty object, named as the folder, where a folder is to be seen.
            found |= {name: info for name, info in files if not name.endswith("/")}
        root = f"{path.rstrip('/')}/"
        return [(name[len(root) :], info) for name, info in found.items() if name.startswith(root)]

    def check_bucket(self) -> None:
        """Sees to it that the bucket is there, where the URL names one.

        Raises:
            MissingDataError: if it is not.
        """
        if protocol_of(self.url) not in BUCKETS:
            return
        with self._errors() as (fs, path):
            bucket = path.split("/")[0]
            fs.invalidate_cache()
            if not fs.exists(bucket):
                raise MissingDataError(f"there is no bucket {bucket!r}, as in {self.url}")

    def write(self, name: str, content: bytes) -> None:
        """Writes a file at once: whoever reads it sees all of it or nothing.

        Raises:
            StorageError: if it cannot be written.
        """
        with self._errors(name, "written") as (fs, path):
            self._make_folder(fs)
            fs.pipe_file(path, content)

    def upload(self, name: str, source: str) -> None:
        """Writes a file's content: whoever reads it sees all of it or nothing.

        Raises:
            StorageError: if it cannot be written.
        """
        with self._errors(name, "written") as (fs, path):
            self._make_folder(fs)
            fs.put_file(source, path)

    def delete(self, name: str) -> None:
        """Removes a file.

        Raises:
            StorageError: if it cannot be removed.
        """
        with self._errors(name, "removed") as (fs, path):
            fs.rm_file(path)

    def _make_folder(self, fs: Any) -> None:
        if protocol_of(self.url) not in BUCKETS:  # there it would make the bucket as well
            fs.makedirs(self.connect()[1], exist_ok=True)

    @contextmanager
    def _errors(self, name: str = "", doing: str = "read") -> Iterator[tuple[Any, str]]:
        fs, path = self.connect()
        with remote_errors(f"{self.url}/{name}" if name else self.url, doing):
            yield fs, f"{path}/{name}" if name else path


@contextmanager
def remote_errors(url: str, doing: str = "read") -> Iterator[None]:
    """Says in one sentence why a URL cannot be used, whatever its library raises.

    Args:
        url: that is used.
        doing: "read", "written" or "removed".

    Raises:
        MissingDataError: if there is nothing.
        StorageError: in place of anything else that is not hotset's own.
    """
    try:
        yield
    except HotsetError:
        raise
    except FileNotFoundError as error:
        raise MissingDataError(f"there is nothing at {url}") from error
    except Exception as error:  # each library has exceptions of its own, with no common root
        words = " ".join(str(error).split()) or type(error).__name__
        if type(error).__name__ in NO_CREDENTIALS:
            raise StorageError(
                f"{url} cannot be {doing}, since no credentials were found ({words}); pass "
                "`storage_options`, or set them in the environment"
            ) from error
        may = "may not" if isinstance(error, PermissionError) else "cannot"
        raise StorageError(f"{url} {may} be {doing}: {words}") from error


def _connected(url: str, storage_options: Mapping[str, Any]) -> tuple[Any, str]:
    protocol = protocol_of(url)
    try:
        core, registry = import_module("fsspec.core"), import_module("fsspec.registry")
    except ImportError as error:
        raise MissingExtraError(
            f'{url} needs fsspec, which is not installed: pip install "hotset[remote]"'
        ) from error
    try:
        found: tuple[Any, str] = core.url_to_fs(url, **storage_options)
    except ImportError as error:
        known = registry.known_implementations.get(protocol, {})
        package = known.get("class", "").partition(".")[0]
        if package in ("", "fsspec"):  # its own words name what it needs
            raise MissingExtraError(f"{url} cannot be used: {error}") from error
        raise MissingExtraError(
            f"{url} needs {package}, which is not installed: pip install {package}"
        ) from error
    except ValueError as error:
        if "Protocol not known" in str(error):
            raise ConfigError(
                f"{url} has a protocol that fsspec does not know; among those that it knows are "
                "s3://, gs://, abfs://, http:// and memory://"
            ) from error
        raise StorageError(f"{url} cannot be reached: {error}") from error
    except Exception as error:  # each library has exceptions of its own, with no common root
        words = str(error) or type(error).__name__
        raise StorageError(f"{url} cannot be reached: {words}") from error
    return found
