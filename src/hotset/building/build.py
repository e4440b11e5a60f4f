"""`hotset.build`: the deterministic part of a dataset, run once and written to disk."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Mapping
from contextlib import closing
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Literal

from torch.utils.data import DataLoader

from hotset import __version__
from hotset.building.chunks import (
    ON_ERROR,
    ChunkReader,
    OnError,
    check_room,
    refuse_given_up,
    write_chunk,
)
from hotset.building.finding import DATA, find_place, location_of, locked
from hotset.building.locations import Place
from hotset.building.prepare import prepare
from hotset.building.recipe import Recipe
from hotset.building.stream import StreamReader, write_stream
from hotset.errors import ConfigError, OrientationWarning
from hotset.kernels.threads import usable_cores
from hotset.keys.fingerprint import Fingerprint
from hotset.progress import Told, shown
from hotset.sources.sweep import sweep
from hotset.store.chunk import CHUNK_BYTES, samples_per_chunk
from hotset.store.store import Store
from hotset.store.writer import Writer


def build(
    data: Any,
    path: str | os.PathLike[str],
    transform: Any = None,
    *,
    workers: int | None = None,
    on_error: OnError = "raise",
    version: str | None = None,
    source: Literal["stat", "content"] = "stat",
    progress: Told | bool | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Store:
    """Writes the deterministic part of a dataset to disk, once, and opens it.

    The chain runs up to its first random step; where bytes and a table say the same as floats,
    bytes are kept. A store that was made from the same data and code is opened as it is; one made
    from something else stays untouched, a `StaleStoreWarning` says what differs, and another is
    built beside it. Building that was stopped, in whatever way, goes on where it was.

    Args:
        data: a map-style dataset; a `DataLoader`, whose dataset is taken; a tensor, array, or
            tuple, list or dictionary of them; or an iterable of samples: they are read in the main
            process, in the order in which they come, and one that is gone on with must give the
            same samples again.
        path: the directory to make, "~" the user's home; or a URL that fsspec knows, as
            "s3://bucket/train.hotset": the store is built in the folder of local copies (see
            `hotset.open`), and copied there when it is whole.
        transform: callable, or list of callables, on the first field of a sample, behind the
            dataset's own; for dictionaries of arrays `{field: transform}`.
        workers: processes that read, where reading is slow; None is the `DataLoader`'s number, or
            as many as there are cores.
        on_error: what happens to a sample that cannot be read: "raise" names it, and building goes
            on from there another time; "skip" leaves it out; "substitute" puts the next one that
            can be read in its place.
        version: your word for what cannot be told apart by itself, such as code behind a C
            extension; change it when that changes. Samples that are read from files which neither
            the dataset nor its transform names, in an attribute or otherwise, need one. Such files
            are noticed where Python opens them; those that C code opens by itself, as libraries for
            HDF5 or video do, are not seen: keep their paths as attributes, or give a version.
        source: how files that the dataset names are told apart: "stat" by path, size and time,
            "content" by all of their bytes.
        progress: called with (samples written, total or None where nobody knows), first with what
            was there before; None or True is a bar on standard error where that is a terminal,
            False is silence.
        storage_options: for a URL, what fsspec's file system is told: keys, an endpoint.

    Returns:
        The store, opened.

    Raises:
        ConfigError: for arguments that cannot be used, or a dataset that draws random numbers.
        KeyingError: if something cannot be told apart by itself, or samples are read from files
            that nothing names; give a `version`.
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
    if isinstance(data, DataLoader) and workers is None:
        workers = data.num_workers
    workers = _checked_workers(usable_cores() if workers is None else workers)
    kinds = (str, bytes, os.PathLike)
    if isinstance(data, kinds) and not isinstance(path, kinds):
        raise ConfigError(
            "hotset.build takes the data first and the path second, as in hotset.build(dataset, "
            f"{os.fsdecode(data)!r}); got the path first, and one of type {type(path).__name__}"
        )
    place = location_of(path, storage_options)
    prepared = prepare(
        data,
        transform,
        version=version,
        is_by_content=source == "content",
        is_tolerant=on_error != "raise",
    )
    with shown(progress, f"building {place.name}") as told:
        store = stored(
            prepared.recipe,
            place.work(prepared.recipe.fingerprint),
            partial(find_place, place),
            workers=workers,
            on_error=on_error,
            progress=told,
            stream=prepared.stream_reader,
            notes={"version": version, "source": source},
        )
    turned = store.manifest.made.get("turned_by_exif")
    if turned:
        warnings.warn(
            f"{turned:,} images of {place.name} say by EXIF that they are to be turned; the store "
            "keeps their pixels as they lie, as torchvision reads them. For upright images put "
            "PIL.ImageOps.exif_transpose into the dataset's transform",
            OrientationWarning,
            stacklevel=2,
        )
    return store


def _checked_workers(workers: Any) -> int:
    if not isinstance(workers, int) or isinstance(workers, bool) or workers < 0:
        raise ConfigError(f"`workers` must be a whole number, 0 or more, got {workers!r}")
    return workers


def stored(
    recipe: Recipe,
    lock: Path,
    find: Callable[[Fingerprint], Place],
    *,
    workers: int,
    on_error: OnError = "raise",
    progress: Told | None = None,
    stream: StreamReader | None = None,
    notes: dict[str, Any] | None = None,
) -> Store:
    """The store of a recipe: opened where it is there, else built.

    Args:
        recipe: what it is to hold.
        lock: the path whose lock is held meanwhile.
        find: says where it is, or is to be.
        workers: processes that read, where reading is slow.
        on_error: what happens to a sample that cannot be read.
        progress: called with (samples written, total).
        stream: reads the samples if they have no index.
        notes: what else is noted of its making.
    """
    place = find(recipe.fingerprint)
    if place.is_there:  # nobody needs to wait for it, or be allowed to write there
        place.warn()
        return _opened(place, on_error)
    with locked(lock):
        place = find(recipe.fingerprint)
        place.warn()
        if not place.is_there:
            began = time.perf_counter()
            writer = Writer(place.partial, recipe.content())
            try:
                if stream is not None:
                    write_stream(recipe, stream, writer, on_error, progress)
                else:
                    _write(recipe, writer, workers, on_error, progress)
                seconds = round(time.perf_counter() - began, 1)
                how = {**(notes or {}), "workers": workers, "seconds": seconds}
                finish(recipe, writer, place, how)
            finally:
                writer.close()
    return _opened(place, on_error)


def _opened(place: Place, on_error: OnError) -> Store:
    store = place.opened()
    made = store.manifest.made
    refuse_given_up(store.path, made.get("skipped"), made.get("substituted"), on_error)
    return store


def finish(recipe: Recipe, writer: Writer, place: Place, how: dict[str, Any]) -> None:
    """Makes a whole store of what was written."""
    made = {
        **recipe.made(),
        **how,
        "hotset": __version__,
        "when": datetime.now().astimezone().isoformat(timespec="seconds"),
        "skipped": writer.failed,
        "substituted": writer.replaced,
        "turned_by_exif": len(writer.turned),
        **({DATA: place.data} if place.data else {}),
    }
    writer.finish(place.path, made, sorted(writer.ids))


def _write(
    recipe: Recipe, writer: Writer, workers: int, on_error: OnError, told: Told | None
) -> None:
    total, source = len(recipe.source), recipe.source
    refuse_given_up(writer.folder, (), writer.replaced, on_error)
    done = set(writer.ids)
    if on_error == "skip":  # else those are tried again
        done |= {index for index, _ in writer.failed}
    missing = [index for index in range(total) if index not in done] if done else range(total)
    per_sample = sum(recipe.bytes_per_sample)
    check_room(writer, per_sample * len(missing))
    task = ChunkReader(
        recipe.reader(), source.name, recipe.analysis.spec, on_error, total, recipe.tabled_leaf
    )
    count = total - len(missing)
    if told is not None:
        told(count, total)
    per_task = samples_per_chunk(per_sample)
    reading = sweep(task, missing, per_task=per_task, workers=workers, slot_bytes=2 * CHUNK_BYTES)
    with closing(reading) as chunks:
        for chunk in chunks:
            write_chunk(writer, chunk, source, on_error)
            count += len(chunk.ids) + len(chunk.failed)
            if told is not None:
                told(count, total)
