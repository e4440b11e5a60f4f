"""How one column of samples passes to a device: its memory there, and the gather into a buffer.

The memory holds the samples that stay first, then the places that requests pass through. So a
kernel reads both alike, by slot.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from hotset.kernels.padding import join_rows
from hotset.placement.link import Link, Transfer, fill, place
from hotset.sample.column import Column, DenseColumn, ListColumn, RaggedColumn


class Held(Protocol):
    """Samples as they are kept on the host.

    Attributes:
        columns: one per leaf; others may take their place while a store is filled.
        rows: (N,) int64, the columns' row of each sample; None for all in order.
    """

    columns: tuple[Column, ...]
    rows: Tensor | None

    def touch(self, rows: np.ndarray) -> None:
        """Must be told of rows before they are read."""
        ...


Gather = Callable[[np.ndarray, np.ndarray, np.ndarray], None]
"""(source (N, row bytes), rows (B,), out (B, row bytes)), all bytes but the rows."""


class Lane(Protocol):
    """One column, and its memory on the device."""

    @property
    def device_bytes(self) -> int:
        """What it takes on the device."""
        ...

    @property
    def buffer_bytes(self) -> int:
        """What a place's samples take in a buffer."""
        ...

    def fits(self, rows: np.ndarray) -> int:
        """How many of the first of some host rows one place can take."""
        ...

    def nbytes(self, rows: np.ndarray) -> int:
        """Bytes that host rows take."""
        ...

    def load(self, rows: np.ndarray, buffer: Tensor) -> None:
        """Gathers host rows into a buffer (bytes,) uint8."""
        ...

    def send(self, transfer: Transfer, buffer: Tensor, place: int, rows: np.ndarray) -> None:
        """Queues the copy of what `load` gathered to a place."""
        ...

    def view(self, slots: Tensor, rows: np.ndarray, misses: np.ndarray, place: int) -> View:
        """What is read, given the slots of a request, its host rows, and where its misses are."""
        ...


View = tuple[Column, Tensor]
"""A column, and the rows of it that a request is made of; on the host where it is not dense."""


class DenseLane:
    """Samples of one shape.

    Args:
        column: gives it, on the host.
        kept: (P,) int64 host rows that are on the device from the start.
        slots: samples that it keeps, P or more.
        room: (requests that pass at once, samples of each at most).
        link: to the device.
        gather: copies rows.
    """

    def __init__(
        self,
        column: Callable[[], DenseColumn],
        kept: np.ndarray,
        slots: int,
        room: tuple[int, int],
        link: Link,
        gather: Gather,
    ) -> None:
        (places, self._place_rows), first = room, column()
        self._host, self._gather, self._slots = column, gather, slots
        self._shape, self._row_bytes = first.data.shape[1:], row_bytes(first)
        self._memory = link.empty(
            (slots + places * self._place_rows, *self._shape), first.data.dtype
        )
        self._column = DenseColumn(first.schema, self._memory)
        self._seen: tuple[Tensor, np.ndarray] | None = None
        fill_rows(link, self._memory, first.data, kept)

    def _typed(self, buffer: Tensor, count: int) -> Tensor:
        if self._row_bytes == 0:
            return self._memory[:count]  # there is nothing to copy
        flat = buffer[: count * self._row_bytes].view(self._memory.dtype)
        return flat.view(count, *self._shape)

    @property
    def device_bytes(self) -> int:
        return self._memory.numel() * self._memory.element_size()

    @property
    def buffer_bytes(self) -> int:
        return self._place_rows * self._row_bytes

    def fits(self, rows: np.ndarray) -> int:
        return min(len(rows), self._place_rows)

    def nbytes(self, rows: np.ndarray) -> int:
        return len(rows) * self._row_bytes

    def load(self, rows: np.ndarray, buffer: Tensor) -> None:
        nbytes = self.nbytes(rows)
        if nbytes == 0:
            return
        out = buffer[:nbytes].numpy().reshape(len(rows), self._row_bytes)
        self._gather(self._source(), rows, out)

    def _source(self) -> np.ndarray:
        """(N, row bytes) uint8: the host's memory; the same nearly every time."""
        data = self._host().data
        if self._seen is None or self._seen[0] is not data:
            self._seen = data, _as_bytes(data)
        return self._seen[1]

    def send(self, transfer: Transfer, buffer: Tensor, place: int, rows: np.ndarray) -> None:
        start = self._slots + place * self._place_rows
        transfer.copy(self._memory[start : start + len(rows)], self._typed(buffer, len(rows)))

    def admit(self, sources: Tensor, into: Tensor) -> None:
        """Copies slots to other slots, on the device."""
        self._memory.index_copy_(0, into, self._memory.index_select(0, sources))

    def view(self, slots: Tensor, rows: np.ndarray, misses: np.ndarray, place: int) -> View:
        return self._column, slots


class RaggedLane:
    """Samples whose shape differs: those that stay are always the same.

    Args:
        column: on the host.
        kept: (P,) int64 host rows that stay on the device.
        room: (requests that pass at once, samples of each at most).
        link: to the device.
    """

    def __init__(
        self, column: RaggedColumn, kept: np.ndarray, room: tuple[int, int], link: Link
    ) -> None:
        places, place_rows = room
        self._host, self._item = column, column.data.element_size()
        self._sizes = sizes_of(column)
        self._place_values = place_bytes([column], place_rows) // self._item
        self._first = int(self._sizes[kept].sum())
        count = self._first + places * self._place_values
        self._memory = link.empty((count,), column.data.dtype)
        # Where each host row that stays begins on the device.
        self._starts: np.ndarray = np.full(len(column), -1, dtype=np.int64)
        self._starts[kept] = _ends(self._sizes[kept])
        fill_runs(link, self._memory, column, kept)
        # Of all samples, so that a kernel is compiled once.
        is_image = len(column.schema.shape) == 3 and len(column) > 0
        self._most = tuple(column.index[:, [2, 3]].max(axis=0).tolist()) if is_image else ()

    @property
    def device_bytes(self) -> int:
        return self._memory.numel() * self._item

    @property
    def buffer_bytes(self) -> int:
        return self._place_values * self._item

    def fits(self, rows: np.ndarray) -> int:
        ends = self._sizes[rows].cumsum()
        return int(np.searchsorted(ends, self._place_values, side="right"))

    def load(self, rows: np.ndarray, buffer: Tensor) -> None:
        sizes = self._sizes[rows]
        out = buffer[: self.nbytes(rows)].view(self._host.data.dtype)
        join_rows(self._host.data, self._host.index[rows, 0], sizes, out)

    def nbytes(self, rows: np.ndarray) -> int:
        return int(self._sizes[rows].sum()) * self._item

    def send(self, transfer: Transfer, buffer: Tensor, place: int, rows: np.ndarray) -> None:
        start, count = self._first + place * self._place_values, int(self._sizes[rows].sum())
        source = buffer[: count * self._item].view(self._host.data.dtype)
        transfer.copy(self._memory[start : start + count], source)

    def view(self, slots: Tensor, rows: np.ndarray, misses: np.ndarray, place: int) -> View:
        index = self._host.index[rows]
        starts = self._starts[rows]
        missed = rows[misses]
        passing = self._first + place * self._place_values + _ends(self._sizes[missed])
        absent = np.flatnonzero(starts < 0)
        # A row that comes twice is copied once.
        order = np.argsort(missed, kind="stable")
        found = order[np.searchsorted(missed, rows[absent], sorter=order)]
        starts[absent] = passing[found]
        index[:, 0] = starts
        column = replace(self._host, data=self._memory, index=index, most=self._most)
        return column, torch.arange(len(rows))


PART_BYTES = 64 << 20
"""Samples that stay are gathered in parts of so many bytes."""


def row_bytes(column: DenseColumn) -> int:
    """Bytes of one sample."""
    return column.data[:1].numel() * column.data.element_size() if len(column.data) else 0


def sizes_of(column: RaggedColumn) -> np.ndarray:
    """(N,) int64 values of each sample."""
    axes = len(column.schema.shape) if column.schema.is_storable else 1
    sizes: np.ndarray = column.index[:, 1 : 1 + axes].prod(axis=1, dtype=np.int64)
    return sizes


def bytes_of(columns: Sequence[Column], rows: np.ndarray) -> int:
    """Bytes that some rows of several columns take on a device."""
    total = 0
    for column in columns:
        if isinstance(column, DenseColumn):
            total += row_bytes(column) * len(rows)
        elif isinstance(column, RaggedColumn) and is_passing(column):
            total += int(sizes_of(column)[rows].sum()) * column.data.element_size()
    return total


def place_bytes(columns: Sequence[Column], rows: int) -> int:
    """Bytes of a place of the ring for so many samples.

    Where samples differ in size, for twice as many of the mean, and for any one of them; what does
    not fit is asked for in parts.
    """
    total = 0
    for column in columns:
        if isinstance(column, DenseColumn):
            total += rows * row_bytes(column)
        elif isinstance(column, RaggedColumn) and is_passing(column):
            sizes = sizes_of(column)
            values = max(2 * rows * int(sizes.mean()), int(sizes.max())) if len(sizes) else 0
            total += max(1, values) * column.data.element_size()
    return total


def fill_rows(link: Link, target: Tensor, source: Tensor, rows: np.ndarray) -> None:
    """Copies some rows of a host tensor to the first rows of device memory, part by part."""
    part = max(1, PART_BYTES // max(1, source[:1].numel() * source.element_size()))
    for start in range(0, len(rows), part):
        chosen = rows[start : start + part]
        found = source.detach().index_select(0, torch.from_numpy(chosen))
        fill(link, target[start : start + len(chosen)], found)


def fill_runs(link: Link, target: Tensor, column: RaggedColumn, rows: np.ndarray) -> None:
    """Copies some samples of a ragged column to device memory, end to end, part by part."""
    sizes, start = sizes_of(column)[rows], 0
    part = np.cumsum(sizes * column.data.element_size()) // PART_BYTES
    for chosen in np.split(np.arange(len(rows)), np.flatnonzero(np.diff(part)) + 1):
        count = int(sizes[chosen].sum())
        values = torch.empty(count, dtype=column.data.dtype)
        join_rows(column.data, column.index[rows[chosen], 0], sizes[chosen], values)
        fill(link, target[start : start + count], values)
        start += count


def chosen_on(link: Link, column: Column, rows: np.ndarray | None) -> Column:
    """Samples of a host column on the device; text and lists stay on the host.

    Args:
        link: to the device.
        column: on the host.
        rows: (B,) int64 of the samples; None for all.

    Raises:
        DeviceMemoryError: if it has no room.
    """
    if not is_passing(column):
        return column if rows is None else _chosen(column, rows)
    assert not isinstance(column, ListColumn)
    if rows is None:
        return replace(column, data=place(link, column.data.detach().contiguous()))
    if isinstance(column, DenseColumn):
        memory = link.empty((len(rows), *column.data.shape[1:]), column.data.dtype)
        fill_rows(link, memory, column.data, rows)
        return DenseColumn(column.schema, memory)
    sizes, index = sizes_of(column)[rows], column.index[rows]
    values = link.empty((int(sizes.sum()),), column.data.dtype)
    fill_runs(link, values, column, rows)
    index[:, 0] = _ends(sizes)
    return replace(column, data=values, index=index)


def _chosen(column: Column, rows: np.ndarray) -> Column:
    """Some samples of text or a list."""
    if isinstance(column, ListColumn):
        return ListColumn(column.schema, [column.items[row] for row in rows.tolist()])
    assert isinstance(column, RaggedColumn)
    return replace(column, index=column.index[rows])


def is_passing(column: Column) -> bool:
    """Whether a column goes to the device; text and lists stay on the host."""
    if isinstance(column, ListColumn):
        return False
    return isinstance(column, DenseColumn) or column.schema.kind not in ("str", "bytes")


def _as_bytes(data: Tensor) -> np.ndarray:
    """(N, row bytes) uint8 over a host tensor's memory."""
    count, plain = len(data), data.detach().resolve_conj().resolve_neg()
    width = math.prod(data.shape[1:])
    return plain.reshape(count * width).view(torch.uint8).view(count, -1 if width else 0).numpy()


def _ends(sizes: np.ndarray) -> np.ndarray:
    """Where each of some stretches begins that lie end to end."""
    starts: np.ndarray = sizes.cumsum() - sizes
    return starts
