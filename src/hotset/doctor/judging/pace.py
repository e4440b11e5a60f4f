"""What a loop takes for a batch, and what it would take if something were different. Pure."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, replace

from hotset.doctor.examination import Examination
from hotset.doctor.judging.loop import LoopTimes

MAKING = ("read", "transform", "collate", "batch")
"""Kinds of stages that the workers do, or without workers the loop itself."""
LITTLE = 0.05
"""A difference of such a share is none: times are no better."""
FULL = 0.9
"""Cores that are busy for so much of the time are full."""
SPREAD = 0.8
"""A step that could take so little of its time on all cores may be waiting for them."""


@dataclass(frozen=True)
class Pace:
    """What things take for a batch, in milliseconds.

    Without workers a batch is made, and then trained on. With workers both go on at once, and
    batches come in their order: the slowest worker sets the pace of all, no batch comes sooner than
    one can be handed over, and all of them share the cores.

    Attributes:
        compute_ms: the step, without copying.
        copy_ms: copying in the loop.
        make_ms: making a batch in one process, alone.
        worker_ms: (workers,) what each worker takes for a batch while all work; an epoch's first
            batch is that of the first.
        hand_ms: handing a batch over from a worker.
        begin_ms: starting an epoch, until its first batch is begun, and ending it.
        per_epoch: batches that this is spread over.
        alone_ms: the step where no worker runs beside it; as `compute_ms` where that is not known.
        take_ms: what of handing over the loop itself does.
        work_ms: processor time of the workers.
        step_work_ms: processor time of the step.
        cores: that they share.
        is_alone_known: whether the step was seen where no worker runs beside it.
        slack: what a batch takes where data is the limit, by what its parts say it should.
    """

    compute_ms: float
    copy_ms: float
    make_ms: float
    worker_ms: tuple[float, ...]
    hand_ms: float
    begin_ms: float
    per_epoch: int
    alone_ms: float
    take_ms: float = 0.0
    work_ms: float = 0.0
    step_work_ms: float = 0.0
    cores: int = 1
    is_alone_known: bool = False
    slack: float = 1.0

    @property
    def step_ms(self) -> float:
        """All of the loop that is not waiting."""
        return self.compute_ms + self.copy_ms

    @property
    def crowded_ms(self) -> float:
        """What the step takes longer for the workers that run beside it."""
        return self.compute_ms - self.alone_ms if self.worker_ms else 0.0

    @property
    def freed_ms(self) -> float:
        """The step at least, if all cores were its own: its processor time on all of them."""
        return min(self.alone_ms, self.step_work_ms / self.cores)

    @property
    def is_crowded(self) -> bool:
        """Whether workers may hold back the step by taking its cores, and nobody can tell.

        Both fill the cores, the step could run on more of them, and was not seen without workers.
        """
        is_full = self.shared_ms >= FULL * self.steady_ms
        may_be_faster = self.freed_ms <= SPREAD * self.alone_ms
        return bool(self.worker_ms) and not self.is_alone_known and is_full and may_be_faster

    @property
    def data_ms(self) -> float:
        """From one batch to the next, if the loop did nothing but take them."""
        if not self.worker_ms:
            return self.make_ms * self.slack
        each_ms = self.later * max(self.worker_ms) / len(self.worker_ms)
        return self.slack * max(each_ms, self.hand_ms)

    @property
    def later(self) -> float:
        """The share of an epoch's work that is done behind its first batch.

        By then each worker has made one; all of them make one in each turn.
        """
        count, workers = self.per_epoch, len(self.worker_ms)
        turns = -(-count // workers)
        return workers * (turns - 1) / (count - 1) if count > 1 else 0.0

    @property
    def shared_ms(self) -> float:
        """A batch at least, since the step and the workers use the same cores."""
        if not self.worker_ms:
            return 0.0
        # Not as slow as data was: what slows it, as storage does, need not keep a core busy.
        return (self.later * self.work_ms + self.step_work_ms) / self.cores

    @property
    def steady_ms(self) -> float:
        """A batch with its step, in the middle of an epoch."""
        if not self.worker_ms:
            return self.data_ms + self.step_ms
        return max(self.data_ms, self.take_ms + self.step_ms, self.shared_ms)

    @property
    def start_ms(self) -> float:
        """What its first batch is waited for beyond a steady wait: all of it is made then."""
        if not self.worker_ms:
            return self.begin_ms
        waited = self.steady_ms - self.step_ms
        made_ms = self.slack * self.worker_ms[0] + self.take_ms
        return max(0.0, self.begin_ms + made_ms - waited)

    @property
    def loop_ms(self) -> float:
        """Likewise, with its share of the epoch's start."""
        return self.steady_ms + self.start_ms / self.per_epoch

    def with_workers(self, count: int, begin_ms: float) -> Pace:
        """The same with more workers, each of which has a core to itself.

        Args:
            count: of them all.
            begin_ms: starting them, for an epoch.
        """
        take_ms = self.take_ms if self.worker_ms else self.hand_ms
        more = (self.make_ms,) * (count - len(self.worker_ms))
        workers = (*self.worker_ms, *more)
        return replace(self, worker_ms=workers, begin_ms=begin_ms, take_ms=take_ms)

    def without(self, ms: float) -> Pace:
        """The same where so many milliseconds of what is made in one process were gone."""
        share = 1 - ms / self.make_ms if self.make_ms else 1.0
        share = max(0.0, share)
        return replace(
            self,
            make_ms=self.make_ms * share,
            worker_ms=tuple(each * share for each in self.worker_ms),
        ).crowded_by(self.work_ms * share)

    def crowded_by(self, work_ms: float) -> Pace:
        """The same where workers keep the processor busy for so long; the step gives way to them.

        Args:
            work_ms: processor time for a batch; at most what it is.
        """
        share = work_ms / self.work_ms if self.work_ms else 1.0
        given = self.alone_ms + share * (self.compute_ms - self.alone_ms)
        return replace(self, work_ms=work_ms, compute_ms=given)


def pace_of(loop: LoopTimes, examination: Examination, *, step_ms: float | None = None) -> Pace:
    """The pace that was seen: its parts as examined, and as slow as the loop was.

    Args:
        loop: its times.
        examination: of its loader.
        step_ms: what the step was seen to take, without copying, where no worker runs beside it;
            None takes what the loop itself shows of that.
    """
    make_ms = examination.ms(*MAKING)
    workers = tuple(each.ms for each in examination.workers)
    works = [each.ms * each.cores for each in examination.workers]
    if examination.facts.workers and not workers:
        workers = (make_ms,) * examination.facts.workers
    copy_ms = min(examination.ms("copy"), loop.step_ms)
    seen_ms = loop.alone_step_ms if step_ms is None else step_ms + copy_ms
    alone_ms = _alone_ms(loop, seen_ms)
    parts = Pace(
        compute_ms=loop.step_ms - copy_ms,
        copy_ms=copy_ms,
        make_ms=make_ms,
        worker_ms=workers,
        hand_ms=examination.hand_ms,
        begin_ms=loop.start_ms,
        per_epoch=loop.per_epoch,
        alone_ms=max(0.0, alone_ms - copy_ms),
        is_alone_known=seen_ms is not None,
        take_ms=min(examination.hand_ms, loop.wait_ms) if workers else 0.0,
        work_ms=statistics.fmean(works) if works else make_ms * examination.cpu_cores,
        step_work_ms=loop.step_cores * loop.step_ms,
        cores=examination.cores,
    )
    slack = _slack(loop, parts)
    if not workers:
        return replace(parts, slack=slack)
    made_ms = slack * workers[0] + parts.take_ms
    first_ms = loop.start_ms + loop.wait_ms
    # Crowded workers make their first batch sooner than others, which hides how they start.
    started_ms = 0.0 if examination.facts.is_persistent else examination.start_ms
    begin_ms = max(0.0, first_ms - made_ms, min(first_ms, started_ms))
    return replace(parts, slack=slack, begin_ms=begin_ms)


def _alone_ms(loop: LoopTimes, seen_ms: float | None) -> float:
    """The step in the mean, where it usually takes so long; medians tell what is usual."""
    if seen_ms is None or loop.usual_step_ms <= 0:
        return loop.step_ms
    return loop.step_ms * min(1.0, seen_ms / loop.usual_step_ms)


def _slack(loop: LoopTimes, parts: Pace) -> float:
    """How much slower data came than its parts say; 1 where the step hid how fast it could."""
    if not parts.worker_ms:
        return loop.wait_ms / parts.data_ms if parts.data_ms and loop.wait_ms else 1.0
    seen = loop.wait_ms + loop.step_ms
    is_limit = loop.wait_ms - parts.take_ms > LITTLE * seen
    is_shared = seen <= (1 + LITTLE) * parts.shared_ms  # the cores are the limit
    if parts.data_ms > seen or (is_limit and not is_shared and parts.data_ms):
        return seen / parts.data_ms
    return 1.0
