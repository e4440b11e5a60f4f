"""What is done to one loader of a script, or to several that are alike, and what that takes."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch.utils.data import DataLoader, IterableDataset, Subset

from hotset.doctor.measure import Recording, Timeline
from hotset.kernels.threads import usable_cores
from hotset.loader.loader import Loader
from hotset.placement.plan import Plan
from hotset.placement.prediction import Prediction
from hotset.running.proof import name_of
from hotset.running.snapshot import Snapshot
from hotset.running.summary import LoaderRun
from hotset.running.witness import Witness

# Seen on two cores with two workers: a loop of 15 s where 5 s were predicted.
CROWDED = (
    "workers and training want more cores than there are: the plain loader can have taken several "
    "times as long as predicted"
)


@dataclass(frozen=True)
class Settings:
    """What makes two loaders over one dataset alike.

    Attributes:
        kind: their class.
        batch_size: of their batches; None where it is not known.
        drop_last: whether a short last batch is left out.
        samplers: the classes of their batch sampler and sampler.
        workers: their number, how far each is ahead, and whether they stay.
        calls: names of collate_fn and worker_init_fn.
        device: where batches are to come out.
    """

    kind: type
    batch_size: int | None
    drop_last: Any
    samplers: tuple[type, type]
    workers: tuple[Any, ...]
    calls: tuple[str, str]
    device: str

    @classmethod
    def of(cls, loader: DataLoader[Any], device: str) -> Settings:
        """Those of a loader."""
        batches = loader.batch_sampler
        size = getattr(batches, "batch_size", loader.batch_size)
        return cls(
            kind=type(loader),
            batch_size=size if isinstance(size, int) else None,
            drop_last=getattr(batches, "drop_last", None),
            samplers=(type(batches), type(getattr(batches, "sampler", loader.sampler))),
            workers=(loader.num_workers, loader.prefetch_factor, loader.persistent_workers),
            calls=(name_of(loader.collate_fn), name_of(loader.worker_init_fn)),
            device=device,
        )


class Job:
    """What is done to a loader, and to those that are like it over the same dataset.

    Args:
        settings: of the loader.
        dataset: its dataset.
        recording: takes in its times.

    Attributes:
        name: the dataset's class.
        length: samples in the dataset; None where nobody knows.
        loaders: that count for it.
        fast: what is kept; None where nothing is, or no longer.
        why: why it is left alone, or was after a while; empty where it is not.
        plan: what is done; None where none could be made.
        prediction: the plan's.
        is_planned: whether it would be accelerated, in a dry run.
        snapshot: of the dataset when all of it had been read.
        witness: a few samples of it; None where none were read.
        ignored: what of it changes when it is read.
        notes: what else is worth knowing.
        accelerated_epochs: that were begun.
        planned_s: seconds that planning took.
        filled_s: seconds that reading all samples once took.
    """

    def __init__(self, settings: Settings, dataset: Any, recording: Recording) -> None:
        self.settings, self.recording = settings, recording
        self.name, self.length = _name_of(dataset), _length_of(dataset)
        self._kind = type(dataset)
        self._number = id(dataset)
        self._dataset: weakref.ref[Any] | None = None
        with suppress(TypeError):  # a list cannot be referred to weakly; its id must do
            self._dataset = weakref.ref(dataset)
        self.loaders = 1
        self.fast: Loader | None = None
        self.why = ""
        self.plan: Plan | None = None
        self.prediction: Prediction | None = None
        self.is_planned = False
        self.snapshot: Snapshot = {}
        self.witness: Witness | None = None
        self.ignored: frozenset[str] = frozenset()
        self.notes: list[str] = []
        self.accelerated_epochs = 0
        self.planned_s = self.filled_s = 0.0

    def is_over(self, dataset: Any) -> bool:
        """Whether it is about this very dataset."""
        if self.fast is not None:
            return self.fast.dataset is dataset
        if self._dataset is not None:
            return self._dataset() is dataset
        return self._number == id(dataset) and self.is_like(dataset)

    def is_like(self, dataset: Any) -> bool:
        """Whether it is about a dataset of the same class and length."""
        return self._kind is type(dataset) and self.length == _length_of(dataset)

    def keep(self, fast: Loader, notes: Sequence[str]) -> None:
        """It is accelerated from now on."""
        self.fast, self.plan = fast, fast.plan
        self.notes += notes

    def leave(self, why: str) -> None:
        """It is left alone from now on."""
        self.fast, self.why = None, why

    def run(self) -> LoaderRun:
        """What was done, and what it took. The recording ends with that."""
        line = self.recording.timeline()
        is_fast = line.epoch < self.accelerated_epochs
        rest_s = float(np.nansum(line.step_s[is_fast]))
        cpu_s = float(np.nansum(line.cpu_s[is_fast]))
        plain_s, is_crowded = self._plain(int(is_fast.sum()), rest_s, cpu_s)
        return LoaderRun(
            name=self.settings.kind.__name__,
            dataset=self.name,
            samples=self.length,
            batch_size=self.settings.batch_size,
            loaders=self.loaders,
            is_accelerated=self.accelerated_epochs > 0 or self.is_planned,
            why=self.why,
            plan=self.plan,
            epochs=len(line.end_s),
            accelerated_epochs=self.accelerated_epochs,
            batches=len(line),
            wait_s=float(line.wait_s.sum() + np.nansum(line.end_s)),
            rest_s=float(np.nansum(line.step_s)),
            planned_s=self.planned_s,
            filled_s=self.filled_s,
            loop_s=_loop_s(line, self.accelerated_epochs),
            plain_s=plain_s,
            notes=(*self.notes, *(CROWDED,) * is_crowded),
        )

    def _plain(self, batches: int, rest_s: float, cpu_s: float) -> tuple[float | None, bool]:
        """Seconds that the plain loader would have taken, as predicted.

        Worker processes run beside the rest of the loop, and share the processor's cores with it;
        reading is taken to keep a core busy, as in decoding.

        Args:
            batches: that came.
            rest_s: seconds between them.
            cpu_s: seconds of the processor in that time, all threads together.

        Returns:
            The seconds, None where there is nothing to predict; and whether workers and the rest of
            the loop want more cores than there are.
        """
        found = self.prediction
        if found is None or not batches:
            return None, False
        data_s = batches * found.data_ms / 1000
        if not found.workers:
            return data_s + rest_s, False
        cores = usable_cores()
        reading = min(found.workers, cores)
        shared_s = (cpu_s + data_s * reading) / cores
        return max(data_s, rest_s, shared_s), cpu_s + rest_s * reading > rest_s * cores


def _loop_s(line: Timeline, epochs: int) -> float:
    """Seconds of the first epochs, waiting and all, but for the last step of a loop that was left.

    Args:
        line: the times.
        epochs: how many.
    """
    chosen = line.epoch < epochs
    waited = line.wait_s[chosen].sum() + np.nansum(line.end_s[:epochs])
    return float(waited + np.nansum(line.step_s[chosen]))


def _name_of(dataset: Any) -> str:
    """What to call a dataset."""
    if type(dataset) is Subset:
        return f"Subset of {_name_of(dataset.dataset)}"
    return type(dataset).__name__


def _length_of(dataset: Any) -> int | None:
    if isinstance(dataset, IterableDataset):
        return None
    try:
        return len(dataset)
    except Exception:  # whatever the user's class does
        return None
