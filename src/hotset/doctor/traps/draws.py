"""Whether worker processes draw the same random numbers, seen in a few of them.

torch seeds `random`, `numpy.random` and its own generator anew in each worker. A generator that the
dataset or its transforms hold for themselves is copied into each, as it is.
"""

from __future__ import annotations

import hashlib
import itertools
import pickle
import random
from collections.abc import Callable, Generator
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, get_worker_info

from hotset.chain.probe import generator_states, own_generators, preserved_generators
from hotset.doctor.facts import Fetch
from hotset.doctor.restoring import attributes_of
from hotset.doctor.traps.holdings import held_by
from hotset.errors import SampleError
from hotset.sources.nesting import all_transforms

READ = 4
"""Samples that are read, here and in each worker."""
SECONDS = 2.0
"""That they may take in each, one aside."""
GLOBAL = ("random", "numpy.random", "torch")
"""What those generators are called that torch seeds in each worker."""
_PYTHON: Any = random.random
_NUMPY: Any = np.random.random_sample
SEEDED = (_PYTHON.__self__, _NUMPY.__self__, torch.default_generator)
"""Those generators themselves."""
State = tuple[str, str]
"""A generator's name, and a digest of its state."""


@dataclass(frozen=True)
class Repeats:
    """A generator whose draws come again.

    Attributes:
        name: its class; for one of those that torch seeds, its module's name.
        path: how it is reached from the dataset, or "module:name"; empty where that is not known.
        is_in_all: whether all workers draw the same; else each of them does so in every epoch.
    """

    name: str
    path: str
    is_in_all: bool


def repeats_of(loader: DataLoader[Any], fetch: Fetch, *, sample_s: float = 0.0) -> Repeats | None:
    """A generator whose draws come again in other workers, or in the next epoch; None for none.

    Where a generator moves when samples are read here, two workers are started on the same few
    samples, and the states that their generators come to are compared. All generators of this
    process stay as they were.

    Args:
        loader: with workers.
        fetch: how it comes by its batches.
        sample_s: what a sample takes.
    """
    count = max(1, min(READ, int(SECONDS / sample_s))) if sample_s > 0 else READ
    own = _own(fetch.dataset, fetch.collate)
    if not own and loader.worker_init_fn is None:
        return None  # torch sees to all others
    with attributes_of(loader):
        moves = _moves(fetch, own, count)
    if not moves or (loader.num_workers < 2 and loader.persistent_workers):
        return None
    first = _states_in_workers(loader, fetch, count, epoch=0)
    if loader.num_workers > 1:
        for name, _ in sorted(first[0] & first[1]):
            return Repeats(name, _path_of(fetch, name), is_in_all=True)
    if not loader.persistent_workers:
        again = _states_in_workers(loader, fetch, count, epoch=1)
        for name, _ in sorted(first[0] & again[0]):
            return Repeats(name, _path_of(fetch, name), is_in_all=False)
    return None


def _own(dataset: Any, collate: Any) -> list[Any]:
    """Generators that torch does not seed in each worker."""
    roots = [[dataset, collate], *all_transforms(dataset)]  # a long list would hide the transforms
    found = {id(each): each for root in roots for each in own_generators(root)}
    return [each for key, each in found.items() if key not in map(id, SEEDED)]


def _name(generator: Any) -> str:
    """Of its class, as users know it."""
    if isinstance(generator, torch.Generator):
        return "torch.Generator"
    if isinstance(generator, random.Random):
        return "random.Random"
    return f"numpy.random.{type(generator).__name__}"


def _moves(fetch: Fetch, own: list[Any], count: int) -> bool:
    """Whether a generator moves when samples are read."""
    with preserved_generators(own):
        before = generator_states(own)
        _read(fetch, count)
        return generator_states(own) != before


def _read(fetch: Fetch, count: int) -> None:
    """Reads a few samples one by one, and puts together a batch of each."""
    if fetch.is_stream:
        stream = iter(fetch.dataset)
        if stream is iter(fetch.dataset):
            return  # samples taken from it would be missing in the loop
        for item in itertools.islice(stream, count):
            fetch.finish([item])
        if isinstance(stream, Generator):
            stream.close()  # it may hold files open
        return
    for index in _indices(fetch, count):
        fetch.finish(fetch.read([index]))


def _indices(fetch: Fetch, count: int) -> list[int]:
    return list(range(min(count, fetch.length or 0)))


def _states_in_workers(
    loader: DataLoader[Any], fetch: Fetch, count: int, *, epoch: int
) -> list[set[State]]:
    """The states that generators move to in each of two workers, on the same samples.

    Raises:
        SampleError: if a worker fails; says how.
    """
    workers = min(2, loader.num_workers)
    how: dict[str, Any] = {}
    if not fetch.is_stream:
        tasks = [[index] for index in _indices(fetch, count) for _ in range(workers)]
        how = {"sampler" if fetch.makes_batches else "batch_sampler": tasks}
        if fetch.makes_batches and not fetch.is_keyed:
            how["sampler"] = [index for (index,) in tasks]
    if fetch.makes_batches:
        how["batch_size"] = None
    made: DataLoader[Any] = DataLoader(
        fetch.dataset,
        **how,
        num_workers=workers,
        collate_fn=_Told(fetch.collate),
        timeout=loader.timeout,
        worker_init_fn=_Begun(loader.worker_init_fn, fetch.collate),
        multiprocessing_context=loader.multiprocessing_context,
        prefetch_factor=1,
        generator=torch.Generator().manual_seed(epoch),  # the user's own stays as it is
    )
    found: list[set[State]] = [set(), set()]
    batches = iter(made)
    try:
        for number, states in itertools.islice(batches, count * workers):
            found[number] |= states
    except Exception as error:  # the user's own code runs in the workers, and may raise anything
        raise SampleError(f"a worker of {fetch.name} failed: {error}") from error
    finally:
        batches._shutdown_workers()  # type: ignore[attr-defined]  # it has workers
    return found


_begun: set[State] = set()
"""The states that a worker began with."""


def _states(collate: Any) -> set[State]:
    """The states of all generators within reach, in a worker."""
    info = get_worker_info()
    own = _own(None if info is None else info.dataset, collate)
    names = [*GLOBAL, *map(_name, own)]
    return {
        (name, hashlib.sha256(pickle.dumps(state)).hexdigest())
        for name, state in zip(names, generator_states(own), strict=True)
    }


class _Begun:
    """Begins a worker as the user does, and keeps the states that it begins with."""

    def __init__(self, begin: Callable[[int], None] | None, collate: Any) -> None:
        self._begin, self._collate = begin, collate

    def __call__(self, number: int) -> None:
        if self._begin is not None:
            self._begin(number)
        _begun.clear()
        _begun.update(_states(self._collate))


class _Told:
    """Puts a batch together as the user does, and gives the states that have moved."""

    def __init__(self, collate: Callable[[Any], Any]) -> None:
        self._collate = collate

    def __call__(self, items: Any) -> tuple[int, set[State]]:
        self._collate(items)
        info = get_worker_info()
        return (0 if info is None else info.id), _states(self._collate) - _begun


def _path_of(fetch: Fetch, name: str) -> str:
    """Where a generator of some class is held."""
    own = [each for each in _own(fetch.dataset, fetch.collate) if _name(each) == name]
    held = held_by(fetch.dataset)
    for each in held:
        if any(each.value is other for other in own):
            return each.path
    for each in held:
        for function in _functions(each.value):
            for word in function.__code__.co_names:
                if any(function.__globals__.get(word) is other for other in own):
                    return f"{function.__module__}:{word}"
    return ""


def _functions(value: Any) -> list[FunctionType]:
    """A function itself, or the methods of a class of one's own."""
    if isinstance(value, FunctionType):
        return [value]
    return [each for each in vars(type(value)).values() if isinstance(each, FunctionType)]
