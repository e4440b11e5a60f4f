"""The Numba kernel against the reference: the same words, the same bits."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from hotset.kernels.dispatch import NumbaEngine, Reference, choose_engine
from hotset.kernels.draws_cpu import draw_words
from hotset.ops.erase import Cutout, RandomErase
from hotset.ops.geometry import Flip, Padding, Window
from hotset.ops.op import Gate, Op
from hotset.ops.pointwise import Elementwise
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
)

CPU = torch.device("cpu")
BY_NAME = {case.name: case for case in CASES}


def _run(
    case: Case,
    source: Tensor,
    draws: Draws,
    *,
    channels_last: bool = False,
    threads: int = 1,
) -> Tensor:
    engine = NumbaEngine(case.program(), channels_last, threads)
    with engine.session() as run:
        return run(source, draws.ids % len(source), draws)


@settings(max_examples=200)
@given(
    st.integers(0, 2**48 - 1),
    st.integers(0, 2**16 - 1),
    st.integers(0, 2**32 - 1),
    st.integers(0, 2**16 - 1),
    st.integers(0, 2**16 - 1),
    st.integers(0, 2**64 - 1),
)
def test_words_are_the_references(
    sample: int, again: int, epoch: int, step: int, draw: int, seed: int
):
    """The kernel's words are those of `Draws.words`, whatever they are keyed by."""
    found = draw_words(sample, again, epoch, step, draw, np.uint64(seed))
    one = torch.tensor([sample])
    expected = Draws(Key(seed, epoch, 0), one, torch.tensor([again])).words(step, draw)
    assert list(found) == expected[0].tolist()


@every_case
@pytest.mark.parametrize("channels_last", [False, True])
def test_kernel_is_reference(case: Case, channels_last: bool):
    """Every kind of step, dtype and shape comes out with the reference's bits, in both layouts."""
    source = images_of(case.shape, case.dtype)
    for epoch, ids in ((0, range(300)), (1, [5, 0, 10, 2**40 + 1])):
        draws = draws_of(list(ids), epoch)
        batch = _run(case, source, draws, channels_last=channels_last)
        memory_format = torch.channels_last if channels_last else torch.contiguous_format
        assert batch.is_contiguous(memory_format=memory_format)
        assert is_same_bits(batch, reference(case, source, draws.ids % len(source), draws))


@st.composite
def _ops(draw: st.DrawFn) -> Case:
    channels, height, width = draw(st.tuples(*[st.integers(1, n) for n in (5, 12, 12)]))
    shape = (channels, height, width)
    ops: list[Op] = []
    size = [height, width]
    number = iter(range(0, 1000, 3))

    def gate(changes_size: bool) -> Gate | None:
        return None if changes_size or draw(st.booleans()) else Gate(next(number), 0.6)

    def values() -> tuple[float, ...]:
        one = st.integers(0, 255)
        return draw(st.one_of(st.tuples(one), st.tuples(*[one] * channels)))

    for _ in range(draw(st.integers(0, 4))):
        if draw(st.booleans()):
            axis = draw(st.sampled_from(("horizontal", "vertical")))
            ops.append(Flip(next(number), axis, 0.5, draw(st.booleans()), gate(False)))
            continue
        mode = draw(st.sampled_from(MODES))
        most = 5 if mode == "constant" else min(size) - 1
        padding = Padding(*(draw(st.integers(0, max(0, min(4, most)))) for _ in range(4)), mode)
        room = (
            size[0] + padding.top + padding.bottom,
            size[1] + padding.left + padding.right,
        )
        window = (draw(st.integers(1, room[0])), draw(st.integers(1, room[1])))
        if draw(st.booleans()):
            window = (size[0], size[1])
        position = None
        if draw(st.booleans()):
            position = tuple(draw(st.integers(0, r - w)) for r, w in zip(room, window, strict=True))
        gated = gate(window != tuple(size))
        ops.append(Window(next(number), window, (padding,), position, values(), gated))
        size = list(window)
    if draw(st.booleans()):
        dtype = draw(st.sampled_from((torch.float16, torch.bfloat16, torch.float32)))
        ops.append(table(next(number), dtype, channels))
    for _ in range(draw(st.integers(0, 2))):
        if draw(st.booleans()):
            ops.append(Cutout(next(number), draw(st.integers(1, 15)), values(), gate(False)))
        else:
            scale = draw(st.sampled_from(((0.02, 0.33), (0.4, 1.0))))
            ops.append(RandomErase(next(number), 0.8, scale, (0.3, 3.3), values(), gate(False)))
    if draw(st.booleans()):
        ops.append(Elementwise(next(number), lambda images: images.neg()))
    out_dtype = draw(st.sampled_from((None, torch.float32, torch.bfloat16)))
    return Case("random", tuple(ops), shape, out_dtype=out_dtype)


@settings(max_examples=300)
@given(case=_ops(), channels_last=st.booleans(), epoch=st.integers(0, 2**32 - 2))
def test_random_chains_are_the_references(case: Case, channels_last: bool, epoch: int):
    """Random chains of steps, gated and not, of any odd size, in both layouts."""
    source = images_of(case.shape, case.dtype, 3)
    draws = draws_of([*range(5), 2**47], epoch)
    batch = _run(case, source, draws, channels_last=channels_last)
    assert is_same_bits(batch, reference(case, source, draws.ids % len(source), draws))


def test_threads_and_slices_change_nothing():
    """A batch is the same made by one thread or by four, whole or in parts."""
    case = BY_NAME["two-erasures-then-table"]
    source, draws = images_of(case.shape, case.dtype), draws_of(list(range(257)))
    whole = _run(case, source, draws)
    assert is_same_bits(_run(case, source, draws, threads=4), whole)
    parts = [_run(case, source, draws_of(ids)) for ids in (list(range(100)), range(100, 257))]
    assert is_same_bits(torch.cat(parts), whole)


def test_same_sample_again_is_drawn_anew():
    """A sample that comes again in an epoch has other draws, the reference's."""
    case = BY_NAME["crop-flip"]
    source = images_of(case.shape, case.dtype)
    first, again = draws_of([3] * 40), draws_of([3] * 40, again=1)
    batches = [_run(case, source, draws) for draws in (first, again)]
    assert not is_same_bits(*batches)
    assert is_same_bits(batches[1], reference(case, source, again.ids % len(source), again))


def test_rows_need_not_be_ids():
    """Draws go by the sample's id, pixels by the row that holds it."""
    case = BY_NAME["crop-flip"]
    source, draws = images_of(case.shape, case.dtype), draws_of([7, 8, 9])
    rows = torch.tensor([2, 0, 2])
    with NumbaEngine(case.program(), threads=1).session() as run:
        batch = run(source, rows, draws)
    assert is_same_bits(batch, reference(case, source, rows, draws))


def test_kept_batches_stay_as_they_are():
    """A batch that is kept is not overwritten by those that follow."""
    case = BY_NAME["crop-flip"]
    source = images_of(case.shape, case.dtype)
    with NumbaEngine(case.program(), threads=1).session() as run:
        kept, copies = [], []
        for epoch in range(6):
            draws = draws_of(list(range(20)), epoch)
            batch = run(source, draws.ids % len(source), draws)
            kept.append(batch[3:7])
            copies.append(batch[3:7].clone())
            del batch
    assert all(map(is_same_bits, kept, copies))


def test_engine_is_chosen_with_a_reason():
    """Numba where a chain can be fused; else the reference, which says why."""
    engine = choose_engine([Flip(0)], (3, 4, 4), torch.uint8, out_dtype=None, device=CPU)
    assert isinstance(engine, NumbaEngine)
    assert engine.description == "Numba, fused in one pass"
    engine = choose_engine(
        [Cutout(0, 2), Flip(1)], (3, 4, 4), torch.uint8, out_dtype=None, device=CPU
    )
    assert isinstance(engine, Reference)
    assert engine.description == (
        "PyTorch, operation by operation (a step moves pixels after erasing)"
    )


def test_without_numba_the_reference_runs(monkeypatch: pytest.MonkeyPatch):
    """Where Numba is missing the chain runs operation by operation, and says so."""
    monkeypatch.setattr("hotset.kernels.dispatch.find_spec", lambda name: None)
    engine = choose_engine([Flip(0)], (3, 4, 4), torch.uint8, out_dtype=None, device=CPU)
    assert engine.description == "PyTorch, operation by operation (numba is not installed)"


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_batches_made_side_by_side_are_those_made_alone(threads: int):
    """Several batches in one go, of differing sizes, have each its own memory and the same bits."""
    case = BY_NAME["two-erasures-then-table"]
    source, sizes = images_of(case.shape, case.dtype), [40, 64, 0, 7]
    draws = draws_of(list(range(sum(sizes))))
    with NumbaEngine(case.program(), threads=threads).session() as run:
        batches = run.batches(source, draws.ids % len(source), draws, sizes)
    whole = _run(case, source, draws)
    assert [len(batch) for batch in batches] == sizes
    assert is_same_bits(torch.cat(list(batches)), whole)
    assert len({batch.untyped_storage().data_ptr() for batch in batches if len(batch)}) == 3
