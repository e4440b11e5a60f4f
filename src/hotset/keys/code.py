"""Functions, classes and modules taken apart: what their code does, and all that it names.

Names of files, numbers of lines, comments, docstrings and annotations do not count. What a function
finds under a global name counts, wherever it was defined; so do its imports, the environment
variables that it names, and a string that may stand for a name where it calls `getattr` and the
like. A library's code counts by its name and version.
"""

from __future__ import annotations

import builtins
import functools
import importlib
import importlib.util
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any

from hotset.keys.bytecode import HAS_DOCSTRING, Import, Names, instructions_of, names_of
from hotset.keys.origin import is_found, library_of_function, library_of_import, library_of_module
from hotset.keys.piece import Link, Piece, label

OWN_NAMES = frozenset(
    ("__builtins__", "__doc__", "__file__", "__loader__", "__name__", "__package__", "__spec__")
)
"""Globals that say where a module is. A script is `__main__` here and `__mp_main__` in a worker."""
BY_TEXT = frozenset(
    ("__import__", "attrgetter", "getattr", "globals", "import_module", "modules", "vars")
)
"""Names of what finds things by strings."""
AS_CODE = frozenset(("compile", "eval", "exec"))
ENVIRONMENT = frozenset(("environ", "environb", "getenv"))
NOT_BEHAVIOUR = frozenset(
    (
        *("__abstractmethods__", "__annotate__", "__annotate_func__", "__annotations__"),
        *("__annotations_cache__", "__classcell__", "__classdictcell__", "__dict__", "__doc__"),
        *("__firstlineno__", "__module__", "__orig_bases__", "__parameters__", "__qualname__"),
        *("__static_attributes__", "__type_params__", "__weakref__", "_abc_impl"),
    )
)
"""Attributes of a class that say where it is, describe it, or cache."""
HEAP_TYPE = 1 << 9
"""Flag of a type that was made at run time: https://docs.python.org/3/c-api/typeobj.html."""


@dataclass(frozen=True)
class ModuleUse:
    """A module, and what is used of it; None is all."""

    module: ModuleType
    names: frozenset[str] | None = None


@dataclass(frozen=True, eq=False)
class Stand:
    """Stands for what is known by a word alone: a library, or that there is nothing."""

    word: str


def where_is(function: FunctionType) -> str:
    """What messages call a function, as in "crop at my_file.py:12"."""
    code = function.__code__
    name = code.co_qualname.rpartition("<locals>.")[2]
    return f"{name} at {Path(code.co_filename).name}:{code.co_firstlineno}"


def code_piece(code: CodeType) -> Piece:
    """A code object: instructions, constants and the names of its variables."""
    rows, constants = instructions_of(code)
    arguments = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount)
    variables = (code.co_varnames, code.co_cellvars, code.co_freevars)
    flags = code.co_flags & ~HAS_DOCSTRING
    head = label("code", code.co_name, arguments, flags, variables, code.co_exceptiontable, rows)
    return Piece(head, [(("a constant in {}", code.co_name), constant) for constant in constants])


def function_piece(function: FunctionType) -> Piece:
    """A function: its code, defaults and closure, and what it names."""
    library = library_of_function(function)
    if library is None:
        where = where_is(function)
        folders: tuple[str, ...] = ()
        names = names_of(function.__code__)
        links: list[Link] = [(("the code of {}", where), function.__code__)]
        links += _named(function, names, where)
        attributes = sorted(vars(function).items())
        links += [(("attribute {!r} of {}", name, where), value) for name, value in attributes]
        if "__file__" in names.all:
            folders = (os.path.dirname(function.__globals__.get("__file__") or ""),)
        head = label("function", [name for name, _ in attributes])
        return Piece(head, [*links, *_bound(function, names, where)], True, folders)
    name, home = function.__qualname__, function.__module__
    # A library's decorator gives its own function the module and name of the user's.
    if library_of_module(home) is not None and is_found(home, name, function):
        return Piece(label("library function", library, home, name))
    head = label("closure", library, function.__code__.co_qualname)
    return Piece(head, list(_wrapped(function)))


def _wrapped(function: FunctionType) -> Iterator[Link]:
    """What a function that a library made holds of the user's."""
    where = function.__qualname__
    compiled = getattr(function, "_torchdynamo_orig_callable", None)
    if compiled is not None:
        yield ("what {} compiles", where), compiled
        return
    registry = getattr(function, "registry", None)  # of functools.singledispatch
    if registry is not None and hasattr(function, "dispatch"):
        yield ("the registry of {}", where), dict(registry)
        return
    yield from _bound(function, names_of(function.__code__), where)
    if hasattr(function, "__wrapped__"):
        yield ("what {} wraps", where), function.__wrapped__


def _bound(function: FunctionType, names: Names, where: str) -> Iterator[Link]:
    """Defaults and closure."""
    code = function.__code__
    defaults = function.__defaults__ or ()
    arguments = code.co_varnames[: code.co_argcount]
    for name, value in zip(arguments[len(arguments) - len(defaults) :], defaults, strict=True):
        yield ("the default of {!r} of {}", name, where), value
    for name, value in sorted((function.__kwdefaults__ or {}).items()):
        yield ("", ""), name
        yield ("the default of {!r} of {}", name, where), value
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        yield ("closure variable {!r} of {}", name, where), _in_cell(cell, names)


def _in_cell(cell: CellType, names: Names) -> Any:
    try:
        return _used(cell.cell_contents, names)
    except ValueError:
        return Stand("empty cell")


def _used(value: Any, names: Names) -> Any:
    """A value as a function uses it: of a module, only what the function names."""
    if isinstance(value, ModuleType):
        return ModuleUse(value, frozenset(names.all))
    return value


def _named(function: FunctionType, names: Names, where: str) -> Iterator[Link]:
    """What a user's function finds under the names it uses."""
    space = function.__globals__
    texts = sorted(names.texts)
    if not names.all.isdisjoint(AS_CODE):
        for text in texts:
            _add_names_in(text, names)
    looked_up = [name for name in names.looked_up if name not in OWN_NAMES]
    if not names.all.isdisjoint(BY_TEXT):
        looked_up += [text for text in texts if text in space and text not in looked_up]
        names.all.update(text for text in texts if text.isidentifier())
        for text in texts:
            if isinstance(sys.modules.get(text), ModuleType):
                yield ("module {!r} named in {}", text, where), _used(sys.modules[text], names)
    for name in looked_up:
        if name in space:
            value = _used(space[name], names)
        else:
            value = getattr(builtins, name, Stand("no such name"))
        yield ("global {!r} of {}", name, where), value
    if not names.all.isdisjoint(ENVIRONMENT):
        for text in texts:
            words = ("environment variable {!r} of {}", text, where)
            yield words, os.environ.get(text) if _is_variable(text) else None
    for each in names.imports:
        for words, value in _imported(each, space, names):
            yield (f"{words[0]} in {{}}", *words[1:], where), value


def _add_names_in(text: str, names: Names) -> None:
    """Adds the names in a text that is run as code, if it is that."""
    try:
        inner = names_of(compile(text, "<text>", "exec", dont_inherit=True))
    except (SyntaxError, ValueError):
        return
    names.looked_up.update(inner.looked_up)
    names.all.update(inner.all)
    names.imports.update(inner.imports)


def _is_variable(text: str) -> bool:
    return text != "" and "=" not in text and "\0" not in text


def _imported(statement: Import, space: dict[str, Any], names: Names) -> Iterator[Link]:
    """What an import statement inside a function gives; imports it, as a call would."""
    package = space.get("__package__")
    if package is None:
        package = str(space.get("__name__", "")).rpartition(".")[0]
    try:
        full = importlib.util.resolve_name("." * statement.level + statement.name, package or None)
    except ImportError:
        full = statement.name
    library = library_of_import(full)
    if library is not None:  # need not be imported for that
        yield ("import of {}", full), Stand(f"{full} of {library}")
        return
    module = _module(full)
    if isinstance(module, Stand) or not statement.members:
        while full:  # `import a.b` gives a, and a.b as an attribute of it
            yield ("import of {}", full), _used(_module(full), names)
            full = full.rpartition(".")[0]
        return
    for member in statement.members:
        value = getattr(module, member, None)
        if not hasattr(module, member):
            value = _module(f"{full}.{member}")
        yield ("import of {} from {}", member, full), _used(value, names)


def _module(name: str) -> ModuleType | Stand:
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:  # whatever a user's module does when imported
        return Stand(f"import fails: {type(error).__name__}")


def module_piece(use: ModuleUse) -> Piece:
    """A module: a library's by its version, the user's by what is used of it."""
    module = use.module
    library = library_of_module(module.__name__)
    if library is not None:
        return Piece(label("library module", library, module.__name__))
    space = vars(module)
    if use.names is None:
        names = {name for name in space if not (name.startswith("__") and name.endswith("__"))}
    else:
        names = set(use.names - OWN_NAMES) & space.keys()
    links: list[Link] = []
    for name in sorted(names | ({"__getattr__"} & space.keys())):
        value = space[name]
        if isinstance(value, ModuleType):
            value = ModuleUse(value, use.names or frozenset())
        links.append((("global {!r} of module {}", name, module.__name__), value))
    return Piece(label("module", sorted(names)), links)


def class_piece(cls: type) -> Piece:
    """A class: a library's by its name and version, the user's by its bases and attributes.

    A method of the user's own counts also where it was put into a library's class.
    """
    library = library_of_module(cls.__module__)
    where, space = cls.__qualname__, vars(cls)
    is_static = not cls.__flags__ & HEAP_TYPE
    if library is not None and (is_static or is_found(cls.__module__, where, cls)):
        patches = [
            (("attribute {!r} of {}", name, base.__qualname__), value)
            for base in cls.__mro__
            if base.__flags__ & HEAP_TYPE
            for name, value in sorted(vars(base).items())
            if _is_users(value)
        ]
        return Piece(label("library class", library, cls.__module__, where), patches)
    names = sorted(space.keys() - NOT_BEHAVIOUR)
    links: list[Link] = [(("the metaclass of {}", where), type(cls))]
    links += [(("base class {} of {}", base.__name__, where), base) for base in cls.__bases__]
    for name in names:
        value = space[name]
        if isinstance(value, functools.cached_property):
            value = value.func  # beside it, some versions hold a lock
        links.append((("attribute {!r} of {}", name, where), value))
    return Piece(label("class", cls.__name__, len(cls.__bases__), names), links)


def _is_users(value: Any) -> bool:
    function = value.__func__ if isinstance(value, (staticmethod, classmethod)) else value
    return isinstance(function, FunctionType) and library_of_function(function) is None
