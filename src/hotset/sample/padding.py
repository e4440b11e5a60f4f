"""Leaves whose shape differs, in one batch: padded to the longest, or end to end with offsets.

What stands here is the reference: index arithmetic where the values lie, and one gather. Shapes are
known on the host, so nothing waits for a device.
"""

from __future__ import annotations

import math
import numbers
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from hotset.errors import ConfigError, SchemaError
from hotset.sample.moving import to_device

INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Dtypes that values of so many bytes are moved as: no bit changes, and all devices have them."""


@dataclass(frozen=True)
class Padded:
    """Fields whose length differs come out padded: every axis to the longest of the batch.

    The length is the first axis along which samples differ, T of (T,), (T, D) or (C, T); further
    axes that differ are padded at their end.

    Args:
        value: what stands where a sample has no value; must fit the field's dtype.
        multiple_of: lengths are rounded up to a multiple of this.
        side: "right" puts it behind the values, "left" before them.
        max_length: longer samples are cut on the padded side: "right" keeps their first values,
            "left" their last. None cuts none.

    Raises:
        ConfigError: for values that cannot be used.

    Example:
        >>> import torch, hotset
        >>> tokens = [torch.tensor([5, 6, 7]), torch.tensor([8])]
        >>> loader = hotset.Loader(
        ...     {"tokens": tokens}, 2, ragged=hotset.Padded(value=-1, multiple_of=4), device="cpu"
        ... )
        >>> next(iter(loader))["tokens"].tolist()
        [[5, 6, 7, -1], [8, -1, -1, -1]]
    """

    value: float = 0
    multiple_of: int = 1
    side: Literal["right", "left"] = "right"
    max_length: int | None = None

    def __post_init__(self) -> None:
        value: Any = self.value
        if not isinstance(value, (bool, np.bool_, numbers.Real)):
            raise ConfigError(f"`value` must be a number, got {value!r}")
        _check_count("multiple_of", self.multiple_of)
        side: str = self.side
        if side not in ("right", "left"):
            raise ConfigError(f"`side` must be 'right' or 'left', got {side!r}")
        if self.max_length is None:
            return
        _check_count("max_length", self.max_length)
        if self.max_length % self.multiple_of:
            raise ConfigError(
                f"`max_length` must be a multiple of `multiple_of`, got {self.max_length} and "
                f"{self.multiple_of}: batches would be longer than it"
            )

    def fill(self, dtype: torch.dtype) -> Tensor:
        """() of a dtype, on the CPU: the pad value.

        Raises:
            ConfigError: if it does not fit.
        """
        if not (dtype.is_floating_point or dtype.is_complex):
            least, most = (0, 1) if dtype is torch.bool else _bounds(dtype)
            is_whole = float(self.value).is_integer()
            if not is_whole or not least <= self.value <= most:
                raise ConfigError(
                    f"the pad value {self.value!r} does not fit {_short(dtype)}, whose values are "
                    f"whole numbers from {least} to {most}; give hotset.Padded(value=...)"
                )
            return torch.tensor(int(self.value)).to(dtype)
        filled = torch.tensor(self.value, dtype=dtype)
        if math.isfinite(self.value) and not math.isfinite(abs(filled.item())):
            raise ConfigError(
                f"the pad value {self.value!r} is beyond the range of {_short(dtype)}; give "
                "hotset.Padded(value=...)"
            )
        return filled


def _check_count(name: str, count: Any) -> None:
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise ConfigError(f"`{name}` must be a whole number of at least 1, got {count!r}")


def _bounds(dtype: torch.dtype) -> tuple[int, int]:
    return torch.iinfo(dtype).min, torch.iinfo(dtype).max


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


class Jagged(NamedTuple):
    """Leaves end to end, on their way to a nested tensor.

    Attributes:
        values: (sum of lengths, ...) of one dtype.
        offsets: (B + 1,) int64 beside them: leaf b is `values[offsets[b]:offsets[b + 1]]`.
        least: the smallest length.
        most: the largest.
    """

    values: Tensor
    offsets: Tensor
    least: int
    most: int

    def nested(self) -> Tensor:
        """(B, lengths, ...) nested tensor of jagged layout; nothing is copied."""
        return torch.nested.nested_tensor_from_jagged(
            self.values, self.offsets, min_seqlen=self.least, max_seqlen=self.most
        )


def bits_of(data: Tensor) -> Tensor:
    """The same memory as integers, where there are any of that size."""
    dtype = INTEGERS.get(data.element_size())
    return data if dtype is None else data.view(dtype)


def fill_of(padded: Padded, dtype: torch.dtype) -> Any:
    """The pad value as `bits_of` has it."""
    return bits_of(padded.fill(dtype)[None])[0].item()


def padded_shape(shapes: np.ndarray, padded: Padded, axis: int) -> tuple[int, ...]:
    """The shape that every leaf of a batch is padded, or cut, to.

    Args:
        shapes: (B, axes) int64.
        padded: how.
        axis: the one that is the length.
    """
    most: list[int] = shapes.max(axis=0).tolist()
    length = most[axis] if padded.max_length is None else min(most[axis], padded.max_length)
    most[axis] = -(-length // padded.multiple_of) * padded.multiple_of
    return tuple(most)


def pad_rows(data: Tensor, index: np.ndarray, *, padded: Padded, axis: int = 0) -> Tensor:
    """(B, longest, ...) of data's dtype, where it lies: some leaves, padded.

    Args:
        data: (values,) on any device.
        index: (B, 1 + axes) int64 on the host: where each leaf starts in `data`, and its shape.
        padded: how.
        axis: the one that is the length.
    """
    shape = padded_shape(index[:, 1:], padded, axis)
    source, fill = bits_of(data), fill_of(padded, data.dtype)
    axes = len(shape)
    if data.numel() == 0:
        return torch.full((len(index), *shape), fill, dtype=source.dtype, device=data.device).view(
            data.dtype
        )
    numbers_of = to_device(index, data.device)
    place = numbers_of[:, 0].reshape(-1, *[1] * axes)
    is_there = torch.ones_like(place, dtype=torch.bool)
    stride = torch.ones_like(numbers_of[:, 0])
    for number in reversed(range(axes)):
        around = [1] * (axes - 1 - number)
        length = numbers_of[:, 1 + number].reshape(-1, *[1] * axes)
        position = torch.arange(shape[number], device=data.device).reshape(-1, *around)
        if number == axis and padded.side == "left":
            position = position - shape[number] + length
        is_there = is_there & (position >= 0) & (position < length)
        place = place + position * stride.reshape(-1, *[1] * axes)
        stride = stride * numbers_of[:, 1 + number]
    chosen = source[torch.where(is_there, place, 0)]
    return torch.where(is_there, chosen, fill).view(data.dtype)


def jagged_rows(data: Tensor, index: np.ndarray) -> Jagged:
    """Some leaves end to end, where data lies.

    Args:
        data: (values,) on any device.
        index: (B, 1 + axes) int64 on the host: where each leaf starts in `data`, and its shape;
            the shapes are equal but for the first axis.
    """
    runs = runs_of(index)
    total = int(runs.sizes.sum())
    begins = runs.sizes.cumsum() - runs.sizes
    # One copy for all three; offsets are one more than there are leaves.
    numbers_of = np.zeros((3, len(index) + 1), dtype=np.int64)
    numbers_of[0, :-1], numbers_of[1, :-1] = runs.sizes, runs.starts - begins
    numbers_of[2] = runs.offsets
    sizes, shifts, offsets = to_device(numbers_of, data.device)
    leaf = torch.repeat_interleave(sizes, output_size=total)
    place = torch.arange(total, device=data.device) + shifts[leaf]
    values = bits_of(data)[place].view(data.dtype)
    return Jagged(values.reshape(runs.shape), offsets, runs.least, runs.most)


@dataclass(frozen=True, eq=False)
class Runs:
    """Where leaves lie that are put end to end.

    Attributes:
        starts: (B,) int64, in values.
        sizes: (B,) int64, in values.
        offsets: (B + 1,) int64, in entries of the first axis.
        shape: of all of them together.
        least: the smallest length.
        most: the largest.
    """

    starts: np.ndarray
    sizes: np.ndarray
    offsets: np.ndarray
    shape: tuple[int, ...]
    least: int
    most: int


def runs_of(index: np.ndarray) -> Runs:
    """What leaves become that are put end to end.

    Args:
        index: (B, 1 + axes) int64: where each leaf starts, and its shape.
    """
    lengths, tail = index[:, 1], index[0, 2:].tolist()
    offsets: np.ndarray = np.zeros(len(index) + 1, dtype=np.int64)
    lengths.cumsum(out=offsets[1:])
    return Runs(
        index[:, 0],
        lengths * math.prod(tail),
        offsets,
        (int(offsets[-1]), *tail),
        int(lengths.min()),
        int(lengths.max()),
    )


def check_jagged(shapes: np.ndarray, path: str) -> None:
    """Makes sure that leaves differ along their first axis only.

    Args:
        shapes: (B, axes) int64.
        path: how messages call the leaf.

    Raises:
        SchemaError: if they differ elsewhere; names two shapes.
    """
    unlike = np.flatnonzero((shapes[:, 1:] != shapes[:1, 1:]).any(axis=1))
    if len(unlike):
        first, other = (tuple(shapes[place].tolist()) for place in (0, unlike[0]))
        raise SchemaError(
            f"sample{path} has the shapes {first} and {other}, which differ behind the first "
            "axis; ragged='jagged' needs the length there, as in (T, C): transpose it, or take "
            "ragged='pad'"
        )
