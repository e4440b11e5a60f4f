"""How long `hotset doctor` takes for a whole script, as a process of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hotset.bench.timing import Clock, Say, Spread
from hotset.errors import ConfigError

Launch = Callable[[Sequence[str]], "subprocess.CompletedProcess[str]"]


@dataclass(frozen=True)
class ScriptTime:
    """A report on a script.

    Attributes:
        name: of the script.
        steps: batches that it was watched for.
        seconds: of the whole process, from its start to the report's last word.
    """

    name: str
    steps: int
    seconds: Spread

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {"script": self.name, "steps": self.steps, "seconds": self.seconds.as_dict()}


def launched(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """A process that has ended, with what it printed."""
    return subprocess.run(command, capture_output=True, text=True, check=False)


def measure_script(
    script: Path, *, steps: int, rounds: int, say: Say, clock: Clock, launch: Launch = launched
) -> ScriptTime:
    """Times `hotset doctor --steps N SCRIPT`, with a fresh interpreter every time.

    Args:
        script: somebody's training script.
        steps: after which the doctor stops it.
        rounds: how often.
        say: told what is being done.
        clock: gives seconds.
        launch: runs a command to its end.

    Raises:
        ConfigError: if it fails.
    """
    command = [sys.executable, "-m", "hotset", "doctor", "--steps", str(steps), str(script)]
    seconds = []
    for number in range(rounds):
        say(f"a report on {script.name}, round {number + 1} of {rounds}")
        start = clock()
        done = launch(command)
        seconds.append(clock() - start)
        if done.returncode:
            raise ConfigError(
                f"`hotset doctor {script.name}` ended with {done.returncode}, so its time says "
                f"nothing: {done.stderr.strip()[-500:]}"
            )
    return ScriptTime(script.name, steps, Spread(tuple(seconds)))
