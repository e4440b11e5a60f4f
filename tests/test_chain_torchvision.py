"""torchvision's transforms on whole batches: what the user's own would make of every sample."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from torchvision import transforms as v1
from torchvision import tv_tensors
from torchvision.models import ResNet18_Weights
from torchvision.transforms import v2

from hotset.chain.torchvision import batch_form, nature_of
from hotset.transforms import Cutout
from tests.vision_chains import (
    FLOATS,
    MODES,
    Images,
    batches,
    center_crop,
    chains,
    draws_for,
    flip,
    leaf_of,
    pad,
    random_apply,
    random_crop,
    random_erasing,
    three_ways,
)

both_versions = pytest.mark.parametrize("version", [v1, v2], ids=["v1", "v2"])
LEAVES = ("L", "RGB", "RGBA", "uint8", "float32", "float16", "bfloat16")
every_leaf = pytest.mark.parametrize("kind", LEAVES)


def _one_step(
    data: st.DataObject, make: Any, version: Any, kind: str, is_fused: bool | None = True
) -> None:
    channels = {"L": 1, "RGB": 3, "RGBA": 4}.get(kind) or data.draw(st.sampled_from((1, 3)))
    shape = (channels, data.draw(st.integers(1, 12)), data.draw(st.integers(1, 12)))
    step = make(data.draw, version, Images(kind, shape))
    leaves = [leaf_of(kind, shape, seed) for seed in range(3)]
    ways = three_ways(
        [step],
        leaves,
        data.draw(batches()),
        is_channels_last=data.draw(st.booleans()),
    )
    assert is_fused in (None, ways.is_fused)
    ways.check()


@both_versions
@every_leaf
@settings(max_examples=40)
@given(data=st.data())
def test_random_crop_is_torchvisions(version: Any, kind: str, data: st.DataObject):
    """Every padding mode, fill, size and `pad_if_needed` comes out as torchvision's own."""
    _one_step(data, random_crop, version, kind)


@both_versions
@every_leaf
@settings(max_examples=25)
@given(data=st.data())
def test_pad_is_torchvisions(version: Any, kind: str, data: st.DataObject):
    """A Pad of any mode, sides and fill comes out as torchvision's own."""
    _one_step(data, pad, version, kind)


@both_versions
@every_leaf
@settings(max_examples=15)
@given(data=st.data())
def test_center_crop_is_torchvisions(version: Any, kind: str, data: st.DataObject):
    """A CenterCrop smaller or larger than the image comes out as torchvision's own."""
    _one_step(data, center_crop, version, kind)


@both_versions
@every_leaf
@settings(max_examples=10)
@given(data=st.data())
def test_flip_is_torchvisions(version: Any, kind: str, data: st.DataObject):
    """Flips along either axis come out as torchvision's own."""
    _one_step(data, flip, version, kind)


@both_versions
@pytest.mark.parametrize("kind", [kind for kind in LEAVES if kind[0].islower()])
@settings(max_examples=25)
@given(data=st.data())
def test_random_erasing_is_torchvisions(version: Any, kind: str, data: st.DataObject):
    """RandomErasing with one value or one per channel comes out as torchvision's own."""
    _one_step(data, random_erasing, version, kind)


@both_versions
@every_leaf
@settings(max_examples=20)
@given(data=st.data())
def test_random_apply_is_torchvisions(version: Any, kind: str, data: st.DataObject):
    """A RandomApply over several steps applies all of them or none, as torchvision's own does."""
    _one_step(data, random_apply, version, kind, is_fused=None)


@both_versions
@pytest.mark.parametrize("kind", [*LEAVES, "Image"])
@settings(max_examples=40)
@given(data=st.data())
def test_chain_is_torchvisions(version: Any, kind: str, data: st.DataObject):
    """Random chains, nested, before and after the steps on values, in any dtype and layout."""
    if kind == "Image" and version is v1:
        return
    transform, leaves = data.draw(chains(version, kind))
    out_dtype = data.draw(st.sampled_from((None, *FLOATS.values())))
    ways = three_ways(
        transform,
        leaves,
        data.draw(batches()),
        out_dtype=out_dtype,
        is_channels_last=data.draw(st.booleans()),
    )
    ways.check()


@both_versions
@pytest.mark.parametrize("mode", MODES)
def test_crop_pads_what_is_missing(version: Any, mode: str):
    """`pad_if_needed` after a padding of its own: v1 pads in two further steps, v2 in one."""
    for kind in ("RGB", "uint8"):
        fill = (9, 8, 7) if kind == "RGB" else 9
        step = version.RandomCrop((9, 13), (1, 0, 0, 2), True, fill, mode)
        leaves = [leaf_of(kind, (3, 5, 7), seed) for seed in range(2)]
        ways = three_ways([step], leaves, draws_for(range(64)))
        ways.check()
        assert ways.fused.shape == (64, 3, 9, 13)
        tops, lefts = ways.params[0]["top"], ways.params[0]["left"]
        # 5 + 2 rows lack 2 on each side: 11 to place 9; 7 + 1 columns lack 5: 18 to place 13.
        assert sorted(set(tops.tolist())) == [0, 1, 2]
        assert sorted(set(lefts.tolist())) == [0, 1, 2, 3, 4, 5]


def test_pixels_of_a_crop():
    """A crop at the first position of a padded image shows the fill, then the image's corner."""
    image = torch.arange(12, dtype=torch.uint8).reshape(1, 3, 4)
    ways = three_ways([v1.RandomCrop((3, 4), 1, fill=99)], [image], draws_for(range(99)))
    is_first = (ways.params[0]["top"] == 0) & (ways.params[0]["left"] == 0)
    expected = torch.tensor([[99, 99, 99, 99], [99, 0, 1, 2], [99, 4, 5, 6]], dtype=torch.uint8)
    assert is_first.any()
    assert all(torch.equal(crop[0], expected) for crop in ways.fused[is_first])


@both_versions
def test_fills_of_float64_are_torchvisions(version: Any):
    """A fill of 0.1 in double precision, and an erasure, which torchvision takes in single."""
    leaves = [leaf_of("float64", (3, 6, 7), 0)]
    for step in (
        version.RandomCrop((6, 7), 3, fill=0.1),
        version.Pad(2, 0.1),
        version.RandomErasing(1.0, value=0.1),
        version.RandomErasing(1.0, value=(0.1, 0.2, 0.3)),
        Cutout(3, 0.1),
    ):
        three_ways([step], leaves, draws_for(range(20))).check()
    if version is v2:
        three_ways([v2.Pad(2, (0.1, 0.2, 0.3))], leaves, draws_for([0])).check()


@both_versions
def test_wide_pil_modes_are_torchvisions(version: Any):
    """PIL images of 16 and 32 bits, integers and floats, are cropped and flipped like others."""
    for mode, dtype in (("I;16", np.uint16), ("I", np.int32), ("F", np.float32)):
        pixels = np.random.default_rng(0).integers(0, 60_000, (7, 9)).astype(dtype)
        image = Image.fromarray(pixels)
        assert image.mode == mode
        for padding_mode in ("constant", "reflect"):
            steps = [
                version.RandomCrop((7, 9), 2, padding_mode=padding_mode),
                version.RandomHorizontalFlip(),
            ]
            three_ways(steps, [image], draws_for(range(30))).check()


def test_replay_leaves_the_users_transform_alone():
    """A step with its draws forced is a copy; the user's own keeps its attributes and draws."""
    for step in (v1.RandomHorizontalFlip(0.3), v2.RandomHorizontalFlip(0.3)):
        form = batch_form(step, leaf_of("uint8", (1, 2, 2), 0), 0)
        assert form is not None
        form.replay([{"flips": torch.tensor(1)}])
        assert step.p == 0.3
    crop = v1.RandomCrop(2)
    form = batch_form(crop, leaf_of("uint8", (1, 4, 4), 0), 0)
    assert form is not None
    form.replay([{"top": torch.tensor(0), "left": torch.tensor(0)}])
    assert "get_params" not in vars(crop)


@both_versions
def test_random_apply_keeps_an_inner_probability(version: Any):
    """A RandomApply in a RandomApply has a probability of its own, so it is left to the user's."""
    step = version.RandomApply([version.RandomApply([version.RandomHorizontalFlip(1.0)], p=0.1)])
    assert batch_form(step, leaf_of("uint8", (3, 4, 4), 0), 0) is None


def test_random_apply_keeps_to_its_own_numbers():
    """Draws are keyed by 16 numbers per step; what needs more is left to the user's own step."""
    leaf = leaf_of("uint8", (3, 4, 4), 0)
    most = batch_form(v1.RandomApply([v1.RandomHorizontalFlip()] * 15), leaf, 16)
    assert most is not None
    assert [op.step for op in most.ops] == list(range(17, 32))
    assert batch_form(v1.RandomApply([v1.RandomHorizontalFlip()] * 16), leaf, 16) is None


@pytest.mark.parametrize(
    ("step", "leaf"),
    [
        (v1.RandomErasing(value="random"), leaf_of("float32", (3, 4, 4), 0)),
        (v2.RandomErasing(), leaf_of("RGB", (3, 4, 4), 0)),
        (v1.RandomErasing(value=0.5), leaf_of("uint8", (3, 4, 4), 0)),
        (v1.RandomErasing(value=(1, 2)), leaf_of("float32", (3, 4, 4), 0)),
        (v1.RandomCrop(5), leaf_of("uint8", (3, 4, 4), 0)),
        (v1.RandomCrop(4, 1, fill=0.5), leaf_of("uint8", (3, 4, 4), 0)),
        (v2.Pad(1, {"others": 3}), leaf_of("uint8", (3, 4, 4), 0)),
        (v1.Pad(1, 300), leaf_of("uint8", (3, 4, 4), 0)),
        (v1.Pad(1, 0, "reflect"), torch.full((1, 3, 3), 2**25 + 1)),
        (v1.Pad((-2, 0, 2, 0), 0, "reflect"), leaf_of("uint8", (1, 3, 5), 0)),
        (v1.Normalize([0.5], [0.5]), leaf_of("uint8", (1, 4, 4), 0)),
        (v1.RandomHorizontalFlip(), torch.zeros(2, 2)),
        (v1.RandomHorizontalFlip(), torch.zeros(2, 3, 2, 2)),
        (v2.RandomErasing(), tv_tensors.Mask(torch.zeros(1, 4, 4))),
        (v1.RandomApply([v1.CenterCrop(2)]), leaf_of("uint8", (3, 4, 4), 0)),
        (v1.RandomApply([v1.ColorJitter(0.5)]), leaf_of("uint8", (3, 4, 4), 0)),
        (v1.RandomApply([v1.Normalize([0.5], [0.5])]), leaf_of("float32", (1, 4, 4), 0)),
        (v1.ColorJitter(0.5), leaf_of("uint8", (3, 4, 4), 0)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_has_no_batched_form(step: Any, leaf: Any):
    """What would come out differently, or what the user's own step refuses, is left to it."""
    assert batch_form(step, leaf, 0) is None


def test_subclasses_are_not_taken_for_torchvisions():
    """A user's subclass may do anything: it is neither classified nor batched."""

    class Mine(v1.RandomHorizontalFlip):
        pass

    assert nature_of(Mine()) is None
    assert batch_form(Mine(), leaf_of("uint8", (1, 2, 2), 0), 0) is None


def test_natures():
    """What a transform is, and how that is known; a Lambda and the unknown are undecided."""
    assert nature_of(v1.ToTensor()) == (
        "deterministic",
        "torchvision: depends on its input alone",
    )
    assert nature_of(v2.ColorJitter()) == ("random", "torchvision: draws for every sample")
    for version in (v1, v2):
        assert nature_of(version.Lambda(abs)) is None
    preset = ResNet18_Weights.IMAGENET1K_V1.transforms()
    assert nature_of(preset) == ("deterministic", "torchvision: depends on its input alone")
    assert nature_of(abs) is None


def test_normalise_after_a_mask_keeps_to_the_mask():
    """v2.Normalize goes by the class of a tensor, so on batches of masks it must not run."""
    mask = tv_tensors.Mask(torch.ones(1, 2, 2))
    assert batch_form(v2.Normalize([0.5], [0.5]), mask, 0) is None
    image = tv_tensors.Image(torch.ones(1, 2, 2))
    three_ways([v2.Normalize([0.5], [0.5])], [image], draws_for([0])).check()
