"""A few samples of a dataset, read again before later epochs to see whether it has changed.

A snapshot of attributes does not see what else a dataset reads: a queue, memory that processes
share, a global of its module, a file.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader

from hotset.chain.probe import copied, own_generators, same_sample, seed_generators
from hotset.doctor.restoring import as_it_was
from hotset.sources.source import read, spread

SAMPLES = 4
LONG_S = 0.1
"""After this no further sample is read: two of 50 ms each, one that takes twice as long."""
SEED = 0
OTHER = "the dataset gives other samples than before"


@contextmanager
def quiet() -> Iterator[None]:
    """What is printed to standard output meanwhile is lost: the script's own is to be its own."""
    with (
        open(os.devnull, "w", encoding="utf-8", errors="backslashreplace") as nowhere,
        redirect_stdout(nowhere),
    ):
        yield


@dataclass(frozen=True)
class Witness:
    """What a dataset gave.

    Attributes:
        length: its samples.
        indices: of those that were read: the first, the last, and some between.
        samples: copies of them, all generators seeded alike for each.
    """

    length: int
    indices: tuple[int, ...]
    samples: tuple[Any, ...]

    def change(self, loader: DataLoader[Any], *, is_read: bool = True) -> str:
        """What is no longer as it was; empty where nothing is.

        Args:
            loader: over the dataset; it and all generators stand afterwards where they stood.
            is_read: whether samples are looked at, beside their number.
        """
        try:
            length = len(loader.dataset)  # type: ignore[arg-type]  # it has one
            if length != self.length:
                return f"the dataset has {length:,} samples by now, and had {self.length:,}"
            now = _read(loader, self.indices) if is_read else self.samples
        except Exception as error:  # whatever the user's class does by now
            return f"the dataset fails by now: {type(error).__name__}: {error}"
        return "" if all(map(same_sample, self.samples, now)) else OTHER


def witness_of(
    loader: DataLoader[Any], *, clock: Callable[[], float] = time.perf_counter
) -> Witness:
    """Reads a few samples of a loader's dataset, fewer where that takes long.

    Raises:
        SampleError: if the dataset raises.
    """
    length = len(loader.dataset)  # type: ignore[arg-type]  # it has one
    first, *between = spread(length, SAMPLES)
    indices = (first, *between[-1:], *between[:-1])
    samples = _read(loader, indices, most_s=LONG_S, clock=clock)
    return Witness(length, indices[: len(samples)], samples)


def _read(
    loader: DataLoader[Any],
    indices: Sequence[int],
    *,
    most_s: float = float("inf"),
    clock: Callable[[], float] = time.perf_counter,
) -> tuple[Any, ...]:
    dataset, samples = loader.dataset, []
    own = own_generators(dataset)
    with quiet(), as_it_was(loader):
        began = clock()
        for index in indices:
            seed_generators(SEED)
            for generator in own:
                _seed(generator)
            samples.append(copied(read(dataset.__getitem__, index, type(dataset).__name__)))
            if clock() - began >= most_s:
                break
    return tuple(samples)


def _seed(generator: Any) -> None:
    if isinstance(generator, torch.Generator):
        generator.manual_seed(SEED)
    elif isinstance(generator, np.random.Generator):
        bits: Any = generator.bit_generator
        bits.state = type(bits)(SEED).state
    elif isinstance(generator, (np.random.RandomState, random.Random)):
        generator.seed(SEED)
