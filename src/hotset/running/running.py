"""`hotset run`: a script as it is, with every loader accelerated that provably may be.

Nothing here imports torch before the script does; see `hotset.doctor.scripts.hooks`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hotset.doctor.scripts.script import Outcome, Target, hooked, run_target
from hotset.running.summary import Summary

if TYPE_CHECKING:
    from torch.utils.data import DataLoader

    from hotset.progress import Told
    from hotset.running.substitution import Substitution

EXIT_FAILED = 1
DRY = (
    "nothing was done, and the script was stopped where it first went through a loader: those it "
    "would make later were not seen"
)
WHERE = (
    "batches came out on the device: where that is what went wrong, `--device cpu` gives them as "
    "the script has them without hotset"
)


def run(
    target: Target,
    *,
    device: str | None = None,
    is_dry: bool = False,
    told: Told | bool | None = None,
) -> tuple[Summary, Outcome]:
    """Runs a script with every loader accelerated that provably may be; all others are left alone.

    For the same `torch.manual_seed` batches are the same, and so are the generators that the script
    draws from, where no step of the transforms is random. Where one is, samples and their order
    stay the same, and the parameters have the same distribution (without workers, the order from
    the second epoch on is another one, just as random).

    Args:
        target: the script.
        device: where batches of accelerated loaders come out; None is CUDA if the script has
            initialised it when it first goes through a loader, and the CPU if not.
        is_dry: says what would be done, and stops the script where it first goes through a loader.
        told: called with (samples read, total) while samples are read once; None or True for a bar
            on standard error where that is a terminal, False for silence.

    Returns:
        What was done, and how the script ended. A batch that differs from what the dataset itself
        gives ends it: the error is then a `FaithfulnessError`.

    Raises:
        ConfigError: if there is no such script or module, or `told` is none of these.
    """
    hooks, began = _Late(device=device, is_dry=is_dry, told=told), time.perf_counter()
    with hooked(hooks):
        outcome = run_target(target)
    seconds, found = time.perf_counter() - began, hooks.found
    notes: list[str] = []
    if found is not None and found.unfaithful is not None:
        outcome = replace(outcome, code=EXIT_FAILED, error=found.unfaithful, was_stopped=False)
    loaders = () if found is None else found.runs()
    if is_dry and found is not None:
        notes.append(DRY if outcome.was_stopped else "nothing was done")
    is_there = any(r.is_accelerated and r.plan and r.plan.device != "cpu" for r in loaders)
    if outcome.error is not None and is_there and not is_dry:
        notes.append(WHERE)
    title = f"-m {target.name}" if target.is_module else target.name
    return Summary(title, is_dry, seconds, loaders, tuple(notes)), outcome


class _Late:
    """Hooks that are made when the script has made its first loader, and with it loaded torch."""

    def __init__(self, **options: Any) -> None:
        self._options = options
        self.found: Substitution | None = None

    def _hooks(self) -> Substitution:
        if self.found is None:
            from hotset.running.substitution import Substitution

            self.found = Substitution(**self._options)
        return self.found

    def made(self, loader: DataLoader[Any]) -> None:
        self._hooks().made(loader)

    def iterate(self, loader: DataLoader[Any], plain: Callable[[], Iterator[Any]]) -> Iterator[Any]:
        return self._hooks().iterate(loader, plain)

    def take(self, iterator: Iterator[Any], plain: Callable[[], Any]) -> Any:
        return self._hooks().take(iterator, plain)
