"""Reading all samples of a loader once, and saying so where that takes a while."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.utils.data import DataLoader

from hotset.loader.loader import Loader, accelerate
from hotset.placement.duration import human_ms
from hotset.placement.plan import Plan
from hotset.progress import Progress, Told, shown

LONG_S = 5.0
"""From this on a script that says nothing would look as if it hung."""


def filled(
    loader: DataLoader[Any], plan: Plan, *, name: str, told: Told | bool | None = None
) -> Loader:
    """The accelerated loader. What is predicted to take long is announced on standard error.

    Args:
        loader: to accelerate.
        plan: for it.
        name: the dataset's.
        told: as for `running.run`; a callable or False is told of no announcement.

    Raises:
        HotsetError: if it cannot be accelerated.
    """
    found = plan.prediction
    seconds = 0.0 if found is None else found.first_s - found.steady_s
    if seconds > LONG_S and (told is None or told is True):
        takes = human_ms(1000 * seconds)
        Progress().say(f"hotset: reading {plan.samples:,} samples once, about {takes}")
    with shown(told, f"reading {name} once") as shows:
        return accelerate(loader, device=plan.device, progress=_telling(shows))


def _telling(told: Told | None) -> Callable[[int, int], None] | None:
    def tell(done: int, total: int) -> None:
        if told is not None:
            told(done, total)

    return None if told is None else tell
