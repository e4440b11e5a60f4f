"""Memory of batches: used again when nobody holds the batch, and never before."""

from __future__ import annotations

import gc

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from hotset.kernels.arena import KEPT, Arena


def test_memory_is_used_again():
    """The block of a batch that is gone is the next batch's."""
    arena = Arena((8, 3), torch.float32)
    first = arena.take(8)
    place = first.data_ptr()
    del first
    gc.collect()
    assert arena.take(5).data_ptr() == place


def test_kept_batches_have_memory_of_their_own():
    """While a batch is held its memory is given to no other."""
    arena = Arena((4, 2), torch.int64)
    kept = [arena.take(4) for _ in range(10)]
    for number, batch in enumerate(kept):
        batch.fill_(number)
    assert all((batch == number).all() for number, batch in enumerate(kept))


def test_views_keep_a_batch_alive():
    """A slice, a transposed view, a NumPy array, a cast of the bits: each holds the memory."""
    for view_of in (
        lambda batch: batch[1:2],
        lambda batch: batch.t(),
        lambda batch: batch.numpy(),
        lambda batch: batch.view(torch.int32),
        lambda batch: batch.detach(),
        lambda batch: batch[0].untyped_storage(),
    ):
        arena = Arena((4, 4), torch.float32)
        batch = arena.take(4)
        place = batch.data_ptr()
        view = view_of(batch)
        del batch
        gc.collect()
        assert arena.take(4).data_ptr() != place
        del view
        gc.collect()
        assert place in {arena.take(4).data_ptr() for _ in range(1)}


def test_only_a_few_free_blocks_are_kept():
    """A burst of batches does not hold its memory for good."""
    arena = Arena((4, 4), torch.float32)
    batches = [arena.take(4) for _ in range(KEPT + 5)]
    places = {batch.data_ptr() for batch in batches}
    assert len(places) == KEPT + 5
    del batches
    gc.collect()
    assert len(arena._free) == KEPT


def test_shapes_and_dtypes():
    """What is given out has the shape asked for and the arena's dtype, also when it is empty."""
    for dtype in (torch.uint8, torch.bfloat16, torch.float64, torch.bool):
        arena = Arena((6, 2, 3), dtype)
        for count in (0, 1, 6, 9):
            taken = arena.take(count)
            assert taken.shape == (count, 2, 3)
            assert taken.dtype is dtype
            assert taken.is_contiguous()


def test_more_than_its_capacity_is_allocated():
    """A larger batch lies elsewhere, and the free block is not lost to it."""
    arena = Arena((2, 2), torch.float32)
    place = arena.take(2).data_ptr()
    gc.collect()
    larger = arena.take(3)
    assert larger.shape == (3, 2)
    assert larger.data_ptr() != place
    assert arena.take(2).data_ptr() == place


def test_arena_may_go_before_its_batches():
    """A batch outlives the arena it came from."""
    arena = Arena((2, 2), torch.float32)
    batch = arena.take(2).fill_(3)
    del arena
    gc.collect()
    assert (batch == 3).all()


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(0, 7)), max_size=40))
def test_no_batch_is_ever_overwritten(steps: list[tuple[int, int]]):
    """Taking and dropping in any order, what is held keeps its content."""
    arena = Arena((5, 3), torch.int32)
    held: dict[int, tuple[torch.Tensor, np.ndarray]] = {}
    for number, (count, slot) in enumerate(steps):
        held.pop(slot, None)
        batch = arena.take(count).fill_(number)
        held[slot] = (batch, batch.numpy().copy())
        assert all((batch.numpy() == copy).all() for batch, copy in held.values())
