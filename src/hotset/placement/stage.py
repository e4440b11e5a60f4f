"""Stages: they give samples where batches are made of them."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch

from hotset.placement.lanes import Held, View
from hotset.placement.stats import Tally
from hotset.sample.column import DenseColumn
from hotset.sample.moving import to_device

MANY = 1 << 30
"""More batches than anybody makes in one go."""


@dataclass(frozen=True, eq=False)
class Wanted:
    """Samples that are wanted together.

    Attributes:
        ids: (B,) int64.
        what: what they are wanted for; handed back with them.
        epoch: number of the epoch.
    """

    ids: np.ndarray
    what: Any
    epoch: int = 0


@dataclass(frozen=True, eq=False)
class Fetched:
    """Samples where they can be read.

    Attributes:
        what: what they were wanted for.
        views: per leaf, a column and the rows of it that were wanted, (B,) int64: beside its data
            where that is dense, else on the host, as its index is.
        release: must be called when all work that reads them is queued.
    """

    what: Any
    views: Sequence[View]
    release: Callable[[], None]


Fetch = Callable[[Iterator[Wanted]], Generator[Fetched, None, None]]
"""Samples for wants, one each, in order."""


class Stage(Protocol):
    """Gives samples where batches are made of them."""

    @property
    def is_passing(self) -> bool:
        """Whether samples pass to the device: batches are then grouped alike from the first on.

        What is fetched together is waited for together, so a group that grew would be waited for.
        """
        ...

    def session(self) -> Any:
        """A context manager that gives a `Fetch` and leaves no thread behind."""
        ...

    def fits(self, ids: np.ndarray) -> int:
        """How many of the first of some samples can be wanted together."""
        ...

    def most(self, ids: np.ndarray) -> int:
        """How many batches such as one of some samples can be wanted together."""
        ...


class InPlace:
    """Samples that lie where batches are made of them.

    Args:
        held: all of them, where batches come out.
        device: where that is.
        tally: counts.
        is_there: whether that is the device where batches are wanted; else they are moved there.
    """

    is_passing = False

    def __init__(
        self, held: Held, device: torch.device, tally: Tally, *, is_there: bool = True
    ) -> None:
        self._is_there = is_there
        self._held, self._device, self._tally = held, device, tally
        is_dense = all(isinstance(column, DenseColumn) for column in held.columns)
        rows = None if is_dense or device.type == "cpu" else held.rows
        self._host_rows = None if rows is None else rows.cpu()

    def fits(self, ids: np.ndarray) -> int:
        return len(ids)

    def most(self, ids: np.ndarray) -> int:
        return MANY

    @contextmanager
    def session(self) -> Iterator[Fetch]:
        yield self._fetch

    def _fetch(self, wants: Iterator[Wanted]) -> Generator[Fetched, None, None]:
        held, is_host = self._held, self._device.type == "cpu"
        for wanted in wants:
            ids = torch.from_numpy(wanted.ids)
            host_rows = ids if self._host_rows is None else self._host_rows[ids]
            if not is_host:
                ids = to_device(ids, self._device)
            rows = ids if held.rows is None else held.rows[ids]
            if is_host:
                held.touch(rows.numpy())
                host_rows = rows
            self._tally.samples += len(rows)
            self._tally.hits += len(rows) if self._is_there else 0
            views = [(c, rows if isinstance(c, DenseColumn) else host_rows) for c in held.columns]
            yield Fetched(wanted.what, views, nothing)


def nothing() -> None:
    """Nothing is to be given back."""
