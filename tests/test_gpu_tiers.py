"""Tiers on a CUDA device: the same batches as on the CPU, and the bytes that were to be copied."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.streams import assert_same
from tests.test_staging import COUNT, ROW, TIERS, copied, loader_on

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("tier", TIERS)
def test_every_tier_gives_the_same_batches(tier: str) -> None:
    """Over three epochs, with work between batches that would show a buffer used too soon."""
    plain, fast = loader_on("cpu"), loader_on("cuda", **TIERS[tier])
    load = torch.rand(2048, 2048, device="cuda")
    for _ in range(3):
        expected = copied(plain)
        found: list[Any] = []
        for batch in fast:
            for _ in range(20):
                load = torch.sin(load @ load)
            found.append(tuple(leaf.clone() for leaf in batch))
        for wanted, batch in zip(expected, found, strict=True):
            assert_same(tuple(leaf.cpu() for leaf in batch), wanted)


@pytest.mark.parametrize("tier", ["device", "mixed", "host"])
def test_bytes_are_counted(tier: str) -> None:
    """As on the simulated accelerator."""
    fast = loader_on("cuda", **TIERS[tier])
    before = fast.stats()
    list(fast)
    kept = fast.plan.cached
    assert (fast.stats() - before).bytes_copied == (COUNT - kept) * ROW


def test_memory_does_not_grow() -> None:
    """Over 50 epochs, after the first two."""
    fast = loader_on("cuda", **TIERS["mixed"])
    for _ in range(2):
        list(fast)
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    for _ in range(50):
        for _ in fast:
            pass
    torch.cuda.synchronize()
    assert torch.cuda.memory_allocated() <= before


def test_a_side_stream_of_the_users() -> None:
    """Batches are that stream's work."""
    plain, fast = loader_on("cpu"), loader_on("cuda", **TIERS["mixed"])
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        found = copied(fast)
    side.synchronize()
    for wanted, batch in zip(copied(plain), found, strict=True):
        assert_same(tuple(leaf.cpu() for leaf in batch), wanted)
