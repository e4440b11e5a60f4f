"""What a report says, in rows and words that the terminal and the page share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from hotset.doctor.findings import Advice, Stage, Trap, WorkerTime
from hotset.doctor.machine.usage import GpuUse
from hotset.doctor.phrases import counted, gain_in_words, per_second, percent, shown, times_as
from hotset.placement.duration import human_ms
from hotset.placement.size import human_bytes

if TYPE_CHECKING:
    from hotset.doctor.report import LoaderShare, Report

Rows = list[tuple[str, str]]
"""What something is, and its figures."""
WORST = 3
"""Slow samples that are shown, where nothing else is said."""
NOTICEABLE_NOISE = 0.1
"""Noise is told of where it is a larger share than this of the time itself."""
VISIBLY_UNEVEN = 1.2
"""Workers differ where the slowest takes so many times what the one in the middle takes."""


def bound_in_words(report: Report) -> str:
    """What the loop is limited by, and how sure that is."""
    found = report.verdict
    if found.bound == "inconclusive":
        return "Inconclusive"
    sure = "over 99 %" if found.confidence > 0.995 else percent(found.confidence)
    return f"{found.bound.capitalize()} ({sure} sure)"


def loader_in_words(report: Report) -> str:
    """What the loader is."""
    facts = report.examination.facts
    name = f"{facts.name} of {facts.dataset}" if facts.dataset else facts.name
    parts = [shown(name)]
    if facts.samples is not None:
        parts.append(counted(facts.samples, "sample"))
    if facts.batch_size is not None:
        parts.append(f"batches of {facts.batch_size:,}")
    if facts.kind == "DataLoader":
        parts.append(counted(facts.workers, "worker") if facts.workers else "no workers")
    elif facts.workers:
        parts.append(counted(facts.workers, "worker"))
    if facts.is_in_memory:
        parts.append("samples in memory")
    return ", ".join(parts)


def summary_rows(report: Report) -> Rows:
    """Waiting, the largest gain, and what to do first."""
    loop = report.loop
    what = "the device stands still for" if loop.is_device_seen else "the loop waits for"
    lost = f"{human_ms(loop.loop_ms - loop.step_ms)} of {human_ms(loop.loop_ms)} a batch"
    rows = [("waiting", f"{percent(loop.wait_share)} of the time: {what} {lost}")]
    if math.isfinite(report.gain.value):
        gain = f"{gain_in_words(report.gain)}, if data took no time at all"
    else:
        gain = "without limit: beside the data, nothing took time that could be measured"
    rows.append(("largest gain", gain))
    if is_only_left(report):
        rows.append(("to do", f"{shown(report.advice[0].title)}: {shown(report.advice[0].why)}"))
    elif report.advice:
        rows.append(("do first", advice_in_words(report.advice[0])))
    wrong = [shown(trap.name) for trap in report.traps if trap.is_wrong]
    if wrong:
        rows.append(("WRONG RESULTS", f"{', '.join(wrong)}: see the traps below"))
    return rows


def is_only_left(report: Report) -> bool:
    """Whether there is nothing to be done."""
    return [advice.action for advice in report.advice] == ["leave it"]


def gain_of(advice: Advice) -> str:
    """What advice would bring, in words; empty where it is to change nothing."""
    if advice.action == "leave it":
        return ""
    return gain_in_words(advice.gain, is_most=advice.is_most)


def advice_in_words(advice: Advice) -> str:
    """What to do, and what that would bring."""
    gain = gain_of(advice)
    return shown(advice.title) + (f": {gain}" if gain else "")


def unit(report: Report) -> str:
    """What rates count."""
    return "samples/s" if report.loop.samples else "batches/s"


def stage_cells(stage: Stage) -> tuple[str, str, str, str, str]:
    """A stage's kind, time of a batch, its noise where that is large, processes and ceiling."""
    kind = "" if stage.kind == stage.name else stage.kind
    is_noisy = stage.noise_ms > NOTICEABLE_NOISE * stage.ms
    noise = f"± {human_ms(stage.noise_ms)}" if is_noisy else ""
    return kind, human_ms(stage.ms), noise, f"{stage.lanes:,}", per_second(stage.samples_per_s)


def epoch_rows(report: Report) -> Rows:
    """The first epoch, the starts of epochs and steady state, apart."""
    loop = report.loop
    waits = "the device stands still" if loop.is_device_seen else "waiting"
    rows = []
    if loop.first_wait_ms is not None and loop.epochs:
        start = human_ms(loop.epochs[0].start_ms)
        rows.append(
            (
                "first epoch",
                f"{start} for the first batch, then {waits} {human_ms(loop.first_wait_ms)} a batch",
            )
        )
    if loop.start_ms > 0:
        share = human_ms(loop.start_share_ms)
        of = f"{share} for each of its {counted(loop.per_epoch, 'batch', 'batches')}"
        rows.append(("epoch start", f"{human_ms(loop.start_ms)} in each epoch: {of}"))
    seen = f"over {counted(loop.steady, 'batch', 'batches')}"
    if loop.first_wait_ms is None and len(loop.epochs) < 2:
        seen += " of a single epoch, what is slow only the first time included"
    rows.append(
        (
            "steady state",
            f"{waits} {human_ms(loop.wait_ms)} + step {human_ms(loop.step_ms)} a batch, {seen}",
        )
    )
    rate = f"{per_second(loop.samples_per_s)} {unit(report)}"
    rows.append(("all in all", f"{rate}, epoch starts included"))
    return rows


def traps_in_order(report: Report) -> tuple[Trap, ...]:
    """Those that make results wrong first."""
    return tuple(sorted(report.traps, key=lambda trap: not trap.is_wrong))


def batch_rows(report: Report) -> Rows:
    """Whether a larger batch would help."""
    check = report.batch_check
    if check.helps is None:
        answer = "cannot be told"
    else:
        answer = "yes" if check.helps else "no"
    gain = ""
    if check.helps and check.gain is not None and math.isfinite(check.gain):
        gain = f", {times_as(check.gain)} the {unit(report)} with twice the batch"
    return [("larger batch", f"{answer}{gain}: {shown(check.reason)}")]


def burst_rows(report: Report) -> Rows:
    """Whether batches come in bursts, and what that means; nothing where they do not."""
    found = report.loop.sawtooth
    if found is None or not found.is_seen:
        return []
    longest, shortest = human_ms(max(found.wait_ms)), human_ms(min(found.wait_ms))
    return [
        (
            "bursts",
            f"batches come in bursts of {found.period}, one from each worker: the loop waits "
            f"{longest} for the first, finds the others ready ({shortest} at the least), and waits "
            "again, since the workers together make batches more slowly than they are used up",
        )
    ]


def sample_rows(report: Report, worst: int = WORST) -> Rows:
    """What single samples take, and the slowest."""
    found = report.examination.samples
    if found is None:
        return []
    half, most = human_ms(found.p50_ms), human_ms(found.p99_ms)
    rows = [("one sample", f"p50 {half}, p99 {most}, of {found.count:,} in one process")]
    for sample in found.worst[:worst]:
        path = f", {shown(sample.path)}" if sample.path else ""
        rows.append(("", f"{human_ms(sample.ms)}: index {sample.index}{path}"))
    return rows


def are_uneven(workers: Sequence[WorkerTime]) -> bool:
    """Whether a worker takes clearly longer than the one in the middle."""
    times = sorted(worker.ms for worker in workers)
    return bool(times) and times[-1] >= VISIBLY_UNEVEN * times[(len(times) - 1) // 2]


def worker_rows(report: Report) -> Rows:
    """The workers, where they differ or where fewer threads would do them good."""
    workers, limited = report.examination.workers, report.examination.limited
    rows = []
    if are_uneven(workers):
        slowest = max(workers, key=lambda worker: worker.ms)
        others = [worker.ms for worker in workers if worker is not slowest]
        span = f"{human_ms(min(others))} to {human_ms(max(others))}" if others else "none"
        rows.append(
            (
                "workers",
                f"worker {slowest.number} takes {human_ms(slowest.ms)} a batch, the others {span}",
            )
        )
    if workers and limited:
        now, then = (
            human_ms(sum(each.ms for each in some) / len(some)) for some in (workers, limited)
        )
        rows.append(("threads", f"a worker takes {now} a batch, held to one thread {then}"))
    return rows


LOADER_COLUMNS = ("batches", "epochs", "waited", "")
"""What `loader_cells` gives of a loader."""


def loader_cells(loader: LoaderShare) -> tuple[str, str, str, str]:
    """A loader's batches, epochs, waiting, and whether the report is about it."""
    mark = "this report" if loader.is_examined else ""
    waited = human_ms(1000 * loader.wait_s)
    return f"{loader.batches:,}", f"{loader.epochs:,}", waited, mark


def machine_rows(report: Report) -> Rows:
    """What of the machine was used while the loop ran."""
    used = report.usage
    if used is None:
        return []
    rows: Rows = []
    if used.cores_busy is not None:
        words = f"{used.cores_busy:.1f} of {counted(report.examination.cores, 'core')} busy"
        if used.cores_busy_all is not None:
            words += f"; by all processes of the machine {used.cores_busy_all:.1f}"
        rows.append(("processor", words))
    reads = []
    if used.read_bytes is not None:
        reads.append(f"{human_bytes(used.read_bytes)} read from storage")
    if used.cached_bytes is not None:
        reads.append(f"{human_bytes(used.cached_bytes)} from what the system had in memory")
    if reads:
        rows.append(("reads", ", ".join(reads)))
    if used.memory_bytes is not None:
        words = human_bytes(used.memory_bytes)
        if used.growth_bytes is not None and used.growth_bytes > 0:
            words += f", grown by {human_bytes(used.growth_bytes)} while the loop ran"
        rows.append(("memory", words))
    for label, gpu in labelled(used.gpus):
        parts = [shown(gpu.name)]
        if gpu.busy is not None:
            parts.append(f"{percent(gpu.busy)} busy")
        if gpu.memory_bytes is not None:
            taken = human_bytes(gpu.memory_bytes)
            parts.append(f"{taken} of {human_bytes(gpu.memory_total_bytes)} taken")
        rows.append((label, ", ".join(parts)))
    return rows


def labelled(gpus: Sequence[GpuUse]) -> list[tuple[str, GpuUse]]:
    """GPUs, each with what it is called: by number where there are several."""
    return [(f"GPU {n}" if len(gpus) > 1 else "GPU", gpu) for n, gpu in enumerate(gpus)]


def foot_rows(report: Report) -> Rows:
    """What the doctor took itself, what it ran on and with, and when."""
    cost = report.overhead
    own = f"{cost.batch_us:.2g} µs a batch, {percent(cost.share)} of the loop"
    if cost.examined_s > 0:
        own += f"; {human_ms(1000 * cost.examined_s)} to examine the loader"
    versions = [f"{name} {version}" for name, version in report.versions.items() if version]
    rows = [("doctor itself", own), ("versions", ", ".join(versions))]
    rows += [("hardware", ", ".join(hardware_words(report))), ("made", report.created)]
    return [(label, shown(words)) for label, words in rows if words]


def hardware_words(report: Report) -> list[str]:
    """Processor, memory and devices, as far as they are known."""
    found = report.hardware
    words = [str(found["cpu"])] if found.get("cpu") else []
    if found.get("cores"):
        words.append(counted(found["cores"], "core"))
    if found.get("memory_bytes"):
        words.append(f"{human_bytes(found['memory_bytes'])} of memory")
    if "gpus" in found:
        words += [str(gpu["name"]) for gpu in found["gpus"]] or ["no GPU"]
    return words


def notes(report: Report) -> tuple[str, ...]:
    """All that is worth knowing besides, each once."""
    usage = report.usage.notes if report.usage is not None else ()
    found = (*report.notes, *report.examination.notes, *usage)
    return tuple(dict.fromkeys(shown(note) for note in found))


def lowest_in_words(stage: Stage, stages: Sequence[Stage]) -> str:
    """Which ceiling that is that sets the pace: of all, or of what makes the data."""
    is_lowest = all(stage.samples_per_s <= each.samples_per_s for each in stages)
    return "the lowest" if is_lowest else "the data's lowest"
