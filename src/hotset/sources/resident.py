"""Samples as they are kept: in memory, on a device, or in a store's mapped files."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hotset.sample.column import Column, ListColumn
from hotset.sample.tree import Spec
from hotset.store.store import Store


@dataclass(eq=False)
class Resident:
    """The samples as they are kept.

    Attributes:
        columns: one per leaf.
        spec: the structure of a sample.
        leaf: which leaf the chain acts on.
        rows: (N,) int64 on the columns' device, the row of every sample; None for all in order.
        store: the store that the columns are of; None if they are of none.
    """

    columns: tuple[Column, ...]
    spec: Spec
    leaf: int
    rows: Tensor | None = None
    store: Store | None = field(default=None, repr=False)

    def __len__(self) -> int:
        return len(self.columns[0]) if self.rows is None else len(self.rows)

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return sum(column.nbytes for column in self.columns)

    def __reduce__(self) -> Any:
        if self.store is None:
            return Resident, (self.columns, self.spec, self.leaf, self.rows)
        # Of a store only the path travels to another process, which maps the files itself.
        own, rows = self.store.rows, self.rows
        is_whole = rows is own or (own is not None and rows is not None and torch.equal(rows, own))
        return _restored, (self.store, self.leaf, is_whole, None if is_whole else rows)

    def touch(self, rows: np.ndarray) -> None:
        """Must be told of rows before they are read; a store then looks at their checksums.

        Raises:
            FormatError: if a block that they lie in is damaged.
        """
        if self.store is not None:
            self.store.touch(rows)

    def leaves(self, index: int) -> list[Any]:
        """The leaves of one sample as they were."""
        row = index if self.rows is None else int(self.rows[index])
        if self.store is not None:
            self.store.touch(np.array([row]))
        return [column.item(row) for column in self.columns]

    def of(self, samples: Tensor) -> Resident:
        """Some of the samples.

        Args:
            samples: (M,) int64 on the CPU.
        """
        rows = samples if self.rows is None else self.rows.cpu()[samples]
        return replace(self, rows=rows)

    def to(self, device: torch.device) -> Resident:
        """The same samples on a device; copied only where they must be."""
        rows = None if self.rows is None else self.rows.to(device)
        columns = tuple(column.to(device) for column in self.columns)
        return replace(self, columns=columns, rows=rows)

    def read(self) -> Resident:
        """The same samples in memory, where they are mapped from a store."""
        self.touch(np.arange(len(self.columns[0])))
        columns = tuple(
            column
            if isinstance(column, ListColumn)
            else replace(column, data=column.data.clone(memory_format=torch.contiguous_format))
            for column in self.columns
        )
        return replace(self, columns=columns, store=None)


def of_store(store: Store, leaf: int | None = None) -> Resident:
    """A store's samples, mapped."""
    return Resident(
        store.columns, store.spec, store.leaf if leaf is None else leaf, store.rows, store
    )


def _restored(store: Store, leaf: int, is_whole: bool, rows: Tensor | None) -> Resident:
    resident = of_store(store, leaf)
    return resident if is_whole else replace(resident, rows=rows)
