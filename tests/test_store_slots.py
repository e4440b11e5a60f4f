"""Memory that worker processes put chunks into: whose turn each piece is, and what does not fit."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset

import hotset
from hotset.sources import sweep
from hotset.store.chunk import Packer
from hotset.store.slots import Slots
from tests.streams import assert_same


def packed(values: Sequence[Any], room: np.ndarray | None) -> Any:
    """A chunk of samples of one leaf."""
    packer = Packer()
    return packer.pack(range(len(values)), [packer.taken([value]) for value in values], room=room)


def test_a_chunk_is_put_where_it_fits() -> None:
    """And comes back with its bytes, from the memory itself."""
    slots = Slots(2, 2, 16)
    room = slots.room(3)
    assert room is not None
    chunk = packed([torch.arange(8, dtype=torch.uint8)], room)
    assert (chunk.in_room, len(chunk.payload)) == (8, 0)
    filled = slots.filled(3, chunk)
    assert filled.values(0).tolist() == list(range(8))
    assert np.shares_memory(filled.values(0), room)
    large = packed([torch.zeros(17, dtype=torch.uint8)], room)
    assert slots.filled(3, large) is large
    assert len(large.values(0)) == 17


def test_pieces_take_turns() -> None:
    """One for each task under way and one for that in use: the next of a piece comes after all."""
    slots = Slots(2, 3, 4)
    rooms = [slots.room(task) for task in range(14)]
    starts = [room.ctypes.data for room in rooms if room is not None]
    assert len(set(starts[:7])) == 7
    assert starts[7:] == starts[:7]


def test_another_process_that_is_not_forked_has_none() -> None:
    """Chunks then travel as tensors."""
    slots = pickle.loads(pickle.dumps(Slots(2, 2, 1 << 20)))
    assert slots.room(0) is None
    assert Slots(0, 2, 16).room(0) is None


class Noise(Dataset[Any]):
    """Arrays of differing sizes, of which some are far larger than others."""

    def __len__(self) -> int:
        return 120

    def __getitem__(self, index: int) -> Any:
        size = 60_000 if index % 37 == 5 else 50 + index
        return np.random.default_rng(index).integers(0, 256, size, dtype=np.uint8), index


@pytest.mark.parametrize("chunk_bytes", [1 << 10, 1 << 17])
@pytest.mark.parametrize("workers", [1, 2])
def test_a_store_built_through_them_is_whole(
    workers: int, chunk_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Chunks that fit and chunks that do not, many more than there are pieces."""
    monkeypatch.setattr(sweep, "WORKERS_PAY_SECONDS", -1.0)
    monkeypatch.setattr("hotset.building.build.CHUNK_BYTES", chunk_bytes)
    monkeypatch.setattr("hotset.store.chunk.CHUNK_BYTES", chunk_bytes)
    store = hotset.build(Noise(), tmp_path / "noise.hotset", workers=workers)
    assert len(store) == 120
    for index in range(120):
        assert_same(store[index], Noise()[index])
