"""Known traps that a loader may be in."""

from __future__ import annotations

from typing import Any

from hotset.doctor.examination import Examination
from hotset.doctor.findings import Trap


def traps_of(loader: Any, examination: Examination) -> tuple[Trap, ...]:
    """Those that a loader is in."""
    return ()
