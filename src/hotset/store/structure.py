"""A sample's structure and its leaves' kinds as plain values, and back. Pure.

Nothing here runs code that a file names: classes are looked up in short lists, and a named tuple is
found only where its module is loaded already.
"""

from __future__ import annotations

import sys
from collections import OrderedDict, namedtuple
from collections.abc import Callable
from importlib import import_module
from typing import Any, cast

import numpy as np
import torch

from hotset.errors import FormatError, SchemaError
from hotset.sample.column import IMAGE_BANDS, IMAGE_DTYPES, LeafSchema
from hotset.sample.tree import LEAF, Spec

DEPTH = 64
"""Containers within containers that a manifest may have."""
AXES = 32
"""Axes that a leaf may have."""
_MAPPINGS: dict[str, type] = {"dict": dict, "OrderedDict": OrderedDict}
_TV_TENSORS = ("Image", "Mask", "Video")
_SCALARS = {
    kind.__name__.rstrip("_"): kind  # NumPy 1 says bool_
    for kind in (
        *(np.bool_, np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32),
        *(np.uint64, np.float16, np.float32, np.float64, np.complex64, np.complex128),
    )
}
_PLAIN: dict[str, type] = {"int": int, "float": float, "bool": bool, "str": str, "bytes": bytes}
_TEXT: dict[str, type] = {"numpy.str_": np.str_, "numpy.bytes_": np.bytes_}
DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in vars(torch).values()
    if isinstance(dtype, torch.dtype) and not str(dtype).startswith(("torch.q", "torch.bits"))
}
"""Every dtype that can be stored, by name."""


def spec_to_json(spec: Spec, path: str = "sample") -> Any:
    """A structure as plain values; leaves are numbered in order.

    Raises:
        SchemaError: for a container that a file cannot describe.
    """
    return _to_json(spec, path, iter(range(spec.count())))


def _to_json(spec: Spec, path: str, numbers: Any) -> Any:
    if spec.kind == "leaf":
        return next(numbers)
    cls = type(spec.example)
    keys = spec.keys if spec.kind == "mapping" else tuple(range(len(spec.children)))
    children = [
        _to_json(child, f"{path}[{key!r}]", numbers)
        for key, child in zip(keys, spec.children, strict=True)
    ]
    if spec.kind == "namedtuple":
        fields = list(spec.example._fields)
        return {"namedtuple": [cls.__module__, cls.__qualname__, fields], "children": children}
    if cls is tuple or cls is list:
        return {cls.__name__: children}
    if _MAPPINGS.get(cls.__name__) is cls and all(type(key) in (str, int) for key in keys):
        return {cls.__name__: list(keys), "children": children}
    raise SchemaError(
        f"{path} is a {cls.__name__}, which a store cannot describe; expected tuples, lists, named "
        "tuples, or dictionaries whose keys are strings or whole numbers"
    )


def spec_from_json(value: Any, leaves: int) -> Spec:
    """The structure that `spec_to_json` described.

    Args:
        value: plain values.
        leaves: how many leaves it must have.

    Raises:
        FormatError: if it describes none.
    """
    numbers = iter(range(leaves))
    spec = _from_json(value, numbers, DEPTH)
    if next(numbers, None) is not None:
        raise FormatError("the structure has fewer leaves than there are fields")
    return spec


def _from_json(value: Any, numbers: Any, depth: int) -> Spec:
    if type(value) is int:
        if value != next(numbers, None):
            raise FormatError(f"the structure's leaves are not numbered in order, at {value}")
        return LEAF
    if not isinstance(value, dict) or depth == 0:
        raise FormatError(f"the structure has {value!r}, which is no container")
    for cls in (tuple, list):
        if list(value) == [cls.__name__]:
            children = _children(value[cls.__name__], numbers, depth)
            kind = "tuple" if cls is tuple else "sequence"
            return Spec(kind, cls([None] * len(children)), (), children)
    for name, mapping in _MAPPINGS.items():
        if list(value) == [name, "children"]:
            keys, children = value[name], _children(value["children"], numbers, depth)
            if not _are_keys(keys) or len(keys) != len(children):
                raise FormatError(f"the structure has a {name} with the keys {keys!r}")
            return Spec("mapping", mapping(dict.fromkeys(keys)), tuple(keys), children)
    if list(value) == ["namedtuple", "children"]:
        children = _children(value["children"], numbers, depth)
        make = _named_tuple(value["namedtuple"], len(children))
        return Spec("namedtuple", make(*[None] * len(children)), (), children)
    raise FormatError(f"the structure has an unknown container, {list(value)!r}")


def _children(values: Any, numbers: Any, depth: int) -> tuple[Spec, ...]:
    if not isinstance(values, list):
        raise FormatError(f"the structure has {values!r} where children belong")
    return tuple(_from_json(value, numbers, depth - 1) for value in values)


def _are_keys(keys: Any) -> bool:
    return (
        isinstance(keys, list)
        and all(type(key) in (str, int) for key in keys)
        and len(set(keys)) == len(keys)
    )


def _named_tuple(value: Any, count: int) -> Callable[..., Any]:
    """The class where its module is loaded already; else one of the same name and fields."""
    problem = FormatError(f"the structure has a named tuple described as {value!r}")
    if not isinstance(value, list) or len(value) != 3:
        raise problem
    home, name, fields = value
    is_text = isinstance(home, str) and isinstance(name, str) and isinstance(fields, list)
    if not is_text or not all(isinstance(f, str) for f in fields) or len(fields) != count:
        raise problem
    found = vars(sys.modules[home]).get(name) if home in sys.modules else None
    is_kind = isinstance(found, type) and issubclass(found, tuple)
    if is_kind and list(getattr(found, "_fields", ())) == fields:
        return cast(Callable[..., Any], found)
    try:
        return namedtuple(name.rpartition(".")[2], fields)
    except (ValueError, TypeError) as error:
        raise problem from error


def class_to_name(schema: LeafSchema, path: str) -> str:
    """The name by which a leaf's class is stored.

    Raises:
        SchemaError: if leaves of this kind cannot be stored; says what to do.
    """
    cls = schema.cls
    if schema.kind == "tensor" and schema.dtype in DTYPES.values():
        if cls is torch.Tensor:
            return "torch.Tensor"
        if cls.__module__.startswith("torchvision.tv_tensors") and cls.__name__ in _TV_TENSORS:
            return f"torchvision.tv_tensors.{cls.__name__}"
    if schema.kind == "array":
        return "numpy.ndarray"
    if schema.kind == "image":
        return "PIL.Image.Image"
    short = cls.__name__.rstrip("_")
    if schema.kind == "scalar" and schema.is_storable and _SCALARS.get(short) is cls:
        return f"numpy.{short}"
    if schema.kind in _PLAIN and (schema.is_storable or schema.kind in ("str", "bytes")):
        if _PLAIN[schema.kind] is cls:
            return cls.__name__
        for name, known in _TEXT.items():
            if known is cls:
                return name
    if schema.kind == "int":
        raise SchemaError(f"{path} is a whole number beyond 64 bits; make it text or a float")
    raise SchemaError(
        f"{path} is of type {cls.__module__}.{cls.__qualname__}, which cannot be stored; expected "
        "tensors, NumPy arrays of PyTorch's dtypes, PIL images of whole bytes (convert('RGB')), "
        "numbers, str or bytes; leave it out, or turn it into one of these in `transform`"
    )


def class_from_name(name: Any, kind: Any) -> type:
    """The class that `class_to_name` named.

    Raises:
        FormatError: if it is none of those.
    """
    if not isinstance(name, str):
        raise FormatError(f"a field has the class {name!r}")
    home, _, short = name.rpartition(".")
    if kind == "tensor" and name == "torch.Tensor":
        return torch.Tensor
    if kind == "tensor" and home == "torchvision.tv_tensors" and short in _TV_TENSORS:
        return getattr(import_module(home), short)  # type: ignore[no-any-return]
    if kind == "array" and name == "numpy.ndarray":
        return np.ndarray
    if kind == "image" and name == "PIL.Image.Image":
        return import_module("PIL.Image").Image  # type: ignore[no-any-return]
    if kind == "scalar" and home == "numpy" and short in _SCALARS:
        return _SCALARS[short]
    if kind in ("str", "bytes") and name in _TEXT and issubclass(_TEXT[name], _PLAIN[kind]):
        return _TEXT[name]
    if kind in _PLAIN and name == kind:
        return _PLAIN[kind]
    raise FormatError(f"a field of kind {kind!r} has the class {name!r}")


def check_mode(mode: Any, channels: int, dtype: torch.dtype | None) -> str:
    """A PIL mode that fits a number of channels and a dtype.

    Raises:
        FormatError: if it does not.
    """
    if isinstance(mode, str):
        if IMAGE_BANDS.get(mode) == channels and dtype is torch.uint8:
            return mode
        if mode in IMAGE_DTYPES and channels == 1 and IMAGE_DTYPES[mode] is dtype:
            return mode
    raise FormatError(f"PIL mode {mode!r} does not fit {channels} channels of {dtype}")
