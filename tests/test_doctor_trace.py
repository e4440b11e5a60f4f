"""A loop for a trace viewer: every wait and step at its time, to the nanosecond."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from hotset.doctor.report import Report
from hotset.doctor.showing.trace import DEVICE, EPOCHS, LOOP, as_trace
from tests import reports

TICK_US = 1e6 / 1024
"""Of `MS`; an even number of them is a whole number of nanoseconds."""


def _loaded(report: Report) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(as_trace(report))
    return found


def _lane(trace: dict[str, Any], lane: int) -> list[dict[str, Any]]:
    return [e for e in trace["traceEvents"] if e["ph"] == "X" and e["tid"] == lane]


def _spans(trace: dict[str, Any], lane: int) -> list[tuple[str, float, float]]:
    return [(e["name"], e["ts"], e["dur"]) for e in _lane(trace, lane)]


def _us(ticks: float) -> float:
    return ticks * TICK_US


def test_waits_and_steps_lie_at_their_times() -> None:
    """In microseconds from the loop's begin, whatever the clock said there."""
    times = reports.timeline([[(8, 4), (2, 4)], [(6, 4), (0, 2)]], end=2.0)
    trace = _loaded(replace(reports.compute_bound(), timeline=times))
    expected = [
        ("epoch start", 0, 8),
        ("step", 8, 12),
        ("wait", 12, 14),
        ("step", 14, 18),
        ("epoch end", 18, 20),
        ("epoch start", 20, 26),
        ("step", 26, 30),
        ("wait", 30, 30),
        ("step", 30, 32),
        ("epoch end", 32, 34),
    ]
    assert _spans(trace, LOOP) == [
        (name, _us(begin), _us(end - begin)) for name, begin, end in expected
    ]
    assert _spans(trace, EPOCHS) == [("epoch 1", 0.0, _us(20)), ("epoch 2", _us(20), _us(14))]


def test_batches_are_named_and_counted() -> None:
    """Arguments say which batch, of which epoch, and of how many samples."""
    times = reports.timeline([[(8, 4)], [(6, 4), (1, 3)]], samples=32)
    trace = _loaded(replace(reports.compute_bound(), timeline=times))
    steps = [event["args"] for event in _lane(trace, LOOP) if event["name"] == "step"]
    assert steps == [
        {"batch": 0, "epoch": 0, "samples": 32},
        {"batch": 1, "epoch": 1, "samples": 32},
        {"batch": 2, "epoch": 1, "samples": 32},
    ]
    assert [event["args"] for event in _lane(trace, EPOCHS)] == [
        {"batches": 1, "is_whole": True},
        {"batches": 2, "is_whole": True},
    ]


def test_the_share_of_waiting_is_a_counter() -> None:
    """One value for each batch whose step is known."""
    times = reports.timeline([[(4, 4), (1, 3), (0, 4)]])
    trace = _loaded(replace(reports.compute_bound(), timeline=times))
    counters = [e for e in trace["traceEvents"] if e["ph"] == "C"]
    assert [e["args"] for e in counters] == [{"%": 50.0}, {"%": 25.0}, {"%": 0.0}]
    assert [e["ts"] for e in counters] == [0.0, _us(8), _us(12)]


def test_a_loop_that_was_left_has_no_last_step() -> None:
    """And its epoch is not whole: it ends with the last batch."""
    times = reports.timeline([[(2, 4), (2, 4)]], is_left=True)
    trace = _loaded(replace(reports.compute_bound(), timeline=times))
    assert [name for name, *_ in _spans(trace, LOOP)] == ["epoch start", "step", "wait"]
    assert _spans(trace, EPOCHS) == [("epoch 1", 0.0, _us(8))]
    assert _lane(trace, EPOCHS)[0]["args"]["is_whole"] is False


def test_a_device_stands_still_until_its_batch_comes() -> None:
    """On a lane of its own, that is there only where a device was seen."""
    times = reports.timeline([[(8, 4), (4, 4), (8, 4)]], idle=True)
    trace = _loaded(replace(reports.compute_bound(), timeline=times))
    assert _spans(trace, DEVICE) == [("idle", _us(14), _us(2)), ("idle", _us(24), _us(4))]
    assert _names(trace) == {EPOCHS: "epochs", LOOP: "loop", DEVICE: "device stands still"}
    assert _names(_loaded(reports.data_bound())) == {EPOCHS: "epochs", LOOP: "loop"}


def _names(trace: dict[str, Any]) -> dict[int, str]:
    return {e["tid"]: e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "thread_name"}


def test_nothing_overlaps_on_the_loop_s_lane() -> None:
    """Whatever the times: a viewer would take what overlaps to be nested."""
    draws = np.random.default_rng(0)
    epochs = [[tuple(draws.uniform(0, 3, 2)) for _ in range(50)] for _ in range(3)]
    times = reports.timeline(epochs, begin_s=123_456.789)  # not exact in binary
    trace = _loaded(replace(reports.compute_bound(), timeline=times))
    spans = [(round(1000 * b), round(1000 * (b + d))) for _, b, d in _spans(trace, LOOP)]
    assert len(spans) == 3 * (2 * 50 + 1)
    assert all(end <= begin for (_, end), (begin, _) in pairwise(spans))


def test_steps_that_hold_another_loader_s_wait_stay_apart() -> None:
    """Such a step is shorter than the time until the next wait, and is drawn so."""
    times = reports.timeline([[(2, 4), (2, 4)]])
    later = replace(times, begin_s=times.begin_s + np.array([0, 10 * reports.MS]))
    trace = _loaded(replace(reports.compute_bound(), timeline=later))
    assert _spans(trace, LOOP)[1:3] == [("step", _us(2), _us(4)), ("wait", _us(16), _us(2))]


def test_a_trace_says_what_it_is_of(tmp_path: Path) -> None:
    """Title, verdict and process are named; the file is JSON without Infinity."""
    made = reports.data_bound()
    made.to_trace(tmp_path / "trace.json")
    trace = json.loads((tmp_path / "trace.json").read_text(encoding="utf-8"), parse_constant=_fail)
    assert trace["displayTimeUnit"] == "ms"
    assert trace["otherData"] == {
        "title": "train.py --epochs 3",
        "created": "2030-01-02T03:04:05+00:00",
        "verdict": "data-bound",
    }
    process = next(e for e in trace["traceEvents"] if e["name"] == "process_name")
    assert process["args"] == {"name": "train.py --epochs 3"}
    assert len(_lane(trace, EPOCHS)) == 3
    assert all(math.isfinite(e["dur"]) and e["dur"] >= 0 for e in _lane(trace, LOOP))


def _fail(name: str) -> None:
    raise AssertionError(f"{name} is no JSON")


def test_titles_of_markup_stay_text() -> None:
    """They are JSON strings, and hold no control character."""
    trace = _loaded(replace(reports.marked(), title="a\x1b\udcff\nb"))
    assert trace["otherData"]["title"] == "a�� b"
