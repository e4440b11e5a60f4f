"""The order of an epoch as a function of (seed, epoch), for any number of ranks."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from hotset.loader.order import Start, set_states
from hotset.placement.outlook import Outlook
from hotset.rng import permutation

MASK_64 = 2**64 - 1


class SeededOrder:
    """An order that is a function of (seed, epoch): the same on every machine, at any world size.

    Args:
        length: number of samples.
        batch_size: samples per batch and rank.
        is_shuffled: a new permutation every epoch, else in order.
        drop_last: whether a short last batch is left out.
        seed: 64 bits.
        shard: (rank, world size); the ranks' batches partition every global batch.
    """

    may_repeat = False
    is_seeded = True

    def __init__(
        self,
        length: int,
        batch_size: int,
        *,
        is_shuffled: bool,
        drop_last: bool,
        seed: int,
        shard: tuple[int, int] = (0, 1),
    ) -> None:
        self._length, self._is_shuffled, self._seed = length, is_shuffled, seed & MASK_64
        self._rank, self._world = shard
        self._batch_size = batch_size
        global_batch = batch_size * self._world
        self._bounds = _global_batches(length, global_batch, self._world, drop_last)
        self.signature = (
            f"seed {self._seed}, {'shuffled' if is_shuffled else 'in order'}, global batch "
            f"{global_batch}, last one {'dropped' if drop_last else 'kept'}"
        )

    def __len__(self) -> int:
        return len(self._bounds)

    @property
    def outlook(self) -> Outlook:
        return Outlook(
            reuse="once" if self._world == 1 else "ranks",
            may_read_ahead=True,
            peek=lambda epoch: self.begin(epoch)[1],
            batch_rows=self._batch_size,
        )

    @property
    def run_seed(self) -> int:
        return self._seed

    def join(self, run_seed: int | None) -> None:
        pass  # the run's seed is the order's own

    def generators(self) -> dict[str, str]:
        return {}

    def set_generators(self, states: dict[str, str]) -> None:
        set_states({}, states)

    def begin(self, epoch: int) -> tuple[Start, Iterator[np.ndarray]]:
        start = Start(epoch, self._seed, self._seed)
        return start, self._batches(start)

    def _batches(self, start: Start) -> Iterator[np.ndarray]:
        if self._is_shuffled:
            order = permutation(start.seed, start.epoch, self._length).numpy()
        else:
            order = np.arange(self._length, dtype=np.int64)
        return (order[a:b][self._rank :: self._world] for a, b in self._bounds)

    def replay(self, start: Start, skip: int) -> tuple[Iterator[np.ndarray], list[np.ndarray]]:
        batches = self._batches(start)
        return batches, list(itertools.islice(batches, max(0, skip)))


def _global_batches(length: int, size: int, world: int, drop_last: bool) -> list[tuple[int, int]]:
    """Bounds of the batches of all ranks together.

    A remainder too small to give every rank a sample joins the batch before it: a rank with fewer
    batches than the others would leave them waiting.
    """
    bounds = [(a, min(a + size, length)) for a in range(0, length, size)]
    if bounds and bounds[-1][1] - bounds[-1][0] < size:
        if drop_last:
            bounds.pop()
        elif bounds[-1][1] - bounds[-1][0] < world and len(bounds) > 1:
            bounds[-2:] = [(bounds[-2][0], length)]
    return bounds
