"""What a batch is made for, and what makes batches."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch

from hotset.rng import WORKER_STEP, Draws, Key


@dataclass(frozen=True)
class Request:
    """One batch to be made.

    Attributes:
        ids: (B,) int64 sample ids.
        occurrence: (B,) int64, how often each came earlier in the epoch.
        key: the epoch's key.
        position: place of the first of them in the epoch.
    """

    ids: np.ndarray
    occurrence: np.ndarray
    key: Key
    position: int = 0


def seeds_of(request: Request, draw: int = 0) -> list[int]:
    """One 64-bit seed per sample of a batch, for callables that draw from the global generators."""
    draws = Draws(request.key, torch.from_numpy(request.ids), torch.from_numpy(request.occurrence))
    words = draws.words(WORKER_STEP, draw)
    return [(high << 32) | low for high, low in words[:, :2].tolist()]


Make = Callable[[Iterator[Request]], Iterator[Any]]
"""Batches for requests, one each, in order."""


class Pipeline(Protocol):
    """Makes batches."""

    def session(self) -> Any:
        """A context manager that gives a `Make` and ends its threads and processes at the end."""
        ...


def remembered(requests: Iterator[Request], taken: deque[Request]) -> Iterator[Request]:
    """Hands requests on and keeps them: a pipeline may take several before it gives a batch."""
    for request in requests:
        taken.append(request)
        yield request
