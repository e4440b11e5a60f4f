"""Whose code it is: a library's, known by its version, or the user's own.

The user's own is everything that is neither in the standard library nor in site-packages: scripts,
notebooks, packages installed in editable mode, functions made without a file. hotset itself counts
as a library, wherever it lies.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import metadata
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from types import FunctionType
from typing import Any

PYTHON = f"python {sys.version_info.major}.{sys.version_info.minor}"
KNOWN_DISTRIBUTIONS = {"PIL": "pillow"}
"""Looking through all distributions for the one that brings a module takes up to a second."""


def library_of_module(name: Any) -> str | None:
    """The library that a module belongs to, with its version; None for the user's own.

    Args:
        name: as in `sys.modules`; the module need not be imported if it is of the standard library.
    """
    if not isinstance(name, str):
        return None
    top, known = name.partition(".")[0], name
    file = _file_of(sys.modules.get(known))
    while file is None and known != top:  # a module of C code may have no file, or not be there
        known = known.rpartition(".")[0]
        file = _file_of(sys.modules.get(known))
    return _library(top, file)


def library_of_import(name: str) -> str | None:
    """The library that an import would lead to; nothing is imported."""
    top = name.partition(".")[0]
    if top in sys.modules:
        return library_of_module(top)
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return None
    if spec is None:
        return None
    folders = spec.submodule_search_locations or ()
    return _library(top, spec.origin if spec.has_location else next(iter(folders), None))


def library_of_function(function: FunctionType) -> str | None:
    """The library that a function's code belongs to, with its version; None for the user's own.

    The file of the code decides: a library's decorator keeps the name of what it wraps.
    """
    file = function.__code__.co_filename
    home = function.__globals__.get("__name__")
    if file.startswith("<") or not isinstance(home, str):
        return library_of_module(home)
    return _library(home.partition(".")[0], file)


def is_found(module: Any, qualname: Any, value: Any) -> bool:
    """Whether a value is what its module has under its name, so that the name says what it is."""
    found: Any = sys.modules.get(module) if isinstance(module, str) else None
    if found is None or not isinstance(qualname, str):
        return False
    for name in qualname.split("."):
        found = getattr(found, name, None)
    return found is value


def _file_of(module: Any) -> str | None:
    file = getattr(module, "__file__", None)
    # A namespace package has folders only.
    return file or next(iter(getattr(module, "__path__", ())), None)


@cache
def _library(top: str, file: str | None) -> str | None:
    if top == "hotset":
        return f"hotset {sys.modules['hotset'].__version__}"
    if file is None:
        return PYTHON if top in sys.stdlib_module_names or top == "builtins" else None
    path = Path(os.path.abspath(file))
    if not {"site-packages", "dist-packages"}.isdisjoint(path.parts):
        known = _distribution(top)
        if known is not None:
            return known
    elif any(path.is_relative_to(folder) for folder in _standard_folders()):
        return PYTHON
    if path.name.endswith(tuple(EXTENSION_SUFFIXES)) and path.is_file():
        with path.open("rb") as stream:
            return f"{path.name} {hashlib.file_digest(stream, 'blake2b').hexdigest()}"
    return None


@cache
def _standard_folders() -> tuple[Path, ...]:
    paths = sysconfig.get_paths()
    found = [paths["stdlib"], paths["platstdlib"], os.path.dirname(os.__file__)]
    return tuple({Path(each) for folder in found for each in (folder, os.path.realpath(folder))})


@cache
def _packages() -> Mapping[str, Sequence[str]]:
    return metadata.packages_distributions()


def _distribution(top: str) -> str | None:
    """The distributions that bring a top-level module; None where no record says."""
    try:
        return _described(metadata.distribution(KNOWN_DISTRIBUTIONS.get(top, top)))
    except (metadata.PackageNotFoundError, ValueError):
        names = sorted(set(_packages().get(top, ())))
    return ", ".join(_described(metadata.distribution(name)) for name in names) or None


def _described(distribution: metadata.Distribution) -> str:
    """Name and version; of one built from a folder, whose version may lag behind, also its files.

    Source: https://peps.python.org/pep-0610/ for `direct_url.json`.
    """
    words = f"{distribution.name} {distribution.version}"
    text = distribution.read_text("direct_url.json")
    if text is None:
        return words
    url = json.loads(text)
    if "dir_info" in url:
        text = distribution.read_text("RECORD") or ""
        return f"{words} {hashlib.blake2b(text.encode(), digest_size=8).hexdigest()}"
    return f"{words} {json.dumps(url, sort_keys=True)}"
