"""The Triton kernel, in Triton's interpreter, against the reference."""

from __future__ import annotations

import random

import pytest
import torch
import triton
import triton.language as tl
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from hotset.errors import ConfigError
from hotset.kernels.triton_cuda import TritonKernel, words
from hotset.ops.erase import Cutout, RandomErase
from hotset.ops.geometry import Flip, Padding, Window
from hotset.ops.op import Gate, Op, Shape
from hotset.rng import Draws, Key
from tests.kernel_chains import (
    CASES,
    MODES,
    Case,
    draws_of,
    every_case,
    images_of,
    is_same_bits,
    reference,
    table,
    twice_less_one,
)

CPU = torch.device("cpu")
BY_NAME = {case.name: case for case in CASES}


def _run(case: Case, source: Tensor, draws: Draws, *, channels_last: bool = False) -> Tensor:
    return TritonKernel(case.program(), CPU, channels_last=channels_last).run(
        source, draws.ids % len(source), draws
    )


@triton.jit
def _write_words(ids, occurrence, epochs, steps, draws, seeds, out):
    row = tl.program_id(0)
    seed = tl.load(seeds + row).to(tl.uint64, bitcast=True)
    epoch = tl.load(epochs + row).to(tl.int32)
    key = (tl.load(ids + row), tl.load(occurrence + row), epoch, seed)
    word_0, word_1, word_2, word_3 = words(key, tl.load(steps + row), tl.load(draws + row))
    tl.store(out + row * 4, word_0.to(tl.int64))
    tl.store(out + row * 4 + 1, word_1.to(tl.int64))
    tl.store(out + row * 4 + 2, word_2.to(tl.int64))
    tl.store(out + row * 4 + 3, word_3.to(tl.int64))


def _words(*columns: list[int]) -> list[list[int]]:
    """Words of every (id, occurrence, epoch, step, draw, seed)."""
    out = torch.empty(len(columns[0]), 4, dtype=torch.int64)
    signed = [[v - 2**64 if v >= 2**63 else v for v in column] for column in columns]
    _write_words[(len(out),)](*(torch.tensor(column) for column in signed), out)
    return out.tolist()


def test_words_are_random123s():
    """Its authors' known-answer vectors for Philox 4x32-10, spelt as counters of a draw."""
    ids = [0, 2**48 - 1, 0x85A3_243F6A88]
    occurrence, epochs = [0, 0xFFFF, 0x08D3], [0, 0xFFFFFFFF, 0x13198A2E]
    steps, draws = [0, 0xFFFF, 0x0370], [0, 0xFFFF, 0x7344]
    seeds = [0, 2**64 - 1, 0x299F31D0_A4093822]
    assert _words(ids, occurrence, epochs, steps, draws, seeds) == [
        [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8],
        [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD],
        [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
    ]


def test_words_are_the_references():
    """The kernel's words are those of `Draws.words`, whatever they are keyed by."""
    rng = random.Random(0)
    limits = (2**48, 2**16, 2**32, 2**16, 2**16, 2**64)
    columns = [[rng.randrange(limit) for _ in range(20)] for limit in limits]
    expected = [
        Draws(Key(seed, epoch, 0), torch.tensor([number]), torch.tensor([again]))
        .words(step, draw)[0]
        .tolist()
        for number, again, epoch, step, draw, seed in zip(*columns, strict=True)
    ]
    assert _words(*columns) == expected


@every_case
def test_kernel_is_reference(case: Case):
    """Every kind of step, dtype and shape comes out of the kernel with the reference's bits."""
    source, draws = images_of(case.shape, case.dtype), draws_of([5, 0, 10, 3, 2**40 + 1, 7])
    batch = _run(case, source, draws)
    assert batch.is_contiguous()
    assert is_same_bits(batch, reference(case, source, draws.ids % len(source), draws))


@pytest.mark.parametrize(
    "name",
    [
        "crop-reflect",
        "copy-bytes",
        "copy-float32",
        "table-bfloat16",
        "two-erasures-then-table",
        "one-channel",
        "four-channels",
        "seven-channels",
        "three-tiles",
    ],
)
def test_channels_last_is_reference(name: str):
    """In channels-last memory, the batch holds the same values."""
    case = BY_NAME[name]
    source, draws = images_of(case.shape, case.dtype), draws_of([5, 0, 10, 3])
    batch = _run(case, source, draws, channels_last=True)
    assert batch.is_contiguous(memory_format=torch.channels_last)
    assert is_same_bits(batch, reference(case, source, draws.ids, draws))


def test_alternating_flip_alternates():
    """Two epochs in a row show both forms of every sample, and the third repeats the first."""
    case = BY_NAME["flip-alternating"]
    source, ids = images_of(case.shape, case.dtype), list(range(8))
    epochs = [_run(case, source, draws_of(ids, epoch)) for epoch in range(3)]
    for epoch, batch in enumerate(epochs):
        assert is_same_bits(batch, reference(case, source, torch.tensor(ids), draws_of(ids, epoch)))
    assert torch.equal(epochs[0], epochs[1].flip(-1))
    assert torch.equal(epochs[0], epochs[2])


def test_repeated_sample_is_drawn_anew():
    """A sample that comes again in the same epoch is augmented otherwise, as in the reference."""
    case = BY_NAME["crop-flip"]
    source, ids = images_of(case.shape, case.dtype), torch.full((6,), 4)
    draws = Draws(Key(1, 0, 2), ids, torch.arange(6))
    batch = _run(case, source, draws)
    assert is_same_bits(batch, reference(case, source, ids, draws))
    assert len(torch.unique(batch.flatten(1), dim=0)) > 1


def test_batches_end_to_end_are_the_batches():
    """Several batches prepared in one launch are, cut apart, the batches prepared one by one."""
    case = BY_NAME["two-erasures-then-table"]
    source, ids = images_of(case.shape, case.dtype), [3, 1, 4, 10, 5, 9, 2, 6]
    together = _run(case, source, draws_of(ids, 2))
    apart = [_run(case, source, draws_of(part, 2)) for part in (ids[:3], ids[3:6], ids[6:])]
    assert is_same_bits(together, torch.cat(apart))


def test_rows_need_not_be_ids():
    """Draws go by the sample's id, wherever its image lies."""
    case = BY_NAME["crop-flip"]
    source, draws = images_of(case.shape, case.dtype), draws_of([100, 2**35, 7])
    rows = torch.tensor([9, 9, 0])
    batch = TritonKernel(case.program(), CPU).run(source, rows, draws)
    assert is_same_bits(batch, reference(case, source, rows, draws))


def test_writes_into_out():
    """A given tensor is filled, its last byte included, and is what comes back."""
    case = BY_NAME["crop-flip"]
    source, draws = images_of(case.shape, case.dtype), draws_of([1, 2])
    room = torch.full((4, *case.shape), 77.0)
    kernel = TritonKernel(case.program(), CPU)
    batch = kernel.run(source, draws.ids, draws, out=room[1:3])
    assert batch.data_ptr() == room[1:3].data_ptr()
    assert is_same_bits(batch, reference(case, source, draws.ids, draws))
    assert (room[0] == 77).all()
    assert (room[3] == 77).all()


def test_empty_batch():
    """No rows give a batch of none."""
    case = BY_NAME["crop-flip"]
    batch = _run(case, images_of(case.shape, case.dtype), draws_of([]))
    assert batch.shape == (0, *case.shape)


def test_refuses_tensors_that_do_not_fit():
    """A source or a target of another shape, dtype or layout is named, and nothing is written."""
    case = BY_NAME["crop-flip"]
    source, draws = images_of(case.shape, case.dtype), draws_of([1, 2])
    kernel = TritonKernel(case.program(), CPU)
    last = torch.empty(2, *case.shape).to(memory_format=torch.channels_last)
    for out in (torch.empty(3, *case.shape), torch.empty(2, *case.shape).half(), last):
        with pytest.raises(
            ConfigError, match=r"`out` must be torch\.float32 of shape \(2, 3, 7, 9\)"
        ):
            kernel.run(source, draws.ids, draws, out=out)
    for images in (source.float(), source[:, :2], source.to(memory_format=torch.channels_last)):
        with pytest.raises(ConfigError, match=r"`source` must be torch\.uint8 of shape \(11, 3,"):
            kernel.run(images, draws.ids, draws)


@st.composite
def _chains(draw: st.DrawFn) -> Case:
    """A chain that can be fused: geometry, perhaps around a table, then erasures."""
    channels, height, width = draw(
        st.tuples(st.sampled_from((1, 2, 3, 4)), st.integers(4, 9), st.integers(4, 9))
    )
    shape: Shape = (channels, height, width)
    dtype = draw(st.sampled_from((torch.uint8, torch.uint8, torch.int16, torch.float32)))
    gates = st.none() | st.builds(Gate, st.integers(90, 91), st.sampled_from((0.3, 0.7)))
    values = st.lists(st.integers(0, 9), min_size=channels, max_size=channels).map(tuple)
    ops: list[Op] = []

    def add_geometry(most: int) -> None:
        nonlocal shape
        for _ in range(draw(st.integers(0, most))):
            op = draw(_windows(len(ops), shape, gates, values) | _flips(len(ops), gates))
            ops.append(op)
            shape = op.out_shape(shape)

    add_geometry(3)
    if dtype is torch.uint8 and draw(st.booleans()):
        made = draw(st.sampled_from((torch.float32, torch.float16, torch.bfloat16)))
        ops.append(table(len(ops), made, channels))
        add_geometry(2)
    erasures = st.builds(
        RandomErase, st.just(50), st.sampled_from((0.5, 1.0)), value=values, gate=gates
    ) | st.builds(Cutout, st.just(51), st.integers(1, 5), values, gates)
    ops.extend(draw(st.lists(erasures, max_size=2, unique_by=lambda op: op.step)))
    if dtype is torch.uint8 and draw(st.booleans()):
        ops.append(twice_less_one(99))
    return Case("random", tuple(ops), (channels, height, width), dtype)


@st.composite
def _windows(
    draw: st.DrawFn, step: int, shape: Shape, gates: st.SearchStrategy, values: st.SearchStrategy
) -> Window:
    amounts = [draw(st.integers(0, 3)) for _ in range(4)]
    mode = draw(st.sampled_from(MODES))
    _, height, width = shape
    if mode == "reflect":
        amounts = [min(amount, height - 1, width - 1) for amount in amounts]
    left, top, right, bottom = amounts
    room = (height + top + bottom, width + left + right)
    gate = draw(gates)
    if gate is not None:  # a gated step keeps the size
        size = (height, width)
    else:
        size = (draw(st.integers(2, room[0])), draw(st.integers(2, room[1])))
    free = (room[0] - size[0], room[1] - size[1])
    positions = st.none() | st.tuples(st.integers(0, free[0]), st.integers(0, free[1]))
    paddings = (Padding(left, top, right, bottom, mode),)
    return Window(step, size, paddings, draw(positions), draw(values), gate)


def _flips(step: int, gates: st.SearchStrategy) -> st.SearchStrategy[Flip]:
    axes = st.sampled_from(("horizontal", "vertical"))
    return st.builds(Flip, st.just(step), axes, st.sampled_from((0.5, 1.0)), st.booleans(), gates)


@settings(max_examples=60)
@given(
    case=_chains(),
    seed=st.integers(0, 2**64 - 1),
    epoch=st.integers(0, 2**32 - 1),
    ids=st.lists(st.integers(0, 2**48 - 1), min_size=1, max_size=3),
    again=st.integers(0, 3),
    channels_last=st.booleans(),
)
def test_random_chain_is_reference(
    case: Case, seed: int, epoch: int, ids: list[int], again: int, channels_last: bool
):
    """Any chain that can be fused, under any key, gives the reference's bits."""
    source, draws = images_of(case.shape, case.dtype), draws_of(ids, epoch, seed=seed, again=again)
    batch = _run(case, source, draws, channels_last=channels_last)
    assert is_same_bits(batch, reference(case, source, draws.ids % len(source), draws))
