"""Random erasing and cutout: one rectangle of every image takes a constant value.

Source: torchvision.transforms.RandomErasing for the distribution (ten tries, then none); Zhong et
al., Random Erasing Data Augmentation (arXiv 1708.04896); DeVries and Taylor, Cutout (arXiv
1708.04552).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from hotset.ops.op import Gate, Params, Shape, constant
from hotset.rng import Draws, below, threshold, unit

TRIES = 10
"""How often torchvision draws a rectangle before it gives up."""
ASPECT_LEVELS = 4096
"""Steps of the table of aspect ratios."""


def erase(images: Tensor, params: Params, value: tuple[float, ...]) -> Tensor:
    """Images with a rectangle of each set to a value.

    Args:
        images: (B, C, H, W), any dtype.
        params: top, left, height, width, each (B,) int64; height 0 erases nothing.
        value: one per channel or one for all, in the images' own range.
    """
    rows = torch.arange(images.shape[2], device=images.device)
    columns = torch.arange(images.shape[3], device=images.device)
    top, left = params["top"][:, None], params["left"][:, None]
    in_rows = (rows >= top) & (rows < top + params["height"][:, None])
    in_columns = (columns >= left) & (columns < left + params["width"][:, None])
    inside = in_rows[:, None, :, None] & in_columns[:, None, None, :]
    fill = constant(value, images.dtype).to(images.device)
    return torch.where(inside, fill, images)


def aspect_table(ratio: tuple[float, float]) -> np.ndarray:
    """(4096,) float64: aspect ratios, log-uniform, at the middle of each of 4096 equal steps.

    A table instead of exp(), so that every device and kernel computes the same rectangle.
    """
    low, high = math.log(ratio[0]), math.log(ratio[1])
    steps = (np.arange(ASPECT_LEVELS) + 0.5) / ASPECT_LEVELS
    return np.array([math.exp(low + (high - low) * step) for step in steps])


@dataclass(frozen=True)
class RandomErase:
    """Erases one rectangle with a probability, as torchvision's RandomErasing does.

    Attributes:
        step: number its draws are keyed by.
        p: probability.
        scale: least and greatest area, as a share of the image's.
        ratio: least and greatest aspect ratio, height over width.
        value: one per channel or one for all, in the images' own range.
        gate: set by RandomApply.
    """

    step: int
    p: float = 0.5
    scale: tuple[float, float] = (0.02, 0.33)
    ratio: tuple[float, float] = (0.3, 3.3)
    value: tuple[float, ...] = (0.0,)
    gate: Gate | None = None

    def out_shape(self, shape: Shape) -> Shape:
        return shape

    def draw(self, draws: Draws, shape: Shape) -> Params:
        erases = draws.words(self.step)[:, 0] < threshold(self.p)
        aspects = torch.from_numpy(aspect_table(self.ratio)).to(draws.ids.device)
        result = {name: torch.zeros_like(draws.ids) for name in ("top", "left", "height", "width")}
        is_open = erases
        for attempt in range(1, TRIES + 1):
            words = draws.words(self.step, attempt)
            share = self.scale[0] + (self.scale[1] - self.scale[0]) * unit(words[:, 0])
            area = float(shape[1] * shape[2]) * share
            aspect = aspects[words[:, 1] >> 20]
            height = torch.round(torch.sqrt(area * aspect)).long()
            width = torch.round(torch.sqrt(area / aspect)).long()
            fits = is_open & (height < shape[1]) & (width < shape[2])
            found = {
                "top": below(words[:, 2], (shape[1] - height + 1).clamp(min=1)),
                "left": below(words[:, 3], (shape[2] - width + 1).clamp(min=1)),
                "height": height,
                "width": width,
            }
            result = {name: torch.where(fits, found[name], result[name]) for name in result}
            is_open = is_open & ~fits
        return result

    def apply(self, images: Tensor, params: Params) -> Tensor:
        return erase(images, params, self.value)


@dataclass(frozen=True)
class Cutout:
    """Erases one square of fixed size that lies wholly inside every image.

    Attributes:
        step: number its draws are keyed by.
        size: edge of the square, in pixels.
        value: one per channel or one for all, in the images' own range.
        gate: set by RandomApply.
    """

    step: int
    size: int
    value: tuple[float, ...] = (0.0,)
    gate: Gate | None = None

    def out_shape(self, shape: Shape) -> Shape:
        return shape

    def draw(self, draws: Draws, shape: Shape) -> Params:
        words = draws.words(self.step)
        height, width = min(self.size, shape[1]), min(self.size, shape[2])
        return {
            "top": below(words[:, 0], shape[1] - height + 1),
            "left": below(words[:, 1], shape[2] - width + 1),
            "height": torch.full_like(draws.ids, height),
            "width": torch.full_like(draws.ids, width),
        }

    def apply(self, images: Tensor, params: Params) -> Tensor:
        return erase(images, params, self.value)
