"""Operations on each value by itself: the 256-entry table, and calls that act on whole batches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from hotset.ops.op import Gate, Params, Shape
from hotset.rng import Draws


@dataclass(frozen=True, eq=False)
class Table:
    """Replaces every byte by an entry of a table, one row per channel.

    Attributes:
        step: the first of the user's steps that it stands for.
        values: (C, 256), any dtype; entry [c, v] is what value v of channel c becomes.
        gate: always None; tables are deterministic.
    """

    step: int
    values: Tensor
    gate: Gate | None = None

    def out_shape(self, shape: Shape) -> Shape:
        return shape

    def draw(self, draws: Draws, shape: Shape) -> Params:
        return {}

    def apply(self, images: Tensor, params: Params) -> Tensor:
        """images: (B, C, H, W) uint8 -> (B, C, H, W) of the table's dtype."""
        values = self.values.to(images.device)
        channel = torch.arange(images.shape[1], device=images.device)[:, None, None]
        return values[channel, images.long()]


@dataclass(frozen=True, eq=False)
class Elementwise:
    """A user's own deterministic step that acts on each value by itself, called on whole batches.

    Attributes:
        step: number of the user's step.
        call: (B, C, H, W) -> (B, C, H, W).
        gate: always None.
    """

    step: int
    call: Callable[[Tensor], Tensor]
    gate: Gate | None = None

    def out_shape(self, shape: Shape) -> Shape:
        return shape

    def draw(self, draws: Draws, shape: Shape) -> Params:
        return {}

    def apply(self, images: Tensor, params: Params) -> Tensor:
        return self.call(images)
