"""Map-style datasets as sources: finding the transform, exchanging it, and watching it at work."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch.utils.data import Dataset

from hotset.chain.probe import preserved_generators, same_sample, seed_generators
from hotset.chain.step import Chained, StepCall, checked_chain, flatten_chain
from hotset.sample.tree import flatten, unflatten
from hotset.sources.nesting import (
    all_transforms,
    base_datasets,
    path_of,
    shared_transform,
    signature_of,
    with_transform,
)
from hotset.sources.opened import Numbered, note_sample
from hotset.sources.source import Reader, Source, UnkeepableError, memory_source, spread

STRUCTURE_PROBES = 2
"""Samples read to see where a dataset puts its transform's result."""


def dataset_source(
    dataset: Any,
    transform: Any = None,
    pre_transform: Any = None,
    *,
    probes: Sequence[int] | None = None,
    name: str | None = None,
) -> Source:
    """A source over a map-style dataset, with further transforms on the first leaf if wanted.

    Args:
        dataset: with a length that is not zero.
        transform: callable, or list of callables, behind the dataset's own.
        pre_transform: likewise, before `transform`; runs once in any case.
        probes: samples that can be read; None chooses some.
        name: what messages call it; None is its class's.
    """
    before = checked_chain(pre_transform, "pre_transform")
    added = [*before, *checked_chain(transform, "transform")]
    probes = spread(len(dataset), STRUCTURE_PROBES) if probes is None else probes
    found = memory_source(dataset)
    if not added:
        return found or DatasetSource(dataset, probes, name=name)
    extended = None if found is None else found.with_steps(added, len(before))
    chained = Transformed(dataset, added)
    return extended or DatasetSource(chained, probes, len(before), name=name)


class DatasetSource:
    """A map-style dataset of any kind.

    Args:
        dataset: anything with `__getitem__` and `__len__`.
        probes: indices to look at, to see where the transform's result goes.
        once: how many of the chain's first steps run once in any case.
        name: what messages call it; None is its class's.
    """

    def __init__(
        self, dataset: Any, probes: Sequence[int], once: int = 0, *, name: str | None = None
    ) -> None:
        self._dataset, self.once = dataset, once
        self.name = name or type(base_datasets(dataset)[0]).__name__
        self.leaf, self.steps = 0, []
        transform = shared_transform(base_datasets(dataset))
        leaf = None if transform is None else self._leaf_of(transform, probes)
        if leaf is not None:
            self.leaf, self.steps = leaf, flatten_chain(transform)
        self.unseen: list[StepCall] = [] if self.steps else all_transforms(dataset)
        self._signature = signature_of(dataset)

    def __len__(self) -> int:
        return len(self._dataset)

    def reader(self, transform: StepCall | None) -> Reader:
        if not self.steps:
            return _Reader(self._dataset)
        return _Reader(
            with_transform(self._dataset, Chained([]) if transform is None else transform)
        )

    def watched_reader(self, transform: StepCall) -> Reader:
        if not self.steps:
            return _Reader(self._dataset)
        tap = _Tap(transform)
        return _WatchedReader(with_transform(self._dataset, tap), tap, self.leaf)

    def is_current(self) -> bool:
        return signature_of(self._dataset) == self._signature

    def path_of(self, index: int) -> str:
        return path_of(self._dataset, index)

    def resident(self) -> None:
        return None

    def _leaf_of(self, transform: StepCall, probes: Sequence[int]) -> int | None:
        """The leaf that is the transform's result itself, in every probe; None if there is none.

        The other leaves must not depend on it: they are the same with the transform left out.
        """
        steps = enumerate(flatten_chain(transform))
        tap = _Tap(Chained([Numbered(number, call) for number, call in steps]))
        try:
            reader = _Reader(with_transform(self._dataset, tap))
            bare = _Reader(with_transform(self._dataset, Chained([])))
            with preserved_generators():
                found = {self._place(reader, bare, tap, index) for index in probes}
        except Exception:
            return None  # it asks more of its transform than to be called with one value
        return found.pop() if len(found) == 1 else None

    def _place(self, reader: Reader, bare: Reader, tap: _Tap, index: int) -> int | None:
        seed_generators(index)
        note_sample(index)
        leaves = tap.watch(reader, index)
        places = [n for n, leaf in enumerate(leaves) if any(leaf is r for r in tap.results)]
        if len(places) != 1 or len(tap.results) != 1:
            return None
        seed_generators(index)
        return places[0] if _same_others(leaves, bare, index, places[0]) else None


class _Reader:
    """Reads a dataset by index; picklable where the dataset is."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset

    def __call__(self, index: int) -> Any:
        return self._dataset[index]


class _Tap:
    """Stands in for a transform and keeps what it gave."""

    def __init__(self, call: StepCall) -> None:
        self._call, self.results = call, []  # type: ignore[var-annotated]

    def __call__(self, value: Any) -> Any:
        result = self._call(value)
        self.results.append(result)
        return result

    def watch(self, reader: Reader, index: int) -> list[Any]:
        """The leaves of a sample; `results` are then what the transform gave for it."""
        self.results.clear()
        return flatten(reader(index))[0]


class _WatchedReader:
    """Reads a dataset by index, and sees to it that one leaf is what the transform gave."""

    def __init__(self, dataset: Any, tap: _Tap, leaf: int) -> None:
        self._dataset, self._tap, self._leaf = dataset, tap, leaf

    def __call__(self, index: int) -> Any:
        results = self._tap.results
        results.clear()
        sample = self._dataset[index]
        leaves = flatten(sample)[0]
        is_shown = (
            len(results) == 1 and self._leaf < len(leaves) and leaves[self._leaf] is results[0]
        )
        if not is_shown:
            raise UnkeepableError(
                f"its transform is not applied once to every sample, as at index {index}"
            )
        return sample


def _same_others(leaves: list[Any], bare: Reader, index: int, leaf: int) -> bool:
    """Whether all leaves but one are the same as another reader gives them."""
    try:
        others = flatten(bare(index))[0]
        del others[leaf]
    except Exception:
        return False  # the dataset goes on to use the transform's result
    return same_sample([*leaves[:leaf], *leaves[leaf + 1 :]], others)


class Transformed(Dataset[Any]):
    """A dataset with a further transform on the first leaf of its samples.

    Attributes:
        transform: the transform.
    """

    def __init__(self, dataset: Any, transform: Any) -> None:
        self._dataset = dataset
        self.transform: StepCall = Chained(flatten_chain(transform))

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, index: int) -> Any:
        leaves, spec = flatten(self._dataset[index])
        leaves[0] = self.transform(leaves[0])
        return unflatten(spec, iter(leaves))
