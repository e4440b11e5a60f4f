"""Times of a loop, batch by batch. Needs nothing else of hotset: it works on anybody's loader."""

from __future__ import annotations

import math
import time
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Clock = Callable[[], float]
"""Gives seconds."""
LOOKED_AT = 32
"""Parts of a batch that its size is looked for in."""
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


class Spans(Protocol):
    """Marks in the work of a device, read only when all is over, so that nobody waits for it."""

    def mark(self) -> None:
        """Marks the point that the device's work has come to."""

    def seconds(self) -> list[float]:
        """The device's seconds from each mark to the next; waits until the device is there."""


@dataclass(frozen=True, eq=False)
class Timeline:
    """Where the time of a loop went; one entry for each batch, but for the last two.

    Attributes:
        epoch: (batches,) int64, from 0 on.
        begin_s: (batches,) float64, when the batch was asked for; of the first one of an epoch when
            its iterator was.
        wait_s: (batches,) float64, until it was there.
        step_s: (batches,) float64, from then until the next was asked for, without what other
            loaders were waited for meanwhile; NaN where the loop was left.
        cpu_s: (batches,) float64, seconds of the processor in that time, all threads together,
            likewise.
        samples: (batches,) int64, in the batch; 0 where that cannot be told.
        idle_s: (batches,) float64, how long the device stood still before the batch; NaN where
            that is not known.
        end_s: (epochs,) float64, until the iterator said that there are no more; NaN where it
            was not asked.
    """

    epoch: Ints
    begin_s: Floats
    wait_s: Floats
    step_s: Floats
    cpu_s: Floats
    samples: Ints
    idle_s: Floats
    end_s: Floats

    def __len__(self) -> int:
        return len(self.wait_s)


class Waited:
    """What any loader of a process was waited for, so that no other's step has it.

    Attributes:
        seconds: of the clock, those in which one loader waited for another counted once.
        cpu_s: of the processor, likewise.
    """

    def __init__(self) -> None:
        self.seconds = self.cpu_s = 0.0


class Recording:
    """Takes in when batches are asked for and come.

    Args:
        clock: gives seconds.
        cpu_clock: gives seconds of the processor, all threads of the process together.
        waited: shared with the recordings of other loaders in the same loop.
        spans: marks in the work of the device; None for none.
    """

    def __init__(
        self,
        *,
        clock: Clock = time.perf_counter,
        cpu_clock: Clock = time.process_time,
        waited: Waited | None = None,
        spans: Spans | None = None,
    ) -> None:
        self._clock, self._cpu_clock = clock, cpu_clock
        self._waited = Waited() if waited is None else waited
        self._spans = spans
        self._epochs = 0
        self._epoch, self._samples = array("q"), array("q")
        self._begin, self._wait = array("d"), array("d")
        self._step, self._cpu = array("d"), array("d")
        self._end = array("d")
        self._marked = array("q")
        self._marks = 0
        self._asked = self._came = math.nan
        self._is_new = self._is_next = False
        self._asked_cpu = self._asked_waited = self._asked_waited_cpu = 0.0
        self._came_cpu = self._came_waited = self._came_waited_cpu = 0.0

    def __len__(self) -> int:
        """Batches so far."""
        return len(self._wait)

    @property
    def epochs(self) -> int:
        """That have begun."""
        return self._epochs

    @property
    def waited_s(self) -> float:
        """Seconds that this loader was waited for so far."""
        return sum(self._wait)

    def begin_epoch(self) -> None:
        """An iterator is asked for. What went on since the last batch belongs to no step."""
        self._left()
        self._epochs += 1
        self._end.append(math.nan)
        self._ask(self._clock(), self._cpu_clock())
        self._is_new = True

    def ask(self) -> None:
        """The next batch is asked for; after a failure, once more."""
        now = self._clock()
        if self._came == self._came:  # not NaN: the step of a batch ends here
            cpu = self._cpu_clock()
            self._finish_step(now, cpu)
            self._ask(now, cpu)
            self._is_next = True
        elif not self._is_new:
            self._ask(now, self._cpu_clock())
        self._is_new = False

    def _ask(self, now: float, cpu: float) -> None:
        self._asked, self._asked_cpu = now, cpu
        self._asked_waited, self._asked_waited_cpu = self._waited.seconds, self._waited.cpu_s
        self._is_next = False

    def come(self, batch: Any) -> None:
        """The batch is there."""
        now = self._clock()
        wait = now - self._asked
        self._epoch.append(self._epochs - 1)
        self._begin.append(self._asked)
        self._wait.append(wait)
        self._samples.append(samples_of(batch))
        if self._spans is not None:
            # Whatever the device did between two batches that were not asked for in one go, it
            # need not have stood still.
            self._marked.append(self._marks if self._is_next else 0)
            self._spans.mark()
            self._marks += 1
        self._came_cpu = self._cpu_clock()
        self._add_waited(wait, self._came_cpu)
        self._came_waited, self._came_waited_cpu = self._waited.seconds, self._waited.cpu_s
        self._asked = math.nan
        self._came = self._clock()

    def excuse(self) -> None:
        """What went on since the batch came was not the loop's doing: its step begins now."""
        if self._came == self._came:
            self._came_waited, self._came_waited_cpu = self._waited.seconds, self._waited.cpu_s
            self._came_cpu, self._came = self._cpu_clock(), self._clock()

    def end_epoch(self) -> None:
        """There are no more batches."""
        if self._asked == self._asked:
            wait = self._clock() - self._asked
            self._end[-1] = wait
            self._add_waited(wait, self._cpu_clock())
        self._asked = math.nan
        self._is_new = False

    def _add_waited(self, wait: float, cpu: float) -> None:
        """Adds a wait, but for those of other loaders in it: one may read from another."""
        waited = self._waited
        waited.seconds += max(0.0, wait - (waited.seconds - self._asked_waited))
        inner_cpu = waited.cpu_s - self._asked_waited_cpu
        waited.cpu_s += max(0.0, cpu - self._asked_cpu - inner_cpu)

    def _finish_step(self, now: float, cpu: float) -> None:
        others = self._waited.seconds - self._came_waited
        others_cpu = self._waited.cpu_s - self._came_waited_cpu
        self._step.append(max(0.0, now - self._came - others))
        self._cpu.append(max(0.0, cpu - self._came_cpu - others_cpu))
        self._mark()
        self._came = math.nan

    def _left(self) -> None:
        """The loop was left, or broke off: how long its last step took is not known."""
        if self._came == self._came:
            self._step.append(math.nan)
            self._cpu.append(math.nan)
            self._mark()  # every batch has two marks
        self._came = self._asked = math.nan
        self._is_new = self._is_next = False

    def _mark(self) -> None:
        if self._spans is not None:
            self._spans.mark()
            self._marks += 1

    def timeline(self) -> Timeline:
        """All of it, once the loop is over; a step that still goes on has no time."""
        self._left()
        return Timeline(
            epoch=np.array(self._epoch, np.int64),
            begin_s=np.array(self._begin),
            wait_s=np.array(self._wait),
            step_s=np.array(self._step),
            cpu_s=np.array(self._cpu),
            samples=np.array(self._samples, np.int64),
            idle_s=self._idle(),
            end_s=np.array(self._end),
        )

    def _idle(self) -> Floats:
        """From the mark behind a step to the one before the next."""
        idle = np.full(len(self._wait), np.nan)
        if self._spans is not None:
            spans = self._spans.seconds()
            for batch, mark in enumerate(self._marked):
                if mark:
                    idle[batch] = spans[mark - 1]
        return idle


def samples_of(batch: Any) -> int:
    """How many samples a batch holds, by its first tensor or array with an axis; 0 without one."""
    waiting = [batch]
    for _ in range(LOOKED_AT):
        if not waiting:
            break
        value = waiting.pop()
        shape = getattr(value, "shape", None)
        if isinstance(shape, tuple):
            if shape and shape[0] is not None:
                return int(shape[0])
        elif isinstance(value, Mapping):
            waiting.extend(reversed(list(islice(value.values(), LOOKED_AT))))
        elif isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
            waiting.extend(reversed(list(islice(value, LOOKED_AT))))
    return 0
