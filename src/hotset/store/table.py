"""The end of a chain as data: a table that a store carries, so that it keeps bytes, not floats."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from hotset.chain.step import BatchForm, StepCall
from hotset.ops.op import Params
from hotset.ops.pointwise import Table
from hotset.sample.column import describe, encode


class Lookup:
    """Replaces every byte of an image by an entry of a table, one row per channel.

    Args:
        values: (C, 256), any dtype.
        cls: the tensor class of what comes out.
    """

    def __init__(self, values: Tensor, cls: type[Tensor] = Tensor) -> None:
        self.values, self._cls = values, cls

    def __call__(self, image: Any) -> Tensor:
        """image: PIL, or (C, H, W) uint8 -> (C, H, W) of the table's dtype."""
        stored = encode(image, describe(image))
        found = self.values[torch.arange(len(stored))[:, None, None], stored.long()]
        return found if self._cls is Tensor else found.as_subclass(self._cls)

    def batch_form(self, leaf: Any, number: int) -> BatchForm | None:
        """The table itself."""

        def replay(params: Sequence[Params]) -> StepCall:
            return self

        return BatchForm((Table(number, self.values),), replay)
