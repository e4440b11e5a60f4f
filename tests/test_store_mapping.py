"""Reading a store takes no memory of its own, in however many processes."""

from __future__ import annotations

import os
import pickle
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

import hotset
from hotset.sample.column import describe
from hotset.sample.tree import flatten, strip
from hotset.sources.resident import of_store
from hotset.store.chunk import Packer
from hotset.store.store import Store
from hotset.store.writer import Content, Writer
from tests.stores import assert_holds, assert_identical, mixed_sample, stored

MEGABYTE = 1 << 20
SAMPLES = 300
SLACK_BYTES = 20 * MEGABYTE

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/smaps").exists(), reason="only Linux tells what memory a process has"
)


def large_sample(index: int) -> Any:
    """A megabyte, in a dense and a ragged field."""
    length = MEGABYTE // 2 + index
    return torch.full((MEGABYTE // 2,), index % 251, dtype=torch.uint8), torch.full(
        (length,), index % 251, dtype=torch.uint8
    )


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A store of 300 MB."""
    folder = tmp_path_factory.mktemp("large")
    leaves, spec = flatten(large_sample(0))
    writer = Writer(folder / "partial", Content(strip(spec), 0, tuple(map(describe, leaves))))
    packer = Packer()
    for index in range(SAMPLES):
        writer.append(packer.pack([index], [packer.taken(flatten(large_sample(index))[0])]))
    writer.finish(folder / "large", {}, range(SAMPLES))
    yield folder / "large"
    shutil.rmtree(folder)


def anonymous_bytes() -> int:
    """Memory of this process that is of no file."""
    found = re.search(r"RssAnon:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


READING = """
import sys
import hotset
from tests.test_store_mapping import anonymous_bytes
store = hotset.open(sys.argv[1])
store[0]
before = anonymous_bytes()
total = 0
for index in range(len(store)):
    one, other = store[index]
    total += one.numel() + other.numel()
print(total, anonymous_bytes() - before, flush=True)
sys.stdin.read()
"""


def reader(path: Path) -> subprocess.Popen[str]:
    """A process that reads a store, tells of it, and stays."""
    return subprocess.Popen(
        [sys.executable, "-c", READING, str(path)],
        env={**os.environ, "PYTHONPATH": os.getcwd()},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def mapped_bytes(process: int, path: Path) -> tuple[int, int]:
    """What a process has of the files in a directory, in all and as its share."""
    whole = share = 0
    is_in = False
    for line in Path(f"/proc/{process}/smaps").read_text().splitlines():
        if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
            is_in = str(path) in line
        elif is_in and line.startswith("Rss:"):
            whole += int(line.split()[1]) * 1024
        elif is_in and line.startswith("Pss:"):
            share += int(line.split()[1]) * 1024
    return whole, share


def test_reading_takes_no_memory(large: Path) -> None:
    """300 MB are read, and less than 20 MB remain; two processes have one copy of them."""
    assert Store(large).nbytes > SAMPLES * MEGABYTE
    with reader(large) as one, reader(large) as other:
        for process in (one, other):
            assert process.stdout is not None
            total, grown = map(int, process.stdout.readline().split())
            assert total == sum(MEGABYTE + index for index in range(SAMPLES))
            assert grown < SLACK_BYTES
        for process in (one, other):
            whole, share = mapped_bytes(process.pid, large)
            assert whole > 0.9 * SAMPLES * MEGABYTE
            assert 0.4 * whole < share < 0.6 * whole
        for process in (one, other):
            process.communicate()
    assert (one.returncode, other.returncode) == (0, 0)


class Watched(Dataset[Any]):
    """A store that tells, for each sample that is read, who read it and what memory that has."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def __len__(self) -> int:
        return len(self.store)

    def __getitem__(self, index: int) -> tuple[int, int, int]:
        one, other = self.store[index]
        assert int(one[-1]) == int(other[-1]) == index % 251
        return index, os.getpid(), anonymous_bytes()


@pytest.mark.filterwarnings("ignore:This DataLoader will create 4 worker:UserWarning")
@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_workers_have_no_copies(large: Path, context: str) -> None:
    """Four of them read 300 MB; what each has of its own hardly grows."""
    loader = DataLoader(
        Watched(Store(large)), batch_size=4, num_workers=4, multiprocessing_context=context
    )
    memory = defaultdict(list)
    seen: list[int] = []
    for indices, processes, numbers in loader:
        seen += indices.tolist()
        for process, number in zip(processes.tolist(), numbers.tolist(), strict=True):
            memory[process].append(number)
    assert seen == list(range(SAMPLES))
    assert len(memory) == 4
    assert sum(max(numbers) - numbers[0] for numbers in memory.values()) < 2 * SLACK_BYTES


def test_only_the_path_travels(large: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To another process, which maps the files itself; also when it is somewhere else."""
    monkeypatch.chdir(large.parent)
    store = hotset.open(large.name, verify="never")
    sent = pickle.dumps(store)
    assert len(sent) < 500
    assert len(pickle.dumps(of_store(store))) < 4000
    monkeypatch.chdir("/")
    again = pickle.loads(sent)
    assert again.path == large
    assert_identical(again[7], large_sample(7))
    assert repr(again._verify) == "'never'"


def test_a_store_outlives_its_directory_name(tmp_path: Path) -> None:
    """Files that are mapped stay readable, whatever becomes of their names."""
    samples = [mixed_sample(index) for index in range(5)]
    store = stored(samples, tmp_path / "a.hotset")
    shutil.rmtree(store.path)
    for index, sample in enumerate(samples):
        assert_identical(store[index], sample)


def test_opening_a_store_reads_little(large: Path) -> None:
    """Its manifest and headers, whatever its size; `verify="open"` reads all of it."""
    store = Store(large)
    assert mapped_bytes(os.getpid(), large)[0] < MEGABYTE
    store[0]
    assert mapped_bytes(os.getpid(), large)[0] < 20 * MEGABYTE
    del store
    assert_holds(Store(large, verify="open"), [large_sample(index) for index in range(SAMPLES)])
