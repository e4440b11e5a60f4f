"""The order of an epoch from the user's own samplers, and how to resume it."""

from __future__ import annotations

import base64
import contextlib
import copy
import itertools
import operator
from collections import deque
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
    WeightedRandomSampler,
)
from torch.utils.data.distributed import DistributedSampler

from hotset.errors import ConfigError, StateError
from hotset.loader.ids import check_ids
from hotset.loader.permuted import is_permutation, permuted
from hotset.placement.outlook import BATCH_ROWS, Outlook, Reuse
from hotset.rng import Key

DEFAULT = "default"
"""Name of torch's own generator in a state."""
DRAWING = (RandomSampler, SubsetRandomSampler, WeightedRandomSampler)
"""torch's samplers whose order follows from a generator alone."""


@dataclass(frozen=True)
class Start:
    """What an epoch's order and draws follow from; plain values only.

    Attributes:
        epoch: number of the epoch, from 0.
        seed: keys this epoch's draws.
        run_seed: keys the draws that hold for the whole run.
        generators: states of the generators that samplers draw from, base64; by name.
        is_drawn: whether the seed was drawn from the loader's generator when the epoch began.
        opened: how often the batch sampler was asked for an iterator; one that draws when it is
            asked draws so often.
    """

    epoch: int
    seed: int
    run_seed: int
    generators: dict[str, str] = field(default_factory=dict)
    is_drawn: bool = False
    opened: int = 1

    @property
    def key(self) -> Key:
        """Key of the epoch's draws."""
        return Key(self.seed, self.epoch, self.run_seed)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for a state."""
        return asdict(self)

    @classmethod
    def from_dict(cls, plain: dict[str, Any]) -> Start:
        """The start whose plain values these are.

        Raises:
            KeyError, TypeError, ValueError: if they are none.
        """
        generators = {str(name): str(text) for name, text in plain["generators"].items()}
        for text in generators.values():
            base64.b64decode(text, validate=True)
        numbers = {name: int(plain[name]) for name in ("epoch", "seed", "run_seed", "opened")}
        return cls(**numbers, generators=generators, is_drawn=bool(plain["is_drawn"]))


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

    @property
    def outlook(self) -> Outlook:
        """What is known of it beforehand."""
        ...

    @property
    def run_seed(self) -> int | None:
        """What keys the draws that hold for the whole run; None before its first epoch."""
        ...

    def __len__(self) -> int:
        """Batches in an epoch."""
        ...

    def join(self, run_seed: int | None) -> None:
        """Makes the epochs to come part of a run begun elsewhere."""
        ...

    def generators(self) -> dict[str, str]:
        """States of the generators that are the samplers' own, not torch's; base64, by name."""
        ...

    def set_generators(self, states: dict[str, str]) -> None:
        """Puts the samplers' own generators where they were.

        Raises:
            StateError: if they are others, or a state is damaged.
        """
        ...

    def begin(self, epoch: int) -> tuple[Start, Iterator[np.ndarray]]:
        """Begins an epoch: draws what its order follows from.

        Returns:
            The start, and the batches, each (B,) int64 sample ids.
        """
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
        # Workers are handed so many batches before the first comes back, so samplers draw early.
        self._ahead = (loader.prefetch_factor or 0) * loader.num_workers
        self.run_seed: int | None = None
        self._epoch = 0
        self._twin: SamplerOrder | None = None
        self._coming: Iterator[np.ndarray] = iter(())

    @property
    def may_repeat(self) -> bool:
        sampler: Any = self._sampler
        if type(self._batch_sampler) is not BatchSampler:
            return True
        return not is_permutation(sampler)

    @property
    def outlook(self) -> Outlook:
        sampler, size = self._sampler, getattr(self._batch_sampler, "batch_size", None)
        reuse = _reuse(sampler) if type(self._batch_sampler) is BatchSampler else "unknown"
        weights = None
        if reuse == "repeats" and type(sampler) is WeightedRandomSampler:
            weights = sampler.weights.double().cpu().numpy()
        return Outlook(
            reuse=reuse,
            may_read_ahead=reuse != "unknown" or self._ahead > 0,
            weights=weights,
            peek=self._peek if self._is_foreseen() else None,
            batch_rows=size if isinstance(size, int) else BATCH_ROWS,
        )

    def _is_foreseen(self) -> bool:
        """Whether the epochs to come can be told, if nobody else draws from their generator."""
        sampler = self._sampler
        if type(self._batch_sampler) is not BatchSampler:
            return False
        if type(sampler) in (DistributedSampler, SequentialSampler):
            return True
        own = getattr(sampler, "generator", None)
        is_own = isinstance(own, torch.Generator) and own is not torch.default_generator
        return type(sampler) in DRAWING and is_own

    def _peek(self, epoch: int) -> Iterator[np.ndarray]:
        """The batches of an epoch to come, as copies of sampler and generator give them.

        To be called when the batches of this epoch are all drawn. They come to be if nobody else
        draws from the generator, and `set_epoch` is called for each epoch in turn.
        """
        if type(self._sampler) is DistributedSampler:
            sampler: Any = copy.copy(self._sampler)
            sampler.set_epoch(sampler.epoch + epoch - self._epoch)
            own: Any = self._batch_sampler
            return map(self._ids, BatchSampler(sampler, own.batch_size, own.drop_last))
        if not self._is_foreseen():
            return iter(())  # the sampler was given another generator since
        if self._twin is None or self._twin._epoch >= epoch:
            self._twin, self._coming = self._copied(), iter(())
        while self._twin._epoch < epoch:
            for _ in self._coming:
                pass  # the next epoch begins where the generator is behind the last batch
            self._coming = self._twin.begin(self._twin._epoch + 1)[1]
        return self._coming

    def _copied(self) -> SamplerOrder:
        """The same order, which from here on draws from generators of its own."""
        own: Any = self._batch_sampler
        twin, sampler = copy.copy(self), copy.copy(own.sampler)
        drawn_from, generator = getattr(sampler, "generator", None), torch.Generator()
        if drawn_from is not None:
            generator.set_state(drawn_from.get_state())
            sampler.generator = generator
        twin._sampler, twin._coming = sampler, iter(())
        twin._batch_sampler = BatchSampler(sampler, own.batch_size, own.drop_last)
        # Where seeds come from elsewhere, they do not matter to the order.
        twin._generator = generator if self._generator is drawn_from else torch.Generator()
        return twin

    def __len__(self) -> int:
        return len(self._batch_sampler)  # type: ignore[arg-type]

    def join(self, run_seed: int | None) -> None:
        self.run_seed = run_seed

    def begin(self, epoch: int) -> tuple[Start, Iterator[np.ndarray]]:
        self._epoch, self._twin = epoch, None
        states = {name: _encode(g.get_state()) for name, g in self._generators().items()}
        is_drawn = self.run_seed is None or not self._draws_once
        opened = 2 if self._ahead and is_drawn else 1
        seed, batches = self._open(is_drawn, opened)
        if self.run_seed is None:
            self.run_seed = seed
        found = self.run_seed if seed is None else seed
        assert found is not None
        assert self.run_seed is not None
        start = Start(epoch, found, self.run_seed, states, is_drawn, opened)
        return start, _read_ahead(batches, self._ahead)

    def replay(self, start: Start, skip: int) -> tuple[Iterator[np.ndarray], list[np.ndarray]]:
        self._epoch, self._twin = start.epoch, None
        with self._generators_at(start):
            seed, batches = self._open(start.is_drawn, start.opened)
            if start.is_drawn and seed != start.seed:
                raise StateError(
                    "the saved state does not fit this loader: its generators give another "
                    "seed for the epoch than when the state was saved"
                )
            skipped = list(itertools.islice(batches, max(0, skip)))
            following = _read_ahead(batches, max(1, self._ahead))
        self.run_seed = start.run_seed
        return following, skipped

    def generators(self) -> dict[str, str]:
        found = self._generators().items()
        return {name: _encode(g.get_state()) for name, g in found if name != DEFAULT}

    def set_generators(self, states: dict[str, str]) -> None:
        found = self._generators()
        del found[DEFAULT]
        set_states(found, states)

    def _open(self, is_drawn: bool, opened: int) -> tuple[int | None, Iterator[np.ndarray]]:
        """The epoch's seed, if one is to be drawn, and its batches.

        A DataLoader asks for the sampler's iterator, draws its base seed, and with workers asks
        again; a sampler may draw when it is asked, so the sequence matters.
        """
        batches = self._iterate()
        seed = self._base_seed() if is_drawn else None
        for _ in range(1, opened):
            batches = self._iterate()
        return seed, batches

    def _iterate(self) -> Iterator[np.ndarray]:
        batches, sampler = self._batch_sampler, self._sampler
        if type(batches) is BatchSampler and is_permutation(sampler):
            return permuted(sampler, batches.batch_size, batches.drop_last)
        return map(self._ids, iter(batches))

    def _base_seed(self) -> int:
        empty = torch.empty((), dtype=torch.int64)
        return int(empty.random_(generator=self._generator).item())

    def _generators(self) -> dict[str, torch.Generator]:
        """Every generator that the order draws from, torch's own one first."""
        found = {DEFAULT: torch.default_generator}
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
        before = torch.default_generator.get_state()
        try:
            set_states(self._generators(), start.generators)
            yield
        finally:
            torch.default_generator.set_state(before)

    def _ids(self, batch: Sequence[int]) -> np.ndarray:
        try:
            if type(batch) is not list or not batch or type(batch[0]) is not int:
                # Whatever serves as an index: tensors and NumPy's numbers, no floats.
                batch = [operator.index(index) for index in batch]
            ids = np.array(batch, dtype=np.int64)
        except (TypeError, ValueError, RuntimeError) as error:
            raise ConfigError(
                f"the sampler must give batches of whole numbers, got {batch!r}"
            ) from error
        return check_ids(ids, self._length)


def _reuse(sampler: Any) -> Reuse:
    """How the samples come again that a sampler of torch's own gives."""
    if type(sampler) is DistributedSampler:
        return "once" if sampler.num_replicas == 1 else "ranks"
    is_drawn = type(sampler) is RandomSampler and sampler.replacement
    if is_drawn or type(sampler) is WeightedRandomSampler:
        return "repeats"
    is_known = type(sampler) in (SequentialSampler, RandomSampler, SubsetRandomSampler)
    return "once" if is_known else "unknown"


def _read_ahead(batches: Iterator[Any], count: int) -> Iterator[Any]:
    """The same batches; so many are always drawn before they are asked for, the first at once."""
    waiting = deque(itertools.islice(batches, count))

    def handed_out() -> Iterator[Any]:
        while waiting:
            batch = waiting.popleft()
            waiting.extend(itertools.islice(batches, 1))
            yield batch

    return handed_out() if count else batches


def set_states(generators: dict[str, torch.Generator], states: dict[str, str]) -> None:
    """Puts generators where they were.

    Args:
        generators: by name.
        states: base64, by the same names.

    Raises:
        StateError: if the names differ, or a state is damaged.
    """
    if set(generators) != set(states):
        raise StateError(
            f"the saved state has the generators {sorted(states)}, "
            f"this loader has {sorted(generators)}"
        )
    for name, generator in generators.items():
        try:
            generator.set_state(_decode(states[name]))
        except (RuntimeError, TypeError, ValueError) as error:
            raise StateError(
                f"the saved state of the generator {name!r} is damaged: {error}"
            ) from error


def _encode(state: Tensor) -> str:
    return base64.b64encode(state.numpy().tobytes()).decode("ascii")


def _decode(text: str) -> Tensor:
    return torch.frombuffer(bytearray(base64.b64decode(text)), dtype=torch.uint8)
