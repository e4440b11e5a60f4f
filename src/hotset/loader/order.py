"""The order of an epoch: the user's samplers, or a permutation from a seed; how to resume it."""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
)

from hotset.errors import ConfigError, StateError
from hotset.rng import Key, permutation

MASK_64 = 2**64 - 1


@dataclass(frozen=True)
class Start:
    """What an epoch's order and draws follow from; plain values only.

    Attributes:
        epoch: number of the epoch, from 0.
        seed: keys this epoch's draws.
        run_seed: keys the draws that hold for the whole run.
        generators: states of the generators that samplers draw from, base64; by name.
    """

    epoch: int
    seed: int
    run_seed: int
    generators: dict[str, str] = field(default_factory=dict)

    @property
    def key(self) -> Key:
        """Key of the epoch's draws."""
        return Key(self.seed, self.epoch, self.run_seed)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for a state."""
        return asdict(self)


class Order(Protocol):
    """Which samples make which batch."""

    @property
    def may_repeat(self) -> bool:
        """Whether a sample can come twice in an epoch."""
        ...

    @property
    def is_seeded(self) -> bool:
        """Whether it is a function of (seed, epoch) alone."""
        ...

    @property
    def signature(self) -> str:
        """What a saved state must agree with."""
        ...

    def __len__(self) -> int:
        """Batches in an epoch."""
        ...

    def start(self, epoch: int) -> Start:
        """Begins an epoch: draws what its order follows from."""
        ...

    def batches(self, start: Start) -> Iterator[np.ndarray]:
        """The batches of a begun epoch, each (B,) int64 sample ids."""
        ...

    def replay(self, start: Start, skip: int) -> tuple[Iterator[np.ndarray], list[np.ndarray]]:
        """The batches of an epoch begun elsewhere, from number `skip` on, and those skipped."""
        ...


class SamplerOrder:
    """The order of a `DataLoader`: its own samplers, its own draws from torch's generators.

    Args:
        loader: whose order it is. Its samplers are used, not copied, so that `set_epoch` and the
            like keep their effect.
        length: number of samples of its dataset.
    """

    is_seeded = False
    signature = "the loader's samplers"

    def __init__(self, loader: DataLoader[Any], length: int) -> None:
        batch_sampler = loader.batch_sampler
        if batch_sampler is None:
            raise ConfigError(
                "the DataLoader has batch_size=None (no batches); give it a batch_size or a "
                "batch_sampler, hotset works on whole batches"
            )
        self._batch_sampler: Iterable[Sequence[int]] = batch_sampler
        self._sampler = getattr(batch_sampler, "sampler", None)
        self._generator = loader.generator
        self._length = length
        # A DataLoader draws its base seed whenever it makes an iterator; with persistent workers it
        # makes one, and uses it for every epoch.
        self._draws_once = loader.persistent_workers and loader.num_workers > 0
        # Workers are handed their first batches at once, so samplers draw when iteration begins.
        self._draws_early = loader.num_workers > 0
        self._first: Start | None = None

    @property
    def may_repeat(self) -> bool:
        without = (SequentialSampler, RandomSampler, SubsetRandomSampler)
        return type(self._batch_sampler) is not BatchSampler or not (
            type(self._sampler) in without and not getattr(self._sampler, "replacement", False)
        )

    def __len__(self) -> int:
        return len(self._batch_sampler)  # type: ignore[arg-type]

    def start(self, epoch: int) -> Start:
        states = {name: _encode(g.get_state()) for name, g in self._generators().items()}
        if self._first is not None and self._draws_once:
            seed = self._first.seed
        else:
            seed = self._base_seed()
        start = Start(epoch, seed, self._first.run_seed if self._first else seed, states)
        self._first = self._first or start
        return start

    def batches(self, start: Start) -> Iterator[np.ndarray]:
        batches = map(self._ids, iter(self._batch_sampler))
        if not self._draws_early:
            return batches
        first = list(_take(batches, 1))
        return _chain(first, batches)

    def replay(self, start: Start, skip: int) -> tuple[Iterator[np.ndarray], list[np.ndarray]]:
        with self._generators_at(start):
            if not (self._draws_once and start.epoch > 0):
                seed = self._base_seed()
                if seed != start.seed:
                    raise StateError(
                        "the saved state does not fit this loader: its generators give another "
                        "seed for the epoch than when the state was saved"
                    )
            batches = map(self._ids, iter(self._batch_sampler))
            skipped = list(_take(batches, skip))
            following = list(_take(batches, 1))
        self._first = self._first or Start(0, start.run_seed, start.run_seed)
        return _chain(following, batches), skipped

    def _base_seed(self) -> int:
        empty = torch.empty((), dtype=torch.int64)
        return int(empty.random_(generator=self._generator).item())

    def _generators(self) -> dict[str, torch.Generator]:
        """Every generator that the order draws from, torch's own one first."""
        found = {"default": torch.default_generator}
        for name, owner in (
            ("loader", self._generator),
            ("sampler", getattr(self._sampler, "generator", None)),
            ("batch_sampler", getattr(self._batch_sampler, "generator", None)),
        ):
            if isinstance(owner, torch.Generator) and owner not in found.values():
                found[name] = owner
        return found

    @contextlib.contextmanager
    def _generators_at(self, start: Start) -> Iterator[None]:
        """Generators as they were at the start; torch's own one is put back, it is the user's."""
        generators = self._generators()
        if set(generators) != set(start.generators):
            raise StateError(
                f"the saved state has the generators {sorted(start.generators)}, "
                f"this loader has {sorted(generators)}"
            )
        before = torch.default_generator.get_state()
        for name, generator in generators.items():
            generator.set_state(_decode(start.generators[name]))
        try:
            yield
        finally:
            torch.default_generator.set_state(before)

    def _ids(self, batch: Sequence[int]) -> np.ndarray:
        try:
            ids = np.array(batch, dtype=np.int64)
        except (TypeError, ValueError, RuntimeError) as error:
            raise ConfigError(
                f"the sampler must give whole numbers, got a batch like {list(batch)[:3]!r}"
            ) from error
        return check_ids(ids, self._length)


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
        global_batch = batch_size * self._world
        self._bounds = _global_batches(length, global_batch, self._world, drop_last)
        self.signature = (
            f"seed {self._seed}, {'shuffled' if is_shuffled else 'in order'}, global batch "
            f"{global_batch}, last one {'dropped' if drop_last else 'kept'}"
        )

    def __len__(self) -> int:
        return len(self._bounds)

    def start(self, epoch: int) -> Start:
        return Start(epoch, self._seed, self._seed)

    def batches(self, start: Start) -> Iterator[np.ndarray]:
        if self._is_shuffled:
            order = permutation(start.seed, start.epoch, self._length).numpy()
        else:
            order = np.arange(self._length, dtype=np.int64)
        return (order[a:b][self._rank :: self._world] for a, b in self._bounds)

    def replay(self, start: Start, skip: int) -> tuple[Iterator[np.ndarray], list[np.ndarray]]:
        batches = self.batches(start)
        return batches, list(_take(batches, skip))


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


class Occurrences:
    """Counts how often each sample has come in an epoch."""

    def __init__(self, length: int) -> None:
        self._counts = np.zeros(length, dtype=np.int64)

    def of(self, ids: np.ndarray) -> np.ndarray:
        """(B,) int64: how often each id came before it in this epoch, within the batch included."""
        counts = self._counts
        before: np.ndarray = counts[ids]
        np.add.at(counts, ids, 1)
        repeated = counts[ids] - before > 1
        if repeated.any():
            seen: dict[int, int] = {}
            for position in np.flatnonzero(repeated):
                number = int(ids[position])
                before[position] += seen.get(number, 0)
                seen[number] = seen.get(number, 0) + 1
        return before


def check_ids(ids: np.ndarray, length: int) -> np.ndarray:
    """Sample ids, those counted from the end made positive.

    Raises:
        ConfigError: if one lies outside the dataset, or the batch is not a list of numbers.
    """
    if ids.ndim != 1:
        raise ConfigError(f"a batch must be a list of indices, got an array of shape {ids.shape}")
    if len(ids) and (ids.min() < 0 or ids.max() >= length):
        ids = np.where(ids < 0, ids + length, ids)
        wrong = ids[(ids < 0) | (ids >= length)]
        if len(wrong):
            raise ConfigError(
                f"the sampler gave index {int(wrong[0])}, but the dataset has {length} samples"
            )
    return ids


def _take(iterator: Iterator[Any], count: int) -> Iterator[Any]:
    for _ in range(count):
        try:
            yield next(iterator)
        except StopIteration:
            return


def _chain(first: list[Any], rest: Iterator[Any]) -> Iterator[Any]:
    yield from first
    yield from rest


def _encode(state: Tensor) -> str:
    return base64.b64encode(state.numpy().tobytes()).decode("ascii")


def _decode(text: str) -> Tensor:
    return torch.frombuffer(bytearray(base64.b64decode(text)), dtype=torch.uint8)
