"""`hotset.diagnose`, and the report on any recorded loop."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from hotset.doctor.examination import Examination
from hotset.doctor.examining.examine import examine
from hotset.doctor.facts import facts_of
from hotset.doctor.findings import Overhead
from hotset.doctor.judging.advise import Replay, judged
from hotset.doctor.judging.loop import loop_times
from hotset.doctor.machine.cuda import is_used, spans_if_used
from hotset.doctor.machine.machine import Machine
from hotset.doctor.machine.usage import SETTLED, Usage
from hotset.doctor.measure import Clock, Recording
from hotset.doctor.report import LoaderShare, Report
from hotset.doctor.restoring import as_it_was
from hotset.errors import ConfigError
from hotset.hardware import hardware, versions
from hotset.loader.moved import move
from hotset.placement.link import Link, link_to
from hotset.placement.stats import Tally
from hotset.planning.measure import step_times
from hotset.progress import Progress, shown
from hotset.progress import Told as Counted
from hotset.sample.tree import flatten, unflatten

Told = Callable[[str], object]
"""Called with what is being done, in a few words."""
Examine = Callable[..., Examination]
TRIALS = 2000
"""Batches of nothing that the doctor's own cost is measured on."""
LEAST_OTHERS = 0.1
"""Of the cores; what others use less of is no matter."""


@dataclass(frozen=True)
class Clocks:
    """What times are taken with.

    Attributes:
        wall: gives seconds.
        cpu: gives seconds of the processor, all threads of the process together.
        sleep: lets so many seconds pass.
        examine: finds out about a loader outside of its loop.
        load: imports a package that looks at the machine, by its name.
    """

    wall: Clock = time.perf_counter
    cpu: Clock = time.process_time
    sleep: Callable[[float], object] = time.sleep
    examine: Examine = examine
    load: Callable[[str], Any] = import_module


REAL = Clocks()


def diagnose(
    loader: Iterable[Any],
    step: Callable[[Any], object] | float | None = None,
    steps: int = 100,
    *,
    device: str | torch.device | Link | None = None,
    seconds: float | None = None,
    progress: Counted | bool | None = None,
) -> Report:
    """Whether data holds training back, where, and what would help: a report.

    The loader is iterated over as a training loop would do it, and `step` is called with each
    batch. Then a kept batch is trained on again some twelve times, to see what the step takes by
    itself, and a few samples are looked at outside of the loop. Generators, the dataset and the
    loader stay as they were; what `step` trains is trained.

    Args:
        loader: a `DataLoader`, a `hotset.Loader`, or any iterable of batches; started anew when it
            ends.
        step: what training does with a batch: a callable, or the milliseconds that it takes, which
            are then slept. None leaves it open, and the report says what data alone takes.
        steps: batches to look at.
        device: moves batches there before they are given to `step`, as a part of the loop; None
            gives them as they come.
        seconds: stop after so many, if that is sooner.
        progress: called with (batches so far, steps); None or True for a bar on a terminal; False
            for nothing.

    Raises:
        ConfigError: for arguments that cannot be used, or a loader without a batch.
        DeviceError: if the device is not there.

    Example:
        >>> import torch, hotset
        >>> data = torch.utils.data.TensorDataset(torch.zeros(64, 4))
        >>> loader = torch.utils.data.DataLoader(data, batch_size=8)
        >>> report = hotset.diagnose(loader, step=lambda batch: None, steps=32)
        >>> report.verdict.bound, report.verdict.cause, report.loop.batches
        ('data-bound', 'in memory', 32)
    """
    return _diagnosed(
        loader, step, steps, device=device, seconds=seconds, progress=progress, clocks=REAL
    )


def _diagnosed(
    loader: Iterable[Any],
    step: Any,
    steps: Any,
    *,
    clocks: Clocks,
    device: Any = None,
    seconds: Any = None,
    progress: Counted | bool | None = None,
) -> Report:
    _check(loader, step, steps, seconds)
    link = None if device is None else link_to(device)
    work = _work(step, clocks, link)
    with as_it_was(loader):
        machine = Machine(clocks.wall, load=clocks.load)
        machine.begin()
        recording = Recording(clock=clocks.wall, cpu_clock=clocks.cpu, spans=spans_if_used())
        with shown(progress, "watching the loop", unit="batches") as told:
            last = _loop(loader, work, recording, machine, steps, seconds, clocks, told)
        usage = machine.end()
        link = link_of_process() if link is None else link
        with phases(is_shown=progress is not False and not callable(progress)) as say:
            replay = None
            if callable(step):
                say("replaying the step")
                replay = replayed(step, last, link, clocks)
            return diagnosed(
                loader,
                recording,
                usage=usage,
                device=link,
                replay=replay,
                is_step_known=step is not None,
                told=say,
                clocks=clocks,
            )


def _check(loader: Any, step: Any, steps: Any, seconds: Any) -> None:
    if not hasattr(loader, "__iter__") or isinstance(loader, (type, str, bytes, Mapping)):
        raise ConfigError(
            f"`loader` must be a DataLoader or another iterable of batches, got {loader!r}"
        )
    if iter_is_itself(loader):
        raise ConfigError(
            "`loader` must be an iterable that can be started anew, got an iterator; pass the "
            "loader itself"
        )
    is_number = isinstance(step, (int, float)) and not isinstance(step, bool)
    if not (step is None or callable(step) or (is_number and 0 <= step < math.inf)):
        raise ConfigError(
            f"`step` must be a callable that takes a batch, milliseconds per batch, or None, got "
            f"{step!r}"
        )
    if not isinstance(steps, int) or isinstance(steps, bool) or steps < 1:
        raise ConfigError(f"`steps` must be a whole number of at least 1, got {steps!r}")
    is_time = isinstance(seconds, (int, float)) and not isinstance(seconds, bool)
    if seconds is not None and not (is_time and seconds > 0):
        raise ConfigError(f"`seconds` must be more than 0, or None, got {seconds!r}")


def iter_is_itself(loader: Any) -> bool:
    """Whether something is an iterator, which cannot be started anew."""
    return isinstance(loader, Iterator)


def _work(step: Any, clocks: Clocks, link: Link | None) -> Callable[[Any], object]:
    """What the loop does with a batch."""
    if step is None:
        act: Callable[[Any], object] = _nothing
    elif callable(step):
        act = step
    else:
        pause_s = step / 1000

        def act(batch: Any) -> object:
            return clocks.sleep(pause_s)

    if link is None or not link.is_apart:
        return act
    tally, there = Tally(), link
    return lambda batch: act(move(batch, there, tally))


def _nothing(batch: Any) -> None:
    """A step that is not known."""


def _loop(
    loader: Iterable[Any],
    work: Callable[[Any], object],
    recording: Recording,
    machine: Machine,
    steps: int,
    seconds: float | None,
    clocks: Clocks,
    told: Counted | None,
) -> Any:
    """The loop that is watched; gives its last whole batch.

    Raises:
        ConfigError: if there is none.
    """
    until = math.inf if seconds is None else clocks.wall() + seconds

    def is_over() -> bool:
        count = len(recording)
        return count >= steps or (count > 0 and clocks.wall() >= until)

    batch: Any = None
    while not is_over():
        before = len(recording)
        recording.begin_epoch()
        iterator = iter(loader)
        while True:
            recording.ask()
            if is_over():
                break
            try:
                batch = next(iterator)
            except StopIteration:
                recording.end_epoch()
                break
            recording.come(batch)
            machine.look()
            if len(recording) == SETTLED:
                machine.settle()
            if told is not None:
                told(len(recording), steps)
            recording.excuse()  # none of that is a part of the step
            work(batch)
        if len(recording) == before:  # it gives no more, though it was started anew
            break
    if not len(recording):
        raise ConfigError("`loader` gave no batch, so there is nothing to look at")
    return batch


def replayed(step: Callable[[Any], object], batch: Any, link: Link, clocks: Clocks) -> Replay:
    """The step on a kept batch, and on the half of it, where that can be had."""
    full, _ = step_times(step, batch, link, clock=clocks.wall, cpu_clock=clocks.cpu)
    half = _half(batch)
    if half is None:
        return Replay(full)
    try:
        ms, _ = step_times(step, half, link, clock=clocks.wall, cpu_clock=clocks.cpu)
    except Exception:  # a step may need batches of one size, and says so in its own words
        return Replay(full)
    return Replay(full, ms)


def _half(batch: Any) -> Any:
    """The first half of a batch of tensors; None for any other, or one sample."""
    leaves, spec = flatten(batch)
    if not all(isinstance(leaf, Tensor) and leaf.ndim for leaf in leaves):
        return None
    sizes = {len(leaf) for leaf in leaves}
    if len(sizes) != 1 or min(sizes) < 2:
        return None
    return unflatten(spec, iter(leaf[: len(leaf) // 2] for leaf in leaves))


def link_of_process() -> Link:
    """To the GPU where this process has begun to use one, else to host memory."""
    return link_to("cuda" if is_used() else "cpu")


@contextmanager
def phases(*, is_shown: bool) -> Iterator[Told]:
    """Says on a terminal what is being done; nothing where nobody watches."""
    line = Progress()

    def say(text: str) -> None:
        if is_shown:
            line.show(f"hotset: {text} …")

    try:
        yield say
    finally:
        line.clear()


def diagnosed(
    loader: Any,
    recording: Recording,
    *,
    title: str = "",
    usage: Usage | None = None,
    device: Any = None,
    replay: Replay | None = None,
    is_step_known: bool = True,
    loaders: Sequence[LoaderShare] = (),
    notes: Sequence[str] = (),
    told: Told | None = None,
    batch_us: float | None = None,
    clocks: Clocks = REAL,
) -> Report:
    """The report on a loop that was recorded; examines its loader on a few samples.

    Args:
        loader: that the batches came from.
        recording: of the loop, which is over.
        title: what the report is about; empty for the loader's name.
        usage: of the machine while the loop ran.
        device: where batches are trained on; a link, a name, or None for the process's own.
        replay: of the step.
        is_step_known: whether the loop did anything with its batches.
        loaders: all loaders of the script.
        notes: what else is worth knowing.
        told: called with what is being done.
        batch_us: microseconds that recording a batch cost; None measures a recording by itself.
        clocks: what times are taken with.

    Raises:
        ConfigError: if no batch came.
    """
    timeline = recording.timeline()
    if not len(timeline):
        raise ConfigError("no batch came, so there is nothing to report")
    facts = facts_of(loader)
    loop = loop_times(
        timeline,
        workers=facts.workers,
        per_epoch=facts.batches,
        is_persistent=facts.is_persistent,
    )
    link = link_of_process() if device is None else link_to(device)
    with as_it_was(loader):
        examination = clocks.examine(
            loader,
            link=link,
            step_ms=(replay.full_ms if replay else loop.step_ms) if is_step_known else None,
            step_cores=loop.step_cores,
            clock=clocks.wall,
            cpu_clock=clocks.cpu,
            told=told,
            usage=usage,
        )
    others = min(usage.others_busy, examination.cores) if usage is not None else 0.0
    judgement = judged(loop, examination, replay=replay, is_step_known=is_step_known, usage=usage)
    batch_us = own_cost_us() if batch_us is None else batch_us
    return Report(
        title=title or (f"{facts.name} over {facts.dataset}" if facts.dataset else facts.name),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        verdict=judgement.verdict,
        gain=judgement.gain,
        loop=loop,
        stages=judgement.stages,
        advice=judgement.advice,
        traps=examination.traps,
        batch_check=judgement.batch_check,
        examination=examination,
        timeline=timeline,
        usage=usage,
        overhead=Overhead(
            batch_us=batch_us,
            share=batch_us / 1000 / loop.loop_ms if loop.loop_ms else 0.0,
            examined_s=examination.seconds,
        ),
        loaders=tuple(loaders),
        versions=versions(),
        hardware=hardware(),
        notes=(*_about_others(others, examination.cores), *notes),
    )


def _about_others(busy: float, cores: int) -> list[str]:
    """That times are not the loop's alone, where they are not."""
    if busy < LEAST_OTHERS * cores:
        return []
    return [
        f"other processes kept {busy:.1f} of {cores} cores busy: times and gains are those of a "
        "crowded machine, and the verdict is less sure for it"
    ]


def own_cost_us() -> float:
    """Microseconds that taking the times of a batch costs, on a batch of nothing."""
    recording, batch = Recording(), (torch.zeros(1),)
    recording.begin_epoch()
    began = time.perf_counter()
    for _ in range(TRIALS):
        recording.ask()
        recording.come(batch)
    return 1e6 * (time.perf_counter() - began) / TRIALS
