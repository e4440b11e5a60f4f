"""What the doctor finds: plain values, each with the words that go with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Bound = Literal["data-bound", "copy-bound", "compute-bound", "balanced", "inconclusive"]
"""What a loop is limited by."""
Cause = Literal[
    "read",
    "transform",
    "float work",
    "collate",
    "hand-over",
    "in memory",
    "worker start",
    "slow worker",
    "threads",
    "cores",
    "storage",
    "copy",
    "step",
    "balance",
    "unknown",
]
"""What of it, in a word.

read: opening and decoding; transform: one step of the chain; float work: steps on floats that could
be tables of bytes; hand-over: from the worker processes; in memory: samples that lie in memory
already, and are picked one by one; threads: too many in each worker; cores: workers take them from
the step; storage: reads that the system has not in memory yet."""
StageKind = Literal["read", "transform", "collate", "hand-over", "pin", "copy", "step", "batch"]
"""What kind of work a stage is; "batch" is all of a loader that cannot be told apart."""


@dataclass(frozen=True)
class Verdict:
    """What a loop is limited by.

    Attributes:
        bound: in a word.
        cause: what of it.
        subject: the step, worker or dataset that it is; empty where there is none.
        confidence: 0 to 1; how far other draws of the same measurements agree.
        sentence: in words.
        is_left: whether it is best left as it is.
    """

    bound: Bound
    cause: Cause
    subject: str
    confidence: float
    sentence: str
    is_left: bool


@dataclass(frozen=True)
class Range:
    """A figure with its error.

    Attributes:
        value: the figure.
        low: nine of ten such measurements lie between this …
        high: … and this.
    """

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Stage:
    """A part of what is done for a batch.

    Attributes:
        name: the dataset's, the step's, or what it is.
        kind: what it is.
        ms: milliseconds for a batch, in one process.
        noise_ms: by how much that differs from one measurement to the next.
        lanes: how many run it at once: the workers for what they do, else 1.
        samples_per_s: the ceiling: what the loop would reach if nothing else took time.
        is_lowest: whether no other stage's is lower.
    """

    name: str
    kind: StageKind
    ms: float
    noise_ms: float = 0.0
    lanes: int = 1
    samples_per_s: float = 0.0
    is_lowest: bool = False


@dataclass(frozen=True)
class WorkerTime:
    """What a worker process takes, while its siblings work too.

    Attributes:
        number: from 0 on.
        batches: of it that were timed.
        ms: for a batch, in the mean.
        cores: that it keeps busy.
    """

    number: int
    batches: int
    ms: float
    cores: float


@dataclass(frozen=True)
class SlowSample:
    """A sample that takes long.

    Attributes:
        index: in the dataset.
        ms: to read it, all steps included.
        path: of its file, where that is known; else empty.
    """

    index: int
    ms: float
    path: str = ""


@dataclass(frozen=True)
class SampleTimes:
    """What single samples take, in one process.

    Attributes:
        count: samples that were timed.
        p50_ms: half of them take no longer.
        p99_ms: 99 of 100 take no longer.
        worst: the longest, longest first.
    """

    count: int
    p50_ms: float
    p99_ms: float
    worst: tuple[SlowSample, ...]


@dataclass(frozen=True)
class Trap:
    """A known trap that the loader is in.

    Attributes:
        name: short.
        what: what was seen.
        why: why that is a trap.
        fix: what to do.
        code: to write for it; empty where nothing is to be written.
        is_wrong: whether results are wrong, and not only slow.
    """

    name: str
    what: str
    why: str
    fix: str
    code: str = ""
    is_wrong: bool = False


@dataclass(frozen=True)
class Advice:
    """What would help.

    Attributes:
        action: in a word, as "accelerate", "workers", "persistent workers", "leave it".
        title: what to do.
        gain: how many times faster the loop would be, epoch starts included.
        is_most: whether that is the most it could bring: what it takes away is not known to go.
        why: what the figure follows from.
        code: to write; empty where nothing is to be written.
    """

    action: str
    title: str
    gain: Range
    is_most: bool
    why: str
    code: str = ""


@dataclass(frozen=True)
class Sawtooth:
    """Whether batches come in bursts, one from each worker.

    Attributes:
        period: batches from burst to burst: the workers.
        strength: 0 to 1, the share of what waits differ that goes by the place in the period.
        wait_ms: (period,) the mean wait at each place.
        is_seen: whether it is there.
    """

    period: int
    strength: float
    wait_ms: tuple[float, ...]
    is_seen: bool


@dataclass(frozen=True)
class BatchCheck:
    """Whether a larger batch would help.

    Attributes:
        helps: None where that cannot be told.
        gain: samples per second with twice the batch, to those now; None likewise.
        reason: in words.
    """

    helps: bool | None
    gain: float | None
    reason: str


@dataclass(frozen=True)
class Overhead:
    """What the doctor itself took.

    Attributes:
        batch_us: microseconds of a batch, for its two times.
        share: of the loop.
        examined_s: seconds outside of the loop.
    """

    batch_us: float
    share: float
    examined_s: float
