"""`hotset.build`: samples that fail, other processes, and where it builds."""

from __future__ import annotations

import errno
import io
import multiprocessing
import os
import shutil
import signal
import time
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, Subset

import hotset
from hotset.building import finding
from hotset.errors import (
    ConfigError,
    FormatError,
    MissingDataError,
    SampleError,
    SchemaError,
    StaleStoreWarning,
    StorageError,
)
from hotset.sources import sweep
from hotset.store import chunk
from hotset.store.journal import JOURNAL, read_lines
from hotset.store.store import Store
from tests.stores import Given, Made, assert_holds, counted, mixed_sample, picture

SAMPLES = 60
BROKEN = "HOTSET_TEST_BROKEN"
WORKERS = pytest.mark.parametrize("workers", [0, 2])


def broken_sample(index: int) -> Any:
    """A sample that cannot be read while the environment says so."""
    if str(index) in os.environ.get(BROKEN, "").split(","):
        raise OSError(f"block {index} is unreadable")
    return torch.full((2,), index), f"n{index}"


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few samples per chunk, and workers even where they do not pay."""
    monkeypatch.setattr(chunk, "CHUNK_SAMPLES", 8)
    monkeypatch.setattr(sweep, "WORKERS_PAY_SECONDS", -1.0)


def build(folder: Path, **options: Any) -> Store:
    """A store of samples some of which may be broken."""
    options = {"workers": 0, "version": "1", **options}
    return hotset.build(Made(broken_sample, SAMPLES), folder / "a.hotset", **options)


@WORKERS
@pytest.mark.parametrize("broken", [0, 1, 30, SAMPLES - 1])
def test_a_sample_that_fails_is_named_and_building_goes_on(
    broken: int, workers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error tells where it failed; what came before is not read again once it is mended."""
    monkeypatch.setenv(BROKEN, str(broken))
    words = f"(?m)Made failed at index {broken}: OSError: block {broken} is unreadable$"
    with pytest.raises(SampleError, match=words) as caught:
        build(tmp_path, workers=workers)
    if broken not in (0, SAMPLES - 1):  # those are looked at before
        assert "in broken_sample" in caught.value.__notes__[0]
    monkeypatch.delenv(BROKEN)
    journal = tmp_path / "a.hotset.partial" / JOURNAL
    done = sum(line.get("run", [0, 0])[1] for line in read_lines(journal)[0])
    assert done == (broken if 0 < broken < SAMPLES - 1 else 0)
    with counted(tmp_path) as reads:
        store = build(tmp_path, workers=workers)
    assert_holds(store, [broken_sample(index) for index in range(SAMPLES)])
    assert [index for index in range(1, done) if reads[index] and index not in (20, 39)] == []


@WORKERS
@pytest.mark.parametrize("broken", [[0], [1], [SAMPLES - 1], [0, 1, 20, 39, 58, 59], range(7, 19)])
def test_samples_that_fail_are_left_out(
    broken: list[int], workers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others keep their order; the manifest lists what is missing, and why."""
    monkeypatch.setenv(BROKEN, ",".join(map(str, broken)))
    store = build(tmp_path, workers=workers, on_error="skip")
    left = [index for index in range(SAMPLES) if index not in broken]
    words = "Made failed at index {0}: OSError: block {0} is unreadable"
    assert store.manifest.made["skipped"] == [[index, words.format(index)] for index in broken]
    assert store.manifest.made["substituted"] == []
    monkeypatch.delenv(BROKEN)
    assert_holds(store, [broken_sample(index) for index in left])


@WORKERS
@pytest.mark.parametrize("broken", [[0], [1], [SAMPLES - 1], [57, 58, 59, 0], range(7, 19)])
def test_samples_that_fail_are_substituted(
    broken: list[int], workers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the next one that can be read; behind the last comes the first."""
    monkeypatch.setenv(BROKEN, ",".join(map(str, broken)))
    store = build(tmp_path, workers=workers, on_error="substitute")
    stand_ins = list(range(SAMPLES))
    for index in broken:
        while stand_ins[index] in broken:
            stand_ins[index] = (stand_ins[index] + 1) % SAMPLES
    expected = [[index, stand_ins[index]] for index in sorted(broken)]
    assert store.manifest.made["substituted"] == expected
    assert store.manifest.made["skipped"] == []
    monkeypatch.delenv(BROKEN)
    assert_holds(store, [broken_sample(index) for index in stand_ins])


@pytest.mark.parametrize("on_error", ["raise", "skip", "substitute"])
def test_where_no_sample_can_be_read_none_is_stored(
    on_error: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is an error, whatever is to happen to single ones."""
    monkeypatch.setenv(BROKEN, ",".join(map(str, range(SAMPLES))))
    with pytest.raises(SampleError, match="Made failed at index 0: OSError"):
        build(tmp_path, on_error=on_error)


def test_nothing_is_given_up_unasked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that lacks samples, or has others in their place, is not taken for a whole one."""
    monkeypatch.setenv(BROKEN, "7,9")
    for way in ("skip", "substitute"):
        (tmp_path / way).mkdir()
        build(tmp_path / way, on_error=way)
        assert len(build(tmp_path / way, on_error=way)) == SAMPLES - 2 * (way == "skip")
        other = "substitute" if way == "skip" else "skip"
        for asked in ("raise", other):
            words = (
                rf"a.hotset was made with on_error='{way}': of 2 samples that could not be read, "
                rf"the first is 7 \(.*\); remove it to build it anew, or give on_error='{way}'"
            )
            with pytest.raises(SampleError, match=words):
                build(tmp_path / way, on_error=asked)


def stop(done: int, total: int | None) -> None:
    """Ends a build half way."""
    if done >= 30:
        raise KeyboardInterrupt


def test_what_was_left_out_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where an unfinished build goes on that may not leave it out; the order stays."""
    monkeypatch.setenv(BROKEN, "7,9")
    with pytest.raises(KeyboardInterrupt):
        build(tmp_path, on_error="skip", progress=stop)
    with pytest.raises(SampleError, match="Made failed at index 7: OSError"):
        build(tmp_path)
    monkeypatch.delenv(BROKEN)
    store = build(tmp_path)
    assert store.manifest.made["skipped"] == []
    assert store.rows is not None
    assert_holds(store, [broken_sample(index) for index in range(SAMPLES)])


def test_what_was_left_out_stays_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where an unfinished build goes on in the same way; what was substituted likewise."""
    monkeypatch.setenv(BROKEN, "7,9")
    for way in ("skip", "substitute"):
        (tmp_path / way).mkdir()
        with pytest.raises(KeyboardInterrupt):
            build(tmp_path / way, on_error=way, progress=stop)
    with pytest.raises(SampleError, match="partial was made with on_error='substitute': of 2"):
        build(tmp_path / "substitute")
    skipped = build(tmp_path / "skip", on_error="skip")
    substituted = build(tmp_path / "substitute", on_error="substitute")
    monkeypatch.delenv(BROKEN)
    left = [index for index in range(SAMPLES) if index not in (7, 9)]
    assert_holds(skipped, [broken_sample(index) for index in left])
    assert [index for index, _ in skipped.manifest.made["skipped"]] == [7, 9]
    assert substituted.manifest.made["substituted"] == [[7, 8], [9, 10]]


class Files(Given):
    """Samples that are read from files."""

    def __init__(self, paths: list[Path]) -> None:
        self.samples = [(str(path), number) for number, path in enumerate(paths)]

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> Any:
        path, label = self.samples[index]
        return Image.open(io.BytesIO(Path(path).read_bytes())), label


@WORKERS
def test_a_file_that_cannot_be_decoded_is_named(workers: int, tmp_path: Path) -> None:
    """Also where only storing it decodes it; through `Subset` as well."""
    paths = [tmp_path / f"{index}.png" for index in range(30)]
    for index, path in enumerate(paths):
        picture(index, (40, 30)).save(path)
    paths[12].write_bytes(paths[12].read_bytes()[:2000])
    dataset = Subset(Files(paths), range(5, 30))
    with pytest.raises(SampleError, match=r"(?m)failed at index 7: .*truncated.* \(.*/12\.png\)$"):
        hotset.build(dataset, tmp_path / "a.hotset", workers=workers)
    store = hotset.build(dataset, tmp_path / "b.hotset", workers=workers, on_error="skip")
    assert len(store) == 24
    assert str(paths[12]) in store.manifest.made["skipped"][0][1]
    assert_holds(store, [dataset[index] for index in range(25) if index != 7])


@WORKERS
def test_draws_are_found_in_any_sample(workers: int, tmp_path: Path) -> None:
    """And nothing is kept, however often it is tried."""
    dataset = Made(lambda index: torch.rand(2) if index == 30 else torch.zeros(2), SAMPLES)
    for _ in range(12):
        with pytest.raises(ConfigError, match="Made cannot be stored: a random generator moved"):
            hotset.build(dataset, tmp_path / "a.hotset", version="1", workers=workers)
    assert not (tmp_path / "a.hotset").exists()


class Sometimes(Given):
    """Applies its transform to one sample twice."""

    transform = staticmethod(torch.neg)

    def __getitem__(self, index: int) -> Any:
        found = self.transform(self.given[index])
        return self.transform(found) if index == 30 else found


@WORKERS
def test_a_transform_that_is_not_applied_once_is_refused(workers: int, tmp_path: Path) -> None:
    """By an error of hotset's own."""
    dataset = Sometimes([torch.full((2,), index) for index in range(SAMPLES)])
    words = "not applied once to every sample, as at index 30"
    with pytest.raises(ConfigError, match=words) as caught:
        hotset.build(dataset, tmp_path / "a.hotset", version="1", workers=workers)
    assert caught.value.__traceback__ is not None  # which holds on to all that was at work
    assert multiprocessing.active_children() == []


def contents(path: Path) -> dict[str, tuple[bytes, int]]:
    """Every file in a directory, with its bytes and the time of its last change."""
    return {
        str(file.relative_to(path)): (file.read_bytes(), file.stat().st_mtime_ns)
        for file in path.rglob("*")
        if file.is_file()
    }


def test_what_is_there_is_opened(tmp_path: Path) -> None:
    """A second build reads no more than it takes to see what the dataset is."""
    store = build(tmp_path)
    before = contents(store.path)
    with counted(tmp_path) as reads:
        again = build(tmp_path)
    assert again.path == store.path
    assert contents(store.path) == before
    assert set(reads) == {0, 20, 39, 59}


def test_a_store_of_something_else_is_left_alone(tmp_path: Path) -> None:
    """A warning says what differs; the other is built beside it, and found there from then on."""
    old = build(tmp_path)
    before = contents(old.path)
    with pytest.warns(StaleStoreWarning) as caught:
        new = build(tmp_path, version="2")
    assert str(caught[0].message) == (
        f"{old.path} was made from other data (version: was 1, is 2); it stays as it is, and "
        f"{new.path.name} beside it is built"
    )
    assert caught[0].filename == __file__
    assert new.path.parent == tmp_path
    assert new.path.name.startswith("a-")
    assert new.path.suffix == ".hotset"
    beside = contents(new.path)
    with pytest.warns(StaleStoreWarning, match=f"{new.path.name} beside it is used$"):
        assert build(tmp_path, version="2").path == new.path
    assert build(tmp_path).path == old.path
    assert contents(old.path) == before
    assert contents(new.path) == beside
    assert_holds(new, [broken_sample(index) for index in range(SAMPLES)])
    shutil.rmtree(old.path)
    with counted(tmp_path) as reads:  # it stays where it is, though the other is gone
        assert build(tmp_path, version="2").path == new.path
    assert len(reads) == 4


def test_another_transform_makes_another_store(tmp_path: Path) -> None:
    """So does another parameter of it; each has its own place."""
    data = torch.arange(40.0).reshape(20, 2)
    stores = [hotset.build(data, tmp_path / "a.hotset", transform=torch.neg)]
    for call in (torch.abs, torch.exp):
        with pytest.warns(StaleStoreWarning, match="step 1"):
            stores.append(hotset.build(data, tmp_path / "a.hotset", transform=call))
    assert len({store.path for store in stores}) == 3
    for store, call in zip(stores, (torch.neg, torch.abs, torch.exp), strict=True):
        assert_holds(store, list(call(data)))


def test_other_data_makes_another_store(tmp_path: Path) -> None:
    """One value is enough."""
    data = torch.arange(40.0).reshape(20, 2)
    hotset.build(data, tmp_path / "a.hotset")
    other = data.clone()
    other[11, 1] = 0
    with pytest.warns(StaleStoreWarning, match="source"):
        store = hotset.build(other, tmp_path / "a.hotset")
    assert_holds(store, list(other))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"{}", "is not that of a hotset store"),
        (b"", "is no JSON"),
        (b'{"format": "hotset store", "version": 99}', "format version 99, this hotset reads up"),
    ],
)
def test_a_damaged_manifest_stops_building(content: bytes, words: str, tmp_path: Path) -> None:
    """Nothing is written over what may still be of use."""
    (tmp_path / "a.hotset").mkdir()
    (tmp_path / "a.hotset" / "manifest.json").write_bytes(content)
    before = contents(tmp_path)
    with pytest.raises(FormatError, match=words):
        build(tmp_path)
    assert contents(tmp_path) == before


def test_what_stands_in_the_way_stays(tmp_path: Path) -> None:
    """A file, another directory, a link: named, and not touched."""
    path = tmp_path / "a.hotset"
    for name in ("empty", "full"):
        (tmp_path / name).mkdir()
    (tmp_path / "full" / "x").write_text("x")
    for make in (
        lambda: path.write_text("x"),
        lambda: shutil.copytree(tmp_path / "full", path),
        lambda: path.symlink_to(tmp_path / "nowhere"),
        lambda: path.symlink_to(tmp_path / "empty"),
    ):
        make()
        before = contents(tmp_path)
        with pytest.raises(
            StorageError, match=r"a\.hotset is there already, and is no store; name"
        ):
            build(tmp_path)
        assert contents(tmp_path) == before
        path.unlink() if path.is_symlink() or path.is_file() else shutil.rmtree(path)


@pytest.mark.parametrize("is_meanwhile", [False, True])
def test_an_empty_directory_becomes_the_store(is_meanwhile: bool, tmp_path: Path) -> None:
    """Whether it was there before, or is made while the store is built."""
    path = tmp_path / "a.hotset"
    if not is_meanwhile:
        path.mkdir()
    store = build(tmp_path, progress=lambda done, total: path.mkdir(exist_ok=True))
    assert store.path == path
    assert_holds(store, [broken_sample(index) for index in range(SAMPLES)])
    assert [entry.name for entry in tmp_path.glob("[!.]*")] == ["a.hotset"]


def test_the_working_directory_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Empty or not: whoever is in it would be left behind in one without a name."""
    path = tmp_path / "a.hotset"
    path.mkdir()
    monkeypatch.chdir(path)
    with pytest.raises(StorageError, match=r"a\.hotset is there already, and is no store; name"):
        hotset.build(Made(broken_sample, SAMPLES), ".", version="1")
    assert list(path.iterdir()) == []


def test_what_stands_in_the_way_of_building_stays(tmp_path: Path) -> None:
    """Where the directory to build in is something else, the store is built beside it."""
    for number in range(2):
        (tmp_path / str(number)).mkdir()
        partial = tmp_path / str(number) / "a.hotset.partial"
        if number:
            partial.mkdir()
            (partial / "notes").write_text("x")
        else:
            partial.write_text("x")
        before = contents(partial.parent)
        with pytest.warns(
            StaleStoreWarning, match=r"partial (is no directory|holds something else)"
        ):
            store = build(tmp_path / str(number))
        assert store.path.name.startswith("a-")
        assert {name: contents(partial.parent)[name] for name in before} == before


def test_directories_on_the_way_are_made(tmp_path: Path) -> None:
    """As many as it takes."""
    store = build(tmp_path / "x" / "y" / "z")
    assert_holds(store, [broken_sample(index) for index in range(SAMPLES)])


def test_places_that_cannot_be_are_plain_errors(tmp_path: Path) -> None:
    """Such as a path below a file."""
    (tmp_path / "file").write_text("x")
    for path in (tmp_path / "file", tmp_path / "file" / "deep"):
        with pytest.raises(StorageError, match=r"a\.hotset cannot be built: (Not a|File ex)"):
            build(path)
        with pytest.raises(MissingDataError, match=r"there is no store at .*a\.hotset$"):
            hotset.open(path / "a.hotset")
    with pytest.raises(StorageError, match=r"cannot be built: File name too long"):
        hotset.build(torch.zeros(3), tmp_path / ("x" * 300))


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES, errno.EPERM])
def test_places_that_may_not_be_written_to(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Are plain errors; a store that is there is opened all the same, as one that is mounted."""
    build(tmp_path)

    def refuse(path: Any, flags: int, *rest: Any, **options: Any) -> int:
        if flags & (os.O_CREAT | os.O_WRONLY | os.O_RDWR) and str(tmp_path) in str(path):
            raise OSError(number, os.strerror(number), str(path))
        return real(path, flags, *rest, **options)

    real = os.open
    monkeypatch.setattr(os, "open", refuse)
    assert_holds(build(tmp_path), [broken_sample(index) for index in range(SAMPLES)])
    with pytest.raises(StorageError, match=rf"b\.hotset cannot be built: {os.strerror(number)}"):
        hotset.build(torch.zeros(3), tmp_path / "b.hotset")


def test_a_store_that_is_missing_or_half_is_told_apart(tmp_path: Path) -> None:
    """Who opens what was not finished is told to go on."""
    with pytest.raises(MissingDataError, match=r"there is no store at .*a\.hotset$"):
        hotset.open(tmp_path / "a.hotset")
    with pytest.raises(KeyboardInterrupt):
        build(tmp_path, progress=stop)
    with pytest.raises(MissingDataError, match="its building was not finished: run it again"):
        hotset.open(tmp_path / "a.hotset")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"on_error": "ignore"}, "`on_error` must be one of raise, skip, substitute, got 'ignore'"),
        ({"source": "name"}, "`source` must be 'stat' or 'content', got 'name'"),
        ({"workers": -1}, "`workers` must be a whole number, 0 or more, got -1"),
        ({"workers": True}, "`workers` must be a whole number, 0 or more, got True"),
        ({"workers": 1.5}, "`workers` must be a whole number, 0 or more, got 1.5"),
        ({"version": ""}, "`version` must be a text"),
    ],
)
def test_arguments_that_cannot_be_used(options: dict[str, Any], words: str, tmp_path: Path) -> None:
    """Before anything is written."""
    with pytest.raises(ConfigError, match=words):
        build(tmp_path, **options)
    assert list(tmp_path.iterdir()) == []


def test_the_dataset_of_a_loader_is_stored(tmp_path: Path) -> None:
    """In the dataset's order, whatever the loader's."""
    loader = DataLoader(Made(mixed_sample, 20), batch_size=4, shuffle=True)
    store = hotset.build(loader, tmp_path / "a.hotset", version="1")
    assert_holds(store, [mixed_sample(index) for index in range(20)])


def test_generators_stay_as_they_were(tmp_path: Path) -> None:
    """Building draws nothing that training would have drawn."""
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    build(tmp_path, workers=2)
    assert torch.equal(torch.rand(2), expected)


def test_an_error_in_the_structure_is_no_sample_to_give_up(tmp_path: Path) -> None:
    """Leaving it out would hide that the samples do not fit together."""
    dataset = Made(lambda index: (1, 2) if index == 30 else (1,), SAMPLES)
    for way in ("skip", "substitute"):
        with pytest.raises(SchemaError, match="index 30 has the leaves"):
            hotset.build(dataset, tmp_path / way, version="1", workers=0, on_error=way)


def slow_sample(index: int) -> Any:
    """Takes a while."""
    time.sleep(0.005)
    return torch.full((2,), index)


def stuck_sample(index: int) -> Any:
    """Never comes, from some sample on, in another process than that of the tests."""
    while index == 40 and multiprocessing.parent_process() is not None:
        time.sleep(0.01)
    return torch.full((2,), index)


def in_a_process(make: Any, path: Path, workers: int) -> Any:
    """A process that builds; it holds the lock and has written something."""

    def run() -> None:
        torch.set_num_threads(1)
        hotset.build(Made(make, SAMPLES), path, version="1", workers=workers)

    process = multiprocessing.get_context("fork").Process(target=run)
    process.start()
    journal = path.with_name(f"{path.name}.partial") / JOURNAL
    while len(read_lines(journal)[0]) < 3:
        assert process.is_alive()
        time.sleep(0.005)
    return process


def test_of_two_processes_one_builds(tmp_path: Path) -> None:
    """The other says that it waits, and opens what the first made."""
    path = tmp_path / "a.hotset"
    with counted(tmp_path) as reads:
        process = in_a_process(slow_sample, path, 0)
        with pytest.warns(UserWarning, match=r"another process builds .*a\.hotset; waiting for it"):
            store = hotset.build(Made(slow_sample, SAMPLES), path, version="1", workers=0)
        process.join()
    assert process.exitcode == 0
    assert_holds(store, [slow_sample(index) for index in range(SAMPLES)])
    once = {index for index in range(SAMPLES) if index not in (0, 20, 39, 59)}
    assert {index: reads[index] for index in once} == dict.fromkeys(once, 1)


def test_the_lock_of_a_process_that_was_killed_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At once, though its workers may be at work for a while; the other goes on from there."""
    path = tmp_path / "a.hotset"
    process = in_a_process(stuck_sample, path, 2)
    listed = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
    workers = [int(worker) for worker in listed.split()]
    told: list[str] = []

    def kill(words: str, *_: Any, **__: Any) -> None:
        told.append(words)
        process.kill()
        process.join()

    monkeypatch.setattr(finding.warnings, "warn", kill)
    with counted(tmp_path) as reads:
        store = hotset.build(Made(stuck_sample, SAMPLES), path, version="1", workers=0)
    for worker in workers:
        os.kill(worker, signal.SIGKILL)  # it is still there
    assert told == [f"another process builds {path}; waiting for it"]
    assert process.exitcode == -signal.SIGKILL
    assert reads[1] == 0
    assert reads[45] == 1
    assert_holds(store, [stuck_sample(index) for index in range(SAMPLES)])


def test_who_need_not_wait_does_not(tmp_path: Path) -> None:
    """A store that is there is opened while another process builds in the same place."""
    path = tmp_path / "a.hotset"
    with warnings.catch_warnings():
        hotset.build(Made(stuck_sample, SAMPLES), path, version="1", workers=0)
    beside = tmp_path / ".a.hotset.lock"
    lock = finding.take_lock(path, is_waiting=False)
    assert lock is not None
    assert beside.exists()
    store = hotset.build(Made(stuck_sample, SAMPLES), path, version="1", workers=0)
    assert len(store) == SAMPLES
    lock.release()
