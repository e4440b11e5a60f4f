"""Full disks: an error that names what is needed and what is free, and building that goes on."""

from __future__ import annotations

import errno
import os
import re
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hotset
from hotset.building import chunks
from hotset.errors import StorageError
from hotset.store import chunk
from hotset.store.arrayfile import ArrayFile, free_bytes_at
from hotset.store.journal import JOURNAL, read_lines
from tests.stores import Made, assert_holds, counted

SAMPLES = 200


def wide_sample(index: int) -> Any:
    """Some 8 kB, of differing length."""
    return np.full(2000 + index % 7, index, np.int32), index


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few samples per chunk."""
    monkeypatch.setattr(chunk, "CHUNK_SAMPLES", 10)


def build(folder: Path) -> hotset.Store:
    """Builds, or goes on."""
    dataset = Made(wide_sample, SAMPLES)
    return hotset.build(dataset, folder / "a.hotset", version="1", workers=0)


def assert_goes_on(folder: Path) -> None:
    """Fails unless what was written when the disk was full is kept."""
    lines = read_lines(folder / "a.hotset.partial" / JOURNAL)[0]
    done = sum(line.get("run", [0, 0])[1] for line in lines)
    assert 0 < done < SAMPLES
    with counted(folder) as reads:
        store = build(folder)
    assert_holds(store, [wide_sample(index) for index in range(SAMPLES)])
    assert [i for i in range(SAMPLES) if reads[i] == 0] == [
        i for i in range(1, done) if i not in (66, 133)
    ]


@contextmanager
def files_up_to(size: int) -> Iterator[None]:
    """No file may be larger meanwhile; Python ignores the signal that else would end it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("size", [100_000, 400_001, 1_000_000, 1_599_000])
def test_where_there_is_no_room_left_building_goes_on_later(size: int, tmp_path: Path) -> None:
    """The error names the file, the bytes that were to be written and those that are free."""
    words = (
        r"no room left for .*array_0\.values: [\d,]+ bytes were to be written, [\d,]+ bytes are "
        r"free; make room and build again, it goes on where it was$"
    )
    with files_up_to(size), pytest.raises(StorageError, match=words) as caught:
        build(tmp_path)
    assert isinstance(caught.value, OSError)
    with files_up_to(size), pytest.raises(StorageError, match=words):
        build(tmp_path)
    assert_goes_on(tmp_path)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
@pytest.mark.parametrize("call", ["pwrite", "write", "fsync", "ftruncate"])
def test_every_way_of_having_no_room_is_told(
    call: str, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When data is written, the journal, or when it is brought to the disk."""
    real, passed = getattr(os, call), iter(range(10**6))
    least = {"pwrite": 20, "write": 8, "fsync": 0, "ftruncate": 1}[call]

    def refuse(*given: Any) -> Any:
        if next(passed) >= least:
            raise OSError(number, os.strerror(number))
        return real(*given)

    monkeypatch.setattr(os, call, refuse)
    with pytest.raises(StorageError, match=r"no room left for .* [\d,]+ bytes are free; make room"):
        build(tmp_path)
    monkeypatch.setattr(os, call, real)
    store = build(tmp_path)
    assert_holds(store, [wide_sample(index) for index in range(SAMPLES)])


def test_what_will_not_fit_is_not_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says how much is needed and how much is free."""
    monkeypatch.setattr(chunks, "free_bytes_at", lambda path: 1_500_000)
    words = (
        r"no room for .*a\.hotset\.partial: about 1,6\d\d,\d\d\d bytes are needed, 1,500,000 bytes "
        "are free; make room, or name a path on another disk$"
    )
    with counted(tmp_path) as reads, pytest.raises(StorageError, match=words):
        build(tmp_path)
    assert set(reads) == {0, 66, 133, 199}
    assert read_lines(tmp_path / "a.hotset.partial" / JOURNAL)[0][1:] == []


def test_what_is_there_needs_no_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the bytes suffice where half of the samples are there."""
    with files_up_to(1_000_000), pytest.raises(StorageError, match="no room left"):
        build(tmp_path)
    monkeypatch.setattr(chunks, "free_bytes_at", lambda path: 1_000_000)
    assert_goes_on(tmp_path)


def test_views_need_room_too(tmp_path: Path) -> None:
    """Room that a file cannot have is told as such, and leaves it as it was."""
    file = ArrayFile(tmp_path / "a", 64, 1 << 18)
    file.append(np.arange(10))
    with files_up_to(1000), pytest.raises(StorageError, match=r"no room left for .*: 5,000 bytes"):
        file.view(5000)
    assert file.view(80).view(np.int64).tolist() == list(range(10))
    file.close()


def test_free_bytes_are_those_of_the_file_system(tmp_path: Path) -> None:
    """Also where the path is not there yet."""
    found = free_bytes_at(tmp_path / "x" / "y")
    free = shutil.disk_usage(tmp_path).free
    assert abs(found - free) < 1 << 30


MOUNTED = """
import re, sys
from pathlib import Path
from hotset.errors import StorageError
from hotset.store import chunk
from tests.test_store_room import assert_goes_on, build
chunk.CHUNK_SAMPLES = 10
folder, rest = Path(sys.argv[1]), Path(sys.argv[1]) / "rest"
rest.write_bytes(bytes(1_000_000))
for words in ("about 1,6", "bytes were to be written, "):
    try:
        build(folder)
    except StorageError as error:
        assert words in str(error), error
        free = int(re.findall("([0-9,]+) bytes are free", str(error))[0].replace(",", ""))
        assert free < 1_200_000, error
    else:
        raise AssertionError("there was room")
    from hotset.building import chunks
    chunks.check_room = lambda writer, needed: None
    import hotset.building.build as module
    module.check_room = chunks.check_room
rest.unlink()
assert_goes_on(folder)
"""


def test_a_file_system_that_is_full(tmp_path: Path) -> None:
    """A small one of its own: both errors name its free bytes, and room that is made is used."""
    mounted = f"mount -t tmpfs -o size=2m tmpfs {re.escape(str(tmp_path))}"
    alone = ["unshare", "--map-root-user", "--mount", "sh", "-c"]
    if shutil.which("unshare") is None or subprocess.run([*alone, mounted], check=False).returncode:
        pytest.skip("no file system can be mounted here; RLIMIT_FSIZE stands for it above")
    run = f'{mounted} && exec {sys.executable} -W error -c "$0" {tmp_path}'
    environment = {**os.environ, "PYTHONPATH": os.getcwd()}
    found = subprocess.run(
        [*alone, run, MOUNTED], env=environment, capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stderr
