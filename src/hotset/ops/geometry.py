"""Pad, crop and flip: every output pixel is one input pixel or a fill value.

Source: torchvision.transforms.RandomCrop, Pad, CenterCrop, RandomHorizontalFlip,
RandomVerticalFlip for the meaning of the parameters and the order of padding and cropping; Keller
Jordan's airbench for alternating flip (arXiv 2404.00498).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from hotset.ops.op import Gate, Params, Shape, constant
from hotset.rng import Draws, below, threshold

PaddingMode = Literal["constant", "edge", "reflect", "symmetric"]

FILL = -1
"""In an index map: this coordinate lies outside the image and takes the fill value."""


@dataclass(frozen=True)
class Padding:
    """Pixels added on each side, and how they are filled."""

    left: int
    top: int
    right: int
    bottom: int
    mode: PaddingMode = "constant"

    def row_map(self, height: int) -> np.ndarray:
        """(height + top + bottom,) int32: which row each padded row repeats, or FILL."""
        return _index_map(height, self.top, self.bottom, self.mode)

    def column_map(self, width: int) -> np.ndarray:
        """(width + left + right,) int32: which column each padded column repeats, or FILL."""
        return _index_map(width, self.left, self.right, self.mode)


def _index_map(size: int, before: int, after: int, mode: PaddingMode) -> np.ndarray:
    """Negative amounts crop, as they do in torchvision."""
    index = np.arange(size, dtype=np.int32)[max(0, -before) : size - max(0, -after)]
    amounts = (max(0, before), max(0, after))
    if mode == "constant":
        return np.pad(index, amounts, constant_values=FILL)
    return np.pad(index, amounts, mode=mode)


@dataclass(frozen=True)
class Window:
    """Pads the images, then takes a window of them: pad, centre crop and random crop in one form.

    Attributes:
        step: number its draws are keyed by.
        size: (height, width) of the window, in pixels.
        paddings: applied one after the other, before the window is taken.
        position: (top, left) in the padded image, or None to draw it for every sample, both end
            points included.
        fill: value of constant padding, one per channel or one for all, in the images' own range.
        gate: set by RandomApply.
    """

    step: int
    size: tuple[int, int]
    paddings: tuple[Padding, ...] = ()
    position: tuple[int, int] | None = None
    fill: tuple[float, ...] = (0,)
    gate: Gate | None = None

    def maps(self, shape: Shape) -> tuple[np.ndarray, np.ndarray]:
        """Row and column index of the source for every padded coordinate, FILL outside; int32."""
        rows, columns = (np.arange(size, dtype=np.int32) for size in shape[1:])
        for padding in self.paddings:
            rows = _compose(rows, padding.row_map(len(rows)))
            columns = _compose(columns, padding.column_map(len(columns)))
        return rows, columns

    def range(self, shape: Shape) -> tuple[int, int]:
        """How many positions a drawn window has, downwards and sideways."""
        rows, columns = self.maps(shape)
        return len(rows) - self.size[0] + 1, len(columns) - self.size[1] + 1

    def out_shape(self, shape: Shape) -> Shape:
        return shape[0], *self.size

    def draw(self, draws: Draws, shape: Shape) -> Params:
        if self.position is not None:
            return {}
        words = draws.words(self.step)
        down, sideways = self.range(shape)
        return {"top": below(words[:, 0], down), "left": below(words[:, 1], sideways)}

    def apply(self, images: Tensor, params: Params) -> Tensor:
        shape = (images.shape[1], images.shape[2], images.shape[3])
        count, device = len(images), images.device
        row_map, column_map = (torch.from_numpy(m).to(device).long() for m in self.maps(shape))
        if self.position is None:
            top, left = params["top"], params["left"]
        else:
            top, left = (torch.full((count,), p, device=device) for p in self.position)
        rows = row_map[top[:, None] + torch.arange(self.size[0], device=device)]
        columns = column_map[left[:, None] + torch.arange(self.size[1], device=device)]
        sample = torch.arange(count, device=device)[:, None, None, None]
        channel = torch.arange(shape[0], device=device)[:, None, None]
        window = images[
            sample,
            channel,
            rows.clamp(min=0)[:, None, :, None],
            columns.clamp(min=0)[:, None, None],
        ]
        is_outside = (rows < 0)[:, None, :, None] | (columns < 0)[:, None, None, :]
        fill = constant(self.fill, images.dtype).to(device)
        return torch.where(is_outside, fill, window)


def _compose(inner: np.ndarray, outer: np.ndarray) -> np.ndarray:
    return np.where(outer < 0, FILL, inner[outer]).astype(np.int32)


@dataclass(frozen=True)
class Flip:
    """Mirrors images with a probability.

    Attributes:
        step: number its draws are keyed by.
        axis: "horizontal" swaps left and right, "vertical" swaps top and bottom.
        p: probability.
        is_alternating: the first epoch is drawn; after it every sample is flipped in every other
            epoch, so that two epochs in a row show both forms of it.
        gate: set by RandomApply.
    """

    step: int
    axis: Literal["horizontal", "vertical"] = "horizontal"
    p: float = 0.5
    is_alternating: bool = False
    gate: Gate | None = field(default=None)

    def out_shape(self, shape: Shape) -> Shape:
        return shape

    def draw(self, draws: Draws, shape: Shape) -> Params:
        words = draws.run_words(self.step) if self.is_alternating else draws.words(self.step)
        flips = words[:, 0] < threshold(self.p)
        if self.is_alternating and draws.key.epoch % 2 == 1:
            flips = ~flips
        return {"flips": flips.long()}

    def apply(self, images: Tensor, params: Params) -> Tensor:
        mirrored = images.flip(-1 if self.axis == "horizontal" else -2)
        return torch.where(params["flips"].bool()[:, None, None, None], mirrored, images)
