"""Erasing: pixels by hand, and rectangles distributed as torchvision's are."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torchvision import transforms as v1

from hotset.ops.erase import ASPECT_LEVELS, Cutout, RandomErase, aspect_table, erase
from hotset.rng import Draws, Key

SHAPE = (3, 32, 32)
MANY = 4000


def _draws(count: int, *, seed: int = 5, epoch: int = 0) -> Draws:
    ids = torch.arange(count)
    return Draws(Key(seed, epoch, 0), ids, torch.zeros_like(ids))


def _two_samples(a: Tensor, b: Tensor, bins: int) -> float:
    """Chi-square between two samples, in cells that hold equal shares of both together."""
    both = torch.cat((a, b)).double()
    edges = torch.unique(torch.quantile(both, torch.linspace(0, 1, bins + 1).double()))
    x, y = (np.histogram(part.numpy(), edges.numpy())[0].astype(float) for part in (a, b))
    filled = x + y > 0
    return float(((x - y)[filled] ** 2 / (x + y)[filled]).sum())


def test_erase_sets_a_rectangle():
    """Each sample's own rectangle takes one value per channel; a height of 0 erases nothing."""
    images = torch.zeros(2, 2, 2, 3, dtype=torch.uint8)
    params = {
        "top": torch.tensor([1, 0]),
        "left": torch.tensor([0, 0]),
        "height": torch.tensor([1, 0]),
        "width": torch.tensor([2, 3]),
    }
    found = erase(images, params, (7, 8))
    assert found[0].tolist() == [[[0, 0, 0], [7, 7, 0]], [[0, 0, 0], [8, 8, 0]]]
    assert not found[1].any()
    assert not images.any()


def test_aspects_are_log_uniform():
    """4096 ratios between the bounds, as many below 1 as above it where the bounds are inverse."""
    aspects = aspect_table((0.25, 4.0))
    assert len(aspects) == ASPECT_LEVELS
    assert 0.25 < aspects.min() < aspects.max() < 4.0
    assert (aspects < 1).sum() == ASPECT_LEVELS // 2
    assert np.allclose(np.diff(np.log(aspects)), np.log(16) / ASPECT_LEVELS)
    assert aspect_table((1.0, 1.0)).tolist() == [1.0] * ASPECT_LEVELS


@pytest.mark.parametrize(("p", "least", "most"), [(0.0, 0, 0), (0.5, 1900, 2100), (1, MANY, MANY)])
def test_erasing_comes_with_its_probability(p: float, least: int, most: int):
    """Never at 0, always at 1, about half the samples at 1/2."""
    params = RandomErase(0, p).draw(_draws(MANY), SHAPE)
    assert least <= int((params["height"] > 0).sum()) <= most


@given(
    st.integers(2, 40),
    st.integers(2, 40),
    st.sampled_from([(0.02, 0.33), (0.2, 0.9), (1.0, 1.0)]),
    st.sampled_from([(0.3, 3.3), (1.0, 1.0), (0.05, 20.0)]),
)
def test_rectangles_lie_inside(
    height: int, width: int, scale: tuple[float, float], ratio: tuple[float, float]
):
    """No rectangle leaves the image or fills a side of it; area and aspect keep their bounds."""
    params = RandomErase(0, 1.0, scale, ratio).draw(_draws(200), (1, height, width))
    found = params["height"] > 0
    top, left, tall, wide = (params[name][found] for name in ("top", "left", "height", "width"))
    assert (tall < height).all()
    assert (wide < width).all()
    assert (top >= 0).all()
    assert (top + tall <= height).all()
    assert (left >= 0).all()
    assert (left + wide <= width).all()
    # Both edges are rounded: within half a pixel of some rectangle that keeps the bounds.
    area = height * width
    assert ((tall + 0.5) * (wide + 0.5) >= scale[0] * area).all()
    assert ((tall - 0.5) * (wide - 0.5) <= scale[1] * area).all()
    assert ((tall + 0.5) / (wide - 0.5).clamp(min=1e-9) >= ratio[0]).all()
    assert ((tall - 0.5) / (wide + 0.5) <= ratio[1]).all()


def test_rectangles_reach_both_ends():
    """First and last row and column are reached."""
    params = RandomErase(0, 1.0).draw(_draws(MANY), SHAPE)
    assert int(params["top"].min()) == int(params["left"].min()) == 0
    assert int((params["top"] + params["height"]).max()) == 32
    assert int((params["left"] + params["width"]).max()) == 32


@pytest.mark.parametrize(
    ("scale", "ratio"),
    [((0.02, 0.33), (0.3, 3.3)), ((0.5, 0.9), (0.3, 3.3)), ((0.1, 0.4), (1.0, 1.5))],
)
def test_rectangles_have_torchvisions_distribution(
    scale: tuple[float, float], ratio: tuple[float, float]
):
    """Top, left, height, width, area and aspect: histograms against torchvision's own draws."""
    image, transform = torch.zeros(SHAPE), v1.RandomErasing
    torch.manual_seed(0)
    theirs = torch.tensor(
        [transform.get_params(image, scale, ratio, [0.0])[:4] for _ in range(MANY)]
    )
    # Where ten tries fail, torchvision names the whole image, and erases nothing.
    is_whole = (theirs[:, 2] == 32) & (theirs[:, 3] == 32)
    params = RandomErase(0, 1.0, scale, ratio).draw(_draws(MANY), SHAPE)
    ours = torch.stack([params[name] for name in ("top", "left", "height", "width")], dim=1)
    is_none = ours[:, 2] == 0
    failed, failed_here = int(is_whole.sum()), int(is_none.sum())
    assert (failed - failed_here) ** 2 <= 10.8 * max(1, failed + failed_here)
    theirs, ours = theirs[~is_whole].double(), ours[~is_none].double()
    for measure in (
        lambda r: r[:, 0],
        lambda r: r[:, 1],
        lambda r: r[:, 2],
        lambda r: r[:, 3],
        lambda r: r[:, 2] * r[:, 3],
        lambda r: r[:, 2] / r[:, 3],
    ):
        assert _two_samples(measure(theirs), measure(ours), 12) < 31.3  # 11 degrees, 0.1 %


def test_cutout_lies_wholly_inside():
    """A square of fixed size, every position equally often, both end points included."""
    params = Cutout(0, 5).draw(_draws(MANY), (3, 9, 12))
    assert params["height"].unique().tolist() == params["width"].unique().tolist() == [5]
    assert params["top"].unique().tolist() == list(range(5))
    assert params["left"].unique().tolist() == list(range(8))
    counts = torch.bincount(params["left"]).double()
    assert float(((counts - MANY / 8) ** 2 / (MANY / 8)).sum()) < 24.3  # 7 degrees, 0.1 %


def test_cutout_larger_than_the_image_covers_it():
    """The square is cut to the image's edges."""
    images = torch.ones(3, 1, 2, 3)
    cutout = Cutout(0, 9, (0.25,))
    found = cutout.apply(images, cutout.draw(_draws(3), (1, 2, 3)))
    assert found.unique().tolist() == [0.25]


def test_random_erase_shows_its_pixels():
    """What lies in the rectangle drawn has the value, what lies outside is the image's."""
    images = torch.ones(50, 2, 8, 9)
    op = RandomErase(0, 1.0, value=(0.5, 0.25))
    params = op.draw(_draws(50), (2, 8, 9))
    found = op.apply(images, params)
    assert op.out_shape((2, 8, 9)) == (2, 8, 9)
    for image, top, left, tall, wide in zip(
        found, *(params[n].tolist() for n in ("top", "left", "height", "width")), strict=True
    ):
        expected = torch.ones(2, 8, 9)
        expected[0, top : top + tall, left : left + wide] = 0.5
        expected[1, top : top + tall, left : left + wide] = 0.25
        assert torch.equal(image, expected)
