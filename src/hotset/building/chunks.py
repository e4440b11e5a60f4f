"""Reads samples a few at a time and packs them; what becomes of those that cannot be read."""

from __future__ import annotations

import traceback
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from hotset.chain.probe import generator_states, preserved_generators
from hotset.errors import ConfigError, FormatError, SampleError, StorageError
from hotset.sample.tree import Spec
from hotset.sources.source import Reader, Source, UnkeepableError
from hotset.sources.sweep import leaves_of
from hotset.store.arrayfile import free_bytes_at
from hotset.store.chunk import Chunk, Packer, Taken
from hotset.store.writer import Writer

OnError = Literal["raise", "skip", "substitute"]
ON_ERROR = ("raise", "skip", "substitute")
SUBSTITUTES = 100
"""How many of the following samples are tried in place of one that fails."""


class ChunkReader:
    """Reads samples and packs them; picklable for worker processes.

    Args:
        reader: gives a sample as it is kept.
        name: what messages call the dataset.
        spec: the structure that every sample must have.
        on_error: what happens to a sample that cannot be read.
        total: number of samples; None where nobody knows.
        tabled: the leaf that a table finishes; None for none.
    """

    def __init__(
        self,
        reader: Reader,
        name: str,
        spec: Spec,
        on_error: OnError,
        total: int | None,
        tabled: int | None = None,
    ) -> None:
        self._reader, self._name, self._spec = reader, name, spec
        self._on_error, self._total = on_error, total
        self._packer = Packer(spec.paths(), tabled)
        self._trace = ""

    def __call__(self, ids: Iterable[int], room: np.ndarray | None = None) -> Chunk:
        """The samples with some ids; packed into `room`, where there is one and they fit.

        Where one fails and is not given up, those before it, and why it failed.
        """
        with preserved_generators():
            return self._chunk(ids, room)

    def _chunk(self, ids: Iterable[int], room: np.ndarray | None) -> Chunk:
        before = generator_states()
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
        has_drawn = generator_states() != before
        chunk = self._packer.pack(read, samples, failed, replaced, has_drawn, room)
        return replace(chunk, trace=self._trace) if failed else chunk

    def _sample(self, index: int) -> Taken | str:
        """A sample, or why it cannot be read."""
        try:
            leaves = leaves_of(self._reader, index, self._name, self._spec)
        except SampleError as error:
            self._trace = "".join(traceback.format_exception(error.__cause__))
            return str(error)
        except FormatError as error:
            self._trace = "".join(traceback.format_exception(error))
            return f"{self._name} failed at index {index}: {error}"
        except UnkeepableError as error:
            raise ConfigError(
                f"{self._name} cannot be stored: {error}; give hotset.build a dataset without it, "
                "and it as `transform`"
            ) from error
        return self._packer.taken(leaves, index)

    def _substitute(self, index: int) -> tuple[int, Taken | None]:
        """The next sample that can be read; behind the last comes the first."""
        total = self._total
        for step in range(1, SUBSTITUTES if total is None else min(SUBSTITUTES, total)):
            stand_in = index + step if total is None else (index + step) % total
            found = self._sample(stand_in)
            if not isinstance(found, str):
                return stand_in, found
        return index, None


def write_chunk(writer: Writer, chunk: Chunk, source: Source, on_error: OnError) -> None:
    """Writes what was read, and tells of what could not be.

    Args:
        writer: writes it.
        chunk: as `ChunkReader` gives it.
        source: where it is from.
        on_error: what happens to a sample that could not be read.

    Raises:
        ConfigError: if reading drew random numbers.
        SampleError: if a sample could not be read and is not given up; what came before it is
            written.
    """
    if chunk.has_drawn:
        raise drawing(source.name)
    if chunk.failed and on_error == "skip":
        named = tuple((index, _named(source, index, why)) for index, why in chunk.failed)
        writer.append(replace(chunk, failed=named))
    elif chunk.ids:
        writer.append(replace(chunk, failed=()))
    if chunk.failed and on_error != "skip":
        raise failure(source, chunk)


def refuse_given_up(path: Path, skipped: Any, substituted: Any, on_error: OnError) -> None:
    """Refuses what an earlier building gave up, where this one would not.

    Args:
        path: of the store, whole or not.
        skipped: (sample, why) of those left out.
        substituted: (sample, the one that stands in for it).
        on_error: what happens to a sample that cannot be read.

    Raises:
        SampleError: if samples were given up in another way than this.
    """
    for given_up, way in ((skipped, "skip"), (substituted, "substitute")):
        if given_up and on_error != way:
            raise SampleError(
                f"{path} was made with on_error={way!r}: of {len(given_up)} samples that could not "
                f"be read, the first is {given_up[0][0]} ({given_up[0][1]}); remove it to build it "
                f"anew, or give on_error={way!r}"
            )


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


def drawing(name: str) -> ConfigError:
    """The error for samples that are drawn at random.

    Args:
        name: what messages call the dataset.
    """
    return ConfigError(
        f"{name} cannot be stored: a random generator moved while its samples were read. Leave the "
        "random part to the loader, as its `transform`"
    )


def failure(source: Source, chunk: Chunk) -> SampleError:
    """The error of a chunk whose first failure is not to be passed over."""
    error = SampleError(_named(source, *chunk.failed[0]))
    error.add_note(chunk.trace)
    return error


def _named(source: Source, index: int, why: str) -> str:
    path = source.path_of(index)
    return f"{why} ({path})" if path else why
