"""What is known of the order that samples will be asked for in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

Reuse = Literal["once", "repeats", "ranks", "unknown"]
"""How samples come again: each once in an epoch; drawn with replacement or by weight; those of this
rank once in an epoch, others in the next; or nobody knows."""
BATCH_ROWS = 256


@dataclass(frozen=True, eq=False)
class Outlook:
    """What is known of an order.

    Attributes:
        reuse: how samples come again.
        may_read_ahead: whether batches may be asked for before they are wanted.
        weights: (N,) how often each sample is drawn, up to a factor; None where that is not known.
        peek: the batches of an epoch to come, by its number, to be asked for in turn when this
            one's are all drawn; None where they cannot be known.
        batch_rows: samples in a batch, as a rule.
    """

    reuse: Reuse = "once"
    may_read_ahead: bool = False
    weights: np.ndarray | None = None
    peek: Callable[[int], Iterator[np.ndarray]] | None = None
    batch_rows: int = BATCH_ROWS

    @property
    def is_future_known(self) -> bool:
        """Whether the order of later epochs can be known."""
        return self.peek is not None
