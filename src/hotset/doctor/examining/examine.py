"""Looking at a loader outside of its loop, on a few samples."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol, TypeVar

from torch.utils.data import DataLoader

from hotset.chain.probe import own_generators, preserved_generators
from hotset.doctor.examination import Examination
from hotset.doctor.examining.parts import (
    Chain,
    Finished,
    chain_of,
    collate_stage,
    copy_stage,
    finished,
    handed,
    is_collated,
    pin_stage,
    read_stage,
)
from hotset.doctor.examining.siblings import siblings_of
from hotset.doctor.examining.singles import Singles, singles_of
from hotset.doctor.facts import facts_of, fetch_of, is_view
from hotset.doctor.findings import Stage, WorkerTime
from hotset.doctor.machine.usage import Usage
from hotset.doctor.measure import Clock
from hotset.doctor.restoring import attributes_of
from hotset.doctor.traps.traps import traps_of
from hotset.errors import HotsetError
from hotset.kernels.threads import usable_cores
from hotset.loader.epochs import Epochs
from hotset.placement.duration import human_ms
from hotset.placement.link import Link
from hotset.placement.plan import Plan
from hotset.planning.estimate import Estimate
from hotset.planning.handing import Handing
from hotset.planning.planner import estimated
from hotset.planning.request import asked_for

SHARE = 4
"""Single samples, and workers at work, may each take one part in so many of the time there is."""
READS = 30
"""Samples that a plan reads at least, each time counted."""
ROUNDS = 8
"""How often it makes each of the others."""
MOST_SAMPLES = 16
PATIENCE = 4
"""A plan may take so many times as long as all was to take; it says more than anything else."""
MANY_CORES = 1.2
"""Cores that a process keeps busy which computes with several threads."""
Told = Callable[[str], object]
Result = TypeVar("Result")


class Siblings(Protocol):
    """Times the workers of a loader while all of them work; see `siblings_of`."""

    def __call__(
        self, loader: Any, *, seconds: float, sample_s: float, is_limited: bool
    ) -> tuple[WorkerTime, ...]:
        """One for each worker that had something to do."""


def examine(
    loader: Any,
    *,
    link: Link,
    step_ms: float | None = None,
    step_cores: float | None = None,
    seconds: float = 12.0,
    clock: Clock = time.perf_counter,
    cpu_clock: Clock = time.process_time,
    told: Told | None = None,
    siblings: Siblings = siblings_of,
    usage: Usage | None = None,
) -> Examination:
    """What a loader's batches take, part by part, and what hotset would do about it.

    A few samples are read and timed, and worker processes are started for a moment. The loader, its
    dataset, its sampler and all generators stay as they were.

    Args:
        loader: a `DataLoader`; of any other iterable little can be found out.
        link: to the device that batches go to.
        step_ms: what training takes for a batch; None where that is not known.
        step_cores: cores that it keeps busy; None likewise.
        seconds: about what it may take; slow datasets take longer.
        clock: gives seconds, to all but what worker processes time.
        cpu_clock: gives seconds of the processor, all threads of the process together.
        told: told in a few words what is done next; None for nobody.
        siblings: times the workers at work.
        usage: of the machine while the loop ran; traps are seen in it too.
    """
    begun = clock()
    found = _Examining(loader, link, clock, cpu_clock, told or (lambda words: None))
    if isinstance(loader, DataLoader):
        roots = [loader.generator, loader.sampler, loader.batch_sampler, loader.dataset]
        with preserved_generators(own_generators([*roots, loader.collate_fn])):
            made = found.dataloader(step_ms, step_cores, seconds, siblings)
    else:
        made = found.iterable()
    made = replace(made, traps=traps_of(loader, made, usage))
    return replace(made, seconds=clock() - begun)


class _Examining:
    """Collects what is found out, and what could not be."""

    def __init__(self, loader: Any, link: Link, clock: Clock, cpu_clock: Clock, told: Told) -> None:
        self._loader, self._link, self._told = loader, link, told
        self._clock, self._cpu_clock = clock, cpu_clock
        self._notes: list[str] = []

    def iterable(self) -> Examination:
        """Of a loader that is no `DataLoader`: what it says of itself, and what is no secret."""
        loader, facts = self._loader, facts_of(self._loader)
        stages: list[Stage] = []
        nbytes = 0
        if isinstance(loader, Epochs):
            problem = "this loader is hotset's own already; what it does is its `.plan`"
        else:
            problem = f"a {facts.name} is no torch DataLoader: what it reads cannot be seen"
            self._notes.append(
                f"{facts.name} is no torch DataLoader: its parts cannot be told apart, and it was "
                "not iterated, since that might change it"
            )
        if isinstance(loader, (list, tuple)) and loader:
            made = Finished(loader[0], 1.0)
            nbytes = made.nbytes
            stages += self._moving(made, False)
        return Examination(
            facts=facts,
            cores=usable_cores(),
            stages=tuple(stages),
            batch_bytes=nbytes,
            plan_problem=problem,
            notes=tuple(self._notes),
        )

    def dataloader(
        self,
        step_ms: float | None,
        step_cores: float | None,
        seconds: float,
        siblings: Siblings,
    ) -> Examination:
        """Of a `DataLoader`."""
        with attributes_of(self._loader):  # which workers would inherit
            found, singles = self._here(step_ms, step_cores, seconds)
        workers, limited = self._workers(found, singles, seconds, siblings)
        return replace(found, workers=workers, limited=limited, notes=tuple(self._notes))

    def _here(
        self, step_ms: float | None, step_cores: float | None, seconds: float
    ) -> tuple[Examination, Singles]:
        """What is found out in this process, and single samples."""
        facts, fetch = facts_of(self._loader), fetch_of(self._loader)
        self._fetch, self._lanes = fetch, max(1, facts.workers)
        self._told("timing single samples")
        singles = singles_of(
            fetch, seconds=seconds / SHARE, clock=self._clock, cpu_clock=self._cpu_clock
        )
        self._notes += singles.notes
        if singles.items and not fetch.is_stream and is_view(fetch.dataset, singles.items[0]):
            facts = replace(facts, is_in_memory=True)
        plan, estimate, problem = self._plan(singles, step_ms, step_cores, seconds)
        chain = self._chain(singles, estimate, seconds)
        stages = self._reading(chain, singles)
        made, collating = self._batch(singles, estimate)
        handing = self._handing(made, estimate)
        stages += collating
        if facts.workers and handing is not None:
            stages.append(Stage("hand-over", "hand-over", handing.batch_ms))
        stages += self._moving(made, facts.is_pinned)
        found = Examination(
            facts=facts,
            cores=usable_cores(),
            stages=tuple(stages),
            first_read_ms=None if singles.first_ms is None else singles.first_ms * fetch.items,
            cpu_cores=singles.cores,
            batch_bytes=0 if made is None else made.nbytes,
            samples=singles.times,
            start_ms=0.0 if handing is None else handing.start_ms,
            hand_ms=0.0 if handing is None else handing.batch_ms,
            float_steps=() if chain is None else chain.float_steps(plan),
            plan=plan,
            plan_problem=problem,
        )
        return found, singles

    def _plan(
        self, singles: Singles, step_ms: float | None, step_cores: float | None, seconds: float
    ) -> tuple[Plan | None, Estimate | None, str]:
        """The plan and what was measured for it; or why there is none."""
        if _is_long(singles, seconds):
            return (
                None,
                None,
                (
                    f"a plan reads {READS} samples at least, which take {human_ms(singles.ms)} "
                    "each; hotset.plan(loader) takes the time"
                ),
            )
        self._told("looking at what could be kept")
        try:
            asked = asked_for(
                self._loader,
                link=self._link,
                placing={"tier": "auto", "budget": None, "reserve": 0, "policy": "auto"},
                step=step_ms,
                step_cores=step_cores,
                samples=_count(singles, seconds),
            )
            plan, estimate = estimated(asked, clock=self._clock, cpu_clock=self._cpu_clock)
        except HotsetError as error:
            return None, None, str(error)
        except Exception as error:  # the user's own code runs in it, and may raise anything
            return None, None, f"planning failed: {type(error).__name__}: {error}"
        return plan, estimate, ""

    def _chain(self, singles: Singles, estimate: Estimate | None, seconds: float) -> Chain | None:
        """The dataset's reading and steps apart; None where that cannot be."""
        fetch = self._fetch
        if fetch.makes_batches or fetch.is_stream or fetch.is_whole or not singles.items:
            return None
        if estimate is not None:
            chain = Chain(estimate.wanted, estimate.measured)
            return chain if chain.names else None  # reading alone is timed with less about it
        if _is_long(singles, seconds):
            return None
        self._told("timing each step")
        found = self._tried(
            f"the steps of {fetch.name} are timed with its reading, and not apart",
            lambda: chain_of(
                fetch.dataset,
                _count(singles, seconds),
                clock=self._clock,
                cpu_clock=self._cpu_clock,
            ),
        )
        return found if found is not None and found.names else None

    def _reading(self, chain: Chain | None, singles: Singles) -> list[Stage]:
        """Reading a batch, its steps apart where they can be told so."""
        fetch = self._fetch
        if chain is not None:
            return list(chain.stages(fetch, self._lanes))
        if not singles.items:
            return []
        if fetch.is_whole:
            self._notes.append(
                f"{fetch.name} has __getitems__, which makes whole batches: its steps are timed "
                "with its reading"
            )
        elif fetch.makes_batches:
            self._notes.append(f"each item of {fetch.name} is a whole batch, and is timed as one")
        stage = self._tried(
            f"a batch of {fetch.name} could not be read",
            lambda: read_stage(fetch, singles, self._lanes, self._clock),
        )
        return [] if stage is None else [stage]

    def _batch(
        self, singles: Singles, estimate: Estimate | None
    ) -> tuple[Finished | None, list[Stage]]:
        """A finished batch, and what putting it together takes."""
        if not singles.items:
            return None, []
        what = "no batch could be put together"
        made = self._tried(what, lambda: finished(self._fetch, singles.items))
        if made is None or not is_collated(self._fetch):
            return made, []
        if estimate is not None:
            ms = estimate.collate_ms * self._fetch.items
            return made, [Stage("collate", "collate", ms, lanes=self._lanes)]
        stage = self._tried(
            what, lambda: collate_stage(self._fetch, singles.items, self._lanes, self._clock)
        )
        return made, [] if stage is None else [stage]

    def _handing(self, made: Finished | None, estimate: Estimate | None) -> Handing | None:
        """Starting workers, and handing batches over; None where that could not be seen."""
        if estimate is not None and self._loader.num_workers:
            return estimate.handing
        if made is None:
            return None
        self._told("starting workers that only hand over")
        return self._tried(
            "handing a batch over could not be timed",
            lambda: handed(self._loader, made, self._clock),
        )

    def _moving(self, made: Finished | None, is_pinned: bool) -> list[Stage]:
        """Pinning a batch, where that is asked for, and copying it."""
        if made is None:
            return []
        found: list[Stage | None] = []
        if is_pinned and self._link.device.type == "cuda":
            what = "pinning a batch could not be timed"
            found.append(self._tried(what, lambda: pin_stage(made, self._clock)))
        what = f"copying to {self._link.name} could not be timed"
        found.append(self._tried(what, lambda: copy_stage(made.nbytes, self._link)))
        return [stage for stage in found if stage is not None]

    def _workers(
        self, found: Examination, singles: Singles, seconds: float, siblings: Siblings
    ) -> tuple[tuple[WorkerTime, ...], tuple[WorkerTime, ...]]:
        """What each worker takes while all work; and so with one thread each, if that may help."""
        workers = found.facts.workers
        if not workers or not singles.items:
            return (), ()

        def timed(held: str) -> tuple[WorkerTime, ...]:
            words = "1 worker" if workers == 1 else f"{workers} workers"
            self._told(f"starting {words}{held}")
            took = self._tried(
                f"the workers could not be timed{held}",
                lambda: siblings(
                    self._loader,
                    seconds=seconds / SHARE,
                    sample_s=singles.ms / 1000,
                    is_limited=bool(held),
                ),
            )
            return took or ()

        took = timed("")
        is_crowded = singles.cores > MANY_CORES and workers * singles.cores > found.cores
        return took, timed(", held to one thread each") if took and is_crowded else ()

    def _tried(self, otherwise: str, work: Callable[[], Result]) -> Result | None:
        """What some work gives; None where it fails, which is noted."""
        try:
            return work()
        except Exception as error:  # the user's own code runs in it, and may raise anything
            self._notes.append(f"{otherwise}: {_words(error)}")
            return None


def _is_long(singles: Singles, seconds: float) -> bool:
    """Whether a plan would take far longer than there is time."""
    return singles.ms / 1000 * READS > PATIENCE * seconds


def _count(singles: Singles, seconds: float) -> int:
    """Samples that a plan may measure in about half of the time there is."""
    left = seconds / 2 - READS * singles.ms / 1000
    fitting = left / (ROUNDS * singles.ms / 1000) if singles.ms > 0 else MOST_SAMPLES
    return int(max(2, min(MOST_SAMPLES, fitting)))


def _words(error: Exception) -> str:
    """An error in words: hotset's own say all, of others the class is told too."""
    return str(error) if isinstance(error, HotsetError) else f"{type(error).__name__}: {error}"
