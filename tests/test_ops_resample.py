"""Resizing against Pillow, and random crops with a resize against torchvision."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from torchvision.transforms import InterpolationMode, RandomResizedCrop
from torchvision.transforms import functional as F

from hotset.ops.op import Gate, apply_gated, draw_gated
from hotset.ops.resample import (
    Filter,
    ResizedCrop,
    is_height_first,
    most_taps,
    pillow_order,
    resize,
    weights,
)
from hotset.rng import Draws, Key
from tests.kernel_chains import draws_of
from tests.ragged_chains import PILLOW_ORDER, ragged_of

RESAMPLING = {
    "nearest": Image.Resampling.NEAREST,
    "box": Image.Resampling.BOX,
    "bilinear": Image.Resampling.BILINEAR,
    "hamming": Image.Resampling.HAMMING,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
}
every_filter = pytest.mark.parametrize("name", RESAMPLING)
MODES = {1: "L", 3: "RGB", 4: "CMYK"}
EXTREMES = [
    ((1, 1), (1, 1)),
    ((1, 1), (7, 5)),
    ((1, 400), (9, 3)),
    ((400, 1), (3, 9)),
    ((2, 999), (64, 2)),
    ((375, 500), (224, 224)),
    ((97, 61), (97, 30)),
    ((97, 61), (40, 61)),
    ((97, 61), (97, 61)),
    ((300, 40), (90, 120)),
    ((13, 17), (250, 240)),
]


def _image(height: int, width: int, channels: int, seed: int) -> torch.Tensor:
    """Random bytes, or black and white only, so that overshooting filters clip."""
    pixels = np.random.default_rng(seed).integers(0, 256, (channels, height, width), np.uint8)
    return torch.from_numpy((pixels > 127).astype(np.uint8) * 255 if seed % 3 == 0 else pixels)


def _to_pil(image: torch.Tensor) -> Image.Image:
    channels, height, width = image.shape
    pixels = image.permute(1, 2, 0).contiguous().numpy().tobytes()
    return Image.frombytes(MODES[channels], (width, height), pixels)


def _from_pil(image: Image.Image) -> torch.Tensor:
    pixels = np.array(image)
    return torch.from_numpy(pixels).reshape(image.height, image.width, -1).permute(2, 0, 1)


def _is_pillows(image: torch.Tensor, size: tuple[int, int], name: Filter) -> bool:
    found = resize(image, size, name, PILLOW_ORDER)
    wanted = _from_pil(_to_pil(image).resize(size[::-1], RESAMPLING[name]))
    return found.dtype is torch.uint8 and torch.equal(found, wanted)


@every_filter
@pytest.mark.parametrize(("size", "out_size"), EXTREMES)
def test_resize_is_pillows_at_extremes(
    name: Filter, size: tuple[int, int], out_size: tuple[int, int]
):
    """Single pixels, bands, equal edges, large reductions and enlargements come out as Pillow's."""
    assert _is_pillows(_image(*size, 3, 1), out_size, name)
    assert _is_pillows(_image(*size, 1, 3), out_size, name)


@settings(max_examples=400)
@given(
    st.tuples(*[st.integers(1, 48)] * 4) | st.tuples(*[st.integers(1, 5)] * 4),
    st.sampled_from(tuple(RESAMPLING)),
    st.sampled_from((1, 3, 4)),
    st.integers(0, 99),
)
def test_resize_is_pillows(
    edges: tuple[int, int, int, int], name: Filter, channels: int, seed: int
):
    """Any image, at any size, through any filter, has the bytes that Pillow gives it."""
    assert _is_pillows(_image(*edges[:2], channels, seed), edges[2:], name)


@pytest.mark.parametrize("size", [(7, 40), (40, 7), (40, 40), (90, 11)])
def test_axes_go_in_the_order_of_the_rule(size: tuple[int, int]):
    """The height comes first only if it shrinks by more than twice what the width does."""
    image, out_size = _image(*size, 3, 1), (20, 20)
    by_width = resize(resize(image, (size[0], 20), "bicubic"), out_size, "bicubic")
    by_height = resize(resize(image, (20, size[1]), "bicubic"), out_size, "bicubic")
    shrinks, narrows = size[0] - 20, size[1] - 20
    is_first = shrinks > 0 and shrinks > 2 * narrows
    assert is_height_first(size, out_size, "cheaper first") is is_first
    assert not is_height_first(size, out_size, "width first")
    assert torch.equal(resize(image, out_size, "bicubic"), by_height if is_first else by_width)
    assert torch.equal(resize(image, out_size, "bicubic", "width first"), by_width)


def test_order_depends_on_pillows_version():
    """Version 13 is the first that may resize the height before the width."""
    assert pillow_order("12.2.0") == "width first"
    assert pillow_order("13.0.0") == pillow_order("14.1.0.dev0") == "cheaper first"


@pytest.mark.parametrize("name", [name for name in RESAMPLING if name != "nearest"])
@pytest.mark.parametrize("sizes", [(500, 224), (7, 30), (1, 1), (1000, 3)])
def test_weights_add_up_to_one(name: Filter, sizes: tuple[int, int]):
    """Weights are fixed point with 22 bits; those of a pixel lie in the source and sum to one."""
    bounds, fixed = weights(*sizes, name)
    assert bounds.shape == (sizes[1], 2)
    assert fixed.shape == (sizes[1], most_taps(*sizes, name))
    assert fixed.dtype is torch.int32
    assert (bounds[:, 0] >= 0).all()
    assert (bounds.sum(1) <= sizes[0]).all()
    taps = torch.arange(fixed.shape[1])
    assert (fixed[taps >= bounds[:, 1:]] == 0).all()
    assert ((fixed.sum(1) - 2**22).abs() <= fixed.shape[1]).all()


INTERPOLATION = {
    "nearest": InterpolationMode.NEAREST,
    "bilinear": InterpolationMode.BILINEAR,
    "bicubic": InterpolationMode.BICUBIC,
    "lanczos": InterpolationMode.LANCZOS,
}


@pytest.mark.parametrize("name", INTERPOLATION)
def test_a_crop_is_torchvisions(name: Filter):
    """Given the same rectangle, the result has the bytes of torchvision's on a PIL image."""
    source, op = (
        ragged_of([(37, 90), (80, 41), (64, 64)]),
        ResizedCrop(3, (30, 34), filter=name, order=PILLOW_ORDER),
    )
    rows = torch.arange(60) % 3
    draws = draws_of(range(60))
    params = op.draw_for(draws, source.heights[rows], source.widths[rows])
    images = [source.image(row) for row in rows.tolist()]
    batch = op.apply_ragged(images, params)
    for k, image in enumerate(images):
        box = [int(params[side][k]) for side in ("top", "left", "height", "width")]
        wanted = F.resized_crop(_to_pil(image), *box, [30, 34], INTERPOLATION[name])
        assert torch.equal(batch[k], _from_pil(wanted))


def _statistic(one: torch.Tensor, other: torch.Tensor) -> float:
    """The largest distance of two empirical distributions (Kolmogorov, Smirnov)."""
    values = torch.cat((one, other)).unique()
    below = [
        torch.searchsorted(sample.sort().values, values, right=True).double() / len(sample)
        for sample in (one, other)
    ]
    return float((below[0] - below[1]).abs().max())


@pytest.mark.parametrize(
    ("size", "scale", "ratio"),
    [
        ((375, 500), (0.08, 1.0), (3 / 4, 4 / 3)),
        ((60, 47), (0.3, 0.9), (0.5, 2.0)),
        ((40, 100), (0.5, 1.0), (3 / 4, 4 / 3)),
    ],
)
def test_distribution_is_torchvisions(
    size: tuple[int, int], scale: tuple[float, float], ratio: tuple[float, float]
):
    """Heights, widths, positions and areas are distributed as torchvision draws them."""
    count = 6000
    torch.manual_seed(0)
    image = torch.zeros(3, *size)
    theirs = torch.tensor(
        [RandomResizedCrop.get_params(image, list(scale), list(ratio)) for _ in range(count)]
    )
    params = ResizedCrop(0, (8, 8), scale, ratio).draw(draws_of(range(count)), (3, *size))
    ours = torch.stack([params[name] for name in ("top", "left", "height", "width")], 1)
    assert (ours.min(0).values >= 0).all()
    # Two samples of this size differ by more than 0.0356 once in a thousand times.
    for one, other in zip(ours.unbind(1), theirs.unbind(1), strict=True):
        assert _statistic(one, other) < 0.0356
    areas = [(boxes[:, 2] * boxes[:, 3]).double() for boxes in (ours, theirs)]
    assert _statistic(*areas) < 0.0356
    assert abs(float(areas[0].mean() / areas[1].mean()) - 1) < 0.03
    assert abs(float(areas[0].std() / areas[1].std()) - 1) < 0.05


def test_both_ends_are_reached():
    """The first and the last position, and the whole image, are all drawn."""
    params = ResizedCrop(0, (4, 4), (0.3, 1.0)).draw(draws_of(range(4000)), (3, 9, 9))
    for start, extent in (("top", "height"), ("left", "width")):
        ends = params[start] + params[extent]
        assert params[start].min() == 0
        assert ends.max() == 9
        is_smaller = params[extent] < 9
        assert ((params[start] == 0) & is_smaller).any()
        assert ((ends == 9) & is_smaller).any()
    assert ((params["height"] == 9) & (params["width"] == 9)).any()


@pytest.mark.parametrize("size", [(30, 100), (100, 30), (50, 51), (1, 9), (9, 1), (1, 1)])
@pytest.mark.parametrize("ratio", [(3 / 4, 4 / 3), (0.9, 1.0)])
def test_what_never_fits_is_cropped_in_the_centre(
    size: tuple[int, int], ratio: tuple[float, float]
):
    """After ten tries without luck, the crop is the one that torchvision falls back to."""
    theirs = RandomResizedCrop.get_params(torch.zeros(3, *size), [4.0, 5.0], list(ratio))
    params = ResizedCrop(0, (4, 4), (4.0, 5.0), ratio).draw(draws_of([1, 2]), (3, *size))
    for k in range(2):
        names = ("top", "left", "height", "width")
        assert tuple(int(params[name][k]) for name in names) == theirs


def test_draws_depend_on_the_sample_only():
    """Neither the batch nor the sizes of the others matter; a repeated sample is drawn anew."""
    op, heights, widths = ResizedCrop(2, (4, 4)), torch.tensor([50, 60, 70]), torch.tensor([70] * 3)
    together = op.draw_for(draws_of([5, 6, 7]), heights, widths)
    alone = op.draw_for(draws_of([6]), heights[1:2], widths[1:2])
    assert all(torch.equal(together[name][1:2], alone[name]) for name in alone)
    again = op.draw_for(draws_of([6], again=1), heights[1:2], widths[1:2])
    assert any(not torch.equal(again[name], alone[name]) for name in alone)


def test_images_of_one_size_are_a_special_case():
    """A dense batch is cropped and resized as the same images one by one are."""
    op, images = ResizedCrop(2, (9, 5)), _image(20, 30, 12, 1).view(4, 3, 20, 30)
    draws = draws_of(range(4))
    params = op.draw(draws, (3, 20, 30))
    sizes = torch.full((4,), 20), torch.full((4,), 30)
    assert all(torch.equal(op.draw_for(draws, *sizes)[name], params[name]) for name in params)
    batch = op.apply(images, params)
    assert batch.shape == (4, *op.out_shape((3, 20, 30)))
    assert torch.equal(batch, op.apply_ragged(list(images), params))


def test_gate_leaves_the_others_as_they_are():
    """A guarded crop that keeps the size changes only the samples that pass."""
    op, images = (
        ResizedCrop(2, (20, 30), gate=Gate(9, 0.5)),
        _image(20, 30, 36, 1).view(12, 3, 20, 30),
    )
    params = draw_gated(op, draws_of(range(12)), (3, 20, 30))
    batch, passes = apply_gated(op, images, params), params["passes"]
    assert 0 < int(passes.sum()) < 12
    assert torch.equal(batch[~passes], images[~passes])
    assert torch.equal(batch[passes], op.apply(images, params)[passes])


def test_empty_batch():
    """No images give a batch of none."""
    op = ResizedCrop(2, (9, 5))
    none = Draws(Key(0, 0, 0), torch.zeros(0, dtype=torch.int64), torch.zeros(0, dtype=torch.int64))
    batch = op.apply(torch.zeros(0, 3, 4, 4, dtype=torch.uint8), op.draw(none, (3, 4, 4)))
    assert batch.shape == (0, 3, 9, 5)
