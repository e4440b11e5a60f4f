"""Augmentations of this field's speed runs that torchvision lacks.

Each is an ordinary callable on one (C, H, W) tensor, for a plain `DataLoader`, and brings the
batched form that hotset uses.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from hotset.chain.step import BatchForm, StepCall
from hotset.errors import ConfigError
from hotset.ops import erase as erase_ops
from hotset.ops.geometry import Flip
from hotset.ops.op import Params
from hotset.sample.column import describe


class AlternatingFlip:
    """Flips horizontally with probability 1/2 in the first epoch, then every other epoch.

    Two epochs in a row show both forms of every image, which independent flips do for half of them.
    On a single sample, outside hotset, there are no epochs: it flips with probability 1/2.

    Source: Keller Jordan: 94 % on CIFAR-10 in 3.29 seconds on a single GPU (arXiv 2404.00498).

    Example:
        >>> AlternatingFlip()(torch.zeros(3, 4, 4)).shape
        torch.Size([3, 4, 4])
    """

    def __call__(self, image: Tensor) -> Tensor:
        """image: (C, H, W) of any dtype."""
        return image.flip(-1) if torch.rand(()) < 0.5 else image

    def __repr__(self) -> str:
        return "AlternatingFlip()"

    def batch_form(self, leaf: Any, number: int) -> BatchForm | None:
        """The batched form, for images."""
        if len(describe(leaf).shape) != 3:
            return None

        def replay(params: Sequence[Params]) -> StepCall:
            flips = bool(params[0]["flips"])
            return lambda image: image.flip(-1) if flips else image

        return BatchForm((Flip(number, is_alternating=True),), replay)


class Cutout:
    """Sets a square of every image to a value; the square lies wholly inside.

    Args:
        size: edge of the square in pixels.
        value: what it is set to, in the images' own range at this point of the chain.

    Raises:
        ConfigError: if the size is not a whole number of at least 1.

    Source: DeVries and Taylor: Improved Regularization with Cutout (arXiv 1708.04552); the square
    is kept inside as in Keller Jordan's airbench.

    Example:
        >>> int(Cutout(2)(torch.ones(1, 4, 4)).sum())
        12
    """

    def __init__(self, size: Any, value: float = 0.0) -> None:
        if not isinstance(size, int) or isinstance(size, bool) or size < 1:
            raise ConfigError(f"`size` must be a whole number of at least 1, got {size!r}")
        self.size, self.value = size, float(value)

    def __call__(self, image: Tensor) -> Tensor:
        """image: (C, H, W) of any dtype; the input is left as it is."""
        height, width = (min(self.size, edge) for edge in image.shape[-2:])
        top = int(torch.randint(image.shape[-2] - height + 1, ()))
        left = int(torch.randint(image.shape[-1] - width + 1, ()))
        return self._cut(image, top, left)

    def __repr__(self) -> str:
        return f"Cutout({self.size}, value={self.value})"

    def _cut(self, image: Tensor, top: int, left: int) -> Tensor:
        image = image.clone()
        image[..., top : top + self.size, left : left + self.size] = self.value
        return image

    def batch_form(self, leaf: Any, number: int) -> BatchForm | None:
        """The batched form, for image tensors."""
        if not isinstance(leaf, Tensor) or leaf.ndim != 3:
            return None

        def replay(params: Sequence[Params]) -> StepCall:
            top, left = int(params[0]["top"]), int(params[0]["left"])
            return lambda image: self._cut(image, top, left)

        return BatchForm((erase_ops.Cutout(number, self.size, (self.value,)),), replay)
