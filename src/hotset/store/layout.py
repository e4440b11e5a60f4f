"""The store's format: the manifest and the names of files. Pure.

A store is a directory that NumPy alone can read:

    manifest.json                         fields, counts, checksums, fingerprint; sealed by a digest
    image.npy                             dense: (N, ...)
    text.data.npy, text.index.npy         ragged: values end to end; per sample start and shape
    table.npy                             (C, 256), where bytes are kept of what a table finishes
    rows.npy                              (N,) int64, where rows do not stand in the samples' order
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from hotset.errors import FormatError
from hotset.sample.column import LeafSchema
from hotset.sample.tree import Spec
from hotset.store.field import NAME, Field, count_from, field_from_dict
from hotset.store.npy import ALIGNMENT, MOST, MOST_HEADER_BYTES
from hotset.store.structure import (
    DTYPES,
    class_from_name,
    class_to_name,
    in_short,
    spec_from_json,
    spec_to_json,
)

FORMAT = "hotset store"
VERSION = 1
MANIFEST = "manifest.json"
TABLE, ROWS = "table.npy", "rows.npy"
VALUES = 256
"""Columns of a table."""


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
        finished: what the table makes of the leaf: class and dtype; None where there is no table.
    """

    samples: int
    spec: Spec
    leaf: int
    fields: tuple[Field, ...]
    files: dict[str, File]
    fingerprint: dict[str, Any] = field(default_factory=dict)
    made: dict[str, Any] = field(default_factory=dict)
    finished: LeafSchema | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of all files but the manifest."""
        return sum(file.nbytes for file in self.files.values())

    def rows_in(self, f: Field) -> int | None:
        """Rows that a field's files hold; None where a sample takes no bytes."""
        if f.is_ragged:
            return self.files[f.index_file].payload_bytes // (8 * f.index_columns)
        return self.files[f.data_file].payload_bytes // f.item_bytes if f.item_bytes else None

    def dumps(self) -> str:
        """The manifest's text, sealed."""
        finished = self.finished and {
            "class": class_to_name(self.finished, "the table"),
            "dtype": str(self.finished.dtype).removeprefix("torch."),
        }
        body = {
            "format": FORMAT,
            "version": VERSION,
            "samples": self.samples,
            "structure": spec_to_json(self.spec),
            "leaf": self.leaf,
            "fields": [f.as_dict() for f in self.fields],
            "table": finished,
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
        seal = seal_of(json.loads(json.dumps(body)))
        return "{\n" + ",\n".join([*lines, f'  "seal": "{seal}"']) + "\n}\n"


def seal_of(body: Mapping[str, Any]) -> str:
    """The digest that tells whether a manifest's content is what was written.

    Args:
        body: the content, as JSON gives it back; a seal in it does not count.
    """
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
        raise FormatError(f"the manifest has the version {in_short(version)}")
    if version > VERSION:
        raise FormatError(
            f"the store has format version {in_short(version)}, this hotset reads up to "
            f"{VERSION}; update hotset, or build the store again"
        )
    try:
        if body.get("seal") != seal_of(body):
            raise FormatError(
                "the manifest was damaged or edited: its seal does not fit its content"
            )
        return _manifest(body)
    except FormatError:
        raise
    except RecursionError as error:
        raise FormatError("the manifest is nested too deeply") from error
    except (LookupError, TypeError, AttributeError, ValueError, ArithmeticError) as error:
        problem = in_short(error)
        raise FormatError(f"the manifest lacks or misstates something ({problem})") from error


def _manifest(body: dict[str, Any]) -> Manifest:
    samples = count_from(body["samples"], "the number of samples")
    if not isinstance(body["fields"], list):
        raise FormatError(f"the fields are {in_short(body['fields'])}; expected a list")
    fields = tuple(field_from_dict(value) for value in body["fields"])
    names = [f.name for f in fields]
    if not fields or len(set(names)) != len(names):
        raise FormatError(f"the fields are called {names}; each needs a name of its own")
    spec = spec_from_json(body["structure"], len(fields))
    leaf = count_from(body["leaf"], "the transformed leaf")
    if leaf >= len(fields):
        raise FormatError(f"leaf {leaf} of {len(fields)} fields")
    if not isinstance(body["fingerprint"], dict) or not isinstance(body["made"], dict):
        raise FormatError("the fingerprint and the making must be tables")
    files = {name: _file(name, value) for name, value in body["files"].items()}
    fields = tuple(replace(f, path=path) for f, path in zip(fields, spec.paths(), strict=True))
    manifest = Manifest(
        samples,
        spec,
        leaf,
        fields,
        files,
        body["fingerprint"],
        body["made"],
        None if body["table"] is None else _finished(body["table"]),
    )
    _check_files(manifest)
    _check_table(manifest)
    return manifest


def _finished(value: Any) -> LeafSchema:
    dtype = DTYPES.get(value["dtype"])
    if dtype is None:
        raise FormatError(f"the table has the dtype {in_short(value['dtype'])}")
    return LeafSchema("tensor", (), dtype, class_from_name(value["class"], "tensor"))


def _check_files(manifest: Manifest) -> None:
    """Whether the files are those that the fields need, each of the size that its shape says."""
    needed: set[str] = set()
    for f in manifest.fields:
        data = manifest.files.get(f.data_file)
        needed |= {f.data_file, f.index_file} if f.is_ragged else {f.data_file}
        if data is None:
            raise FormatError(f"the field {f.name} has no file {f.data_file}")
        whole = f.dtype.itemsize if f.is_ragged else f.item_bytes
        if data.payload_bytes % whole if whole else data.payload_bytes:
            raise FormatError(f"{f.data_file} does not hold whole samples of {f.schema}")
        index = manifest.files.get(f.index_file)
        if f.is_ragged and (index is None or index.payload_bytes % (8 * f.index_columns)):
            raise FormatError(f"{f.index_file} is missing, or holds no whole rows")
    if ROWS in manifest.files:
        needed.add(ROWS)
        if manifest.files[ROWS].payload_bytes != 8 * manifest.samples:
            raise FormatError(f"{ROWS} does not hold a row for each of {manifest.samples} samples")
    if manifest.finished is not None:
        needed.add(TABLE)
    if set(manifest.files) != needed:
        raise FormatError(f"there are {sorted(manifest.files)}, but needed are {sorted(needed)}")
    rows = {manifest.rows_in(f) for f in manifest.fields}
    counts = {count for count in rows if count is not None}
    for f in manifest.fields:  # torch multiplies edges, also where one of them is 0
        if manifest.samples * math.prod(max(1, edge) for edge in f.schema.shape) > MOST:
            raise FormatError(f"{manifest.samples} samples of {f.schema} are too many")
    if len(counts) > 1 or (counts and ROWS not in manifest.files and counts != {manifest.samples}):
        raise FormatError(f"{manifest.samples} samples, but the files hold {sorted(counts)} rows")


def _check_table(manifest: Manifest) -> None:
    """Whether a table can finish the leaf that it is for."""
    if manifest.finished is None:
        return
    f, dtype = manifest.fields[manifest.leaf], manifest.finished.dtype
    is_image = f.schema.kind in ("image", "tensor") and len(f.schema.shape) == 3
    if not is_image or f.dtype is not torch.uint8 or dtype is None:
        raise FormatError(f"a table cannot finish the field {f.name}, which is {f}")
    if manifest.files[TABLE].payload_bytes != f.schema.shape[0] * VALUES * dtype.itemsize:
        raise FormatError(f"{TABLE} does not fit the field {f.name}, which is {f}")


def _file(name: Any, value: Any) -> File:
    stem = name.removesuffix(".npy").removesuffix(".data").removesuffix(".index")
    if not name.endswith(".npy") or not NAME.fullmatch(stem):
        raise FormatError(f"a file is called {in_short(name)}, which is no name of a store's file")
    header, payload, block = (
        count_from(value[key], f"{key} of {name}")
        for key in ("header_bytes", "payload_bytes", "block_bytes")
    )
    checksums = value["crc32"]
    if header % ALIGNMENT or not 0 < header <= MOST_HEADER_BYTES:
        raise FormatError(f"{name} has a header of {header} bytes")
    if block < 1 or not isinstance(checksums, list) or len(checksums) != -(-payload // block):
        raise FormatError(f"{name} has not one checksum for every {block} of {payload} bytes")
    if not all(type(crc) is int and 0 <= crc < 2**32 for crc in checksums):
        raise FormatError(f"{name} has a checksum that is none")
    return File(header, payload, block, tuple(checksums))
