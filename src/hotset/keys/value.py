"""Any object taken apart: of what kind it is, and which further objects it consists of."""

from __future__ import annotations

import functools
import gc
import random
import sys
import types
import typing
import weakref
from collections.abc import Callable
from enum import Enum
from pathlib import PurePath
from typing import Any

import numpy as np
import torch

from hotset.keys.code import (
    ModuleUse,
    Stand,
    class_piece,
    code_piece,
    function_piece,
    module_piece,
)
from hotset.keys.content import (
    array_piece,
    generator_piece,
    image_piece,
    is_image,
    tensor_piece,
)
from hotset.keys.origin import is_found, library_of_module
from hotset.keys.piece import Link, Piece, UnkeyableError, label
from hotset.keys.state import state_piece

UFUNC_HOMES = ("numpy", "numpy._core.umath", "scipy.special")
"""Modules whose ufuncs are known by their names."""


def take_apart(value: Any) -> Piece:
    """What an object consists of.

    Raises:
        UnkeyableError: if it does not say.
    """
    kind = type(value)
    maker = _EXACT.get(kind)
    if maker is not None:
        return maker(value)
    for family, maker in _FAMILIES:
        if issubclass(kind, family):
            return maker(value)
    if is_image(value):
        return image_piece(value)
    special = _special(value)
    return state_piece(value) if special is None else special


def _items(value: Any) -> Piece:
    links = [(("item {}", number), item) for number, item in enumerate(value)]
    return Piece(label(type(value).__name__), links)


def _mapping(value: Any) -> Piece:
    links: list[Link] = [(("its keys",), list(value))]  # one link for all: half the time
    links += [(("item {!r}", key), item) for key, item in value.items()]
    return Piece(label(type(value).__name__), links)


def _set(value: Any) -> Piece:
    return Piece(label(type(value).__name__), [(("an item",), item) for item in value], False)


def _range(value: Any) -> Piece:
    return Piece(label("range"), [(("the bounds",), (value.start, value.stop, value.step))])


def _slice(value: Any) -> Piece:
    return Piece(label("slice"), [(("the bounds",), (value.start, value.stop, value.step))])


def _memory(value: Any) -> Piece:
    head = (type(value).__name__, getattr(value, "format", "B"), getattr(value, "shape", ()))
    return Piece(label(*head), [(("the bytes",), bytes(value))])


def _reference(value: Any) -> Piece:
    return Piece(label("weakref"), [(("what is referred to",), value())])


def _method(value: Any) -> Piece:
    name = value.__func__.__name__ if hasattr(value.__func__, "__name__") else "a method"
    links = [(("the object of {}", name), value.__self__), (("{}", name), value.__func__)]
    return Piece(label("method"), links)


def _wrapper(value: Any) -> Piece:
    links = [(("what a method wraps",), value.__func__), (("its class",), type(value))]
    return Piece(label(type(value).__name__), links)


def _property(value: Any) -> Piece:
    names = ("fget", "fset", "fdel")
    links = [(("the {} of a property", name), getattr(value, name)) for name in names]
    return Piece(label("property"), [*links, (("its class",), type(value))])


def _partial(value: Any) -> Piece:
    links: list[Link] = [(("the function of a partial",), value.func)]
    for number, argument in enumerate(value.args):
        links.append((("argument {} of a partial", number), argument))
    names = sorted(value.keywords)
    links += [(("argument {!r} of a partial", name), value.keywords[name]) for name in names]
    links += [(("the class of a partial",), type(value)), (("further",), dict(vars(value)))]
    return Piece(label("partial", len(value.args), names), links)


def _cached(value: Any) -> Piece:
    links = [(("what is cached",), value.__wrapped__)]
    return Piece(label("lru_cache", sorted(value.cache_parameters().items())), links)


def _builtin(value: Any) -> Piece:
    """A function of C code, and what it is bound to."""
    owner = getattr(value, "__self__", None)
    owner = getattr(value, "__objclass__", owner)
    home = getattr(value, "__module__", None)
    if home is None and owner is not None and not isinstance(owner, types.ModuleType):
        home = (owner if isinstance(owner, type) else type(owner)).__module__
    head = label(type(value).__name__, home, library_of_module(home), value.__qualname__)
    if owner is None or isinstance(owner, types.ModuleType):
        return Piece(head)
    return Piece(head, [(("the object of {}", value.__name__), owner)])


def _ufunc(value: Any) -> Piece:
    """A ufunc by the name under which a library has it; the user's own by its Python function.

    Raises:
        UnkeyableError: if it is neither.
    """
    name = value.__name__
    for home in UFUNC_HOMES:
        if is_found(home, name, value):
            return Piece(label("ufunc", name, library_of_module(home)))
    # `numpy.frompyfunc` shows its function to the garbage collector alone.
    functions = [each for each in gc.get_referents(value) if callable(each)]
    if functions:
        links: list[Link] = [(("the function of the ufunc {}", name), each) for each in functions]
        links.append((("the identity of the ufunc {}", name), value.identity))
        return Piece(label("ufunc of", value.nin, value.nout), links)
    # Not by `getattr`: a module may warn, or import more, where a name is asked for.
    libraries = {
        library_of_module(home)
        for home, module in list(sys.modules.items())
        if getattr(module, "__dict__", {}).get(name) is value
    }
    found = sorted(library for library in libraries if library is not None)
    if not found:
        raise UnkeyableError(f"a ufunc that no library has under its name ({name})")
    return Piece(label("ufunc", name, found[0]))


def _enum(value: Any) -> Piece:
    links = [(("class {}", type(value).__name__), type(value)), (("its value",), value.value)]
    return Piece(label("enum", value.name), links)


def _path(value: Any) -> Piece:
    return Piece(label("path", type(value).__name__), [(("the path",), str(value))])


def _typing(value: Any) -> Piece:
    return Piece(label("typing", repr(value).partition(" at 0x")[0]))


def _special(value: Any) -> Piece | None:
    """Objects whose pickled state is of no use: it changes with each process or each call."""
    kind = type(value)
    if value is getattr(random, "_inst", None) or value is np.random.mtrand._rand:
        return Piece(label("the process's own generator", kind.__qualname__))
    if kind.__module__ in ("typing", "types") and kind is not types.SimpleNamespace:
        return _typing(value)
    if kind.__module__.startswith("numba.") and hasattr(value, "py_func"):
        links = [(("the function of {}", kind.__name__), value.py_func)]
        options = sorted((str(k), repr(v)) for k, v in getattr(value, "targetoptions", {}).items())
        return Piece(label("numba", library_of_module("numba"), options), links)
    if kind in (torch.finfo, torch.iinfo):
        return Piece(label("limits", repr(value)))
    if kind.__module__ == "torch._ops":
        return Piece(label("torch operator", library_of_module("torch"), str(value)))
    return None


def _weak(value: Any) -> Piece:
    plain = set(value) if isinstance(value, weakref.WeakSet) else dict(value.items())
    return Piece(label(type(value).__name__), [(("its items",), plain)])


def _view(value: Any) -> Piece:
    return Piece(label(type(value).__name__), [(("its items",), list(value))])


def _stand(value: Stand) -> Piece:
    return Piece(label("stand", value.word))


Maker = Callable[[Any], Piece]

_EXACT: dict[type, Maker] = {
    **dict.fromkeys((list, tuple), _items),
    **dict.fromkeys((dict, types.MappingProxyType), _mapping),
    **dict.fromkeys((set, frozenset), _set),
    **dict.fromkeys((bytearray, memoryview), _memory),
    **dict.fromkeys((type({}.keys()), type({}.values()), type({}.items())), _view),
    **dict.fromkeys(
        (
            *(types.BuiltinFunctionType, types.MethodWrapperType, types.WrapperDescriptorType),
            *(types.MethodDescriptorType, types.ClassMethodDescriptorType),
            *(types.GetSetDescriptorType, types.MemberDescriptorType),
        ),
        _builtin,
    ),
    **dict.fromkeys((types.GenericAlias, types.UnionType), _typing),
    **dict.fromkeys((weakref.WeakSet, weakref.WeakKeyDictionary), _weak),
    weakref.WeakValueDictionary: _weak,
    types.FunctionType: function_piece,
    types.CodeType: code_piece,
    types.MethodType: _method,
    types.ModuleType: lambda module: module_piece(ModuleUse(module)),
    types.CellType: lambda cell: Piece(label("cell"), [(("a cell",), cell.cell_contents)]),
    type(functools.lru_cache(abs)): _cached,
    ModuleUse: module_piece,
    Stand: _stand,
    range: _range,
    slice: _slice,
    np.ndarray: array_piece,
    np.memmap: array_piece,
    np.ufunc: _ufunc,
    typing.TypeVar: _typing,
}

_FAMILIES: tuple[tuple[Any, Maker], ...] = (
    (type, class_piece),
    (torch.Tensor, tensor_piece),
    (torch.Generator, generator_piece),
    (Enum, _enum),
    ((staticmethod, classmethod), _wrapper),
    (property, _property),
    (PurePath, _path),
    (weakref.ref, _reference),
    (functools.partial, _partial),
    (types.ModuleType, lambda module: module_piece(ModuleUse(module))),
)
