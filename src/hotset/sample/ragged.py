"""Images of differing sizes, end to end in one buffer."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Ragged:
    """Images of one number of channels and of differing heights and widths.

    Attributes:
        data: flat uint8, each image (C, H, W) without gaps; read only, so it may be a memory map.
        offsets: (N,) int64, where each image begins in `data`.
        heights: (N,) int64, in pixels.
        widths: (N,) int64.
        channels: C, of every image.
        most: a height and a width that none exceeds, known on the host; None where they are not.

    Example:
        >>> images = Ragged.of(torch.zeros(2, 3, 4, 5, dtype=torch.uint8))
        >>> images.image(1).shape
        torch.Size([3, 4, 5])
    """

    data: Tensor
    offsets: Tensor
    heights: Tensor
    widths: Tensor
    channels: int
    most: tuple[int, int] | None = None

    def __len__(self) -> int:
        return len(self.offsets)

    def image(self, row: int) -> Tensor:
        """(C, H, W) view of one image."""
        start, height, width = (
            int(numbers[row]) for numbers in (self.offsets, self.heights, self.widths)
        )
        flat = self.data[start : start + self.channels * height * width]
        return flat.view(self.channels, height, width)

    @staticmethod
    def of(images: Tensor) -> Ragged:
        """Images of one size, (N, C, H, W) uint8 and contiguous; nothing is copied."""
        count, channels, height, width = images.shape
        numbers = torch.arange(count, device=images.device)
        return Ragged(
            images.view(-1),
            numbers * (channels * height * width),
            torch.full_like(numbers, height),
            torch.full_like(numbers, width),
            channels,
            (height, width),
        )
