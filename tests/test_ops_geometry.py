"""Windows and flips: pixels by hand, and the distribution of their draws."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torchvision import transforms as v1

from hotset.ops.geometry import FILL, Flip, Padding, PaddingMode, Window
from hotset.ops.op import Gate, apply_gated, draw_gated
from hotset.rng import Draws, Key

SHAPE = (3, 32, 32)
MANY = 20_000


def _draws(count: int, *, seed: int = 7, epoch: int = 0, run_seed: int = 3, again: int = 0):
    ids = torch.arange(count)
    return Draws(Key(seed, epoch, run_seed), ids, torch.full_like(ids, again))


def _chi_square(numbers: torch.Tensor, cells: int) -> float:
    counts = torch.bincount(numbers, minlength=cells).double()
    assert len(counts) == cells
    expected = len(numbers) / cells
    return float(((counts - expected) ** 2 / expected).sum())


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("constant", [FILL, FILL, 0, 1, 2, FILL]),
        ("edge", [0, 0, 0, 1, 2, 2]),
        ("reflect", [2, 1, 0, 1, 2, 1]),
        ("symmetric", [1, 0, 0, 1, 2, 2]),
    ],
)
def test_index_maps(mode: PaddingMode, expected: list[int]):
    """Which row or column each padded one repeats, in the four modes."""
    padding = Padding(2, 2, 1, 1, mode)
    assert padding.row_map(3).tolist() == expected
    assert padding.column_map(3).tolist() == expected
    assert padding.row_map(3).dtype == np.int32


def test_negative_sides_crop():
    """A negative side takes rows or columns off, as in torchvision."""
    assert Padding(0, -1, 0, 2).row_map(4).tolist() == [1, 2, 3, FILL, FILL]
    assert Padding(1, 0, -3, 0, "edge").column_map(4).tolist() == [0, 0]


def test_paddings_follow_one_another():
    """A second padding repeats what the first one made, its fill included."""
    window = Window(0, (1, 7), (Padding(1, 0, 0, 0), Padding(2, 0, 2, 0, "reflect")))
    rows, columns = window.maps((1, 1, 2))
    assert rows.tolist() == [0]
    assert columns.tolist() == [1, 0, FILL, 0, 1, 0, FILL]


def test_window_shows_its_pixels():
    """Each sample's own window: the fill outside, one value per channel, and the image inside."""
    images = torch.arange(1, 9, dtype=torch.uint8).reshape(1, 2, 2, 2).repeat(2, 1, 1, 1)
    window = Window(0, (2, 2), (Padding(1, 1, 1, 1),), None, (90, 91))
    params = {"top": torch.tensor([0, 2]), "left": torch.tensor([1, 1])}
    found = window.apply(images, params)
    assert found.tolist() == [
        [[[90, 90], [1, 2]], [[91, 91], [5, 6]]],
        [[[3, 4], [90, 90]], [[7, 8], [91, 91]]],
    ]


def test_fixed_window_draws_nothing():
    """Where the position is given there are no parameters."""
    window = Window(0, (1, 1), (), (1, 0))
    assert window.draw(_draws(5), (1, 2, 2)) == {}
    images = torch.tensor([[[[1, 2], [3, 4]]]])
    assert window.apply(images, {}).tolist() == [[[[3]]]]
    assert window.out_shape((1, 2, 2)) == (1, 1, 1)


def test_crop_offsets_are_uniform_with_both_ends():
    """Padding 4 on 32 pixels: each of 0 to 8 equally often, both ways, and independently."""
    window = Window(5, (32, 32), (Padding(4, 4, 4, 4),))
    params = window.draw(_draws(MANY), SHAPE)
    for name in ("top", "left"):
        assert params[name].unique().tolist() == list(range(9))
        assert _chi_square(params[name], 9) < 26.1  # 8 degrees of freedom, 0.1 %
    assert _chi_square(params["top"] * 9 + params["left"], 81) < 124.8  # 80, 0.1 %


@given(
    st.integers(1, 9), st.integers(1, 9), st.integers(0, 4), st.integers(1, 9), st.integers(1, 9)
)
def test_offsets_reach_every_place(height: int, width: int, pad: int, tall: int, wide: int):
    """All positions at which the window lies in the padded image are drawn, and no other."""
    window = Window(0, (tall, wide), (Padding(pad, pad, pad, pad),))
    down, sideways = window.range((1, height, width))
    if down < 1 or sideways < 1:
        return
    params = window.draw(_draws(600), (1, height, width))
    assert params["top"].unique().tolist() == list(range(down))
    assert params["left"].unique().tolist() == list(range(sideways))


def test_offsets_have_torchvisions_distribution():
    """Each place comes as often as in as many draws of torchvision's own."""
    image = torch.zeros(3, 40, 40)
    torch.manual_seed(0)
    theirs = torch.tensor([v1.RandomCrop.get_params(image, (32, 32))[0] for _ in range(5000)])
    ours = Window(0, (32, 32)).draw(_draws(5000), (3, 40, 40))["top"]
    a, b = (torch.bincount(offsets, minlength=9).double() for offsets in (theirs, ours))
    assert len(a) == len(b) == 9
    assert float(((a - b) ** 2 / (a + b)).sum()) < 26.1


@pytest.mark.parametrize(
    ("p", "least", "most"), [(0.0, 0, 0), (0.5, 9790, 10_210), (1, MANY, MANY)]
)
def test_flips_come_with_their_probability(p: float, least: int, most: int):
    """Never at 0, always at 1, within three standard deviations at 1/2."""
    flips = Flip(0, p=p).draw(_draws(MANY), SHAPE)["flips"]
    assert least <= int(flips.sum()) <= most


def test_flip_shows_its_pixels():
    """Only the samples drawn are mirrored, along the axis named."""
    images = torch.tensor([[[[1, 2], [3, 4]]]]).repeat(2, 1, 1, 1)
    params = {"flips": torch.tensor([1, 0])}
    assert Flip(0).apply(images, params)[:, 0].tolist() == [[[2, 1], [4, 3]], [[1, 2], [3, 4]]]
    vertical = Flip(0, "vertical").apply(images, params)
    assert vertical[:, 0].tolist() == [[[3, 4], [1, 2]], [[1, 2], [3, 4]]]


def test_alternating_flip_is_always_opposite():
    """About half in the first epoch; after it, each epoch shows the other form of every sample."""
    flip = Flip(2, is_alternating=True)
    first = flip.draw(_draws(MANY, seed=1, epoch=0), SHAPE)["flips"]
    assert 9790 <= int(first.sum()) <= 10_210
    for epoch in range(1, 6):
        flips = flip.draw(_draws(MANY, seed=epoch * 77, epoch=epoch), SHAPE)["flips"]
        assert torch.equal(flips, first if epoch % 2 == 0 else 1 - first)


def test_draws_differ_between_steps_and_occurrences():
    """Two flips of one chain, and a sample that comes again, are drawn independently."""
    a = Flip(0).draw(_draws(MANY), SHAPE)["flips"]
    for other in (
        Flip(1).draw(_draws(MANY), SHAPE)["flips"],
        Flip(0).draw(_draws(MANY, again=1), SHAPE)["flips"],
        Flip(0).draw(_draws(MANY, epoch=1), SHAPE)["flips"],
    ):
        assert 9790 <= int((a == other).sum()) <= 10_210


@pytest.mark.parametrize(("p", "least", "most"), [(0, 0, 0), (0.3, 5805, 6195), (1, MANY, MANY)])
def test_gate_opens_with_its_probability(p: float, least: int, most: int):
    """What RandomApply guards happens to that share of the samples, to all of its steps at once."""
    gate = Gate(9, p)
    flips, others = (Flip(step, p=1.0, gate=gate) for step in (0, 1))
    params = draw_gated(flips, _draws(MANY), SHAPE)
    assert least <= int(params["passes"].sum()) <= most
    assert torch.equal(params["passes"], draw_gated(others, _draws(MANY), SHAPE)["passes"])


def test_gate_leaves_the_others_as_they_are():
    """A sample that does not pass is not touched."""
    images = torch.tensor([[[[1, 2]]], [[[3, 4]]]])
    params = {"flips": torch.tensor([1, 1]), "passes": torch.tensor([False, True])}
    found = apply_gated(Flip(0, gate=Gate(1, 0.5)), images, params)
    assert found.flatten().tolist() == [1, 2, 4, 3]
