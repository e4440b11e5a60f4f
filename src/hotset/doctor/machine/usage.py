"""What of the machine was used while a loop ran."""

from __future__ import annotations

from dataclasses import dataclass

SETTLED = 8
"""Batches after which memory should have stopped growing, so that growth is one."""
LEAST_S = 1.0
"""What is looked at for less is not told of."""


@dataclass(frozen=True)
class GpuUse:
    """A GPU while the loop ran.

    Attributes:
        name: of the device.
        busy: 0 to 1, the share of samples in which some kernel ran; None where nobody knows.
        memory_bytes: most that was taken at once, by all processes; None likewise.
        memory_total_bytes: that there is.
        samples: (seconds since the loop began, share busy) pairs, oldest first.
    """

    name: str
    busy: float | None
    memory_bytes: int | None
    memory_total_bytes: int
    samples: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True)
class Usage:
    """The machine while a loop ran: its processes are this one and its children.

    Attributes:
        seconds: that were looked at.
        cores_busy: cores that its processes kept busy; None where nobody knows, as all below.
        cores_busy_all: cores that all processes of the machine kept busy.
        read_bytes: bytes that its processes had storage read for them.
        cached_bytes: bytes that its processes read, and the system had in memory already.
        memory_bytes: resident memory of its processes at the end, shared pages counted once.
        growth_bytes: by how much that grew from the end of the first epoch or the first few
            batches on, as last seen with as many processes as then; None where that was not seen.
        gpus: those that there are; empty without NVML.
        notes: what could not be seen, and what to install for it.
    """

    seconds: float
    cores_busy: float | None = None
    cores_busy_all: float | None = None
    read_bytes: int | None = None
    cached_bytes: int | None = None
    memory_bytes: int | None = None
    growth_bytes: int | None = None
    gpus: tuple[GpuUse, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def others_busy(self) -> float:
        """Cores that processes of others kept busy; 0 where nobody knows.

        Systems count in ticks of 10 ms: a moment says nothing.
        """
        if self.cores_busy is None or self.cores_busy_all is None or self.seconds < LEAST_S:
            return 0.0
        return max(0.0, self.cores_busy_all - self.cores_busy)
