"""Traps of worker processes: how they begin, how many there are, and what they draw."""

from __future__ import annotations

import torch

from hotset.doctor.examination import Examination
from hotset.doctor.findings import Trap
from hotset.doctor.machine.cuda import is_used
from hotset.doctor.phrases import counted, percent
from hotset.doctor.traps.code import remade, seeded
from hotset.doctor.traps.draws import GLOBAL, repeats_of
from hotset.doctor.traps.holdings import on_devices
from hotset.doctor.traps.seen import LITTLE, Seen
from hotset.doctor.traps.streams import are_whole
from hotset.placement.duration import human_ms

BUSY = 0.8
"""Workers that keep such a share of the cores busy have no use for more of them."""


def repeated_draws(seen: Seen) -> Trap | None:
    """Workers that draw the same random numbers, or in each epoch the same again."""
    facts, samples = seen.examination.facts, seen.examination.samples
    if not facts.workers:
        return None
    try:
        repeats = repeats_of(
            seen.loader, seen.fetch, sample_s=samples.p50_ms / 1000 if samples else 0.0
        )
    except Exception:  # a dataset that fails here fails where it is timed too, and is noted there
        return None
    if repeats is None:
        return None
    what = f"two workers that read the same samples drew the same numbers from {repeats.name}"
    if not repeats.is_in_all:
        what = (
            f"a worker drew the same numbers from {repeats.name} in two epochs, since it is "
            "started anew for each"
        )
    elif not facts.is_persistent:
        what += ", and will in every epoch, since they are started anew for each"
    if repeats.name in GLOBAL:
        return Trap(
            name="workers that repeat their random draws",
            what=what,
            why="torch seeds each worker's generators by itself; `worker_init_fn` seeds them again "
            "with numbers that come again",
            fix="seed from `torch.initial_seed()`, which differs by worker and epoch, or not at "
            "all",
            code=remade(seen.loader, worker_init_fn=None),
            is_wrong=True,
        )
    return Trap(
        name="workers that repeat their random draws",
        what=what + (f" (dataset{repeats.path})" if repeats.path[:1] in (".", "[") else ""),
        why="torch seeds `random`, `numpy.random` and its own generator in each worker; any other "
        "generator is copied as it is, so that samples are augmented alike",
        fix="seed it in each worker, or draw from `numpy.random` or torch instead",
        code=seeded(seen.loader, repeats.name, repeats.path) if repeats.path else "",
        is_wrong=True,
    )


def whole_streams(seen: Seen) -> Trap | None:
    """Workers each of which gives all samples of a stream."""
    facts = seen.examination.facts
    if not facts.is_stream or facts.workers < 2:
        return None
    try:
        count = are_whole(seen.loader, seen.fetch)
    except Exception:  # a stream that fails here fails where it is timed too, and is noted there
        return None
    if not count:
        return None
    return Trap(
        name="samples that come once from each worker",
        what=f"two workers began with the same {counted(count, 'sample')}",
        why="each worker goes through the whole of an `IterableDataset`, unless it is given a part "
        f"of its own: an epoch has every sample {facts.workers} times",
        fix="give each worker its own part, by `torch.utils.data.get_worker_info()`",
        code="from itertools import islice\n"
        "from torch.utils.data import get_worker_info\n"
        "\n"
        "def part_of(samples):  # in the dataset's __iter__: return part_of(samples)\n"
        "    worker = get_worker_info()\n"
        "    if worker is None:\n"
        "        return iter(samples)\n"
        "    return islice(samples, worker.id, None, worker.num_workers)",
        is_wrong=True,
    )


def fork_after_cuda(seen: Seen) -> Trap | None:
    """Forked workers whose dataset uses a GPU that this process uses already."""
    facts = seen.examination.facts
    if not facts.workers or facts.start_method != "fork" or not is_used():
        return None
    held = [each for each in on_devices(seen.held) if each.value.device.type == "cuda"]
    if not held:
        return None
    what = "a generator" if isinstance(held[0].value, torch.Generator) else "a tensor"
    return Trap(
        name="fork after CUDA",
        what=f"dataset{held[0].path} is {what} on {held[0].value.device}, and "
        f"{counted(facts.workers, 'forked worker')} would use it",
        why="CUDA cannot be used in a process that was forked from one that uses it already: the "
        "workers fail",
        fix="read it in this process, without workers; or keep it on the CPU",
        code=remade(seen.loader, num_workers=0),
        is_wrong=True,
    )


def start_per_epoch(seen: Seen) -> Trap | None:
    """Workers that are started for each epoch, which is short."""
    examination, facts = seen.examination, seen.examination.facts
    if not facts.workers or facts.is_persistent or not facts.batches:
        return None
    epoch_ms = facts.batches * _batch_ms(examination)
    whole_ms = examination.start_ms + epoch_ms
    if examination.start_ms <= LITTLE * whole_ms:
        return None
    return Trap(
        name="a worker start per epoch",
        what=f"{counted(facts.workers, 'worker')} started anew for each epoch of "
        f"{counted(facts.batches, 'batch', 'batches')}: {human_ms(examination.start_ms)}, "
        f"{percent(examination.start_ms / whole_ms)} of it",
        why="they end with the epoch's iterator",
        fix="keep them from epoch to epoch",
        code=remade(seen.loader, persistent_workers=True),
    )


def _batch_ms(examination: Examination) -> float:
    """From batch to batch: what workers take, or handing over, or the step where it is known."""
    making = examination.ms("read", "transform", "collate", "batch")
    slowest = max((worker.ms for worker in examination.workers), default=making)
    plan = examination.plan
    step_ms = plan.prediction.step_ms if plan is not None and plan.prediction else None
    return max(slowest / examination.facts.workers, examination.hand_ms, step_ms or 0.0)


def too_many_workers(seen: Seen) -> Trap | None:
    """More workers than cores, and all of them busy."""
    examination, facts = seen.examination, seen.examination.facts
    if facts.workers <= examination.cores:
        return None
    if examination.workers:
        busy = sum(worker.cores for worker in examination.workers)
    else:
        busy = min(facts.workers * examination.cpu_cores, examination.cores)
    if busy < BUSY * examination.cores:
        return None
    return Trap(
        name="more workers than cores",
        what=f"{counted(facts.workers, 'worker')} on {counted(examination.cores, 'core')}, of "
        f"which they keep {busy:.1f} busy",
        why="they take turns on the cores, and take them from training; each has its own memory "
        "and takes its time to start",
        fix="have no more workers than cores, and leave one for training",
        code=remade(seen.loader, num_workers=max(1, examination.cores - 1)),
    )
