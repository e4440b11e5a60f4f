"""`hotset …` with stand-ins for what measures and examines, so that what they are given is seen.

Run as a script, it does what the command does. The report that it makes says what reached it, and
nothing that depends on a clock.
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any


@dataclass(frozen=True)
class Ran:
    """How a command ended, and what it printed."""

    code: int
    out: bytes
    err: str

    @property
    def facts(self) -> Any:
        """What the stand-in's report says."""
        lines = [line for line in self.err.splitlines() if line.startswith("REPORT ")]
        assert len(lines) == 1, self.err
        return json.loads(lines[0].removeprefix("REPORT "))


def command(*arguments: str, here: Path, **environment: str) -> Ran:
    """Runs the command in a folder."""
    return _ran([__file__, *arguments], here, environment)


def python(*arguments: str, here: Path, **environment: str) -> Ran:
    """Runs Python itself, to compare with."""
    return _ran(list(arguments), here, environment)


def _ran(arguments: list[str], here: Path, environment: dict[str, str]) -> Ran:
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=here,
        env={**os.environ, **environment},
        capture_output=True,
        timeout=110,
        check=False,
    )
    return Ran(done.returncode, done.stdout, done.stderr.decode())


@dataclass(frozen=True)
class Report:
    """Facts in place of findings."""

    facts: dict[str, Any] = field(default_factory=dict)

    def text(self, width: int) -> str:
        return "REPORT " + json.dumps(self.facts)

    def to_json(self, path: Path) -> None:
        path.write_text(json.dumps(self.facts))

    def to_html(self, path: Path) -> None:
        path.write_text("<p>" + json.dumps(self.facts))

    def to_trace(self, path: Path) -> None:
        path.write_text("[]")


class Machine:
    """Counts how often it is looked at."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def begin(self) -> None:
        self.calls.append("begin")

    def look(self) -> bool:
        self.calls.append("look")
        return False

    def settle(self) -> None:
        self.calls.append("settle")

    def end(self) -> list[str]:
        self.calls.append("end")
        return self.calls


def diagnosed(
    loader: Any,
    recording: Any,
    *,
    title: str,
    usage: Any,
    device: Any,
    loaders: Any,
    notes: Any,
    told: Any,
    batch_us: float,
) -> Report:
    """What there would be to report on."""
    import torch

    told("examining")
    times = recording.timeline()
    if os.environ.get("FAILS"):
        raise ValueError("the data is closed")
    again = pickle.loads(pickle.dumps(loader.dataset))
    return Report(
        {
            "title": title,
            "loader": type(loader).__name__,
            "batches": len(times),
            "samples": times.samples.tolist(),
            "epochs": times.epoch.tolist(),
            "open_steps": int((times.step_s != times.step_s).sum()),
            "ends": (times.end_s == times.end_s).tolist(),
            "waits": bool((times.wait_s >= 0).all()),
            "first": [int(i.sum()) for i in next(iter(loader)) if torch.is_tensor(i)]
            if os.environ.get("LOOKS")
            else [],
            "same_dataset": type(again) is type(loader.dataset),
            "cost": batch_us > 0,
            "workers": len(torch.multiprocessing.active_children()),
            "usage": usage,
            "device": device,
            "loaders": [
                [each.name, each.batches, each.epochs, each.is_examined] for each in loaders
            ],
            "notes": list(notes),
        }
    )


def stand_in() -> None:
    """Puts the stand-ins in place of the modules."""
    for name, values in (
        ("diagnosis", {"diagnosed": diagnosed}),
        ("machine.machine", {"Machine": Machine}),
        ("machine.cuda", {"spans_if_used": lambda: None}),
    ):
        module = ModuleType(f"hotset.doctor.{name}")
        vars(module).update(values)
        sys.modules[module.__name__] = module


if __name__ == "__main__":
    stand_in()
    from hotset.cli import main
    from hotset.doctor.scripts import script

    script.LEAVE_AFTER_S = float(os.environ.get("LEAVE_S", script.LEAVE_AFTER_S))

    sys.exit(main(sys.argv[1:]))
