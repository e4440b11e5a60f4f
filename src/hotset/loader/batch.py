"""Batches from resident columns: gathered and augmented on the device, all leaves by one index."""

from __future__ import annotations

import copy
import itertools
from collections import deque
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from hotset.chain.probe import preserved_generators, seed_generators
from hotset.kernels.dispatch import Engine, Run
from hotset.kernels.gather import Gathering, RowGather, is_plain
from hotset.rng import WORKER_STEP, Draws, Key
from hotset.sample.collate import gather
from hotset.sample.column import (
    Column,
    DenseColumn,
    LeafSchema,
    RaggedColumn,
    decode,
)
from hotset.sample.ragged import Ragged
from hotset.sample.tree import Spec, batch_leaves, unflatten, unflatten_batch
from hotset.sources.resident import Resident

GROUP_BYTES = 8 << 20
"""Batches are made several in one go while they take no more than this."""
COLLATE_DRAW = 1
"""Which draw of a batch's first sample seeds the user's collate_fn."""


@dataclass(frozen=True)
class Request:
    """One batch to be made.

    Attributes:
        ids: (B,) int64 sample ids.
        occurrence: (B,) int64, how often each came earlier in the epoch.
        key: the epoch's key.
        position: place of the first of them in the epoch.
    """

    ids: np.ndarray
    occurrence: np.ndarray
    key: Key
    position: int = 0


def seeds_of(request: Request, draw: int = 0) -> list[int]:
    """One 64-bit seed per sample of a batch, for callables that draw from the global generators."""
    draws = Draws(request.key, torch.from_numpy(request.ids), torch.from_numpy(request.occurrence))
    words = draws.words(WORKER_STEP, draw)
    return [(high << 32) | low for high, low in words[:, :2].tolist()]


Make = Callable[[Iterator[Request]], Iterator[Any]]
"""Batches for requests, one each, in order."""


class Pipeline(Protocol):
    """Makes batches."""

    def session(self) -> Any:
        """A context manager that gives a `Make` and ends its threads and processes at the end."""
        ...


class BatchPipeline:
    """Batches from resident columns.

    Args:
        resident: the samples.
        device: where they lie and where the batches come out.
        engine: what makes the leaf it acts on; None gathers it as it is.
        dtype: dtype that leaf is cast to where no engine does it.
        most_batches: how many may be made in one go; fewer where they take many bytes.
        is_stacking: whether leaves that lie in lists are stacked; a user's own collate_fn gets them
            one by one.
        images_of: what the engine reads from, given the column.
        gathers: gathers the plain leaves that no engine makes, all at once; None gathers them one
            by one.
    """

    def __init__(
        self,
        resident: Resident,
        device: torch.device,
        engine: Engine | None,
        dtype: torch.dtype | None,
        most_batches: int = 1,
        is_stacking: bool = True,
        images_of: Callable[[Any], Any] = lambda column: column.data,
        gathers: RowGather | None = None,
    ) -> None:
        self._resident, self._device, self._engine = resident, device, engine
        self._dtype, self._most_batches = dtype, most_batches
        self._is_stacking, self._images_of = is_stacking, images_of
        self._seen: tuple[Column, Any] | None = None
        self._gathers = gathers

    @contextmanager
    def session(self) -> Iterator[Make]:
        if self._engine is not None:
            # What is left beside an engine's leaf is little, and the engine has threads.
            alone = None if self._gathers is None else self._gathers.batches
            with self._engine.session() as run:
                yield lambda requests: self._batches(requests, run, alone)
        elif self._gathers is not None:
            with self._gathers.session() as gathering:
                yield lambda requests: self._batches(requests, None, gathering)
        else:
            yield lambda requests: self._batches(requests, None, None)

    def _batches(
        self, requests: Iterator[Request], run: Run | None, gathering: Gathering | None
    ) -> Iterator[Any]:
        spec = self._resident.spec
        group = 1
        while taken := list(itertools.islice(requests, group)):
            columns = [deque(column) for column in self._columns(taken, run, gathering)]
            if group < self._most_batches:
                # The first batch tells how large one is.
                fitting = GROUP_BYTES // max(1, sum(_nbytes(leaves[0]) for leaves in columns))
                group = max(1, min(self._most_batches, fitting))
            for _ in taken:
                # A batch that was handed out is held no longer: its memory may be used again.
                yield unflatten_batch(spec, iter([leaves.popleft() for leaves in columns]))

    def _columns(
        self, requests: Sequence[Request], run: Run | None, gathering: Gathering | None
    ) -> list[Sequence[Any]]:
        """Per leaf of a sample, that leaf of every batch."""
        resident = self._resident
        sizes = [len(request.ids) for request in requests]
        ids = self._place([request.ids for request in requests])
        rows = ids if resident.rows is None else resident.rows[ids]
        if resident.store is not None:
            resident.touch(rows.numpy())
        gathered = self._gathered(rows, sizes, None if run is None else resident.leaf, gathering)
        columns: list[Sequence[Any]] = []
        for number, column in enumerate(resident.columns):
            if number == resident.leaf and run is not None:
                occurrence = self._place([request.occurrence for request in requests])
                draws = Draws(requests[0].key, ids, occurrence)
                columns.append(run.batches(self._images(column), rows, draws, sizes))
            elif number in gathered:
                columns.append([self._cast(leaf, number) for leaf in gathered[number]])
            else:
                parts = torch.split(rows, sizes)
                columns.append([self._gather(column, part, number) for part in parts])
        return columns

    def _gathered(
        self, rows: Tensor, sizes: Sequence[int], engines: int | None, gathering: Gathering | None
    ) -> dict[int, list[Tensor]]:
        """By number, the batches of those leaves that are gathered all at once."""
        if gathering is None:
            return {}
        plain = {
            number: column.data
            for number, column in enumerate(self._resident.columns)
            if number != engines and isinstance(column, DenseColumn) and is_plain(column.data)
        }
        if not plain:
            return {}
        return dict(zip(plain, gathering(list(plain.values()), rows, sizes), strict=True))

    def _images(self, column: Column) -> Any:
        """What the engine reads from; the same column comes with nearly every batch."""
        if self._seen is None or self._seen[0] is not column:
            self._seen = column, self._images_of(column)
        return self._seen[1]

    def _gather(self, column: Column, rows: Tensor, number: int) -> Any:
        if not isinstance(column, DenseColumn) and not self._is_stacking:
            return self._items(column, rows, number)
        return self._cast(gather(column, rows), number)

    def _cast(self, leaf: Any, number: int) -> Any:
        is_cast = number == self._resident.leaf and self._dtype is not None
        return leaf.to(self._dtype) if is_cast else leaf

    def _items(self, column: Column, rows: Tensor, number: int) -> list[Any]:
        items = [column.item(row) for row in rows.tolist()]
        dtype = self._dtype
        if dtype is None or number != self._resident.leaf:
            return items
        return [torch.as_tensor(item).to(dtype) for item in items]

    def _place(self, parts: Sequence[np.ndarray]) -> Tensor:
        tensor = torch.from_numpy(parts[0] if len(parts) == 1 else np.concatenate(parts))
        if self._device.type == "cpu":
            return tensor
        return tensor.pin_memory().to(self._device, non_blocking=True)


class CollatedPipeline:
    """Batches made by a user's own `collate_fn`, from the samples it expects, then moved.

    Args:
        inner: makes batches on the CPU.
        collate: the user's function.
        spec: the structure of a sample.
        schemas: each leaf as the user's chain gives it.
        device: where the batches come out.
    """

    def __init__(
        self,
        inner: Pipeline,
        collate: Callable[[list[Any]], Any],
        spec: Spec,
        schemas: Sequence[LeafSchema],
        device: torch.device,
    ) -> None:
        self._inner, self._collate = inner, collate
        self._spec, self._schemas, self._device = spec, tuple(schemas), device

    @contextmanager
    def session(self) -> Iterator[Make]:
        with self._inner.session() as make:
            yield lambda requests: self._batches(requests, make)

    def _batches(self, requests: Iterator[Request], make: Make) -> Iterator[Any]:
        taken: deque[Request] = deque()
        for batch in make(remembered(requests, taken)):
            seed = seeds_of(taken.popleft(), COLLATE_DRAW)[0]
            leaves = batch_leaves(batch, self._spec)
            samples = [
                unflatten(self._spec, iter(self._sample(leaves, position)))
                for position in range(len(leaves[0]))
            ]
            # As in a worker process, what a collate_fn draws is not the main process's generators'.
            with preserved_generators():
                seed_generators(seed)
                collated = self._collate(samples)
            yield move(collated, self._device)

    def _sample(self, leaves: Sequence[Any], position: int) -> list[Any]:
        return [
            decode(leaf[position], schema) if isinstance(leaf, Tensor) else leaf[position]
            for leaf, schema in zip(leaves, self._schemas, strict=True)
        ]


def remembered(requests: Iterator[Request], taken: deque[Request]) -> Iterator[Request]:
    """Hands requests on and keeps them: a pipeline may take several before it gives a batch."""
    for request in requests:
        taken.append(request)
        yield request


class MovedPipeline:
    """Batches made on the CPU and copied to the device.

    Args:
        inner: makes them.
        device: where they are copied.
    """

    def __init__(self, inner: Pipeline, device: torch.device) -> None:
        self._inner, self._device = inner, device

    @contextmanager
    def session(self) -> Iterator[Make]:
        with self._inner.session() as make:
            yield lambda requests: (move(batch, self._device) for batch in make(requests))


def move(batch: Any, device: torch.device) -> Any:
    """A batch with every tensor in it on the device; containers keep their types.

    An object with a `to` method is asked to move itself.
    """
    if device.type == "cpu":
        return batch
    if isinstance(batch, Tensor):
        return batch.to(device, non_blocking=True)
    if hasattr(batch, "to"):  # a container may have one too, such as PackedSequence
        return batch.to(device)
    if isinstance(batch, Mapping):
        moved = {key: move(value, device) for key, value in batch.items()}
        if not isinstance(batch, MutableMapping):
            return type(batch)(moved)  # type: ignore[call-arg]
        clone = copy.copy(batch)
        clone.update(moved)
        return clone
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(move(value, device) for value in batch))
    if isinstance(batch, (list, tuple)):
        return type(batch)(move(value, device) for value in batch)
    return batch


def ragged_images(column: DenseColumn | RaggedColumn) -> Ragged:
    """A column of images as images of differing sizes; nothing is copied."""
    return Ragged.of(column.data) if isinstance(column, DenseColumn) else column.images()


def _nbytes(leaf: Any) -> int:
    return leaf.numel() * leaf.element_size() if isinstance(leaf, Tensor) else 0
