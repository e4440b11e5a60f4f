"""A loader that is gone through, and then stands where it stood."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from hotset.chain.probe import own_generators, preserved_generators
from hotset.doctor.machine.cuda import is_used
from hotset.loader.epochs import Epochs

ROOTS = ("generator", "sampler", "batch_sampler", "dataset", "collate_fn")
"""What of a loader may hold generators."""


@contextmanager
def as_it_was(loader: Any) -> Iterator[None]:
    """Puts back generators, what datasets have for attributes, and where a loader stands.

    A dataset may make something when it is first read, as an open file or a generator of its own:
    workers that were forked later would all inherit it.
    """
    own = own_generators([getattr(loader, name, None) for name in ROOTS])
    state = loader.state_dict() if isinstance(loader, Epochs) else None
    running = getattr(loader, "_iterator", None)
    on_gpus = torch.cuda.get_rng_state_all() if is_used() else []
    with preserved_generators(own), attributes_of(loader):
        try:
            yield
        finally:
            if on_gpus:
                torch.cuda.set_rng_state_all(on_gpus)
            if isinstance(loader, Epochs) and state is not None:
                loader.load_state_dict(state)
            if isinstance(loader, DataLoader) and running is None and loader._iterator is not None:
                staying: Any = loader._iterator
                staying._shutdown_workers()
                loader._iterator = None


def _datasets(loader: Any) -> list[Any]:
    """A loader's dataset, and those that it is a view of or made of."""
    found: list[Any] = []
    waiting = [getattr(loader, "dataset", None)]
    while waiting:
        dataset = waiting.pop()
        if isinstance(dataset, Dataset) and all(dataset is not each for each in found):
            found.append(dataset)
            waiting.append(getattr(dataset, "dataset", None))
            waiting.extend(getattr(dataset, "datasets", None) or ())
    return found


@contextmanager
def attributes_of(loader: Any) -> Iterator[None]:
    """Puts back what datasets have for attributes; what those hold is not looked into."""
    things = [thing for thing in _datasets(loader) if hasattr(thing, "__dict__")]
    before = [(thing, dict(vars(thing))) for thing in things]
    try:
        yield
    finally:
        for thing, attributes in before:
            now = vars(thing)
            for name in [name for name in now if name not in attributes]:
                del now[name]
            now.update(attributes)
