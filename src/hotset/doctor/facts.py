"""What a loader says of itself, and how it comes by its batches."""

from __future__ import annotations

import itertools
import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    IterableDataset,
    SequentialSampler,
    Subset,
    default_collate,
    default_convert,
)

from hotset.doctor.examination import Facts
from hotset.errors import HotsetError
from hotset.loader.epochs import Epochs
from hotset.sample.tree import flatten
from hotset.sources.nesting import base_datasets
from hotset.sources.source import memory_source

PREFETCH = 2
"""Batches that a worker of a `DataLoader` is ahead by, where nobody says otherwise."""
SEARCHED = 1000
"""Tensors of a list or dictionary that a sample is looked for in."""


@dataclass(frozen=True, eq=False)
class Fetch:
    """How a `DataLoader` comes by its batches.

    Attributes:
        dataset: the user's own.
        name: of its class; of what is inside, for a `Subset` or `ConcatDataset`.
        length: of the dataset; None where it has none.
        is_stream: whether it is an `IterableDataset`.
        size: samples in a batch, or 1 where nobody knows.
        items: how many items the dataset is asked for in a batch: 1 where it makes whole batches.
        is_keyed: whether it is asked for a list of indices, as one item.
        is_whole: whether its `__getitems__` is asked for the items of a batch at once.
        is_sequential: whether it is read in order.
        collate: makes a batch of the items; of the one item, where `makes_batches`.
        makes_batches: whether each item is a whole batch.
    """

    dataset: Any
    name: str
    length: int | None
    is_stream: bool
    size: int
    items: int
    is_keyed: bool
    is_whole: bool
    is_sequential: bool
    collate: Callable[[Any], Any]
    makes_batches: bool

    def read(self, indices: Sequence[int]) -> list[Any]:
        """The items at some indices, as a worker reads them for a batch.

        Args:
            indices: of a batch; of one item, where it `is_keyed`.
        """
        if self.is_keyed:
            return [self.dataset[list(indices)]]
        if self.is_whole:
            return list(self.dataset.__getitems__(list(indices)))
        return [self.dataset[index] for index in indices]

    def rows(self, size: int) -> Iterator[list[int]]:
        """Indices of batches without end: in order or at random, as the loader has them.

        Args:
            size: indices in each.
        """
        length, generator = self.length or 0, torch.Generator().manual_seed(0)
        for start in itertools.count(step=size):
            if self.is_sequential:
                yield [place % length for place in range(start, start + size)]
            else:
                yield torch.randint(length, (size,), generator=generator).tolist()

    def finish(self, items: list[Any]) -> Any:
        """The batch of some items."""
        return self.collate(items[0] if self.makes_batches else items)


def facts_of(loader: Any) -> Facts:
    """What a loader says of itself; nothing is read, and nothing changed.

    Args:
        loader: a `DataLoader` or a subclass of it, a loader of hotset's, or any other iterable.
    """
    if isinstance(loader, DataLoader):
        return _of_dataloader(loader)
    is_own = isinstance(loader, Epochs)
    size, workers = getattr(loader, "batch_size", None), getattr(loader, "num_workers", 0)
    dataset = getattr(loader, "dataset", None)
    return Facts(
        kind="hotset.Loader" if is_own else "iterable",
        name=type(loader).__name__,
        dataset="" if dataset is None else name_of(dataset),
        samples=loader.plan.samples if isinstance(loader, Epochs) else None,
        batches=length_of(loader),
        batch_size=size if _is_count(size) else None,
        workers=workers if _is_count(workers) and not is_own else 0,
    )


def _of_dataloader(loader: DataLoader[Any]) -> Facts:
    workers, dataset = loader.num_workers, loader.dataset
    is_stream = isinstance(dataset, IterableDataset)
    samples, batches, size = _counts(loader, is_stream)
    return Facts(
        kind="DataLoader",
        name=type(loader).__name__,
        dataset=name_of(dataset),
        samples=samples,
        batches=batches,
        batch_size=size,
        workers=workers,
        prefetch=(loader.prefetch_factor or PREFETCH) if workers else 0,
        is_persistent=loader.persistent_workers,
        is_pinned=loader.pin_memory,
        start_method=_start_method(loader) if workers else "",
        has_collate=loader.collate_fn not in (None, default_collate, default_convert),
        is_stream=is_stream,
        is_in_memory=_is_in_memory(dataset),
    )


def fetch_of(loader: DataLoader[Any]) -> Fetch:
    """How a `DataLoader` comes by its batches."""
    dataset: Any = loader.dataset
    is_stream = isinstance(dataset, IterableDataset)
    makes_batches = loader.batch_sampler is None
    size = _counts(loader, is_stream)[2] or 1
    lists = None if is_stream else _batches(loader)
    inner = dataset
    while type(inner) is Subset:  # its own __getitems__ asks for one by one, if the inner has none
        inner = inner.dataset
    return Fetch(
        dataset=dataset,
        name=name_of(dataset),
        length=length_of(dataset),
        is_stream=is_stream,
        size=size,
        items=1 if makes_batches else size,
        is_keyed=makes_batches and lists is not None,
        is_whole=not is_stream and not makes_batches and hasattr(inner, "__getitems__"),
        is_sequential=isinstance(getattr(lists, "sampler", loader.sampler), SequentialSampler),
        collate=loader.collate_fn,
        makes_batches=makes_batches,
    )


def name_of(dataset: Any) -> str:
    """The name of a dataset's class; of what is inside, for a `Subset` or `ConcatDataset`."""
    return type(base_datasets(dataset)[0]).__name__


def length_of(value: Any) -> int | None:
    """How long something is; None where it does not know."""
    try:
        return len(value)
    except (TypeError, NotImplementedError, AttributeError):  # it need not know its length
        return None


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _batches(loader: DataLoader[Any]) -> Any:
    """What gives lists of indices: the batch sampler, or a sampler that does; else None."""
    if loader.batch_sampler is not None:
        return loader.batch_sampler
    sampler: Any = loader.sampler
    is_lists = isinstance(sampler, BatchSampler) or _is_count(getattr(sampler, "batch_size", None))
    return sampler if is_lists else None


def _counts(loader: DataLoader[Any], is_stream: bool) -> tuple[int | None, int | None, int | None]:
    """Samples in an epoch, batches in an epoch, samples in a batch: each None if not known."""
    if is_stream:
        # The loader itself is not asked for its length: it would warn of a wrong one from then on.
        size, length = loader.batch_size, length_of(loader.dataset)
        if size is None or length is None:
            return None, length, size  # without a size, each item is a batch
        count = length // size if loader.drop_last else -(-length // size)
        return (count * size if loader.drop_last else length), count, size
    lists, batches = _batches(loader), length_of(loader)
    if lists is None:  # each item is a batch
        return None, batches, None
    given = getattr(lists, "batch_size", None)
    size = given if _is_count(given) and given else None
    samples = length_of(getattr(lists, "sampler", None))
    if size is None and samples is not None and batches:
        size = max(1, -(-samples // batches))
    is_dropped = getattr(lists, "drop_last", False) is True
    if is_dropped and size is not None and batches is not None:
        samples = batches * size
    return samples, batches, size


def _start_method(loader: DataLoader[Any]) -> str:
    context: Any = loader.multiprocessing_context
    if context is not None:
        return str(context.get_start_method())
    # To ask for the default would settle it, and a later `set_start_method` would then fail.
    settled = multiprocessing.get_start_method(allow_none=True)
    return settled or multiprocessing.get_all_start_methods()[0]


def _is_in_memory(dataset: Any) -> bool:
    try:
        source = memory_source(dataset)
    except HotsetError:  # as of a Subset whose indices are wrong
        return False
    resident = None if source is None else source.resident()
    return resident is not None and resident.store is None and not (source and source.steps)


def is_view(dataset: Any, item: Any) -> bool:
    """Whether an item's tensors and arrays are parts of what the dataset itself has in memory.

    Args:
        dataset: the user's own.
        item: that it gave, for an index.
    """
    leaves = [leaf for leaf in flatten(item)[0] if isinstance(leaf, (Tensor, np.ndarray))]
    held = [span for base in base_datasets(dataset) for span in _spans(base)]
    return bool(leaves) and all(
        any(start <= begin and end <= stop for start, stop in held)
        for begin, end in map(_span, leaves)
    )


def _spans(dataset: Any) -> Iterator[tuple[int, int]]:
    """The memory of the tensors and arrays that a dataset holds, of few at most."""
    for value in getattr(dataset, "__dict__", {}).values():
        parts: Any = (value,)
        if isinstance(value, dict):
            parts = list(value.values())[:SEARCHED]
        elif isinstance(value, (list, tuple)):
            parts = value[:SEARCHED]
        for part in parts:
            is_mapped = isinstance(part, np.memmap)
            if isinstance(part, (Tensor, np.ndarray)) and not is_mapped and _span(part)[0] >= 0:
                yield _span(part)


def _span(value: Tensor | np.ndarray) -> tuple[int, int]:
    """The addresses of its first byte, and behind its last; (-1, -1) where it has none."""
    if isinstance(value, np.ndarray):
        begin, width = value.ctypes.data if value.size else -1, value.itemsize
        strides: Sequence[int] = value.strides
    elif value.layout is torch.strided and not value.is_nested and value.numel():
        begin, width = value.data_ptr(), value.element_size()
        strides = [stride * width for stride in value.stride()]
    else:
        begin, width, strides = -1, 0, ()
    if begin < 0:
        return -1, -1
    reach = [(size - 1) * stride for size, stride in zip(value.shape, strides, strict=True)]
    return begin + sum(min(0, far) for far in reach), begin + sum(
        max(0, far) for far in reach
    ) + width
