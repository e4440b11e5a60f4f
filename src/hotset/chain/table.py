"""The exact 256-entry table of an elementwise tail on bytes.

The table is built by running the user's own steps on images that hold every value, and believed
only after it gave the bits of the user's steps on images of other content: a step that looks at a
pixel's neighbours, its position, its other channels or the image's statistics is found out there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hotset.chain.step import Step
from hotset.sample.collate import same_bits
from hotset.sample.column import LeafSchema, decode, describe, encode

VALUES = 256


def is_bytes_image(leaf: Any) -> bool:
    """Whether a leaf is an image of whole bytes, as PIL or as a (C, H, W) uint8 tensor."""
    schema = describe(leaf)
    return (
        schema.kind in ("image", "tensor")
        and len(schema.shape) == 3
        and schema.dtype is torch.uint8
        and 0 not in schema.shape
    )


def build_table(steps: Sequence[Step], samples: Sequence[Any]) -> Tensor | str:
    """(C, 256) table that does what the steps do, or why there is none.

    Args:
        steps: deterministic steps, to be run one after the other.
        samples: leaves that reach the first step: PIL images or (C, H, W) uint8 tensors of one
            number of channels.
    """
    schema = describe(samples[0])
    calls = [step.call for step in steps]
    names = " + ".join(step.name for step in steps)
    try:
        table = _tabulate(calls, schema)
        if isinstance(table, str):
            return f"{names}: {table}"
        checks = [(schema, image) for image in _checks(schema)]
        for leaf in samples:
            own = describe(leaf)
            checks.append((own, encode(leaf, own)))
        for own, image in checks:
            if not _agrees(table, calls, own, image):
                return f"{names} does not act on each value by itself"
    except Exception as error:
        return f"{names} cannot be tabulated ({type(error).__name__}: {error})"
    return table


def _run(calls: Sequence[Callable[[Any], Any]], schema: LeafSchema, image: Tensor) -> Any:
    value = decode(image, schema)
    for call in calls:
        value = call(value)
    return value


def _tabulate(calls: Sequence[Callable[[Any], Any]], schema: LeafSchema) -> Tensor | str:
    channels, height, width = schema.shape
    pixels = height * width
    parts = []
    for start in range(0, VALUES, pixels):
        image = ((torch.arange(pixels) + start) % VALUES).to(torch.uint8)
        result = _run(calls, schema, image.expand(channels, pixels).reshape(schema.shape))
        if not isinstance(result, Tensor):
            return f"gives a {type(result).__name__}, not a tensor"
        if tuple(result.shape) != schema.shape:
            return f"makes shape {tuple(result.shape)} of {schema.shape}"
        parts.append(result.as_subclass(Tensor).reshape(channels, pixels))
    return torch.cat(parts, dim=1)[:, :VALUES].contiguous()


def _checks(schema: LeafSchema) -> list[Tensor]:
    """Images of differing content and statistics: uniform, few values, one value, a single spot."""
    generator = np.random.default_rng(0)
    images = [generator.integers(0, VALUES, schema.shape) for _ in range(3)]
    images.append(generator.integers(0, 4, schema.shape))
    images.append(generator.integers(200, VALUES, schema.shape))
    images.extend(np.full(schema.shape, value) for value in (0, 7, 255))
    spot = np.zeros(schema.shape, dtype=np.int64)
    spot[..., schema.shape[1] // 2, schema.shape[2] // 2] = 255
    images.append(spot)
    return [torch.from_numpy(image.astype(np.uint8)) for image in images]


def _agrees(
    table: Tensor, calls: Sequence[Callable[[Any], Any]], schema: LeafSchema, image: Tensor
) -> bool:
    expected = _run(calls, schema, image)
    channel = torch.arange(schema.shape[0])[:, None, None]
    found = table[channel, image.long()]
    return isinstance(expected, Tensor) and same_bits(found, expected.as_subclass(Tensor))
