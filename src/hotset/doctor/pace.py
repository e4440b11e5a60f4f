"""What a loop takes for a batch, and what it would take if something were different. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hotset.doctor.examination import Examination
from hotset.doctor.loop import LoopTimes

MAKING = ("read", "transform", "collate", "batch")
"""Kinds of stages that the workers do, or without workers the loop itself."""


@dataclass(frozen=True)
class Pace:
    """What things take for a batch, in milliseconds.

    Without workers a batch is made, and then trained on. With workers both go on at once, and
    batches come in their order: the slowest worker sets the pace of all, and no batch comes sooner
    than one can be handed over.

    Attributes:
        compute_ms: the step, without copying.
        copy_ms: copying in the loop.
        make_ms: making a batch in one process, alone.
        worker_ms: (workers,) what each worker takes for a batch while all work.
        hand_ms: handing a batch over from a worker.
        start_ms: starting an epoch.
        per_epoch: batches that this is spread over.
        slack: what a batch takes where data is the limit, by what its parts say it should.
    """

    compute_ms: float
    copy_ms: float
    make_ms: float
    worker_ms: tuple[float, ...]
    hand_ms: float
    start_ms: float
    per_epoch: int
    slack: float = 1.0

    @property
    def step_ms(self) -> float:
        """All of the loop that is not waiting."""
        return self.compute_ms + self.copy_ms

    @property
    def data_ms(self) -> float:
        """From one batch to the next, if the loop did nothing but take them."""
        if not self.worker_ms:
            return self.make_ms * self.slack
        return self.slack * max(max(self.worker_ms) / len(self.worker_ms), self.hand_ms)

    @property
    def steady_ms(self) -> float:
        """A batch with its step, in the middle of an epoch."""
        if not self.worker_ms:
            return self.data_ms + self.step_ms
        return max(self.data_ms, self.step_ms)

    @property
    def loop_ms(self) -> float:
        """Likewise, with its share of the epoch's start."""
        return self.steady_ms + self.start_ms / self.per_epoch

    def with_workers(self, count: int, start_ms: float) -> Pace:
        """The same with so many workers, each of which has a core to itself.

        Args:
            count: at least 1.
            start_ms: starting them, for an epoch.
        """
        return replace(self, worker_ms=(self.make_ms,) * count, start_ms=start_ms)

    def without(self, ms: float) -> Pace:
        """The same where so many milliseconds of what is made in one process were gone."""
        share = 1 - ms / self.make_ms if self.make_ms else 1.0
        share = max(0.0, share)
        return replace(
            self,
            make_ms=self.make_ms * share,
            worker_ms=tuple(each * share for each in self.worker_ms),
        )


def pace_of(loop: LoopTimes, examination: Examination) -> Pace:
    """The pace that was seen: its parts as examined, and as slow as the loop was."""
    make_ms = examination.ms(*MAKING)
    workers = tuple(each.ms for each in examination.workers)
    if examination.facts.workers and not workers:
        workers = (make_ms,) * examination.facts.workers
    copy_ms = min(examination.ms("copy"), loop.step_ms)
    parts = Pace(
        compute_ms=loop.step_ms - copy_ms,
        copy_ms=copy_ms,
        make_ms=make_ms,
        worker_ms=workers,
        hand_ms=examination.hand_ms,
        start_ms=loop.start_ms,
        per_epoch=loop.per_epoch,
    )
    return replace(parts, slack=_slack(loop, parts))


def _slack(loop: LoopTimes, parts: Pace) -> float:
    """How much slower data came than its parts say; 1 where the step hid how fast it could."""
    if not parts.worker_ms:
        return loop.wait_ms / parts.data_ms if parts.data_ms and loop.wait_ms else 1.0
    seen = loop.wait_ms + loop.step_ms
    is_limit = loop.wait_ms > 0.05 * seen or parts.data_ms > seen
    return seen / parts.data_ms if is_limit and parts.data_ms else 1.0
