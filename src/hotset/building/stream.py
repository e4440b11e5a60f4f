"""Samples that come one after the other, without an index: read in order, in the main process."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

from torch.utils.data import Dataset, IterableDataset

from hotset.building.chunks import (
    SUBSTITUTES,
    ChunkReader,
    OnError,
    check_room,
    drawing,
    refuse_given_up,
    write_chunk,
)
from hotset.building.recipe import Recipe
from hotset.chain.probe import copied, generator_states, preserved_generators
from hotset.chain.step import StepCall
from hotset.errors import ConfigError, SampleError
from hotset.progress import Told
from hotset.sample.tree import flatten, unflatten
from hotset.sources.analyse import PROBES
from hotset.sources.opened import note_sample
from hotset.sources.sweep import TASK_SECONDS
from hotset.store.chunk import samples_per_chunk
from hotset.store.writer import Writer


def is_stream(data: Any) -> bool:
    """Whether samples come one after the other: an `IterableDataset`, a generator or the like."""
    if isinstance(data, IterableDataset):
        return True
    has_index = hasattr(data, "__getitem__") and hasattr(data, "__len__")
    return not has_index and isinstance(data, Iterable) and not isinstance(data, type)


class Stream:
    """The samples of an iterable, in the order in which they come.

    Args:
        data: the iterable; it is iterated over once.

    Attributes:
        name: what messages call it.
        length: how many samples it says that it has; None where it does not.
        passed: samples that were passed by.
        is_over: whether its end was reached.
        error: why no further ones come; None where it has just ended, or has not.

    Raises:
        SampleError: if it cannot be iterated over.
    """

    def __init__(self, data: Iterable[Any]) -> None:
        self.name = type(data).__name__
        self.length = _length(data)
        self.passed = 0
        self.is_over = False
        self.error: SampleError | None = None
        self._held: deque[Any] = deque()
        self._now: Any = None
        self._taken = 0
        try:
            self._rest = iter(data)
        except Exception as error:  # whatever a user's iterable raises: told with how far it was
            raise self._failure(error) from error

    def head(self, most: int) -> list[Any]:
        """Copies of the first samples, or of those that are left of them."""
        self._hold(most)
        return [copied(sample) for sample in list(self._held)[:most]]

    def due(self, most: int, seconds: float = math.inf) -> Iterator[int]:
        """The positions of the next samples, each of which can then be read; ends with them.

        Args:
            most: samples.
            seconds: after these there are no more, so that not much is lost where it is slow.
        """
        stop = time.monotonic() + seconds
        for _ in range(most):
            if time.monotonic() > stop:
                return
            try:
                # What is due is not copied: it is used up before the next one is asked for.
                self._now = self._held.popleft() if self._held else self._next()
            except StopIteration:
                self.is_over = True
                return
            self._taken += 1
            yield self._taken - 1
            self.passed, self._now = self._taken, None

    def skip(self, positions: int) -> None:
        """Passes samples by.

        Raises:
            ConfigError: if there are fewer.
            SampleError: if the iterable fails.
        """
        passed = sum(1 for _ in self.due(positions))
        if self.error is not None:
            raise self.error
        if passed < positions:
            raise ConfigError(
                f"{self.name} ended after {passed:,} samples, but {positions:,} were written from "
                "it before; it must give the same samples every time"
            )

    def read(self, position: int) -> Any:
        """The sample that is due, or a copy of one behind it.

        Raises:
            LookupError: if there are not so many.
        """
        ahead = position - self._taken
        if ahead < 0:
            return self._now
        self._hold(ahead + 1)
        if ahead >= len(self._held):
            raise LookupError("no further sample comes")
        return copied(self._held[ahead])

    def _hold(self, samples: int) -> None:
        """Takes samples in advance; copies, since an iterable may use its memory again."""
        try:
            while len(self._held) < samples:
                note_sample(self._taken + len(self._held))
                self._held.append(copied(self._next()))
        except StopIteration:
            return

    def _next(self) -> Any:
        if self.error is not None:
            raise StopIteration
        try:
            return next(self._rest)
        except StopIteration:
            raise
        except Exception as error:  # likewise; what came before it is written first
            self.error = self._failure(error)
            self.error.__cause__ = error
            raise StopIteration from error

    def _failure(self, error: Exception) -> SampleError:
        after = self._taken + len(self._held)
        return SampleError(
            f"{self.name} failed after {after:,} samples: {type(error).__name__}: {error}; "
            "`on_error` is for failures of the transform alone, since no sample comes from an "
            "iterable that failed"
        )


class _Head(Dataset[Any]):
    """The first samples of a stream, as a dataset; it gives copies."""

    def __init__(self, samples: list[Any]) -> None:
        self._samples = samples

    def __len__(self) -> int:
        return len(self._samples)

    def __getitem__(self, index: int) -> Any:
        return copied(self._samples[index])


def head_of(stream: Stream, transform: StepCall, *, is_tolerant: bool) -> Dataset[Any]:
    """The first samples of a stream, to be analysed.

    Args:
        stream: not passed by yet.
        transform: applied to the first leaf later.
        is_tolerant: whether samples that the transform fails on are left out.

    Raises:
        ConfigError: if the stream is empty, or draws random numbers.
        SampleError: if it fails before the first sample.
    """
    with preserved_generators():
        before = generator_states()
        samples = stream.head(PROBES)
        if is_tolerant and not all(_passes(transform, sample) for sample in samples):
            more = [sample for sample in stream.head(SUBSTITUTES) if _passes(transform, sample)]
            samples = more[:PROBES] or samples
        if generator_states() != before:
            raise drawing(stream.name)
    if not samples:
        if stream.error is not None:
            raise stream.error
        raise ConfigError(f"{stream.name} is empty: there is nothing to store")
    return _Head(samples)


def _passes(transform: StepCall, sample: Any) -> bool:
    with preserved_generators():
        try:
            transform(flatten(copied(sample))[0][0])
        except Exception:  # whatever a step raises, the sample is left out
            return False
    return True


class StreamReader:
    """Reads a stream's samples as they are kept.

    Args:
        stream: gives them.
        transform: acts on the first leaf.

    Attributes:
        stream: gives them.
    """

    def __init__(self, stream: Stream, transform: StepCall) -> None:
        self.stream, self._transform = stream, transform

    def __call__(self, position: int) -> Any:
        """The sample at a position, which is due or lies ahead."""
        leaves, spec = flatten(self.stream.read(position))
        leaves[0] = self._transform(leaves[0])
        return unflatten(spec, iter(leaves))


def write_stream(
    recipe: Recipe, reader: StreamReader, writer: Writer, on_error: OnError, told: Told | None
) -> None:
    """Writes the samples of a stream, without those that are written already.

    Args:
        recipe: of the store; its source is the stream's head.
        reader: of the stream, at its beginning.
        writer: writes them.
        on_error: what happens to a sample that the transform fails on.
        told: how far it is.

    Raises:
        SampleError: if the transform fails on one, or the stream itself fails.
        ConfigError: if it draws random numbers, or has fewer samples than were written.
        StorageError: if it says how many samples it has, and there is no room for them.
    """
    stream = reader.stream
    task = ChunkReader(
        reader, stream.name, recipe.analysis.spec, on_error, None, recipe.tabled_leaf
    )
    per_task = samples_per_chunk(sum(recipe.bytes_per_sample))
    written, total = len(writer.ids) + len(writer.failed), stream.length
    if total is not None:
        check_room(writer, sum(recipe.bytes_per_sample) * max(0, total - written))
    refuse_given_up(writer.folder, writer.failed, writer.replaced, on_error)
    stream.skip(written)
    if told is not None:
        told(written, total)
    while not stream.is_over:
        chunk = task(stream.due(per_task, TASK_SECONDS))
        write_chunk(writer, chunk, recipe.source, on_error)
        if stream.error is not None:
            raise stream.error
        if told is not None and (chunk.ids or chunk.failed):
            told(stream.passed, total)


def _length(data: Any) -> int | None:
    try:
        return len(data)
    except Exception:  # whatever a user's class does that knows no length
        return None
