"""Iteration, epoch after epoch, and its state: what every hotset loader is."""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from hotset.errors import FaithfulnessError, StateError
from hotset.loader.batch import Pipeline, Request, remembered
from hotset.loader.ids import Occurrences
from hotset.loader.order import Order, Start
from hotset.placement.plan import Plan
from hotset.placement.stats import Stats, Tally

STATE_VERSION = 1


@dataclass(frozen=True, eq=False)
class Parts:
    """What a loader is put together from.

    Attributes:
        plan: what was decided.
        pipeline: makes batches.
        order: which samples, when.
        length: number of samples.
        fingerprint: of the data and the chain.
        dataset: the user's dataset or data.
        batch_size: as the user gave it.
        is_current: whether the dataset's transforms are still those that were found.
        tally: counts what the pipeline does.
    """

    plan: Plan
    pipeline: Pipeline
    order: Order
    length: int
    fingerprint: str
    dataset: Any
    batch_size: int | None
    is_current: Callable[[], bool]
    tally: Tally


@dataclass
class _Progress:
    """How far an epoch is."""

    start: Start
    batches: int = 0
    checksum: int = 0
    is_finished: bool = False


class Epochs:
    """Iterates over batches, epoch after epoch; what every hotset loader is.

    Attributes:
        plan: what is done to each step, where the data is kept, and why.
        dataset: the user's dataset or data.
        batch_size: samples per batch.
    """

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._epoch = 0
        self._progress: _Progress | None = None
        self._resume: dict[str, Any] | None = None
        self.plan = parts.plan
        self.dataset = parts.dataset
        self.batch_size = parts.batch_size

    def __len__(self) -> int:
        """Batches in an epoch."""
        return len(self._parts.order)

    def stats(self) -> Stats:
        """Counts of what was done so far: batches, hits on the device, bytes copied there."""
        return self._parts.tally.snapshot()

    def set_epoch(self, epoch: int) -> None:
        """Makes `epoch` the number of the next epoch; every epoch counts up by itself otherwise."""
        self._epoch = epoch

    def __iter__(self) -> Iterator[Any]:
        if not self._parts.is_current():
            raise FaithfulnessError(
                "the dataset's transforms were changed since this loader was made, which keeps "
                "what they gave; make it anew from the DataLoader or dataset"
            )
        order, resume = self._parts.order, self._resume
        begun = None if resume is None else self._taken_up(resume)
        if begun is None:
            start, batches = order.begin(self._epoch)
            progress = _Progress(start)
            skipped: list[np.ndarray] = []
        else:
            progress, batches, skipped = begun
            start = progress.start
        self._resume = None
        self._progress = progress
        self._epoch = start.epoch + 1
        return self._iterate(progress, batches, skipped)

    def _taken_up(
        self, resume: dict[str, Any]
    ) -> tuple[_Progress, Iterator[np.ndarray], list[np.ndarray]] | None:
        """The rest of a begun epoch; None if all its batches were handed out."""
        start = Start.from_dict(resume["start"])
        batches, skipped = self._parts.order.replay(start, resume["batches"])
        progress = _Progress(start)
        for ids in skipped:
            self._count(progress, ids)
        if progress.checksum != resume["checksum"] or progress.batches != resume["batches"]:
            raise StateError(
                "the saved state does not fit this loader: its sampler gives another order than "
                "when the state was saved (other batch size or sampler, or `set_epoch` not called?)"
            )
        if not self._is_complete(progress):
            return progress, batches, skipped
        for _ in batches:
            pass  # a sampler may draw from its generator once more behind its last batch
        return None

    def _iterate(
        self, progress: _Progress, batches: Iterator[np.ndarray], skipped: list[np.ndarray]
    ) -> Iterator[Any]:
        taken: deque[Request] = deque()
        requests = _requests(self._parts, progress.start, batches, skipped)
        with self._parts.pipeline.session() as make:
            for batch in make(remembered(requests, taken)):
                self._count(progress, taken.popleft().ids)
                self._parts.tally.batches += 1
                yield batch
        progress.is_finished = True
        self._parts.tally.epochs += 1

    def _count(self, progress: _Progress, ids: np.ndarray) -> None:
        progress.batches += 1
        if not self._parts.order.is_seeded:
            progress.checksum = zlib.crc32(ids.data, progress.checksum)

    def state_dict(self) -> dict[str, Any]:
        """Where iteration stands, as plain values: the batches handed out so far count as done."""
        progress, started = self._progress, None
        if self._resume is not None:
            started = dict(self._resume)
        elif progress is not None and not progress.is_finished:
            started = {
                "start": progress.start.as_dict(),
                "batches": progress.batches,
                "checksum": progress.checksum,
            }
        order = self._parts.order
        return {
            "version": STATE_VERSION,
            "fingerprint": self._parts.fingerprint,
            "samples": self._parts.length,
            "order": order.signature,
            "epoch": self._epoch,
            "run_seed": order.run_seed,
            "generators": order.generators() if started is None else {},
            "started": started,
        }

    def _is_complete(self, progress: _Progress) -> bool:
        try:
            return progress.batches >= len(self)
        except (TypeError, NotImplementedError):
            return False  # a batch sampler need not have a length

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Makes the next epoch go on where the state was taken.

        The states of a sampler's generators are part of it; torch's own generator, which later
        epochs draw from, is the user's to save and restore.

        Raises:
            StateError: if the state is of another dataset, chain or version, or is damaged.
        """
        try:
            version, fingerprint = state["version"], state["fingerprint"]
            epoch, started = int(state["epoch"]), state["started"]
            samples, signature = int(state["samples"]), state["order"]
            run_seed = None if state["run_seed"] is None else int(state["run_seed"])
            generators = {str(name): str(text) for name, text in state["generators"].items()}
            if started is not None:
                started = {
                    "start": Start.from_dict(started["start"]).as_dict(),
                    "batches": int(started["batches"]),
                    "checksum": int(started["checksum"]),
                }
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise StateError(
                f"this is no state of a hotset loader ({type(error).__name__}: {error}); "
                "pass what state_dict() returned"
            ) from error
        if version != STATE_VERSION:
            raise StateError(f"the state has version {version}, this hotset reads {STATE_VERSION}")
        if samples != self._parts.length or fingerprint != self._parts.fingerprint:
            raise StateError(
                f"the state belongs to another dataset or transform: it was saved with {samples} "
                f"samples (fingerprint {fingerprint}), this loader has {self._parts.length} "
                f"({self._parts.fingerprint})"
            )
        if signature != self._parts.order.signature:
            raise StateError(
                f"the state was saved with another order ({signature}) than this loader has "
                f"({self._parts.order.signature})"
            )
        if started is None:
            self._parts.order.set_generators(generators)
        self._parts.order.join(run_seed)
        self._epoch, self._resume, self._progress = epoch, started, None


def _requests(
    parts: Parts, start: Start, batches: Iterator[np.ndarray], skipped: list[np.ndarray]
) -> Iterator[Request]:
    occurrences = Occurrences(parts.length) if parts.order.may_repeat else None
    position = 0
    for ids in skipped:
        position += len(ids)
        if occurrences is not None:
            occurrences.of(ids)
    key, zeros = start.key, np.zeros(0, dtype=np.int64)
    for batch in batches:
        ids = np.ascontiguousarray(batch)
        if len(zeros) < len(ids):
            zeros = np.zeros(len(ids), dtype=np.int64)
        occurrence = zeros[: len(ids)] if occurrences is None else occurrences.of(ids)
        yield Request(ids, occurrence, key, position)
        position += len(ids)
