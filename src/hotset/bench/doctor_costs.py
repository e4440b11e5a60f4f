"""What planted loops are made of: datasets, transforms and steps of a known cost."""

from __future__ import annotations

import hashlib
import math
import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset, default_collate, get_worker_info

SHAPE = (3, 8, 8)
CALIBRATED = 20_000
"""Rounds that are timed, once, to know what a millisecond is worth."""


@dataclass(frozen=True)
class Cost:
    """Time that is spent on purpose.

    Work is a number of rounds of a hash, in one thread: where cores are short it takes longer, as
    decoding would. Sleeping takes no core, as waiting for storage or for an accelerator.

    Attributes:
        rounds: of work.
        sleep_s: seconds of sleep.
    """

    rounds: int = 0
    sleep_s: float = 0.0

    def spend(self) -> None:
        """Spends it."""
        if self.rounds:
            hashlib.pbkdf2_hmac("sha256", b"planted", b"cost", self.rounds)
        if self.sleep_s:
            time.sleep(self.sleep_s)


FREE = Cost()


@dataclass(frozen=True)
class Costs:
    """Makes costs from milliseconds.

    Attributes:
        rounds_per_ms: of work on this machine.
    """

    rounds_per_ms: float

    @classmethod
    def measured(cls, clock: Callable[[], float] = time.perf_counter) -> Costs:
        """For this machine: the fastest of a few tries."""
        times = []
        for _ in range(5):
            start = clock()
            Cost(CALIBRATED).spend()
            times.append(clock() - start)
        return cls(CALIBRATED / (1000 * min(times)))

    def work(self, ms: float) -> Cost:
        """So many milliseconds of a core's work."""
        return Cost(rounds=max(1, round(ms * self.rounds_per_ms)))

    @staticmethod
    def sleep(ms: float) -> Cost:
        """So many milliseconds of sleep."""
        return Cost(sleep_s=ms / 1000)


class Samples(Dataset[tuple[Tensor, int]]):
    """Small images, compressed, each of which costs something to read.

    Args:
        count: how many.
        read: what each costs.
        transform: called on a (3, 8, 8) uint8 image; None for nothing.
        is_random: whether an image is never the same twice, so that it cannot be kept.
        slow_worker: number of a worker that pays `times` as often; None for none.
        times: see `slow_worker`.
    """

    def __init__(
        self,
        count: int,
        read: Cost = FREE,
        *,
        transform: Callable[[Tensor], Tensor] | None = None,
        is_random: bool = False,
        slow_worker: int | None = None,
        times: int = 1,
    ) -> None:
        draws = np.random.default_rng(0)
        self.packed = [zlib.compress(draws.bytes(math.prod(SHAPE))) for _ in range(count)]
        self.read, self.transform, self.is_random = read, transform, is_random
        self.slow_worker, self.times = slow_worker, times

    def __len__(self) -> int:
        return len(self.packed)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        self.read.spend()
        worker = get_worker_info()
        if worker is not None and worker.id == self.slow_worker:
            for _ in range(self.times - 1):
                self.read.spend()
        image = torch.frombuffer(bytearray(zlib.decompress(self.packed[index])), dtype=torch.uint8)
        image = image.reshape(SHAPE)
        if self.is_random:
            image = image + torch.randint(0, 2, image.shape, dtype=torch.uint8)
        if self.transform is not None:
            image = self.transform(image)
        return image, index % 10


class Inverted:
    """A deterministic transform that costs something."""

    def __init__(self, cost: Cost) -> None:
        self.cost = cost

    def __call__(self, image: Tensor) -> Tensor:
        """255 less the image."""
        self.cost.spend()
        return 255 - image


class Speckled(Inverted):
    """A random transform that costs something, and of which hotset has no batched form."""

    def __call__(self, image: Tensor) -> Tensor:
        """The image, with every second pixel black, or so."""
        self.cost.spend()
        return image * torch.randint(0, 2, image.shape, dtype=torch.uint8)


class Collated:
    """A collate_fn that costs something for each batch."""

    def __init__(self, cost: Cost) -> None:
        self.cost = cost

    def __call__(self, samples: Sequence[Any]) -> Any:
        """As `default_collate` puts them together."""
        self.cost.spend()
        return default_collate(list(samples))


class Step:
    """A training step that costs something, whatever the batch."""

    def __init__(self, cost: Cost) -> None:
        self.cost = cost

    def __call__(self, batch: Any) -> None:
        """Spends it."""
        self.cost.spend()
