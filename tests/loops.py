"""Training loops with a planted cause, on a virtual clock: what `DataLoader` does, event by event.

The main process starts the workers one after the other, then gives out `prefetch` batches for each:
batch i goes to worker i mod workers. Each `next` takes finished batches off the one queue until the
next in order is there, and gives out one more.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections import deque
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hotset.doctor.judging.loop import LoopTimes, loop_times
from hotset.doctor.measure import Recording, Timeline
from tests.processes import Doing, Get, Machine, Process, Work

AHEAD = 2
"""Steps that a device has room for in its queue; more of them have to wait."""


@dataclass(frozen=True)
class Planted:
    """A loop; times are milliseconds for a batch, of one process on free cores.

    Attributes:
        read_ms: opening and decoding, when the system has the files in memory.
        transforms: names and times.
        collate_ms: putting it together.
        hand_ms: taking it from a worker, in the main process.
        ship_ms: sending it off, in a worker.
        copy_ms: copying it to the device, which the main process waits for.
        step_ms: the rest of the step.
        fixed_ms: what of it does not depend on the size of a batch.
        step_cores: that this keeps busy.
        launch_ms: None where the main process waits for each step; else what it takes to queue one.
        workers: 0 reads in the main process.
        prefetch: batches that each of them is ahead by.
        cores: of the machine.
        threads: of a library in each process, for the transforms.
        penalty: see `Machine`.
        start_ms: starting a worker, in the main process.
        boot_ms: until a worker is there, in itself.
        end_ms: waiting for a worker's end.
        is_persistent: whether workers stay.
        slowness: of the first workers; the others have none.
        cold_ms: by how much longer reading takes while the system has not the files in memory.
        cold_epochs: for how many epochs.
        batches: in an epoch.
        epochs: that are seen.
        batch_size: samples in a batch.
        jitter: by how much what making a batch takes differs, as a share of it.
        slow_chance: of a batch with a sample that takes long.
        slow_ms: that it takes.
        seed: of the two.
        once: what a plan would run once: names of transforms and "read"; None where there is none.
        rest_ms: what would be left in the main process for a batch.
        rest_copy_ms: what would be left to be copied, beside the step.
        beside_ms: what is copied ahead, beside the step.
        float_steps: transforms that could be tables of bytes.
    """

    read_ms: float = 0.0
    transforms: tuple[tuple[str, float], ...] = ()
    collate_ms: float = 0.0
    hand_ms: float = 0.0
    ship_ms: float = 0.0
    copy_ms: float = 0.0
    step_ms: float = 10.0
    fixed_ms: float = 0.0
    step_cores: float = 1.0
    launch_ms: float | None = None
    workers: int = 0
    prefetch: int = 2
    cores: int = 8
    threads: int = 1
    penalty: float = 0.0
    start_ms: float = 0.0
    boot_ms: float = 0.0
    end_ms: float = 0.0
    is_persistent: bool = False
    slowness: tuple[float, ...] = ()
    cold_ms: float = 0.0
    cold_epochs: int = 1
    batches: int = 100
    epochs: int = 3
    batch_size: int = 32
    jitter: float = 0.0
    slow_chance: float = 0.0
    slow_ms: float = 0.0
    seed: int = 0
    once: tuple[str, ...] | None = None
    rest_ms: float = 0.0
    rest_copy_ms: float = 0.0
    beside_ms: float = 0.0
    float_steps: tuple[str, ...] = ()

    @property
    def make_ms(self) -> float:
        """A batch in one process."""
        return self.read_ms + self.steps_ms + self.collate_ms

    @property
    def steps_ms(self) -> float:
        """All transforms."""
        return sum(ms for _, ms in self.transforms)

    def with_(self, **changes: Any) -> Planted:
        """The loop with some of it changed."""
        return replace(self, **changes)

    def accelerated(self) -> Planted:
        """The loop once all is there that a plan keeps."""
        return self.with_(
            read_ms=self.rest_ms,
            transforms=(),
            collate_ms=0.0,
            hand_ms=0.0,
            ship_ms=0.0,
            copy_ms=0.0,
            beside_ms=self.rest_copy_ms,
            workers=0,
            threads=1,
            cold_ms=0.0,
            slow_chance=0.0,
        )

    def sized(self, times: float) -> Planted:
        """The loop with batches so many times larger, and fewer of them."""
        return self.with_(
            read_ms=times * self.read_ms,
            transforms=tuple((name, times * ms) for name, ms in self.transforms),
            collate_ms=times * self.collate_ms,
            ship_ms=times * self.ship_ms,
            copy_ms=times * self.copy_ms,
            cold_ms=times * self.cold_ms,
            step_ms=self.fixed_ms + times * (self.step_ms - self.fixed_ms),
            batches=round(self.batches / times),
            batch_size=round(self.batch_size * times),
        )

    def works(self, epoch: int, batch: int, worker: int) -> Iterable[Work]:
        """What makes a batch."""
        draws = np.random.default_rng([self.seed, epoch, batch])
        spread = math.sqrt(math.log(1 + self.jitter**2))
        factor = math.exp(spread * draws.standard_normal() - spread**2 / 2)
        factor *= self.slowness[worker] if worker < min(self.workers, len(self.slowness)) else 1.0
        slow_ms = self.slow_ms if draws.random() < self.slow_chance else 0.0
        if epoch < self.cold_epochs:
            yield Work(self.cold_ms, 0.0)
        yield Work(factor * self.read_ms + slow_ms)
        yield Work(factor * self.steps_ms, float(self.threads), self.threads > 1)
        yield Work(factor * self.collate_ms + self.ship_ms * bool(self.workers))


class _Loop:
    """A loop as it runs.

    Args:
        planted: what it is.
    """

    def __init__(self, planted: Planted) -> None:
        self._planted = planted
        self._machine = Machine(planted.cores, planted.penalty)
        self._main: Process | None = None
        self._device_ms = 0.0
        self._queues: list[deque[Any]] = []
        self._made: deque[Any] = deque()
        spans = None if planted.launch_ms is None else _Marks(self._reached_ms)
        self.recording = Recording(
            clock=lambda: self._machine.now_ms / 1000,
            cpu_clock=lambda: self._main.cpu_ms / 1000,
            spans=spans,
        )

    def run(self) -> None:
        """All epochs."""
        self._main = self._machine.start(self._epochs())
        self._machine.run(lambda: self._main.is_over)

    def _reached_ms(self) -> float:
        """When the device has done what is queued now."""
        return max(self._device_ms, self._machine.now_ms)

    def _epochs(self) -> Doing:
        planted, recording = self._planted, self.recording
        size = np.empty((planted.batch_size, 1))
        for epoch in range(planted.epochs):
            recording.begin_epoch()
            batches = self._read(epoch) if planted.workers else self._read_here(epoch)
            recording.ask()
            while (yield from _next(batches)):
                recording.come(size)
                yield from self._step()
                recording.ask()
            recording.end_epoch()

    def _step(self) -> Doing:
        """Copies and trains."""
        planted = self._planted
        if planted.launch_ms is None:
            yield Work(planted.copy_ms)
            left = max(0.0, planted.beside_ms - planted.step_ms)
            yield Work(planted.step_ms, planted.step_cores)
            yield Work(left, 0.0)
            return
        if planted.copy_ms:  # pageable memory is copied behind all that is queued
            yield Work(self._reached_ms() - self._machine.now_ms, 0.0)
            yield Work(planted.copy_ms)
        room = self._reached_ms() - self._machine.now_ms - AHEAD * planted.step_ms
        yield Work(max(0.0, room), 0.0)
        yield Work(planted.launch_ms)
        self._device_ms = self._reached_ms() + planted.step_ms

    def _read_here(self, epoch: int) -> Doing:
        """Batches made in the main process; each None that comes out is one."""
        for batch in range(self._planted.batches):
            yield from self._planted.works(epoch, batch, 0)
            yield None

    def _read(self, epoch: int) -> Doing:
        """Likewise, from workers."""
        planted, workers = self._planted, self._planted.workers
        if not self._queues:
            for worker in range(workers):
                yield Work(planted.start_ms)
                self._queues.append(deque())
                self._machine.start(self._worker(worker, self._queues[-1]))
        sent = min(planted.batches, planted.prefetch * workers)
        for batch in range(sent):
            self._queues[batch % workers].append((epoch, batch))
        early: set[int] = set()
        for batch in range(planted.batches):
            while batch not in early:
                early.add((yield Get(self._made)))
                yield Work(planted.hand_ms)
            early.remove(batch)
            if sent < planted.batches:
                self._queues[sent % workers].append((epoch, sent))
                sent += 1
            yield None
        if not planted.is_persistent:
            for queue in self._queues:
                queue.append(None)
                yield Work(planted.end_ms, 0.0)
            self._queues = []

    def _worker(self, number: int, queue: deque[Any]) -> Doing:
        yield Work(self._planted.boot_ms)
        while (task := (yield Get(queue))) is not None:
            yield from self._planted.works(*task, number)
            self._made.append(task[1])


def _next(batches: Doing) -> Generator[Work | Get, Any, bool]:
    """Goes on to the next batch; whether there is one."""
    came = None
    while True:
        try:
            doing = batches.send(came)
        except StopIteration:
            return False
        if doing is None:
            return True
        came = yield doing


class _Marks:
    """Marks in the work of the loop's device."""

    def __init__(self, reached_ms: Callable[[], float]) -> None:
        self._reached_ms, self._marks = reached_ms, []

    def mark(self) -> None:
        self._marks.append(self._reached_ms())

    def seconds(self) -> list[float]:
        return [(b - a) / 1000 for a, b in itertools.pairwise(self._marks)]


def timeline_of(planted: Planted) -> Timeline:
    """The loop as the doctor sees it."""
    loop = _Loop(planted)
    loop.run()
    return loop.recording.timeline()


@functools.cache
def times_of(planted: Planted) -> LoopTimes:
    """Its figures."""
    timeline = timeline_of(planted)
    return loop_times(timeline, workers=planted.workers, per_epoch=planted.batches)
