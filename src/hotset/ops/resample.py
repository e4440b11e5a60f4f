"""Resizing, and random crops resized to one size: images of differing sizes become one batch.

Resizing is Pillow's, bit for bit: a filter that widens with the reduction (antialias), weights in
float64 rounded to fixed point, one axis after the other, each rounded to bytes. Images with an
alpha channel are premultiplied by Pillow before it resizes them; here a channel is a channel.

Source: Pillow, src/libImaging/Resample.c and Geometry.c, for the definition of the weights and of
the rounding; torchvision.transforms.RandomResizedCrop for the distribution (ten tries, then a
centred crop); Szegedy et al., Going Deeper with Convolutions (arXiv 1409.4842).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from hotset.ops.erase import TRIES, aspect_table
from hotset.ops.op import Gate, Op, Params, Shape
from hotset.rng import Draws, below, unit

Filter = Literal["nearest", "box", "bilinear", "hamming", "bicubic", "lanczos"]
Order = Literal["cheaper first", "width first"]
"""Which axis is resized first: as Pillow chooses from version 13 on, and as it did before."""

PRECISION_BITS = 32 - 8 - 2
"""Fraction bits of a weight: eight are for the pixel, two for the sign and for overshoot."""


def _box(x: Tensor) -> Tensor:
    return ((x > -0.5) & (x <= 0.5)).double()


def _bilinear(x: Tensor) -> Tensor:
    return (1.0 - x.abs()).clamp(min=0.0)


def _hamming(x: Tensor) -> Tensor:
    # Pillow's two constants are float32.
    low, high = torch.tensor([0.54, 0.46], dtype=torch.float32).tolist()
    angle = x.abs() * math.pi
    window = _sinc(x.abs()) * (low + high * _on_host(math.cos, angle))
    return torch.where(x.abs() < 1.0, window, 0.0)


def _bicubic(x: Tensor) -> Tensor:
    a, x = -0.5, x.abs()
    near = ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0
    far = (((x - 5.0) * x + 8.0) * x - 4.0) * a
    return torch.where(x < 1.0, near, torch.where(x < 2.0, far, 0.0))


def _lanczos(x: Tensor) -> Tensor:
    return torch.where((x >= -3.0) & (x < 3.0), _sinc(x) * _sinc(x / 3.0), 0.0)


def _sinc(x: Tensor) -> Tensor:
    angle = x * math.pi
    return torch.where(x == 0.0, 1.0, _on_host(math.sin, angle) / angle)


def _on_host(function: Callable[[float], float], values: Tensor) -> Tensor:
    """A function of the C library, whose last bit vectorised ones do not share."""
    found = [function(value) for value in values.flatten().tolist()]
    return torch.tensor(found, dtype=torch.float64, device=values.device).view(values.shape)


FILTERS: dict[str, tuple[Callable[[Tensor], Tensor], float]] = {
    "box": (_box, 0.5),
    "bilinear": (_bilinear, 1.0),
    "hamming": (_hamming, 1.0),
    "bicubic": (_bicubic, 2.0),
    "lanczos": (_lanczos, 3.0),
}
"""Each filter, and how far from its centre it reaches, in pixels of the smaller image."""


def most_taps(in_size: int, out_size: int, filter: Filter) -> int:
    """How many pixels of the source one output pixel can be made of."""
    return math.ceil(FILTERS[filter][1] * max(in_size / out_size, 1.0)) * 2 + 1


def weights_of(in_sizes: Tensor, out_size: int, filter: Filter, taps: int) -> tuple[Tensor, Tensor]:
    """What each output pixel along an axis is made of, for sources of several sizes.

    Args:
        in_sizes: (B,) int64, sizes of the sources in pixels, on any device.
        out_size: pixels of the output.
        filter: any but "nearest".
        taps: room for weights; `most_taps` of the largest size.

    Returns:
        (B, out_size, 2) int64, the first source pixel and how many there are; and
        (B, out_size, taps) int32 weights in units of 2**-22, 0 beyond that number.
    """
    function, reach = FILTERS[filter]
    scale = in_sizes.double()[:, None] / out_size
    filter_scale = scale.clamp(min=1.0)
    support, inverse = reach * filter_scale, 1.0 / filter_scale
    centre = (torch.arange(out_size, device=in_sizes.device) + 0.5) * scale
    first = (centre - support + 0.5).long().clamp(min=0)
    count = torch.minimum((centre + support + 0.5).long(), in_sizes[:, None]) - first
    tap = torch.arange(taps, device=in_sizes.device)
    distance = ((tap + first[..., None]) - centre[..., None] + 0.5) * inverse[..., None]
    values = torch.where(tap < count[..., None], function(distance), 0.0)
    total = torch.zeros_like(centre)
    for k in range(taps):  # one after the other: another order would round otherwise
        total = total + values[..., k]
    values = torch.where(total[..., None] != 0.0, values / total[..., None], values)
    half = torch.where(values < 0.0, -0.5, 0.5)
    fixed = (half + values * float(1 << PRECISION_BITS)).int()
    return torch.stack((first, count), dim=-1), fixed


def weights(in_size: int, out_size: int, filter: Filter) -> tuple[Tensor, Tensor]:
    """What each output pixel along an axis is made of.

    Returns:
        (out_size, 2) int64, the first source pixel and how many there are; and (out_size, taps)
        int32 weights in units of 2**-22, 0 beyond that number.

    Example:
        >>> bounds, fixed = weights(4, 2, "box")
        >>> bounds.tolist(), (fixed / 2**22).tolist()
        ([[0, 2], [2, 2]], [[0.5, 0.5, 0.0], [0.5, 0.5, 0.0]])
    """
    taps = most_taps(in_size, out_size, filter)
    bounds, fixed = weights_of(torch.tensor([in_size]), out_size, filter, taps)
    return bounds[0], fixed[0]


def pillow_order(version: str) -> Order:
    """The order of a version of Pillow, as in `PIL.__version__`."""
    return "cheaper first" if int(version.partition(".")[0]) >= 13 else "width first"


def is_height_first(in_size: tuple[int, int], out_size: tuple[int, int], order: Order) -> bool:
    """Whether the height is resized before the width; sizes are (height, width)."""
    shrinks, narrows = in_size[0] - out_size[0], in_size[1] - out_size[1]
    return order == "cheaper first" and shrinks > 0 and shrinks > 2 * narrows


def resize(
    image: Tensor, size: tuple[int, int], filter: Filter, order: Order = "cheaper first"
) -> Tensor:
    """The image at another size, with antialias, as `PIL.Image.resize` makes it.

    Args:
        image: (C, H, W) uint8, neither edge 0.
        size: (height, width) in pixels.
        filter: as Pillow defines it.
        order: of the axes.

    Returns:
        (C, height, width) uint8.
    """
    axes = [(2, size[1]), (1, size[0])]
    if is_height_first((image.shape[1], image.shape[2]), size, order):
        axes.reverse()
    for axis, out_size in axes:
        if image.shape[axis] != out_size:
            image = _resize_axis(image.movedim(axis, -1), out_size, filter).movedim(-1, axis)
    return image.contiguous()


def _resize_axis(image: Tensor, out_size: int, filter: Filter) -> Tensor:
    """(..., in_size) uint8 -> (..., out_size) uint8."""
    in_size, device = image.shape[-1], image.device
    if filter == "nearest":
        return image[..., torch.tensor(_nearest(in_size, out_size), device=device)]
    bounds, fixed = (part.to(device) for part in weights(in_size, out_size, filter))
    total = torch.full((*image.shape[:-1], out_size), 1 << (PRECISION_BITS - 1), device=device)
    for k in range(fixed.shape[1]):
        pixel = (bounds[:, 0] + k).clamp(max=in_size - 1)
        total += image[..., pixel].long() * fixed[:, k]
    return (total >> PRECISION_BITS).clamp(0, 255).to(torch.uint8)


def _nearest(in_size: int, out_size: int) -> list[int]:
    """The source pixel of every output pixel; the position is added up, as Pillow does."""
    scale = in_size / out_size
    position, pixels = scale * 0.5, []
    for _ in range(out_size):
        pixels.append(int(position))
        position += scale
    return pixels


@dataclass(frozen=True)
class ResizedCrop:
    """Crops a random part of every image and resizes it, as torchvision's RandomResizedCrop does.

    It takes images of differing sizes, and makes them one.

    Attributes:
        step: number its draws are keyed by.
        size: (height, width) of what it puts out, in pixels.
        scale: least and greatest area, as a share of the image's.
        ratio: least and greatest aspect ratio, width over height.
        filter: how the crop is resized.
        order: which axis is resized first, which depends on the version of Pillow.
        gate: set by RandomApply; only for images that have `size` already.
    """

    step: int
    size: tuple[int, int]
    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3.0 / 4.0, 4.0 / 3.0)
    filter: Filter = "bilinear"
    order: Order = "cheaper first"
    gate: Gate | None = None

    def out_shape(self, shape: Shape) -> Shape:
        return shape[0], *self.size

    def draw(self, draws: Draws, shape: Shape) -> Params:
        one = torch.ones_like(draws.ids)
        return self.draw_for(draws, one * shape[1], one * shape[2])

    def draw_for(self, draws: Draws, heights: Tensor, widths: Tensor) -> Params:
        """Crops of images of differing sizes.

        Args:
            draws: the batch's random words.
            heights: (B,) int64, in pixels.
            widths: (B,) int64.

        Returns:
            "top", "left", "height" and "width", each (B,) int64.
        """
        aspects = torch.from_numpy(aspect_table(self.ratio)).to(draws.ids.device)
        result = self._centred(heights, widths)
        is_open = torch.ones_like(heights, dtype=torch.bool)
        for attempt in range(1, TRIES + 1):
            words = draws.words(self.step, attempt)
            share = self.scale[0] + (self.scale[1] - self.scale[0]) * unit(words[:, 0])
            area = (heights * widths).double() * share
            aspect = aspects[words[:, 1] >> 20]
            width = torch.round(torch.sqrt(area * aspect)).long()
            height = torch.round(torch.sqrt(area / aspect)).long()
            fits = (width > 0) & (width <= widths) & (height > 0) & (height <= heights)
            found = {
                "top": below(words[:, 2], (heights - height + 1).clamp(min=1)),
                "left": below(words[:, 3], (widths - width + 1).clamp(min=1)),
                "height": height,
                "width": width,
            }
            takes = is_open & fits
            result = {name: torch.where(takes, found[name], result[name]) for name in result}
            is_open = is_open & ~fits
        return result

    def _centred(self, heights: Tensor, widths: Tensor) -> Params:
        """What is left when no try fits: the largest central crop of an allowed ratio."""
        narrowest, widest = min(self.ratio), max(self.ratio)
        ratio = widths.double() / heights.double()
        lower = torch.round(widths.double() / narrowest).long().clamp(min=1)
        slimmer = torch.round(heights.double() * widest).long().clamp(min=1)
        height = torch.where(ratio < narrowest, lower, heights)
        width = torch.where(ratio > widest, slimmer, widths)
        top, left = (heights - height) // 2, (widths - width) // 2
        return {"top": top, "left": left, "height": height, "width": width}

    def apply(self, images: Tensor, params: Params) -> Tensor:
        if len(images) == 0:
            return images.new_empty((0, images.shape[1], *self.size))
        return self.apply_ragged(list(images), params)

    def apply_ragged(self, images: Sequence[Tensor], params: Params) -> Tensor:
        """A batch of images of differing sizes.

        Args:
            images: B of (C, H, W) uint8, on one device; at least one.
            params: as `draw_for` gives them.

        Returns:
            (B, C, height, width) uint8.
        """
        names = ("top", "left", "height", "width")
        boxes = torch.stack([params[name] for name in names], dim=1).tolist()
        crops = [
            image[:, top : top + height, left : left + width]
            for image, (top, left, height, width) in zip(images, boxes, strict=True)
        ]
        return torch.stack([resize(crop, self.size, self.filter, self.order) for crop in crops])


def makes_one_size(ops: Sequence[Op]) -> bool:
    """Whether operations take images of differing sizes: the first gives all of them one size."""
    return bool(ops) and isinstance(ops[0], ResizedCrop) and ops[0].gate is None
