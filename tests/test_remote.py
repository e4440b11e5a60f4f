"""Stores at a URL: local copies, their budget, what goes wrong; over an S3 server and memory."""

from __future__ import annotations

import io
import itertools
import json
import os
import pathlib
import pickle
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

import hotset
from hotset import cli
from hotset.errors import (
    ConfigError,
    FormatError,
    MissingDataError,
    MissingExtraError,
    StaleStoreWarning,
    StorageError,
)
from hotset.store import objects, transfer
from hotset.store.layout import loads
from hotset.store.transfer import UPLOADING
from tests.buckets import Bucket, bucket, cache, object_server
from tests.object_server import ObjectServer

__all__ = ["bucket", "cache", "object_server"]

BLOCK = 1 << 18
SIDE = 128
"""A sample has 3 x 128 x 128 bytes, so that sixteen have three blocks."""
SAMPLES = 16


class Squares(Dataset[Any]):
    """Images, numbers and words; counts how often it is read."""

    def __init__(self, first: int = 0) -> None:
        self.first = first
        self.read = [0]

    def __getstate__(self) -> dict[str, Any]:
        return {"first": self.first, "read": [0]}

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> Any:
        self.read[0] += 1
        value = self.first + index
        generator = torch.Generator().manual_seed(value)
        image = torch.randint(256, (3, SIDE, SIDE), dtype=torch.uint8, generator=generator)
        return image, value, "x" * value


@pytest.fixture
def memory() -> Iterator[str]:
    """The URL of an empty folder in memory."""
    fs: Any = fsspec.filesystem("memory")
    fs.store.clear()
    fs.pseudo_dirs[:] = [""]
    yield "memory://folder"
    fs.store.clear()
    fs.pseudo_dirs[:] = [""]


def assert_same(store: Any, first: int = 0) -> None:
    """Whether a store has the samples of `Squares`."""
    assert len(store) == SAMPLES
    for index in range(SAMPLES):
        image, value, word = Squares(first)[index]
        found = store[index]
        assert torch.equal(found[0], image)
        assert found[1:] == (value, word)


def copies_in(folder: Path) -> list[str]:
    """The whole copies in a folder, without their digests."""
    return sorted(p.name[:-28] for p in folder.glob("*.hotset") if (p / "manifest.json").is_file())


def size_of(url: str) -> int:
    """Bytes of all files of a store in memory."""
    return sum(fsspec.filesystem("memory").du(url, total=False).values())


def exactly(words: str) -> str:
    """A pattern that an error's whole text must match."""
    return f"^{re.escape(words)}$"


def stopped(words: str) -> str:
    """A program that opens a store, and waits until its standard input is closed."""
    return f"import hotset, sys\nstore = {words}\nprint(len(store), flush=True)\nsys.stdin.read()"


def test_store_goes_to_s3_and_comes_back(bucket: Bucket, cache: Path, tmp_path: Path) -> None:
    """Every bit, by another machine's empty folder; on the server lie the store's files alone."""
    built = hotset.build(Squares(), bucket.url("a.hotset"), storage_options=bucket.options)
    assert_same(built)
    assert bucket.names("a.hotset") == sorted(["manifest.json", *built.manifest.files])
    opened = hotset.open(
        bucket.url("a.hotset"), local=tmp_path / "other", storage_options=bucket.options
    )
    assert_same(opened)
    assert repr(opened).startswith(f"Store('{bucket.url('a.hotset')}', 16 samples, ")
    assert copies_in(cache) == copies_in(tmp_path / "other") == ["a"]


def test_manifest_is_written_last(bucket: Bucket, cache: Path) -> None:
    """So that nobody sees half a store."""
    store = hotset.build(Squares(), bucket.url("a.hotset"), storage_options=bucket.options)
    written = [name.removeprefix("a.hotset/") for name, _ in bucket.asked("PUT")]
    assert written == [UPLOADING, UPLOADING, *store.manifest.files, "manifest.json"]


def test_copy_is_used_again(
    bucket: Bucket, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first opening reads each part once, the second the manifest alone."""
    monkeypatch.setattr(transfer, "PART_BYTES", BLOCK)
    built = hotset.build(Squares(), bucket.url("a.hotset"), storage_options=bucket.options)
    image = built.manifest.files["tensor_0.npy"]
    starts = [0, *(image.header_bytes + n * BLOCK for n in (1, 2)), image.nbytes]
    bucket.asked("GET")
    for expected in (
        [
            ("a.hotset/int_1.npy", f"bytes=0-{built.manifest.files['int_1.npy'].nbytes - 1}"),
            ("a.hotset/manifest.json", ""),
            *(
                ("a.hotset/tensor_0.npy", f"bytes={start}-{stop - 1}")
                for start, stop in itertools.pairwise(starts)
            ),
        ],
        [("a.hotset/manifest.json", "")],
    ):
        store = hotset.open(
            bucket.url("a.hotset"), local=tmp_path / "other", storage_options=bucket.options
        )
        asked = [entry for entry in bucket.asked("GET") if "str_2" not in entry[0]]
        assert sorted(asked) == expected
        assert_same(store)


def test_changed_store_is_copied_anew(memory: str, cache: Path, tmp_path: Path) -> None:
    """The copy of what was there before stays while it is open, and may go afterwards."""
    url, local = f"{memory}/a.hotset", tmp_path / "local"
    hotset.build(Squares(), url)
    old = hotset.open(url, local=local)
    fsspec.filesystem("memory").rm(url, recursive=True)
    hotset.build(Squares(100), url)
    new = hotset.open(url, local=local)
    assert_same(old)
    assert_same(new, 100)
    assert copies_in(local) == ["a", "a"]
    del old
    hotset.open(url, local=local, budget=size_of(url))
    assert copies_in(local) == ["a"]
    assert_same(new, 100)


def test_least_recently_opened_copies_go_first(memory: str, cache: Path, tmp_path: Path) -> None:
    """By the byte: room for two, three are opened, and then one byte less."""
    local, urls = tmp_path / "local", [f"{memory}/{name}.hotset" for name in "abc"]
    for number, url in enumerate(urls):
        hotset.build(Squares(number), url)
    a, b, c = map(size_of, urls)
    hotset.open(urls[0], local=local, budget=a + b)
    hotset.open(urls[1], local=local, budget=a + b)
    hotset.open(urls[0], local=local, budget=a + b)
    assert copies_in(local) == ["a", "b"]
    hotset.open(urls[2], local=local, budget=a + c)
    assert copies_in(local) == ["a", "c"]
    hotset.open(urls[1], local=local, budget=a + b + c)
    assert copies_in(local) == ["a", "b", "c"]
    hotset.open(urls[1], local=local, budget=a + b + c - 1)
    assert copies_in(local) == ["b", "c"]


def test_open_copies_stay(memory: str, cache: Path, tmp_path: Path) -> None:
    """Where they leave no room, that is an error, which names the bytes; nothing else went."""
    local, urls = tmp_path / "local", [f"{memory}/{name}.hotset" for name in "ab"]
    for number, url in enumerate(urls):
        hotset.build(Squares(number), url)
    a, b = map(size_of, urls)
    held = hotset.open(urls[0], local=local)
    words = (
        f"{urls[1]} takes {b:,} bytes, but of the budget of {b:,} bytes for local copies in "
        f"{local}, stores that are open take {a:,} bytes; close some, or give it a larger `budget`"
    )
    with pytest.raises(StorageError, match=exactly(words)):
        hotset.open(urls[1], local=local, budget=b)
    assert_same(held)
    del held
    assert_same(hotset.open(urls[1], local=local, budget=b), 1)
    assert copies_in(local) == ["b"]


def test_copies_open_in_another_process_stay(memory: str, cache: Path, tmp_path: Path) -> None:
    """Until that process ends, in whatever way."""
    fs: Any = fsspec.filesystem("memory")
    local = tmp_path / "local"
    for number, name in enumerate("ab"):
        hotset.build(Squares(number), f"{memory}/{name}.hotset")
        fs.get(f"/folder/{name}.hotset", str(tmp_path / f"{name}.hotset"), recursive=True)
    urls = [f"simplecache::file://{tmp_path / name}.hotset" for name in "ab"]
    b = size_of(f"{memory}/b.hotset")
    words = stopped(f"hotset.open({urls[0]!r}, local={str(local)!r})")
    with subprocess.Popen(
        [sys.executable, "-c", words], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"16\n"
        with pytest.raises(StorageError, match=r"stores that are open take [\d,]+ bytes"):
            hotset.open(urls[1], local=local, budget=b)
        process.kill()
    assert_same(hotset.open(urls[1], local=local, budget=b), 1)
    assert copies_in(local) == ["b"]


def test_store_larger_than_the_budget_is_refused(memory: str, cache: Path, tmp_path: Path) -> None:
    """Before anything is fetched or removed; both numbers are named."""
    url, local = f"{memory}/a.hotset", tmp_path / "local"
    hotset.build(Squares(), url)
    size = size_of(url)
    words = (
        f"{url} takes {size:,} bytes, but the budget of local copies in {local} is {size - 1:,} "
        "bytes; give it a larger `budget`"
    )
    with pytest.raises(StorageError, match=exactly(words)):
        hotset.open(url, local=local, budget=size - 1)
    assert [p.name for p in local.iterdir() if p.is_dir()] == []
    assert_same(hotset.open(url, local=local, budget=size))


def test_default_budget_is_half_of_the_disk(
    memory: str, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of what is free, the copies themselves counting as free; a share may be given."""
    from hotset.store import copies

    url, local = f"{memory}/a.hotset", tmp_path / "local"
    hotset.build(Squares(), url)
    size = size_of(url)
    monkeypatch.setattr(copies, "free_bytes_at", lambda path: 2 * size - 2)
    with pytest.raises(StorageError, match=f"is {size - 1:,} bytes; give it a larger"):
        hotset.open(url, local=local)
    with pytest.raises(StorageError, match=f"is {(2 * size - 2) // 4:,} bytes; give it a larger"):
        hotset.open(url, local=local, budget="25%")
    monkeypatch.setattr(copies, "free_bytes_at", lambda path: 2 * size)
    assert_same(hotset.open(url, local=local))


def test_full_disk_is_told_before_anything_is_fetched(
    memory: str, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A budget in bytes may be more than the disk has."""
    from hotset.store import copies

    url = f"{memory}/a.hotset"
    hotset.build(Squares(), url)
    size = size_of(url)
    monkeypatch.setattr(copies, "free_bytes_at", lambda path: size - 1)
    with pytest.raises(StorageError, match=f"{size:,} bytes are needed, {size - 1:,} bytes are"):
        hotset.open(url, local=tmp_path / "local", budget="1TB")


def test_server_that_ends_in_the_middle_leaves_no_store(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What came is kept: another time, from a server that is there, only the rest is fetched."""
    monkeypatch.setattr(transfer, "PART_BYTES", BLOCK)
    monkeypatch.setattr(transfer, "THREADS", 1)
    local, files = tmp_path / "local", tmp_path / "a.hotset"
    built = hotset.build(Squares(), files)
    first, second = ObjectServer(), ObjectServer()
    try:
        buckets = [Bucket(first), Bucket(second)]
        buckets[1].fs.mkdir(buckets[0].name)
        for other in buckets:
            other.name = buckets[0].name
            other.fs.put(str(files), f"{other.name}/a.hotset", recursive=True)
        url = buckets[0].url("a.hotset")
        first.end_after(2)
        with pytest.raises(StorageError, match=rf"{url}/tensor_0.npy cannot be read: "):
            hotset.open(url, local=local, storage_options=buckets[0].options)
        assert not list(local.glob("*.hotset"))
        buckets[1].asked("GET")
        assert_same(hotset.open(url, local=local, storage_options=buckets[1].options))
        image = built.manifest.files["tensor_0.npy"]
        asked = [part for name, part in buckets[1].asked("GET") if "tensor_0" in name]
        header = image.header_bytes
        assert asked == [
            f"bytes=0-{header - 1}",
            f"bytes={header + 2 * BLOCK}-{image.nbytes - 1}",
        ]
    finally:
        first.close()
        second.close()


def test_truncated_object_is_refused(bucket: Bucket, cache: Path, tmp_path: Path) -> None:
    """By its size, before anything is fetched."""
    url, local = bucket.url("a.hotset"), tmp_path / "local"
    store = hotset.build(Squares(), url, storage_options=bucket.options)
    whole = (store.path / "tensor_0.npy").read_bytes()
    bucket.put("a.hotset/tensor_0.npy", whole[:-1])
    words = (
        f"{url}/tensor_0.npy has {len(whole) - 1:,} bytes, the manifest says {len(whole):,} bytes: "
        "the store was cut off or changed"
    )
    with pytest.raises(FormatError, match=exactly(words)):
        hotset.open(url, local=local, storage_options=bucket.options)
    bucket.fs.rm(f"{bucket.name}/a.hotset/tensor_0.npy")
    with pytest.raises(FormatError, match=r"tensor_0.npy is missing, the manifest says"):
        hotset.open(url, local=local, storage_options=bucket.options)
    assert not list(local.glob("*.hotset"))


@pytest.mark.parametrize("verify", ["touch", "open"])
def test_damaged_block_is_named(
    verify: Any, bucket: Bucket, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With file and samples; it is fetched twice, and once put right, it alone comes again."""
    monkeypatch.setattr(transfer, "PART_BYTES", BLOCK)
    url, local = bucket.url("a.hotset"), tmp_path / "local"
    store = hotset.build(Squares(), url, storage_options=bucket.options)
    whole = (store.path / "tensor_0.npy").read_bytes()
    image = store.manifest.files["tensor_0.npy"]
    place = image.header_bytes + BLOCK + 5
    part = f"bytes={image.header_bytes + BLOCK}-{image.header_bytes + 2 * BLOCK - 1}"
    bucket.put(
        "a.hotset/tensor_0.npy",
        whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :],
    )
    bucket.asked("GET")
    words = (
        f"{url} is damaged: blocks do not have the checksums that they were written with "
        "(tensor_0.npy, block 1: samples 5 to 10)"
    )
    with pytest.raises(FormatError, match=exactly(words)):
        hotset.open(url, local=local, verify=verify, storage_options=bucket.options)
    assert bucket.asked("GET").count(("a.hotset/tensor_0.npy", part)) == 2
    assert not list(local.glob("*.hotset"))
    bucket.put("a.hotset/tensor_0.npy", whole)
    assert_same(hotset.open(url, local=local, verify=verify, storage_options=bucket.options))
    asked = [entry for entry in bucket.asked("GET") if "tensor_0" in entry[0]]
    assert sorted(asked) == [
        ("a.hotset/tensor_0.npy", f"bytes=0-{image.header_bytes - 1}"),
        ("a.hotset/tensor_0.npy", part),
    ]


def test_checksums_are_left_alone_if_wished(memory: str, cache: Path, tmp_path: Path) -> None:
    """With `verify="never"`; another opening that minds fetches the store anew, and is refused."""
    url, local = f"{memory}/a.hotset", tmp_path / "local"
    hotset.build(Squares(), url)
    fs: Any = fsspec.filesystem("memory")
    whole = fs.cat_file(f"{url}/tensor_0.npy")
    fs.pipe_file(f"{url}/tensor_0.npy", whole[:-1] + bytes([whole[-1] ^ 1]))
    loose = hotset.open(url, local=local, verify="never")
    assert not torch.equal(loose[15][0], Squares()[15][0])
    del loose
    with pytest.raises(FormatError, match=r"tensor_0.npy, block 2: samples 10 to 15"):
        hotset.open(url, local=local, verify="open")


def test_damaged_header_or_manifest_is_refused(memory: str, cache: Path, tmp_path: Path) -> None:
    """By the remote file's name."""
    url, local = f"{memory}/a.hotset", tmp_path / "local"
    hotset.build(Squares(), url)
    fs: Any = fsspec.filesystem("memory")
    whole = fs.cat_file(f"{url}/int_1.npy")
    fs.pipe_file(f"{url}/int_1.npy", whole.replace(b"<i8", b"<u8"))
    with pytest.raises(FormatError, match=f"{url}/int_1.npy does not begin as an array of"):
        hotset.open(url, local=local)
    fs.pipe_file(f"{url}/int_1.npy", whole)
    assert_same(hotset.open(url, local=local))
    text = fs.cat_file(f"{url}/manifest.json")
    fs.pipe_file(f"{url}/manifest.json", text.replace(b'"samples": 16', b'"samples": 17'))
    with pytest.raises(FormatError, match=f"{url}/manifest.json: the manifest was damaged or"):
        hotset.open(url, local=local)


def test_damaged_copy_is_fetched_anew(memory: str, cache: Path, tmp_path: Path) -> None:
    """Where it was cut off, and where a block was changed and all are looked at."""
    url, local = f"{memory}/a.hotset", tmp_path / "local"
    hotset.build(Squares(), url)
    path = hotset.open(url, local=local).path / "tensor_0.npy"
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    assert_same(hotset.open(url, local=local))
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    assert_same(hotset.open(url, local=local, verify="open"))
    assert path.read_bytes() == whole


def test_two_processes_fetch_once(bucket: Bucket, cache: Path, tmp_path: Path) -> None:
    """The second waits for the first, and uses what it fetched."""
    url, local = bucket.url("a.hotset"), str(tmp_path / "local")
    hotset.build(Squares(), url, storage_options=bucket.options)
    bucket.asked("GET")
    words = stopped(f"hotset.open({url!r}, local={local!r}, storage_options={bucket.options!r})")
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", words], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        for _ in range(3)
    ]
    try:
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == b"16\n"
    finally:
        for process in processes:
            process.communicate()
    asked = [name for name, _ in bucket.asked("GET")]
    assert asked.count("a.hotset/manifest.json") == 3
    assert asked.count("a.hotset/tensor_0.npy") == 1
    assert len(asked) == 3 + 4


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_workers_read_the_copy(start: str, bucket: Bucket, cache: Path) -> None:
    """Without a request; forked or spawned, each holds the copy itself."""
    store = hotset.build(Squares(), bucket.url("a.hotset"), storage_options=bucket.options)
    bucket.asked("GET")
    loader = DataLoader(store, batch_size=4, num_workers=2, multiprocessing_context=start)
    values = [value for _, values, _ in loader for value in values.tolist()]
    assert values == list(range(SAMPLES))
    assert bucket.asked("GET") == []


def test_store_is_pickled_without_its_data(memory: str, cache: Path) -> None:
    """And opened again by its copy; where that is gone, from the URL, if it is the same still."""
    url = f"{memory}/a.hotset"
    content = pickle.dumps(hotset.build(Squares(), url))
    assert len(content) < 1000
    again = pickle.loads(content)
    assert_same(again)
    del again
    for path in cache.glob("*.hotset"):
        os.rename(path, cache / "away")
    assert_same(pickle.loads(content))
    for path in cache.glob("*.hotset"):
        os.rename(path, cache / "away-too")
    fsspec.filesystem("memory").rm(url, recursive=True)
    hotset.build(Squares(5), url)
    with pytest.raises(StorageError, match=f"{url} is no longer the store that it was when it"):
        pickle.loads(content)


def test_store_of_the_same_data_is_used_again(bucket: Bucket, cache: Path) -> None:
    """Nothing is written, and the data is not read."""
    url = bucket.url("a.hotset")
    hotset.build(Squares(), url, storage_options=bucket.options)
    bucket.asked("PUT")
    data = Squares()
    assert_same(hotset.build(data, url, storage_options=bucket.options))
    assert data.read[0] < SAMPLES
    assert bucket.asked("PUT") == []


def test_store_of_other_data_stays_untouched(bucket: Bucket, cache: Path) -> None:
    """A warning says what differs, and the other is built beside it; and found there again."""
    url = bucket.url("a.hotset")
    hotset.build(Squares(), url, storage_options=bucket.options)
    before = {
        name: bucket.fs.info(f"{bucket.name}/a.hotset/{name}")["ETag"]
        for name in bucket.names("a.hotset")
    }
    beginning = rf"^{url} was made from other data \(the code or state of source"
    for what in ("built", "used"):
        with pytest.warns(StaleStoreWarning, match=beginning) as warned:
            store = hotset.build(Squares(7), url, storage_options=bucket.options)
        name = f"a-{store.manifest.fingerprint['digest'][:12]}.hotset"
        ending = f"; it stays as it is, and {name} beside it is {what}"
        assert [str(warning.message).endswith(ending) for warning in warned] == [True]
        assert_same(store, 7)
        assert repr(store).startswith(f"Store('{bucket.url(name)}', ")
    after = {
        name: bucket.fs.info(f"{bucket.name}/a.hotset/{name}")["ETag"]
        for name in bucket.names("a.hotset")
    }
    assert after == before


def test_upload_that_was_stopped_goes_on(
    bucket: Bucket, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No store is seen meanwhile; the data is not read again, and what was there not sent again."""
    url = bucket.url("a.hotset")
    uploads = []

    def once(self: Any, name: str, source: str) -> None:
        if uploads:
            raise StorageError("the line was cut")
        uploads.append(name)
        original(self, name, source)

    original = objects.Objects.upload
    with monkeypatch.context() as patch:
        patch.setattr(objects.Objects, "upload", once)
        with pytest.raises(StorageError, match="the line was cut"):
            hotset.build(Squares(), url, storage_options=bucket.options)
    assert bucket.names("a.hotset") == ["tensor_0.npy", UPLOADING]
    with pytest.raises(MissingDataError, match=f"there is no store at {url}"):
        hotset.open(url, storage_options=bucket.options)
    bucket.asked("PUT")
    data = Squares()
    assert_same(hotset.build(data, url, storage_options=bucket.options))
    assert data.read[0] < SAMPLES
    assert [name for name, _ in bucket.asked("PUT")] == [
        f"a.hotset/{name}"
        for name in ("int_1.npy", "str_2.data.npy", "str_2.index.npy", "manifest.json")
    ]
    assert UPLOADING not in bucket.names("a.hotset")


def test_building_that_was_stopped_goes_on(memory: str, cache: Path) -> None:
    """What was read before is not read again."""
    url = f"{memory}/a.hotset"
    data = Fails()
    with pytest.raises(hotset.errors.SampleError, match="index 9"):
        hotset.build(data, url, workers=0, version="1")
    data.is_broken = False
    fs: Any = fsspec.filesystem("memory")
    assert [name.rpartition("/")[2] for name in fs.find("/folder/a.hotset")] == [UPLOADING]
    store = hotset.build(data, url, workers=0, version="1")
    assert [store[n] for n in range(12)] == list(range(12))


class Fails(Dataset[int]):
    """Numbers; one of them cannot be read."""

    is_broken = True

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> int:
        if index == 9 and self.is_broken:
            raise ValueError("broken")
        return index

    def __reduce__(self) -> Any:
        raise TypeError("not to be keyed")


def test_what_is_no_store_is_not_written_over(memory: str, cache: Path) -> None:
    """Nor a store of other data that somebody is building there."""
    fs: Any = fsspec.filesystem("memory")
    fs.pipe_file(f"{memory}/thesis/chapter", b"text")
    with pytest.raises(StorageError, match="thesis is there already, and is no store; name anot"):
        hotset.build(Squares(), f"{memory}/thesis")
    made_from = hotset.build(Squares(3), f"{memory}/b.hotset").manifest.fingerprint
    note = json.dumps({"seal": None, "fingerprint": made_from}).encode()
    fs.pipe_file(f"{memory}/a.hotset/{UPLOADING}", note)
    with pytest.warns(StaleStoreWarning, match=r"a.hotset holds the beginnings of another store"):
        store = hotset.build(Squares(), f"{memory}/a.hotset")
    assert "memory://folder/a-" in repr(store)
    assert fs.find("/folder/a.hotset") == [f"/folder/a.hotset/{UPLOADING}"]


@pytest.mark.parametrize("fill", ["eager", "lazy"])
def test_accelerate_keeps_its_store_at_a_url(fill: Any, memory: str, cache: Path) -> None:
    """One machine fills it; another, with an empty folder of copies, reads none of the data."""
    first = Squares()
    loader = DataLoader(first, batch_size=4, shuffle=True)
    torch.manual_seed(0)
    expected = [values.tolist() for _, values, _ in loader]
    torch.manual_seed(0)
    fast = hotset.accelerate(loader, device="cpu", cache=memory, fill=fill, check_every=0)
    assert [values.tolist() for _, values, _ in fast] == expected
    (name,) = [n.rpartition("/")[2] for n in fsspec.filesystem("memory").ls("/folder", False)]
    assert f"{memory}/{name}" in str(fast.plan)
    assert_same(hotset.open(f"{memory}/{name}"))
    os.rename(cache, cache.with_name("of-the-other-machine"))
    other = Squares()
    torch.manual_seed(0)
    again = hotset.accelerate(
        DataLoader(other, batch_size=4, shuffle=True), device="cpu", cache=memory, check_every=0
    )
    assert [values.tolist() for _, values, _ in again] == expected
    assert other.read[0] < SAMPLES


def test_accelerate_reads_keys_from_the_environment(
    bucket: Bucket, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As every program that uses S3 does."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_ENDPOINT_URL", bucket.server.url)
    loader = DataLoader(Squares(), batch_size=8)
    fast = hotset.accelerate(loader, device="cpu", cache=bucket.url("stores"))
    assert [len(values) for _, values, _ in fast] == [8, 8]
    assert len(bucket.names("stores")) == 5


def test_what_is_not_there_is_said_in_a_sentence(bucket: Bucket, cache: Path) -> None:
    """No store, no bucket, for reading and for writing."""
    with pytest.raises(MissingDataError, match=f"^there is no store at {bucket.url('no')}$"):
        hotset.open(bucket.url("no"), storage_options=bucket.options)
    for call in (hotset.open, lambda url, **more: hotset.build(Squares(), url, **more)):
        with pytest.raises(MissingDataError, match=r"^there is no bucket 'nowhere', as in s3://"):
            call("s3://nowhere/a.hotset", storage_options=bucket.options)


def test_refused_connection_is_said_in_a_sentence(bucket: Bucket, cache: Path) -> None:
    """By the address that refuses."""
    server = ObjectServer()
    options, url = server.storage_options, server.url
    server.close()
    with pytest.raises(StorageError, match=rf"cannot be read: Could not connect .*{url}/b/a"):
        hotset.open("s3://b/a.hotset", storage_options=options)


def test_missing_credentials_are_said_in_a_sentence(
    object_server: ObjectServer, cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """With a word on where they are looked for."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    options = {"client_kwargs": {"endpoint_url": object_server.url}}
    words = (
        r"^s3://b/a.hotset/manifest.json cannot be read, since no credentials were found \(Unable "
        r"to locate credentials\); pass `storage_options`, or set them in the environment$"
    )
    with pytest.raises(StorageError, match=words):
        hotset.open("s3://b/a.hotset", storage_options=options)


def test_refused_permission_is_said_in_a_sentence(
    memory: str, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the words of the file system."""
    fs: Any = fsspec.filesystem("memory")

    def refuse(path: str, **more: Any) -> None:
        raise PermissionError("Access Denied")

    monkeypatch.setattr(fs, "info", refuse)
    with pytest.raises(StorageError, match=r"manifest.json may not be read: Access Denied$"):
        hotset.open(f"{memory}/a.hotset")


def test_missing_package_is_named(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    """And how to install it; also where nobody knows the protocol."""
    monkeypatch.setitem(sys.modules, "s3fs", None)
    monkeypatch.delitem(sys.modules["fsspec.registry"]._registry, "s3", raising=False)
    with pytest.raises(MissingExtraError, match=r"needs s3fs, which is not installed: pip install"):
        hotset.open("s3://missing-package/a.hotset")
    with pytest.raises(ConfigError, match=r"^carrier-pigeon://a has a protocol that fsspec does"):
        hotset.open("carrier-pigeon://a")
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    with pytest.raises(MissingExtraError, match=r"needs fsspec, which is not .*hotset\[remote\]"):
        hotset.open("s3://missing-fsspec/a.hotset")


def test_arguments_are_checked(tmp_path: Path, cache: Path) -> None:
    """What is for URLs alone, URLs that `pathlib` changed, budgets and `verify`."""
    built = hotset.build([1, 2], tmp_path / "a.hotset", version="1")
    for option in ({"budget": "1GB"}, {"local": "b"}, {"storage_options": {}}):
        with pytest.raises(ConfigError, match=r"`\w+` is for a URL such as s3://bucket/train.hots"):
            hotset.open(built.path, **option)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"^s3:/b/a was a URL before pathlib changed it; give it"):
        hotset.open(pathlib.PurePosixPath("s3://b/a"))
    with pytest.raises(ConfigError, match=r"`budget` must be bytes, '8GB' or '60%', got '8 apples"):
        hotset.open("memory://a", budget="8 apples")
    with pytest.raises(ConfigError, match="`verify` must be one of touch, open, never, got 'no'"):
        hotset.open("memory://a", verify="no")  # type: ignore[arg-type]


def test_url_of_this_machine_is_a_path(tmp_path: Path) -> None:
    """No copy is made of it."""
    built = hotset.build([1, 2], f"file://{tmp_path}/a.hotset", version="1")
    assert built.path == tmp_path / "a.hotset"
    assert hotset.open(f"file://{tmp_path}/a.hotset").path == tmp_path / "a.hotset"


def test_copies_lie_in_the_users_cache_folder(
    memory: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless `HOTSET_CACHE` names another."""
    monkeypatch.delenv("HOTSET_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    store = hotset.build(Squares(), f"{memory}/a.hotset")
    assert store.path.parent == tmp_path / "xdg" / "hotset"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    store = hotset.open(f"{memory}/a.hotset")
    assert store.path.parent == tmp_path / "home" / ".cache" / "hotset"


def test_manifest_that_is_written_fits_the_copy(memory: str, cache: Path) -> None:
    """It is the very text, so that the copy is a store that may be opened by its path."""
    store = hotset.build(Squares(), f"{memory}/a.hotset")
    text = fsspec.filesystem("memory").cat_file(f"{memory}/a.hotset/manifest.json")
    assert (store.path / "manifest.json").read_bytes() == text
    assert loads(text.decode()).samples == SAMPLES
    assert_same(hotset.open(store.path))


def test_commands_take_urls(
    memory: str, cache: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """`build` from a tree and to a store at URLs, `inspect`, and `verify`, which reads it all."""
    fs: Any = fsspec.filesystem("memory")
    for number in range(4):
        content = io.BytesIO()
        Image.new("RGB", (20, 10), (number, 0, 0)).save(content, "PNG")
        fs.pipe_file(f"{memory}/tree/{'ab'[number % 2]}/{number}.png", content.getvalue())
    url = f"{memory}/a.hotset"
    command = ["build", "--image-folder", f"{memory}/tree", url, "--resize", "5"]
    assert cli.main([*command, "--workers", "0"]) == 0
    assert capsys.readouterr().out.startswith(f"{url}: 4 samples, 888 bytes")
    store = hotset.open(url)
    assert [(image.size, image.getpixel((0, 0))[0], y) for image, y in store] == [
        ((10, 5), 0, 0),
        ((10, 5), 2, 0),
        ((10, 5), 1, 1),
        ((10, 5), 3, 1),
    ]
    assert cli.main(["inspect", url, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["path"], found["samples"]) == (url, 4)
    assert cli.main(["verify", url]) == 0
    assert capsys.readouterr().out.startswith(f"{url} is whole: 4 samples, 888 bytes")
    (name,) = (file for file in store.manifest.files if "image" in file)
    whole = fs.cat_file(f"{url}/{name}")
    fs.pipe_file(f"{url}/{name}", whole[:-1] + bytes([whole[-1] ^ 1]))
    assert cli.main(["verify", url]) == 1
    assert capsys.readouterr().err == (
        f"hotset: {url} is damaged: blocks do not have the checksums that they were written with "
        f"({name}, block 0: samples 0 to 3)\n"
    )
    assert cli.main(["verify", url, "--image-folder", f"{memory}/tree"]) == 2
    assert "cannot be repaired where it is: remove it, and build it" in capsys.readouterr().err
    assert cli.main(["inspect", f"{memory}/none"]) == 2
    assert capsys.readouterr().err == f"hotset: there is no store at {memory}/none\n"


def test_answers_of_another_length_are_refused(
    memory: str, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Too short, as where a line was cut; or all of the file, from servers that know no ranges."""
    url, fs = f"{memory}/a.hotset", fsspec.filesystem("memory")
    hotset.build(Squares(), url)
    size, whole = fs.size(f"{url}/tensor_0.npy"), fs.cat_file
    monkeypatch.setattr(
        fs, "cat_file", lambda path, **part: whole(path, **part)[: 1000 if part else None]
    )
    with pytest.raises(FormatError, match=rf"tensor_0.npy ends after 1,000 bytes, .* {size:,}: th"):
        hotset.open(url, local=tmp_path / "local")
    monkeypatch.setattr(fs, "cat_file", lambda path, **part: whole(path))
    monkeypatch.setattr(transfer, "PART_BYTES", BLOCK)
    with pytest.raises(StorageError, match=f"^{url}/tensor_0.npy cannot be read in parts: more "):
        hotset.open(url, local=tmp_path / "other")
    assert copies_in(tmp_path / "local") == copies_in(tmp_path / "other") == []


def test_import_loads_neither_library() -> None:
    """Both are loaded when a URL is first used."""
    code = (
        "import sys, torch; sys.modules.pop('fsspec', None); import hotset, hotset.store.opening\n"
    )
    code += "hotset.open, hotset.build; print('s3fs' in sys.modules, 'fsspec' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False False\n"
