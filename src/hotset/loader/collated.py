"""Batches made by a user's own `collate_fn`."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from torch import Tensor

from hotset.chain.probe import preserved_generators, seed_generators
from hotset.loader.batch import Make, Pipeline, Request, remembered, seeds_of
from hotset.sample.column import LeafSchema, decode
from hotset.sample.tree import Spec, batch_leaves, unflatten

COLLATE_DRAW = 1
"""Which draw of a batch's first sample seeds the user's collate_fn."""


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
