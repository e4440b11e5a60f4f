"""What the comparison of image folders measures: each a task that gives one value a round."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader
from torchvision import transforms
from torchvision.datasets import ImageFolder

import hotset
from hotset.bench.counter import CallCounter
from hotset.bench.rows import opened
from hotset.bench.timing import Stopwatch
from hotset.errors import ConfigError
from hotset.sample.collate import as_it_is

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
SIZE = 224
PLAIN, STORE, MEMORY = "plain", "store", "memory"
PLAIN_EPOCH, LAZY_EPOCH = "plain_first_epoch", "lazy_first_epoch"
PLAIN_READING, BUILDING = "plain_reading", "building"
MEMMAP, STORE_READING = "memmap", "store_reading"


@dataclass(frozen=True)
class ImageSettings:
    """Parameters of the comparison of image folders.

    Attributes:
        samples: JPEG files.
        batch_size: samples per batch.
        workers: worker processes.
        rounds: timed runs of every row.
        part_batches: batches in a timed run of the plain loader.
        epochs: epochs in a timed run of a row that is made batch by batch.
        arrays: samples of 3x64x64 bytes in the store whose random reads are timed.
    """

    samples: int = 2000
    batch_size: int = 64
    workers: int = 2
    rounds: int = 7
    part_batches: int = 12
    epochs: int = 2
    arrays: int = 20_000

    def __post_init__(self) -> None:
        for name in ("batch_size", "workers", "rounds"):
            if getattr(self, name) < 1:
                option = f"--{name.replace('_', '-')}"
                raise ConfigError(f"`{option}` must be at least 1, got {getattr(self, name)}")
        least = self.batch_size * (2 * self.workers + 2)
        if self.samples < least:
            raise ConfigError(
                f"`--samples` must be at least {least}, since the clock starts when the workers "
                f"run, got {self.samples}"
            )

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class ImageRow:
    """One task.

    Attributes:
        key: its name in JSON.
        name: its name in the table.
        rate: makes samples and says how many a second.
        calls: calls of the transform's steps and of the decoder in an epoch; None if not counted.
    """

    key: str
    name: str
    rate: Callable[[], float]
    calls: int | None = None


class ImageRows:
    """Makes the rows.

    Args:
        settings: sizes.
        folder: of photographs.
        scratch: where stores are written.
        watch: times the runs.
    """

    def __init__(
        self, settings: ImageSettings, folder: Path, scratch: Path, watch: Stopwatch
    ) -> None:
        self._settings, self._watch = settings, watch
        self._folder, self._scratch = folder, scratch

    def all(self) -> list[ImageRow]:
        """All rows, warmed up."""
        workers = f"{self._settings.workers} workers"
        return [
            ImageRow(PLAIN, f"plain, {workers}", self._plain_rate),
            self._kept(STORE, "from a store, mapped", cache=self._scratch / "kept"),
            self._kept(MEMORY, "from memory", cache=None),
            ImageRow(PLAIN_EPOCH, f"plain, {workers}, first epoch", self._first_plain_epoch),
            ImageRow(LAZY_EPOCH, "filling a store, first epoch", self._lazy_epoch),
            ImageRow(PLAIN_READING, f"reading images, {workers}", self._plain_reading),
            ImageRow(BUILDING, f"building a store, {workers}", self._building),
            *self._random_reads(),
        ]

    def _loader(self) -> DataLoader[Any]:
        chain = transforms.Compose(
            [
                transforms.RandomResizedCrop(SIZE),
                transforms.RandomHorizontalFlip(),
                transforms.ToTensor(),
                transforms.Normalize(MEAN, STD),
            ]
        )
        return DataLoader(
            ImageFolder(str(self._folder), chain),
            batch_size=self._settings.batch_size,
            shuffle=True,
            num_workers=self._settings.workers,
        )

    def _plain_rate(self) -> float:
        with opened(self._loader()) as batches:
            skip = 2 * self._settings.workers
            return self._watch.steady(batches, skip=skip, take=self._settings.part_batches).rate

    def _kept(self, key: str, name: str, *, cache: Path | None) -> ImageRow:
        fast = hotset.accelerate(self._loader(), cache=cache, device="cpu")
        for _ in fast:
            pass  # compiles, and compares the first epoch's samples
        counter = CallCounter(
            (
                transforms.RandomResizedCrop,
                transforms.RandomHorizontalFlip,
                transforms.ToTensor,
                transforms.Normalize,
            )
        )
        with counter.counting():
            for _ in fast:
                pass

        def rate() -> float:
            return self._watch.whole(fast, epochs=self._settings.epochs).rate

        return ImageRow(key, name, rate, counter.calls)

    def _first_plain_epoch(self) -> float:
        return self._watch.whole(self._loader(), epochs=1).rate

    def _lazy_epoch(self) -> float:
        with tempfile.TemporaryDirectory(dir=self._scratch) as cache:
            fast = hotset.accelerate(self._loader(), cache=cache, fill="lazy", device="cpu")
            return self._watch.whole(fast, epochs=1).rate

    def _plain_reading(self) -> float:
        images: DataLoader[Any] = DataLoader(
            ImageFolder(str(self._folder)),
            batch_size=self._settings.batch_size,
            num_workers=self._settings.workers,
            collate_fn=as_it_is,
        )
        self._watch.finish()
        began, samples = self._watch.clock(), 0
        for batch in images:
            samples += len(batch)
        return samples / (self._watch.clock() - began)

    def _building(self) -> float:
        with tempfile.TemporaryDirectory(dir=self._scratch) as place:
            began = self._watch.clock()
            store = hotset.build(
                ImageFolder(str(self._folder)),
                Path(place) / "built.hotset",
                workers=self._settings.workers,
                progress=False,
            )
            return len(store) / (self._watch.clock() - began)

    def _random_reads(self) -> Iterator[ImageRow]:
        generator = np.random.default_rng(0)
        shape = (self._settings.arrays, 3, 64, 64)
        array = generator.integers(0, 256, shape, dtype=np.uint8)
        path = self._scratch / "array.npy"
        np.save(path, array)
        store = hotset.build((torch.from_numpy(array),), self._scratch / "array.hotset", workers=0)
        mapped = np.load(path, mmap_mode="r")
        batch_size = self._settings.batch_size
        loader = hotset.Loader(store, batch_size=batch_size, shuffle=True, device="cpu")
        for _ in loader:
            pass  # every block is looked at once

        def fancy() -> float:
            began = self._watch.clock()
            order = generator.permutation(len(mapped))
            for start in range(0, len(order), batch_size):
                mapped[order[start : start + batch_size]]
            return len(order) / (self._watch.clock() - began)

        def from_store() -> float:
            began = self._watch.clock()
            for _ in loader:
                pass
            return len(store) / (self._watch.clock() - began)

        yield ImageRow(MEMMAP, "numpy.memmap[indices]", fancy)
        yield ImageRow(STORE_READING, "hotset.Loader(store)", from_store)


@contextmanager
def scratch_folder(parent: Path | None) -> Iterator[Path]:
    """A folder that is gone afterwards, in `parent` or where temporary files go."""
    with tempfile.TemporaryDirectory(dir=parent, prefix="hotset-bench-") as name:
        yield Path(name)
