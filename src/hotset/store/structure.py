"""A sample's structure and its leaves' kinds as plain values, and back. Pure.

Nothing here runs code that a file names: classes are looked up in short lists, and a named tuple is
found only where its module is loaded already.
"""

from __future__ import annotations

import re
import sys
from collections import OrderedDict, namedtuple
from importlib import import_module
from typing import Any

import numpy as np
import torch

from hotset.errors import FormatError, MissingExtraError, SchemaError
from hotset.sample.column import IMAGE_BANDS, IMAGE_DTYPES, LeafSchema, is_int64
from hotset.sample.tree import LEAF, Spec

DEPTH = 64
"""Containers within containers that a sample may have."""
AXES = 31
"""Axes that a leaf may have: NumPy 1 reads arrays of 32, and samples are one of them."""
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
_WHOLE_BYTES = re.compile(
    r"bool|u?int(8|16|32|64)|float(16|32|64)|bfloat16|complex(32|64|128)|float8_\w+"
)
DTYPES = {
    name: dtype
    for dtype in vars(torch).values()
    if isinstance(dtype, torch.dtype)
    and _WHOLE_BYTES.fullmatch(name := str(dtype).removeprefix("torch."))
}
"""Every dtype that can be stored, by name: values of whole bytes, which torch can copy."""
SHOWN = 120


def in_short(value: Any) -> str:
    """What a file says where it should say something else, for a message."""
    try:
        text = repr(value)
    except (RecursionError, ValueError):  # nested too deeply; a number of too many digits
        text = f"a {type(value).__name__}"
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"


def spec_to_json(spec: Spec, path: str = "sample") -> Any:
    """A structure as plain values; leaves are numbered in order.

    Raises:
        SchemaError: for a container that a file cannot describe.
    """
    if spec.count() == 0:
        raise SchemaError(f"{path} holds no value: there is nothing to store")
    return _to_json(spec, path, iter(range(spec.count())), DEPTH)


def _to_json(spec: Spec, path: str, numbers: Any, depth: int) -> Any:
    if spec.kind == "leaf":
        return next(numbers)
    if depth == 0:
        raise SchemaError(f"{path} lies within more than {DEPTH} containers; make it flatter")
    cls = type(spec.example)
    keys = spec.keys if spec.kind == "mapping" else tuple(range(len(spec.children)))
    children = [
        _to_json(child, f"{path}[{key!r}]", numbers, depth - 1)
        for key, child in zip(keys, spec.children, strict=True)
    ]
    if spec.kind == "namedtuple":
        described = [cls.__module__, cls.__qualname__, list(spec.example._fields)]
        if _like_named_tuple(described, len(children)) is None:
            raise SchemaError(
                f"{path} is a {cls.__name__} with the fields {described[2]}, which is no named "
                "tuple as `collections.namedtuple` makes them; make it a tuple or a dictionary"
            )
        return {"namedtuple": described, "children": children}
    if cls is tuple or cls is list:
        return {cls.__name__: children}
    if _MAPPINGS.get(cls.__name__) is cls and _are_keys(list(keys)):
        return {cls.__name__: list(keys), "children": children}
    raise SchemaError(
        f"{path} is a {cls.__name__}, which a store cannot describe; expected tuples, lists, named "
        "tuples, or dictionaries whose keys are strings or whole numbers of 64 bits"
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
        raise FormatError(f"the structure has {in_short(value)}, which is no container")
    for cls in (tuple, list):
        if list(value) == [cls.__name__]:
            children = _children(value[cls.__name__], numbers, depth)
            kind = "tuple" if cls is tuple else "sequence"
            return Spec(kind, cls([None] * len(children)), (), children)
    for name, mapping in _MAPPINGS.items():
        if list(value) == [name, "children"]:
            keys, children = value[name], _children(value["children"], numbers, depth)
            if not _are_keys(keys) or len(keys) != len(children):
                raise FormatError(f"the structure has a {name} with the keys {in_short(keys)}")
            return Spec("mapping", mapping(dict.fromkeys(keys)), tuple(keys), children)
    if list(value) == ["namedtuple", "children"]:
        children = _children(value["children"], numbers, depth)
        make = _named_tuple(value["namedtuple"], len(children))
        hollow = tuple.__new__(make, [None] * len(children))  # no code of the class's own runs
        return Spec("namedtuple", hollow, (), children)
    raise FormatError(f"the structure has an unknown container, {in_short(list(value))}")


def _children(values: Any, numbers: Any, depth: int) -> tuple[Spec, ...]:
    if not isinstance(values, list):
        raise FormatError(f"the structure has {in_short(values)} where children belong")
    return tuple(_from_json(value, numbers, depth - 1) for value in values)


def _are_keys(keys: Any) -> bool:
    return (
        isinstance(keys, list)
        and all(type(key) is str or (type(key) is int and is_int64(key)) for key in keys)
        and len(set(keys)) == len(keys)
    )


def _named_tuple(value: Any, count: int) -> type[tuple[Any, ...]]:
    """The class where its module is loaded already; else one of the same name and fields."""
    like = _like_named_tuple(value, count)
    if like is None:
        raise FormatError(f"the structure has a named tuple described as {in_short(value)}")
    home, name, fields = value
    found = getattr(sys.modules.get(home), "__dict__", {}).get(name)
    if not isinstance(found, type) or not issubclass(found, tuple):
        return like
    return found if list(getattr(found, "_fields", ())) == fields else like


def _like_named_tuple(value: Any, count: int) -> type[tuple[Any, ...]] | None:
    """A named tuple as described by module, name and fields; None where there can be none."""
    if not isinstance(value, list) or len(value) != 3:
        return None
    home, name, fields = value
    is_text = isinstance(home, str) and isinstance(name, str) and isinstance(fields, list)
    if not is_text or not all(isinstance(f, str) for f in fields) or len(fields) != count:
        return None
    try:
        # `rename` lets names such as `_1` pass, which it makes itself, and changes all other names
        # that cannot be.
        like = namedtuple(name.rpartition(".")[2], fields, rename=True)  # type: ignore[misc]
    except ValueError:
        return None
    return like if list(like._fields) == fields else None


def class_to_name(schema: LeafSchema, path: str) -> str:
    """The name by which a leaf's class is stored.

    Raises:
        SchemaError: if leaves of this kind cannot be stored; says what to do.
    """
    cls = schema.cls
    if len(schema.shape) > AXES:
        raise SchemaError(
            f"{path} has {len(schema.shape)} axes; a store keeps up to {AXES}: reshape it"
        )
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
        raise FormatError(f"a field has the class {in_short(name)}")
    home, _, short = name.rpartition(".")
    if kind == "tensor" and name == "torch.Tensor":
        return torch.Tensor
    if kind == "tensor" and home == "torchvision.tv_tensors" and short in _TV_TENSORS:
        return _imported(home, short, "vision")
    if kind == "array" and name == "numpy.ndarray":
        return np.ndarray
    if kind == "image" and name == "PIL.Image.Image":
        return _imported("PIL.Image", "Image", "vision")
    if kind == "scalar" and home == "numpy" and short in _SCALARS:
        return _SCALARS[short]
    if kind in ("str", "bytes") and name in _TEXT and issubclass(_TEXT[name], _PLAIN[kind]):
        return _TEXT[name]
    if kind in _PLAIN and name == kind:
        return _PLAIN[kind]
    raise FormatError(f"a field of kind {in_short(kind)} has the class {in_short(name)}")


def _imported(home: str, name: str, extra: str) -> type:
    try:
        return getattr(import_module(home), name)  # type: ignore[no-any-return]
    except ImportError as error:
        raise MissingExtraError(
            f"the store holds {home}.{name}, and {error.name} is not installed; "
            f"pip install 'hotset[{extra}]'"
        ) from error


def check_mode(mode: Any, channels: int | None, dtype: torch.dtype) -> str:
    """A PIL mode that fits a number of channels, if one is given, and a dtype.

    Raises:
        FormatError: if it does not.
    """
    if isinstance(mode, str) and mode in (*IMAGE_BANDS, *IMAGE_DTYPES):
        is_alike = IMAGE_DTYPES.get(mode, torch.uint8) is dtype
        if is_alike and channels in (None, IMAGE_BANDS.get(mode, 1)):
            return mode
    raise FormatError(f"PIL mode {in_short(mode)} does not fit {channels} channels of {dtype}")
