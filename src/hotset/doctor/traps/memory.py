"""Traps of what samples and batches are, and of where they lie."""

from __future__ import annotations

import os

import torch

from hotset.doctor.findings import Trap
from hotset.doctor.phrases import counted
from hotset.doctor.traps.code import accelerated, packed, remade
from hotset.doctor.traps.holdings import many_objects
from hotset.doctor.traps.seen import LITTLE, Seen
from hotset.placement.duration import human_ms
from hotset.placement.size import human_bytes

MANY = 100_000
"""Objects in lists or dictionaries, from which on their copies are worth a word."""
UNORDERED = ("dict", "set", "frozenset")
"""Containers that no array stands for."""


def on_a_device(seen: Seen) -> Trap | None:
    """Samples on a device, one by one."""
    if not seen.is_one_by_one or not seen.device:
        return None
    items = seen.fetch.items
    return Trap(
        name="tensors on a device, picked one by one",
        what=f"each of the {items} samples of a batch is a tensor of its own on {seen.device}",
        why="the device is asked for each sample by itself, and once more to put them together, "
        "which takes about a hundred times as long as picking a whole batch at once",
        fix="let hotset pick whole batches on the device; or pick them by a list of indices",
        code=accelerated(seen.device.partition(":")[0]),
    )


def in_memory(seen: Seen) -> Trap | None:
    """Samples that lie in memory, picked one by one."""
    examination = seen.examination
    if not examination.facts.is_in_memory or not seen.is_one_by_one or seen.device:
        return None
    ms = examination.ms("read", "collate")
    took = f", which takes {human_ms(ms)} a batch" if ms else ""
    return Trap(
        name="tensors in memory, picked one by one",
        what=f"the {seen.fetch.items} samples of a batch are picked one by one, and put together "
        f"again{took}",
        why="they lie side by side in memory already: a batch can be picked at once",
        fix="let hotset pick whole batches; or index your tensors by a batch of indices",
        code=accelerated(),
    )


def float_work(seen: Seen) -> Trap | None:
    """Steps on floats that could be bytes."""
    examination = seen.examination
    ms = sum(
        stage.ms
        for stage in examination.stages
        if stage.kind == "transform" and stage.name in examination.float_steps
    )
    made = examination.ms("read", "transform", "collate", "batch")
    if not examination.float_steps or ms <= LITTLE * made:
        return None
    names = ", ".join(examination.float_steps)
    return Trap(
        name="work on floats that could be bytes",
        what=f"{names}: {human_ms(ms)} of the {human_ms(made)} that a batch takes in one process",
        why="floats are four times the bytes, and of bytes there are but 256 values: what is done "
        "to each value is one look in a table",
        fix="let hotset keep bytes and look the rest up; or move pixels before they are floats",
        code=accelerated(),
    )


def growing(seen: Seen) -> Trap | None:
    """Forked workers that come to copy many small objects by reading them."""
    facts, usage = seen.examination.facts, seen.usage
    if not facts.workers or facts.start_method != "fork":
        return None
    many = many_objects(seen.held, MANY)
    if not many:
        return None
    most = many[0]
    what = (
        f"dataset{most.path} is a {most.kind} of about {most.count:,} objects, "
        f"{human_bytes(most.nbytes)}, which {counted(facts.workers, 'worker')} may each come to "
        "hold a copy of"
    )
    if usage is not None and (usage.growth_bytes or 0) > 0:
        what += f"; memory grew by {human_bytes(usage.growth_bytes or 0)} while the loop ran"
    return Trap(
        name="memory that grows as workers read",
        what=what,
        why="a forked worker shares memory until it is written to, and Python writes to an object "
        "that it only looks at: it counts who holds it",
        fix="keep them in NumPy arrays or tensors, each of which is one object",
        code="" if most.kind in UNORDERED else packed(most.path, is_numbers=most.is_numbers),
    )


def small_shared_memory(seen: Seen) -> Trap | None:
    """No room for all batches in flight where processes share memory."""
    facts, nbytes = seen.examination.facts, seen.examination.batch_bytes
    if not facts.workers or not nbytes or not os.path.isdir(seen.shared_memory):
        return None
    room = os.statvfs(seen.shared_memory)
    free = room.f_bavail * room.f_frsize
    flying = facts.workers * facts.prefetch + 1
    if free >= flying * nbytes:
        return None
    workers = min(facts.workers, max(0, free // nbytes - 1))
    return Trap(
        name="little shared memory",
        what=f"{seen.shared_memory} has {human_bytes(free)} free, and {flying} batches in flight "
        f"take {human_bytes(flying * nbytes)}",
        why="workers hand batches over in shared memory; where it is full they die with a bus "
        "error",
        fix="give it more room (docker run --shm-size=8g), or keep fewer batches in flight",
        code=remade(seen.loader, num_workers=workers, prefetch_factor=1),
    )


def pinned_for_nothing(seen: Seen) -> Trap | None:
    """Batches that are to be pinned, and no accelerator."""
    if not seen.examination.facts.is_pinned or torch.accelerator.is_available():
        return None
    return Trap(
        name="pinned memory without an accelerator",
        what="pin_memory=True, and torch finds no accelerator",
        why="pinned memory speeds up copies to an accelerator, and nothing else",
        fix="leave it out; or see why the accelerator is not found",
        code=remade(seen.loader, pin_memory=False),
    )
