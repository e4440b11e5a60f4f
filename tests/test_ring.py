"""The ring on a strict device: no buffer or memory is written to while something may read it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

import hotset
from hotset.loader.gathered import BatchPipeline
from hotset.loader.moved import move
from hotset.placement.lanes import DenseLane, View, sizes_of
from hotset.placement.link import place
from hotset.placement.stats import Tally
from hotset.sample.column import DenseColumn, RaggedColumn
from hotset.testing import SimulatedAccelerator
from tests.streams import assert_same
from tests.test_staging import AUGMENT, IMAGES, LABELS, ROW, TIERS

COUNT = 200
GENERATOR = torch.manual_seed(3)
TOKENS = [torch.randint(0, 99, (n % 17 + 1,), generator=GENERATOR) for n in range(COUNT)]
RINGS: dict[str, dict[str, Any]] = {
    **{name: dict(options) for name, options in TIERS.items()},
    **{f"{n} ahead": {"tier": "host", "prefetch_batches": n} for n in (1, 2, 3, 4)},
    **{f"mixed, {n} ahead": {"budget": 20_000, "prefetch_batches": n} for n in (1, 2, 3, 4)},
    "small batches together": {"tier": "host", "batch_size": 3},
    "small batches, mixed": {"budget": 20_000, "batch_size": 3, "policy": "lru"},
    "parts, mixed": {"budget": 20_000, "prefetch_bytes": 5 * ROW},
}
for _options in RINGS.values():
    if _options.get("budget") == 100_000:
        _options["budget"] = 20_000  # of 40,000 bytes


class Counting(SimulatedAccelerator):
    """A strict device.

    Attributes:
        counted: reads it was told of.
    """

    def __init__(self) -> None:
        super().__init__("10MB", bandwidth="1MB", is_strict=True)
        self.counted = 0

    def reads(self, memory: Tensor) -> None:
        self.counted += 1
        super().reads(memory)


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Counting:
    """A strict device that hears of every read of the memory batches are made from."""
    found, columns, admit = Counting(), BatchPipeline._columns, DenseLane.admit

    def reading(self: Any, requests: Any, views: Sequence[View], *rest: Any) -> Any:
        made = columns(self, requests, views, *rest)
        if getattr(self._stage, "_link", None) is found:
            for memory in read_by(views):
                found.reads(memory)
        return made

    def admitting(self: Any, sources: Tensor, into: Tensor) -> None:
        admit(self, sources, into)
        for slot in sources.tolist():
            found.reads(self._memory[slot])

    monkeypatch.setattr(BatchPipeline, "_columns", reading)
    monkeypatch.setattr(DenseLane, "admit", admitting)
    return found


def read_by(views: Sequence[View]) -> Iterator[Tensor]:
    """The device memory that a batch is made from, sample by sample."""
    for column, rows in views:
        if isinstance(column, DenseColumn):
            yield from (column.data[row] for row in rows.tolist())
        elif isinstance(column, RaggedColumn):
            starts, sizes = column.index[:, 0], sizes_of(column)
            for row in rows.tolist():
                yield column.data[starts[row] : starts[row] + sizes[row]]


def plain(batch: Any) -> Any:
    """A copy of a batch, its values where it is jagged."""
    if isinstance(batch, dict):
        return {name: plain(leaf) for name, leaf in batch.items()}
    if isinstance(batch, Tensor):
        return batch.values().clone() if batch.is_nested else batch.clone()
    return tuple(plain(leaf) for leaf in batch)


def assert_agree(device: Any, data: Any, **options: Any) -> None:
    """Fails unless batches are those of the CPU: whole epochs, one that is left, one more."""
    options = {"shuffle": True, "seed": 1, "check_every": 0, "batch_size": 16, **options}
    on_host = {"tier", "budget", "policy", "prefetch_batches", "prefetch_bytes"}
    fast = hotset.Loader(data, device=device, **options)
    slow_options = {name: value for name, value in options.items() if name not in on_host}
    slow = hotset.Loader(data, device="cpu", **slow_options)
    device.counted = 0
    for epoch in range(4):
        if epoch == 2:
            for number, _ in enumerate(fast):
                if number == 3:
                    break
            fast.set_epoch(epoch)
        for found, wanted in zip(fast, slow, strict=True):
            assert_same(plain(found), plain(wanted))
    # Four epochs of two leaves; where all are on the device, nothing is ever written to.
    assert (device.counted >= 8 * COUNT) == (fast.plan.tier != "device")


@pytest.mark.parametrize("ring", RINGS)
@pytest.mark.parametrize("transform", [AUGMENT, None], ids=["augmented", "as they are"])
def test_nothing_is_written_to_while_it_is_read(ring: str, transform: Any, device: Any) -> None:
    """Copies that take effect late give the same batches, and none overtakes a read."""
    data = (IMAGES[:COUNT], LABELS[:COUNT])
    assert_agree(device, data, transform=transform, **RINGS[ring])


@pytest.mark.parametrize("ragged", ["pad", "jagged"])
@pytest.mark.parametrize("ring", [{"tier": "host"}, {"budget": 12_000}, {"prefetch_batches": 1}])
def test_samples_of_differing_sizes(ragged: str, ring: Any, device: Any) -> None:
    """Likewise."""
    data = {"tokens": TOKENS, "label": LABELS[:COUNT]}
    assert_agree(device, data, ragged=ragged, **{"budget": 12_000, **ring})


@pytest.mark.parametrize("tier", ["mixed", "host"])
def test_memory_that_queued_work_gave_back(tier: str, device: Any) -> None:
    """Copies to memory just allocated start behind all work that is queued."""
    source = torch.arange(64, dtype=torch.int32)
    assert torch.equal(place(device, source), source)
    assert torch.equal(move(source, device, Tally()), source)
    # Two at once: the second gets its samples beside the ring, in memory of its own.
    budget: dict[str, Any] = {"mixed": {"budget": 20_000}, "host": {"tier": "host"}}[tier]
    loader = hotset.Loader((IMAGES[:COUNT], LABELS[:COUNT]), 16, device=device, **budget)
    for first, second in zip(loader, loader, strict=True):
        assert_same(plain(first), plain(second))
