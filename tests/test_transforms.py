"""hotset's own augmentations, on one sample and on a batch."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torchvision import transforms as v1

from hotset.errors import ConfigError
from hotset.transforms import AlternatingFlip, Cutout
from tests.vision_chains import FLOATS, batches, draws_for, leaf_of, three_ways


@settings(max_examples=60)
@given(
    batches(),
    st.sampled_from(("uint8", "float16", "bfloat16", "float32", "float64")),
    st.tuples(st.integers(1, 4), st.integers(1, 9), st.integers(1, 9)),
    st.integers(1, 12),
    st.integers(0, 255),
    st.booleans(),
)
def test_batches_are_the_steps_own(
    draws: Any, kind: str, shape: tuple[int, int, int], size: int, value: int, last: bool
):
    """Kernel, reference and the step itself agree, given the same draws."""
    leaves = [leaf_of(kind, shape, seed) for seed in range(3)]
    ways = three_ways(
        [AlternatingFlip(), Cutout(size, value)], leaves, draws, is_channels_last=last
    )
    assert ways.is_fused
    ways.check()


def test_alternating_flip_shows_both_forms_in_two_epochs():
    """Every sample is flipped in one of two epochs in a row, about half of them in the first."""
    image = torch.tensor([[[1, 2, 3]]], dtype=torch.uint8)
    epochs = [
        three_ways([AlternatingFlip()], [image], draws_for(range(400), epoch=epoch)).fused
        for epoch in (0, 1, 2)
    ]
    first = epochs[0][:, 0, 0, 0]
    assert sorted(first.unique().tolist()) == [1, 3]
    assert 160 <= int((first == 3).sum()) <= 240
    assert torch.equal(epochs[1], epochs[0].flip(-1))
    assert torch.equal(epochs[2], epochs[0])


def test_alternating_flip_on_one_sample():
    """Outside hotset there are no epochs: half of the calls flip."""
    torch.manual_seed(0)
    image = torch.tensor([[[1, 2]]])
    flipped = sum(int(AlternatingFlip()(image)[0, 0, 0]) == 2 for _ in range(400))
    assert 160 <= flipped <= 240


def test_cutout_on_one_sample():
    """One square inside takes the value, every position comes, and the input stays as it is."""
    torch.manual_seed(0)
    image = torch.ones(2, 4, 5)
    seen = set()
    for _ in range(300):
        cut = Cutout(3, 0.5)(image)
        rows, columns = ((cut[0] == 0.5).any(dim).nonzero()[:, 0].tolist() for dim in (1, 0))
        assert rows == list(range(rows[0], rows[0] + 3))
        assert columns == list(range(columns[0], columns[0] + 3))
        assert int((cut == 0.5).sum()) == 18
        seen.add((rows[0], columns[0]))
    assert seen == {(top, left) for top in range(2) for left in range(3)}
    assert (image == 1).all()


@pytest.mark.parametrize("size", [0, -1, 2.0, "3", True, None])
def test_cutout_refuses_a_size_that_is_none(size: Any):
    """The message says what was expected and what came."""
    with pytest.raises(ConfigError, match="`size` must be a whole number of at least 1, got"):
        Cutout(size)


def test_names_and_pickles():
    """They show how they were made, and travel to worker processes."""
    assert repr(AlternatingFlip()) == "AlternatingFlip()"
    assert repr(Cutout(3)) == "Cutout(3, value=0.0)"
    cutout = pickle.loads(pickle.dumps(Cutout(3, 0.5)))
    assert (cutout.size, cutout.value) == (3, 0.5)


def test_no_batched_form_for_what_is_no_image():
    """Rows of numbers and PIL images are left to the step itself."""
    assert AlternatingFlip().batch_form(torch.zeros(4), 0) is None
    assert Cutout(2).batch_form(torch.zeros(4, 4), 0) is None
    assert Cutout(2).batch_form(leaf_of("RGB", (3, 4, 4), 0), 0) is None


@pytest.mark.parametrize("out_dtype", [None, *FLOATS.values()])
def test_airbenchs_chain(out_dtype: torch.dtype | None):
    """Reflected crop, alternating flip, cutout, values: the chain of this field's speed runs."""
    chain = [
        v1.RandomCrop(16, 2, padding_mode="reflect"),
        v1.ToTensor(),
        v1.Normalize([0.5] * 3, [0.25] * 3),
        AlternatingFlip(),
        Cutout(5),
    ]
    leaves = [leaf_of("RGB", (3, 16, 16), seed) for seed in range(4)]
    ways = three_ways(
        chain, leaves, draws_for(range(64), epoch=3), out_dtype=out_dtype, is_channels_last=True
    )
    assert ways.is_fused
    ways.check()
