"""The plan: what happens to each step, where the data is kept, and why."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from hotset.chain.split import Decision
from hotset.placement.size import human_bytes
from hotset.placement.tiers import Tier


@dataclass(frozen=True)
class Plan:
    """What an accelerated loader does. Printing it gives a table.

    Attributes:
        decisions: one per step: once, table, batch or worker, with the reason.
        device: where batches come out.
        tier: "device" (resident there), "mixed" (a part there, the rest copied when it is wanted),
            "host" (resident in host memory, copied batch by batch), "disk" (memory-mapped from a
            store, likewise), or "source" (not kept: read through the user's own dataset).
        samples: number of samples.
        bytes_held: bytes the kept data takes.
        kernel: what executes the batched steps.
        notes: further things worth knowing.
        cached: samples that the device has room for.
        rest: where the others lie, "host" or "disk"; empty where there are none.
        policy: which samples the device keeps, and why so; empty where it keeps all or none.
    """

    decisions: tuple[Decision, ...]
    device: str
    tier: Tier
    samples: int
    bytes_held: int
    kernel: str
    notes: tuple[str, ...] = ()
    cached: int = 0
    rest: str = ""
    policy: str = ""

    def as_dict(self) -> dict[str, Any]:
        """The plan as plain values, for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        rows = [("step", "what", "why")]
        rows += [(d.step, d.action, d.reason) for d in self.decisions]
        first = max(len(row[0]) for row in rows)
        second = max(len(row[1]) for row in rows)
        lines = [f"{a:<{first}}  {b:<{second}}  {c}" for a, b, c in rows]
        if not self.decisions:
            lines = ["no transform steps"]
        held = human_bytes(self.bytes_held)
        lines.append(f"data: {self.samples:,} samples, {held}, {self._place()}")
        if self.policy:
            lines.append(f"policy: {self.policy}")
        lines.append(f"kernel: {self.kernel}")
        lines.extend(f"note: {note}" for note in self.notes)
        return "\n".join(lines)

    def _place(self) -> str:
        """Where the samples are, in words."""
        copied = "" if self.device.startswith("cpu") else f", batches copied to {self.device}"
        if self.tier == "device":
            return f"resident on {self.device}"
        if self.tier == "source":
            return "not kept: read through the dataset itself"
        lies = {"host": "resident in host memory", "disk": "mapped from disk"}
        if self.tier == "mixed":
            others = f"the others {lies[self.rest]} and copied there"
            return f"{self.cached:,} of them on {self.device}, {others}"
        return lies[self.tier] + copied
