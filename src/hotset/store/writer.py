"""Writes a store: samples are appended, a journal says how far it is, a rename makes it whole."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hotset.errors import FormatError, HotsetError, SchemaError, StorageError
from hotset.sample.column import Column, LeafSchema
from hotset.sample.tree import Spec
from hotset.store.arrayfile import ArrayFile, storage_errors
from hotset.store.blocks import block_bytes_for
from hotset.store.chunk import Chunk
from hotset.store.field import Field, field_names
from hotset.store.growing import INDEX_DTYPE, GrowingField
from hotset.store.journal import JOURNAL, Journal, read_lines
from hotset.store.layout import FORMAT, MANIFEST, ROWS, TABLE, VERSION, File, Manifest, loads
from hotset.store.npy import array_dtype, header_room
from hotset.store.structure import class_to_name, in_short, spec_to_json


@dataclass(frozen=True, eq=False)
class Content:
    """What a store is to hold.

    Attributes:
        spec: the structure of a sample.
        leaf: which leaf the transforms act on.
        schemas: per leaf, that of the first sample.
        fingerprint: what it is made from, as plain values.
        table: (C, 256) that finishes the leaf, kept as bytes; None where it is kept as it is. Its
            class, a tensor's, is that of the finished leaf.
        expected_bytes: per leaf, about how many bytes come.
    """

    spec: Spec
    leaf: int
    schemas: tuple[LeafSchema, ...]
    fingerprint: dict[str, Any] = field(default_factory=dict)
    table: Tensor | None = None
    expected_bytes: tuple[int, ...] = ()


class Writer:
    """A store under construction, in a directory of its own.

    Args:
        folder: the directory; made where it is not there, gone on with where it holds the
            beginnings of the same content.
        content: what it is to hold.

    Attributes:
        ids: the samples written, in the order of the rows; one that was written again counts by its
            last row.

    Raises:
        StorageError: if it cannot be written.
        SchemaError: if leaves cannot be stored.
        FormatError: if the directory holds the beginnings of something else.
    """

    def __init__(self, folder: Path, content: Content) -> None:
        self.folder, self._content = folder, content
        self.ids: list[int] = []
        self.turned: list[int] = []
        self._failed: dict[int, str] = {}
        self._replaced: dict[int, int] = {}
        self._fields: list[GrowingField] = []
        self._journal: Journal | None = None
        paths = content.spec.paths()
        names = field_names(paths, content.schemas, [name.split(".")[0] for name in (TABLE, ROWS)])
        fields = [
            Field(name, path, schema, not schema.is_storable)
            for name, path, schema in zip(names, paths, content.schemas, strict=True)
        ]
        if content.table is not None:
            class_to_name(self._finished(content.table), "what the table makes")
        header = {
            "format": FORMAT,
            "version": VERSION,
            "structure": spec_to_json(content.spec),
            "leaf": content.leaf,
            "fields": [f.as_dict() for f in fields],
            "fingerprint": content.fingerprint,
        }
        try:
            with storage_errors(folder):
                folder.mkdir(parents=True, exist_ok=True)
                self._open(fields, json.loads(json.dumps(header)))
        except (LookupError, TypeError, AttributeError, ValueError) as error:
            self.close()
            if isinstance(error, HotsetError):
                raise
            raise FormatError(
                f"{folder} holds a journal that makes no sense ({in_short(error)}); remove it"
            ) from error
        except BaseException:
            self.close()
            raise

    @property
    def failed(self) -> list[tuple[int, str]]:
        """(sample, why) of those given up."""
        return sorted(self._failed.items())

    @property
    def replaced(self) -> list[tuple[int, int]]:
        """(sample, the one that stands in for it)."""
        return sorted(self._replaced.items())

    def _open(self, fields: Sequence[Field], header: dict[str, Any]) -> None:
        lines, ends = read_lines(self.folder / JOURNAL)
        if lines and {key: lines[0].get(key) for key in header} != header:
            raise FormatError(
                f"{self.folder} holds the beginnings of another store; remove it, or build "
                "elsewhere"
            )
        if not lines:
            # The journal comes first: a directory with files but no journal would be no store's.
            expected = self._content.expected_bytes or (0,) * len(fields)
            lines = [{**header, "blocks": [block_bytes_for(count) for count in expected]}]
            self._journal = Journal(self.folder / JOURNAL)
            self._journal.add(lines[0])
        blocks = lines[0]["blocks"]
        self._fields = self._growing(fields, blocks, lines)
        last = self._last_good(lines)
        if last < len(lines) - 1:
            self._close_fields()
            self._fields = self._growing(fields, blocks, lines[: last + 1])
        if self._journal is None:
            self._journal = Journal(self.folder / JOURNAL, ends[last])
        for line in lines[1 : last + 1]:
            self._note(line)
        states = lines[last]["files"] if last else {}
        for number, growing in enumerate(self._fields):
            names = {name: f"{number}.{name}" for name in growing.files}
            growing.rewind(len(self.ids), {n: states.get(key, [0])[0] for n, key in names.items()})

    def _growing(
        self, fields: Sequence[Field], blocks: Sequence[int], lines: Sequence[dict[str, Any]]
    ) -> list[GrowingField]:
        growing = [
            GrowingField(self.folder, f, size) for f, size in zip(fields, blocks, strict=True)
        ]
        for line in lines[1:]:
            for number, description in line.get("fields", {}).items():
                growing[int(number)].take_in(description)
        return growing

    def _last_good(self, lines: Sequence[dict[str, Any]]) -> int:
        """The last line whose data is there; 0 for none.

        Data written by a process that was killed is there; where the machine itself went down, some
        of it may not be.
        """
        files = dict(self._files())
        last = len(lines) - 1
        for name, file in files.items():
            block = 0
            for number in range(1, len(lines)):
                for crc in lines[number]["files"].get(name, [0, 0, []])[2]:
                    block += 1
                    if number <= last and not file.has_block(block - 1, crc):
                        last = number - 1
        while last > 0 and not all(
            files[name].has(end, tail) for name, (end, tail, _) in lines[last]["files"].items()
        ):
            last -= 1
        return max(last, 0)

    def _files(self) -> Iterator[tuple[str, ArrayFile]]:
        for number, growing in enumerate(self._fields):
            for name, file in growing.files.items():
                yield f"{number}.{name}", file

    def _note(self, line: dict[str, Any]) -> None:
        written = [int(sample) for sample in line.get("ids", ())]
        if "run" in line:
            first, count = line["run"]
            written = list(range(first, first + count))
        self.ids.extend(written)
        if self._failed or self._replaced:  # given up before, and read now
            for sample in written:
                self._failed.pop(sample, None)
                self._replaced.pop(sample, None)
        self.turned.extend(int(sample) for sample in line.get("turned", ()))
        self._failed |= {int(sample): str(why) for sample, why in line.get("failed", ())}
        self._replaced |= {int(sample): int(other) for sample, other in line.get("replaced", ())}

    def append(self, chunk: Chunk) -> None:
        """Writes a chunk's samples behind those that are there.

        After an error nothing more can be written; another writer goes on from the chunk before.

        Raises:
            StorageError: if the disk is full.
            SchemaError: if a leaf is not of its field's kind.
        """
        try:
            self._append(chunk)
        except BaseException:
            self.close()
            raise

    def _append(self, chunk: Chunk) -> None:
        if self._journal is None:
            raise StorageError(f"{self.folder} is not written to any more: a write failed before")
        ids = list(chunk.ids)
        line: dict[str, Any] = {"ids": ids}
        if ids and ids == list(range(ids[0], ids[0] + len(ids))):
            line = {"run": [ids[0], len(ids)]}
        known = {name: len(file.sums.complete) for name, file in self._files()}
        if ids:
            first = self.ids[0] if self.ids else ids[0]
            changed = {}
            for number, growing in enumerate(self._fields):
                schemas = chunk.schemas[number]
                if number == self._content.leaf and self._content.table is not None:
                    self._check_channels(growing.described.path, self._content.table, ids, schemas)
                if growing.fit(ids, schemas, first):
                    changed[number] = growing.described.as_dict()
                growing.append(chunk.values(number), schemas, chunk.lengths[number])
            line |= {"fields": changed} if changed else {}
        line["files"] = {
            name: [file.end, file.sums.tail, file.sums.complete[known.get(name, 0) :]]
            for name, file in self._files()
        }
        line |= {"failed": chunk.failed} if chunk.failed else {}
        line |= {"replaced": chunk.replaced} if chunk.replaced else {}
        line |= {"turned": chunk.turned} if chunk.turned else {}
        self._journal.add(line)
        self._note(line)

    def _check_channels(
        self, path: str, table: Tensor, ids: Sequence[int], schemas: Sequence[LeafSchema]
    ) -> None:
        for sample, schema in zip(ids, schemas, strict=True):
            if len(schema.shape) != 3 or schema.shape[0] != len(table):
                raise SchemaError(
                    f"sample{path} is a {schema} at index {sample}, others have {len(table)} "
                    "channels, each with a table of its own; make them alike, as with "
                    "image.convert('RGB')"
                )

    def columns(self, rows: int) -> tuple[Column, ...]:
        """The samples written so far, as columns over the files; with room for `rows` in all."""
        return tuple(growing.column(rows) for growing in self._fields)

    def finish(self, target: Path, made: dict[str, Any], samples: Sequence[int]) -> None:
        """Makes a whole store of what was written, under its own name.

        Args:
            target: the store's directory, which must not be there.
            made: how it was made.
            samples: which of the written samples it has, in its order.

        Raises:
            StorageError: if the disk is full, or the directory cannot be renamed.
        """
        with storage_errors(target):
            files: dict[str, File] = {}
            for growing in self._fields:
                files |= growing.finish()
            if list(samples) != self.ids:
                rows = {sample: row for row, sample in enumerate(self.ids)}
                order = np.array([rows[sample] for sample in samples], INDEX_DTYPE)
                files[ROWS] = self._array(ROWS, order)
            table = self._content.table
            if table is not None:
                plain = table.detach().as_subclass(Tensor).contiguous()
                raw = plain.reshape(-1).view(torch.uint8).numpy()
                files[TABLE] = self._array(
                    TABLE, raw.view(array_dtype(table.dtype)).reshape(tuple(table.shape))
                )
            manifest = Manifest(
                len(samples),
                self._content.spec,
                self._content.leaf,
                tuple(growing.described for growing in self._fields),
                files,
                self._content.fingerprint,
                made,
                None if table is None else self._finished(table),
            )
            text = manifest.dumps()
            loads(text)  # what is written can be read again
            write_synced(self.folder / MANIFEST, text.encode())
            sync_folder(self.folder)
            self.close()
            os.rename(self.folder, target)
            sync_folder(target.parent)
            (target / JOURNAL).unlink(missing_ok=True)

    @staticmethod
    def _finished(table: Tensor) -> LeafSchema:
        return LeafSchema("tensor", (), table.dtype, type(table))

    def _array(self, name: str, array: np.ndarray) -> File:
        room = header_room(array.dtype, array.shape[1:])
        file = ArrayFile(self.folder / name, room, block_bytes_for(array.nbytes))
        try:
            file.append(array)
            return file.finish(array.dtype, array.shape)
        finally:
            file.close()

    def close(self) -> None:
        """Closes the files; what was written is gone on with another time."""
        self._close_fields()
        if self._journal is not None:
            self._journal.close()
        self._journal = None

    def _close_fields(self) -> None:
        for growing in self._fields:
            growing.close()


def write_synced(path: Path, content: bytes) -> None:
    """Writes a file at once: whole or not at all, and on the disk."""
    partial = path.with_name(f"{path.name}.tmp")
    with open(partial, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, path)


def sync_folder(folder: Path) -> None:
    """Makes sure that a directory's entries are on the disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
