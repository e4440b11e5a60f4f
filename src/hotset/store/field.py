"""One leaf of every sample, as a manifest describes it. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from hotset.errors import FormatError
from hotset.sample.column import LeafSchema, has_numpy
from hotset.store.npy import MOST, array_dtype
from hotset.store.structure import (
    AXES,
    DTYPES,
    check_mode,
    class_from_name,
    class_to_name,
    in_short,
)

NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
"""What a file may be called, but for its suffixes."""
MOST_EDGE = 1 << 24
"""Longest edge of an image: one without area costs PIL memory all the same."""
MOST_MODES = 99


@dataclass(frozen=True)
class Field:
    """One leaf of every sample.

    Attributes:
        name: what its files are called.
        path: how it is reached from a sample, as `[0]`.
        schema: of the first leaf.
        is_ragged: whether shapes differ, or it is text.
        modes: PIL modes that occur, of ragged images.
    """

    name: str
    path: str
    schema: LeafSchema
    is_ragged: bool
    modes: tuple[str, ...] = ()

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of the values."""
        return self.schema.dtype or torch.uint8

    @property
    def axes(self) -> int:
        """Axes of one leaf as stored."""
        return len(self.schema.shape) if self.schema.is_storable else 1

    @property
    def item_bytes(self) -> int:
        """Bytes of one dense leaf."""
        return self.schema.nbytes

    @property
    def data_file(self) -> str:
        """Name of the file of values."""
        return f"{self.name}.data.npy" if self.is_ragged else f"{self.name}.npy"

    @property
    def index_file(self) -> str:
        """Name of the file of starts and shapes, where it is ragged."""
        return f"{self.name}.index.npy"

    @property
    def index_columns(self) -> int:
        """Columns of the index: start, shape, and mode of an image."""
        return 1 + self.axes + (self.schema.kind == "image")

    def as_dict(self) -> dict[str, Any]:
        """Plain values.

        Raises:
            SchemaError: if leaves of this kind cannot be stored.
        """
        return {
            "name": self.name,
            "path": self.path,
            "kind": self.schema.kind,
            "class": class_to_name(self.schema, f"sample{self.path}"),
            "shape": list(self.schema.shape),
            "dtype": str(self.dtype).removeprefix("torch."),
            "stored_as": array_dtype(self.dtype).str,
            "layout": "ragged" if self.is_ragged else "dense",
            "mode": self.schema.mode,
            "modes": list(self.modes),
        }

    def __str__(self) -> str:
        dtype = str(self.dtype).removeprefix("torch.")
        if self.schema.kind in ("str", "bytes"):
            return self.schema.kind
        shape = "x".join("?" if self.is_ragged else str(edge) for edge in self.schema.shape)
        modes = "/".join(self.modes or (self.schema.mode,))
        kind = f"PIL {modes} " if self.schema.kind == "image" else ""
        return f"{kind}{dtype}" + (f"[{shape}]" if self.schema.shape else "")


def field_from_dict(value: Any) -> Field:
    """The field that `Field.as_dict` described, but for its path.

    Raises:
        FormatError: if it describes none.
        KeyError: if something is missing.
        TypeError: if something is of another type than it should be.
    """
    name, kind, dtype = value["name"], value["kind"], DTYPES.get(value["dtype"])
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise FormatError(f"a field is called {in_short(name)}; expected a-z, 0-9, _ or -")
    if dtype is None:
        raise FormatError(f"the field {name} has the dtype {in_short(value['dtype'])}")
    if value["stored_as"] != array_dtype(dtype).str:
        raise FormatError(f"the field {name} is stored as {in_short(value['stored_as'])}")
    cls = class_from_name(value["class"], kind)
    shape = _shape(name, kind, value["shape"])
    is_text, is_ragged = kind in ("str", "bytes"), value["layout"] == "ragged"
    if value["layout"] not in ("dense", "ragged") or (is_text and not is_ragged):
        raise FormatError(f"the field {name} has the layout {in_short(value['layout'])}")
    is_plain = kind in ("int", "float", "bool", "scalar")
    if (is_plain or is_text) and (shape or is_ragged is not is_text):
        raise FormatError(f"the field {name} of kind {kind} has the shape {shape}")
    expected = {"int": torch.int64, "float": torch.float64, "bool": torch.bool}.get(kind, dtype)
    if kind == "scalar":
        expected = torch.from_numpy(np.empty(0, cls)).dtype
    if dtype is not expected or (is_text and dtype is not torch.uint8):
        raise FormatError(f"the field {name} of kind {kind} has the dtype {value['dtype']!r}")
    if kind == "array" and not has_numpy(dtype):
        raise FormatError(f"the field {name} is an array of {value['dtype']}, which NumPy lacks")
    mode = ""
    modes: tuple[str, ...] = ()
    if kind == "image":
        mode = check_mode(value["mode"], shape[0], dtype)
        modes = _modes(name, value["modes"], mode, dtype)
        if is_ragged is not bool(modes):
            raise FormatError(
                f"the image {name} has the layout {value['layout']} and modes {modes}"
            )
    elif value["mode"] != "" or value["modes"] != []:
        raise FormatError(f"the field {name} of kind {kind} has the mode of an image")
    schema = LeafSchema(kind, shape, None if is_text else dtype, cls, mode)
    return Field(name, "", schema, is_ragged, modes)


def _shape(name: str, kind: str, value: Any) -> tuple[int, ...]:
    if not isinstance(value, list) or len(value) > AXES:
        raise FormatError(f"the field {name} has the shape {in_short(value)}")
    shape = tuple(count_from(edge, f"an edge of {name}") for edge in value)
    # Edges of 0 count as 1: strides are products of the others, and must not overflow either.
    if math.prod(max(1, edge) for edge in shape) > MOST >> 4:
        raise FormatError(f"the field {name} has the shape {shape}")
    if kind == "image" and (len(shape) != 3 or max(shape) > MOST_EDGE):
        raise FormatError(f"the image {name} has the shape {shape}")
    return shape


def _modes(name: str, value: Any, first: str, dtype: torch.dtype) -> tuple[str, ...]:
    is_list = isinstance(value, list) and all(isinstance(mode, str) for mode in value)
    if not is_list or len(value) > MOST_MODES or len(set(value)) != len(value):
        raise FormatError(f"the image {name} has the modes {in_short(value)}")
    if value and value[0] != first:
        raise FormatError(f"the image {name} begins in mode {first}, its modes with {value[0]!r}")
    for mode in value:
        check_mode(mode, None, dtype)
    return tuple(value)


def count_from(value: Any, what: str) -> int:
    """A whole number that is not negative.

    Raises:
        FormatError: if a value is none.
    """
    if type(value) is not int or not 0 <= value <= MOST:
        raise FormatError(f"{what} is {in_short(value)}; expected a whole number, 0 or more")
    return value


def field_names(
    paths: Sequence[str], schemas: Sequence[LeafSchema], taken: Sequence[str]
) -> list[str]:
    """A file name for each leaf: from its key where it has one, else from its kind and place.

    Args:
        paths: of the leaves.
        schemas: of the leaves.
        taken: names that are not to be had.
    """
    names: list[str] = []
    for number, (path, schema) in enumerate(zip(paths, schemas, strict=True)):
        name = re.sub(r"[^a-z0-9]+", "_", path.lower()).strip("_")
        if not name or name[0].isdigit():
            name = f"{schema.kind}_{name}".rstrip("_")
        name = name[:48]
        is_taken = name in names or name in taken or not NAME.fullmatch(name)
        names.append(f"{name}-{number}" if is_taken else name)
    return names
