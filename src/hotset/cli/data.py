"""The data that arguments name: `PKG.MOD:NAME`, or a folder of images."""

from __future__ import annotations

import difflib
import inspect
import os
import pkgutil
import sys
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from hotset.errors import ConfigError, HotsetError, MissingDataError, MissingExtraError
from hotset.store.urls import Url

MOST_NAMES = 12
"""Names that a message lists."""


def named(name: str) -> Any:
    """What `PKG.MOD:NAME` names; a function or class without arguments is called.

    Modules are found in the current directory, as by `python -m`, and where Python looks.

    Raises:
        ConfigError: if there is no such thing, or it fails; says what is there.
    """
    module_name, colon, attribute = name.partition(":")
    if not colon or not module_name or not attribute:
        hint = module_name.removesuffix(".py").strip("./").replace("/", ".") or "package.module"
        raise ConfigError(
            f"expected PKG.MOD:NAME, a module and the name of a dataset in it, got {name!r}; write "
            f"it as {hint}:{attribute or 'train_set'}"
        )
    module = _module(module_name)
    found: Any = module
    before = module_name
    for part in attribute.split("."):
        if not hasattr(found, part):
            instead = _instead(module, part) if found is module else ""
            raise ConfigError(f"{before} has no {part!r}{instead}")
        found, before = getattr(found, part), f"{before}.{part}"
    return _called(found, name) if _is_made(found) else found


def _module(name: str) -> ModuleType:
    here = os.getcwd()
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)
    if os.sep in name or name.startswith("."):  # Python would take some of them as relative
        raise ConfigError(f"there is no module {name!r}{_not_the_file(name)}")
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if missing != name and not name.startswith(f"{missing}."):
            raise ConfigError(
                f"{name} cannot be imported: it needs {missing}, which is not installed"
            ) from error
        if name.endswith(".py"):
            hint = _not_the_file(name)
        else:
            hint = _similar(missing, _modules_beside(missing))
        raise ConfigError(
            f"there is no module {missing!r}, neither in {here} nor where Python looks{hint}"
        ) from error
    except HotsetError:
        raise
    except (Exception, SystemExit) as error:
        words = f"{type(error).__name__}: {error}"
        if isinstance(error, SystemExit):
            words = 'it ends the program; put what it runs under `if __name__ == "__main__":`'
        raise ConfigError(f"{name} cannot be imported: {words}") from error


def _not_the_file(name: str) -> str:
    """What a message says of a module that is named as its file is."""
    path = os.path.normpath(name.removesuffix(".py"))
    folder, file = os.path.split(path)
    if path.startswith((os.sep, os.pardir)):  # not within the current directory
        return f"; go to {folder}, and name the module, not the file: {file}"
    return f"; name the module, not the file: {path.replace(os.sep, '.')}"


def _modules_beside(name: str) -> list[str]:
    """Modules of the package that a module was looked for in, or of the current directory."""
    parent = name.rpartition(".")[0]
    places = list(getattr(sys.modules.get(parent), "__path__", [])) if parent else [os.getcwd()]
    prefix = f"{parent}." if parent else ""
    return [module.name for module in pkgutil.iter_modules(places, prefix)]


def _instead(module: ModuleType, name: str) -> str:
    """What a message says of a name that is not there: what may have been meant."""
    there = [
        other
        for other, value in vars(module).items()
        if not other.startswith("_") and _is_usable(module, value)
    ]
    return _similar(name, there) or "; there is no dataset, nor a function that could make one"


def _similar(name: str, there: Iterable[str]) -> str:
    names = list(there)
    close = difflib.get_close_matches(name, names, n=3)
    if close:
        return f"; did you mean {' or '.join(close)}?"
    if not names:
        return ""
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return f"; there is {', '.join(names[:MOST_NAMES])}{more}"


def _is_usable(module: ModuleType, value: Any) -> bool:
    """Whether a value of a module is data, or a function of its own that may make some."""
    if isinstance(value, (ModuleType, str, bytes)) or type(value).__module__ == "typing":
        return False
    if _is_made(value):
        is_own = getattr(value, "__module__", None) == module.__name__
        return is_own and not _required(value)
    return hasattr(value, "__getitem__") or hasattr(value, "__iter__")


def _is_made(value: Any) -> bool:
    """Whether a value is to be called for the data."""
    if isinstance(value, type):
        return True
    return callable(value) and not (hasattr(value, "__getitem__") or hasattr(value, "__iter__"))


def _required(call: Any) -> list[str]:
    """The arguments that must be given."""
    try:
        parameters = inspect.signature(call).parameters.values()
    except (TypeError, ValueError):
        return []
    optional = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [p.name for p in parameters if p.default is p.empty and p.kind not in optional]


def _called(call: Any, name: str) -> Any:
    required = _required(call)
    if required:
        raise ConfigError(
            f"{name} needs arguments ({', '.join(required)}); name a dataset, or a function that "
            "needs none"
        )
    try:
        made = call()
    except HotsetError:
        raise
    except Exception as error:
        raise ConfigError(f"{name}() failed: {type(error).__name__}: {error}") from error
    if made is None:
        raise ConfigError(f"{name}() returned None; it must return a dataset")
    return made


def image_folder(folder: Path | Url, resize: int | None = None) -> Any:
    """A folder of images, a folder for each class, as torchvision reads it: as the pixels lie.

    Args:
        folder: holds one folder per class; a path or a URL.
        resize: length of the shorter side, in pixels; None leaves images as they are.

    Raises:
        MissingExtraError: if torchvision is not installed.
        MissingDataError: if there is no such folder, or no image in it.
        ConfigError: if `resize` is not a length.
    """
    if resize is not None and resize < 1:
        raise ConfigError(f"`--resize` must be 1 or more pixels, got {resize}")
    try:
        from torchvision.datasets import ImageFolder
        from torchvision.transforms import Resize
    except ImportError as error:
        raise MissingExtraError(
            "`--image-folder` reads images with torchvision: pip install 'hotset[vision]'"
        ) from error
    transform = None if resize is None else Resize(resize)
    if isinstance(folder, Url):
        from hotset import datasets

        return datasets.ImageFolder(folder, transform)
    if not folder.is_dir():
        raise MissingDataError(f"there is no folder {folder}")
    try:
        return ImageFolder(str(folder), transform)
    except FileNotFoundError as error:
        raise MissingDataError(
            f"{folder} must hold one folder of images for each class: {error}"
        ) from error
