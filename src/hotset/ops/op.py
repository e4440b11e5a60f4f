"""What every batched operation is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from hotset.rng import Draws, threshold

Shape = tuple[int, int, int]
"""Channels, height, width."""

Params = dict[str, Tensor]
"""Parameters of one operation for a batch: name -> (B,) int64."""


@dataclass(frozen=True)
class Gate:
    """Applies what it guards to a sample with a probability, drawn once for all that it guards.

    Attributes:
        step: number its draws are keyed by.
        p: probability of applying.
    """

    step: int
    p: float

    def draw(self, draws: Draws) -> Tensor:
        """(B,) bool: whether each sample passes."""
        return draws.words(self.step)[:, 0] < threshold(self.p)


def constant(value: tuple[float, ...], dtype: torch.dtype) -> Tensor:
    """(C or 1, 1, 1) on the CPU: one value per channel or one for all, rounded to a dtype once."""
    return torch.tensor(value, dtype=torch.float64).to(dtype)[:, None, None]


class Op(Protocol):
    """A batched operation. `step` keys its draws; `gate` is set by RandomApply."""

    @property
    def step(self) -> int: ...

    @property
    def gate(self) -> Gate | None: ...

    def out_shape(self, shape: Shape) -> Shape:
        """The shape it makes of images of `shape`."""
        ...

    def draw(self, draws: Draws, shape: Shape) -> Params:
        """Parameters of every sample for images of `shape`; empty if there is nothing to draw."""
        ...

    def apply(self, images: Tensor, params: Params) -> Tensor:
        """images (B, C, H, W) -> (B, C', H', W'), each sample by its own parameters."""
        ...


def draw_gated(op: Op, draws: Draws, shape: Shape) -> Params:
    """The operation's parameters, with "passes" (B,) bool added where it has a gate."""
    params = op.draw(draws, shape)
    return params if op.gate is None else {**params, "passes": op.gate.draw(draws)}


def apply_gated(op: Op, images: Tensor, params: Params) -> Tensor:
    """The operation on the samples that pass its gate; the others stay as they are."""
    changed = op.apply(images, params)
    if op.gate is None:
        return changed
    return torch.where(params["passes"][:, None, None, None], changed, images)
