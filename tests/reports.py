"""Reports made by hand, so that what is said of them is known."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from hotset.chain.split import Decision
from hotset.doctor.examination import Examination, Facts
from hotset.doctor.findings import (
    Advice,
    BatchCheck,
    Overhead,
    Range,
    SampleTimes,
    SlowSample,
    Stage,
    Trap,
    Verdict,
    WorkerTime,
)
from hotset.doctor.judging.loop import loop_times
from hotset.doctor.machine.usage import GpuUse, Usage
from hotset.doctor.measure import Timeline
from hotset.doctor.report import LoaderShare, Report
from hotset.placement.cut import Cut
from hotset.placement.plan import Plan

MS = 1 / 1024
"""A second's share in which all times are exact in binary; a little less than a millisecond."""
NASTY = "<b onload=\"x\">&amp;</b> '$x^2$'"
"""A name that is markup to a page, and a formula to what draws plots."""


def timeline(
    epochs: list[list[tuple[float, float]]],
    *,
    samples: int = 64,
    idle: bool = False,
    end: float = 1.0,
    is_left: bool = False,
    begin_s: float = 100.0,
) -> Timeline:
    """A timeline of waits and steps, all in `MS`.

    Args:
        epochs: of each, the wait and the step of every batch.
        samples: in a batch.
        idle: whether a device was seen to stand still for half of each wait.
        end: what each epoch takes to know that there is no more.
        is_left: whether the last epoch was left at its last batch.
        begin_s: what the clock says at the beginning.
    """
    now, rows, ends = begin_s, [], []
    for number, batches in enumerate(epochs):
        for place, (wait, step) in enumerate(batches):
            still = wait * MS / 2 if idle and place else math.nan
            rows.append((number, now, wait * MS, step * MS, step * MS, samples, still))
            now += (wait + step) * MS
        ends.append(end * MS)
        now += end * MS
    if is_left:
        number, begin, wait, _, _, count, still = rows[-1]
        rows[-1] = (number, begin, wait, math.nan, math.nan, count, still)
        ends[-1] = math.nan
    columns = list(zip(*rows, strict=True))
    floats = [np.array(columns[n], np.float64) for n in (1, 2, 3, 4, 6)]
    return Timeline(
        epoch=np.array(columns[0], np.int64),
        begin_s=floats[0],
        wait_s=floats[1],
        step_s=floats[2],
        cpu_s=floats[3],
        samples=np.array(columns[5], np.int64),
        idle_s=floats[4],
        end_s=np.array(ends),
    )


def _cut(position: int, behind: str, ms: float, nbytes: int, saved: float, **more: Any) -> Cut:
    return replace(
        Cut(
            position=position,
            behind=behind,
            ms=ms,
            noise_ms=0.1,
            is_deterministic=True,
            problem="",
            bytes_per_sample=nbytes // 50_000,
            is_one_shape=False,
            nbytes=nbytes,
            saved_ms=saved,
            tier="host",
            rest="batch",
        ),
        **more,
    )


def plan() -> Plan:
    """A plan with a cut that is made, one that is not, and one that cannot be."""
    return Plan(
        decisions=(
            Decision("ImageFolder", "once", "gives the same every time"),
            Decision("Resize", "once", "gives the same every time"),
            Decision("RandomCrop", "batch", "drawn per sample, on whole batches"),
            Decision("ToTensor", "table", "256 entries per channel"),
        ),
        device="cuda:0",
        tier="host",
        samples=50_000,
        bytes_held=9_830_400_000,
        kernel="Triton, fused in one pass",
        cuts=(
            _cut(0, "ImageFolder", 6.0, 30_000_000_000, 75_000.0, reason="larger than the next"),
            _cut(
                1,
                "Resize",
                1.5,
                9_830_400_000,
                93_000.0,
                is_chosen=True,
                is_one_shape=True,
                reason="the fewest bytes of those behind which all runs on whole batches",
            ),
            _cut(
                2,
                "RandomCrop",
                0.2,
                0,
                0.0,
                is_deterministic=False,
                tier=None,
                reason="draws anew each time",
            ),
        ),
    )


def data_bound() -> Report:
    """A report with everything in it: a loop of 4 workers that waits for data most of its time."""
    slow = [(900, 4), *[(60, 4), (4, 4), (4, 4), (4, 4)] * 9]
    later = [(400, 4), *[(36, 4), (2, 4), (2, 4), (2, 4)] * 9]
    times = timeline([slow, later, later[:31]], idle=False, is_left=True)
    loop = loop_times(times, workers=4, per_epoch=782)
    stages = (
        Stage("ImageFolder", "read", 96.0, 3.0, 4, 2666.7),
        Stage("Resize", "transform", 24.0, 0.5, 4, 10_666.7),
        Stage("RandomCrop", "transform", 3.0, 0.9, 4, 85_333.3),
        Stage("ToTensor", "transform", 12.0, 0.4, 4, 21_333.3),
        Stage("collate", "collate", 2.0, 0.1, 4, 128_000.0),
        Stage("hand-over", "hand-over", 0.8, 0.1, 1, 80_000.0),
        Stage("pin", "pin", 0.3, 0.0, 1, 213_333.3),
        Stage("copy", "copy", 0.4, 0.0, 1, 160_000.0),
        Stage("step", "step", 3.9, 0.1, 1, 16_410.3),
    )
    lowest = (replace(stages[0], is_lowest=True), *stages[1:])
    traps = (
        Trap(
            "a worker start per epoch",
            "4 workers are started anew for each epoch, which takes 390 ms",
            "they are ended with the epoch's iterator",
            "keep them",
            "DataLoader(…, persistent_workers=True)",
        ),
        Trap(
            "workers that repeat NumPy's draws",
            "2 workers drew the same numbers",
            "each is a copy of this process, NumPy's state included, so that samples are augmented "
            "alike in all of them",
            "seed NumPy in each worker from torch's seed",
            "def seeded(worker):\n    np.random.seed(torch.initial_seed() % 2**32)\n\n"
            "DataLoader(…, worker_init_fn=seeded)",
            is_wrong=True,
        ),
    )
    advice = (
        Advice(
            "accelerate",
            "let hotset keep what ImageFolder gives each epoch anew",
            Range(3.21, 3.02, 3.43),
            False,
            "of the data's 34 ms a batch 0.6 ms would be left; it keeps 9.8 GB (host)",
            'loader = hotset.accelerate(loader, device="cuda")',
        ),
        Advice(
            "persistent workers",
            "keep the workers from one epoch to the next",
            Range(1.052, 1.05, 1.054),
            False,
            "an epoch's start takes 390 ms, 5% of the epoch",
            "DataLoader(…, persistent_workers=True)",
        ),
        Advice(
            "read",
            "make reading ImageFolder cheaper, or do it once",
            Range(2.64, 2.5, 2.8),
            True,
            "it takes 96 ms of the 137 ms that a batch takes",
            'hotset.build(dataset, "train.hotset")  # the deterministic part, once, on disk',
        ),
    )
    worst = (
        SlowSample(17, 180.5, "data/train/n01440764/a very large one.JPEG"),
        SlowSample(40_312, 95.0, "data/train/n02979186/cassette.JPEG"),
        SlowSample(9, 61.0),
        SlowSample(123, 30.0, "data/train/n03000684/saw.JPEG"),
    )
    workers = tuple(WorkerTime(n, 6, ms, 1.0) for n, ms in enumerate((137, 141, 240, 139)))
    gpu = tuple((n / 8, (0.1, 0.2, 0.9, 0.15)[n % 4]) for n in range(24))
    return Report(
        title="train.py --epochs 3",
        created="2030-01-02T03:04:05+00:00",
        verdict=Verdict(
            "data-bound",
            "read",
            "ImageFolder",
            0.97,
            "data is the limit: it is waited for in 73% of the time; most of it for reading "
            "ImageFolder, 96 ms of the 137 ms a batch takes to make",
            False,
        ),
        gain=loop.gain,
        loop=loop,
        stages=lowest,
        advice=advice,
        traps=traps,
        batch_check=BatchCheck(
            False, 1.0, "a larger batch needs as much more data, and data is the limit"
        ),
        examination=Examination(
            facts=Facts(
                "DataLoader",
                "DataLoader",
                "ImageFolder",
                50_000,
                782,
                64,
                4,
                2,
                start_method="fork",
            ),
            cores=4,
            stages=stages[:-1],
            first_read_ms=140.0,
            batch_bytes=38_535_168,
            samples=SampleTimes(256, 2.1, 30.0, worst),
            workers=workers,
            limited=tuple(replace(each, ms=each.ms / 2) for each in workers),
            start_ms=390.0,
            hand_ms=0.8,
            float_steps=("ToTensor",),
            traps=traps,
            plan=plan(),
            seconds=6.5,
            notes=("the collate_fn was timed on 8 batches",),
        ),
        timeline=times,
        usage=Usage(
            seconds=3.0,
            cores_busy=3.62,
            cores_busy_all=3.9,
            read_bytes=120_000_000,
            cached_bytes=1_300_000_000,
            memory_bytes=2_400_000_000,
            growth_bytes=310_000_000,
            gpus=(GpuUse("NVIDIA A100-SXM4-40GB", 0.31, 3_100_000_000, 42_949_672_960, gpu),),
            notes=("reads are those of Linux's /proc alone",),
        ),
        overhead=Overhead(1.7, 0.00012, 6.5),
        loaders=(
            LoaderShare("DataLoader of ImageFolder", 105, 3, 2.5, True),
            LoaderShare("DataLoader of Validation", 12, 1, 0.08, False),
        ),
        versions={"hotset": "0.9.0", "python": "3.12.1", "torch": "2.14.1", "triton": None},
        hardware={
            "system": "Linux x86_64",
            "cpu": "A Processor @ 2.00GHz",
            "cores": 4,
            "torch_threads": 4,
            "memory_bytes": 16_000_000_000,
            "gpus": [{"name": "NVIDIA A100-SXM4-40GB", "memory_bytes": 42_949_672_960}],
            "load_average": 3.5,
        },
        notes=("the script's own exit code was 0",),
    )


def compute_bound() -> Report:
    """A report with little in it: a loop that is best left as it is, with a device that is seen."""
    times = timeline([[(8, 40), *[(2, 40)] * 39]] * 2, idle=True)
    loop = loop_times(times, workers=2)
    return Report(
        title="DataLoader of CIFAR10",
        created="2030-01-02T03:04:05+00:00",
        verdict=Verdict(
            "compute-bound",
            "step",
            "",
            0.999,
            "the step is the limit: it takes 40 ms a batch, and data is waited for in 3% of the "
            "time",
            True,
        ),
        gain=loop.gain,
        loop=loop,
        stages=(
            Stage("CIFAR10", "read", 8.0, 0.2, 2, 16_000.0),
            Stage("step", "step", 40.0, 0.5, 1, 1600.0, is_lowest=True),
        ),
        advice=(
            Advice(
                "leave it",
                "leave the data loading as it is",
                Range(1.0, 1.0, 1.0),
                False,
                "if data took no time at all, the loop would be 1.03 times as fast",
            ),
        ),
        traps=(),
        batch_check=BatchCheck(
            True,
            1.3,
            "half a batch takes the step 26 ms, a whole one 40 ms: 12 ms do not depend on its size",
        ),
        examination=Examination(
            facts=Facts("DataLoader", "DataLoader", "CIFAR10", 2560, 40, 64, 2, 2), cores=8
        ),
        timeline=times,
        usage=None,
        overhead=Overhead(1.2, 0.00003, 1.0),
    )


def single_process() -> Report:
    """A report of a loop without workers, in a single epoch, whose loader hotset cannot serve."""
    times = timeline([[(12, 3)] * 20])
    loop = loop_times(times)
    return Report(
        title="DataLoader of Rows",
        created="2030-01-02T03:04:05+00:00",
        verdict=Verdict(
            "data-bound", "transform", "blurred", 0.9, "data is the limit: it is blurred", False
        ),
        gain=loop.gain,
        loop=loop,
        stages=(
            Stage("Rows", "read", 2.0, 0.1, 1, 32_000.0),
            Stage("blurred", "transform", 9.0, 0.1, 1, 7111.1, is_lowest=True),
            Stage("step", "step", 3.0, 0.1, 1, 21_333.3),
        ),
        advice=(
            Advice(
                "workers",
                "read with 3 workers instead of none",
                Range(3.8, 3.7, 3.9),
                False,
                "with no workers a batch takes 12 ms and the step 3.0 ms; 3.0 of 4 cores are free",
                "DataLoader(…, num_workers=3)",
            ),
        ),
        traps=(),
        batch_check=BatchCheck(None, None, "the step was seen with batches of one size only"),
        examination=Examination(
            facts=Facts("DataLoader", "DataLoader", "Rows", 1280, 20, 64),
            cores=4,
            stages=(),
            samples=SampleTimes(64, 0.2, 0.21, (SlowSample(3, 0.21),)),
            plan_problem="no step of the dataset is known",
        ),
        timeline=times,
        usage=Usage(seconds=0.3, notes=("psutil is not installed: pip install 'hotset[doctor]'",)),
        overhead=Overhead(1.2, 0.00008, 1.0),
    )


def endless() -> Report:
    """A report of any iterable whose step takes no time: gains are infinite, most is empty."""
    times = timeline([[(1, 0)]], samples=0, end=0.0)
    loop = loop_times(times)
    gain = Range(math.inf, math.inf, math.inf)
    return Report(
        title="generator",
        created="2030-01-02T03:04:05+00:00",
        verdict=Verdict(
            "inconclusive", "unknown", "", 0.0, "1 batch in steady state is too few to tell", False
        ),
        gain=gain,
        loop=replace(loop, gain=gain),
        stages=(Stage("generator", "batch", 0.0, 0.0, 1, math.inf),),
        advice=(),
        traps=(),
        batch_check=BatchCheck(None, math.inf, "that cannot be told from what was seen"),
        examination=Examination(facts=Facts("iterable", "generator"), cores=1),
        timeline=times,
        usage=None,
        overhead=Overhead(0.0, 0.0, 0.0),
    )


def marked() -> Report:
    """The data-bound report with markup wherever a name, a path or a sentence may hold some."""
    report = data_bound()
    found = report.examination
    assert found.samples is not None
    assert found.plan is not None
    assert report.usage is not None
    worst = tuple(
        replace(each, path=f"data/{NASTY}/\udcff\x1b[31m.png") for each in found.samples.worst
    )
    named = tuple(replace(each, name=NASTY) for each in report.stages)
    return replace(
        report,
        title=NASTY,
        verdict=replace(report.verdict, subject=NASTY, sentence=NASTY),
        stages=named,
        advice=tuple(
            replace(each, title=NASTY, why=NASTY, code=f"{NASTY}\n{NASTY}")
            for each in report.advice
        ),
        traps=tuple(
            replace(each, name=NASTY, what=NASTY, why=NASTY, fix=NASTY, code=NASTY)
            for each in report.traps
        ),
        batch_check=replace(report.batch_check, reason=NASTY),
        examination=replace(
            found,
            facts=replace(found.facts, name=NASTY, dataset=NASTY),
            stages=named[:-1],
            samples=replace(found.samples, worst=worst),
            plan=replace(
                found.plan,
                decisions=tuple(
                    replace(each, step=NASTY, reason=NASTY) for each in found.plan.decisions
                ),
                cuts=tuple(replace(each, behind=NASTY, reason=NASTY) for each in found.plan.cuts),
                notes=(NASTY,),
            ),
            notes=(NASTY,),
        ),
        usage=replace(
            report.usage,
            gpus=tuple(replace(each, name=NASTY) for each in report.usage.gpus),
            notes=(NASTY,),
        ),
        loaders=tuple(replace(each, name=NASTY) for each in report.loaders),
        versions={NASTY: NASTY},
        hardware={**report.hardware, "cpu": NASTY, "gpus": [{"name": NASTY, "memory_bytes": 1}]},
        notes=(NASTY,),
    )
