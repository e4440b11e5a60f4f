"""Reads many samples in order: in the main process, or by workers where that is quicker."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from hotset.chain.probe import generator_states
from hotset.errors import SchemaError
from hotset.sample.collate import as_it_is
from hotset.sample.tree import Spec, flatten
from hotset.sources.source import Reader, UnkeepableError, read
from hotset.store.chunk import Chunk
from hotset.store.slots import AHEAD, Slots

Progress = Callable[[int, int], None]
"""Called with the samples read so far and their total."""
Task = Callable[..., Any]
"""Reads the samples with some ids, and gives what is wanted of them; picklable for workers."""

WORKERS_PAY_SECONDS = 2.0
"""Reading that takes less than this in the main process is done there."""
MEASURED_SAMPLES = 8
TASK_SECONDS = 1.0
"""About the longest that one task takes: what it read is lost if it is interrupted."""


def sweep(
    task: Task, ids: Sequence[int], *, per_task: int, workers: int, slot_bytes: int = 0
) -> Generator[Any, None, None]:
    """What a task gives for all ids, a few at a time, in order; to be closed, which ends workers.

    Args:
        task: reads samples.
        ids: of the samples.
        per_task: most samples at a time; fewer where reading is slow.
        workers: processes that may read, where reading is slow.
        slot_bytes: about what a task gives, where it gives a `Chunk` and takes the memory that the
            chunk is to be put into; each is to be used before the next is asked for.
    """
    start = 0
    if workers > 0 or per_task > MEASURED_SAMPLES:
        began = time.perf_counter()
        start = min(MEASURED_SAMPLES, len(ids))
        for position in range(start):
            yield task(ids[position : position + 1])
        seconds = (time.perf_counter() - began) / max(1, start)
        per_task = max(1, min(per_task, int(TASK_SECONDS / max(seconds, 1e-9))))
        if workers > 0 and seconds * (len(ids) - start) > WORKERS_PAY_SECONDS:
            slots = Slots(workers if slot_bytes else 0, AHEAD, slot_bytes)
            yield from _in_workers(task, ids[start:], per_task, workers, slots)
            return
    for position in range(start, len(ids), per_task):
        yield task(ids[position : position + per_task])


def _in_workers(
    task: Task, ids: Sequence[int], per_task: int, workers: int, slots: Slots
) -> Generator[Any, None, None]:
    loader: DataLoader[Any] = DataLoader(
        _Parts(task, ids, per_task, slots),
        batch_size=None,
        num_workers=workers,
        prefetch_factor=AHEAD,
        collate_fn=as_it_is,
        generator=torch.Generator(),  # its seed is drawn from here, not from the user's
    )
    iterator = iter(loader)
    try:
        for part, result in enumerate(iterator):
            yield slots.filled(part, result) if isinstance(result, Chunk) else result
    finally:
        # At once: left to the garbage collector, each worker is waited for for five seconds.
        shutdown = getattr(iterator, "_shutdown_workers", None)
        if shutdown is not None:
            shutdown()


class _Parts(Dataset[Any]):
    def __init__(self, task: Task, ids: Sequence[int], per_task: int, slots: Slots) -> None:
        self._task, self._ids, self._per_task, self._slots = task, ids, per_task, slots

    def __len__(self) -> int:
        return -(-len(self._ids) // self._per_task)

    def __getitem__(self, part: int) -> Any:
        first = part * self._per_task
        ids, room = self._ids[first : first + self._per_task], self._slots.room(part)
        return self._task(ids) if room is None else self._task(ids, room)


def leaves_of(reader: Reader, index: int, name: str, spec: Spec) -> list[Any]:
    """The leaves of a sample that has the structure of the others.

    Raises:
        SampleError: if it cannot be read.
        SchemaError: if it has another structure.
    """
    leaves, found = flatten(read(reader, index, name), spec)
    if found != spec:
        raise SchemaError(
            f"{name}: the sample at index {index} has the leaves {found.paths()}, "
            f"others have {spec.paths()}; samples must have one structure"
        )
    return leaves


def refuse_draws(before: Any) -> None:
    """Refuses to keep what was read if a generator moved meanwhile.

    Args:
        before: the generators' states before.

    Raises:
        UnkeepableError: if one is not as it was.
    """
    if generator_states() != before:
        raise UnkeepableError("a random generator moved while its samples were read")
