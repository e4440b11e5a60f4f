"""What worker processes cost beside their work, on a clock of the test's own."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset, default_collate

import hotset
from hotset.errors import SampleError
from hotset.planning.handing import BATCHES, Handing, _Made, check_sendable, handing_of
from hotset.planning.predict import Costs

SAMPLES = [(torch.zeros(3), 1), (torch.ones(3), 2)]


def handed(workers: int, cores: int = 2) -> Handing:
    """Timed by a clock that is a second on whenever it is asked."""
    ticks = itertools.count()
    return handing_of(
        SAMPLES,
        default_collate,
        batch_size=4,
        workers=workers,
        cores=cores,
        settings={"prefetch_factor": 2, "timeout": 0},
        clock=lambda: float(next(ticks)),
    )


@pytest.mark.parametrize(
    ("workers", "cores", "start_ms"), [(1, 2, 1000), (2, 2, 1000), (3, 1, 3000)]
)
def test_what_is_timed(workers: int, cores: int, start_ms: float) -> None:
    """To the first batch, for each of the processes; and from one batch to the next."""
    state = torch.random.get_rng_state()
    assert handed(workers, cores) == Handing(start_ms, 1000 / BATCHES)
    assert torch.equal(torch.random.get_rng_state(), state)


def test_the_main_process_hands_nothing_over() -> None:
    """Without workers nothing is started, and nothing timed."""
    assert handed(0) == Handing()


def test_costs_of_workers() -> None:
    """Starting is shared by an epoch's batches; handing over bounds them."""
    costs = Costs(
        samples=100,
        kept=100,
        batch_size=10,
        workers=2,
        cores=2,
        sample_ms=0.1,
        start_ms=50.0,
        hand_ms=3.0,
    )
    assert costs.data_ms == 3.0 + 5.0  # not the 0.5 of making it
    assert costs.plain_ms(1.0) == 8.0
    assert costs.plain_ms(20.0) == 25.0
    assert costs.left_ms == 0.0


@pytest.mark.parametrize(("is_persistent", "data_ms"), [(False, 1000 + 800 / 8), (True, 1000)])
def test_workers_that_stay_are_started_once(
    is_persistent: bool, data_ms: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What that takes is no epoch's then."""
    monkeypatch.setattr(
        "hotset.planning.estimate.handing_of", lambda *args, **options: Handing(800.0, 1000.0)
    )
    data = TensorDataset(torch.zeros(40, 2), torch.arange(40))
    loader = DataLoader(data, 5, num_workers=1, persistent_workers=is_persistent)
    prediction = hotset.plan(loader, device="cpu", step=0.0).prediction
    assert prediction is not None
    assert prediction.data_ms == data_ms


def test_putting_together_is_no_part_of_handing_over() -> None:
    """The collate_fn is called once, before the clock is first looked at."""
    calls: list[int] = []
    ticks = itertools.count()

    def collate(samples: list[object]) -> object:
        calls.append(next(ticks))
        return default_collate(samples)

    found = handing_of(
        SAMPLES,
        collate,
        batch_size=4,
        workers=1,
        cores=2,
        settings={"prefetch_factor": 2, "timeout": 0},
        clock=lambda: float(next(ticks)),
    )
    assert calls == [0]
    assert found == Handing(1000, 1000 / BATCHES)


def test_batches_that_are_handed_over_are_made_anew() -> None:
    """Each has memory of its own, and what is no plain tensor comes along."""
    batch = {"rows": torch.arange(6.0).reshape(2, 3), "names": ["a", "b"], "count": torch.tensor(2)}
    made = _Made(batch, 3)
    one, other = made[0], made[1]
    assert torch.equal(one["rows"], batch["rows"])
    assert one["rows"].data_ptr() not in (batch["rows"].data_ptr(), other["rows"].data_ptr())
    assert (one["names"], int(one["count"]), len(made)) == (["a", "b"], 2, 3)


class Unsendable:
    """Holds what cannot be pickled."""

    def __init__(self) -> None:
        self.call = lambda: None


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (Unsendable(), "pickle"),
        ([torch.ones(2, requires_grad=True) * 2], "a tensor within a graph of gradients"),
    ],
)
def test_batches_that_no_worker_can_hand_over(batch: Any, message: str) -> None:
    """They are refused, where a worker would fail in silence and be waited for for ever."""
    with pytest.raises(SampleError, match=f"a worker cannot hand over such batches: .*{message}"):
        check_sendable(batch)


def test_batches_that_workers_can_hand_over() -> None:
    """Tensors, leaves of a graph, arrays and whatever pickles."""
    check_sendable([torch.ones(2, requires_grad=True), np.ones(2), {"name": "a"}, None])
