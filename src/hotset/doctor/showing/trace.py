"""A loop for a trace viewer: Chrome's trace-event format, which Perfetto opens too.

Source: "Trace Event Format", the Chromium project; times in microseconds.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from hotset.doctor.phrases import shown

if TYPE_CHECKING:
    from hotset.doctor.report import Report

PROCESS = 1
EPOCHS, LOOP, DEVICE = 1, 2, 3
LANES = {EPOCHS: "epochs", LOOP: "loop", DEVICE: "device stands still"}
Event = dict[str, Any]


def as_trace(report: Report) -> str:
    """The loop as JSON for a trace viewer; its clock begins with the loop.

    A step that other loaders were waited for in is drawn without that: it ends before the next
    wait begins.
    """
    title, has_device = shown(report.title), bool((~np.isnan(report.timeline.idle_s)).any())
    events = [*_names(title, has_device=has_device), *_events(report)]
    about = {"title": title, "created": report.created, "verdict": report.verdict.bound}
    lines = ",\n".join(json.dumps(event, allow_nan=False) for event in events)
    head = f'{{"displayTimeUnit": "ms", "otherData": {json.dumps(about)}, "traceEvents": ['
    return f"{head}\n{lines}\n]}}\n"


def _names(title: str, *, has_device: bool) -> Iterator[Event]:
    yield _about(0, "process_name", name=title)
    for lane, name in LANES.items():
        if lane != DEVICE or has_device:
            yield _about(lane, "thread_name", name=name)
            yield _about(lane, "thread_sort_index", sort_index=lane)


def _about(lane: int, what: str, **args: Any) -> Event:
    return {"ph": "M", "pid": PROCESS, "tid": lane, "name": what, "args": args}


def _events(report: Report) -> Iterator[Event]:
    times = report.timeline
    if not len(times):
        return
    # Whole nanoseconds: what ends where the next begins must not overlap it by a rounding.
    begins = _ns(times.begin_s - times.begin_s[0])
    comes = _ns(times.begin_s + times.wait_s - times.begin_s[0])
    ends = np.where(np.isnan(times.step_s), comes, comes + _ns(np.nan_to_num(times.step_s)))
    ends[:-1] = np.minimum(ends[:-1], np.maximum(begins[1:], comes[:-1]))
    for epoch, end_s in enumerate(times.end_s.tolist()):
        rows = np.flatnonzero(times.epoch == epoch)
        if not len(rows):
            continue
        first, last = int(rows[0]), int(rows[-1])
        known = not math.isnan(end_s)
        over = int(ends[last]) + (int(_ns(end_s)) if known else 0)
        args = {"batches": len(rows), "is_whole": known}
        yield _span(EPOCHS, f"epoch {epoch + 1}", int(begins[first]), over, **args)
        for row in rows.tolist():
            begin, come, end = int(begins[row]), int(comes[row]), int(ends[row])
            args = {"batch": row, "epoch": epoch, "samples": int(times.samples[row])}
            yield _span(LOOP, "epoch start" if row == first else "wait", begin, come, **args)
            if end > come:
                yield _span(LOOP, "step", come, end, **args)
                share = 100 * (come - begin) / (end - begin)
                yield {**_at("waiting", begin), "ph": "C", "args": {"%": round(share, 3)}}
            idle = float(times.idle_s[row])
            if not math.isnan(idle):
                yield _span(DEVICE, "idle", come - int(_ns(idle)), come, **args)
        if known:
            yield _span(LOOP, "epoch end", int(ends[last]), over, epoch=epoch)


def _span(lane: int, name: str, begin_ns: int, end_ns: int, **args: Any) -> Event:
    """Something that took from one time to another."""
    duration = (end_ns - begin_ns) / 1000
    return {**_at(name, begin_ns), "ph": "X", "tid": lane, "dur": duration, "args": args}


def _at(name: str, ns: int) -> Event:
    return {"name": name, "pid": PROCESS, "ts": ns / 1000}


def _ns(seconds: Any) -> Any:
    """Whole nanoseconds of seconds, one or many."""
    return np.rint(np.asarray(seconds) * 1e9).astype(np.int64)
