"""A store that the first epoch fills: samples are written as they are first asked for."""

from __future__ import annotations

import itertools
import os
import shutil
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from filelock import FileLock
from torch.utils.data import DataLoader, Dataset

from hotset.building.build import finish
from hotset.building.chunks import ChunkReader, check_room, failure
from hotset.building.finding import take_lock
from hotset.building.locations import Place
from hotset.building.recipe import Recipe
from hotset.errors import ConfigError, FaithfulnessError
from hotset.keys.fingerprint import Fingerprint
from hotset.loader.batch import Make, Pipeline, Request
from hotset.progress import Told
from hotset.sample.collate import as_it_is
from hotset.sources.resident import Resident
from hotset.sources.source import UnkeepableError
from hotset.sources.sweep import sweep
from hotset.store.chunk import CHUNK_BYTES, Chunk, samples_per_chunk
from hotset.store.slots import AHEAD, Slots
from hotset.store.writer import Writer


class Filling:
    """A store under construction whose samples can be read already.

    One process at a time writes what lasts; another that wants the same store meanwhile fills a
    copy of its own, and gives it up at the end. `begin_filling` makes one.

    Args:
        recipe: what the store is to hold.
        place: where it is to be.
        lock: of the store, held; None where another process holds it.

    Attributes:
        recipe: what the store is to hold.
        resident: the samples that are there; its columns grow.
        reader: reads samples of the dataset, for `take`.

    Raises:
        StorageError: if there is no room, or the place may not be written to.
    """

    def __init__(self, recipe: Recipe, place: Place, lock: FileLock | None) -> None:
        self.recipe = recipe
        self._place, self._lock = place, lock
        source, spec = recipe.source, recipe.analysis.spec
        self.reader = ChunkReader(recipe.reader(), source.name, spec, "raise", len(source))
        folder, own = place.partial, None
        if lock is None:
            folder = own = folder.with_name(f"{folder.name}-{os.getpid()}")
        self._writer = Writer(folder, recipe.content())
        self._end = weakref.finalize(self, _given_up, self._writer, lock, own, os.getpid())
        ids, total = self._writer.ids, len(source)
        try:
            check_room(self._writer, sum(recipe.bytes_per_sample) * (total - len(ids)))
            self._rows = torch.full((total,), -1, dtype=torch.int64)
            self._rows[torch.tensor(ids, dtype=torch.int64)] = torch.arange(len(ids))
            columns = self._writer.columns(total)
            self.resident = Resident(columns, spec, source.leaf, self._rows)
            self._finish_if_full()
        except BaseException:
            self._end()
            raise

    @property
    def is_full(self) -> bool:
        """Whether every sample is there."""
        return len(self._writer.ids) == len(self._rows)

    @property
    def is_open(self) -> bool:
        """Whether more can be written."""
        return self._end.alive

    def missing(self, ids: np.ndarray) -> np.ndarray:
        """Those of some samples that are not there, each once."""
        wanted: np.ndarray = np.unique(ids)
        found: np.ndarray = wanted[self._rows.numpy()[wanted] < 0]
        return found

    def read(self, ids: Sequence[int]) -> None:
        """Reads some samples now, those that are missing.

        Raises:
            UnkeepableError: if reading draws random numbers, or the reader says so.
            HotsetError: as `take` does.
        """
        for index in self.missing(np.array(ids)).tolist():
            chunk = _read(self.reader, [index])
            if chunk.has_drawn:
                raise UnkeepableError("a random generator moved while its samples were read")
            self.take(chunk)

    def complete(self, workers: int, progress: Told | None) -> None:
        """Reads all that is missing now.

        Raises:
            HotsetError: as `take` does.
        """
        total = len(self._rows)
        ids = self.missing(np.arange(total)).tolist()
        per_task = samples_per_chunk(sum(self.recipe.bytes_per_sample))
        chunks = sweep(
            self.reader, ids, per_task=per_task, workers=workers, slot_bytes=2 * CHUNK_BYTES
        )
        for chunk in chunks:
            self.take(chunk)
            if progress is not None:
                progress(len(self._writer.ids), total)

    def take(self, chunk: Chunk) -> None:
        """Writes samples that were read; those that are there already are left out.

        Raises:
            SampleError: if one could not be read; names its index, and its path where known. What
                came before it is written.
            FaithfulnessError: if reading them drew random numbers.
            StorageError: if the disk is full.
        """
        if chunk.has_drawn:
            raise FaithfulnessError(
                f"a random generator moved while samples of {self.recipe.source.name} were read, "
                "so that they cannot be kept; mark the random step with @hotset.random, or leave "
                "`cache` out"
            )
        new = [n for n, index in enumerate(chunk.ids) if self._rows[index] < 0]
        if new:
            self._append(chunk if len(new) == len(chunk.ids) else chunk_of(chunk, new))
        if chunk.failed:
            raise failure(self.recipe.source, chunk)

    def _append(self, chunk: Chunk) -> None:
        first = len(self._writer.ids)
        try:
            self._writer.append(replace(chunk, failed=()))
            columns = self._writer.columns(len(self._rows))
        except BaseException:
            self._end()  # another goes on from here
            raise
        self.resident.columns = columns
        self._rows[list(chunk.ids)] = torch.arange(first, first + len(chunk.ids))
        self._finish_if_full()

    def _finish_if_full(self) -> None:
        if not self.is_full or not self._end.alive:
            return
        if self._lock is not None:
            finish(self.recipe, self._writer, self._place, {"filled": "in the first epoch"})
            self._place.publish()
        self._end()


def _read(reader: ChunkReader, ids: Sequence[int], room: np.ndarray | None = None) -> Chunk:
    try:
        return reader(ids, room)
    except ConfigError as error:  # whose words are about building a store
        raise UnkeepableError(str(error.__cause__ or error)) from error


def _given_up(writer: Writer, lock: FileLock | None, own: Path | None, process: int) -> None:
    if os.getpid() != process:
        return  # a process that was forked off has no say
    writer.close()
    if lock is not None:
        lock.release()
    if own is not None:
        shutil.rmtree(own, ignore_errors=True)


_OPEN: weakref.WeakValueDictionary[tuple[int, Path], Filling] = weakref.WeakValueDictionary()
"""What is being filled, by process and path: loaders of one process fill one store together."""


def filling_at(path: Path) -> Filling | None:
    """What this process fills at a path already."""
    found = _OPEN.get((os.getpid(), path))
    return found if found is not None and found.is_open else None


def begin_filling(
    recipe: Recipe, path: Path, find: Callable[[Fingerprint], Place]
) -> Filling | None:
    """A store that is to be filled, gone on with where it was begun; None if it is whole by now.

    Args:
        recipe: what the store is to hold.
        path: where it is to be.
        find: says what stands there, and what differs.

    Raises:
        StorageError: if there is no room, or the place may not be written to.
    """
    lock = take_lock(path, is_waiting=False)
    try:
        place = find(recipe.fingerprint)
        place.warn()
        filling = None if place.is_there else Filling(recipe, place, lock)
    except BaseException:
        if lock is not None:
            lock.release()
        raise
    if filling is None and lock is not None:
        lock.release()
    if filling is not None:
        _OPEN[os.getpid(), path] = filling
    return filling


def chunk_of(chunk: Chunk, places: Sequence[int]) -> Chunk:
    """Some of a chunk's samples."""
    stops = chunk.lengths.reshape(-1).cumsum().reshape(chunk.lengths.shape)
    starts = stops - chunk.lengths
    bounds = zip(starts[:, places].reshape(-1), stops[:, places].reshape(-1), strict=True)
    return replace(
        chunk,
        ids=tuple(chunk.ids[place] for place in places),
        schemas=tuple(tuple(of_field[place] for place in places) for of_field in chunk.schemas),
        payload=torch.cat([chunk.payload[start:stop] for start, stop in bounds]),
        lengths=chunk.lengths[:, places],
    )


ROOM_PER_SAMPLE = 1.25
"""Of what samples take at the mean, where they differ in size."""


class FillingPipeline:
    """Batches of another pipeline, whose samples are read and kept first where they are missing.

    Args:
        inner: makes batches of what is kept.
        filling: the store that is filled.
        settings: of the user's `DataLoader`: workers and the like.
        check: raises if batches cannot be made of what is there.
    """

    def __init__(
        self,
        inner: Pipeline,
        filling: Filling,
        settings: dict[str, Any],
        check: Callable[[Resident], None],
    ) -> None:
        self._inner, self._filling, self._check = inner, filling, check
        self._settings = {**settings, "collate_fn": as_it_is}

    @contextmanager
    def session(self) -> Iterator[Make]:
        with self._inner.session() as make:
            yield lambda requests: self._batches(requests, make)

    def _batches(self, requests: Iterator[Request], make: Make) -> Iterator[Any]:
        filling = self._filling
        if filling.is_full:
            yield from make(requests)
            return
        first = next(requests, None)
        if first is None:
            return
        taken: deque[Request] = deque()
        requests = itertools.chain([first], requests)
        slots = self._slots(len(first.ids))
        loader: DataLoader[Any] = DataLoader(
            _Missing(filling.reader, slots),
            sampler=_Asked(requests, taken, filling),
            batch_size=None,
            generator=torch.Generator(),  # its seed is drawn from here, not from the user's
            **self._settings,
        )
        chunks = iter(loader)
        try:
            yield from make(self._filled(chunks, taken, slots))
        finally:
            shutdown = getattr(chunks, "_shutdown_workers", None)
            if shutdown is not None:
                shutdown()

    def _slots(self, batch_size: int) -> Slots:
        """Memory for the batches under way; the first batch tells how large they are."""
        settings = self._settings
        sample_bytes = sum(self._filling.recipe.bytes_per_sample) * ROOM_PER_SAMPLE
        return Slots(
            int(settings.get("num_workers", 0)),
            settings.get("prefetch_factor") or AHEAD,
            int(sample_bytes * batch_size),
        )

    def _filled(
        self, chunks: Iterator[Chunk | str], taken: deque[Request], slots: Slots
    ) -> Iterator[Request]:
        for number, chunk in enumerate(chunks):
            if isinstance(chunk, str):
                raise FaithfulnessError(
                    f"samples of {self._filling.recipe.source.name} cannot be kept: {chunk}; leave "
                    '`cache` out, or give fill="eager", which finds this out beforehand'
                )
            self._filling.take(slots.filled(number, chunk))
            self._check(self._filling.resident)
            yield taken.popleft()


class _Missing(Dataset[Any]):
    """Reads the samples of a request that are missing, in a worker process.

    Why they cannot be kept comes back as text: an error would bring the worker's stack with it.
    """

    def __init__(self, reader: ChunkReader, slots: Slots) -> None:
        self._reader, self._slots = reader, slots

    def __getitem__(self, asked: tuple[int, list[int]]) -> Chunk | str:
        number, ids = asked
        try:
            return _read(self._reader, ids, self._slots.room(number))
        except UnkeepableError as error:
            return str(error)


class _Asked:
    """A sampler of the samples that are missing, one numbered list per request, none twice."""

    def __init__(
        self, requests: Iterator[Request], taken: deque[Request], filling: Filling
    ) -> None:
        self._requests, self._taken, self._filling = requests, taken, filling

    def __iter__(self) -> Iterator[tuple[int, list[int]]]:
        asked = np.zeros(len(self._filling.resident), dtype=bool)
        for number, request in enumerate(self._requests):
            self._taken.append(request)
            wanted = self._filling.missing(request.ids)
            wanted = wanted[~asked[wanted]]
            asked[wanted] = True
            yield number, wanted.tolist()
