"""Fields whose length differs on a CUDA device: the batches are those of the CPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import hotset
from tests.streams import assert_same
from tests.test_ragged_fields import COUNT, DATA, JAGGED_POINTS

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("tier", ["device", "host"])
@pytest.mark.parametrize(
    "ragged", ["pad", hotset.Padded(1, multiple_of=8, side="left"), JAGGED_POINTS]
)
def test_as_on_the_cpu(tier: str, ragged: Any) -> None:
    """Bit for bit, in every tier, and without the host waiting for the device."""
    made: dict[str, Any] = {"ragged": ragged, "shuffle": True, "seed": 3, "check_every": 0}
    fast = hotset.Loader(DATA, 6, device="cuda", tier=tier, **made)
    plain = hotset.Loader(DATA, 6, device="cpu", **made)
    list(fast)
    list(plain)
    seen = 0
    torch.cuda.set_sync_debug_mode("error" if tier == "device" else "default")
    try:
        found = list(fast)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    for batch, expected in zip(found, plain, strict=True):
        for name, leaf in batch.items():
            other = expected[name]
            assert leaf.device.type == "cuda"
            assert leaf.is_nested == other.is_nested
            if leaf.is_nested:
                assert_same(leaf.offsets().cpu(), other.offsets())
                leaf, other = leaf.values(), other.values()
            assert_same(leaf.cpu(), other)
        seen += len(batch["label"])
    assert seen == COUNT
