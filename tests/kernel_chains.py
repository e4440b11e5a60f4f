"""Chains that the fused kernels are held to, and the reference that they are held against."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from hotset.kernels.dispatch import Reference
from hotset.kernels.program import Program, lower
from hotset.ops.erase import Cutout, RandomErase
from hotset.ops.geometry import Flip, Padding, Window
from hotset.ops.op import Gate, Op, Shape
from hotset.ops.pointwise import Elementwise, Table
from hotset.rng import Draws, Key

SHAPE = (3, 7, 9)
MODES = ("constant", "edge", "reflect", "symmetric")


@dataclass(frozen=True)
class Case:
    """A chain, and the images it is applied to."""

    name: str
    ops: tuple[Op, ...]
    shape: Shape = SHAPE
    dtype: torch.dtype = torch.uint8
    out_dtype: torch.dtype | None = None

    def program(self) -> Program:
        """The chain, lowered."""
        program = lower(self.ops, self.shape, self.dtype, self.out_dtype)
        assert isinstance(program, Program), program
        return program


def table(step: int, dtype: torch.dtype = torch.float32, channels: int = 3) -> Table:
    """A table without structure, another one per channel."""
    generator = torch.Generator().manual_seed(step)
    return Table(step, torch.randn(channels, 256, generator=generator).to(dtype))


def crop(step: int, size: tuple[int, int], *paddings: Padding, **options: Any) -> Window:
    """A window at a random position."""
    return Window(step, size, paddings, **options)


def twice_less_one(step: int) -> Elementwise:
    """A user's own step on each value."""
    return Elementwise(step, lambda values: values * 2 - 1)


_AROUND = Padding(2, 2, 2, 2)
_GATE = Gate(9, 0.5)
_FILL = (7, 8, 9)

_GEOMETRY = [
    *(
        Case(f"crop-{mode}", (crop(0, (7, 9), Padding(3, 1, 2, 4, mode), fill=_FILL), table(1)))
        for mode in MODES
    ),
    Case("crop-trims-a-side", (crop(0, (5, 8), Padding(-1, 2, 3, -2), fill=_FILL),)),
    Case("crop-pads-twice", (crop(0, (9, 9), _AROUND, Padding(1, 3, 0, 2, "reflect")),)),
    Case("crop-rectangle", (crop(0, (4, 6)), table(1))),
    Case("centre-crop", (Window(0, (5, 4), position=(1, 2)), table(1))),
    Case("pad", (Window(0, (11, 13), (_AROUND,), (0, 0), (5,)), table(1))),
    Case("flip-horizontal", (Flip(0), table(1))),
    Case("flip-vertical", (Flip(0, "vertical"), table(1))),
    Case("flip-both", (Flip(0), Flip(1, "vertical"), table(2))),
    Case("flip-always-and-never", (Flip(0, p=1.0), Flip(1, "vertical", p=0.0), table(2))),
    Case("flip-alternating", (Flip(0, is_alternating=True), table(1))),
    Case("crop-flip", (crop(0, (7, 9), _AROUND), Flip(1), table(2))),
    Case("flip-crop-crop", (Flip(0), crop(1, (8, 8), _AROUND, fill=(1,)), crop(2, (5, 3)))),
    Case("gated-crop", (crop(0, (7, 9), _AROUND, gate=Gate(9, 0.5)), Flip(1), table(2))),
    Case("gate-over-two", (crop(0, (7, 9), _AROUND, gate=_GATE), Flip(1, gate=_GATE), table(2))),
    Case("gated-flips", (Flip(0, is_alternating=True, gate=_GATE), Flip(1, gate=Gate(8, 0.3)))),
]
_FILLS = [
    Case(
        "fill-before-and-after-table",
        (
            crop(0, (7, 9), _AROUND, fill=_FILL),
            table(1),
            crop(2, (7, 9), _AROUND, fill=(0.5, -1.0, 3.0)),
            twice_less_one(3),
        ),
    ),
    Case("fills-meet", tuple(crop(k, (7, 9), _AROUND, fill=(k,)) for k in range(3))),
]
_ERASURES = [
    Case("cutout", (table(0), Cutout(1, 4, (0.25,)))),
    Case("cutout-larger-than-image", (Cutout(0, 8, (3,)),)),
    Case("gated-cutout", (Cutout(0, 3, _FILL, _GATE), table(1))),
    Case("random-erase", (Flip(0), table(1), RandomErase(2, 0.7, value=(1.0, 2.0, 3.0)))),
    Case("gated-random-erase", (table(0), RandomErase(1, 1.0, gate=_GATE))),
    Case("random-erase-rarely-fits", (RandomErase(0, 1.0, (0.5, 1.5), (0.5, 2.0), (9,)),)),
    Case(
        "two-random-erasures",
        (
            Cutout(0, 2),
            RandomErase(1, 1.0, (0.1, 0.2)),
            RandomErase(2, 1.0, (0.3, 0.5), (2.0, 2.5)),
        ),
    ),
    Case(
        "two-erasures-then-table",
        (crop(0, (7, 9), _AROUND), RandomErase(1, 0.8, value=_FILL), Cutout(2, 3, (4,)), table(3)),
    ),
]
_VALUES = [
    Case("identity", ()),
    *(
        Case(f"table-{dtype}".replace("torch.", ""), (Flip(0), table(1, dtype)))
        for dtype in (torch.float16, torch.bfloat16, torch.float64)
    ),
    Case("cast-float16", (crop(0, (7, 9), _AROUND), table(1)), out_dtype=torch.float16),
    Case("cast-bytes-bfloat16", (Flip(0),), out_dtype=torch.bfloat16),
    Case("copy-bytes", (crop(0, (7, 9), _AROUND, fill=_FILL), Flip(1))),
    *(
        Case(
            f"copy-{dtype}".replace("torch.", ""),
            (crop(0, (7, 9), _AROUND, fill=(1, 2, 3)), Flip(1), Cutout(2, 2, (5,))),
            dtype=dtype,
        )
        for dtype in (torch.float16, torch.int32, torch.float32, torch.float64)
    ),
    Case("copy-float32-without-fill", (Flip(0),), dtype=torch.float32),
]
_SHAPES = [
    Case("one-channel", (crop(0, (5, 7), _AROUND), table(1, channels=1)), (1, 5, 7)),
    Case("four-channels", (crop(0, (5, 7), _AROUND), table(1, channels=4)), (4, 5, 7)),
    Case("seven-channels", (Flip(0), table(1, channels=7)), (7, 4, 6)),
    Case("one-pixel", (crop(0, (1, 1)), table(1)), (3, 2, 2)),
    Case("three-tiles", (crop(0, (35, 31), _AROUND), Cutout(1, 20), table(2)), (3, 35, 31)),
]
CASES = [*_GEOMETRY, *_FILLS, *_ERASURES, *_VALUES, *_SHAPES]

every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


def images_of(shape: Shape, dtype: torch.dtype, count: int = 11) -> Tensor:
    """(count, C, H, W) images of random bits, so that NaNs and denormals are among the floats."""
    generator = torch.Generator().manual_seed(count)
    size = (count, *shape[:2], shape[2] * dtype.itemsize)
    bits = torch.randint(0, 256, size, dtype=torch.uint8, generator=generator)
    return bits.view(dtype)


def draws_of(
    ids: Sequence[int], epoch: int = 0, *, seed: int = 2**63 + 2**31 + 12345, again: int = 0
) -> Draws:
    """Random words of a batch, the same sample coming for the time `again`."""
    rows = torch.tensor(ids, dtype=torch.int64)
    return Draws(Key(seed, epoch, seed // 3), rows, torch.full_like(rows, again))


def reference(case: Case, source: Tensor, rows: Tensor, draws: Draws) -> Tensor:
    """The batch, made operation by operation."""
    return Reference(case.ops, case.out_dtype).run(source, rows, draws)


def is_same_bits(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors agree in dtype, shape and every bit."""
    views = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    if one.dtype is not other.dtype:
        return False
    view = views[one.dtype.itemsize]
    return torch.equal(one.cpu().view(view), other.cpu().view(view))
