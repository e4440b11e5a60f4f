"""Damage of every kind, found without opening the store, and made good from the dataset."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset

import hotset
from hotset.building.build import finish
from hotset.building.chunks import ChunkReader
from hotset.building.finding import Place
from hotset.building.prepare import prepare
from hotset.building.repair import repair
from hotset.errors import ConfigError, FaithfulnessError, FormatError, MissingDataError, SampleError
from hotset.store.blocks import Damage
from hotset.store.damage import Contents
from hotset.store.facts import facts
from hotset.store.writer import Writer

LENGTH = 600
BLOCK = 4096
ROW = 100
"""Bytes of a dense leaf: blocks begin within samples."""


class Mixed(Dataset[Any]):
    """Dense and ragged leaves, and text; what was read is noted in `log`."""

    def __init__(
        self, log: Path | None = None, *, changed: int = -1, broken: tuple[int, ...] = ()
    ) -> None:
        self._hidden = Hidden(log, changed, broken)

    def __len__(self) -> int:
        return LENGTH

    def __getitem__(self, index: int) -> Any:
        hidden = self._hidden
        if hidden.log is not None:
            with hidden.log.open("a") as log:
                log.write(f"{index}\n")
        if index in hidden.broken:
            raise OSError("cannot be read")
        number = index + (index == hidden.changed)
        dense = torch.full((ROW,), number % 251, dtype=torch.uint8)
        ragged = np.full((index % 4, 5), index, np.int32)
        return {"dense": dense, "ragged": ragged, "text": "é" * (index % 7), "label": index}


class Hidden:
    """What does not count into a dataset's key."""

    def __init__(self, log: Path | None, changed: int, broken: tuple[int, ...]) -> None:
        self.log, self.changed, self.broken = log, changed, broken

    def __reduce__(self) -> Any:
        return Hidden, (None, -1, ())


def content(path: Path) -> dict[str, bytes]:
    """Every file of a store."""
    return {file.name: file.read_bytes() for file in sorted(path.iterdir())}


def flip(file: Path, position: int) -> None:
    """Changes one byte; from the end where the position is negative."""
    values = bytearray(file.read_bytes())
    values[position] ^= 0xFF
    file.write_bytes(values)


def link(file: Path) -> None:
    """Puts a link in a file's place."""
    file.unlink()
    file.symlink_to("/dev/zero")


def longer(file: Path) -> None:
    """Appends to a file."""
    with file.open("ab") as values:
        values.write(b"more")


@pytest.fixture(autouse=True, scope="module")
def small_blocks() -> Iterator[None]:
    """Several blocks for little data."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hotset.store.blocks.BLOCK_BYTES", BLOCK)
        yield


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, small_blocks: None) -> Path:
    """A store that no test writes to."""
    path = tmp_path_factory.mktemp("stores") / "a.hotset"
    hotset.build(Mixed(), path, workers=0)
    return path


@pytest.fixture
def store(built: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    path = tmp_path / "a.hotset"
    path.mkdir()
    for name, values in content(built).items():
        (path / name).write_bytes(values)
    return path


def test_a_whole_store_is_left_alone(store: Path) -> None:
    """Not even the dataset is looked at."""
    assert repair(store, object()) == []


def test_only_samples_of_damaged_blocks_are_read(store: Path, tmp_path: Path) -> None:
    """And only those blocks are written."""
    before, log = content(store), tmp_path / "log"
    flip(store / "dense.npy", 128 + BLOCK + 17)
    flip(store / "dense.npy", 128 + 3 * BLOCK + 17)
    damaged = repair(store, Mixed(log))
    samples = [range(n * BLOCK // ROW, ((n + 1) * BLOCK - 1) // ROW + 1) for n in (1, 3)]
    assert damaged == [Damage("dense.npy", n, s) for n, s in zip((1, 3), samples, strict=True)]
    assert content(store) == before
    wanted = [n for part in samples for n in part]
    reads = [int(line) for line in log.read_text().splitlines()]
    assert reads[-len(wanted) :] == wanted
    assert set(reads[: -len(wanted)]) == {0, 200, 399, 599}  # looked at for the recipe


FILES = [
    "dense.npy",
    "ragged.data.npy",
    "ragged.index.npy",
    "text.data.npy",
    "text.index.npy",
    "label.npy",
]
DAMAGES: list[Callable[[Path], None]] = [
    lambda file: flip(file, 200),
    lambda file: flip(file, -1),
    lambda file: flip(file, 20),
    lambda file: os.truncate(file, 60),
    lambda file: os.truncate(file, file.stat().st_size - 9),
    Path.unlink,
    link,
    longer,
]


@pytest.mark.parametrize("name", FILES)
def test_every_file_is_made_good(name: str, store: Path) -> None:
    """A byte at the start, at the end, in the header; cut, missing, a link, too long."""
    before = content(store)
    for damage in DAMAGES:
        damage(store / name)
        damaged = repair(store, Mixed())
        assert damaged
        assert {found.file for found in damaged} == {name}
        assert content(store) == before
        assert not (store / name).is_symlink()


@pytest.mark.parametrize("damage", DAMAGES)
def test_all_files_at_once_are_made_good(damage: Callable[[Path], None], store: Path) -> None:
    """Where every index is damaged as well, places follow from the samples."""
    before = content(store)
    for name in FILES:
        damage(store / name)
    assert {found.file for found in repair(store, Mixed())} == set(FILES)
    assert content(store) == before
    assert len(hotset.open(store, verify="open")) == LENGTH


def test_damage_is_named(store: Path) -> None:
    """File, block and samples; of values whose place is not known, those that may be there."""
    flip(store / "ragged.data.npy", -1)
    flip(store / "label.npy", 20)
    contents = Contents(store)
    told: list[tuple[int, int]] = []
    found = contents.look(lambda *n: told.append(n))
    assert told[-1][1] == contents.manifest.nbytes
    assert list(map(str, found)) == [
        "ragged.data.npy, block 4: samples 547, 549, 550, 551, 553, 554 and 34 more",
        "label.npy: its header or its size",
    ]
    # A sample with n % 4 == 0 has no bytes there; four in a row take 120.
    assert list(found[0].samples) == [n for n in range(547, LENGTH) if n % 4]
    flip(store / "ragged.index.npy", -1)
    damages = {(d.file, d.block): d.samples for d in Contents(store).look()}
    unknown = 3 * BLOCK // 24
    assert damages["ragged.index.npy", 3] == range(unknown, LENGTH)
    assert damages["ragged.data.npy", 4] == range(unknown, LENGTH)


def test_a_changed_source_leaves_the_store_as_it_was(store: Path) -> None:
    """The key is the same, the bytes are not: nothing is written."""
    flip(store / "dense.npy", 5000)
    flip(store / "label.npy", 200)
    before = content(store)
    with pytest.raises(
        FaithfulnessError,
        match=r"the source has changed .*: dense.npy, block 1: samples 40 to 81 would not be as b",
    ):
        repair(store, Mixed(changed=77))
    assert content(store) == before
    with pytest.raises(SampleError, match="Mixed failed at index 77: OSError: cannot be read"):
        repair(store, Mixed(broken=(77,)))
    assert content(store) == before


def test_other_data_is_refused(store: Path) -> None:
    """With what differs."""
    flip(store / "dense.npy", 200)
    before = content(store)
    with pytest.raises(ConfigError, match=r"built from other data \(.*step 1 is new: is double"):
        repair(store, Mixed(), double)
    with pytest.raises(ConfigError, match=r"built from other data \(source: was Mixed: 600 sa"):
        repair(store, [torch.zeros(3)] * 5)
    assert content(store) == before


def double(x: Tensor) -> Tensor:
    """A deterministic step."""
    return x * 2


@pytest.mark.parametrize("on_error", ["skip", "substitute"])
def test_samples_given_up_are_minded(on_error: Any, tmp_path: Path) -> None:
    """Behind one that was left out, samples stand one place before."""
    path, broken = tmp_path / "a.hotset", (0, 5, 6, 400)
    hotset.build(Mixed(broken=broken), path, on_error=on_error, workers=0, progress=False)
    before = content(path)
    for name in FILES:
        (path / name).unlink()
    repair(path, Mixed(broken=broken), progress=False)
    assert content(path) == before


def test_a_table_is_made_again(tmp_path: Path) -> None:
    """From the steps that it stands for."""
    path = tmp_path / "a.hotset"
    data = torch.arange(5 * 3 * 4 * 4, dtype=torch.uint8).reshape(5, 3, 4, 4)
    hotset.build(data, path, halve)
    before = content(path)
    assert "table.npy" in before
    flip(path / "table.npy", -1)
    assert [d.file for d in repair(path, data, halve)] == ["table.npy"]
    (path / "table.npy").unlink()
    repair(path, data, halve)
    assert content(path) == before


def halve(x: Tensor) -> Tensor:
    """A step that a table can stand for."""
    return x.float() / 2


def permuted(data: Any, path: Path, order: list[int]) -> None:
    """A store whose rows stand in another order than its samples, as filling on the way makes."""
    recipe = prepare(data, None, version=None, is_by_content=False).recipe
    writer = Writer(path.with_name("partial"), recipe.content())
    task = ChunkReader(recipe.reader(), "data", recipe.analysis.spec, "raise", len(data))
    for start in range(0, len(order), 256):
        writer.append(task(order[start : start + 256]))
    finish(recipe, writer, Place(path, False), {})
    writer.close()


def test_the_order_of_rows_is_found_again(tmp_path: Path) -> None:
    """By the content of the rows that no other sample has."""
    path = tmp_path / "a.hotset"
    order = np.random.default_rng(0).permutation(LENGTH).tolist()
    permuted(Mixed(), path, order)
    before = content(path)
    flip(path / "rows.npy", 200)
    assert [d.file for d in repair(path, Mixed())] == ["rows.npy"]
    (path / "ragged.index.npy").unlink()
    flip(path / "dense.npy", 30_000)
    found = repair(path, Mixed())
    assert content(path) == before
    assert {d.file for d in found} == {"dense.npy", "ragged.index.npy"}
    assert set(found[0].samples) == set(order[7 * BLOCK // ROW : (8 * BLOCK - 1) // ROW + 1])
    flip(path / "rows.npy", 200)
    (path / "dense.npy").unlink()
    with pytest.raises(ConfigError, match=r"rows.npy and what it points to are both damaged"):
        repair(path, Mixed())


class Endless(IterableDataset[Any]):
    """Samples without an index."""

    def __iter__(self) -> Iterator[Any]:
        for number in range(500):
            yield torch.full((ROW,), number % 251, dtype=torch.uint8), "x" * (number % 5)


def no_sevens(x: Tensor) -> Tensor:
    """A step that fails now and then."""
    if int(x[0]) % 50 == 7:
        raise ValueError("a seven")
    return x + 1


@pytest.mark.parametrize("on_error", ["skip", "substitute"])
def test_iterables_are_read_in_their_order(on_error: Any, tmp_path: Path) -> None:
    """Up to the last sample that is needed."""
    path = tmp_path / "a.hotset"
    hotset.build(Endless(), path, no_sevens, on_error=on_error, version="1")
    before = content(path)
    for name in [name for name in before if name != "manifest.json"]:
        flip(path / name, 200)
    repair(path, Endless(), no_sevens)
    assert content(path) == before
    (path / "str_1.index.npy").unlink()
    repair(path, Endless(), no_sevens)
    assert content(path) == before


def test_progress_is_told(store: Path) -> None:
    """Samples read again, and how many that will be: those of the last block."""
    calls: list[tuple[int, int | None]] = []
    flip(store / "label.npy", -1)
    repair(store, Mixed(), progress=lambda *n: calls.append(n))
    assert (calls[0], calls[-1]) == ((0, 88), (88, 88))


def test_a_store_must_be_there(tmp_path: Path, store: Path) -> None:
    """With a manifest that is whole."""
    with pytest.raises(MissingDataError, match="there is no store at"):
        repair(tmp_path / "none.hotset", Mixed())
    flip(store / "manifest.json", 40)
    with pytest.raises(FormatError, match="manifest"):
        repair(store, Mixed())


def test_facts_say_what_is_there(store: Path) -> None:
    """Shapes of ragged fields by their range; none where an index is damaged."""
    found = facts(store)
    assert (found["samples"], found["bytes"]) == (LENGTH, Contents(store).manifest.nbytes)
    fields = {field["name"]: field for field in found["fields"]}
    assert fields["dense"]["shape"] == [ROW]
    ragged, text = fields["ragged"], fields["text"]
    assert (ragged["min"], ragged["mean"], ragged["max"]) == ([0, 5], [1.5, 5.0], [3, 5])
    assert (text["min"], text["max"], text["kind"]) == ([0], [12], "str")
    assert found["made"]["dataset"] == "Mixed"
    flip(store / "ragged.index.npy", -1)
    field = facts(store)["fields"][1]
    assert (field["min"], field["mean"], field["max"]) == (None, None, None)
