"""Batches whose random steps have no batched form: the user's own callables, in worker processes.

Each sample is made in an ordinary `DataLoader`, from the cached result of the steps before, under
seeds that follow from (seed, epoch, sample): they do not depend on which worker makes it, so the
well-known trap of workers that repeat each other's NumPy draws cannot happen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, default_collate, get_worker_info

from hotset.chain.probe import preserved_generators, seed_generators
from hotset.chain.step import StepCall
from hotset.loader.batch import Make, Request, seeds_of
from hotset.loader.forms import Forms
from hotset.loader.moved import move
from hotset.placement.link import Link
from hotset.placement.stats import Tally
from hotset.sample.collate import as_it_is, check_same
from hotset.sample.tree import unflatten
from hotset.sources.resident import Resident
from hotset.sources.source import Reader, read

SeededIndex = tuple[int, int]
"""(sample id, seed)."""


class CachedReader:
    """Reads samples from columns and runs the rest of the chain on them; picklable for workers.

    Args:
        resident: the samples, on the CPU.
        rest: the steps that are left.
    """

    def __init__(self, resident: Resident, rest: StepCall) -> None:
        self._resident, self._rest = resident, rest

    def __call__(self, index: int) -> Any:
        resident = self._resident
        leaves = resident.leaves(index)
        leaves[resident.leaf] = self._rest(leaves[resident.leaf])
        return unflatten(resident.spec, iter(leaves))


class _SeededBatches(Dataset[Any]):
    """Whole batches by the (id, seed) of their samples: a collate_fn may draw as well."""

    def __init__(
        self, reader: Reader, name: str, cast: Callable[[Any], Any], collate: Any, forms: Forms
    ) -> None:
        self._reader, self._name, self._cast, self._forms = reader, name, cast, forms
        self._must_stack = collate in (None, default_collate)
        self._collate = collate or default_collate

    def __getitem__(self, items: Sequence[SeededIndex]) -> Any:
        if get_worker_info() is not None:
            return self._batch(items)
        with preserved_generators():  # in the main process the generators are the user's
            return self._batch(items)

    def _batch(self, items: Sequence[SeededIndex]) -> Any:
        samples = [self._sample(*item) for item in items]
        if self._must_stack:
            for (index, _), sample in zip(items[1:], samples[1:], strict=True):
                check_same(samples[0], sample, items[0][0], index, self._forms.by_leaf)
            if self._forms:
                return self._forms.collate(samples)
        return self._collate(samples)

    def _sample(self, index: int, seed: int) -> Any:
        seed_generators(seed)
        return self._cast(read(self._reader, index, self._name))


class _Requests:
    """A sampler of whole batches, from requests."""

    def __init__(self, requests: Iterator[Request]) -> None:
        self._requests = requests

    def __iter__(self) -> Iterator[list[SeededIndex]]:
        for request in self._requests:
            yield list(zip(request.ids.tolist(), seeds_of(request), strict=True))


class WorkerPipeline:
    """Batches made sample by sample in an ordinary `DataLoader`.

    Args:
        reader: gives a sample, drawing from the global generators.
        name: what messages call the dataset.
        cast: what is done to a finished sample (a dtype).
        link: to the device where the batches come out.
        tally: counts what is copied there.
        settings: keyword arguments of the `DataLoader`: workers, collate_fn and the like.
        forms: how leaves whose shape differs come out.
    """

    def __init__(
        self,
        reader: Reader,
        name: str,
        cast: Callable[[Any], Any],
        link: Link,
        tally: Tally,
        settings: dict[str, Any],
        forms: Forms,
    ) -> None:
        self._dataset = _SeededBatches(reader, name, cast, settings["collate_fn"], forms)
        self._forms = forms
        self._link, self._tally = link, tally
        self._settings = {**settings, "collate_fn": as_it_is}

    @contextmanager
    def session(self) -> Iterator[Make]:
        iterators: list[Any] = []

        def make(requests: Iterator[Request]) -> Iterator[Any]:
            loader: DataLoader[Any] = DataLoader(
                self._dataset,
                sampler=_Requests(requests),
                batch_size=None,
                generator=torch.Generator(),  # its seed is drawn from here, not from the user's
                pin_memory=self._link.device.type == "cuda",
                **self._settings,
            )
            iterators.append(iter(loader))
            for batch in iterators[-1]:
                yield self._forms.finish(move(batch, self._link, self._tally))

        try:
            yield make
        finally:
            for iterator in iterators:
                shutdown = getattr(iterator, "_shutdown_workers", None)
                if shutdown is not None:
                    shutdown()


WORKER_SETTINGS = (
    "num_workers",
    "collate_fn",
    "timeout",
    "worker_init_fn",
    "multiprocessing_context",
    "prefetch_factor",
)


def worker_settings(loader: DataLoader[Any]) -> dict[str, Any]:
    """The settings of a user's `DataLoader` that its replacement takes over."""
    settings = {name: getattr(loader, name) for name in WORKER_SETTINGS}
    if loader.num_workers == 0:
        settings["prefetch_factor"] = None
    return settings
