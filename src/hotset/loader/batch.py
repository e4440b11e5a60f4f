"""Batches from resident columns: gathered and augmented on the device, all leaves by one index."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from hotset.kernels.dispatch import Engine
from hotset.rng import Draws, Key
from hotset.sample.collate import gather
from hotset.sample.column import Column, DenseColumn, LeafSchema, decode
from hotset.sample.tree import Spec, batch_leaves, unflatten, unflatten_batch


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


Make = Callable[[Iterator[Request]], Iterator[Any]]
"""Batches for requests, one each, in order."""


class Pipeline(Protocol):
    """Makes batches."""

    def session(self) -> Any:
        """A context manager that gives a `Make` and ends its threads and processes at the end."""
        ...


@dataclass(frozen=True, eq=False)
class Resident:
    """The samples as they are kept.

    Attributes:
        columns: one per leaf.
        spec: the structure of a sample.
        leaf: which leaf the engine acts on.
        rows: (N,) int64 on the columns' device, the row of every sample; None for all in order.
    """

    columns: tuple[Column, ...]
    spec: Spec
    leaf: int
    rows: Tensor | None = None

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return sum(column.nbytes for column in self.columns)


class BatchPipeline:
    """Batches from resident columns.

    Args:
        resident: the samples.
        device: where they lie and where the batches come out.
        engine: what makes the leaf it acts on; None gathers it as it is.
        dtype: dtype that leaf is cast to where no engine does it.
        group_bytes: several batches are made in one go while they take fewer bytes than this.
    """

    def __init__(
        self,
        resident: Resident,
        device: torch.device,
        engine: Engine | None,
        dtype: torch.dtype | None,
        group_bytes: int = 0,
    ) -> None:
        self._resident, self._device, self._engine = resident, device, engine
        self._dtype, self._group_bytes = dtype, group_bytes

    @contextmanager
    def session(self) -> Iterator[Make]:
        if self._engine is None:
            yield lambda requests: self._batches(requests, None)
        else:
            with self._engine.session() as run:
                yield lambda requests: self._batches(requests, run)

    def _batches(self, requests: Iterator[Request], run: Any) -> Iterator[Any]:
        spec = self._resident.spec
        group = 1
        while True:
            taken = list(itertools.islice(requests, group))
            if not taken:
                return
            leaves = self._leaves(taken, run)
            if len(taken) == 1:
                yield unflatten_batch(spec, iter(leaves))
            else:
                bounds = np.cumsum([0, *(len(request.ids) for request in taken)])
                for start, stop in itertools.pairwise(bounds):
                    yield unflatten_batch(spec, (leaf[start:stop] for leaf in leaves))
            if self._group_bytes and group == 1:
                group = max(1, self._group_bytes // max(1, _nbytes(leaves)))

    def _leaves(self, requests: Sequence[Request], run: Any) -> list[Any]:
        resident = self._resident
        if len(requests) == 1:
            ids, occurrence = requests[0].ids, requests[0].occurrence
        else:
            ids = np.concatenate([request.ids for request in requests])
            occurrence = np.concatenate([request.occurrence for request in requests])
        sample = self._place(ids)
        rows = sample if resident.rows is None else resident.rows[sample]
        leaves = []
        for number, column in enumerate(resident.columns):
            if number != resident.leaf:
                leaves.append(gather(column, rows))
            elif run is not None:
                assert isinstance(column, DenseColumn)
                draws = Draws(requests[0].key, sample, self._place(occurrence))
                leaves.append(run(column.data, rows, draws))
            else:
                leaf = gather(column, rows)
                leaves.append(leaf if self._dtype is None else leaf.to(self._dtype))
        return leaves

    def _place(self, numbers: np.ndarray) -> Tensor:
        tensor = torch.from_numpy(numbers)
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
        for batch in make(requests):
            leaves = batch_leaves(batch, self._spec)
            samples = [
                unflatten(self._spec, iter(self._sample(leaves, position)))
                for position in range(len(leaves[0]))
            ]
            yield move(self._collate(samples), self._device)

    def _sample(self, leaves: Sequence[Any], position: int) -> list[Any]:
        return [
            decode(leaf[position], schema) if isinstance(leaf, Tensor) else leaf[position]
            for leaf, schema in zip(leaves, self._schemas, strict=True)
        ]


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

    An object that is no container but has a `to` method is asked to move itself.
    """
    if device.type == "cpu":
        return batch
    if isinstance(batch, Tensor):
        return batch.to(device, non_blocking=True)
    if isinstance(batch, dict):
        moved = {key: move(value, device) for key, value in batch.items()}
        return moved if type(batch) is dict else type(batch)(moved)
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(move(value, device) for value in batch))
    if isinstance(batch, (list, tuple)):
        return type(batch)(move(value, device) for value in batch)
    return batch.to(device) if hasattr(batch, "to") else batch


def _nbytes(leaves: Sequence[Any]) -> int:
    return sum(leaf.numel() * leaf.element_size() for leaf in leaves if isinstance(leaf, Tensor))
