"""What is known of a loader outside of its loop."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from hotset.doctor.findings import SampleTimes, Stage, Trap, WorkerTime
from hotset.placement.plan import Plan

LoaderKind = Literal["DataLoader", "hotset.Loader", "iterable"]


@dataclass(frozen=True)
class Facts:
    """What a loader says of itself.

    Attributes:
        kind: what it is.
        name: its class.
        dataset: the name of its dataset's class; empty where there is none to be seen.
        samples: in an epoch; None where nobody knows.
        batches: in an epoch; None where nobody knows.
        batch_size: None where nobody knows.
        workers: processes that read.
        prefetch: batches that each of them is ahead by.
        is_persistent: whether they stay from epoch to epoch.
        is_pinned: whether batches are copied to pinned memory.
        start_method: of the workers: "fork", "spawn" or "forkserver"; empty without workers.
        has_collate: whether it has a collate_fn of its own.
        is_stream: whether its dataset is an `IterableDataset`.
        is_in_memory: whether its samples lie in memory as tensors or arrays, with no steps behind.
    """

    kind: LoaderKind
    name: str
    dataset: str = ""
    samples: int | None = None
    batches: int | None = None
    batch_size: int | None = None
    workers: int = 0
    prefetch: int = 0
    is_persistent: bool = False
    is_pinned: bool = False
    start_method: str = ""
    has_collate: bool = False
    is_stream: bool = False
    is_in_memory: bool = False


@dataclass(frozen=True)
class Examination:
    """What was found out on a few samples, outside of the loop.

    Attributes:
        facts: what the loader says of itself.
        cores: of the processor that may be used.
        stages: what is done for a batch, in order, without the step; empty where nothing could be
            told apart.
        first_read_ms: reading and steps of a batch the first time, in one process; later times are
            those of `stages`. None where that was not seen.
        cpu_cores: cores that one process keeps busy while it makes samples.
        batch_bytes: of a finished batch.
        samples: times of single samples; None where there are none to be had.
        workers: what each worker takes while all work; empty without workers.
        limited: likewise, where each was held to one thread; empty where nothing spoke for that.
        start_ms: starting the workers, once in an epoch unless they stay; without workers, what
            starting two would take.
        hand_ms: handing a batch over from a worker, at least; likewise without workers.
        float_steps: names of the steps that work on floats and could be tables of bytes.
        traps: known ones that the loader is in.
        plan: what hotset would do; None where it can do nothing.
        plan_problem: why not, in words; empty where it can.
        seconds: that it took.
        notes: what could not be examined, and why.
    """

    facts: Facts
    cores: int
    stages: tuple[Stage, ...] = ()
    first_read_ms: float | None = None
    cpu_cores: float = 1.0
    batch_bytes: int = 0
    samples: SampleTimes | None = None
    workers: tuple[WorkerTime, ...] = ()
    limited: tuple[WorkerTime, ...] = ()
    start_ms: float = 0.0
    hand_ms: float = 0.0
    float_steps: tuple[str, ...] = ()
    traps: tuple[Trap, ...] = ()
    plan: Plan | None = None
    plan_problem: str = ""
    seconds: float = 0.0
    notes: tuple[str, ...] = ()

    def ms(self, *kinds: str) -> float:
        """Milliseconds for a batch of the stages of some kinds, in one process."""
        return sum(stage.ms for stage in self.stages if stage.kind in kinds)
