"""Brings a store's files here and there: in parts, checked block by block, gone on with."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from hotset.errors import FormatError, StorageError
from hotset.store.arrayfile import storage_errors
from hotset.store.files import MOST_MANIFEST_BYTES
from hotset.store.layout import MANIFEST, File, Manifest, loads
from hotset.store.objects import Objects

PART_BYTES = 16 << 20
"""What is asked for at a time: long enough that the time to the first byte counts little."""
THREADS = 8
UPLOADING = "uploading.json"
"""Stands in a folder that is being written to, and says with what, until the manifest is there."""
MOST_UPLOADING_BYTES = 1 << 24


@dataclass(frozen=True)
class Part:
    """Whole blocks of a file, one after the other; the first ones with what stands before them.

    Attributes:
        name: of the file.
        start: first byte in the file.
        stop: byte behind the last.
    """

    name: str
    start: int
    stop: int


def remote_manifest(objects: Objects) -> tuple[Manifest, bytes, str] | None:
    """A remote store's manifest, its text and its seal; None where there is none.

    Raises:
        FormatError: if the manifest is none.
        StorageError: if it cannot be read.
    """
    if objects.size(MANIFEST) is None:
        return None
    content = objects.read(MANIFEST, MOST_MANIFEST_BYTES)
    try:
        text = content.decode()
        manifest = loads(text)
    except (FormatError, UnicodeDecodeError) as error:
        raise FormatError(f"{objects.url}/{MANIFEST}: {error}") from error
    return manifest, content, json.loads(text)["seal"]


def download(
    objects: Objects,
    manifest: Manifest,
    folder: Path,
    *,
    is_checked: bool,
    told: Callable[[int, int], object] | None = None,
) -> list[tuple[str, int]]:
    """Copies a store's files, those parts of them that are not there already.

    Args:
        objects: the remote store.
        manifest: its manifest.
        folder: the local folder, which may hold parts of the files.
        is_checked: whether the checksum of each block is looked at as it comes.
        told: called with bytes that are there, and in all.

    Returns:
        (file, block) of those that came twice with another checksum than the manifest says.

    Raises:
        MissingDataError: if a file is not there.
        FormatError: if one has another size than the manifest says.
        StorageError: if one cannot be read, or written here.
    """
    for name, file in manifest.files.items():
        size = objects.size(name)
        if size != file.nbytes:
            words = "is missing" if size is None else f"has {size:,} bytes"
            raise FormatError(
                f"{objects.url}/{name} {words}, the manifest says {file.nbytes:,} bytes: the store "
                "was cut off or changed"
            )
    parts = [p for name, file in manifest.files.items() for p in _missing(folder, name, file)]
    done = manifest.nbytes - sum(part.stop - part.start for part in parts)
    fetch = partial(_fetch, objects, manifest, folder, is_checked)
    bad: list[tuple[str, int]] = []
    pool = ThreadPoolExecutor(THREADS, thread_name_prefix="hotset-download")
    try:
        for part, blocks in zip(parts, pool.map(fetch, parts), strict=True):
            bad += [(part.name, block) for block in blocks]
            done += part.stop - part.start
            if told is not None:
                told(done, manifest.nbytes)
    finally:
        pool.shutdown(cancel_futures=True)
    for name in manifest.files:
        with storage_errors(folder / name), open(folder / name, "rb") as content:
            os.fsync(content.fileno())
    return bad


def _missing(folder: Path, name: str, file: File) -> Iterator[Part]:
    """The parts of a file that are not there, or not as they should be."""
    path = folder / name
    with storage_errors(path), open(os.open(path, os.O_RDWR | os.O_CREAT, 0o666), "r+b") as content:
        is_new = os.fstat(content.fileno()).st_size != file.nbytes
        content.truncate(file.nbytes)
        content.seek(file.header_bytes)
        start, stop = (
            0,
            file.header_bytes,
        )  # its checksum is not known, so that it comes in any case
        position = file.header_bytes
        for crc in file.checksums:
            end = min(position + file.block_bytes, file.nbytes)
            if is_new or zlib.crc32(content.read(end - position)) != crc:
                if position != stop or (end - start > PART_BYTES and stop > file.header_bytes):
                    yield Part(name, start, stop)
                    start = position
                stop = end
            position = end
    yield Part(name, start, stop)


def _fetch(
    objects: Objects, manifest: Manifest, folder: Path, is_checked: bool, part: Part
) -> list[int]:
    """Brings a part here, a second time where its blocks are wrong; those that stay wrong."""
    file, wrong = manifest.files[part.name], list[int]()
    for _ in range(2):
        content = objects.read_range(part.name, part.start, part.stop)
        if len(content) > part.stop - part.start:
            raise StorageError(
                f"{objects.url}/{part.name} cannot be read in parts: more came than was asked for"
            )
        if len(content) < part.stop - part.start:
            raise FormatError(
                f"{objects.url}/{part.name} ends after {part.start + len(content):,} bytes, the "
                f"manifest says {file.nbytes:,}: the store was cut off or changed"
            )
        wrong = list(_wrong(file, part, content)) if is_checked else []
        if not wrong:
            break
    path = folder / part.name
    with storage_errors(path, len(content)), open(path, "r+b", buffering=0) as target:
        rest, position = memoryview(content), part.start
        while rest:
            written = os.pwrite(target.fileno(), rest, position)
            rest, position = rest[written:], position + written
    return wrong


def _wrong(file: File, part: Part, content: bytes) -> Iterator[int]:
    first = max(part.start, file.header_bytes)
    for start in range(first, part.stop, file.block_bytes):
        block = (start - file.header_bytes) // file.block_bytes
        values = memoryview(content)[start - part.start :][: file.block_bytes]
        if zlib.crc32(values) != file.checksums[block]:
            yield block


def uploading(objects: Objects) -> dict[str, Any] | None:
    """What a folder is being written with: "seal" and "fingerprint"; None where none says so."""
    if objects.size(UPLOADING) is None:
        return None
    try:
        found = json.loads(objects.read(UPLOADING, MOST_UPLOADING_BYTES))
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def begin_upload(objects: Objects, fingerprint: Any, seal: str | None = None) -> None:
    """Says in a folder what is to come there.

    Args:
        objects: the folder.
        fingerprint: of the store.
        seal: of its manifest; None while there is none.

    Raises:
        StorageError: if it cannot be written to.
    """
    begun = uploading(objects)
    if begun is None or seal is not None:
        note = {"seal": seal, "fingerprint": fingerprint}
        objects.write(UPLOADING, json.dumps(note).encode())


def upload(
    objects: Objects, folder: Path, told: Callable[[int, int], object] | None = None
) -> None:
    """Copies a local store to where there is none, the manifest last.

    Args:
        objects: where to; what an upload of the same store has left there is gone on with.
        folder: the store's.
        told: called with bytes that are there, and in all.

    Raises:
        StorageError: if a file cannot be written, or another store has come there meanwhile.
    """
    objects.check_bucket()
    text = (folder / MANIFEST).read_bytes()
    manifest, seal = loads(text.decode()), json.loads(text)["seal"]
    begun, done = uploading(objects), 0
    if begun is None or begun.get("seal") != seal:
        begun = None
        begin_upload(objects, manifest.fingerprint, seal)
    for name, file in manifest.files.items():
        if begun is None or objects.size(name) != file.nbytes:
            objects.upload(name, str(folder / name))
        size = objects.size(name)
        if size != file.nbytes:
            raise StorageError(
                f"{objects.url}/{name} has {size or 0:,} bytes after {file.nbytes:,} were written"
            )
        done += file.nbytes
        if told is not None:
            told(done, manifest.nbytes)
    if objects.size(MANIFEST) is not None:
        raise StorageError(
            f"another process has put a store at {objects.url} meanwhile; build again to use it"
        )
    objects.write(MANIFEST, text)
    objects.delete(UPLOADING)
