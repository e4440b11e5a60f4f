"""Objects of any class taken apart by their state, and those that have none that lasts."""

from __future__ import annotations

import copyreg
import functools
import sys
from collections.abc import Iterator
from typing import Any

import torch

from hotset.keys.origin import library_of_module
from hotset.keys.piece import Link, Piece, UnkeyableError, label

_MAKERS = (copyreg.__newobj__, copyreg.__newobj_ex__)  # type: ignore[attr-defined]
REFUSED = (
    ("io", "BytesIO", ""),
    ("io", "StringIO", ""),
    ("io", "IOBase", "an open file"),
    ("socket", "socket", "a socket"),
    ("threading", "Thread", "a thread"),
    ("types", "GeneratorType", "a generator"),
    ("types", "AsyncGeneratorType", "a generator"),
    ("types", "CoroutineType", "a coroutine"),
    ("types", "FrameType", "a running frame"),
    ("types", "TracebackType", "a traceback"),
    ("_thread", "LockType", "a lock"),
    ("_thread", "RLock", "a lock"),
    ("multiprocessing.synchronize", "SemLock", "a lock"),
    ("sqlite3", "Connection", "an open database"),
    ("sqlite3", "Cursor", "an open database"),
    ("subprocess", "Popen", "a process"),
    ("mmap", "mmap", "a memory map"),
    ("ctypes", "CDLL", "a library opened by ctypes"),
    ("ctypes", "_Pointer", "a pointer of ctypes"),
    ("ctypes", "_CFuncPtr", "a pointer of ctypes"),
)
"""Module, class and what it is; no words where it can be keyed, though a class below is refused."""


def state_piece(value: Any) -> Piece:
    """An object by its class, and the state with which pickle would make it anew.

    Raises:
        UnkeyableError: if it has a state that does not last, or does not give it.
    """
    kind = type(value)
    _refuse(value, kind)
    links: list[Link] = [(("class {}", kind.__qualname__), kind)]
    try:
        reduce = copyreg.dispatch_table.get(kind)
        reduced = value.__reduce_ex__(4) if reduce is None else reduce(value)
        if isinstance(reduced, str):  # known by its name
            home = getattr(value, "__module__", kind.__module__)
            head = label("global", reduced, library_of_module(home))
            state = getattr(value, "__dict__", {})
            return Piece(head, [*links, *_attributes(state, kind)])
        maker, arguments, state, items, pairs = (*reduced, None, None, None)[:5]
        items = None if items is None else list(items)
        pairs = None if pairs is None else list(pairs)
    except Exception as error:  # whatever a class does when asked for its state
        if issubclass(kind, torch.nn.Module):  # one with parametrizations refuses to be pickled
            return Piece(label("module state"), [*links, *_attributes(vars(value), kind)])
        what = "an iterator" if issubclass(kind, Iterator) else "an object"
        raise UnkeyableError(f"{what} that does not give its state ({_shown(value)})") from error
    if maker not in _MAKERS:
        links.append((("what makes a {}", kind.__qualname__), maker))
    for number, argument in enumerate(arguments or ()):
        if argument is not kind:
            links.append((("argument {} of {}", number, kind.__qualname__), argument))
    count = len(links)
    links += _state(state, kind)
    for words, more in (("its items", items), ("its pairs", pairs)):
        if more is not None:
            links.append(((words,), more))
    return Piece(label("instance", count, items is None, pairs is None), links)


def _state(state: Any, kind: type) -> Iterator[Link]:
    if isinstance(state, dict):
        yield from _attributes(state, kind)
    elif isinstance(state, tuple) and len(state) == 2 and isinstance(state[1], dict):
        yield from _attributes(state[0] if isinstance(state[0], dict) else {}, kind)
        yield from _attributes(state[1], kind)
        yield ("its state",), None if isinstance(state[0], dict) else state[0]
    else:
        yield ("its state",), state


def _attributes(state: dict[Any, Any], kind: type) -> Iterator[Link]:
    """Attributes in the order of their names; what `cached_property` keeps there is left out."""
    if not all(isinstance(name, str) for name in state):
        yield ("its state",), dict(state)
        return
    if issubclass(kind, torch.nn.Module):
        state = _with_hooks_numbered(state)
    names = [name for name in sorted(state) if not _is_cached(kind, name)]
    yield ("the names of its attributes",), names
    for name in names:
        yield ("attribute {!r} of {}", name, kind.__qualname__), state[name]


def _with_hooks_numbered(state: dict[str, Any]) -> dict[str, Any]:
    """A module's state with its hooks numbered from 0; torch counts those of all modules."""
    tables = {n: t for n, t in state.items() if "_hooks" in n and isinstance(t, dict)}
    numbers = sorted({key for table in tables.values() for key in table if type(key) is int})
    place = {key: number for number, key in enumerate(numbers)}
    for name, table in tables.items():
        tables[name] = {place.get(key, key): value for key, value in table.items()}
    return {**state, **tables}


def _is_cached(kind: type, name: str) -> bool:
    return isinstance(getattr(kind, name, None), functools.cached_property)


def _refuse(value: Any, kind: type) -> None:
    for module, name, words in REFUSED:
        refused = getattr(sys.modules.get(module), name, None)
        if isinstance(refused, type) and issubclass(kind, refused):
            if words:
                raise UnkeyableError(f"{words} ({_shown(value)})")
            return


def _shown(value: Any) -> str:
    name = f"{type(value).__module__}.{type(value).__qualname__}"
    file = getattr(value, "name", None)
    return f"{name} of {file!r}" if isinstance(file, str) and name.startswith("_io.") else name
