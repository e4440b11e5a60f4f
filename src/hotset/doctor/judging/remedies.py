"""What would help a loop, and by how much. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from hotset.doctor.examination import Examination
from hotset.doctor.findings import Advice, Range
from hotset.doctor.judging.causes import SLOW, Found, is_cold_at_first, is_float
from hotset.doctor.judging.loop import LoopTimes
from hotset.doctor.judging.pace import Pace
from hotset.doctor.phrases import percent
from hotset.placement.duration import human_ms
from hotset.placement.size import human_bytes

LEAST_GAIN = 1.05
"""What gains less is not worth a change: predictions are no better."""
LEAST_PART = 0.3
"""A stage with a smaller share of the making is not worth a word of its own."""
MOST_WORKERS = 32
WORKERS_PER_CORE = 2
"""Workers that only wait still take turns on the cores to hand their batches over."""


@dataclass(frozen=True)
class Case:
    """All that remedies are found from.

    Attributes:
        found: what limits the loop.
        loop: its times.
        examination: of its loader.
        pace: its parts.
    """

    found: Found
    loop: LoopTimes
    examination: Examination
    pace: Pace

    def gain(self, after_ms: float) -> Range:
        """How many times faster a batch that takes so long would be, with the loop's own error."""
        if after_ms <= 0:
            return Range(math.inf, math.inf, math.inf)
        value, seen = self.loop.loop_ms / after_ms, self.loop.gain
        if not math.isfinite(seen.value):
            return Range(value, value, value)
        return Range(value, value * seen.low / seen.value, value * seen.high / seen.value)


Remedy = Callable[[Case], Advice | None]


def remedies_of(case: Case) -> tuple[Advice, ...]:
    """What would help, the most first."""
    found = [advice for remedy in REMEDIES if (advice := remedy(case)) is not None]
    worth = [advice for advice in found if _is_worth(advice, case)]
    return tuple(sorted(worth, key=_rank))


def _rank(advice: Advice) -> float:
    """Least first. Of what is only the most to be had, half is counted on."""
    gain = advice.gain.value
    return -(1 + (gain - 1) / 2 if advice.is_most else gain)


def _is_worth(advice: Advice, case: Case) -> bool:
    """Where cores are contested, what it may bring counts, since what it brings is not known."""
    gain = advice.gain.high if case.found.bound == "inconclusive" else advice.gain.value
    return gain >= LEAST_GAIN


def accelerated(case: Case) -> Advice | None:
    """hotset's own loader, as its plan predicts it."""
    plan, facts = case.examination.plan, case.examination.facts
    if plan is None or plan.prediction is None or plan.tier == "source":
        return None
    after = accelerated_ms(case)
    left, copy = plan.prediction.rest_ms, plan.prediction.copy_ms
    why = f"of the data's {human_ms(case.pace.data_ms)} a batch {human_ms(left)} would be left"
    if case.pace.copy_ms:
        why += f", and of the copy's {human_ms(case.pace.copy_ms)} {human_ms(copy)}"
    why += f"; it keeps {human_bytes(plan.bytes_held)} ({plan.tier})"
    gain = case.gain(after)
    if case.pace.is_crowded:
        freed = after - case.pace.alone_ms + case.pace.freed_ms
        gain = replace(gain, high=max(gain.high, case.gain(freed).value))
        why += "; the cores are full, and the step may be faster without workers beside it"
    device = "cuda" if "cuda" in plan.device else "cpu"
    code = f'loader = hotset.accelerate(loader, device="{device}")'
    title = f"let hotset keep what {facts.dataset or 'the dataset'} gives each epoch anew"
    return Advice("accelerate", title, gain, is_most=False, why=why, code=code)


def accelerated_ms(case: Case) -> float:
    """A batch with hotset and its step."""
    plan = case.examination.plan
    assert plan is not None
    assert plan.prediction is not None
    left, copy = plan.prediction.rest_ms, plan.prediction.copy_ms
    step = case.pace.alone_ms
    is_in_workers = any(cut.is_chosen and cut.rest == "worker" for cut in plan.cuts)
    if not is_in_workers:
        return left + max(copy, step)
    if not case.pace.worker_ms:
        return left * case.pace.slack + copy + step
    steady = max(left * case.pace.slack, copy + step)
    return steady + case.pace.start_ms / case.pace.per_epoch


def lasting_workers(case: Case) -> Advice | None:
    """Workers that stay from one epoch to the next."""
    facts, pace = case.examination.facts, case.pace
    if not pace.worker_ms or facts.is_persistent:
        return None
    after = replace(pace, begin_ms=0.0).loop_ms
    share = pace.start_ms / (pace.steady_ms * pace.per_epoch + pace.start_ms)
    return Advice(
        "persistent workers",
        "keep the workers from one epoch to the next",
        case.gain(after),
        is_most=False,
        why=f"an epoch's start takes {human_ms(pace.start_ms)}, {percent(share)} of it",
        code="DataLoader(..., persistent_workers=True)",
    )


def more_workers(case: Case) -> Advice | None:
    """As many workers as keep up with the step, if there are cores for them."""
    pace, facts = case.pace, case.examination.facts
    if case.found.bound != "data-bound" or facts.kind != "DataLoader":
        return None
    if case.found.cause == "slow worker":  # all would wait for it, however many there are
        return None
    count = fitting_workers(case)
    if count <= len(pace.worker_ms):
        return None
    each = case.examination.start_ms / max(1, facts.workers or 2)
    start = 0.0 if facts.is_persistent else each * count
    after = pace.with_workers(count, start).loop_ms
    free = case.examination.cores - case.loop.step_cores
    now = f"{facts.workers} workers" if facts.workers else "no workers"
    return Advice(
        "workers",
        f"read with {count} worker{'s' * (count > 1)} instead of {facts.workers or 'none'}",
        case.gain(after),
        is_most=False,
        why=(
            f"with {now} a batch takes {human_ms(pace.data_ms)} and the step "
            f"{human_ms(pace.step_ms)}; {free:.1f} of {case.examination.cores} cores are free"
        ),
        code=f"DataLoader(..., num_workers={count})",
    )


def fitting_workers(case: Case) -> int:
    """Workers that keep up with the step, and no more than the cores can feed."""
    pace, examination = case.pace, case.examination
    free = max(0.0, examination.cores - case.loop.step_cores)
    room = math.floor(free / max(examination.cpu_cores, free / MOST_WORKERS, 1e-9) + 1e-6)
    made = pace.make_ms * pace.slack
    least = pace.take_ms + pace.step_ms
    needed = math.ceil(made / least) if least > 0 else MOST_WORKERS
    most = min(MOST_WORKERS, WORKERS_PER_CORE * examination.cores)
    return min(needed, room, pace.per_epoch, most)  # each makes a batch at least


def fewer_threads(case: Case) -> Advice | None:
    """One library thread for each worker."""
    examination, pace = case.examination, case.pace
    if not examination.limited or not pace.worker_ms:
        return None
    held = replace(pace, worker_ms=tuple(each.ms for each in examination.limited))
    work_ms = statistics.fmean(each.ms * each.cores for each in examination.limited)
    after = held.crowded_by(min(work_ms, pace.work_ms)).loop_ms
    workers, cores = len(pace.worker_ms), examination.cores
    return Advice(
        "threads",
        "give each worker a single thread",
        case.gain(after),
        is_most=False,
        why=(
            f"{workers} workers that keep {examination.cpu_cores:.1f} cores busy each share "
            f"{cores} cores; with one thread each they were timed again"
        ),
        code=(
            "def one_thread(worker):\n"
            "    torch.set_num_threads(1)\n"
            "    cv2.setNumThreads(0)  # whichever of them the dataset uses\n"
            "\n"
            "DataLoader(..., worker_init_fn=one_thread)  # and OMP_NUM_THREADS=1 in the environment"
        ),
    )


def even_workers(case: Case) -> Advice | None:
    """The slow worker as fast as its siblings."""
    if case.found.cause != "slow worker":
        return None
    pace = case.pace
    usual = statistics.median(sorted(pace.worker_ms)[:-1])
    share = usual / statistics.fmean(pace.worker_ms)
    evened = replace(pace, worker_ms=(usual,) * len(pace.worker_ms))
    after = evened.crowded_by(share * pace.work_ms).loop_ms
    return Advice(
        "even workers",
        f"find out what is different about {case.found.subject}",
        case.gain(after),
        is_most=True,
        why=(
            f"it takes {human_ms(max(pace.worker_ms))} for a batch, its siblings "
            f"{human_ms(usual)}; batches come in their order, so all wait for it"
        ),
    )


def cheaper_collate(case: Case) -> Advice | None:
    """A collate_fn of the user's own that takes no time."""
    examination, pace = case.examination, case.pace
    collate = examination.ms("collate")
    if not examination.facts.has_collate or collate < LEAST_PART * pace.make_ms:
        return None
    return Advice(
        "collate",
        "make the collate_fn cheaper",
        case.gain(pace.without(collate).loop_ms),
        is_most=True,
        why=f"it takes {human_ms(collate)} of the {human_ms(pace.make_ms)} that a batch takes",
    )


def cheaper_step(case: Case) -> Advice | None:
    """A transform, or the steps on floats, or reading, that takes no time."""
    examination, pace = case.examination, case.pace
    cause, subject = case.found.cause, case.found.subject
    if cause not in ("transform", "float work", "read"):
        return None
    stages = [s for s in examination.stages if s.kind in ("read", "transform")]
    ms = {
        "transform": sum(s.ms for s in stages if s.name == subject),
        "float work": sum(s.ms for s in stages if is_float(s, examination)),
        "read": sum(s.ms for s in stages if s.kind == "read"),
    }[cause]
    if ms < LEAST_PART * pace.make_ms:
        return None
    is_random = _is_random(examination, subject)
    words = {
        "transform": f"make {subject} cheaper"
        + (", or give it a batched form" if is_random else ", or run it once"),
        "float work": f"do without {subject} on every sample",
        "read": f"make reading {subject} cheaper" + ("" if is_random else ", or do it once"),
    }
    code = {
        "transform": ""
        if is_random
        else "@hotset.deterministic  # if the same input always gives the same output",
        "float work": "",
        "read": ""
        if is_random
        else 'loader = hotset.accelerate(loader, cache="folder")  # once, on disk',
    }
    return Advice(
        cause,
        words[cause],
        case.gain(pace.without(ms).loop_ms),
        is_most=True,
        why=f"it takes {human_ms(ms)} of the {human_ms(pace.make_ms)} that a batch takes",
        code=code[cause],
    )


def _is_random(examination: Examination, step: str) -> bool:
    """Whether a plan has seen that a step, or one before it, cannot be run once for all epochs."""
    plan = examination.plan
    if plan is None:
        return False
    is_unkept = plan.tier == "source"
    return is_unkept or any(cut.behind == step and not cut.is_deterministic for cut in plan.cuts)


def warm_storage(case: Case) -> Advice | None:
    """Data that storage has not to be asked for."""
    if case.found.cause != "storage":
        return None
    loop, examination = case.loop, case.examination
    first = loop.first_wait_ms
    if first is not None and is_cold_at_first(loop):
        epochs = len(loop.epochs)
        cold = first + loop.step_ms
        warm = loop.wait_ms + loop.step_ms
        gain = (cold + (epochs - 1) * warm) / (epochs * warm)
        seen = loop.gain
        return Advice(
            "storage",
            "have the data in memory, or on a faster disk, before the first epoch",
            Range(gain, gain * seen.low / seen.value, gain * seen.high / seen.value),
            is_most=True,
            why=(
                f"a batch of the first epoch waits {human_ms(first)}, of the later ones "
                f"{human_ms(loop.wait_ms)}; the gain is over the {epochs} epochs that were seen"
            ),
            code='hotset.build(dataset, "train.hotset")  # fewer bytes, read in one piece',
        )
    again = examination.ms("read", "transform", "batch")
    cold_ms = examination.first_read_ms or again
    return Advice(
        "storage",
        "have the data in memory, or on a faster disk",
        case.gain(replace(case.pace, slack=case.pace.slack * again / cold_ms).loop_ms),
        is_most=True,
        why=(
            f"samples of a batch take {human_ms(cold_ms)} to read the first time, and "
            f"{human_ms(again)} once the system has them in memory"
        ),
        code='hotset.build(dataset, "train.hotset")  # fewer bytes, read in one piece',
    )


def even_samples(case: Case) -> Advice | None:
    """The slowest samples as fast as the others."""
    examination, pace = case.examination, case.pace
    times, size = examination.samples, examination.facts.batch_size
    if times is None or not size or case.found.bound != "data-bound":
        return None
    worst = times.worst[0] if times.worst else None
    if worst is None or worst.ms < SLOW * times.p50_ms or case.found.cause == "storage":
        return None
    usual_ms = times.p50_ms * size + examination.ms("collate")
    # Its like are in what workers took, and in what the loop took beyond its parts.
    held = replace(pace, slack=min(1.0, pace.slack), make_ms=min(pace.make_ms, usual_ms))
    held = replace(held, worker_ms=tuple(min(each, usual_ms) for each in pace.worker_ms))
    evened = held.crowded_by(min(pace.work_ms, usual_ms * examination.cpu_cores))
    return Advice(
        "slow samples",
        f"look at sample {worst.index}{f', {worst.path}' if worst.path else ''}, and its like",
        case.gain(evened.loop_ms),
        is_most=True,
        why=(
            f"it takes {human_ms(worst.ms)}, and half of the {times.count} samples that were timed "
            f"no more than {human_ms(times.p50_ms)}"
        ),
    )


def hidden_copy(case: Case) -> Advice | None:
    """Copies that run beside the step."""
    facts, pace = case.examination.facts, case.pace
    if not pace.copy_ms or (facts.is_pinned and case.found.cause != "copy"):
        return None
    after = replace(pace, copy_ms=max(0.0, pace.copy_ms - pace.compute_ms)).loop_ms
    return Advice(
        "pinned copies",
        "copy from pinned memory, beside the step",
        case.gain(after),
        is_most=True,
        why=(
            f"copying takes {human_ms(pace.copy_ms)} of a batch's {human_ms(case.loop.loop_ms)}, "
            f"{human_bytes(case.examination.batch_bytes)} each"
        ),
        code="DataLoader(..., pin_memory=True)\nbatch = batch.to(device, non_blocking=True)",
    )


def no_workers(case: Case) -> Advice | None:
    """Batches made in the loop itself, where handing them over takes longer than making them."""
    if case.found.cause != "hand-over":
        return None
    alone = replace(case.pace, worker_ms=(), begin_ms=0.0, slack=1.0)
    pace = replace(alone, compute_ms=alone.alone_ms)
    return Advice(
        "no workers",
        "read without workers",
        case.gain(pace.loop_ms),
        is_most=False,
        why=(
            f"handing a batch over takes {human_ms(case.pace.hand_ms)}, and making it "
            f"{human_ms(pace.make_ms)}"
        ),
        code="DataLoader(..., num_workers=0)",
    )


REMEDIES: Iterable[Remedy] = (
    accelerated,
    lasting_workers,
    more_workers,
    fewer_threads,
    even_workers,
    cheaper_collate,
    cheaper_step,
    warm_storage,
    even_samples,
    hidden_copy,
    no_workers,
)
