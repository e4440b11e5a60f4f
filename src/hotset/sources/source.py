"""Where samples come from, seen as a reader whose transform can be exchanged.

To run the first steps of a chain once and the others elsewhere, the dataset must be read with
another transform in place of the user's. A source finds the transform inside a dataset (through
`Subset` and `ConcatDataset`), makes sure that its result is one leaf of the sample unchanged, and
gives readers: copies of the dataset with a callable of hotset's choice in its place. The user's
dataset is never changed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset, Subset, TensorDataset

from hotset.chain.step import StepCall, checked_chain, flatten_chain
from hotset.errors import ConfigError, FormatError, SampleError, SchemaError, UnsupportedError
from hotset.sample.column import column_of, is_pil_image
from hotset.sample.tree import Spec, flatten, strip, unflatten
from hotset.sources.fields import columns_of
from hotset.sources.opened import note_sample
from hotset.sources.resident import Resident, of_store
from hotset.store.store import Store

Reader = Callable[[int], Any]
"""Gives the sample at an index."""


class UnkeepableError(Exception):
    """Reading showed that samples cannot be kept; the message says why."""


class Source(Protocol):
    """Samples, and the chain that makes one leaf of them."""

    @property
    def steps(self) -> list[StepCall]:
        """The user's chain, flat; empty where none was found."""
        ...

    @property
    def leaf(self) -> int:
        """Which leaf of the sample the chain makes."""
        ...

    @property
    def once(self) -> int:
        """How many of its first steps the user wants to run once in any case."""
        ...

    @property
    def unseen(self) -> list[StepCall]:
        """Transforms of the dataset's that are not in `steps`: where they act was not found."""
        ...

    @property
    def name(self) -> str:
        """What messages call it."""
        ...

    def __len__(self) -> int: ...

    def reader(self, transform: StepCall | None) -> Reader:
        """Reads samples with `transform` in place of the chain; None leaves the leaf as it is."""
        ...

    def watched_reader(self, transform: StepCall) -> Reader:
        """As `reader`; `UnkeepableError` for a sample whose leaf is not the transform's result."""
        ...

    def is_current(self) -> bool:
        """Whether the user's transforms are still those that were found."""
        ...

    def path_of(self, index: int) -> str:
        """The file that a sample is read from, where that is known; else nothing."""
        ...

    def resident(self) -> Resident | None:
        """The samples before the chain, where they lie in memory or mapped already."""
        ...


def read(reader: Reader, index: int, name: str) -> Any:
    """The sample at an index.

    Raises:
        SampleError: if the dataset raises; names the index, the dataset's own error is its cause.
        FormatError: if it is a store, and damaged; names file, block and samples.
    """
    note_sample(index)
    try:
        return loaded(reader(index))
    except (UnkeepableError, FormatError):
        raise
    except Exception as error:
        raise SampleError(
            f"{name} failed at index {index}: {type(error).__name__}: {error}"
        ) from error


def loaded(sample: Any) -> Any:
    """The sample itself, its images decoded: PIL puts that off until pixels are asked for."""
    for leaf in flatten(sample)[0]:
        if is_pil_image(leaf):
            leaf.load()
    return sample


class ArraySource:
    """Samples that lie in memory or in mapped files, with a chain on one of their leaves.

    Args:
        kept: the samples; its leaf is the one that the chain acts on.
        transform: the chain.
        name: what messages call it.
        once: how many of the first steps run once in any case.
    """

    def __init__(
        self, kept: Resident, *, transform: Any = None, name: str = "the data", once: int = 0
    ) -> None:
        self._kept, self.name, self.once = kept, name, once
        self.leaf = kept.leaf
        self.unseen: list[StepCall] = []
        self.steps = flatten_chain(transform)

    def __len__(self) -> int:
        return len(self._kept)

    def with_steps(self, calls: Sequence[StepCall], once: int) -> ArraySource | None:
        """The same samples with further steps, the first `once` of which run once in any case.

        None where the chain acts on another leaf than the first, which further steps are for.
        """
        if self.leaf != 0 and self.steps:
            return None
        kept = replace(self._kept, leaf=0)
        return ArraySource(
            kept,
            transform=[*self.steps, *calls],
            name=self.name,
            once=len(self.steps) + once if once else self.once,
        )

    def reader(self, transform: StepCall | None) -> Reader:
        return _RowReader(self._kept, transform)

    def watched_reader(self, transform: StepCall) -> Reader:
        return self.reader(transform)

    def is_current(self) -> bool:
        return True

    def path_of(self, index: int) -> str:
        return ""

    def resident(self) -> Resident | None:
        return self._kept


class _RowReader:
    """Reads kept samples by index; picklable where the transform is."""

    def __init__(self, kept: Resident, transform: StepCall | None) -> None:
        self._kept, self._transform = kept, transform

    def __call__(self, index: int) -> Any:
        leaves = self._kept.leaves(index)
        if self._transform is not None:
            leaves[self._kept.leaf] = self._transform(leaves[self._kept.leaf])
        return unflatten(self._kept.spec, iter(leaves))


def is_data_frame(data: Any) -> bool:
    """Whether data is a table of pandas', without importing it; `[0]` is none of its rows."""
    classes = [(c.__module__.partition(".")[0], c.__name__) for c in type(data).__mro__]
    return ("pandas", "DataFrame") in classes


def is_array_data(data: Any) -> bool:
    """Whether data is a tensor or array, or a tuple, list or dictionary of them, not a dataset."""
    if isinstance(data, Dataset):
        return False
    return isinstance(data, (Tensor, np.ndarray, tuple, dict)) or (
        isinstance(data, list) and len(data) > 0 and isinstance(data[0], (Tensor, np.ndarray))
    )


def array_source(
    data: Any,
    transform: Any = None,
    pre_transform: Any = None,
    *,
    ragged: Collection[Any] | None = (),
) -> ArraySource:
    """A source over a tensor, or a tuple, list or dictionary of tensors and arrays.

    Args:
        data: fields of equal length; a dictionary may hold further ones. See `columns_of`.
        transform: acts on the first field; for dictionaries, `{field: transform}` for one field.
        pre_transform: likewise, on the same field; runs before it, and once in any case.
        ragged: names or paths of fields whose samples may differ in shape; None for all.

    Raises:
        SchemaError: if a field is no array, or lengths differ.
        ConfigError: if a transform does not say which field it is for.
    """
    columns, spec = columns_of(data, ragged)
    paths = spec.paths()
    lengths = {path: len(column) for path, column in zip(paths, columns, strict=True)}
    if len(set(lengths.values())) > 1:
        raise SchemaError(f"fields must have the same number of samples, got {lengths}")
    (leaf, chain), (pre_leaf, before) = (
        _field_of(t, spec, n)
        for t, n in ((transform, "transform"), (pre_transform, "pre_transform"))
    )
    if chain is not None and before is not None and leaf != pre_leaf:
        raise ConfigError("`pre_transform` and `transform` must be for the same field")
    once = checked_chain(before, "pre_transform")
    kept = Resident(tuple(columns), strip(spec), leaf if before is None else pre_leaf)
    return ArraySource(kept, transform=[*once, *checked_chain(chain, "transform")], once=len(once))


def _field_of(transform: Any, spec: Spec, argument: str) -> tuple[int, Any]:
    """Which leaf a transform is for, and the transform itself."""
    if transform is None or spec.kind != "mapping":
        if isinstance(transform, dict):
            raise ConfigError(f"`{argument}` names a field, but the data is no dictionary")
        return 0, transform
    if not isinstance(transform, dict) or len(transform) != 1:
        given = list(transform) if isinstance(transform, dict) else type(transform).__name__
        raise ConfigError(
            f"for a dictionary, `{argument}` must be {{field: transform}} with one of "
            f"{list(spec.keys)}, got {given}"
        )
    field, chain = next(iter(transform.items()))
    paths = spec.paths()
    if f"[{field!r}]" not in paths:
        raise ConfigError(f"`{argument}` names the field {field!r}; the data has {paths}")
    return paths.index(f"[{field!r}]"), chain


def memory_source(dataset: Any) -> ArraySource | None:
    """A source over a dataset whose samples lie in memory, also through `Subset`; None for others.

    That is torch's `TensorDataset`, `hotset.Store`, and any dataset with an `array_source` method.
    """
    rows: Tensor | None = None
    inner = dataset
    while type(inner) is Subset:
        indices = _subset_rows(inner)
        rows = indices if rows is None else indices[rows]
        inner = inner.dataset
    if type(inner) is TensorDataset:
        columns = [column_of(tensor, f"tensor {n}") for n, tensor in enumerate(inner.tensors)]
        spec = strip(flatten(tuple(range(len(columns))))[1])
        return ArraySource(Resident(tuple(columns), spec, 0, rows), name="TensorDataset")
    if isinstance(inner, Store):
        kept = of_store(inner)
        return ArraySource(
            kept if rows is None else kept.of(rows), transform=inner.steps, name="Store"
        )
    if hasattr(inner, "array_source"):
        return inner.array_source(rows)  # type: ignore[no-any-return]
    return None


def _subset_rows(subset: Subset[Any]) -> Tensor:
    """(N,) int64 rows of a subset, those counted from the end made positive."""
    length = len(subset.dataset)  # type: ignore[arg-type]
    given = torch.as_tensor([int(i) for i in subset.indices], dtype=torch.int64)
    rows = torch.where(given < 0, given + length, given)
    wrong = given[(rows < 0) | (rows >= length)]
    if len(wrong):
        raise ConfigError(
            f"a Subset has the index {int(wrong[0])}, but the dataset inside has {length} samples"
        )
    return rows


def spread(length: int, count: int) -> list[int]:
    """Up to `count` different indices, evenly spread over a dataset, both ends included."""
    return sorted({int(i) for i in np.linspace(0, length - 1, min(count, length)).round()})


def dataset_length(dataset: Any) -> int:
    """The number of samples of a map-style dataset.

    Raises:
        UnsupportedError: if it is an `IterableDataset`, or has no length or index.
        ConfigError: if it is empty.
    """
    if isinstance(dataset, IterableDataset):
        raise UnsupportedError(
            f"{type(dataset).__name__} is an IterableDataset: its samples have no index to keep "
            "them by; make a store of it once, with hotset.build, and load that"
        )
    if isinstance(dataset, (str, bytes, os.PathLike)):
        raise UnsupportedError(
            f"expected a dataset or arrays, got {dataset!r}; for a store's path give "
            f"hotset.open({dataset!r})"
        )
    if is_data_frame(dataset):
        raise UnsupportedError(
            "expected a map-style dataset, whose samples have the indices 0, 1 and so on, or "
            "arrays; got a DataFrame: give its columns, as {name: df[name].to_numpy() for name in "
            "df}"
        )
    is_text_or_class = isinstance(dataset, type)
    if is_text_or_class or not hasattr(dataset, "__getitem__") or not hasattr(dataset, "__len__"):
        found = repr(dataset) if is_text_or_class else f"a {type(dataset).__name__} without these"
        raise UnsupportedError(
            "expected a map-style dataset, with __getitem__ and __len__, or a tensor, array, tuple "
            f"or dictionary of them; got {found}"
        )
    return check_length(len(dataset), type(dataset).__name__)


def check_length(length: int, name: str) -> int:
    """A number of samples that is not zero.

    Raises:
        ConfigError: if it is.
    """
    if length == 0:
        raise ConfigError(f"{name} is empty: there is nothing to load")
    return length
