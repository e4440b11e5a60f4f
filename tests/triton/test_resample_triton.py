"""Triton's resampling kernels, in Triton's interpreter, against the reference."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hotset.kernels.cropping import FUSED_FILTERS, lower_crop
from hotset.kernels.program import Program, lower
from hotset.kernels.ragged import RaggedTritonEngine
from hotset.ops.geometry import Flip
from hotset.ops.op import Op
from hotset.ops.resample import Filter, ResizedCrop
from hotset.sample.ragged import Ragged
from tests.kernel_chains import images_of, is_same_bits, table
from tests.ragged_chains import crops, draws_for, expected, ragged_of, rest_of_chain

CPU = torch.device("cpu")


def _engine(ops: list[Op], channels: int, channels_last: bool = False) -> RaggedTritonEngine:
    crop = ops[0]
    assert isinstance(crop, ResizedCrop)
    arrays = lower_crop(crop)
    program = lower(ops[1:], (channels, *crop.size), torch.uint8)
    assert not isinstance(arrays, str)
    assert isinstance(program, Program)
    return RaggedTritonEngine(arrays, program, CPU, channels_last)


@pytest.mark.parametrize("name", FUSED_FILTERS)
@pytest.mark.parametrize("order", ["cheaper first", "width first"])
def test_several_tiles_are_the_references(name: Filter, order: str):
    """Reductions and enlargements over several tiles have the reference's bits."""
    source = ragged_of([(60, 80), (25, 12), (9, 130)])
    ops = [ResizedCrop(0, (21, 34), filter=name, order=order), Flip(1), table(2)]
    rows, draws = torch.tensor([2, 0, 1, 1]), draws_for(4)
    batch = _engine(ops, 3).run(source, rows, draws)
    assert is_same_bits(batch, expected(ops, source, rows, draws))


@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize("channels_last", [False, True])
def test_chains_behind_a_crop_are_the_references(channels: int, channels_last: bool):
    """Flips, windows with fills, a table and erasures follow, in both layouts."""
    source, size = ragged_of([(30, 20), (11, 50)], channels), (14, 12)
    ops = [ResizedCrop(0, size), *rest_of_chain(size, channels, torch.bfloat16)]
    rows, draws = torch.tensor([1, 0, 1]), draws_for(3, again=2, epoch=3)
    batch = _engine(ops, channels, channels_last).run(source, rows, draws)
    memory_format = torch.channels_last if channels_last else torch.contiguous_format
    assert batch.is_contiguous(memory_format=memory_format)
    assert is_same_bits(batch, expected(ops, source, rows, draws))


edges = st.one_of(st.integers(1, 5), st.integers(1, 40))


@settings(max_examples=60)
@given(
    crop=crops(20),
    sizes=st.lists(st.tuples(edges, edges), min_size=1, max_size=3),
    channels=st.sampled_from((1, 3, 4)),
    seed=st.integers(0, 2**64 - 1),
    epoch=st.integers(0, 2**32 - 1),
    again=st.integers(0, 3),
)
def test_any_crop_is_the_references(
    crop: ResizedCrop,
    sizes: list[tuple[int, int]],
    channels: int,
    seed: int,
    epoch: int,
    again: int,
):
    """Whatever the sizes, the filter, the order and the key, the bits are the same."""
    source, ops = ragged_of(sizes, channels, seed % 1000), [crop, Flip(crop.step ^ 1)]
    rows, draws = torch.arange(2) % len(sizes), draws_for(2, seed, epoch, again)
    batch = _engine(ops, channels).run(source, rows, draws)
    assert is_same_bits(batch, expected(ops, source, rows, draws))


def test_dense_images_are_a_special_case():
    """Images of one size are read where they lie."""
    images = images_of((3, 20, 21), torch.uint8)
    source, rows, draws = Ragged.of(images), torch.tensor([3, 10]), draws_for(2)
    crop = ResizedCrop(0, (13, 15))
    wanted = crop.apply(images[rows], crop.draw(draws, (3, 20, 21)))
    assert is_same_bits(_engine([crop], 3).run(source, rows, draws), wanted)


def test_batches_in_one_launch_are_the_batches():
    """A session cuts the batches of a launch apart."""
    source, ops = ragged_of([(30, 20), (11, 50)]), [ResizedCrop(0, (7, 9)), table(1)]
    rows, draws = torch.arange(5) % 2, draws_for(5)
    with _engine(ops, 3).session() as run:
        batches = list(run.batches(source, rows, draws, (2, 0, 3)))
    assert [len(batch) for batch in batches] == [2, 0, 3]
    assert is_same_bits(torch.cat(batches), expected(ops, source, rows, draws))


def test_empty_batch():
    """No rows give a batch of none."""
    source, ops = ragged_of([(30, 20)]), [ResizedCrop(0, (7, 9)), table(1)]
    batch = _engine(ops, 3).run(source, torch.zeros(0, dtype=torch.int64), draws_for(0))
    assert batch.shape == (0, 3, 7, 9)
