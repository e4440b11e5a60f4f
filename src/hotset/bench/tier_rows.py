"""What the comparison of tiers measures: ways to batches of rows, each timed and counted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

import hotset
from hotset.bench.counter import LinkBytes
from hotset.bench.rows import opened
from hotset.bench.timing import Run, Say, Stopwatch
from hotset.errors import ConfigError
from hotset.testing import SimulatedAccelerator

PLAIN_0, PLAIN, BY_HAND, HOST = "plain_0_workers", "plain", "by_hand", "hotset_cpu"
SIMULATED = {"device": 2.0, "mixed": 0.5, "host": 0.0}
"""Tiers of a simulated accelerator, and its room as a share of what the rows take."""
LABELS = 10


@dataclass(frozen=True)
class TierSettings:
    """Parameters of the comparison of tiers.

    Attributes:
        rows: samples: a row of numbers and a label.
        columns: float32 numbers in a row.
        batch_size: samples per batch.
        workers: worker processes of the plain loader that has any.
        rounds: timed runs of every row of the comparison.
        part_batches: batches in a timed run of a plain loader, at most.
        epochs: epochs in a timed run of all others.

    Raises:
        ConfigError: if a number is too small.
    """

    rows: int = 1_000_000
    columns: int = 32
    batch_size: int = 4096
    workers: int = 2
    rounds: int = 7
    part_batches: int = 24
    epochs: int = 3

    def __post_init__(self) -> None:
        for name in ("rows", "columns", "batch_size", "workers", "rounds"):
            if getattr(self, name) < 1:
                option = f"--{name.replace('_', '-')}"
                raise ConfigError(f"`{option}` must be at least 1, got {getattr(self, name)}")
        least = self.batch_size * (2 * self.workers + 2)
        if self.rows < least:
            raise ConfigError(
                f"`--rows` must be at least {least}, since the clock starts when the workers run, "
                f"got {self.rows}"
            )

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class TierCounts:
    """What one whole epoch takes, counted exactly.

    Attributes:
        samples: samples that came.
        link_bytes: bytes copied from the host to another device.
    """

    samples: int
    link_bytes: int

    def as_dict(self) -> dict[str, int]:
        """Plain values, for JSON."""
        return asdict(self)


@dataclass(frozen=True, eq=False)
class TierRow:
    """One way to the batches.

    Attributes:
        key: its name in JSON.
        name: its name in the table.
        run: makes batches and says how many samples came and how long it took.
        counts: what an epoch takes.
    """

    key: str
    name: str
    run: Callable[[], Run]
    counts: TierCounts

    def rate(self) -> float:
        """Samples per second of a run, made now."""
        return self.run().rate


class TierRows:
    """Makes the rows of the comparison.

    Args:
        settings: sizes.
        watch: times the runs.
        say: told what is being prepared.

    Attributes:
        x: (N, columns) float32, random.
        y: (N,) int64, labels.
    """

    def __init__(self, settings: TierSettings, watch: Stopwatch, say: Say) -> None:
        self._settings, self._watch, self._say = settings, watch, say
        generator = torch.Generator().manual_seed(0)
        self.x = torch.randn(settings.rows, settings.columns, generator=generator)
        self.y = torch.randint(LABELS, (settings.rows,), generator=generator)

    def all(self) -> list[TierRow]:
        """All rows, warmed up and counted."""
        workers = self._settings.workers
        with_workers = f"DataLoader, {workers} worker{'s' if workers > 1 else ''}"
        batch_size = self._settings.batch_size
        return [
            self._plain(PLAIN_0, "DataLoader, 0 workers", 0),
            self._plain(PLAIN, with_workers, workers),
            self.whole(BY_HAND, "x[order[i:j]], by hand, one thread", _ByHand(self, batch_size)),
            self.whole(
                HOST,
                "hotset.Loader, on the CPU",
                hotset.Loader((self.x, self.y), batch_size, shuffle=True, device="cpu"),
            ),
            *(self._simulated(tier, share) for tier, share in SIMULATED.items()),
        ]

    def _simulated(self, tier: str, share: float) -> TierRow:
        """A row whose samples pass to a simulated accelerator: the host's work, and exact bytes."""
        nbytes = self.x.nbytes + self.y.nbytes
        device = SimulatedAccelerator(4 * nbytes, bandwidth="10GB")
        budget = int(share * nbytes) if share else None
        loader = hotset.Loader(
            (self.x, self.y),
            self._settings.batch_size,
            shuffle=True,
            device=device,
            tier=tier,
            budget=budget,
        )
        name = f"hotset.Loader, simulated device, {tier}"
        return self.whole(f"simulated_{tier}", name, loader, lambda: device.bytes_copied)

    def _plain(self, key: str, name: str, workers: int) -> TierRow:
        """A row that makes its batches sample by sample; its runs are parts of an epoch."""
        settings = self._settings
        loader = DataLoader(
            TensorDataset(self.x, self.y), settings.batch_size, shuffle=True, num_workers=workers
        )
        skip = 2 * workers if workers else 1

        def run() -> Run:
            with opened(loader) as batches:
                return self._watch.steady(batches, skip=skip, take=settings.part_batches)

        return TierRow(key, name, run, self._counted(name, loader))

    def whole(
        self,
        key: str,
        name: str,
        loader: Iterable[Any],
        copied: Callable[[], int] | None = None,
    ) -> TierRow:
        """A row that makes batches whole; its runs are whole epochs.

        Args:
            key: its name in JSON.
            name: its name in the table.
            loader: gives an epoch's batches, of rows and labels, whenever it is iterated over.
            copied: bytes that its device was given so far; None counts what PyTorch copies.
        """
        self._say(f"filling, compiling and spot-checking: {name}")
        for _ in loader:
            pass
        epochs = self._settings.epochs
        counts = self._counted(name, loader, copied)
        return TierRow(key, name, lambda: self._watch.whole(loader, epochs=epochs), counts)

    def _counted(
        self, name: str, loader: Iterable[Any], copied: Callable[[], int] | None = None
    ) -> TierCounts:
        self._say(f"counting: {name}")
        link = LinkBytes()
        samples, before = 0, 0 if copied is None else copied()
        with link:
            for batch in loader:
                samples += len(batch[1])
        return TierCounts(samples, link.total if copied is None else copied() - before)


class _ByHand:
    """What people write instead: a permutation, and its slices as indices."""

    def __init__(self, data: TierRows, batch_size: int) -> None:
        self._x, self._y, self._batch_size = data.x, data.y, batch_size

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        with _one_thread():
            order = torch.randperm(len(self._x))
            for start in range(0, len(order), self._batch_size):
                rows = order[start : start + self._batch_size]
                yield self._x[rows], self._y[rows]


@contextmanager
def _one_thread() -> Iterator[None]:
    """Several threads of torch wait for one another, and far longer where cores are busy."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
