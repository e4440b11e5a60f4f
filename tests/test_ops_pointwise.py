"""Operations on each value by itself."""

from __future__ import annotations

import torch

from hotset.ops.pointwise import Elementwise, Table
from hotset.rng import Draws, Key

DRAWS = Draws(Key(0, 0, 0), torch.zeros(1, dtype=torch.int64), torch.zeros(1, dtype=torch.int64))


def test_table_looks_every_byte_up():
    """All 256 values of both channels become their channel's entry."""
    values = torch.stack((torch.arange(256) * 2.0, -torch.arange(256) - 1.0))
    table = Table(0, values)
    images = torch.arange(256, dtype=torch.uint8).reshape(1, 1, 16, 16).repeat(3, 2, 1, 1)
    found = table.apply(images, {})
    assert found.dtype is torch.float32
    for image in found:
        assert torch.equal(image.reshape(2, 256), values)


def test_table_keeps_bits_of_any_dtype():
    """Entries are moved, not calculated with: a half, a NaN, an integer stay what they are."""
    images = torch.tensor([[[[0, 255]]]], dtype=torch.uint8)
    for dtype in (torch.float16, torch.bfloat16, torch.float64, torch.int16):
        values = torch.zeros(1, 256, dtype=dtype)
        values[0, 255] = 7
        found = Table(0, values).apply(images, {})
        assert found.dtype is dtype
        assert found.flatten().tolist() == [0, 7]
    nan = torch.full((1, 256), float("nan"))
    assert Table(0, nan).apply(images, {}).isnan().all()


def test_elementwise_calls_the_users_step_on_the_batch():
    """The step sees all images at once, and what it gives is the result."""
    seen = []

    def step(images: torch.Tensor) -> torch.Tensor:
        seen.append(images.shape)
        return images * 2 - 1

    found = Elementwise(0, step).apply(torch.full((4, 3, 2, 2), 0.75), {})
    assert seen == [(4, 3, 2, 2)]
    assert found.unique().tolist() == [0.5]


def test_neither_draws_nor_changes_the_shape():
    """They are deterministic and keep every pixel in its place."""
    for op in (Table(3, torch.zeros(1, 256)), Elementwise(3, abs)):
        assert op.draw(DRAWS, (1, 2, 3)) == {}
        assert op.out_shape((1, 2, 3)) == (1, 2, 3)
        assert op.gate is None
        assert op.step == 3
