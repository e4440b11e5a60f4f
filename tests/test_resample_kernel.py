"""The resampling kernel on the CPU against the reference: the same crops, the same bits."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hotset.errors import ConfigError
from hotset.kernels import columns_cpu, resample_cpu, rows_cpu
from hotset.kernels.batches import keys_of
from hotset.kernels.cropping import FUSED_FILTERS, lower_crop
from hotset.kernels.dispatch import NumbaEngine, choose_ragged_engine
from hotset.kernels.ragged import RaggedNumbaEngine, RaggedReference
from hotset.ops.erase import Cutout
from hotset.ops.geometry import Flip, Padding, Window
from hotset.ops.op import Gate, Op
from hotset.ops.pointwise import Elementwise
from hotset.ops.resample import Filter, ResizedCrop, resize
from hotset.sample.ragged import Ragged
from tests.kernel_chains import Case, images_of, is_same_bits, reference, table
from tests.ragged_chains import crops, draws_for, edges, expected, ragged_of, rest_of_chain

CPU = torch.device("cpu")
PHOTOS = [(375, 500), (500, 333), (224, 224), (90, 700), (1200, 1700), (7, 3)]
"""Sizes as they come: larger, smaller, and so large that they do not fit in a vector."""


def _run(
    ops: list[Op],
    source: Ragged,
    rows: torch.Tensor,
    draws: object,
    *,
    channels_last: bool = False,
    threads: int = 1,
) -> torch.Tensor:
    engine = choose_ragged_engine(
        ops,
        source.channels,
        out_dtype=None,
        device=CPU,
        is_channels_last=channels_last,
        threads=threads,
    )
    assert isinstance(engine, RaggedNumbaEngine)
    with engine.session() as run:
        return run(source, rows, draws)


@pytest.mark.parametrize("name", FUSED_FILTERS)
@pytest.mark.parametrize("order", ["cheaper first", "width first"])
def test_photographs_are_the_references(name: Filter, order: str):
    """Images of usual sizes become batches with the reference's bits, through each filter."""
    source, rows = ragged_of(PHOTOS), torch.arange(24) % len(PHOTOS)
    ops = [ResizedCrop(0, (224, 224), filter=name, order=order), Flip(1), table(2)]
    draws = draws_for(len(rows))
    assert is_same_bits(_run(ops, source, rows, draws), expected(ops, source, rows, draws))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize("channels_last", [False, True])
def test_chains_behind_a_crop_are_the_references(
    dtype: torch.dtype, channels: int, channels_last: bool
):
    """Flips, windows with fills, tables of each dtype and erasures follow, in both layouts."""
    source, size = ragged_of([(60, 80), (31, 200), (97, 64)], channels), (70, 66)
    ops = [ResizedCrop(0, size), *rest_of_chain(size, channels, dtype)]
    rows, draws = torch.arange(20) % 3, draws_for(20, again=2, epoch=3)
    batch = _run(ops, source, rows, draws, channels_last=channels_last)
    memory_format = torch.channels_last if channels_last else torch.contiguous_format
    assert batch.is_contiguous(memory_format=memory_format)
    assert is_same_bits(batch, expected(ops, source, rows, draws))


@settings(max_examples=150)
@given(
    crop=crops(90),
    sizes=st.lists(st.tuples(edges, edges), min_size=1, max_size=4),
    channels=st.sampled_from((1, 3, 4)),
    has_table=st.booleans(),
    has_rest=st.booleans(),
    channels_last=st.booleans(),
    seed=st.integers(0, 2**64 - 1),
    epoch=st.integers(0, 2**32 - 1),
    again=st.integers(0, 3),
)
def test_any_crop_is_the_references(
    crop: ResizedCrop,
    sizes: list[tuple[int, int]],
    channels: int,
    has_table: bool,
    has_rest: bool,
    channels_last: bool,
    seed: int,
    epoch: int,
    again: int,
):
    """Whatever the sizes, the filter, the order, the chain and the key, the bits are the same."""
    source = ragged_of(sizes, channels, seed % 1000)
    ops: list[Op] = [crop, Flip(crop.step ^ 1)]
    if has_rest:
        ops = [crop, *rest_of_chain(crop.size, channels, torch.float32)]
    elif has_table:
        ops.append(table(2, torch.bfloat16, channels))
    rows = torch.arange(5) % len(sizes)
    draws = draws_for(5, seed, epoch, again)
    batch = _run(ops, source, rows, draws, channels_last=channels_last)
    assert is_same_bits(batch, expected(ops, source, rows, draws))


@settings(max_examples=200)
@given(crop=crops(20), size=st.tuples(edges, edges), seed=st.integers(0, 2**64 - 1))
def test_crops_are_the_references(crop: ResizedCrop, size: tuple[int, int], seed: int):
    """The kernel draws the reference's rectangle, by luck or as the last resort."""
    arrays, draws = lower_crop(crop), draws_for(1, seed, 5)
    assert not isinstance(arrays, str)
    keys, epoch = keys_of(draws)
    found = resample_cpu.draw_crop(
        (arrays.numbers, arrays.reals, arrays.aspects), *size, int(draws.ids[0]), 0, keys, epoch
    )
    params = crop.draw(draws, (3, *size))
    assert found == tuple(int(params[name]) for name in ("top", "left", "height", "width"))


LOOPS = [(rows_cpu.no_plan, rows_cpu.rows_transposed), (rows_cpu.plan_rows, rows_cpu.resample_rows)]


@pytest.mark.parametrize(("plan", "loop"), LOOPS, ids=["transposed", "chosen"])
@settings(max_examples=100)
@given(
    rows=st.integers(1, 150),
    in_size=st.integers(1, 500),
    out_size=st.integers(1, 240),
    name=st.sampled_from(FUSED_FILTERS),
)
def test_each_loop_over_rows_is_the_references(
    plan: object, loop: object, rows: int, in_size: int, out_size: int, name: Filter
):
    """The loop of every processor, and the one chosen here, resample rows to the same bytes."""
    image = images_of((1, rows, in_size), torch.uint8, 1)[0]
    reach = {"box": 0.5, "bilinear": 1.0, "bicubic": 2.0}[name]
    room = columns_cpu.axis_room(in_size, out_size, reach)
    axis = columns_cpu.axis_of(in_size, FUSED_FILTERS.index(name), reach, room, out_size)
    scratch = rows_cpu.rows_room(in_size, out_size)
    out = np.full(rows * out_size + 1, 77, np.uint8)
    plan(axis, in_size, scratch)
    loop(image.numpy().reshape(-1), 0, in_size, rows, in_size, axis, scratch, out)
    wanted = resize(image, (rows, out_size), name)
    if in_size != out_size:
        assert np.array_equal(out[:-1], wanted.numpy().reshape(-1))
    assert out[-1] == 77


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64, None])
@pytest.mark.parametrize("p", [0.0, 1.0])
@pytest.mark.parametrize("width", [63, 64, 65, 128, 200])
def test_wide_images_are_the_references(dtype: torch.dtype | None, p: float, width: int):
    """Runs of 64 pixels and more fill vectors, forwards and backwards, with fills beside them."""
    last = [] if dtype is None else [table(2, dtype)]
    padding = Padding(9, 2, 4, 3)
    for window in ((Window(0, (12, width), (padding,), fill=(7,)),), ()):
        case = Case("wide", (*window, Flip(1, p=p), *last), (3, 12, width))
        source, rows, draws = images_of(case.shape, torch.uint8), torch.arange(11), draws_for(11)
        with NumbaEngine(case.program(), threads=1).session() as run:
            batch = run(source, rows, draws)
        assert is_same_bits(batch, reference(case, source, rows, draws))


def test_dense_images_are_a_special_case():
    """Images of one size are read where they lie, and come out as in the reference on them."""
    images = images_of((3, 50, 41), torch.uint8)
    source, rows, draws = Ragged.of(images), torch.tensor([3, 3, 0, 10]), draws_for(4)
    assert source.data.data_ptr() == images.data_ptr()
    assert len(source) == 11
    assert all(torch.equal(source.image(k), images[k]) for k in range(11))
    crop = ResizedCrop(0, (33, 35))
    wanted = crop.apply(images[rows], crop.draw(draws, (3, 50, 41)))
    assert is_same_bits(_run([crop], source, rows, draws), wanted)


def test_a_memory_map_that_is_read_only_is_read(tmp_path: Path):
    """Images may lie in a file that must not be written."""
    source, rows, draws = ragged_of([(40, 30), (20, 50)]), torch.arange(2), draws_for(2)
    path = tmp_path / "images"
    source.data.numpy().tofile(path)
    mapped = np.memmap(path, np.uint8, "r")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # torch says once that it is not writable
        data = torch.from_numpy(mapped)
    again = Ragged(data, source.offsets, source.heights, source.widths, 3)
    ops = [ResizedCrop(0, (16, 16)), Flip(1)]
    assert is_same_bits(_run(ops, again, rows, draws), expected(ops, source, rows, draws))


@pytest.mark.parametrize("threads", [1, 2])
def test_batches_made_side_by_side_are_those_made_alone(threads: int):
    """Several batches in one go have each its own memory and the bits of one long batch."""
    source, sizes = ragged_of([(40, 30), (20, 50), (64, 64)]), [20, 32, 0, 7]
    ops = [ResizedCrop(0, (24, 24)), Flip(1), table(2)]
    rows, draws = torch.arange(sum(sizes)) % 3, draws_for(sum(sizes))
    engine = choose_ragged_engine(ops, 3, out_dtype=None, device=CPU, threads=threads)
    with engine.session() as run:
        batches = list(run.batches(source, rows, draws, sizes))
    assert [len(batch) for batch in batches] == sizes
    assert is_same_bits(torch.cat(batches), expected(ops, source, rows, draws))
    assert len({batch.untyped_storage().data_ptr() for batch in batches if len(batch)}) == 3


def test_memory_is_used_again():
    """A batch that nobody holds gives its memory to a later one; one that is held keeps it."""
    source, ops = ragged_of([(40, 30)]), [ResizedCrop(0, (24, 24)), table(1)]
    rows = torch.zeros(8, dtype=torch.int64)
    engine = choose_ragged_engine(ops, 3, out_dtype=None, device=CPU, threads=1)
    with engine.session() as run:
        kept, places = run(source, rows, draws_for(8)), set()
        copy = kept.clone()
        for epoch in range(5):
            batch = run(source, rows, draws_for(8, epoch=epoch))
            places.add(batch.data_ptr())
            del batch
    assert len(places) == 1
    assert kept.data_ptr() not in places
    assert torch.equal(kept, copy)


def test_engine_is_chosen_with_a_reason():
    """The kernel where there is one; else the reference, which says why and gives its batches."""
    source, rows, draws = ragged_of([(40, 30), (20, 50)]), torch.arange(2), draws_for(2)
    crop = ResizedCrop(0, (16, 16))
    engine = choose_ragged_engine([crop], 3, out_dtype=None, device=CPU)
    assert engine.description == "Numba, fused in one pass"
    reasons = {
        "the lanczos filter has no fused form": [ResizedCrop(0, (16, 16), filter="lanczos")],
        "a step moves pixels after erasing": [crop, Cutout(1, 2), Flip(2)],
    }
    for reason, ops in reasons.items():
        engine = choose_ragged_engine(
            ops, 3, out_dtype=torch.float16, device=CPU, is_channels_last=True
        )
        assert isinstance(engine, RaggedReference)
        assert engine.description == f"PyTorch, operation by operation ({reason})"
        with engine.session() as run:
            first, second = run.batches(source, rows, draws, (1, 1))
        assert first.is_contiguous(memory_format=torch.channels_last)
        wanted = expected(ops, source, rows, draws).half()
        assert torch.equal(torch.cat((first, second)), wanted)
        assert engine.run(source, rows[:0], draws_for(0)).shape == (0, 3, 16, 16)


def test_without_numba_the_reference_runs(monkeypatch: pytest.MonkeyPatch):
    """Where Numba is missing the chain runs operation by operation, and says so."""
    monkeypatch.setattr("hotset.kernels.dispatch.find_spec", lambda name: None)
    engine = choose_ragged_engine([ResizedCrop(0, (4, 4))], 3, out_dtype=None, device=CPU)
    assert engine.description == "PyTorch, operation by operation (numba is not installed)"


def test_a_cast_follows_the_chain():
    """The batch comes out in the dtype asked for, rounded once."""
    source, rows, draws = ragged_of([(40, 30), (20, 50)]), torch.arange(2), draws_for(2)
    ops = [ResizedCrop(0, (16, 16)), table(1), Elementwise(2, lambda images: images * 2 - 1)]
    engine = choose_ragged_engine(ops, 3, out_dtype=torch.bfloat16, device=CPU)
    assert isinstance(engine, RaggedNumbaEngine)
    with engine.session() as run:
        batch = run(source, rows, draws)
    assert is_same_bits(batch, expected(ops, source, rows, draws).bfloat16())


def test_refuses_what_does_not_give_one_size():
    """A chain that leaves sizes differing is refused, with what to do."""
    with pytest.raises(ConfigError, match=r"must first be cropped .* `ResizedCrop`, got Flip"):
        choose_ragged_engine([Flip(0)], 3, out_dtype=None, device=CPU)
    with pytest.raises(ConfigError, match="got no step"):
        choose_ragged_engine([], 3, out_dtype=None, device=CPU)
    gated = ResizedCrop(0, (4, 4), gate=Gate(1, 0.5))
    with pytest.raises(ConfigError, match="all of them, by a `ResizedCrop`"):
        choose_ragged_engine([gated], 3, out_dtype=None, device=CPU)


def test_empty_batch():
    """No rows give a batch of none."""
    source, ops = ragged_of([(40, 30)]), [ResizedCrop(0, (16, 12)), table(1)]
    batch = _run(ops, source, torch.zeros(0, dtype=torch.int64), draws_for(0))
    assert batch.shape == (0, 3, 16, 12)
    assert batch.dtype is torch.float32
