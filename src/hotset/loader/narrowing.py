"""Which leaves are kept in a narrower dtype, by the user's choice."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hotset.errors import ConfigError
from hotset.placement.lanes import chosen_on
from hotset.placement.link import HostLink
from hotset.placement.precision import DTYPES, Narrower, check_narrower, name_of, narrowed
from hotset.sample.column import DenseColumn
from hotset.sample.tree import Spec
from hotset.sources.analyse import Analysis
from hotset.sources.resident import Resident

HOST = HostLink()
_NONE = torch.empty(0)
KINDS = ("tensor", "array", "image")
"""What a single dtype acts on; numbers are labels more often than not, and must be named."""


@dataclass(frozen=True)
class Narrowing:
    """What is kept in a narrower dtype.

    Attributes:
        dtypes: per leaf, the dtype; empty where there is nothing to act on.
        notes: why there is not.
    """

    dtypes: Mapping[int, torch.dtype] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def bytes_per_sample(self, analysis: Analysis) -> int:
        """About what one sample takes then."""
        whole = analysis.bytes_per_sample
        others = sum(schema.nbytes for schema in analysis.stored)
        others -= analysis.stored[analysis.source.leaf].nbytes
        saved = 0
        for leaf, dtype in self.dtypes.items():
            schema = analysis.stored[leaf]
            assert schema.dtype is not None
            nbytes = whole - others if leaf == analysis.source.leaf else schema.nbytes
            saved += nbytes - nbytes * dtype.itemsize // schema.dtype.itemsize
        return whole - saved

    def apply(self, resident: Resident) -> tuple[Resident, tuple[str, ...]]:
        """The samples kept so, in memory where they lay in a store; and notes for the plan.

        Raises:
            PrecisionError: if a value lies outside a dtype's range; names sample, leaf and value.
            FormatError: if a block of the store is damaged.
        """
        if not self.dtypes:
            return resident, self.notes
        length, rows = len(resident.columns[0]), resident.rows
        is_part = rows is not None and len(rows) < length and rows.device.type == "cpu"
        chosen = rows if is_part else None
        resident.touch(np.arange(length) if chosen is None else chosen.numpy())
        rows, length = (rows, length) if chosen is None else (None, len(chosen))
        narrowers, columns = self.narrowers(resident.spec, length, rows), list(resident.columns)
        for leaf, column in enumerate(columns):
            narrower, is_dense = narrowers.get(leaf), isinstance(column, DenseColumn)
            if narrower is not None and is_dense:
                columns[leaf] = narrowed(column, narrower, chosen=chosen)
                continue
            # Of a subset, only its own samples: the others need not be copied.
            some = column if chosen is None else chosen_on(HOST, column, chosen.numpy())
            columns[leaf] = some if narrower is None else narrowed(some, narrower)
        narrow = replace(resident, columns=tuple(columns), rows=rows, store=None)
        return narrow, self.notes_on(narrowers)

    def copy_bytes(self, resident: Resident) -> int:
        """What `apply` takes in host memory, about."""
        rows = len(resident.columns[0])
        share = min(1.0, len(resident) / max(1, rows))
        total = 0.0
        for leaf, dtype in self.dtypes.items():
            column = resident.columns[leaf]
            own = column.schema.dtype
            if own is not None and getattr(column, "data", _NONE).device.type == "cpu":
                total += share * column.nbytes * dtype.itemsize / own.itemsize
        return round(total)

    def narrowers(self, spec: Spec, length: int, rows: Tensor | None = None) -> dict[int, Narrower]:
        """What rounds each leaf, by leaf.

        Args:
            spec: the structure of a sample.
            length: rows.
            rows: (N,) int64, the row of every sample; None for all in order.
        """
        paths = spec.paths()
        return {
            leaf: Narrower(dtype, f"sample{paths[leaf]}", length=length, rows=rows)
            for leaf, dtype in self.dtypes.items()
        }

    def notes_on(self, narrowers: Mapping[int, Narrower]) -> tuple[str, ...]:
        """Notes for the plan: what rounding has done."""
        return (*self.notes, *(str(narrower.result()) for narrower in narrowers.values()))

    def given_up(self, reason: str) -> Narrowing:
        """Nothing is kept so, for a reason."""
        if not self.dtypes:
            return self
        names = " and ".join(sorted({name_of(dtype) for dtype in self.dtypes.values()}))
        return Narrowing({}, (*self.notes, f"not kept as {names}, but with every bit: {reason}"))


def narrowing_of(analysis: Analysis, storage_dtype: Any) -> Narrowing:
    """Which leaves are to be kept in a narrower dtype.

    Args:
        analysis: of the source.
        storage_dtype: as `check_storage_dtype` passes it: a dtype for the chain's leaf, or by
            field.

    Raises:
        ConfigError: if the dtype is not narrower than floating-point data, or a field is not there.
    """
    if storage_dtype is None:
        return Narrowing()
    paths, leaf = analysis.spec.paths(), analysis.source.leaf
    asked = {leaf: storage_dtype}
    if isinstance(storage_dtype, Mapping):
        asked = {_leaf_of(name, analysis): dtype for name, dtype in storage_dtype.items()}
    dtypes, notes = {}, []
    for number, dtype in asked.items():
        schema, path = analysis.stored[number], f"sample{paths[number]}"
        is_meant = isinstance(storage_dtype, Mapping) or schema.kind in KINDS
        if is_meant and check_narrower(schema, dtype, path):
            dtypes[number] = dtype
        else:
            kept = schema if schema.dtype is None or not is_meant else name_of(schema.dtype)
            notes.append(f"storage_dtype={dtype} has nothing to act on: {path} is kept as {kept}")
    return Narrowing(dtypes, tuple(notes))


def _leaf_of(name: Any, analysis: Analysis) -> int:
    paths = analysis.spec.paths()
    if analysis.spec.kind != "mapping":
        raise ConfigError(
            f"`storage_dtype` names the field {name!r}, but samples are no dictionaries; give one "
            "dtype, for the first field"
        )
    if f"[{name!r}]" not in paths:
        raise ConfigError(f"`storage_dtype` names the field {name!r}; the data has {paths}")
    return paths.index(f"[{name!r}]")


def check_storage_dtype(storage_dtype: Any, *, tier: Any) -> Any:
    """A dtype that samples can be kept in, a mapping of fields to such, or None.

    Raises:
        ConfigError: if it is anything else, or samples are to be kept in a store.
    """
    if storage_dtype is None:
        return None
    given = storage_dtype.values() if isinstance(storage_dtype, Mapping) else (storage_dtype,)
    for dtype in given:
        if dtype not in DTYPES:
            raise ConfigError(
                f"`storage_dtype` must be {', '.join(map(str, DTYPES[:-1]))} or {DTYPES[-1]}, got "
                f"{dtype!r}; integers and labels keep their own"
            )
    if not given:
        raise ConfigError("`storage_dtype` names no field; leave it out, or give {field: dtype}")
    if tier == "disk":
        raise ConfigError(
            '`storage_dtype` is for samples held in memory, and tier="disk" leaves them in a store,'
            " which keeps every bit; leave one of the two out"
        )
    return storage_dtype
