"""Building that was stopped, at whatever point and in whatever way, goes on where it was."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
import random
import signal
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch

import hotset
from hotset.errors import FormatError, StaleStoreWarning, StorageError
from hotset.sources import sweep
from hotset.store import blocks, chunk, writer
from hotset.store.journal import JOURNAL, Journal, read_lines
from hotset.store.store import Store
from tests.stores import Made, assert_holds, counted, flip, mixed_sample, picture

SAMPLES, PER_CHUNK = 22, 4
PROBED = {0, 7, 14, 21}
"""Read to see what the dataset is, whatever was written before."""
OPERATIONS = (
    *("open", "pwrite", "write", "ftruncate", "lseek", "fsync", "rename", "replace", "unlink"),
    "mkdir",
)


def changing_sample(index: int) -> Any:
    """Dense at first, then of differing shapes and modes."""
    mode = "L" if index == 17 else "RGB"
    return (
        torch.full((3 if index == 9 else 2, 2), index),
        picture(index, (3, 2), mode),
        "x" * index,
        index,
    )


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few samples per chunk and few bytes per block, so that a small store has many of both."""
    monkeypatch.setattr(chunk, "CHUNK_SAMPLES", PER_CHUNK)
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 128)


def build(folder: Path, make: Callable[[int], Any] = changing_sample, **options: Any) -> Store:
    """Builds, or goes on."""
    options = {"workers": 0, "version": "1", **options}
    return hotset.build(Made(make, SAMPLES), folder / "a.hotset", **options)


def written(folder: Path) -> list[int]:
    """The samples that a journal tells of."""
    ids: list[int] = []
    for line in read_lines(folder / "a.hotset.partial" / JOURNAL)[0][1:]:
        first, length = line.get("run", (0, 0))
        ids += [*range(first, first + length), *line.get("ids", ())]
    return ids


def assert_goes_on(folder: Path) -> None:
    """Fails unless a build gives the whole store, and reads nothing that was written already."""
    done = set(range(SAMPLES)) if (folder / "a.hotset").exists() else set(written(folder))
    with counted(folder) as reads:
        store = build(folder)
    assert_holds(store, [changing_sample(index) for index in range(SAMPLES)])
    expected = {index: int(index not in done) for index in range(SAMPLES) if index not in PROBED}
    assert {index: reads[index] for index in expected} == expected
    leftover = {path.name for path in store.path.iterdir()} - {*store.manifest.files, JOURNAL}
    assert leftover == {"manifest.json"}
    assert {path.name for path in folder.iterdir()} == {"a.hotset", ".a.hotset.lock"}


class Stop(BaseException):
    """Stands for the end of the process."""


@contextmanager
def stopped(monkeypatch: pytest.MonkeyPatch, number: int, how: str) -> Iterator[Callable[[], bool]]:
    """Stops at an operation on files, counted from 0; whether it came to that.

    Args:
        monkeypatch: puts the operations back.
        number: of the operation.
        how: "before", "after" or "within" it, which then is done in part; or by an "error".
    """
    passed = count()
    is_stopped = False

    def wrap(call: Any) -> Any:
        def replaced(*given: Any, **options: Any) -> Any:
            nonlocal is_stopped
            if is_stopped or next(passed) != number:
                return call(*given, **options)
            is_stopped = True
            if how == "error":
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            if how == "within" and call.__name__ in ("pwrite", "write"):
                call(given[0], given[1][: len(given[1]) // 2], *given[2:])
            elif how == "after":
                close(call(*given, **options))
            raise Stop

        return replaced

    with monkeypatch.context() as patch:
        for name in OPERATIONS:
            patch.setattr(os, name, wrap(getattr(os, name)))
        patch.setattr(writer, "open", wrap(open), raising=False)
        yield lambda: is_stopped


def close(result: Any) -> None:
    """Closes what was opened: the end of a process does as much."""
    if hasattr(result, "close"):
        result.close()


def outcome(call: Callable[[], Any]) -> BaseException | None:
    """What a call raised."""
    try:
        call()
    except (Stop, StorageError) as error:
        return error
    return None


@pytest.mark.parametrize("how", ["before", "after", "within", "error"])
@pytest.mark.usefixtures("small_steps")
def test_building_goes_on_from_every_point(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each operation on files is once the last; an error of the system is a plain one."""
    for number in count():
        folder = tmp_path / str(number)
        folder.mkdir()
        with stopped(monkeypatch, number, how) as is_stopped:
            problem = outcome(partial(build, folder))
        if problem is not None:
            assert isinstance(problem, StorageError if how == "error" else Stop)
            assert how != "error" or "Input/output error" in str(problem)
        assert_goes_on(folder)
        if not is_stopped():
            break
    assert number > 60


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.usefixtures("small_steps")
def test_building_goes_on_however_often_it_is_stopped(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also while it goes on from another stop."""
    draw = random.Random(seed)
    while True:
        how = draw.choice(("before", "after", "within"))
        with stopped(monkeypatch, draw.randrange(90), how) as is_stopped:
            outcome(partial(build, tmp_path))
        if not is_stopped():
            break
    assert_goes_on(tmp_path)


def interrupt(folder: Path, after: int = 14) -> Path:
    """A build that is stopped by Ctrl-C after some samples."""

    def told(done: int, total: int | None) -> None:
        if done >= after:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build(folder, progress=told)
    return folder / "a.hotset.partial"


@pytest.mark.usefixtures("small_steps")
def test_torn_lines_of_the_journal_are_done_again(tmp_path: Path) -> None:
    """It may end anywhere, or in bytes of anything."""
    begun = interrupt(tmp_path)
    whole = (begun / JOURNAL).read_bytes()
    starts = [0, *(place + 1 for place, byte in enumerate(whole) if byte == 10)]
    for end in sorted({0, 1, *range(starts[1] - 2, len(whole), 7), *starts, len(whole)}):
        for tail in (b"", b"\x00" * 50, b"00000000 {}\n", b"\xff\n\n"):
            (tmp_path / "b").mkdir()
            os.rename(begun, tmp_path / "b" / "a.hotset.partial")
            (tmp_path / "b" / "a.hotset.partial" / JOURNAL).write_bytes(whole[:end] + tail)
            known = [start for start in starts if start <= end]
            assert len(written(tmp_path / "b")) <= PER_CHUNK * max(0, len(known) - 2)
            if end in (0, starts[1], starts[2], len(whole)):
                assert_goes_on(tmp_path / "b")
                interrupt(tmp_path)
            else:
                os.rename(tmp_path / "b" / "a.hotset.partial", begun)
            for path in sorted((tmp_path / "b").rglob("*"), reverse=True):
                path.rmdir() if path.is_dir() else path.unlink()
            (tmp_path / "b").rmdir()


def files_of(begun: Path) -> list[str]:
    """The data files of a store under construction."""
    return sorted(path.name for path in begun.iterdir() if path.name != JOURNAL)


@pytest.mark.usefixtures("small_steps")
def test_lost_tails_are_done_again(tmp_path: Path) -> None:
    """Where the machine went down, the end of a file may not have come to the disk."""
    names = files_of(interrupt(tmp_path))
    assert len(names) == 6
    build(tmp_path)
    for place, name in enumerate(names):
        for left in (0, 100, 150, 300, -1):
            folder = tmp_path / f"{place}.{left}"
            folder.mkdir()
            path = interrupt(folder) / name
            size = path.stat().st_size
            os.truncate(path, max(0, size - 1) if left < 0 else min(left, size))
            store = build(folder)
            assert_holds(store, [changing_sample(index) for index in range(SAMPLES)])


@pytest.mark.usefixtures("small_steps")
def test_missing_files_are_made_again(tmp_path: Path) -> None:
    """All or some."""
    names = files_of(interrupt(tmp_path))
    for place, lost in enumerate([*([name] for name in names), names]):
        folder = tmp_path / str(place)
        folder.mkdir()
        begun = interrupt(folder)
        for name in lost:
            (begun / name).unlink()
        store = build(folder)
        assert_holds(store, [changing_sample(index) for index in range(SAMPLES)])


@pytest.mark.usefixtures("small_steps")
def test_changed_bytes_are_found_and_done_again(tmp_path: Path) -> None:
    """In every block of every file that was written, not in the last one alone."""
    begun = interrupt(tmp_path)
    sizes = {name: (begun / name).stat().st_size for name in files_of(begun)}
    for name, size in sizes.items():
        for position in sorted({128, *range(128, size, 100), size - 1}):
            folder = tmp_path / f"{name}.{position}"
            folder.mkdir()
            flip(interrupt(folder) / name, position)
            store = build(folder)
            assert_holds(store, [changing_sample(index) for index in range(SAMPLES)])


@pytest.mark.usefixtures("small_steps")
def test_what_follows_the_damage_alone_is_done_again(tmp_path: Path) -> None:
    """The chunks before it stay as they are."""
    begun = interrupt(tmp_path)
    whole = len(written(tmp_path))
    path = next(path for path in begun.iterdir() if path.name.startswith("int"))
    header = path.stat().st_size - 8 * whole
    assert header % 64 == 0
    flip(path, header + 8 * (PER_CHUNK * 2 + 1))
    with counted(tmp_path) as reads:
        build(tmp_path)
    redone = {index for index in range(SAMPLES) if reads[index] and index not in PROBED}
    assert redone == set(range(8, SAMPLES)) - PROBED


def sealed(line: dict[str, Any]) -> bytes:
    """A line of a journal, with its checksum."""
    text = json.dumps(line).encode()
    return b"%08x %s\n" % (zlib.crc32(text), text)


@pytest.mark.parametrize("change", [{"version": 2}, {"leaf": 1}, {"format": "something"}])
def test_a_journal_of_another_kind_is_not_used(change: dict[str, Any], tmp_path: Path) -> None:
    """Such as one of a newer version; it stays as it is, and a plain error says what to do."""
    journal = interrupt(tmp_path, 1) / JOURNAL
    lines = read_lines(journal)[0]
    journal.write_bytes(b"".join(map(sealed, [lines[0] | change, *lines[1:]])))
    before = {path: path.read_bytes() for path in journal.parent.iterdir()}
    with pytest.raises(FormatError, match="partial holds the beginnings of another store; remove"):
        build(tmp_path)
    assert {path: path.read_bytes() for path in journal.parent.iterdir()} == before


@pytest.mark.parametrize(
    "line",
    [
        {},
        {"run": [0, 3]},
        {"run": [0, 3], "files": {"0.values": [1]}},
        {"run": [0, 3], "files": {"9.values": [0, 0, []]}},
        {"run": "ab", "files": {}},
        {"files": {}, "fields": {"77": {}}},
        {"files": {}, "fields": {"0": {"name": "../x"}}},
        {"files": {}, "fields": [1]},
        {"ids": [None], "files": {}},
    ],
)
def test_a_journal_that_makes_no_sense_is_a_plain_error(
    line: dict[str, Any], tmp_path: Path
) -> None:
    """Its checksums fit, but hotset did not write it."""
    journal = interrupt(tmp_path, 1) / JOURNAL
    first = read_lines(journal)[0][0]
    journal.write_bytes(sealed(first) + sealed(line))
    with pytest.raises(FormatError, match=r"partial.* holds a journal that makes no sense"):
        build(tmp_path)


def test_a_journal_of_other_data_is_left_alone(tmp_path: Path) -> None:
    """The other store is built beside it, and a warning says what differs."""
    begun = interrupt(tmp_path, 1)
    before = {path: path.read_bytes() for path in begun.iterdir()}
    with pytest.warns(StaleStoreWarning, match="holds the beginnings of another .*version: was 1"):
        store = build(tmp_path, version="2")
    assert store.path.name != "a.hotset"
    assert {path: path.read_bytes() for path in begun.iterdir()} == before
    assert_goes_on_beside(tmp_path, store)


def assert_goes_on_beside(folder: Path, other: Store) -> None:
    """Fails unless the interrupted store still goes on."""
    store = build(folder)
    assert store.path.name == "a.hotset"
    for one in (store, other):
        assert_holds(one, [changing_sample(index) for index in range(SAMPLES)])


@pytest.mark.usefixtures("small_steps")
def test_going_on_changes_no_byte(tmp_path: Path) -> None:
    """A store that was interrupted has the bytes of one that was not."""
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    for after in (1, 6, 14, 20):
        interrupt(tmp_path / "b", after)
    one, other = build(tmp_path / "a"), build(tmp_path / "b")
    for name in one.manifest.files:
        assert (one.path / name).read_bytes() == (other.path / name).read_bytes()
    assert one.manifest.files == other.manifest.files


def test_a_writer_that_failed_writes_no_more(tmp_path: Path) -> None:
    """Its files may be half written; another one goes on from the chunk before."""
    journal = Journal(tmp_path / "j")
    journal.close()
    journal.close()
    with pytest.raises(StorageError, match="cannot be written: Bad file descriptor"):
        journal.add({})


SLOW = 400


def slow_sample(index: int) -> Any:
    """Takes a while."""
    time.sleep(0.002)
    return mixed_sample(index)


def build_slowly(path: Path) -> None:
    """Builds with workers, in a process of its own."""
    torch.set_num_threads(1)  # those of the parent are not there after a fork
    hotset.build(Made(slow_sample, SLOW), path, version="1", workers=2)


def children_of(process: int) -> list[int]:
    """The processes that one started."""
    listed = Path(f"/proc/{process}/task/{process}/children")
    return [int(child) for child in listed.read_text().split()] if listed.exists() else []


def test_building_goes_on_after_it_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By SIGKILL, at any moment, with workers at work; the lock is free again at once."""
    monkeypatch.setattr(sweep, "WORKERS_PAY_SECONDS", -1.0)
    monkeypatch.setattr(chunk, "CHUNK_SAMPLES", 8)
    draw = random.Random(0)
    path, journal = tmp_path / "a.hotset", tmp_path / "a.hotset.partial" / JOURNAL
    kills = 0
    for _ in range(20):
        size = journal.stat().st_size if journal.exists() else 0
        process = multiprocessing.get_context("fork").Process(target=build_slowly, args=(path,))
        process.start()
        # Some before the first sample, some after a few chunks, some in between.
        more = draw.choice((0, 1, 1, 400, 900))
        while (
            process.is_alive() and (journal.stat().st_size if journal.exists() else 0) < size + more
        ):
            time.sleep(0.001)
        time.sleep(draw.random() * 0.05)
        workers = children_of(process.pid or 0)
        os.kill(process.pid or 0, signal.SIGKILL)
        process.join()
        kills += process.exitcode == -signal.SIGKILL
        for worker in workers:
            with suppress(ProcessLookupError):
                os.kill(worker, signal.SIGKILL)
        process.close()
    store = hotset.build(Made(slow_sample, SLOW), path, version="1", workers=2)
    assert_holds(store, [mixed_sample(index) for index in range(SLOW)])
    assert kills >= 3
