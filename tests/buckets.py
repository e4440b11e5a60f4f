"""Fixtures of the tests that need object storage: one server for the session, a bucket per test."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest

from tests.object_server import ObjectServer

_numbers = itertools.count()


class Bucket:
    """A bucket of its own on a server.

    Args:
        server: the server.

    Attributes:
        server: the server.
        options: what s3fs is told.
        fs: s3fs itself.
    """

    def __init__(self, server: ObjectServer) -> None:
        self.server, self.options = server, server.storage_options
        self.fs: Any = fsspec.filesystem("s3", **self.options)
        self.name = f"bucket-{next(_numbers)}"
        self.fs.mkdir(self.name)
        self._seen = 0

    def url(self, path: str) -> str:
        """The URL of something in it."""
        return f"s3://{self.name}/{path}"

    def put(self, path: str, content: bytes) -> None:
        """Writes an object."""
        self.fs.pipe_file(f"{self.name}/{path}", content)

    def names(self, folder: str) -> list[str]:
        """The objects in a folder, in order."""
        self.fs.invalidate_cache()
        found = self.fs.find(f"{self.name}/{folder}")
        return sorted(name.removeprefix(f"{self.name}/{folder}/") for name in found)

    def asked(self, method: str) -> list[tuple[str, str]]:
        """(object, range of bytes) of each request by a method since the last time."""
        found = self.server.requests()
        new, self._seen = found[self._seen :], len(found)
        prefix = f"/{self.name}/"
        return [
            (path.removeprefix(prefix), part)
            for how, path, part in new
            if how == method and path.startswith(prefix) and path != prefix
        ]


@pytest.fixture(scope="session")
def object_server() -> Iterator[ObjectServer]:
    """An S3 server."""
    server = ObjectServer()
    yield server
    server.close()


@pytest.fixture
def bucket(object_server: ObjectServer) -> Bucket:
    """A bucket of the test's own."""
    return Bucket(object_server)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of local copies of the test's own."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("HOTSET_CACHE", str(folder))
    return folder
