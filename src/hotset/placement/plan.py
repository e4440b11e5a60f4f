"""The plan: what happens to each step, where the data is kept, and why."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from hotset.chain.split import Decision

Tier = Literal["device", "host", "disk", "source"]


@dataclass(frozen=True)
class Plan:
    """What an accelerated loader does. Printing it gives a table.

    Attributes:
        decisions: one per step: once, table, batch or worker, with the reason.
        device: where batches come out.
        tier: "device" (resident there), "host" (resident in host memory, copied batch by batch), or
            "disk" (memory-mapped from a store, likewise), or "source" (not kept: read through the
            user's own dataset).
        samples: number of samples.
        bytes_held: bytes the resident data takes.
        kernel: what executes the batched steps.
        notes: further things worth knowing.
    """

    decisions: tuple[Decision, ...]
    device: str
    tier: Tier
    samples: int
    bytes_held: int
    kernel: str
    notes: tuple[str, ...] = ()

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
        places = {
            "device": f"resident on {self.device}",
            "host": f"resident in host memory, batches copied to {self.device}",
            "disk": "mapped from disk",
            "source": "not kept: read through the dataset itself",
        }
        if not self.device.startswith("cpu"):
            places["disk"] += f", batches copied to {self.device}"
        lines.append(
            f"data: {self.samples:,} samples, {human_bytes(self.bytes_held)}, {places[self.tier]}"
        )
        lines.append(f"kernel: {self.kernel}")
        lines.extend(f"note: {note}" for note in self.notes)
        return "\n".join(lines)


def human_bytes(count: float) -> str:
    """Bytes with a unit, in powers of ten.

    Example:
        >>> human_bytes(153_600_000)
        '153.6 MB'
    """
    for unit in ("bytes", "KB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"
