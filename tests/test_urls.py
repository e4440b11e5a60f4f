"""Paths and URLs as users give them: what is one, what is none, and where `~` and `.` lead."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

import hotset
from hotset import cli
from hotset.errors import ConfigError, MissingDataError, StorageError
from hotset.store.urls import given_path, local_path

DATA = torch.arange(6.0).reshape(3, 2)


class Halves(torch.utils.data.Dataset[Any]):
    """Numbers that do not lie in memory."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Any:
        return torch.tensor(index / 2)


def build(path: Any) -> Any:
    """A store of a few numbers."""
    return hotset.build(DATA, path)


def cached(path: Any) -> Any:
    """A loader that keeps its data in a folder."""
    return hotset.accelerate(DataLoader(Halves(), 2), device="cpu", cache=path)


def opened_with_copies_in(path: Any) -> Any:
    """A store at a URL."""
    return hotset.open("memory://none/a.hotset", local=path)


CALLS: dict[str, Callable[[Any], Any]] = {
    "path": build,
    "cache": cached,
    "local": opened_with_copies_in,
    "root": hotset.datasets.ImageFolder,
}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (3, "got 3$"),
        (True, "got True$"),
        ([1, 2], "got one of type list$"),
        ("", "got ''$"),
        ("a\0b", r"got 'a\\x00b'$"),
        (b"a\0b", r"got 'a\\x00b'$"),
        (Path("a\0b"), r"got 'a\\x00b'$"),
    ],
)
@pytest.mark.parametrize("argument", CALLS)
def test_what_is_no_path_is_refused(argument: str, given: Any, words: str) -> None:
    """With the name of the argument, what was expected, and what came."""
    match = f"^`{argument}` must be a path or URL, as 'data/train.hotset', {words}"
    with pytest.raises(ConfigError, match=match):
        CALLS[argument](given)


@pytest.mark.parametrize("call", [build, hotset.open, hotset.Store])
def test_no_path_at_all_is_refused(call: Callable[[Any], Any]) -> None:
    """None is for arguments that may be left out."""
    with pytest.raises(ConfigError, match=r"^`path` must be a path or URL, .*, got None$"):
        call(None)


def test_bytes_are_paths(tmp_path: Path) -> None:
    """As `os` takes them."""
    built = build(bytes(tmp_path / "ä.hotset"))
    assert built.path == tmp_path / "ä.hotset"
    calls: tuple[Any, ...] = (hotset.open, hotset.Store)
    for call in calls:
        assert torch.equal(call(bytes(built.path))[1], DATA[1])
    assert given_path(b"s3://a/b") == "s3://a/b"


def test_tilde_is_the_users_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """At the start of a text, wherever a path is taken; not in the middle, nor in a `Path`."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert build("~/a.hotset").path == tmp_path / "a.hotset"
    assert hotset.open("~/a.hotset").path == tmp_path / "a.hotset"
    assert hotset.Store("~/a.hotset").path == tmp_path / "a.hotset"
    cached("~/cache")
    assert [path.suffix for path in (tmp_path / "cache").glob("[!.]*")] == [".hotset"]
    (tmp_path / "images" / "a").mkdir(parents=True)
    with pytest.raises(MissingDataError, match=f"no image in {tmp_path}/images"):
        hotset.datasets.ImageFolder("~/images")
    for command in ("inspect", "verify"):
        assert cli.main([command, "~/a.hotset"]) == 0
        assert str(tmp_path / "a.hotset") in capsys.readouterr().out
    assert [local_path("a~b"), local_path(Path("~/a"))] == ["a~b", Path("~/a")]


@pytest.mark.parametrize("path", [".", "/", ".."])
@pytest.mark.parametrize("call", [hotset.open, hotset.Store])
def test_a_folder_without_a_name_of_its_own_is_no_store(
    path: str, call: Callable[[Any], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which is said in words."""
    (tmp_path / "in").mkdir()
    monkeypatch.chdir(tmp_path / "in")
    with pytest.raises(MissingDataError, match=rf"^there is no store at {path}$"):
        call(path)


def test_a_store_that_is_the_working_directory_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be called `.`; and one that is not finished is known as such."""
    build(tmp_path / "a.hotset")
    monkeypatch.chdir(tmp_path / "a.hotset")
    assert len(hotset.open(".")) == 3
    (tmp_path / "b.hotset.partial").mkdir()
    (tmp_path / "b.hotset").mkdir()
    monkeypatch.chdir(tmp_path / "b.hotset")
    with pytest.raises(MissingDataError, match="its building was not finished: run it again"):
        hotset.open(".")


def test_the_root_of_all_folders_is_no_place_for_a_store() -> None:
    """Nothing is written."""
    with pytest.raises(StorageError, match=r"^/ cannot be a store; name a directory to make"):
        build("/")


@pytest.mark.parametrize("url", ["s3://", "memory://", "memory:///"])
@pytest.mark.parametrize("call", [build, cached, hotset.open, hotset.datasets.ImageFolder])
def test_a_url_without_a_path_is_refused(url: str, call: Callable[[Any], Any]) -> None:
    """As it was given."""
    with pytest.raises(ConfigError, match=f"^a URL needs a path, as in s3://.*, got '{url}'$"):
        call(url)


@pytest.mark.parametrize("path", ["a.hotset", b"a.hotset", Path("a.hotset")])
def test_arguments_in_the_wrong_order_are_told(path: Any) -> None:
    """The path is shown in its place."""
    match = r"build takes the data first .* hotset.build\(dataset, 'a.hotset'\); got .* type Tensor"
    with pytest.raises(ConfigError, match=match):
        hotset.build(path, DATA)  # type: ignore[arg-type]


def test_a_file_is_no_tree_of_images(tmp_path: Path) -> None:
    """Which is said in words."""
    (tmp_path / "x.png").write_bytes(b"")
    with pytest.raises(MissingDataError, match=r"x\.png is no folder; give the one that holds a"):
        hotset.datasets.ImageFolder(tmp_path / "x.png")
