"""Files that samples are read from without being named: a change of theirs would go unnoticed."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, TensorDataset
from torchvision import transforms as v1
from torchvision.datasets import FakeData, ImageFolder

import hotset
from hotset.cli import main
from hotset.errors import KeyingError, StaleStoreWarning
from hotset.keys.files import not_named
from hotset.sources.opened import Opened, within_step

LENGTH = 6


class Read(Dataset[Any]):
    """Gives what a function reads; the state is what it is given."""

    def __init__(self, read: Callable[[Any, int], Any], transform: Any = None, **state: Any):
        self.read, self.transform = read, transform
        self.__dict__.update(state)

    def __len__(self) -> int:
        return LENGTH

    def __getitem__(self, index: int) -> Any:
        found = torch.tensor(self.read(self, index)).reshape(1)
        return (found if self.transform is None else self.transform(found)), index


def number_in(path: Any) -> int:
    """What a file of text holds."""
    with open(path, encoding="utf-8") as file:
        return int(file.read())


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Files of a number each, a list of their names, and all numbers in one file."""
    folder = tmp_path / "data"
    (folder / "class").mkdir(parents=True)
    for index in range(LENGTH):
        (folder / f"s{index}.txt").write_text(str(index))
        (folder / "class" / f"{index}.txt").write_text(str(index))
    (folder / "all.bin").write_bytes(bytes(range(LENGTH)))
    ids = [{"id": f"s{index}"} for index in range(LENGTH)]
    (folder / "index.json").write_text(json.dumps(ids))
    with sqlite3.connect(folder / "all.sqlite") as base:
        base.execute("create table numbers (place, value)")
        base.executemany("insert into numbers values (?, ?)", [(n, n) for n in range(LENGTH)])
    base.close()
    return folder


def _joined(self: Any, index: int) -> int:
    return number_in(self.root / f"s{index}.txt")


def _by_class(self: Any, index: int) -> int:
    folder, name = self.index[index]
    return number_in(os.path.join(self.root, self.folders[folder], name))


def _by_id(self: Any, index: int) -> int:
    return number_in(os.path.join(self.root, f"{self.ids[index]}.txt"))


def _by_config(self: Any, index: int) -> int:
    return number_in(os.path.join(self.cfg["root"], f"s{index}.txt"))


def _by_json(self: Any, index: int) -> int:
    with open(os.path.join(self.root, "index.json"), encoding="utf-8") as file:
        return number_in(os.path.join(self.root, json.load(file)[index]["id"] + ".txt"))


def _by_environment(self: Any, index: int) -> int:
    return number_in(f"{os.environ['NUMBERS']}/s{index}.txt")


def _by_system_call(self: Any, index: int) -> int:
    handle = os.open(f"{self.root}/s{index}.txt", os.O_RDONLY)
    try:
        return int(os.read(handle, 10))
    finally:
        os.close(handle)


def _in_thread(self: Any, index: int) -> int:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(_joined, self, index).result()


def _once(self: Any, index: int) -> int:
    if self.kept is None:
        self.kept = (self.root / f"all.{self.kind}").read_bytes()
    return self.kept[index]


def _by_database(self: Any, index: int) -> int:
    base = sqlite3.connect(f"{self.root}/all.{self.kind}")
    try:
        found = base.execute("select value from numbers where place = ?", (index,)).fetchone()
    finally:
        base.close()
    return int(found[0])


def _by_memory_map(self: Any, index: int) -> int:
    return int(np.memmap(f"{self.root}/all.{self.kind}", np.uint8, "r")[index])


def _own_file(self: Any, index: int) -> int:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "n"
        path.write_text(str(index))
        return number_in(path)


UNNAMED: dict[str, Callable[[Path], Dataset[Any]]] = {
    "joined with a number": lambda root: Read(_joined, root=root),
    "as torchvision's INaturalist": lambda root: Read(
        _by_class,
        root=str(root),
        folders=["class"],
        index=[(0, f"{n}.txt") for n in range(LENGTH)],
    ),
    "ids without extension": lambda root: Read(
        _by_id, root=str(root), ids=[f"s{n}" for n in range(LENGTH)]
    ),
    "a root in a dictionary": lambda root: Read(_by_config, cfg={"root": str(root)}),
    "ids in a file of JSON": lambda root: Read(_by_json, root=str(root)),
    "a root in the environment": lambda root: Read(_by_environment),
    "a call of the system": lambda root: Read(_by_system_call, root=str(root)),
    "a thread": lambda root: Read(_in_thread, root=root),
    "read once and kept": lambda root: Read(_once, root=root, kind="bin", kept=None),
    "a database": lambda root: Read(_by_database, root=root, kind="sqlite"),
    "a memory map": lambda root: Read(_by_memory_map, root=root, kind="bin"),
    "a file of its own": lambda root: Read(_own_file),
    "inside a Subset": lambda root: Subset(Read(_joined, root=root), range(LENGTH)),
    "before a transform": lambda root: Read(_joined, v1.Lambda(torch.neg), root=root),
}
SAYS = r" is opened by reading sample \d of \w+, but not named by the dataset or its transform"


def accelerated(dataset: Any, folder: Path, **settings: Any) -> list[int]:
    """The numbers in a dataset, by way of a store."""
    fast = hotset.accelerate(DataLoader(dataset), device="cpu", cache=folder, **settings)
    return [int(values) for values, _ in fast]


@pytest.mark.parametrize("kind", UNNAMED)
def test_files_that_nothing_names_are_refused(
    kind: str, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By `hotset.build` and `accelerate` alike, unless a version says what is in them."""
    monkeypatch.setenv("NUMBERS", str(root))
    with pytest.raises(KeyingError, match=SAYS) as refused:
        hotset.build(UNNAMED[kind](root), tmp_path / "n.hotset", workers=0)
    assert "keep the list of files as an attribute (as" in str(refused.value)
    assert 'as torchvision\'s `samples`), or pass version="…"' in str(refused.value)
    with pytest.raises(KeyingError, match=SAYS):
        accelerated(UNNAMED[kind](root), tmp_path / "stores")
    store = hotset.build(UNNAMED[kind](root), tmp_path / "n.hotset", workers=0, version="1")
    assert [abs(int(store[n][0])) for n in range(LENGTH)] == list(range(LENGTH))
    found = accelerated(UNNAMED[kind](root), tmp_path / "stores", version="1")
    assert [abs(n) for n in found] == list(range(LENGTH))


def test_the_file_and_the_sample_are_named(root: Path, tmp_path: Path) -> None:
    """The first of them."""
    words = re.escape(f"{root / 's0.txt'} is opened by reading sample 0 of Read, but")
    with pytest.raises(KeyingError, match=f"^{words}"):
        hotset.build(Read(_joined, root=root), tmp_path / "n.hotset", workers=0)


class Shards(IterableDataset[Any]):
    """Reads one file after the other."""

    def __init__(self, **state: Any) -> None:
        self.__dict__.update(state)

    def __iter__(self) -> Iterator[int]:
        files = getattr(self, "files", None)
        for index in range(LENGTH):
            yield number_in(files[index] if files else f"{self.root}/s{index}.txt")


def test_streams_are_listened_to(root: Path, tmp_path: Path) -> None:
    """While their first samples are read."""
    with pytest.raises(KeyingError, match=r"s0\.txt is opened by reading sample 0 of Shards"):
        hotset.build(Shards(root=root), tmp_path / "n.hotset", workers=0)
    files = [str(root / f"s{n}.txt") for n in range(LENGTH)]
    store = hotset.build(Shards(files=files), tmp_path / "n.hotset", workers=0)
    assert [int(store[n]) for n in range(LENGTH)] == list(range(LENGTH))


def test_command_line_refuses_them(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`hotset build` as well."""
    (tmp_path / "unnamed_numbers.py").write_text(
        "class Numbers:\n"
        f"    root = {str(root)!r}\n"
        f"    def __len__(self): return {LENGTH}\n"
        "    def __getitem__(self, index):\n"
        "        with open(f'{self.root}/s{index}.txt') as file:\n"
        "            return int(file.read())\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    arguments = ["build", "unnamed_numbers:Numbers", str(tmp_path / "n.hotset")]
    assert main(arguments) != 0
    assert "is opened by reading sample 0 of Numbers" in capsys.readouterr().err
    assert main([*arguments, "--version", "1"]) == 0


class Lookup:
    """A step that looks values up in a file."""

    def __init__(self, folder: Any, name: str) -> None:
        self.folder, self.name = folder, name

    def __call__(self, values: torch.Tensor) -> torch.Tensor:
        """values: (1,) int64."""
        with open(os.path.join(self.folder, "all." + self.name), "rb") as file:
            return torch.tensor(list(file.read()))[values]


@hotset.random
def noisy(values: torch.Tensor) -> torch.Tensor:
    """Adds what is in a file that is chosen by chance."""
    folder = os.environ["NUMBERS"]
    return values + number_in(f"{folder}/s{int(torch.randint(0, 3, ()))}.txt")


def test_files_of_steps_that_run_once_count(root: Path, tmp_path: Path) -> None:
    """As those of the dataset do."""
    arrays = TensorDataset(torch.arange(LENGTH))
    with pytest.raises(KeyingError, match=r"all\.bin is opened by reading sample 0"):
        hotset.build(arrays, tmp_path / "n.hotset", Lookup(root, "bin"), workers=0)
    named = Read(_named, Lookup(root, "bin"), root=root, names=[f"s{n}.txt" for n in range(LENGTH)])
    with pytest.raises(KeyingError, match=r"all\.bin is opened by reading sample 0"):
        accelerated(named, tmp_path / "stores")


def _named(self: Any, index: int) -> int:
    return number_in(os.path.join(self.root, self.names[index]))


def test_files_of_steps_that_are_left_do_not_count(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They run whenever a sample is used."""
    monkeypatch.setenv("NUMBERS", str(root))
    names = [f"s{n}.txt" for n in range(LENGTH)]
    chain = v1.Compose([v1.Lambda(torch.neg), noisy])
    store = hotset.build(
        Read(_named, chain, root=root, names=names), tmp_path / "n.hotset", workers=0
    )
    assert len(store) == LENGTH
    accelerated(Read(_named, chain, root=root, names=names), tmp_path / "stores")


def _by_handle(self: Any, index: int) -> int:
    if self.file is None:
        self.file = np.memmap(self.path, np.uint8, "r")
    return int(self.file[index])


def _by_step(path: Any) -> Callable[[torch.Tensor], torch.Tensor]:
    def look_up(values: torch.Tensor) -> torch.Tensor:
        with open(path, "rb") as file:
            return torch.tensor(list(file.read()))[values]

    return look_up


def _with_import(self: Any, index: int) -> int:
    sys.modules.pop("numbers_inside", None)
    import numbers_inside  # type: ignore[import-not-found]

    return int(numbers_inside.VALUES[index])


def _with_metadata(self: Any, index: int) -> int:
    from importlib import metadata

    assert metadata.version("hotset")
    assert list(metadata.distribution("torch").files or [])
    Image.init()
    with open("/proc/self/status", encoding="utf-8") as file, open("/dev/zero", "rb") as zero:
        assert file.read(4)
        assert zero.read(1) == b"\0"
    with open(os.devnull, "w", encoding="utf-8") as nothing:
        nothing.write("")
    return index


def _with_log(self: Any, index: int) -> int:
    with open(self.root / f"log{index}", "a", encoding="utf-8") as log:
        log.write("read\n")
    with tempfile.TemporaryFile() as file:
        file.write(b"1")
        file.seek(0)
        assert file.read() == b"1"
    return index


NAMED: dict[str, Callable[[Path], Any]] = {
    "names below a root": lambda root: Read(
        _named, root=root, names=[f"s{n}.txt" for n in range(LENGTH)]
    ),
    "a memory map by its path": lambda root: Read(_by_handle, path=root / "all.bin", file=None),
    "a memory map": lambda root: Read(
        lambda self, index: int(self.data[index]),
        data=np.memmap(root / "all.bin", np.uint8, "r"),
    ),
    "a step with a file in its closure": lambda root: Read(
        _named,
        v1.Lambda(_by_step(str(root / "all.bin"))),
        root=root,
        names=[f"s{n}.txt" for n in range(LENGTH)],
    ),
    "a file that a constant names": lambda root: Read(
        lambda self, index: (self.root / "all.bin").read_bytes()[index], root=root
    ),
    "a TensorDataset": lambda root: TensorDataset(torch.arange(LENGTH)[:, None], torch.arange(6)),
    "an import": lambda root: Read(_with_import),
    "packages, plugins and devices": lambda root: Read(_with_metadata),
    "files that are written": lambda root: Read(_with_log, root=root),
}


@pytest.mark.parametrize("kind", NAMED)
def test_files_that_are_named_are_no_reason(
    kind: str, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor are those of code, of the system, and those that are written."""
    (tmp_path / "numbers_inside.py").write_text(f"VALUES = list(range({LENGTH}))\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    store = hotset.build(NAMED[kind](root), tmp_path / "n.hotset", workers=0)
    assert [int(store[n][0]) for n in range(LENGTH)] == list(range(LENGTH))
    assert accelerated(NAMED[kind](root), tmp_path / "stores") == list(range(LENGTH))


def test_arrays_open_nothing(tmp_path: Path) -> None:
    """Also where they are mapped."""
    np.save(tmp_path / "a.npy", np.arange(6))
    for number, data in enumerate(
        (np.arange(6), {"a": torch.arange(6)}, np.load(tmp_path / "a.npy", mmap_mode="r"))
    ):
        assert len(hotset.build(data, tmp_path / f"{number}.hotset", workers=0)) == 6


@pytest.mark.parametrize("way", ["plain", "relative", "by a link"])
def test_image_folder_names_its_files(
    way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether its root is absolute, relative, or a link; and a change of one is noticed."""
    for name in ("cat/0.png", "cat/1.png", "dog/0.png"):
        (tmp_path / "tree" / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (2, 2)).save(tmp_path / "tree" / name)
    (tmp_path / "link").symlink_to(tmp_path / "tree")
    monkeypatch.chdir(tmp_path)
    tree = {"plain": tmp_path / "tree", "relative": "tree", "by a link": "link"}[way]
    for number, kind in enumerate((ImageFolder, hotset.datasets.ImageFolder)):
        path = tmp_path / f"{number}.hotset"
        assert len(hotset.build(kind(tree), path, v1.ToTensor(), workers=0)) == 3
        loader = DataLoader(kind(tree, v1.ToTensor()))
        hotset.accelerate(loader, device="cpu", cache=tmp_path / "stores")
    Image.new("RGB", (2, 3)).save(tmp_path / "tree/dog/0.png")
    with pytest.warns(StaleStoreWarning):
        hotset.build(ImageFolder(tree), tmp_path / "0.hotset", v1.ToTensor(), workers=0)


def test_image_folder_at_a_url_and_made_up_images(tmp_path: Path) -> None:
    """Nothing is opened for them."""
    fsspec = pytest.importorskip("fsspec")
    memory = fsspec.filesystem("memory")
    source = tmp_path / "0.png"
    Image.new("RGB", (2, 2)).save(source)
    for name in ("cat/0.png", "dog/0.png"):
        memory.pipe(f"/opened/{name}", source.read_bytes())
    try:
        data = hotset.datasets.ImageFolder("memory://opened")
        assert len(hotset.build(data, tmp_path / "a.hotset", workers=0)) == 2
    finally:
        memory.rm("/opened", recursive=True)
    fake = FakeData(6, (3, 4, 4), transform=v1.ToTensor())
    hotset.accelerate(DataLoader(fake), device="cpu", cache=tmp_path / "stores")


def test_names_of_other_machines_count(root: Path, tmp_path: Path) -> None:
    """A dataset may say by `source_files()` what it reads."""

    class Listed(Read):
        def source_files(self) -> dict[str, tuple[int, str]]:
            return {f"{self.root}/s{n}.txt": (1, "tag") for n in range(LENGTH)}

        root: Path

    assert len(hotset.build(Listed(_joined, root=root), tmp_path / "n.hotset", workers=0)) == 6


def test_what_is_listened_to(tmp_path: Path) -> None:
    """Only what is opened to be read, by this thread and those that begin meanwhile."""
    path, other, go, done = tmp_path / "a", tmp_path / "b", threading.Event(), threading.Event()
    path.write_text("1")
    other.write_text("1")

    def run() -> None:
        assert go.wait(60)
        number_in(other)
        done.set()

    thread = threading.Thread(target=run)
    thread.start()
    opened = Opened()
    number_in(path)
    assert opened.files() == {}
    with opened:
        go.set()
        assert done.wait(60)
        with pytest.raises(FileNotFoundError):
            number_in(tmp_path / "c")
        with open(path, "w", encoding="utf-8") as file:
            file.write("2")
        with open(path, "rb") as first, open(first.fileno(), "rb", closefd=False):
            pass
    thread.join()
    number_in(other)
    assert opened.files() == {str(path): 0}
    with opened, within_step(2):
        number_in(other)
    assert opened.files() == {str(path): 0, str(other): 0}
    assert opened.files(2) == {str(path): 0}
    assert opened.files(3) == {str(path): 0, str(other): 0}


def test_hook_is_not_there_before_it_is_needed() -> None:
    """It cannot be taken away again."""
    code = (
        "import hotset\n"
        "from hotset.sources import opened\n"
        "assert not opened._now.is_installed\n"
        "with opened.Opened():\n"
        "    assert opened._now.is_installed\n"
        "assert opened._now.watching == ()\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=100)


def test_names_are_compared_by_where_they_lead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Relative ones, and links that are called otherwise."""
    (tmp_path / "a").write_text("")
    (tmp_path / "b").symlink_to("a")
    monkeypatch.chdir(tmp_path)
    a, b, c = (str(tmp_path / name) for name in "abc")
    assert not_named([a, b], {"a"}) == []
    assert not_named([a, b], {"b"}) == []
    assert not_named([a, b, c], {f"{tmp_path}/./a"}) == [c]
    assert not_named([c], set()) == [c]
