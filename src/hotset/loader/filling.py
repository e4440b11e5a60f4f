"""A store that the first epoch fills: samples are written as they are first asked for."""

from __future__ import annotations

import os
import shutil
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from filelock import FileLock
from torch.utils.data import DataLoader, Dataset

from hotset.errors import FaithfulnessError
from hotset.keys.fingerprint import Fingerprint
from hotset.loader.batch import Make, Pipeline, Request
from hotset.sample.collate import as_it_is
from hotset.sources.build import ChunkReader, check_room, failure, finish
from hotset.sources.places import Place, is_whole, take_lock
from hotset.sources.recipe import Recipe
from hotset.sources.resident import Resident
from hotset.store.chunk import Chunk
from hotset.store.writer import Writer


class Filling:
    """A store under construction whose samples can be read already.

    One process at a time writes what lasts; another that wants the same store meanwhile fills a
    copy of its own, and gives it up at the end.

    Args:
        recipe: what the store is to hold.
        path: where it is to be.
        find: says what stands there, and what differs.

    Attributes:
        recipe: what the store is to hold.
        resident: the samples that are there; its columns grow.

    Raises:
        StorageError: if there is no room, or the place may not be written to.
    """

    def __init__(self, recipe: Recipe, path: Path, find: Callable[[Fingerprint], Place]) -> None:
        self.recipe = recipe
        self._lock = take_lock(path, is_waiting=False)
        self._place = find(recipe.fingerprint)
        folder = self._place.partial
        if self._lock is None:
            folder = folder.with_name(f"{folder.name}-{os.getpid()}")
        self._writer = Writer(folder, recipe.content())
        total = len(recipe.source)
        self._rows = torch.full((total,), -1, dtype=torch.int64)
        self._rows[torch.tensor(self._writer.ids, dtype=torch.int64)] = torch.arange(
            len(self._writer.ids)
        )
        check_room(self._writer, sum(recipe.bytes_per_sample) * (total - len(self._writer.ids)))
        self.resident = Resident(
            self._writer.columns(total), recipe.analysis.spec, recipe.source.leaf, self._rows
        )
        self._asked = np.zeros(total, dtype=bool)
        own = None if self._lock is not None else folder
        self._end = weakref.finalize(self, _given_up, self._writer, self._lock, own)
        self._finish_if_full()

    @property
    def is_full(self) -> bool:
        """Whether every sample is there."""
        return len(self._writer.ids) == len(self._rows)

    def ask(self, ids: np.ndarray) -> list[int]:
        """Those of some samples that are neither there nor asked for; they now are."""
        wanted = np.unique(ids)
        wanted = wanted[(self._rows.numpy()[wanted] < 0) & ~self._asked[wanted]]
        self._asked[wanted] = True
        return wanted.tolist()  # type: ignore[no-any-return]

    def forget(self) -> None:
        """What was asked for and has not come is asked for again."""
        self._asked[:] = False

    def take(self, chunk: Chunk) -> None:
        """Writes samples that were read.

        Raises:
            SampleError: if one could not be read; names its index, and its path where known.
            FaithfulnessError: if reading them drew random numbers.
            StorageError: if the disk is full.
        """
        if chunk.has_drawn:
            raise FaithfulnessError(
                f"a random generator moved while samples of {self.recipe.source.name} were read, "
                "so that they cannot be kept; mark the random step with @hotset.random"
            )
        if chunk.failed:
            raise failure(self.recipe.source, chunk)
        if not chunk.ids:
            return
        first = len(self._writer.ids)
        self._writer.append(chunk)
        self._rows[list(chunk.ids)] = torch.arange(first, first + len(chunk.ids))
        self.resident.columns = self._writer.columns(len(self._rows))
        self._finish_if_full()

    def _finish_if_full(self) -> None:
        if not self.is_full or not self._end.alive:
            return
        if self._lock is not None and not is_whole(self._place.path):
            finish(self.recipe, self._writer, self._place, {"filled": "in the first epoch"})
        self._end()


def _given_up(writer: Writer, lock: FileLock | None, own: Path | None) -> None:
    writer.close()
    if lock is not None:
        lock.release()
    if own is not None:
        shutil.rmtree(own, ignore_errors=True)


class FillingPipeline:
    """Batches of another pipeline, whose samples are read and kept first where they are missing.

    Args:
        inner: makes batches of what is kept.
        filling: the store that is filled.
        settings: of the user's `DataLoader`: workers and the like.
    """

    def __init__(self, inner: Pipeline, filling: Filling, settings: dict[str, Any]) -> None:
        self._inner, self._filling = inner, filling
        self._settings = {**settings, "collate_fn": as_it_is}
        recipe = filling.recipe
        source, spec = recipe.source, recipe.analysis.spec
        self._task = ChunkReader(recipe.reader(), source.name, spec, "raise", len(source))

    @contextmanager
    def session(self) -> Iterator[Make]:
        with self._inner.session() as make:
            yield lambda requests: self._batches(requests, make)

    def _batches(self, requests: Iterator[Request], make: Make) -> Iterator[Any]:
        if self._filling.is_full:
            yield from make(requests)
            return
        taken: deque[Request] = deque()
        loader: DataLoader[Any] = DataLoader(
            _Missing(self._task),
            sampler=_Asked(requests, taken, self._filling),
            batch_size=None,
            generator=torch.Generator(),  # its seed is drawn from here, not from the user's
            **self._settings,
        )
        chunks = iter(loader)
        try:
            yield from make(self._filled(chunks, taken))
        finally:
            self._filling.forget()
            shutdown = getattr(chunks, "_shutdown_workers", None)
            if shutdown is not None:
                shutdown()

    def _filled(self, chunks: Iterator[Chunk], taken: deque[Request]) -> Iterator[Request]:
        for chunk in chunks:
            self._filling.take(chunk)
            yield taken.popleft()


class _Missing(Dataset[Any]):
    """Reads the samples of a request that are missing, in a worker process."""

    def __init__(self, task: ChunkReader) -> None:
        self._task = task

    def __getitem__(self, ids: list[int]) -> Chunk:
        return self._task(ids)


class _Asked:
    """A sampler of the samples that are missing, one list per request."""

    def __init__(
        self, requests: Iterator[Request], taken: deque[Request], filling: Filling
    ) -> None:
        self._requests, self._taken, self._filling = requests, taken, filling

    def __iter__(self) -> Iterator[list[int]]:
        for request in self._requests:
            self._taken.append(request)
            yield self._filling.ask(request.ids)
