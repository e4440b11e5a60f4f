"""A report as plain values and as JSON, as `report.schema.json` beside this module describes it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hotset.doctor.judging.loop import LoopTimes
from hotset.doctor.report import SCHEMA, VERSION
from hotset.placement.plan import Plan

if TYPE_CHECKING:
    from hotset.doctor.report import Report

DERIVED = ("start_share_ms", "loop_ms", "wait_share", "samples_per_s")
"""What a loop's times give besides their fields."""


def as_plain(report: Report) -> dict[str, Any]:
    """The report as plain values: what is infinite or not a number becomes None."""
    return {"schema": SCHEMA, "version": VERSION, **_plain(report)}


def as_json(report: Report) -> str:
    """Likewise as JSON, a line for each part; in ASCII, as a path may hold what has no encoding."""
    parts = as_plain(report).items()
    lines = [f'"{name}": {json.dumps(part, allow_nan=False)}' for name, part in parts]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _plain(value: Any) -> Any:
    if isinstance(value, Plan):
        return _plain(value.as_dict())
    if is_dataclass(value):
        names = [field.name for field in fields(value)]
        names += DERIVED if isinstance(value, LoopTimes) else ()
        return {name: _plain(getattr(value, name)) for name in names}
    if isinstance(value, (np.ndarray, np.generic)):
        return _plain(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    return value
