"""The store's format: the manifest, the names of files, the header of an array. Pure.

A store is a directory that NumPy alone can read:

    manifest.json                         fields, counts, checksums, fingerprint; sealed by a digest
    image.npy                             dense: (N, ...)
    text.data.npy, text.index.npy         ragged: values end to end; per sample start and shape
    table.npy                             (C, 256), where bytes are kept of what a table finishes
    rows.npy                              (N,) int64, where rows do not stand in the samples' order
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from hotset.errors import FormatError
from hotset.sample.column import LeafSchema, has_numpy
from hotset.sample.tree import Spec
from hotset.store.structure import (
    AXES,
    DTYPES,
    check_mode,
    class_from_name,
    class_to_name,
    spec_from_json,
    spec_to_json,
)

FORMAT = "hotset store"
VERSION = 1
MANIFEST = "manifest.json"
TABLE, ROWS = "table.npy", "rows.npy"
MOST = 2**62
"""No count of bytes or values in a manifest may exceed this."""
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")


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
        """Plain values."""
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


@dataclass(frozen=True)
class File:
    """One file of a store.

    Attributes:
        header_bytes: what stands before the values.
        payload_bytes: values.
        block_bytes: bytes that one checksum is for.
        checksums: CRC-32 of each block of values.
    """

    header_bytes: int
    payload_bytes: int
    block_bytes: int
    checksums: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Size of the file."""
        return self.header_bytes + self.payload_bytes


@dataclass(frozen=True, eq=False)
class Manifest:
    """What a store says of itself.

    Attributes:
        samples: number of samples.
        spec: the structure of a sample.
        leaf: which leaf the transforms act on.
        fields: one per leaf.
        files: by name.
        fingerprint: what it was made from, as `hotset.keys` gives it.
        made: how it was made, for people to read.
    """

    samples: int
    spec: Spec
    leaf: int
    fields: tuple[Field, ...]
    files: dict[str, File]
    fingerprint: dict[str, Any] = field(default_factory=dict)
    made: dict[str, Any] = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        """Bytes of all files but the manifest."""
        return sum(file.nbytes for file in self.files.values())

    def dumps(self) -> str:
        """The manifest's text, sealed."""
        body = {
            "format": FORMAT,
            "version": VERSION,
            "samples": self.samples,
            "structure": spec_to_json(self.spec),
            "leaf": self.leaf,
            "fields": [f.as_dict() for f in self.fields],
            "files": {
                name: {
                    "header_bytes": file.header_bytes,
                    "payload_bytes": file.payload_bytes,
                    "block_bytes": file.block_bytes,
                    "crc32": list(file.checksums),
                }
                for name, file in self.files.items()
            },
            "fingerprint": self.fingerprint,
            "made": self.made,
        }
        lines = [f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in body.items()]
        return "{\n" + ",\n".join([*lines, f'  "seal": "{_seal(body)}"']) + "\n}\n"


def _seal(body: Mapping[str, Any]) -> str:
    text = json.dumps({k: v for k, v in body.items() if k != "seal"}, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def loads(text: str) -> Manifest:
    """The manifest that a text describes.

    Raises:
        FormatError: if it describes none, or one that cannot be; says what is wrong.
    """
    try:
        body = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"the manifest is no JSON ({error})") from error
    if not isinstance(body, dict) or body.get("format") != FORMAT:
        raise FormatError(f"the manifest is not that of a hotset store (no format {FORMAT!r})")
    version = body.get("version")
    if type(version) is not int or version < 1:
        raise FormatError(f"the manifest has the version {version!r}")
    if version > VERSION:
        raise FormatError(
            f"the store has format version {version}, this hotset reads up to {VERSION}; update "
            "hotset, or build the store again"
        )
    try:
        sealed = _seal(body)
    except RecursionError as error:
        raise FormatError("the manifest is nested too deeply") from error
    if body.get("seal") != sealed:
        raise FormatError("the manifest was damaged or edited: its seal does not fit its content")
    try:
        return _manifest(body)
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
        if isinstance(error, FormatError):
            raise
        raise FormatError(f"the manifest lacks or misstates something ({error!r})") from error


def _manifest(body: dict[str, Any]) -> Manifest:
    samples = _count(body["samples"], "the number of samples")
    fields = tuple(field_from_dict(value) for value in body["fields"])
    names = [f.name for f in fields]
    if not fields or len(set(names)) != len(names):
        raise FormatError(f"the fields are called {names}; each needs a name of its own")
    spec = spec_from_json(body["structure"], len(fields))
    leaf = _count(body["leaf"], "the transformed leaf")
    if leaf >= len(fields):
        raise FormatError(f"leaf {leaf} of {len(fields)} fields")
    if not isinstance(body["fingerprint"], dict) or not isinstance(body["made"], dict):
        raise FormatError("the fingerprint and the making must be tables")
    files = {name: _file(name, value) for name, value in body["files"].items()}
    paths = spec.paths()
    fields = tuple(replace(f, path=path) for f, path in zip(fields, paths, strict=True))
    manifest = Manifest(samples, spec, leaf, fields, files, body["fingerprint"], body["made"])
    _check_files(manifest)
    return manifest


def _check_files(manifest: Manifest) -> None:
    """Whether the files are those that the fields need, each of the size that its shape says."""
    needed: set[str] = set()
    for f in manifest.fields:
        data = manifest.files.get(f.data_file)
        needed |= {f.data_file, f.index_file} if f.is_ragged else {f.data_file}
        if data is None:
            raise FormatError(f"the field {f.name} has no file {f.data_file}")
        if not f.is_ragged and data.payload_bytes % max(1, f.item_bytes):
            raise FormatError(f"{f.data_file} does not hold whole samples of {f.schema}")
        index = manifest.files.get(f.index_file)
        if f.is_ragged and (index is None or index.payload_bytes % (8 * f.index_columns)):
            raise FormatError(f"{f.index_file} is missing, or holds no whole rows")
    if ROWS in manifest.files:
        needed.add(ROWS)
        if manifest.files[ROWS].payload_bytes != 8 * manifest.samples:
            raise FormatError(f"{ROWS} does not hold a row for each of {manifest.samples} samples")
    if TABLE in manifest.files:
        needed.add(TABLE)
    if set(manifest.files) != needed:
        raise FormatError(f"there are {sorted(manifest.files)}, but needed are {sorted(needed)}")
    rows = {rows_of(manifest, f) for f in manifest.fields}
    counts = {count for count in rows if count is not None}
    if len(counts) > 1 or (counts and ROWS not in manifest.files and counts != {manifest.samples}):
        raise FormatError(f"{manifest.samples} samples, but the files hold {sorted(counts)} rows")


def rows_of(manifest: Manifest, f: Field) -> int | None:
    """Rows that a field's file holds; None where a sample takes no bytes."""
    if f.is_ragged:
        return manifest.files[f.index_file].payload_bytes // (8 * f.index_columns)
    return manifest.files[f.data_file].payload_bytes // f.item_bytes if f.item_bytes else None


def field_from_dict(value: Any) -> Field:
    """The field that `Field.as_dict` described, but for its path.

    Raises:
        FormatError: if it describes none.
        KeyError: if something is missing.
    """
    name, kind, dtype = value["name"], value["kind"], DTYPES.get(value["dtype"])
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise FormatError(f"a field is called {name!r}; expected a-z, 0-9, _ or -")
    if dtype is None:
        raise FormatError(f"the field {name} has the dtype {value['dtype']!r}")
    shape = tuple(_count(edge, f"an edge of {name}") for edge in value["shape"])
    if len(shape) > AXES or math.prod(shape) > MOST:
        raise FormatError(f"the field {name} has the shape {shape}")
    cls = class_from_name(value["class"], kind)
    is_text = kind in ("str", "bytes")
    if value["layout"] not in ("dense", "ragged") or (is_text and value["layout"] == "dense"):
        raise FormatError(f"the field {name} has the layout {value['layout']!r}")
    is_plain = kind in ("int", "float", "bool", "scalar")
    if (is_plain or is_text) and (shape or value["layout"] != ("ragged" if is_text else "dense")):
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
        if len(shape) != 3:
            raise FormatError(f"the image {name} has the shape {shape}")
        mode = check_mode(value["mode"], shape[0], dtype)
        modes = tuple(value["modes"])
        if not all(isinstance(other, str) for other in modes) or len(modes) > 99:
            raise FormatError(f"the image {name} has the modes {modes}")
    schema = LeafSchema(kind, shape, None if is_text else dtype, cls, mode)
    return Field(name, "", schema, value["layout"] == "ragged", modes)


def _file(name: Any, value: Any) -> File:
    stem = name.removesuffix(".npy").removesuffix(".data").removesuffix(".index")
    if not name.endswith(".npy") or not _NAME.fullmatch(stem):
        raise FormatError(f"a file is called {name!r}, which is no name of a store's file")
    header, payload, block = (
        _count(value[key], f"{key} of {name}")
        for key in ("header_bytes", "payload_bytes", "block_bytes")
    )
    checksums = tuple(value["crc32"])
    if header > 1 << 16:
        raise FormatError(f"{name} has a header of {header} bytes")
    if block < 1 or len(checksums) != -(-payload // block):
        raise FormatError(f"{name} has {len(checksums)} checksums for {payload} bytes")
    if not all(type(crc) is int and 0 <= crc < 2**32 for crc in checksums):
        raise FormatError(f"{name} has a checksum that is none")
    return File(header, payload, block, checksums)


def _count(value: Any, what: str) -> int:
    if type(value) is not int or not 0 <= value <= MOST:
        raise FormatError(f"{what} is {value!r}; expected a whole number, 0 or more")
    return value


def array_dtype(dtype: torch.dtype) -> np.dtype[Any]:
    """The dtype that NumPy reads a file as: unsigned integers for those that it lacks."""
    if has_numpy(dtype):
        return torch.empty(0, dtype=dtype).numpy().dtype
    return np.dtype(f"u{dtype.itemsize}")


def array_header(dtype: np.dtype[Any], shape: tuple[int, ...], room: int) -> bytes:
    """The header of an `.npy` file.

    Args:
        dtype: of the values.
        shape: of the array.
        room: bytes that the header is to take, as `header_room` gives it.

    Source: numpy.lib.format, version 1.0.
    """
    header = _header(dtype, shape)
    spaces = room - len(header)
    length = int.from_bytes(header[8:10], "little") + spaces
    return header[:8] + length.to_bytes(2, "little") + header[10:-1] + b" " * spaces + b"\n"


def header_room(dtype: np.dtype[Any], shape: tuple[int, ...]) -> int:
    """Bytes that the header of an array takes whose samples have a shape, however many come."""
    return max(len(_header(dtype, (MOST, *rest))) for rest in (shape, ()))


def _header(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    buffer = io.BytesIO()
    content = {"descr": dtype.str, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(buffer, content)
    return buffer.getvalue()


def field_names(paths: list[str], schemas: list[LeafSchema]) -> list[str]:
    """A file name for each leaf: from its key where it has one, else from its kind and place."""
    names: list[str] = []
    for number, (path, schema) in enumerate(zip(paths, schemas, strict=True)):
        name = re.sub(r"[^a-z0-9]+", "_", path.lower()).strip("_")
        if not name or name[0].isdigit():
            name = f"{schema.kind}_{name}".rstrip("_")
        name = name[:48]
        taken = name in names or f"{name}.npy" in (TABLE, ROWS) or not _NAME.fullmatch(name)
        names.append(f"{name}-{number}" if taken else name)
    return names
