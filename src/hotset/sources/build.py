"""`hotset.build`: the deterministic part of a dataset, run once and written to disk."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from torch.utils.data import DataLoader, get_worker_info

from hotset.chain.probe import generator_states, preserved_generators
from hotset.errors import ConfigError, SampleError, StorageError
from hotset.sample.tree import Spec
from hotset.sources.analyse import analyse
from hotset.sources.mapstyle import dataset_source
from hotset.sources.places import find_place, locked
from hotset.sources.recipe import Recipe, recipe_for
from hotset.sources.source import (
    Reader,
    Source,
    UnkeepableError,
    array_source,
    check_length,
    dataset_length,
    is_array_data,
)
from hotset.sources.sweep import Progress, leaves_of, refuse_draws, sweep
from hotset.store.arrayfile import free_bytes_at
from hotset.store.chunk import Chunk, Packer, Taken, samples_per_chunk
from hotset.store.store import Store
from hotset.store.writer import Writer

OnError = Literal["raise", "skip", "substitute"]
ON_ERROR = ("raise", "skip", "substitute")
SUBSTITUTES = 100
"""How many of the following samples are tried in place of one that fails."""


def build(
    data: Any,
    path: str | os.PathLike[str],
    transform: Any = None,
    *,
    workers: int | None = None,
    on_error: OnError = "raise",
    version: str | None = None,
    source: Literal["stat", "content"] = "stat",
    progress: Progress | None = None,
) -> Store:
    """Writes the deterministic part of a dataset to disk, once, and opens it.

    The chain runs up to its first random step; where bytes and a table say the same as floats,
    bytes are kept. A store that was made from the same data and code is opened as it is; one made
    from something else stays untouched, a `StaleStoreWarning` says what differs, and another is
    built beside it. Building that was stopped, in whatever way, goes on where it was.

    Args:
        data: a map-style dataset; a `DataLoader`, whose dataset is taken; a tensor, array, or
            tuple, list or dictionary of them; or an iterable of samples.
        path: the directory to make.
        transform: callable, or list of callables, on the first field of a sample, behind the
            dataset's own; for dictionaries of arrays `{field: transform}`.
        workers: processes that read, where reading is slow; None is the `DataLoader`'s number, or
            as many as there are cores.
        on_error: what happens to a sample that cannot be read: "raise" names it, and building goes
            on from there another time; "skip" leaves it out; "substitute" puts the next one that
            can be read in its place.
        version: your word for what cannot be told apart by itself, such as code behind a C
            extension; change it when that changes.
        source: how files that the dataset names are told apart: "stat" by path, size and time,
            "content" by all of their bytes.
        progress: called with (samples written, total).

    Returns:
        The store, opened.

    Raises:
        ConfigError: for arguments that cannot be used, or a dataset that draws random numbers.
        KeyingError: if something cannot be told apart by itself; give a `version`.
        SampleError: if a sample cannot be read; names its index, and its path where known.
        SchemaError: if samples differ in structure or kind, or cannot be stored.
        StorageError: if there is no room (names what is needed and what is free), or the place may
            not be written to.

    Example:
        >>> import hotset, tempfile
        >>> folder = tempfile.mkdtemp()
        >>> store = hotset.build([(1, "one"), (2, "two")], f"{folder}/words.hotset", version="1")
        >>> store[1]
        (2, 'two')
    """
    if on_error not in ON_ERROR:
        raise ConfigError(f"`on_error` must be one of {', '.join(ON_ERROR)}, got {on_error!r}")
    if source not in ("stat", "content"):
        raise ConfigError(f"`source` must be 'stat' or 'content', got {source!r}")
    if isinstance(data, DataLoader):
        workers = data.num_workers if workers is None else workers
        data = data.dataset
    workers = _checked_workers((os.cpu_count() or 1) if workers is None else workers)
    analysis = analyse(_source_of(data, transform))
    if not analysis.dataset.is_deterministic:
        raise ConfigError(
            f"{analysis.source.name} cannot be stored: {analysis.dataset.reason}. Give "
            "hotset.build a dataset without its random part, and that part to the loader as "
            "`transform`"
        )
    recipe = recipe_for(
        data, analysis, is_whole=True, version=version, is_by_content=source == "content"
    )
    return stored(recipe, Path(path), workers=workers, on_error=on_error, progress=progress)


def _checked_workers(workers: Any) -> int:
    if not isinstance(workers, int) or isinstance(workers, bool) or workers < 0:
        raise ConfigError(f"`workers` must be a whole number, 0 or more, got {workers!r}")
    return workers


def _source_of(data: Any, transform: Any) -> Source:
    if is_array_data(data):
        found: Source = array_source(data, transform)
        check_length(len(found), "the data")
        return found
    dataset_length(data)
    return dataset_source(data, transform)


def stored(
    recipe: Recipe,
    path: Path,
    *,
    workers: int,
    on_error: OnError = "raise",
    progress: Progress | None = None,
) -> Store:
    """The store of a recipe: opened where it is there, else built."""
    path = Path(os.path.abspath(path))
    with locked(path):
        place = find_place(path, recipe.fingerprint)
        if not place.is_there:
            began = time.perf_counter()
            writer = Writer(place.partial, recipe.content())
            try:
                _write(recipe, writer, workers, on_error, progress)
                made = {
                    **recipe.made(),
                    "workers": workers,
                    "seconds": round(time.perf_counter() - began, 1),
                    "skipped": writer.failed,
                    "substituted": writer.replaced,
                }
                writer.finish(place.path, made, sorted(writer.ids))
            finally:
                writer.close()
    return Store(place.path)


def _write(
    recipe: Recipe, writer: Writer, workers: int, on_error: OnError, progress: Progress | None
) -> None:
    total, source = len(recipe.source), recipe.source
    done = {*writer.ids, *(index for index, _ in writer.failed)}
    missing = [index for index in range(total) if index not in done] if done else range(total)
    per_sample = sum(recipe.bytes_per_sample)
    check_room(writer, per_sample * len(missing))
    task = ChunkReader(recipe.reader(), source.name, recipe.analysis.spec, on_error, total)
    count = total - len(missing)
    with preserved_generators():
        before = generator_states()
        per_task = samples_per_chunk(per_sample)
        for chunk in sweep(task, missing, per_task=per_task, workers=workers):
            if chunk.ids or (chunk.failed and on_error == "skip"):
                writer.append(chunk if on_error == "skip" else without_failures(chunk))
            if chunk.failed and on_error != "skip":
                index, why = chunk.failed[0]
                raise SampleError(why + _place(recipe.source, index))
            if chunk.has_drawn:
                raise _drawing(source.name)
            count += len(chunk.ids) + len(chunk.failed)
            if progress is not None:
                progress(count, total)
        try:
            refuse_draws(before)
        except UnkeepableError as error:
            raise _drawing(source.name) from error


def check_room(writer: Writer, needed: int) -> None:
    """Refuses to begin what will not fit on the disk.

    Raises:
        StorageError: if fewer bytes are free than are needed; names both.
    """
    free = free_bytes_at(writer.folder)
    if needed > free:
        raise StorageError(
            f"no room for {writer.folder}: about {needed:,} bytes are needed, {free:,} bytes are "
            "free; make room, or name a path on another disk"
        )


def without_failures(chunk: Chunk) -> Chunk:
    """A chunk whose failures are told elsewhere."""
    return replace(chunk, failed=())


def _drawing(name: str) -> ConfigError:
    return ConfigError(
        f"{name} cannot be stored: a random generator moved while its samples were read. Give "
        "hotset.build a dataset without its random part, and that part to the loader as `transform`"
    )


def _place(source: Source, index: int) -> str:
    path = source.path_of(index)
    return f" ({path})" if path else ""


class ChunkReader:
    """Reads samples and packs them; picklable for worker processes.

    Args:
        reader: gives a sample as it is kept.
        name: what messages call the dataset.
        spec: the structure that every sample must have.
        on_error: what happens to a sample that cannot be read.
        total: number of samples.
    """

    def __init__(
        self, reader: Reader, name: str, spec: Spec, on_error: OnError, total: int
    ) -> None:
        self._reader, self._name, self._spec = reader, name, spec
        self._on_error, self._total = on_error, total
        self._packer = Packer()

    def __call__(self, ids: Sequence[int]) -> Chunk:
        """The samples with some ids.

        Where one fails and is not given up, those before it, and why it failed.
        """
        before = generator_states() if get_worker_info() is not None else None
        read: list[int] = []
        samples: list[Taken] = []
        failed: list[tuple[int, str]] = []
        replaced: list[tuple[int, int]] = []
        for index in ids:
            found = self._sample(index)
            if isinstance(found, str) and self._on_error == "substitute":
                stand_in, other = self._substitute(index)
                if other is not None:
                    replaced.append((index, stand_in))
                    found = other
            if isinstance(found, str):
                failed.append((index, found))
                if self._on_error != "skip":
                    break
                continue
            read.append(index)
            samples.append(found)
        has_drawn = before is not None and generator_states() != before
        return self._packer.pack(read, samples, failed, replaced, has_drawn)

    def _sample(self, index: int) -> Taken | str:
        """A sample, or why it cannot be read."""
        try:
            return self._packer.taken(leaves_of(self._reader, index, self._name, self._spec))
        except SampleError as error:
            return str(error)

    def _substitute(self, index: int) -> tuple[int, Taken | None]:
        """The next sample that can be read."""
        for step in range(1, min(SUBSTITUTES, self._total)):
            stand_in = (index + step) % self._total
            found = self._sample(stand_in)
            if not isinstance(found, str):
                return stand_in, found
        return index, None
