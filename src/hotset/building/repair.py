"""Makes the damaged blocks of a store again, from the data that it was built from."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from hotset.building.chunks import ChunkReader, failure
from hotset.building.finding import locked
from hotset.building.prepare import Prepared, prepare
from hotset.building.recipe import Recipe
from hotset.errors import ConfigError, FaithfulnessError
from hotset.keys.fingerprint import Fingerprint, differences
from hotset.progress import Progress, Told, shown
from hotset.sample.column import LeafSchema
from hotset.store.blocks import HEADER, Damage
from hotset.store.chunk import Chunk
from hotset.store.damage import INDEX, Contents
from hotset.store.draft import Draft
from hotset.store.field import Field
from hotset.store.layout import ROWS, TABLE, Manifest

Leaves = list[tuple[LeafSchema, bytes]]
"""Per leaf of a sample, its schema and its bytes."""


def repair(
    store_path: str | os.PathLike[str],
    data: Any,
    transform: Any = None,
    *,
    progress: Told | Literal[False] | None = None,
) -> list[Damage]:
    """Makes the damaged blocks of a store again; changes nothing else in it.

    Only samples that have bytes in damaged blocks are read. A block is written only if it comes
    out with the checksum that it was built with, and none is written if one does not.

    Args:
        store_path: the store's directory; its manifest must be whole.
        data: what it was built from, as `hotset.build` was given it.
        transform: likewise.
        progress: called with (samples read again, total); None is a bar on standard error where
            that is a terminal, False is silence.

    Returns:
        What was damaged, and is whole again.

    Raises:
        MissingDataError: if there is no store.
        FormatError: if its manifest is damaged.
        ConfigError: if the data or the transform are not those that it was built from; says what
            differs.
        FaithfulnessError: if a block does not come out as it was, since the source has changed.
        SampleError: if a sample cannot be read.
        StorageError: if the store cannot be written.
    """
    path = Path(os.path.abspath(store_path))
    contents = Contents(path)
    with locked(path):
        line = Progress(is_live=None if progress is None else False)
        damaged = contents.look(lambda *n: line.update(f"verifying {path.name}", *n))
        line.clear()
        if not damaged:
            return []
        with shown(progress, f"repairing {path.name}") as told:
            _Repair(contents, _matching(contents.manifest, data, transform)).run(told)
    return damaged


def _matching(manifest: Manifest, data: Any, transform: Any) -> _Readings:
    """How the samples of a store are read again.

    Raises:
        ConfigError: if the data or the transform are others.
    """
    made, built_from = manifest.made, Fingerprint.from_dict(manifest.fingerprint)
    version = next((part.text for part in built_from.parts if part.name == "version"), None)
    prepared = prepare(
        data,
        transform,
        version=version,
        is_by_content=made.get("source") == "content",
        is_tolerant=bool(made.get("skipped") or made.get("substituted")),
    )
    recipe = prepared.recipe
    if recipe.fingerprint.digest != built_from.digest:
        recipe = prepared.recipe_at_cut()
    if recipe.fingerprint.digest != built_from.digest:
        words = "; ".join(differences(built_from, prepared.recipe.fingerprint))
        raise ConfigError(f"the store was built from other data ({words}); nothing was changed")
    return _Readings(prepared, recipe, manifest)


class _Readings:
    """The samples of a store, read again from what it was built from."""

    def __init__(self, prepared: Prepared, recipe: Recipe, manifest: Manifest) -> None:
        self.recipe, self._stream_reader = recipe, prepared.stream_reader
        stand_ins = {int(i): int(j) for i, j in manifest.made.get("substituted", ())}
        skipped = {int(i) for i, _ in manifest.made.get("skipped", ())}
        total = manifest.samples + len(skipped)
        if self._stream_reader is None and total != len(recipe.source):
            raise _changed(f"it has {len(recipe.source):,} samples, not {total:,}")
        self._ids = [stand_ins.get(i, i) for i in range(total) if i not in skipped]
        reader = self._stream_reader or recipe.reader()
        self._task = ChunkReader(reader, recipe.source.name, recipe.analysis.spec, "raise", None)

    def of(self, samples: Sequence[int]) -> Iterator[Leaves]:
        """The leaves of some samples, as they are kept."""
        last: tuple[int, Leaves] | None = None
        for sample in samples:
            index = self._ids[sample]
            if last is None or last[0] != index:
                last = index, self._read(index)
            yield last[1]

    def _read(self, index: int) -> Leaves:
        ids: Any = [index]
        if self._stream_reader is not None:
            stream = self._stream_reader.stream
            stream.skip(index - stream.passed)
            ids = stream.due(1)
        chunk = self._task(ids)
        if chunk.failed:
            raise failure(self.recipe.source, chunk)
        if not chunk.ids:
            raise _changed(f"it ended after {index:,} samples")
        return _leaves_of(chunk)


def _leaves_of(chunk: Chunk) -> Leaves:
    """The leaves of a chunk's one sample."""
    ends = [0, *chunk.lengths[:, 0].cumsum().tolist()]
    values = chunk.payload.numpy()
    return [
        (schemas[0], values[start:stop].tobytes())
        for schemas, (start, stop) in zip(chunk.schemas, pairwise(ends), strict=True)
    ]


class _Repair:
    """One store being repaired."""

    def __init__(self, contents: Contents, readings: _Readings) -> None:
        self._contents, self._readings = contents, readings
        self._drafts: dict[str, Draft] = {}

    def run(self, told: Told | None) -> None:
        try:
            for name, blocks in self._contents.bad.items():
                if blocks:
                    self._drafts[name] = Draft(self._contents, name)
            self._make_table()
            self._make_rows()
            self._make_values(told)
            for name, draft in self._drafts.items():
                block = draft.wrong_block()
                if block is not None:
                    damage = Damage(name, block, self._contents.samples_in(name, block))
                    raise _changed(f"{damage} would not be as before")
            for draft in self._drafts.values():
                draft.apply()
        finally:
            for draft in self._drafts.values():
                draft.close()

    def _make_table(self) -> None:
        table = self._readings.recipe.table
        if TABLE not in self._drafts or table is None:
            return
        plain = table.detach().as_subclass(torch.Tensor).contiguous()
        self._drafts[TABLE].write(0, plain.reshape(-1).view(torch.uint8).numpy().tobytes())

    def _make_rows(self) -> None:
        """Finds the samples whose row is not known by their content among the rows left over."""
        if ROWS not in self._drafts:
            return
        contents, rows = self._contents, self._contents.rows()
        samples = contents.bad_rows(ROWS, INDEX.itemsize)
        known = np.delete(rows, samples)
        left = np.setdiff1d(np.arange(len(rows)), known)
        if len(np.intersect1d(left, self._needed())):
            raise ConfigError(
                f"{contents.path / ROWS} and what it points to are both damaged, so that neither "
                "can be made again; build the store again"
            )
        waiting: dict[bytes, list[int]] = {}
        for row in left.tolist():
            waiting.setdefault(_digest(contents.leaves(row)), []).append(row)
        found = self._readings.of(samples.tolist())
        for sample, leaves in zip(samples.tolist(), found, strict=True):
            places = waiting.get(_digest([(s.shape, values) for s, values in leaves]))
            if not places:
                raise _changed(f"sample {sample} is in none of the rows")
            rows[sample] = places.pop(0)
            self._drafts[ROWS].write(sample * INDEX.itemsize, rows[sample].tobytes())

    def _needed(self) -> np.ndarray:
        """Rows that have bytes in damaged blocks, in order."""
        contents = self._contents
        found = [np.zeros(0, np.int64)]
        for f in contents.manifest.fields:
            if f.is_ragged:
                found.append(contents.bad_index_rows(f))
            blocks = [block for block in contents.bad[f.data_file] if block != HEADER]
            found += [contents.rows_in_block(f.data_file, block) for block in blocks]
        return np.unique(np.concatenate(found))

    def _make_values(self, told: Told | None) -> None:
        needed, order = self._needed(), self._contents.rows()
        samples = np.zeros(len(order), np.int64)
        samples[order] = np.arange(len(order))
        fields = self._contents.manifest.fields
        unknown = {
            f.name: set(self._contents.bad_index_rows(f).tolist()) for f in fields if f.is_ragged
        }
        if told is not None:
            told(0, len(needed))
        found = self._readings.of(samples[needed].tolist())
        for done, (row, leaves) in enumerate(zip(needed.tolist(), found, strict=True), 1):
            for f, (schema, values) in zip(fields, leaves, strict=True):
                if f.is_ragged:
                    is_fitting = self._put_ragged(f, row, schema, values, row in unknown[f.name])
                else:
                    is_fitting = len(values) == f.item_bytes and self._put(
                        f.data_file, row * f.item_bytes, values
                    )
                if not is_fitting:
                    raise _changed(f"sample {samples[row]} is {schema} at {f.path or 'its place'}")
            if told is not None:
                told(done, len(needed))

    def _put(self, name: str, start: int, values: bytes) -> bool:
        return name not in self._drafts or self._drafts[name].write(start, values)

    def _put_ragged(
        self, f: Field, row: int, schema: LeafSchema, values: bytes, is_unknown: bool
    ) -> bool:
        index = self._contents.index(f)
        shape = schema.shape if f.schema.is_storable else (len(values),)
        if len(shape) != f.axes or (f.modes and schema.mode not in f.modes):
            return False
        if is_unknown:  # it begins where the one before ends, which is known by now
            before = index[row - 1].tolist() if row else [0] * f.index_columns
            start = before[0] + math.prod(before[1 : 1 + f.axes]) if row else 0
            mode = [f.modes.index(schema.mode)] if f.modes else []
            index[row] = [start, *shape, *mode]
            width = INDEX.itemsize * f.index_columns
            self._put(f.index_file, row * width, index[row].tobytes())
        elif index[row, 1 : 1 + f.axes].tolist() != list(shape):
            return False
        return self._put(f.data_file, int(index[row, 0]) * f.dtype.itemsize, values)


def _digest(leaves: Iterable[tuple[Sequence[int], bytes]]) -> bytes:
    """What tells one sample from others: shapes and bytes of its leaves."""
    hasher = hashlib.blake2b(digest_size=16)
    for shape, values in leaves:
        hasher.update(json.dumps([*shape, len(values)]).encode())
        hasher.update(values)
    return hasher.digest()


def _changed(what: str) -> FaithfulnessError:
    return FaithfulnessError(
        f"the source has changed since the store was built: {what}; nothing was written. Build the "
        "store again"
    )
