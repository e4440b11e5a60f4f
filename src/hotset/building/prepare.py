"""From a user's data to the recipe of a store, whatever kind of data it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch.utils.data import DataLoader

from hotset.building.chunks import SUBSTITUTES
from hotset.building.recipe import Recipe, check_first_leaves, recipe_for
from hotset.building.stream import Stream, StreamReader, head_of, is_stream
from hotset.chain.probe import preserved_generators
from hotset.chain.step import Chained, checked_chain
from hotset.errors import ConfigError, UnsupportedError
from hotset.keys.source import identity_of
from hotset.sample.tree import flatten
from hotset.sources.analyse import PROBES, analyse
from hotset.sources.mapstyle import dataset_source
from hotset.sources.opened import Opened, note_sample
from hotset.sources.source import (
    Source,
    array_source,
    check_length,
    dataset_length,
    is_array_data,
    loaded,
    spread,
)


@dataclass(frozen=True, eq=False)
class Prepared:
    """A user's data, looked at.

    Attributes:
        recipe: of the store that keeps samples as they are before the first random step.
        stream_reader: reads the samples if they have no index; else None.
        recipe_at_cut: makes the recipe of the store that keeps samples as they are at the cut.
    """

    recipe: Recipe
    stream_reader: StreamReader | None
    recipe_at_cut: Callable[[], Recipe]


def prepare(
    data: Any,
    transform: Any,
    *,
    version: str | None,
    is_by_content: bool,
    is_tolerant: bool = False,
) -> Prepared:
    """Looks at data on a few samples, and says how a store is made of it.

    Args:
        data: a dataset, a `DataLoader`, arrays, or an iterable.
        transform: further steps on the first field.
        version: the user's word for what cannot be keyed.
        is_by_content: whether all of the files that the dataset names are hashed.
        is_tolerant: whether samples that cannot be read are no reason to stop.

    Raises:
        UnsupportedError: if the data is of no kind that can be stored.
        ConfigError: if it is empty, or draws random numbers.
        KeyingError: if something cannot be keyed, or samples are read from files that nothing
            names; and no version is given.
        SampleError: if a sample cannot be read.
    """
    if isinstance(data, DataLoader):
        data = data.dataset
    # Arrays stay as they are when they are read; all else may not.
    identity = None if is_array_data(data) else identity_of(data, everything=is_by_content)
    stream, probes = None, None
    with Opened() as opened:
        if is_stream(data):
            chain = checked_chain(transform, "transform")
            stream = Stream(data)
            head = head_of(stream, Chained(chain), is_tolerant=is_tolerant)
            source: Source = dataset_source(head, chain, name=stream.name)
        else:
            probes = _readable(data, transform) if is_tolerant and not is_array_data(data) else None
            source = _source_of(data, transform, probes)
        analysis = analyse(source, probes)
    if not analysis.dataset.is_deterministic:
        check_first_leaves(analysis)  # what cannot be compared is not the same twice either
        raise ConfigError(
            f"{source.name} cannot be stored: {analysis.dataset.reason}. Give hotset.build a "
            "dataset without its random part, and that part to the loader as `transform`"
        )
    hidden = [] if source.steps or is_array_data(data) else checked_chain(transform, "transform")

    def recipe(is_whole: bool) -> Recipe:
        return recipe_for(
            data,
            analysis,
            is_whole=is_whole,
            version=version,
            is_by_content=is_by_content,
            hidden=hidden,
            identity=identity,
            opened=opened,
        )

    whole = recipe(True)
    prefix = Chained([*(step.call for step in analysis.split.steps[: whole.cut]), *hidden])
    reader = None if stream is None else StreamReader(stream, prefix)
    return Prepared(whole, reader, lambda: recipe(False))


def _source_of(data: Any, transform: Any, probes: list[int] | None) -> Source:
    if is_array_data(data):
        found: Source = array_source(data, transform)
        check_length(len(found), "the data")
        return found
    if not (hasattr(data, "__getitem__") and hasattr(data, "__len__")) or isinstance(data, str):
        found_words = (
            repr(data) if isinstance(data, (str, type)) else f"one of type {type(data).__name__}"
        )
        raise UnsupportedError(
            "expected a dataset with __getitem__ and __len__, a DataLoader, an iterable, or a "
            f"tensor, array, tuple or dictionary of them; got {found_words}"
        )
    dataset_length(data)
    return dataset_source(data, transform, probes=probes)


def _readable(data: Any, transform: Any) -> list[int] | None:
    """Samples to look at, those that cannot be read replaced by later ones; None if all can."""
    length, chain = dataset_length(data), Chained(checked_chain(transform, "transform"))
    wanted = spread(length, PROBES)
    found: set[int] = set()
    with preserved_generators():
        for first in wanted:
            for step in range(min(SUBSTITUTES, length)):
                index = (first + step) % length
                if index in found or _is_readable(data, chain, index):
                    found.add(index)
                    break
    return None if not found or sorted(found) == wanted else sorted(found)


def _is_readable(data: Any, chain: Chained, index: int) -> bool:
    note_sample(index)
    try:
        loaded(chain(flatten(loaded(data[index]))[0][0]))
    except Exception:  # whatever a dataset or a step raises, the sample cannot be read
        return False
    return True
