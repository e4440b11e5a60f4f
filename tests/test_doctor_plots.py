"""The plots of a report: what is drawn, and that nothing runs into anything."""

from __future__ import annotations

from dataclasses import replace
from html import unescape
from typing import Any

import pytest

pytest.importorskip("matplotlib")

from hotset.doctor.findings import SampleTimes, SlowSample, Stage, WorkerTime
from hotset.doctor.judging.loop import loop_times
from hotset.doctor.machine.usage import GpuUse, Usage
from hotset.doctor.report import Report
from hotset.doctor.showing import plots
from hotset.doctor.showing.plots import binned
from tests import reports


def _texts(svg: str) -> list[str]:
    """All that is written in a plot."""
    parts = svg.split("<text")[1:]
    return [unescape(part.split(">", 1)[1].split("</text>")[0]) for part in parts]


def _looped(times: Any, **more: Any) -> Report:
    return replace(reports.data_bound(), timeline=times, loop=loop_times(times, **more))


def test_few_batches_are_drawn_one_by_one() -> None:
    """Steps, waits and starts of epochs apart, in milliseconds."""
    times = reports.timeline([[(8, 4), (2, 4)], [(6, 4), (1, 3)]])
    size, parts = binned(_looped(times), 10)
    assert size == 1
    tick = 1000 / 1024
    assert parts["start"].tolist() == [8 * tick, 0, 6 * tick, 0]
    assert parts["wait"].tolist() == [0, 2 * tick, 0, tick]
    assert parts["step"].tolist() == [4 * tick, 4 * tick, 4 * tick, 3 * tick]


def test_many_batches_are_put_together() -> None:
    """The mean of neighbours, the last of fewer, so that the area stays what it was."""
    times = reports.timeline([[(2 * (n % 4), 4) for n in range(10)]])
    size, parts = binned(_looped(times), 4)
    assert size == 3
    waits = 1000 * times.wait_s
    assert parts["wait"].tolist() == [
        waits[1:3].sum() / 3,
        waits[3:6].sum() / 3,
        waits[6:9].sum() / 3,
        waits[9],
    ]
    for most in (1, 2, 5, 9, 10, 11):
        size, parts = binned(_looped(times), most)
        assert len(parts["step"]) <= most
        assert -(-10 // size) == len(parts["step"])


def test_steps_that_are_not_known_are_not_drawn() -> None:
    """The last one of a loop that was left."""
    times = reports.timeline([[(8, 4), (2, 4)]], is_left=True)
    _, parts = binned(_looped(times), 10)
    assert parts["step"].tolist() == [4000 / 1024, 0.0]


def test_a_device_that_was_seen_counts() -> None:
    """What it stood still is waiting, and the rest of the wait is step, as in the figures."""
    times = reports.timeline([[(8, 4), (2, 4), (6, 4)]], idle=True)
    report = _looped(times)
    assert report.loop.is_device_seen
    _, parts = binned(report, 10)
    tick = 1000 / 1024
    assert parts["wait"].tolist() == [0, tick, 3 * tick]
    assert parts["start"].tolist() == [8 * tick, 0, 0]
    assert parts["step"].tolist() == [4 * tick, 5 * tick, 7 * tick]


def test_what_is_too_long_is_cut_off_and_written() -> None:
    """Epoch starts would dwarf all else; the epochs are named where there is room."""
    texts = _texts(plots.run_plot(reports.data_bound(), plots.WIDE_INCHES))
    assert [text for text in texts if text.endswith("ms") and text[0].isdigit()] == [
        "883 ms",
        "395 ms",
        "395 ms",
    ]
    assert texts[-2:] == ["first epoch", "later epochs"]
    assert "ms a batch" in texts
    assert "batch" in texts
    texts = _texts(plots.run_plot(reports.compute_bound()))
    assert texts[-2:] == ["first epoch", "second epoch"]
    texts = _texts(plots.run_plot(reports.single_process()))
    assert not {"first epoch", "second epoch", "later epochs"} & set(texts)


def test_labels_of_what_is_cut_off_keep_apart() -> None:
    """Of neighbours only the longest is labelled; no more than fit are."""
    epochs = [[(900 + n, 4), *[(2, 4)] * 20] for n in range(10)]
    texts = _texts(plots.run_plot(_looped(reports.timeline(epochs)), plots.NARROW_INCHES))
    found = [text for text in texts if text.endswith(" ms")]
    assert found[0] == "892 ms"  # 909 of waiting and 4 of a step
    assert 2 <= len(found) <= 4
    epochs = [[(1, 4)] * 600]
    texts = _texts(plots.run_plot(_looped(reports.timeline(epochs)), plots.NARROW_INCHES))
    assert "batch; 3 of them in each bar" in texts


def test_long_batches_are_drawn_in_seconds() -> None:
    """And a loop that took no time at all is drawn too."""
    times = reports.timeline([[(5000, 4000)] * 5])
    assert "s a batch" in _texts(plots.run_plot(_looped(times)))
    still = reports.timeline([[(0, 0)] * 5], end=0.0)
    assert "ms a batch" in _texts(plots.run_plot(_looped(still)))


def test_stages_have_their_time_and_ceiling() -> None:
    """The time is that of all that work on it; the lowest has a colour of its own."""
    svg = plots.stages_plot(reports.data_bound())
    texts = _texts(svg)
    for text in ("ImageFolder", "24 ms · 2,667/s", "0.75 ms · 85,333/s", "3.9 ms · 16,410/s"):
        assert text in texts
    assert svg.count("fill: var(--wait)") == 1
    assert svg.count("fill: var(--step)") == 1
    assert svg.count("fill: var(--plain)") == 7


def test_names_are_text_in_plots() -> None:
    """Neither markup nor a formula, and short enough to leave room for the bars."""
    svg = plots.stages_plot(reports.marked())
    assert "<b" not in svg
    assert reports.NASTY[:19] + "…" in _texts(svg)
    stage = Stage("$x^2$", "read", 1.0, 0.0, 1, 10.0)
    report = replace(reports.data_bound(), stages=(stage, replace(stage, name="数据集")))
    assert {"$x^2$", "数据集"} <= set(_texts(plots.stages_plot(report)))


def test_stages_that_take_no_time() -> None:
    """Their ceiling is none."""
    stages = (Stage("batch", "batch", 0.0, 0.0, 1, float("inf")),)
    report = replace(reports.endless(), stages=stages)
    assert "0.0 ms · no limit/s" in _texts(plots.stages_plot(report))


def test_bursts_have_a_bar_for_each_worker() -> None:
    """In the order of their turns."""
    svg = plots.bursts_plot(reports.data_bound())
    assert svg.count("fill: var(--wait)") == 4
    assert "place in the turn of the 4 workers" in _texts(svg)


def test_slow_samples_stand_below_usual_ones() -> None:
    """So many of them as can be seen."""
    texts = _texts(plots.samples_plot(reports.data_bound()))
    assert [text for text in texts if text.startswith(("half", "99", "index"))] == [
        "half of them",
        "99 of 100",
        "index 17",
        "index 40312",
        "index 9",
        "index 123",
    ]
    report = reports.data_bound()
    worst = tuple(SlowSample(n, 30.0) for n in range(20))
    found = replace(report.examination, samples=SampleTimes(200, 1.0, 20.0, worst))
    texts = _texts(plots.samples_plot(replace(report, examination=found)))
    assert sum(text.startswith("index") for text in texts) == plots.WORST


def test_workers_are_marked_where_they_differ() -> None:
    """The slowest has a colour; with one thread each there is a mark."""
    report = reports.data_bound()
    svg = plots.workers_plot(report)
    assert svg.count("fill: var(--wait)") == 1
    assert "var(--hotset)" in svg
    even = tuple(replace(each, ms=100.0) for each in report.examination.workers)
    found = replace(report.examination, workers=even, limited=())
    svg = plots.workers_plot(replace(report, examination=found))
    assert "var(--wait)" not in svg
    assert "var(--hotset)" not in svg


def test_many_workers_are_not_all_named() -> None:
    """Their names would run into each other."""
    report = reports.data_bound()
    workers = tuple(WorkerTime(n, 4, 100.0 + n, 1.0) for n in range(64))
    found = replace(report.examination, workers=workers, limited=())
    texts = _texts(plots.workers_plot(replace(report, examination=found)))
    assert [text for text in texts if text.startswith("worker")] == ["worker 0", "worker 63"]


def test_gpus_are_lines_of_few_points() -> None:
    """One for each that was sampled, in a colour of its own."""
    samples = tuple((n / 6, 0.5) for n in range(5000))
    gpus = (
        GpuUse("A", 0.5, 1, 2, samples),
        GpuUse("B", None, None, 2),
        GpuUse("C", 1.0, 1, 2, samples),
    )
    report = replace(reports.data_bound(), usage=Usage(800.0, gpus=gpus))
    svg = plots.gpus_plot(report)
    assert svg.count("stroke: var(--hotset)") == 1
    assert svg.count("stroke: var(--wait)") == 1
    assert len(svg) < 20_000
    assert {"seconds", "% busy"} <= set(_texts(svg))
