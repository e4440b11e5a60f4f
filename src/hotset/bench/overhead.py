"""What Python costs per batch beyond the kernel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

import hotset
from hotset.bench.data import ImageDataset, augmenting, normalising_bytes
from hotset.bench.settings import Settings
from hotset.bench.timing import Say, Spread, Stopwatch, interleaved
from hotset.kernels.dispatch import choose_engine
from hotset.rng import Draws, Key
from hotset.sources.analyse import analyse
from hotset.sources.source import array_source


@dataclass(frozen=True)
class Overhead:
    """Time per batch, in microseconds.

    Attributes:
        loader_us: of the loader.
        engine_us: of the engine alone, on batches of indices that were prepared.
    """

    loader_us: Spread
    engine_us: Spread

    @property
    def beyond_us(self) -> Spread:
        """What the loader takes beyond the engine, round by round."""
        return self.loader_us.minus(self.engine_us)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "loader_us_per_batch": self.loader_us.as_dict(),
            "engine_us_per_batch": self.engine_us.as_dict(),
            "beyond_us_per_batch": self.beyond_us.as_dict(),
        }


def measure_overhead(
    settings: Settings, images: ImageDataset, watch: Stopwatch, say: Say
) -> Overhead:
    """Whole epochs of a resident loader, and its engine alone, in turn; on the CPU.

    The loader also shuffles, gathers the labels and starts its threads once per epoch; all of that
    counts as beyond the engine.
    """
    pixels = torch.from_numpy(images.data).permute(0, 3, 1, 2).contiguous()
    labels = torch.tensor(images.targets)
    chain = [*augmenting(), *normalising_bytes()]
    loader = hotset.Loader(
        (pixels, labels), settings.batch_size, shuffle=True, transform=chain, device="cpu"
    )
    engine = choose_engine(
        analyse(array_source((pixels, labels), chain)).split.ops,
        (pixels.shape[1], pixels.shape[2], pixels.shape[3]),
        pixels.dtype,
        out_dtype=None,
        device=pixels.device,
    )
    order = torch.from_numpy(np.random.default_rng(0).permutation(len(pixels)))
    key = Key(0, 1, 0)
    batches = torch.split(order, settings.batch_size)
    prepared = [Draws(key, ids, torch.zeros_like(ids)) for ids in batches]

    def with_loader() -> None:
        for _ in loader:
            pass

    def with_engine() -> None:
        with engine.session() as run:
            for draws in prepared:
                run(pixels, draws.ids, draws)

    def per_batch(epoch: Callable[[], None]) -> Callable[[], float]:
        def run() -> float:
            start = watch.clock()
            for _ in range(settings.epochs):
                epoch()
            return (watch.clock() - start) / (settings.epochs * len(prepared)) * 1e6

        return run

    tasks = {"loader": per_batch(with_loader), "engine": per_batch(with_engine)}
    with_loader()  # the first epoch compares samples
    with_engine()
    found = interleaved(tasks, settings.rounds, say, what="Python per batch, ")
    return Overhead(found["loader"], found["engine"])
