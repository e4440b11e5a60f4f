"""What `import hotset` adds to `import torch`."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from typing import Any

from hotset.bench.timing import Say, Spread, rotated

PLAIN = """
import time
start = time.perf_counter()
import torch
print((time.perf_counter() - start) * 1e3)
"""
WITH_HOTSET = """
import time
start = time.perf_counter()
import torch
torch_done = time.perf_counter()
import hotset
hotset_done = time.perf_counter()
hotset.accelerate, hotset.Loader, hotset.CachedDataset
used = time.perf_counter()
print((hotset_done - start) * 1e3, (hotset_done - torch_done) * 1e3, (used - torch_done) * 1e3)
"""


@dataclass(frozen=True)
class ImportCost:
    """Milliseconds in fresh interpreters.

    Attributes:
        torch_ms: of `import torch`.
        both_ms: of `import torch` and `import hotset`.
        hotset_ms: of `import hotset` after torch has been imported.
        use_ms: of that and of the first use of its names, which imports what stands behind them.
    """

    torch_ms: Spread
    both_ms: Spread
    hotset_ms: Spread
    use_ms: Spread

    @property
    def added_ms(self) -> Spread:
        """What the two imports take beyond `import torch`, round by round."""
        return self.both_ms.minus(self.torch_ms)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "torch_ms": self.torch_ms.as_dict(),
            "torch_and_hotset_ms": self.both_ms.as_dict(),
            "added_ms": self.added_ms.as_dict(),
            "hotset_after_torch_ms": self.hotset_ms.as_dict(),
            "hotset_and_first_use_after_torch_ms": self.use_ms.as_dict(),
        }


def measure_imports(rounds: int, say: Say) -> ImportCost:
    """The imports, each pair in two fresh interpreters, one after the other, in turn."""
    _milliseconds(WITH_HOTSET)  # writes the byte code, fills the file cache
    found: dict[str, list[list[float]]] = {PLAIN: [], WITH_HOTSET: []}
    for number in range(rounds):
        say(f"imports, round {number + 1} of {rounds}")
        for code in rotated(list(found), number):
            found[code].append(_milliseconds(code))
    columns = [*zip(*found[PLAIN], strict=True), *zip(*found[WITH_HOTSET], strict=True)]
    return ImportCost(*map(Spread, columns))


def _milliseconds(code: str) -> list[float]:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return [float(value) for value in done.stdout.split()]
