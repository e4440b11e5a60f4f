"""What worker processes cost beside their work: starting them, and handing batches over."""

from __future__ import annotations

import io
import itertools
import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, default_collate

from hotset.chain.probe import copied
from hotset.errors import SampleError
from hotset.planning.measure import Clock, batch_of
from hotset.sample.collate import as_it_is
from hotset.sample.tree import flatten, unflatten

BATCHES = 24
"""Batches whose handing over is timed."""
AHEAD = 3
"""Batches that each worker has made by the time that the first comes, and one more; not timed."""


@dataclass(frozen=True)
class Handing:
    """What worker processes cost.

    Attributes:
        start_ms: until the first batch comes, once in an epoch.
        batch_ms: from one batch to the next where making them takes no time.
    """

    start_ms: float = 0.0
    batch_ms: float = 0.0


class _Made(Dataset[Any]):
    """A finished batch, again and again: each time anew, in memory that processes share.

    Args:
        batch: the batch.
        length: how many are to be had.
    """

    def __init__(self, batch: Any, length: int) -> None:
        self._batch, self._length = batch, length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> Any:
        leaves, spec = flatten(self._batch)
        return unflatten(spec, map(_anew, leaves))


def _anew(leaf: Any) -> Any:
    """A copy of a batch's leaf, where a worker's own `default_collate` would have put it."""
    is_plain = type(leaf) is Tensor and leaf.layout is torch.strided and not leaf.is_nested
    if not is_plain or leaf.device.type != "cpu" or leaf.requires_grad:
        return copied(leaf)
    return default_collate([leaf])[0]


class _Sent(pickle.Pickler):
    """Pickles all of a batch but its tensors, which go another way."""

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            if value.requires_grad and not value.is_leaf:
                raise TypeError("a tensor within a graph of gradients")
            return float, ()
        return NotImplemented


def check_sendable(batch: Any) -> None:
    """Refuses a batch that no worker can hand over: the main process would wait for it for ever.

    Raises:
        SampleError: says what cannot be pickled.
    """
    try:
        _Sent(io.BytesIO()).dump(batch)
    except Exception as error:  # whatever a user's class does when it is pickled
        raise SampleError(f"a worker cannot hand over such batches: {error}") from error


def handing_of(
    samples: Sequence[Any],
    collate: Callable[[list[Any]], Any],
    *,
    batch_size: int,
    workers: int,
    cores: int,
    settings: dict[str, Any],
    clock: Clock,
) -> Handing:
    """Starts worker processes that have nothing to do but to hand over batches, and times them.

    Args:
        samples: some finished ones.
        collate: puts a batch together; called once, here.
        batch_size: samples in a batch.
        workers: processes; 0 costs nothing.
        cores: that there are; no more processes are started, and starting takes as long for each.
        settings: of the plain loader.
        clock: gives seconds.

    Raises:
        SampleError: if `collate` fails.
    """
    if workers == 0:
        return Handing()
    made = batch_of(samples, collate, batch_size)
    check_sendable(made)
    started = min(workers, cores)
    taken = ("multiprocessing_context", "prefetch_factor", "timeout")
    ahead = AHEAD * started
    loader: DataLoader[Any] = DataLoader(
        _Made(made, 2 * ahead + BATCHES),
        batch_size=None,
        num_workers=started,
        collate_fn=as_it_is,
        generator=torch.Generator(),  # its seed is drawn from here, not from the user's
        **{name: settings[name] for name in taken if settings.get(name) is not None},
    )
    begin = clock()
    batches = iter(loader)
    next(batches)
    first = clock()
    for _ in itertools.islice(batches, ahead):
        pass
    steady = clock()
    for _ in itertools.islice(batches, BATCHES):
        pass
    end = clock()
    return Handing(
        start_ms=1000 * (first - begin) * workers / started,
        batch_ms=1000 * (end - steady) / BATCHES,
    )
