"""What the doctor's examination would measure of a loop with a planted cause."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import numpy as np

from hotset.chain.split import Decision
from hotset.doctor.examination import Examination, Facts
from hotset.doctor.findings import SampleTimes, SlowSample, Stage, StageKind, WorkerTime
from hotset.placement.plan import Plan
from hotset.planning.predict import Costs, predict
from tests.loops import Planted
from tests.processes import Doing, Machine

EXAMINED = 12
"""Batches of each worker that are timed outside of the loop."""
TIMED = 256
"""Samples that are timed one by one."""


@functools.cache
def workers_of(planted: Planted) -> tuple[WorkerTime, ...]:
    """What each worker takes while all work, and nobody trains."""
    machine = Machine(planted.cores, planted.penalty)
    counts = [0] * planted.workers

    def working(number: int) -> Doing:
        for batch in itertools.count():
            yield from planted.works(planted.cold_epochs, batch, number)
            counts[number] = batch + 1

    processes = [machine.start(working(number)) for number in range(planted.workers)]
    machine.run(lambda: min(counts, default=EXAMINED) >= EXAMINED)
    return tuple(
        WorkerTime(
            number=number,
            batches=counts[number],
            ms=machine.now_ms / counts[number],
            cores=process.cpu_ms / machine.now_ms,
        )
        for number, process in enumerate(processes)
    )


def examination_of(planted: Planted, **facts: Any) -> Examination:
    """What looking at the loader outside of its loop would find.

    Args:
        planted: the loop.
        facts: more of what the loader says of itself.
    """
    parts: list[tuple[str, StageKind, float]] = [("Files", "read", planted.read_ms)]
    parts += [(name, "transform", ms) for name, ms in planted.transforms]
    parts += [("collate", "collate", planted.collate_ms)]
    if planted.workers:
        parts += [("hand-over", "hand-over", shipped_ms(planted))]
    if planted.copy_ms:
        parts += [("copy", "copy", planted.copy_ms)]
    single_ms = planted.make_ms - planted.collate_ms
    cpu = planted.read_ms + planted.collate_ms + planted.threads * planted.steps_ms
    processes = planted.workers or 2
    start_ms = processes * planted.start_ms + planted.boot_ms + planted.hand_ms
    return Examination(
        facts=Facts(
            **{
                "kind": "DataLoader",
                "name": "DataLoader",
                "dataset": "Files",
                "samples": planted.batches * planted.batch_size,
                "batches": planted.batches,
                "batch_size": planted.batch_size,
                "workers": planted.workers,
                "prefetch": planted.prefetch if planted.workers else 0,
                "is_persistent": planted.is_persistent,
                "start_method": "fork" if planted.workers else "",
                **facts,
            }
        ),
        cores=planted.cores,
        stages=tuple(Stage(name, kind, ms) for name, kind, ms in parts),
        first_read_ms=single_ms + planted.cold_ms,
        cpu_cores=cpu / planted.make_ms if planted.make_ms else 1.0,
        batch_bytes=1 << 20,
        samples=samples_of(planted),
        workers=workers_of(planted),
        limited=workers_of(planted.with_(threads=1)) if planted.threads > 1 else (),
        start_ms=start_ms,
        hand_ms=shipped_ms(planted),
        float_steps=planted.float_steps,
        plan=plan_of(planted),
    )


def shipped_ms(planted: Planted) -> float:
    """Handing a finished batch over, by as many workers as there are, or by two."""
    workers = planted.workers or 2
    return max(planted.hand_ms, planted.ship_ms / workers)


def samples_of(planted: Planted) -> SampleTimes:
    """Times of single samples, some of them slow."""
    usual = (planted.make_ms - planted.collate_ms) / planted.batch_size
    draws = np.random.default_rng(planted.seed)
    is_slow = draws.random(TIMED) < planted.slow_chance / planted.batch_size
    times = np.where(is_slow, usual + planted.slow_ms, usual)
    worst = np.argsort(-times, kind="stable")[:5]
    p50, p99 = np.quantile(times, (0.5, 0.99))
    slow = tuple(SlowSample(int(n), float(times[n]), f"{n:05}.jpg") for n in worst)
    return SampleTimes(TIMED, float(p50), float(p99), slow)


def plan_of(planted: Planted) -> Plan | None:
    """What hotset would do; None where it could do nothing."""
    if planted.once is None:
        return None
    parts = dict(planted.transforms, read=planted.read_ms)
    size = planted.batch_size
    prediction = predict(
        Costs(
            samples=planted.batches * size,
            kept=planted.batches * size,
            batch_size=size,
            workers=planted.workers,
            cores=planted.cores,
            sample_ms=planted.make_ms / size,
            once_ms=sum(parts[name] for name in planted.once) / size,
            rest_ms=planted.rest_ms,
            plain_copy_ms=planted.copy_ms,
            copy_ms=planted.rest_copy_ms,
            step_cores=planted.step_cores,
            start_ms=0.0 if planted.is_persistent else planted.workers * planted.start_ms,
            hand_ms=shipped_ms(planted),
        )
    )
    return Plan(
        decisions=tuple(Decision(name, "once", "no randomness in it") for name in planted.once),
        device="cpu",
        tier="host",
        samples=planted.batches * size,
        bytes_held=planted.batches * size * 1000,
        kernel="gather by index",
        prediction=prediction,
    )
