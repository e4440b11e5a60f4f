"""The epochs to come of samplers that draw from a generator of their own, and what they are for."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)

import hotset
from hotset.loader.order import SamplerOrder
from hotset.testing import SimulatedAccelerator
from tests.streams import OwnCode, assert_same, snapshot

LENGTH = 70
WEIGHTS = torch.arange(LENGTH) + 1.0
IMAGES = torch.randint(0, 256, (LENGTH, 12), dtype=torch.uint8, generator=torch.manual_seed(0))
SAMPLERS: dict[str, Callable[[torch.Generator | None], Any]] = {
    "replacement": lambda own: RandomSampler(range(LENGTH), True, 75, generator=own),
    "weighted": lambda own: WeightedRandomSampler(WEIGHTS, 75, generator=own),
    "shuffled": lambda own: RandomSampler(range(LENGTH), generator=own),
    "more than once": lambda own: RandomSampler(range(LENGTH), num_samples=75, generator=own),
    "part": lambda own: SubsetRandomSampler(range(0, LENGTH, 2), generator=own),
}
REPEATING = ("replacement", "weighted")


def made(
    name: str, data: Any, *, shared: bool = False, **settings: Any
) -> tuple[DataLoader[Any], torch.Generator]:
    """A loader, and its sampler's generator, which can be the loader's as well."""
    own = torch.Generator().manual_seed(4)
    given = {"generator": own} if shared else {}
    return DataLoader(data, 8, sampler=SAMPLERS[name](own), **given, **settings), own


def states(own: torch.Generator) -> tuple[Tensor, Tensor]:
    """Of a sampler's generator, and of torch's."""
    return own.get_state(), torch.get_rng_state()


def listed(batches: Any) -> list[list[int]]:
    """Batches of ids as lists."""
    return [ids.tolist() for ids in batches]


@pytest.mark.parametrize("name", SAMPLERS)
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("settings", [(0, False), (2, False), (2, True)])
def test_what_is_foreseen_comes(name: str, shared: bool, settings: tuple[int, bool]) -> None:
    """Three epochs beforehand, in every epoch anew, and no generator shows that somebody looked."""
    workers, persistent = settings
    loader, own = made(
        name,
        OwnCode(LENGTH),
        shared=shared,
        num_workers=workers,
        persistent_workers=persistent,
        drop_last=True,
    )
    order = SamplerOrder(loader, LENGTH)
    peek = order.outlook.peek
    assert peek is not None
    foreseen: dict[int, list[list[list[int]]]] = {}
    for epoch in range(5):
        batches = listed(order.begin(epoch)[1])
        assert all(batches == earlier for earlier in foreseen.get(epoch, []))
        before = states(own)
        next(peek(epoch + 1))  # who looks may stop at any place
        for later in range(epoch + 1, epoch + 4):
            foreseen.setdefault(later, []).append(listed(peek(later)))
        next(peek(epoch + 1))
        foreseen[epoch + 3].append(listed(peek(epoch + 3)))  # those between are passed over
        for found, expected in zip(states(own), before, strict=True):
            assert torch.equal(found, expected)
    assert [len(found) for found in foreseen.values()] == [1, 2, 4, 4, 4, 3, 2][: len(foreseen)]


def test_every_epoch_looks_anew() -> None:
    """What was foreseen is forgotten where others drew from the generator, or a state is loaded."""
    loader, own = made("weighted", OwnCode(LENGTH))
    order = SamplerOrder(loader, LENGTH)
    peek = order.outlook.peek
    assert peek is not None
    list(order.begin(0)[1])
    before = listed(peek(1))
    torch.rand(3, generator=own)
    start, batches = order.begin(1)
    assert listed(batches) != before
    foreseen = listed(peek(2))
    assert foreseen == listed(order.begin(2)[1])
    list(order.begin(0)[1])
    assert listed(peek(1)) != foreseen
    list(order.replay(start, 2)[0])
    assert listed(peek(2)) == foreseen


def test_looking_ahead_holds_no_more_with_time() -> None:
    """One copy of the order at most, however many epochs there were."""
    order = SamplerOrder(made("replacement", OwnCode(LENGTH))[0], LENGTH)
    peek = order.outlook.peek
    assert peek is not None
    gc.collect()
    before = sum(type(one) is SamplerOrder for one in gc.get_objects())
    for epoch in range(6):
        list(order.begin(epoch)[1])
        list(peek(epoch + 1))
        list(peek(epoch + 2))
    gc.collect()
    assert sum(type(one) is SamplerOrder for one in gc.get_objects()) == before + 1


def test_an_order_without_draws_is_foreseen() -> None:
    """In order, epoch after epoch."""
    order = SamplerOrder(DataLoader(OwnCode(5), 3), 5)
    peek = order.outlook.peek
    assert peek is not None
    assert listed(order.begin(0)[1]) == listed(peek(1)) == listed(peek(2)) == [[0, 1, 2], [3, 4]]


@pytest.mark.parametrize("name", SAMPLERS)
@pytest.mark.parametrize("own", [None, torch.default_generator], ids=["none", "torch's"])
def test_draws_from_torchs_generator_are_not_foreseen(name: str, own: Any) -> None:
    """Anybody draws from it."""
    order = SamplerOrder(DataLoader(OwnCode(LENGTH), 8, sampler=SAMPLERS[name](own)), LENGTH)
    assert order.outlook.peek is None
    assert not order.outlook.is_future_known


def test_batch_samplers_of_others_are_not_foreseen() -> None:
    """They may do anything, whatever sampler they ask."""

    class Reversed(BatchSampler):
        """The batches of an epoch, last one first."""

        def __iter__(self) -> Any:
            return iter(list(super().__iter__())[::-1])

    for sampler in (SequentialSampler(range(LENGTH)), SAMPLERS["weighted"](torch.Generator())):
        loader = DataLoader(OwnCode(LENGTH), batch_sampler=Reversed(sampler, 8, False))
        assert SamplerOrder(loader, LENGTH).outlook.peek is None


def test_a_generator_that_is_taken_away() -> None:
    """Then nothing is foreseen any more."""
    loader, _ = made("replacement", OwnCode(LENGTH))
    order = SamplerOrder(loader, LENGTH)
    peek = order.outlook.peek
    assert peek is not None
    loader.sampler.generator = None
    list(order.begin(0)[1])
    assert list(peek(1)) == []


def near(loader: DataLoader[Any], **options: Any) -> hotset.Loader:
    """Of its samples, of 20 bytes each, some have room on the device."""
    device = SimulatedAccelerator("10MB", bandwidth="1MB")
    fast = hotset.accelerate(loader, device=device, budget=1000, **options)
    assert fast.plan.tier == "mixed"
    return fast


@pytest.mark.parametrize("name", REPEATING)
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("settings", [(0, False), (2, False), (2, True)])
def test_batches_and_generators_are_as_without_foresight(
    name: str, shared: bool, settings: tuple[int, bool]
) -> None:
    """Epoch for epoch those of a plain loader, also where an epoch is left and taken up again."""
    data = TensorDataset(IMAGES, torch.arange(LENGTH))
    given = {"num_workers": settings[0], "persistent_workers": settings[1]}
    expected, after = [], []
    torch.manual_seed(6)
    plain, own = made(name, data, shared=shared, **given)
    for _ in range(4):
        expected.append(list(map(snapshot, plain)))
        after.append(states(own))

    def check(epoch: int, found: list[Any], own: torch.Generator) -> None:
        for batch, wanted in zip(found, expected[epoch], strict=True):
            assert_same(batch, wanted)
        for state, wanted in zip(states(own), after[epoch], strict=True):
            assert torch.equal(state, wanted)

    torch.manual_seed(6)
    plain, own = made(name, data, shared=shared, **given)
    fast = near(plain, check_every=0)
    assert fast.plan.policy == (
        "next-use: samples repeat, and the order shows which of them come again soon"
    )
    for epoch in range(2):
        check(epoch, list(map(snapshot, fast)), own)
    begun: list[Any] = []
    for batch in fast:
        begun.append(snapshot(batch))
        if len(begun) == 4:
            break
    state, torchs = fast.state_dict(), torch.get_rng_state()
    plain, own = made(name, data, shared=shared, **given)
    fast = near(plain, check_every=0)
    fast.load_state_dict(state)
    torch.set_rng_state(torchs)
    check(2, [*begun, *map(snapshot, fast)], own)
    check(3, list(map(snapshot, fast)), own)


def test_what_others_draw_costs_hits_only() -> None:
    """The batches are those of a plain loader whose generator others draw from as well."""
    data, streams = TensorDataset(IMAGES, torch.arange(LENGTH)), []
    for wrap in (near, lambda plain: plain):
        plain, own = made("weighted", data)
        loader = wrap(plain)
        streams.append([])
        for _ in range(4):
            streams[-1].extend(map(snapshot, loader))
            torch.rand(3, generator=own)
    for found, wanted in zip(*streams, strict=True):
        assert_same(found, wanted)


def test_epochs_without_a_batch_come_to_an_end() -> None:
    """Where all are dropped, nothing is foreseen, and nobody looks for ever."""
    data = TensorDataset(IMAGES, torch.arange(LENGTH))
    sampler = RandomSampler(data, True, 5, generator=torch.Generator())
    fast = near(DataLoader(data, 8, sampler=sampler, drop_last=True))
    assert list(fast) == list(fast) == []


@pytest.mark.parametrize("name", REPEATING)
def test_the_plan_says_how_to_foresee_more(name: str) -> None:
    """A generator of the sampler's own, where it draws from torch's."""
    data = TensorDataset(IMAGES, torch.arange(LENGTH))
    advice = (
        "; only this epoch's order is known, as the sampler draws from torch's own generator: "
        "give it a generator of its own"
    )
    for own, is_advised in ((None, True), (torch.Generator(), False)):
        loader = DataLoader(data, 8, sampler=SAMPLERS[name](own))
        assert near(loader).plan.policy.endswith(advice) is is_advised
        asked = near(loader, policy="next-use").plan.policy
        assert asked == f"next-use: asked for{advice if is_advised else ''}"


COUNT = 20_000
ROWS = TensorDataset(torch.arange(COUNT))


def settled(sampler: Any, share: float, policy: str = "auto") -> float:
    """The hit rate of the fourth to the sixth epoch, of rows of 8 bytes."""
    device = SimulatedAccelerator("10MB", bandwidth="100MB")
    budget = 8 * (round(share * COUNT) + 3 * 256)  # three batches pass
    fast = hotset.accelerate(
        DataLoader(ROWS, 256, sampler=sampler),
        device=device,
        budget=budget,
        policy=policy,
        prefetch_batches=2,
        prefetch_bytes=2 * 256 * 8,
        check_every=0,
    )
    assert fast.plan.cached / COUNT == share
    counts = []
    for _ in range(6):
        for (numbers,) in fast:
            assert numbers.dtype is torch.int64
        stats = fast.stats()
        counts.append(np.array([stats.hits, stats.hits + stats.misses]))
    hits, reads = counts[5] - counts[2]
    assert reads == 3 * COUNT
    return float(hits / reads)


@pytest.mark.parametrize(("share", "theory"), [(0.25, 0.618), (0.5, 0.813)])
def test_hits_are_those_of_theory(share: float, theory: float) -> None:
    """Drawn with replacement, through a loader; with torch's generator there are fewer."""
    own = torch.Generator().manual_seed(2)
    found = settled(RandomSampler(ROWS, True, generator=own), share)
    assert found == pytest.approx(theory, abs=0.01)
    torch.manual_seed(2)
    assert settled(RandomSampler(ROWS, True), share) < theory - 0.05


@pytest.mark.parametrize("share", [0.25, 0.5])
def test_weighted_hits_are_more_than_those_of_the_heaviest(share: float) -> None:
    """Which are the best set that is never exchanged."""
    weights = (torch.arange(COUNT) + 1.0) ** -0.7
    rates = {
        policy: settled(
            WeightedRandomSampler(weights, COUNT, generator=torch.Generator().manual_seed(2)),
            share,
            policy,
        )
        for policy in ("auto", "static")
    }
    assert rates["auto"] > rates["static"] + 0.03


class Pairs(BatchSampler):
    """A batch sampler of the user's own."""


def test_a_batch_sampler_of_the_users_own_is_not_read_ahead() -> None:
    """Whatever sampler it has inside: it may do anything."""
    sampler = WeightedRandomSampler(torch.ones(10), 10)
    loader = DataLoader(range(10), batch_sampler=Pairs(sampler, 2, False))
    outlook = SamplerOrder(loader, 10).outlook
    assert (outlook.reuse, outlook.may_read_ahead, outlook.weights) == ("unknown", False, None)
