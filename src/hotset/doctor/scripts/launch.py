"""The doctor's report on somebody's script, which runs unedited.

Nothing here imports torch or NumPy before the script does.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, Any

from hotset.doctor.scripts.script import Outcome, Target, hooked, run_target
from hotset.doctor.scripts.tracks import Tracks, own_cost_us
from hotset.errors import ConfigError
from hotset.progress import Told

if TYPE_CHECKING:
    from hotset.doctor.report import Report

Said = Callable[[str], object]
"""Called with words for a person."""


def doctor(
    target: Target,
    *,
    steps: int | None = None,
    seconds: float | None = None,
    device: Any = None,
    told: Said | None = None,
    counted: Told | None = None,
    said: Said | None = None,
) -> tuple[Report | None, Outcome]:
    """Runs a script unedited, and examines the loader that it waited for most.

    Args:
        target: what to run.
        steps: batches, of all loaders together, after which the script is stopped; None lets it run
            to its end.
        seconds: likewise, since the first batch was asked for.
        device: that training wants its batches on; None leaves that to the examination.
        told: called with what is being done, in a few words, once the script is over.
        counted: called with the batches so far, and those there will be, while it runs.
        said: called with what is to stay on the screen: a line, or a few.

    Returns:
        The report, and how the script ended. There is no report where no loader gave a batch, where
        the loader could not be examined, and for all but the first of several processes that
        train together.

    Raises:
        ConfigError: if there is no such script, or if `steps` or `seconds` are not above zero.
    """
    for name, limit in (("steps", steps), ("seconds", seconds)):
        if limit is not None and not limit > 0:
            raise ConfigError(f"`{name}` must be above zero, got {limit!r}")
    said = said or (lambda _: None)
    process, is_first = os.getpid(), _is_first()
    tracks = Tracks(steps=steps, seconds=seconds, told=counted)
    with hooked(tracks):
        outcome = run_target(target)
    if os.getpid() != process or not is_first:  # in a process that the script has forked, too
        return None, outcome
    usage = tracks.finish()
    examined = tracks.examined
    if examined is None or examined.loader is None or examined.recording is None:
        said(_why_nothing(tracks))
        return None, outcome
    end = _end(tracks, outcome)
    said(f"{end}; examining {examined.name}")
    notes = [] if outcome.error is None else [f"{end}; the times are from before"]
    if tracks.is_threaded:
        notes.append(
            "batches were taken in a thread other than the main one: a wait is that thread's, and "
            "a step lasts until it asks for the next batch"
        )
    from hotset.doctor.diagnosis import diagnosed

    try:
        with open(os.devnull, "w") as silent, redirect_stdout(silent):  # for what a dataset prints
            report = diagnosed(
                examined.loader,
                examined.recording,
                title=f"-m {target.name}" if target.is_module else target.name,
                usage=usage,
                device=device,
                loaders=tracks.shares(),
                notes=tuple(notes),
                told=told,
                batch_us=own_cost_us(),
            )
    except Exception:  # the script's data may fail in any way now, and its exit code must be told
        said(f"no report: the loader could not be examined\n{traceback.format_exc().rstrip()}")
        return None, outcome
    return report, outcome


def _is_first() -> bool:
    """Whether this process is the first, or the only one, of those that train together."""
    return all(os.environ.get(name) in (None, "", "0") for name in ("RANK", "LOCAL_RANK"))


def _end(tracks: Tracks, outcome: Outcome) -> str:
    """How the script ended, in words."""
    loaders = len(tracks.given)
    batches = f"{tracks.batches:,} batches" if tracks.batches > 1 else "1 batch"
    after = f"after {batches}" + (f" of {loaders} loaders" if loaders > 1 else "")
    if outcome.was_stopped:
        return f"stopped {after}"
    if isinstance(outcome.error, KeyboardInterrupt):
        return f"the script was interrupted {after}"
    if outcome.error is not None:
        return f"the script failed {after}, with {type(outcome.error).__name__}"
    return f"the script ended {after}"


def _why_nothing(tracks: Tracks) -> str:
    """Why there is nothing to report."""
    if tracks.made_count:
        return "no report: the script made a DataLoader, but took no batch from it in this process"
    return (
        "no report: the script made no torch DataLoader in this process; only those are looked at, "
        "and none in processes that it starts"
    )
