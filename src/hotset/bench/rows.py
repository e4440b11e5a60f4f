"""The rows of the comparison: ways to the same batches, each of which can be timed and counted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader

import hotset
from hotset.bench.counter import CallCounter, LinkBytes, batch_bytes
from hotset.bench.data import (
    FloatDataset,
    ImageDataset,
    augmenting,
    composed,
    normalising,
    run_once,
)
from hotset.bench.settings import Settings
from hotset.bench.timing import Run, Say, Stopwatch

PLAIN_0, PLAIN = "plain_0_workers", "plain"
ONCE = "deterministic_once"
RESIDENT, AUGMENTED = "resident", "resident_augmented"
COPY_FRESH, COPY_REUSED = "copy_fresh", "copy_reused"


@dataclass(frozen=True)
class Counts:
    """What one whole epoch takes, counted exactly.

    Attributes:
        samples: samples that came.
        transform_calls: calls of the steps of the transform, in all processes.
        link_bytes: bytes copied from the host to another device.
        batch_bytes: bytes of the batches as they come out.
        bytes_held: bytes of the samples as they are kept to serve the epoch.
    """

    samples: int
    transform_calls: int
    link_bytes: int
    batch_bytes: int
    bytes_held: int

    def as_dict(self) -> dict[str, int]:
        """Plain values, for JSON."""
        return asdict(self)


@dataclass(frozen=True, eq=False)
class Row:
    """One way to the batches.

    Attributes:
        key: its name in JSON.
        name: its name in the table.
        run: makes batches and says how many samples came and how long it took.
        counts: what an epoch takes; None for a ceiling, which makes no batches of its own.
    """

    key: str
    name: str
    run: Callable[[], Run]
    counts: Counts | None = None

    def rate(self) -> float:
        """Samples per second of a run, made now."""
        return self.run().rate


def build_rows(settings: Settings, images: ImageDataset, watch: Stopwatch, say: Say) -> list[Row]:
    """All rows, warmed up and counted.

    Args:
        settings: sizes.
        images: what the batches are made of.
        watch: times the runs.
        say: told what is being prepared.
    """
    with_workers = f"{settings.workers} worker{'s' if settings.workers > 1 else ''}"
    chain = composed(*augmenting(), *normalising())
    plain = images.with_transform(chain)
    say("running the deterministic part once, as by hand")
    floats = run_once(images, composed(*normalising()))
    kept = FloatDataset(floats, images.targets, composed(*augmenting()))
    bench = _Bench(settings, watch, say)
    return [
        bench.plain(PLAIN_0, "plain, 0 workers", plain, 0),
        bench.plain(PLAIN, f"plain, {with_workers}", plain, settings.workers),
        bench.plain(ONCE, f"once, then plain, {with_workers}", kept, settings.workers),
        bench.resident(
            RESIDENT,
            "resident, deterministic only",
            images.with_transform(composed(*normalising())),
        ),
        bench.resident(AUGMENTED, "resident, batched augmentation", plain),
        *bench.ceilings(floats),
    ]


class _Bench:
    """Makes rows for some settings."""

    def __init__(self, settings: Settings, watch: Stopwatch, say: Say) -> None:
        self._settings, self._watch, self._say = settings, watch, say
        self._device = torch.device(settings.device)

    def plain(self, key: str, name: str, dataset: ImageDataset | FloatDataset, workers: int) -> Row:
        """A row that makes its batches sample by sample; its runs are parts of an epoch."""
        settings = self._settings
        self._say(f"counting: {name}")
        counter, link = _counter(), LinkBytes()
        samples = written = 0
        counted = self._loader(dataset, workers, worker_init_fn=counter if workers else None)
        with counter.counting():
            for batch in counted:
                with link:
                    moved = self._move(batch)
                samples, written = samples + len(moved[1]), written + batch_bytes(moved)

        def run() -> Run:
            with opened(self._loader(dataset, workers)) as batches:
                skip = min(settings.ahead if workers else 1, len(counted) - 1)
                return self._watch.steady(
                    map(self._move, batches), skip=skip, take=settings.part_batches
                )

        counts = Counts(samples, counter.calls, link.total, written, dataset.nbytes)
        return Row(key, name, run, counts)

    def resident(self, key: str, name: str, dataset: ImageDataset) -> Row:
        """A row made by hotset; its runs are whole epochs."""
        self._say(f"filling, compiling and spot-checking: {name}")
        loader = self._loader(dataset, self._settings.workers)
        fast = hotset.accelerate(loader, device=self._device)
        for _ in fast:
            pass
        self._say(f"counting: {name}")
        counter, link = _counter(), LinkBytes()
        samples = written = 0
        with counter.counting(), link:
            for batch in fast:
                samples, written = samples + len(batch[1]), written + batch_bytes(batch)
        counts = Counts(samples, counter.calls, link.total, written, fast.plan.bytes_held)
        return Row(key, name, lambda: self._watch.whole(fast, epochs=self._settings.epochs), counts)

    def ceilings(self, floats: Tensor) -> list[Row]:
        """The rates at which `torch.Tensor.copy_` writes an epoch's batches.

        Args:
            floats: (N, 3, 32, 32) float32, read batch by batch in order.
        """
        source = floats.to(self._device)
        batch_size, epochs = self._settings.batch_size, self._settings.epochs
        labels = [0] * batch_size
        reused = torch.empty_like(source[:batch_size])

        def into_fresh() -> Iterator[tuple[Tensor, list[int]]]:
            for part in torch.split(source, batch_size):
                out = torch.empty(part.shape, device=self._device)
                yield out.copy_(part), labels[: len(part)]

        def into_reused() -> Iterator[tuple[Tensor, list[int]]]:
            for part in torch.split(source, batch_size):
                yield reused[: len(part)].copy_(part), labels[: len(part)]

        rows = []
        for key, name, epoch in (
            (COPY_FRESH, "copy_ into new tensors", into_fresh),
            (COPY_REUSED, "copy_ into one reused tensor", into_reused),
        ):
            run = self._copying(epoch, epochs)
            run()
            rows.append(Row(key, name, run))
        return rows

    def _copying(self, epoch: Callable[[], Iterator[Any]], epochs: int) -> Callable[[], Run]:
        return lambda: self._watch.whole(_Again(epoch), epochs=epochs)

    def _loader(self, dataset: Any, workers: int, **settings: Any) -> DataLoader[Any]:
        return DataLoader(
            dataset,
            batch_size=self._settings.batch_size,
            shuffle=True,
            num_workers=workers,
            pin_memory=self._device.type == "cuda",
            **settings,
        )

    def _move(self, batch: list[Tensor]) -> list[Tensor]:
        return [leaf.to(self._device, non_blocking=True) for leaf in batch]


class _Again:
    """Iterates anew whenever asked."""

    def __init__(self, epoch: Callable[[], Iterator[Any]]) -> None:
        self._epoch = epoch

    def __iter__(self) -> Iterator[Any]:
        return self._epoch()


def _counter() -> CallCounter:
    return CallCounter(type(step) for step in (*augmenting(), *normalising()))


@contextmanager
def opened(loader: Iterable[Any]) -> Iterator[Iterator[Any]]:
    """An epoch of a loader; its workers are ended with the context, not when it is collected."""
    batches = iter(loader)
    try:
        yield batches
    finally:
        shutdown = getattr(batches, "_shutdown_workers", None)
        if shutdown is not None:
            shutdown()
