"""Batches gathered and augmented where the samples are given, all leaves by one index."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hotset.kernels.dispatch import Engine, Run
from hotset.kernels.gather import Gathering, RowGather, is_plain
from hotset.loader.batch import Make, Request
from hotset.loader.forms import Forms, finished
from hotset.placement.lanes import View
from hotset.placement.stage import Fetch, Stage, Wanted
from hotset.rng import Draws
from hotset.sample.collate import cast, gather
from hotset.sample.column import Column, DenseColumn, RaggedColumn
from hotset.sample.moving import to_device
from hotset.sample.padding import Jagged
from hotset.sample.ragged import Ragged
from hotset.sample.tree import unflatten_batch
from hotset.sources.resident import Resident

GROUP_BYTES = 8 << 20
"""Batches are made several in one go while they take no more than this."""


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
        gathers: gathers the plain leaves that no engine makes, all at once; None gathers them one
            by one.
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
        gathers: RowGather | None = None,
    ) -> None:
        self._spec, self._leaf, self._stage = resident.spec, resident.leaf, stage
        self._device, self._engine = device, engine
        self._dtype, self._most_batches = dtype, most_batches
        self._is_stacking, self._images_of = is_stacking, images_of
        self._forms = {} if forms is None else forms.by_leaf
        self._seen: tuple[Column, Any] | None = None
        self._gathers = gathers

    @contextmanager
    def session(self) -> Iterator[Make]:
        with ExitStack() as stack:
            fetch = stack.enter_context(self._stage.session())
            run: Run | None = None
            # What is left beside an engine's leaf is little, and the engine has threads.
            gathering: Gathering | None = None if self._gathers is None else self._gathers.batches
            if self._engine is not None:
                run = stack.enter_context(self._engine.session())
            elif self._gathers is not None:
                gathering = stack.enter_context(self._gathers.session())
            yield lambda requests: self._batches(requests, fetch, run, gathering)

    def _batches(
        self,
        requests: Iterator[Request],
        fetch: Fetch,
        run: Run | None,
        gathering: Gathering | None,
    ) -> Iterator[Any]:
        group = _Group(self._most_batches if self._stage.is_passing else 1)
        parts: list[list[Any]] = []
        with closing(fetch(self._wants(requests, group))) as fetched:
            for found in fetched:
                piece: _Piece = found.what
                columns = self._columns(piece.requests, found.views, run, gathering)
                found.release()
                batches = deque(list(leaves) for leaves in zip(*columns, strict=True))
                del columns
                if not piece.is_last or parts:
                    parts.extend(batches)
                    if not piece.is_last:
                        continue
                    batches, parts = deque([self._joined(parts)]), []
                if group.count < self._most_batches:
                    # The first batch tells how large one is.
                    fitting = GROUP_BYTES // max(1, sum(map(_nbytes, batches[0])))
                    group.count = max(1, min(self._most_batches, fitting))
                while batches:
                    # A batch that was handed out is held no longer: its memory may be used again.
                    yield unflatten_batch(self._spec, map(finished, batches.popleft()))

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
        self,
        requests: Sequence[Request],
        views: Sequence[View],
        run: Run | None,
        gathering: Gathering | None,
    ) -> list[Sequence[Any]]:
        """Per leaf of a sample, that leaf of every batch."""
        sizes = [len(request.ids) for request in requests]
        gathered = {} if gathering is None else self._gathered(views, sizes, run, gathering)
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
            elif number in gathered:
                dtype = self._dtype if number == self._leaf else None
                columns.append([cast(leaf, column.schema, dtype) for leaf in gathered[number]])
            elif self._is_in_one_go(column, number):
                columns.append(torch.split(self._gather(column, rows, number), sizes))
            else:
                columns.append(
                    [self._gather(column, part, number) for part in torch.split(rows, sizes)]
                )
        return columns

    def _is_in_one_go(self, column: Column, number: int) -> bool:
        """Whether a leaf of several batches is gathered in one launch, and cut apart."""
        is_here = self._device.type == "cpu"
        return isinstance(column, DenseColumn) and number not in self._forms and not is_here

    def _gathered(
        self,
        views: Sequence[View],
        sizes: Sequence[int],
        run: Run | None,
        gathering: Gathering,
    ) -> dict[int, list[Tensor]]:
        """The batches of the leaves that are rows of bytes and nothing else, by leaf."""
        made = None if run is None else self._leaf
        plain = {
            number: column.data
            for number, (column, _) in enumerate(views)
            if isinstance(column, DenseColumn) and is_plain(column.data)
            if number != made and number not in self._forms
        }
        if not plain:
            return {}
        rows = views[next(iter(plain))][1]
        return dict(zip(plain, gathering(list(plain.values()), rows, sizes), strict=True))

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
        leaf = gather(column, rows, self._dtype if is_cast else None)
        # What lies in a list, such as numbers of several kinds, is collated on the host.
        return leaf.to(self._device) if isinstance(leaf, Tensor) else leaf

    def _items(self, column: Column, rows: Tensor, is_cast: bool) -> list[Any]:
        items = [column.item(row) for row in rows.tolist()]
        dtype = self._dtype
        if dtype is None or not is_cast:
            return items
        return [torch.as_tensor(item).to(dtype) for item in items]

    def _place(self, parts: Sequence[np.ndarray]) -> Tensor:
        return to_device(parts[0] if len(parts) == 1 else np.concatenate(parts), self._device)


@dataclass
class _Group:
    """How many batches are fetched together."""

    count: int


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


def ragged_images(column: DenseColumn | RaggedColumn) -> Ragged:
    """A column of images as images of differing sizes; nothing is copied."""
    return Ragged.of(column.data) if isinstance(column, DenseColumn) else column.images()


def _nbytes(leaf: Any) -> int:
    leaf = leaf.values if isinstance(leaf, Jagged) else leaf
    return leaf.numel() * leaf.element_size() if isinstance(leaf, Tensor) else 0
