"""What is asked of the doctor's benchmark."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hotset.errors import ConfigError

SCRIPT = Path("examples/cifar.py")
LOOPS = (
    "read",
    "transform",
    "random_transform",
    "collate",
    "step",
    "few_workers",
    "slow_worker",
    "worker_start",
    "in_memory",
    "float_work",
    "balanced",
)
"""Loops with a planted cause, by key."""


@dataclass(frozen=True)
class DoctorSettings:
    """Parameters of the doctor's benchmark.

    Attributes:
        steps: batches that the doctor watches of each planted loop, and of the script; a timed run
            of a loop has at least as many.
        rounds: timed runs of each loop.
        loops: keys of the planted loops.
        batches: in a timed run of the comparison with and without `hotset.watch`: more than a
            second, since the machine is looked at every half of one.
        step_ms: of its training step.
        watch_rounds: timed runs of that.
        script: that a report is made on; None leaves that out.
        script_rounds: how often.

    Raises:
        ConfigError: if a number is too small, a key unknown, or the script not there.
    """

    steps: int = 100
    rounds: int = 5
    loops: tuple[str, ...] = LOOPS
    batches: int = 1250
    step_ms: float = 1.0
    watch_rounds: int = 9
    script: Path | None = SCRIPT
    script_rounds: int = 3

    def __post_init__(self) -> None:
        for name in ("steps", "rounds", "watch_rounds", "batches"):
            if getattr(self, name) < 1:
                option = f"--{name.replace('_', '-')}"
                raise ConfigError(f"`{option}` must be at least 1, got {getattr(self, name)}")
        unknown = [key for key in self.loops if key not in LOOPS]
        if unknown:
            raise ConfigError(f"`--loop` must be one of {', '.join(LOOPS)}, got {unknown[0]!r}")
        if self.script is not None and not self.script.is_file():
            raise ConfigError(
                f"`--script` must be a training script, got {str(self.script)!r}, which is not "
                "there; `--no-script` leaves it out"
            )

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON; of the script its name alone."""
        return {
            "steps": self.steps,
            "rounds": self.rounds,
            "loops": list(self.loops),
            "batches": self.batches,
            "step_ms": self.step_ms,
            "watch_rounds": self.watch_rounds,
            "script": None if self.script is None else self.script.name,
            "script_rounds": self.script_rounds,
        }
