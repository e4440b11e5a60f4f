"""Whose code it is: the user's own, or a library's, with its version."""

from __future__ import annotations

import functools
import json
import os
import sys
from collections.abc import Iterator
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import hotset
from hotset.keys import origin
from hotset.keys.graph import key_of
from hotset.keys.origin import (
    is_found,
    library_of_function,
    library_of_import,
    library_of_module,
)

PYTHON = f"python {sys.version_info.major}.{sys.version_info.minor}"


@pytest.mark.parametrize("name", ["os", "sys", "builtins", "json.decoder", "_io", "zipimport"])
def test_standard_library_has_pythons_version(name: str) -> None:
    """Whether it is built in, frozen or a file."""
    assert library_of_module(name) == PYTHON


@pytest.mark.parametrize(
    ("name", "distribution"),
    [("torch", "torch"), ("torch._C._nn", "torch"), ("numpy.random", "numpy"), ("PIL", "pillow")],
)
def test_installed_libraries_have_their_version(name: str, distribution: str) -> None:
    """Where module and distribution have different names, too."""
    if name == "PIL":
        pytest.importorskip("PIL")
    assert library_of_module(name) == f"{distribution} {metadata.version(distribution)}"


def test_distribution_of_another_name_is_found() -> None:
    """From the records of all distributions."""
    import_module("_pytest")
    assert library_of_module("_pytest") == f"pytest {metadata.version('pytest')}"


def test_hotset_counts_as_a_library_wherever_it_lies() -> None:
    """By its version."""
    assert library_of_module("hotset.keys") == f"hotset {hotset.__version__}"
    assert library_of_function(library_of_module) == f"hotset {hotset.__version__}"


@pytest.mark.parametrize("name", ["__main__", __name__, "no_such_module", None, 3])
def test_the_users_own_has_no_library(name: Any) -> None:
    """Scripts, tests, and modules that are nowhere."""
    assert library_of_module(name) is None


def test_a_functions_file_decides() -> None:
    """Not the name that a decorator gave it."""
    decorated = torch.no_grad()(test_a_functions_file_decides)
    assert decorated.__module__ == __name__
    assert library_of_function(decorated) == library_of_module("torch")
    assert library_of_function(test_a_functions_file_decides) is None
    assert library_of_function(np.median.__wrapped__) == library_of_module("numpy")
    assert library_of_function(functools.wraps) == PYTHON


def test_values_are_found_by_name() -> None:
    """Only where the name leads to the very value."""
    assert is_found("os", "getcwd", os.getcwd)
    assert is_found("pathlib", "Path.home", Path.home) is False
    assert is_found("os", "getcwd", abs) is False
    assert is_found("no_such_module", "x", None) is False
    assert is_found(None, None, None) is False


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of installed packages."""
    folder = tmp_path / "site-packages"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    before = set(sys.modules)
    yield folder
    for name in set(sys.modules) - before:
        if name.startswith("hotset_test_"):
            del sys.modules[name]
    for cached in (origin._library, origin._packages):
        cached.cache_clear()


def _install(site: Path, version: str, *, number: int = 1, url: Any = None) -> str:
    """The key of a function of a package that is installed anew."""
    (site / "hotset_test_lib.py").write_text(f"def run(x):\n    return x + {number}\n")
    info = site / "hotset_test_lib.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text(f"Name: hotset_test_lib\nVersion: {version}\n")
    (info / "RECORD").write_text(f"hotset_test_lib.py,sha256={number},30\n")
    if url is not None:
        (info / "direct_url.json").write_text(json.dumps(url))
    sys.modules.pop("hotset_test_lib", None)
    origin._library.cache_clear()
    origin._packages.cache_clear()
    return key_of(import_module("hotset_test_lib").run)


def test_a_librarys_code_counts_by_its_version(site: Path) -> None:
    """Its text is not looked at."""
    key = _install(site, "1.0")
    assert library_of_module("hotset_test_lib") == "hotset_test_lib 1.0"
    assert _install(site, "1.0", number=2) == key
    assert _install(site, "1.1") != key


def test_a_package_installed_from_a_folder_counts_by_its_files(site: Path) -> None:
    """Its version often stays while its code changes."""
    url = {"url": "file:///home/me/lib", "dir_info": {}}
    key = _install(site, "1.0", url=url)
    assert _install(site, "1.0", url=url) == key
    assert _install(site, "1.0", number=2, url=url) != key


def test_a_package_installed_from_a_repository_counts_by_its_commit(site: Path) -> None:
    """As pip has written it down."""

    def url(commit: str) -> Any:
        return {"url": "https://x.org/r.git", "vcs_info": {"vcs": "git", "commit_id": commit}}

    assert _install(site, "1.0", url=url("a")) != _install(site, "1.0", url=url("b"))


def test_a_module_without_a_record_counts_by_its_code(site: Path) -> None:
    """As if it were the user's own."""
    keys = []
    for number in (1, 1, 2):
        (site / "hotset_test_bare.py").write_text(f"def run(x):\n    return x + {number}\n")
        sys.modules.pop("hotset_test_bare", None)
        keys.append(key_of(import_module("hotset_test_bare").run))
    assert library_of_module("hotset_test_bare") is None
    assert keys[0] == keys[1] != keys[2]


def test_a_compiled_module_of_the_users_counts_by_its_bytes(tmp_path: Path) -> None:
    """There is no code to look at."""
    file = tmp_path / f"own{origin.EXTENSION_SUFFIXES[0]}"
    file.write_bytes(b"1")
    first = origin._library("own", str(file))
    origin._library.cache_clear()
    file.write_bytes(b"2")
    assert first is not None
    assert first != origin._library("own", str(file))
    origin._library.cache_clear()


def test_a_library_that_a_function_would_import_is_not_imported(site: Path) -> None:
    """Its version is known without; the key is the same once it is imported."""
    _install(site, "1.0")
    del sys.modules["hotset_test_lib"]
    space: dict[str, Any] = {}
    exec("def f(x):\n from hotset_test_lib import run\n return run(x)", space)
    key = key_of(space["f"])
    assert "hotset_test_lib" not in sys.modules
    assert space["f"](1) == 2
    assert key_of(space["f"]) == key
    _install(site, "1.1")
    assert key_of(space["f"]) != key


@pytest.mark.parametrize(
    ("name", "library"),
    [("wave", PYTHON), ("no_such_module", None), ("", None), ("hotset.keys", "hotset")],
)
def test_libraries_of_imports(name: str, library: str | None) -> None:
    """Of modules that are imported and of such that are not."""
    found = library_of_import(name)
    assert found is None if library is None else str(found).startswith(library)
