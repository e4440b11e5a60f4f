"""Known traps that a loader may be in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.utils.data import DataLoader

from hotset.doctor.examination import Examination
from hotset.doctor.findings import Trap
from hotset.doctor.machine.usage import Usage
from hotset.doctor.traps.memory import (
    float_work,
    growing,
    in_memory,
    on_a_device,
    pinned_for_nothing,
    small_shared_memory,
)
from hotset.doctor.traps.seen import Seen
from hotset.doctor.traps.workers import (
    fork_after_cuda,
    repeated_draws,
    start_per_epoch,
    too_many_workers,
    whole_streams,
)

SHARED_MEMORY = "/dev/shm"
LOOKS: tuple[Callable[[Seen], Trap | None], ...] = (
    repeated_draws,
    whole_streams,
    fork_after_cuda,
    on_a_device,
    in_memory,
    float_work,
    start_per_epoch,
    too_many_workers,
    small_shared_memory,
    growing,
    pinned_for_nothing,
)
"""Each looks for one trap; what makes results wrong first."""


def traps_of(
    loader: Any,
    examination: Examination,
    usage: Usage | None = None,
    *,
    shared_memory: str = SHARED_MEMORY,
) -> tuple[Trap, ...]:
    """Those that a loader is in.

    A few samples are read, and where generators of the dataset's own may repeat themselves, two
    workers are started on them. The loader, its dataset and all generators stay as they were.

    Args:
        loader: a `DataLoader`; others are in none of these traps.
        examination: what was found out about it, on a few samples.
        usage: of the machine while its loop ran; None where that was not seen.
        shared_memory: where tensors lie that processes share.
    """
    if not isinstance(loader, DataLoader):
        return ()
    seen = Seen(loader, examination, usage, shared_memory)
    found = (look(seen) for look in LOOKS)
    return tuple(trap for trap in found if trap is not None)
