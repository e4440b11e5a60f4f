"""Batches from resident columns: gathered and augmented on the device, all leaves by one index."""

from __future__ import annotations

import copy
import itertools
from collections import deque
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from hotset.chain.probe import preserved_generators, seed_generators
from hotset.kernels.dispatch import Engine, Run
from hotset.loader.forms import Forms, finished
from hotset.placement.lanes import View
from hotset.placement.link import Link, send
from hotset.placement.stage import Fetch, Stage, Wanted
from hotset.placement.stats import Tally
from hotset.rng import WORKER_STEP, Draws, Key
from hotset.sample.collate import gather
from hotset.sample.column import (
    Column,
    DenseColumn,
    LeafSchema,
    RaggedColumn,
    decode,
)
from hotset.sample.padding import Jagged
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
    """Batches gathered and augmented where a stage gives the samples.

    Args:
        resident: the samples; its structure, and which leaf the engine makes.
        stage: gives them where batches are made.
        device: where that is.
        engine: what makes the leaf it acts on; None gathers it as it is.
        dtype: dtype that leaf is cast to where no engine does it.
        most_batches: how many may be made in one go; fewer where they take many bytes.
        is_stacking: whether leaves that lie in lists are stacked; a user's own collate_fn gets them
            one by one.
        images_of: what the engine reads from, given the column.
        forms: how leaves whose shape differs come out.
    """

    def __init__(
        self,
        resident: Resident,
        stage: Stage,
        device: torch.device,
        engine: Engine | None,
        dtype: torch.dtype | None,
        most_batches: int = 1,
        is_stacking: bool = True,
        images_of: Callable[[Any], Any] = lambda column: column.data,
        forms: Forms | None = None,
    ) -> None:
        self._spec, self._leaf, self._stage = resident.spec, resident.leaf, stage
        self._device, self._engine = device, engine
        self._dtype, self._most_batches = dtype, most_batches
        self._is_stacking, self._images_of = is_stacking, images_of
        self._forms = {} if forms is None else forms.by_leaf
        self._seen: tuple[Column, Any] | None = None

    @contextmanager
    def session(self) -> Iterator[Make]:
        with ExitStack() as stack:
            fetch = stack.enter_context(self._stage.session())
            run = None
            if self._engine is not None:
                run = stack.enter_context(self._engine.session())
            yield lambda requests: self._batches(requests, fetch, run)

    def _batches(self, requests: Iterator[Request], fetch: Fetch, run: Run | None) -> Iterator[Any]:
        group = _Group()
        parts: list[list[Any]] = []
        with closing(fetch(self._wants(requests, group))) as fetched:
            for found in fetched:
                piece: _Piece = found.what
                columns = self._columns(piece.requests, found.views, run)
                found.release()
                batches = [list(leaves) for leaves in zip(*columns, strict=True)]
                if not piece.is_last or parts:
                    parts.extend(batches)
                    if not piece.is_last:
                        continue
                    batches, parts = [self._joined(parts)], []
                for leaves in batches:
                    yield unflatten_batch(self._spec, map(finished, leaves))
                if group.count < self._most_batches:
                    # The first batch tells how large one is.
                    fitting = GROUP_BYTES // max(1, sum(map(_nbytes, batches[0])))
                    group.count = max(1, min(self._most_batches, fitting))

    def _wants(self, requests: Iterator[Request], group: _Group) -> Iterator[Wanted]:
        """What is to be fetched together: several small batches, or a part of a large one."""
        for first in requests:
            fitting = self._stage.fits(first.ids)
            if fitting < len(first.ids):
                yield from self._pieces(first, fitting)
                continue
            taken = [first]
            room = min(group.count, self._stage.most(first.ids))
            taken += itertools.islice(requests, room - 1)
            ids = first.ids if len(taken) == 1 else np.concatenate([r.ids for r in taken])
            yield Wanted(ids, _Piece(taken), first.key.epoch)

    def _pieces(self, request: Request, fitting: int) -> Iterator[Wanted]:
        start, count = 0, len(request.ids)
        while start < count:
            stop = start + fitting
            part = Request(
                request.ids[start:stop],
                request.occurrence[start:stop],
                request.key,
                request.position + start,
            )
            yield Wanted(part.ids, _Piece([part], is_last=stop >= count), request.key.epoch)
            start = stop
            if start < count:
                fitting = self._stage.fits(request.ids[start:])

    def _columns(
        self, requests: Sequence[Request], views: Sequence[View], run: Run | None
    ) -> list[Sequence[Any]]:
        """Per leaf of a sample, that leaf of every batch."""
        sizes = [len(request.ids) for request in requests]
        columns: list[Sequence[Any]] = []
        for number, (column, rows) in enumerate(views):
            if number == self._leaf and run is not None:
                ids = self._place([request.ids for request in requests])
                occurrence = self._place([request.occurrence for request in requests])
                draws = Draws(requests[0].key, ids, occurrence)
                if not isinstance(column, DenseColumn):
                    rows = self._place([rows.numpy()])
                made = run.batches(self._images(column), rows, draws, sizes)
                form = self._forms.get(number)
                columns.append(made if form is None else [form.of_batch(batch) for batch in made])
            else:
                columns.append(
                    [self._gather(column, part, number) for part in torch.split(rows, sizes)]
                )
        return columns

    def _joined(self, parts: Sequence[Sequence[Any]]) -> list[Any]:
        """The leaves of a batch that was made in parts."""
        return [
            self._forms[number].of_parts(leaf) if number in self._forms else _joined(leaf)
            for number, leaf in enumerate(zip(*parts, strict=True))
        ]

    def _images(self, column: Column) -> Any:
        """What the engine reads from; the same column comes with nearly every batch."""
        if self._seen is None or self._seen[0] is not column:
            self._seen = column, self._images_of(column)
        return self._seen[1]

    def _gather(self, column: Column, rows: Tensor, number: int) -> Any:
        is_cast, form = number == self._leaf, self._forms.get(number)
        if form is not None:
            dtype = self._dtype if is_cast else None
            if isinstance(column, RaggedColumn):
                return form.of_column(column, rows, dtype)
            return form.of_batch(gather(column, rows), dtype)
        if not isinstance(column, DenseColumn) and not self._is_stacking:
            return self._items(column, rows, is_cast)
        return gather(column, rows, self._dtype if is_cast else None)

    def _items(self, column: Column, rows: Tensor, is_cast: bool) -> list[Any]:
        items = [column.item(row) for row in rows.tolist()]
        dtype = self._dtype
        if dtype is None or not is_cast:
            return items
        return [torch.as_tensor(item).to(dtype) for item in items]

    def _place(self, parts: Sequence[np.ndarray]) -> Tensor:
        tensor = torch.from_numpy(parts[0] if len(parts) == 1 else np.concatenate(parts))
        if self._device.type == "cpu":
            return tensor
        return tensor.pin_memory().to(self._device, non_blocking=True)


@dataclass
class _Group:
    """How many batches are fetched together."""

    count: int = 1


@dataclass(frozen=True, eq=False)
class _Piece:
    """Whole batches, or a part of one.

    Attributes:
        requests: for the batches.
        is_last: whether no further part of its batch follows.
    """

    requests: list[Request]
    is_last: bool = True


def _joined(parts: Sequence[Any]) -> Any:
    """One leaf of a batch that was made in parts."""
    if isinstance(parts[0], Tensor):
        return torch.cat(list(parts))
    return [item for part in parts for item in part]


class CollatedPipeline:
    """Batches made by a user's own `collate_fn`, from the samples it expects.

    Args:
        inner: makes batches on the CPU.
        collate: the user's function.
        spec: the structure of a sample.
        schemas: each leaf as the user's chain gives it.
    """

    def __init__(
        self,
        inner: Pipeline,
        collate: Callable[[list[Any]], Any],
        spec: Spec,
        schemas: Sequence[LeafSchema],
    ) -> None:
        self._inner, self._collate = inner, collate
        self._spec, self._schemas = spec, tuple(schemas)

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
            yield collated

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
        link: to the device.
        tally: counts what is copied.
    """

    def __init__(self, inner: Pipeline, link: Link, tally: Tally) -> None:
        self._inner, self._link, self._tally = inner, link, tally

    @contextmanager
    def session(self) -> Iterator[Make]:
        with self._inner.session() as make:
            yield lambda requests: (
                move(batch, self._link, self._tally) for batch in make(requests)
            )


def move(batch: Any, link: Link, tally: Tally) -> Any:
    """A batch with every tensor in it on the device; containers keep their types.

    An object with a `to` method is asked to move itself.
    """
    if not link.is_apart:
        return batch
    if isinstance(batch, Tensor):
        if batch.device == link.device and link.device.type != "cpu":
            return batch
        tally.bytes_copied += _nbytes(batch)
        return batch.to(link.device) if batch.is_nested else send(link, batch)
    if hasattr(batch, "to"):  # a container may have one too, such as PackedSequence
        return batch.to(link.device)
    if isinstance(batch, Mapping):
        moved = {key: move(value, link, tally) for key, value in batch.items()}
        if not isinstance(batch, MutableMapping):
            return type(batch)(moved)  # type: ignore[call-arg]
        clone = copy.copy(batch)
        clone.update(moved)
        return clone
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(move(value, link, tally) for value in batch))
    if isinstance(batch, (list, tuple)):
        return type(batch)(move(value, link, tally) for value in batch)
    return batch


def ragged_images(column: DenseColumn | RaggedColumn) -> Ragged:
    """A column of images as images of differing sizes; nothing is copied."""
    return Ragged.of(column.data) if isinstance(column, DenseColumn) else column.images()


def _nbytes(leaf: Any) -> int:
    leaf = leaf.values if isinstance(leaf, Jagged) else leaf
    return leaf.numel() * leaf.element_size() if isinstance(leaf, Tensor) else 0
