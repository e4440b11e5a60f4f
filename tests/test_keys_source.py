"""What a dataset reads: its state, and the files that it names."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import ConcatDataset, Dataset, Subset, TensorDataset

from hotset.errors import KeyingError
from hotset.keys.files import FileLedger, digest_of_files, words_for
from hotset.keys.source import digest_with_files, source_identity, transforms_of


class Files(Dataset[Any]):
    """Holds names of files in some form."""

    def __init__(self, **state: Any) -> None:
        self.__dict__.update(state)
        self.transform: Any = None
        self.target_transform: Any = None

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> Any:
        return index


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three files, the times of which are known."""
    for number in range(3):
        file = tmp_path / f"{number}.bin"
        file.write_bytes(bytes(10 + number))
        os.utime(file, ns=(0, 10**18 + number))
    return tmp_path


FORMS: dict[str, Callable[[Path], dict[str, Any]]] = {
    "strings": lambda f: {"names": [str(f / f"{n}.bin") for n in range(3)]},
    "paths": lambda f: {"names": [f / f"{n}.bin" for n in range(3)]},
    "tuples": lambda f: {"samples": [(str(f / f"{n}.bin"), n) for n in range(3)]},
    "tuples of paths": lambda f: {"samples": [(f / f"{n}.bin", n) for n in range(3)]},
    "one attribute each": lambda f: {f"file{n}": str(f / f"{n}.bin") for n in range(3)},
    "below a root": lambda f: {"root": str(f), "names": [f"{n}.bin" for n in range(3)]},
    "below a root that is a path": lambda f: {"root": f, "names": [f"{n}.bin" for n in range(3)]},
    "in a dictionary": lambda f: {"root": f, "names": {n: f"{n}.bin" for n in range(3)}},
    "among others": lambda f: {"root": f, "n": ["0.bin", None, 3, ("1.bin", 2.0), "2.bin"]},
    "as values": lambda f: {"root": f, "names": {n: f"{n}.bin" for n in range(3)}},
    "as keys": lambda f: {"root": f, "names": {f"{n}.bin": n for n in range(3)}},
    "deep down": lambda f: {"root": f, "rows": [{"image": {"file": f"{n}.bin"}} for n in range(3)]},
    "in an array of text": lambda f: {"root": f, "names": np.array([f"{n}.bin" for n in range(3)])},
    "in an array of objects": lambda f: {
        "root": f,
        "n": np.array(["0.bin", "1.bin", "2.bin"], "O"),
    },
    "in bytes": lambda f: {"names": [os.fsencode(f / f"{n}.bin") for n in range(3)]},
    "in another object": lambda f: {"root": f, "index": Files(names=["0.bin", "1.bin", "2.bin"])},
    "in a partial": lambda f: {"read": functools.partial(len, *(f / f"{n}.bin" for n in range(3)))},
}


@pytest.mark.parametrize("form", FORMS)
def test_files_count_by_size_and_time(folder: Path, form: str) -> None:
    """In whatever form the state names them."""
    state = FORMS[form](folder)
    part = source_identity(Files(**state))
    assert part.name == "source"
    assert "Files: 3 files, 33 bytes, newest 2001-09-0" in part.text
    assert source_identity(Files(**state)) == part
    os.utime(folder / "1.bin", ns=(0, 10**18 + 1))
    assert source_identity(Files(**state)) == part
    os.utime(folder / "1.bin", ns=(0, 10**18 + 7))
    later = source_identity(Files(**state))
    assert later.digest != part.digest
    (folder / "1.bin").write_bytes(bytes(12))
    os.utime(folder / "1.bin", ns=(0, 10**18 + 1))
    longer = source_identity(Files(**state))
    assert longer.digest not in (part.digest, later.digest)
    (folder / "2.bin").unlink()
    assert source_identity(Files(**state)).digest != longer.digest
    assert "Files: 2 files, 22 bytes" in source_identity(Files(**state)).text


def test_everything_counts_contents_and_not_times(folder: Path) -> None:
    """A byte changed within the same length and time is seen; a new time alone is not."""
    state = {"root": folder, "names": [f"{n}.bin" for n in range(3)]}
    part = source_identity(Files(**state), everything=True)
    os.utime(folder / "1.bin", ns=(0, 5))
    assert source_identity(Files(**state), everything=True).digest == part.digest
    (folder / "1.bin").write_bytes(b"1" + bytes(10))
    os.utime(folder / "1.bin", ns=(0, 10**18 + 1))
    assert source_identity(Files(**state), everything=True).digest != part.digest


def test_folders_count_nothing_by_themselves(folder: Path) -> None:
    """A file that is not named may come and go."""
    dataset = Files(root=folder, names=["0.bin"])
    part = source_identity(dataset)
    (folder / "other.bin").write_bytes(b"")
    assert source_identity(dataset) == part


def test_names_are_relative_to_the_current_folder_too(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As they are when they are opened."""
    dataset = Files(names=["0.bin"])
    assert source_identity(dataset).text == "Files: 3 samples"
    monkeypatch.chdir(folder)
    assert source_identity(dataset).text.startswith("Files: 1 file, 10 bytes")


def test_transforms_are_left_out_and_the_rest_is_not(folder: Path) -> None:
    """`target_transform` and `loader` stay, `transform` and `transforms` are keyed as steps."""
    part = source_identity(Files(names=[1]))
    for name, counts in (
        ("transform", False),
        ("transforms", False),
        ("target_transform", True),
        ("loader", True),
    ):
        dataset, other = Files(names=[1]), Files(names=[1])
        setattr(dataset, name, abs)
        setattr(other, name, len)
        digests = {source_identity(dataset).digest, source_identity(other).digest}
        assert (len(digests) == 2) == counts
    changed = Files(names=[1])
    changed.transform = len
    assert source_identity(changed).digest == part.digest


def test_transform_of_a_dataset_inside_another_counts() -> None:
    """Where it is not one that hotset takes out: else its changes would go unseen."""

    def outer(transform: Any) -> Files:
        inner = Files()
        inner.transform = transform
        return Files(inner=inner)

    assert source_identity(outer(abs)).digest != source_identity(outer(len)).digest


def test_state_and_class_count() -> None:
    """A number in the state, and the code of `__getitem__`."""

    class Other(Files):
        def __getitem__(self, index: int) -> Any:
            return index + 1

    digests = {
        source_identity(dataset).digest
        for dataset in (Files(size=1), Files(size=2), Other(size=1), Files())
    }
    assert len(digests) == 4


def test_subsets_count_by_their_indices() -> None:
    """And through them, the datasets inside count; their transforms do not."""
    base, other = TensorDataset(torch.arange(4)), TensorDataset(torch.arange(1, 5))
    datasets = [
        base,
        other,
        Subset(base, [0, 1]),
        Subset(base, [1, 0]),
        Subset(other, [0, 1]),
        ConcatDataset([base, other]),
        ConcatDataset([other, base]),
        Subset(ConcatDataset([base, other]), [0, 1]),
    ]
    parts = [source_identity(dataset) for dataset in datasets]
    assert len({part.digest for part in parts}) == len(parts)
    assert parts[0].text == "TensorDataset: 4 samples"
    assert parts[7].text == "Subset of ConcatDataset of TensorDataset: 2 samples"
    split = torch.utils.data.random_split(base, [2, 2])[0]
    assert source_identity(split) == source_identity(Subset(base, list(split.indices)))
    with_transform = Files(size=1)
    with_transform.transform = abs
    plain = Subset(ConcatDataset([Files(size=1)]), [0])
    assert source_identity(plain).digest == (
        source_identity(Subset(ConcatDataset([with_transform]), [0])).digest
    )


def test_arrays_count_by_content() -> None:
    """As a dataset of their own."""
    arrays = [np.zeros((4, 2)), np.zeros((4, 2)), np.ones((4, 2))]
    first, again, other = ({"image": array} for array in arrays)
    assert source_identity(first) == source_identity(again)
    assert source_identity(first).digest != source_identity(other).digest


def test_memory_maps_count_by_their_file(tmp_path: Path) -> None:
    """And by which part of it is seen, without a byte being read."""
    path = tmp_path / "data.npy"
    np.save(path, np.arange(12).reshape(6, 2))
    os.utime(path, ns=(0, 10**18))
    data = np.load(path, mmap_mode="r")
    parts = [
        source_identity({"image": view}).digest
        for view in (data, data[1:], data[:5], data[::2], data.T, data.view("u8"))
    ]
    assert len(set(parts)) == len(parts)
    assert source_identity({"image": np.load(path, mmap_mode="r")}).digest == parts[0]
    assert "1 file" in source_identity(Files(image=data)).text
    os.utime(path, ns=(0, 10**18 + 1))
    assert source_identity({"image": data}).digest != parts[0]
    private = np.load(path, mmap_mode="c")
    before = source_identity({"image": private}).digest
    private[0] = 7
    assert source_identity({"image": private}).digest != before


def test_samples_count() -> None:
    """Their number, order and bytes."""
    given = [[], [b"a"], [b"a", b"b"], [b"b", b"a"], [b"ab"], [b""]]
    digests = {source_identity(Files(), samples=samples).digest for samples in given}
    assert len(digests) == len(given)


def test_image_folder_is_keyed_by_its_files(tmp_path: Path) -> None:
    """torchvision's, with its loader, through `transforms` that it keeps twice."""
    datasets = pytest.importorskip("torchvision.datasets")
    transforms = pytest.importorskip("torchvision.transforms")
    from PIL import Image

    for name in ("cat/0.png", "cat/1.png", "dog/0.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        Image.new("RGB", (2, 2)).save(tmp_path / name)
    chain = transforms.Compose([transforms.Resize(1), transforms.ToTensor()])
    plain = datasets.ImageFolder(tmp_path)
    with_chain = datasets.ImageFolder(tmp_path, transform=chain)
    part = source_identity(plain)
    size = sum(path.stat().st_size for path in tmp_path.rglob("*.png"))
    newest = max(path.stat().st_mtime for path in tmp_path.rglob("*.png"))
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(newest))
    assert part.text == f"ImageFolder: 3 files, {size} bytes, newest {when}"
    assert source_identity(with_chain).digest == part.digest
    assert transforms_of(with_chain) == [*chain.transforms, *chain.transforms]
    targets = datasets.ImageFolder(tmp_path, target_transform=abs)
    assert source_identity(targets).digest != part.digest
    Image.new("RGB", (2, 3)).save(tmp_path / "dog/0.png")
    assert source_identity(plain).digest != part.digest


def test_one_file_of_many_counts(tmp_path: Path) -> None:
    """Of 3,000, among 50,000 texts that name none."""
    for number in range(3_000):
        (tmp_path / f"{number:05}").touch()
    state = {"root": tmp_path, "names": [f"{number:05}" for number in range(50_000)]}
    part = source_identity(Files(**state))
    assert part.text.startswith("Files: 3,000 files, 0 bytes")
    (tmp_path / "02999").write_bytes(b"1")
    assert source_identity(Files(**state)).digest != part.digest


def test_what_cannot_be_keyed_is_named() -> None:
    """A generator, and an open file in the state."""
    with pytest.raises(KeyingError, match="the dataset is a generator"):
        source_identity(number for number in ())
    with (
        open(__file__, encoding="utf-8") as handle,
        pytest.raises(
            KeyingError, match="the dataset: attribute 'handle' of Files is an open file"
        ),
    ):
        source_identity(Files(handle=handle))


def test_files_that_a_function_names_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In its constants, below the folder of its module or the current one."""
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text("1", encoding="utf-8")
    space: dict[str, Any] = {"__file__": str(tmp_path / "module.py"), "__name__": "module"}
    exec("def beside(): return open(__file__ + '/../' + 'a.txt')\n", space)
    exec("def here(): return open('b.txt')\n", space)
    assert list(digest_with_files(space["beside"], "it")[1]) == [str(tmp_path / "a.txt")]
    assert not digest_with_files(space["here"], "it")[1]
    monkeypatch.chdir(tmp_path)
    assert list(digest_with_files(space["here"], "it")[1]) == ["b.txt"]


def test_ledger_passes_over_what_is_no_file(tmp_path: Path) -> None:
    """Folders, empty and overlong texts, and texts that no file can be named by."""
    ledger = FileLedger()
    ledger.note([str(tmp_path), "", "\0", "x" * 5_000, "no\nfile", 3, None], ())
    assert ledger.files() == {}
    (tmp_path / "f").write_bytes(b"abc")
    ledger.note(("f", ("f", 1)), (str(tmp_path),))
    assert list(ledger.files()) == [str(tmp_path / "f")]
    assert words_for(ledger.files()).startswith("1 file, 3 bytes, newest 2")
    assert digest_of_files(ledger.files()) != digest_of_files(ledger.files(everything=True))
