"""A store that is damaged says so: file, block and samples, when they are first touched."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torchvision import transforms as v1

import hotset
from hotset.errors import ConfigError, FormatError, HotsetError
from hotset.store import blocks
from hotset.store.layout import ROWS, TABLE
from hotset.store.store import Store
from tests.stores import Given, assert_holds, assert_identical, flip, picture, stored
from tests.test_store_format import write_golden

SAMPLES, BLOCK = 40, 128


def sample(index: int) -> Any:
    """Dense and ragged leaves of a few bytes."""
    return (
        torch.full((5,), index, dtype=torch.int32),
        picture(index, (2 + index % 3, 2)),
        "x" * (index % 7),
    )


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A store of many small blocks."""
    monkeypatch.setattr(blocks, "BLOCK_BYTES", BLOCK)
    return stored([sample(index) for index in range(SAMPLES)], tmp_path / "a.hotset")


def in_block(store: Store, name: str, block: int) -> set[int]:
    """The samples that have bytes in a block, told from the samples themselves."""
    sizes = {
        "tensor_0.npy": [20] * SAMPLES,
        "image_1.data.npy": [(2 + index % 3) * 2 * 3 for index in range(SAMPLES)],
        "image_1.index.npy": [5 * 8] * SAMPLES,
        "str_2.data.npy": [index % 7 for index in range(SAMPLES)],
        "str_2.index.npy": [2 * 8] * SAMPLES,
    }[name]
    ends = np.cumsum(sizes)
    starts = ends - sizes
    touched = (starts < (block + 1) * BLOCK) & (ends > block * BLOCK) & (starts < ends)
    return set(np.flatnonzero(touched).tolist())


def outcomes(store: Store) -> dict[int, str]:
    """What reading each sample says; nothing where it is as it was."""
    found = {}
    for index in range(SAMPLES):
        try:
            assert_identical(store[index], sample(index))
        except FormatError as error:
            found[index] = str(error)
    return found


def test_a_byte_that_changed_is_found(store: Store) -> None:
    """Each byte of each file: by the samples of its block, and by no others."""
    looked_at = 0
    for name, file in store.manifest.files.items():
        path = store.path / name
        for position in range(0, file.payload_bytes, 31):
            block = position // BLOCK
            flip(path, file.header_bytes + position, position % 8)
            damaged = hotset.open(store.path)
            samples = in_block(store, name, block)
            found = outcomes(damaged)
            assert set(found) == samples, (name, position)
            shown = f"{path} is damaged: block {block} does not have the checksum"
            for words in found.values():
                assert words.startswith(shown)
                assert f"sample {min(samples)}" in words or f"samples {min(samples)}" in words
                assert "hotset verify" in words
            told = [(one.file, one.block, set(one.samples)) for one in damaged.damaged()]
            assert told == [(name, block, samples)]
            with pytest.raises(FormatError, match=f"{name} is damaged: block {block} "):
                hotset.open(store.path, verify="open")
            flip(path, file.header_bytes + position, position % 8)
            looked_at += 1
    assert looked_at > 100
    assert outcomes(hotset.open(store.path, verify="open")) == {}


def test_a_header_that_changed_is_found(store: Store) -> None:
    """When the store is opened."""
    for name, file in store.manifest.files.items():
        for position in range(0, file.header_bytes, 3):
            flip(store.path / name, position)
            with pytest.raises(FormatError, match=f"{name} does not begin as an array of"):
                hotset.open(store.path)
            flip(store.path / name, position)
    assert outcomes(hotset.open(store.path)) == {}


def test_a_block_is_looked_at_once(store: Store) -> None:
    """Before it is first used; what changes later is not the store's to find."""
    for index in range(SAMPLES):
        store[index]
    name = "tensor_0.npy"
    flip(store.path / name, store.manifest.files[name].header_bytes)
    assert store[0][0].tolist() == [1, 0, 0, 0, 0]
    assert [one.file for one in store.damaged()] == [name]


def test_who_trusts_a_store_gets_what_is_there(store: Store) -> None:
    """`verify="never"` reads no checksum, and never outside of the files all the same."""
    file = store.manifest.files["tensor_0.npy"]
    flip(store.path / "tensor_0.npy", file.header_bytes + 20)
    trusting = hotset.open(store.path, verify="never")
    assert trusting[1][0].tolist() == [0, 1, 1, 1, 1]
    index = store.manifest.files["image_1.index.npy"]
    for position, words in ((7, "start and shape"), (39, "start and shape"), (15, "start and")):
        flip(store.path / "image_1.index.npy", index.header_bytes + 40 + position, 7)
        trusting = hotset.open(store.path, verify="never")
        with pytest.raises(
            FormatError, match=f"image_1.index.npy is damaged: row 1 has the {words}"
        ):
            trusting[1]
        assert_identical(trusting[2], sample(2))
        flip(store.path / "image_1.index.npy", index.header_bytes + 40 + position, 7)


def test_verify_must_be_one_of_three(store: Store) -> None:
    """Anything else is an error."""
    for verify in ("always", "", None, True):
        with pytest.raises(ConfigError, match="`verify` must be one of touch, open, never, got"):
            hotset.open(store.path, verify=verify)  # type: ignore[arg-type]


def test_rows_that_changed_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the samples whose row it is; the others stay readable."""
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 16)
    path = write_golden(tmp_path)
    whole = [hotset.open(path)[index] for index in range(4)]
    header = hotset.open(path).manifest.files[ROWS].header_bytes
    for position in range(32):
        flip(path / ROWS, header + position, 6)
        damaged = hotset.open(path)
        block = position // 16
        for index in range(4):
            if index // 2 == block:
                both = rf"\(samples {2 * block} to {2 * block + 1}\)"
                words = rf"rows.npy is damaged: block {block} .*{both}"
                with pytest.raises(FormatError, match=words):
                    damaged[index]
            else:
                assert_identical(damaged[index], whole[index])
        with pytest.raises(FormatError, match=r"rows.npy is damaged: block"):
            _ = damaged.rows
        assert [(one.file, one.block) for one in damaged.damaged()] == [(ROWS, block)]
        trusting = hotset.open(path, verify="never")
        for index in range(4):
            try:
                trusting[index]
            except FormatError as error:
                assert "rows.npy names rows that are not there" in str(error)  # noqa: PT017
        flip(path / ROWS, header + position, 6)


def test_a_table_that_changed_is_found(tmp_path: Path) -> None:
    """When the store is opened, since all samples need it."""

    class Images(Given):
        transform = v1.ToTensor()

        def __getitem__(self, index: int) -> Any:
            return self.transform(self.given[index])

    dataset = Images([picture(index, (3, 2)) for index in range(5)])
    store = hotset.build(dataset, tmp_path / "a.hotset", version="1", workers=0)
    file = store.manifest.files[TABLE]
    for position in range(0, file.payload_bytes, 101):
        flip(store.path / TABLE, file.header_bytes + position)
        with pytest.raises(
            FormatError, match=r"table.npy is damaged: block 0 .*\(samples 0 to 4\)"
        ):
            hotset.open(store.path)
        flip(store.path / TABLE, file.header_bytes + position)
    assert_holds(hotset.open(store.path), [dataset[index] for index in range(5)])


def test_files_that_are_not_as_the_manifest_says(store: Store, tmp_path: Path) -> None:
    """Missing, cut off, longer, a directory, a link, a pipe: named when the store is opened."""
    name = "image_1.data.npy"
    path, keep = store.path / name, tmp_path / "kept"
    shutil.copy(path, keep)
    size = path.stat().st_size

    def link() -> None:
        path.symlink_to(keep)

    for make, words in (
        (lambda: None, "is missing; the store is not whole"),
        (lambda: path.write_bytes(keep.read_bytes()[:-1]), f"has {size - 1:,} bytes, the manifest"),
        (lambda: path.write_bytes(keep.read_bytes() + b"x"), f"has {size + 1:,} bytes, the manif"),
        (path.mkdir, "is no ordinary file"),
        (link, "is no ordinary file"),
        (lambda: os.mkfifo(path), "is no ordinary file"),
    ):
        path.unlink()
        make()
        with pytest.raises(FormatError, match=f"{name} {words}"):
            hotset.open(store.path)
        path.rmdir() if path.is_dir() else path.unlink(missing_ok=True)
        shutil.copy(keep, path)
    assert outcomes(hotset.open(store.path)) == {}


def test_manifests_that_are_no_files(store: Store, tmp_path: Path) -> None:
    """A link, which could lead anywhere, a pipe, on which one would wait, and a directory."""
    manifest = store.path / "manifest.json"
    shutil.move(manifest, tmp_path / "kept")
    for make in (
        lambda: manifest.symlink_to(tmp_path / "kept"),
        lambda: manifest.symlink_to("/dev/zero"),
        lambda: os.mkfifo(manifest),
        manifest.mkdir,
    ):
        make()
        with pytest.raises(FormatError, match=r"manifest\.json is no ordinary file"):
            hotset.open(store.path)
        manifest.rmdir() if manifest.is_dir() else manifest.unlink()


def test_what_may_not_be_read_is_a_plain_error(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of hotset's own, whichever file it is."""
    real = os.lstat

    for name in ("manifest.json", "tensor_0.npy"):

        def refuse(path: Any, name: str = name) -> Any:
            if Path(path).name == name:
                raise PermissionError(13, "Permission denied")
            return real(path)

        monkeypatch.setattr(os, "lstat", refuse)
        with pytest.raises(HotsetError, match=f"{name} cannot be read: Permission denied"):
            hotset.open(store.path)


def test_rows_are_touched_all_at_once_too(store: Store) -> None:
    """As the loader does, for whole batches."""
    store.touch(np.arange(SAMPLES))
    file = store.manifest.files["image_1.data.npy"]
    flip(store.path / "image_1.data.npy", file.header_bytes)
    damaged = hotset.open(store.path)
    damaged.touch(np.array([30, 39]))
    with pytest.raises(FormatError, match=r"image_1.data.npy is damaged: block 0 .*\(samples 0 to"):
        damaged.touch(np.array([30, 2]))
