"""The order of an epoch: DataLoader's, or what a seed makes of it; and how it is taken up again."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from hotset.errors import ConfigError
from hotset.loader.ids import Occurrences, check_ids
from hotset.loader.order import SamplerOrder, Start
from hotset.loader.seeded import SeededOrder
from tests import streams


def orders(
    length: int, size: int, world: int, *, drop_last: bool, shuffled: bool = True, seed: int = 3
) -> list[SeededOrder]:
    """One order per rank; `size` is a rank's batch size."""
    return [
        SeededOrder(
            length,
            size,
            is_shuffled=shuffled,
            drop_last=drop_last,
            seed=seed,
            shard=(rank, world),
        )
        for rank in range(world)
    ]


def ids_of(order: SeededOrder, epoch: int) -> list[list[int]]:
    """The batches of an epoch."""
    return [batch.tolist() for batch in order.begin(epoch)[1]]


@given(
    length=st.integers(1, 60),
    size=st.integers(1, 8),
    world=st.integers(1, 5),
    drop_last=st.booleans(),
    shuffled=st.booleans(),
    epoch=st.integers(0, 2**33),
    seed=st.integers(-(2**63), 2**64),
)
def test_shards_partition_every_global_batch(
    length: int, size: int, world: int, drop_last: bool, shuffled: bool, epoch: int, seed: int
) -> None:
    """No sample twice, none left out but for `drop_last`; all ranks have as many batches."""
    options: dict[str, Any] = {"drop_last": drop_last, "shuffled": shuffled, "seed": seed}
    single = ids_of(orders(length, size * world, 1, **options)[0], epoch)
    ranks = orders(length, size, world, **options)
    batches = [ids_of(order, epoch) for order in ranks]
    assert {len(of_rank) for of_rank in batches} == {len(ranks[0])}
    together = [
        [index for tuple_ in itertools.zip_longest(*parts) for index in tuple_ if index is not None]
        for parts in zip(*batches, strict=True)
    ]
    seen = [index for batch in together for index in batch]
    assert seen == [index for batch in single for index in batch]
    assert sorted(seen) == sorted(set(seen))
    assert len(seen) == (length // (size * world) * size * world if drop_last else length)
    if length >= world and not drop_last:
        assert all(len(batch) >= 1 for of_rank in batches for batch in of_rank)
    if not shuffled:
        assert seen == list(range(len(seen)))


@given(length=st.integers(2, 200), seed=st.integers(0, 2**64 - 1))
def test_an_epochs_order_is_a_permutation_of_its_own(length: int, seed: int) -> None:
    """Every epoch has another one, and each one is the same whenever it is asked for."""
    order = orders(length, 7, 1, drop_last=False, seed=seed)[0]
    epochs = [list(itertools.chain(*ids_of(order, epoch))) for epoch in range(6)]
    assert all(sorted(ids) == list(range(length)) for ids in epochs)
    assert len({tuple(ids) for ids in epochs}) > 1
    assert list(itertools.chain(*ids_of(order, 3))) == epochs[3]


def test_a_remainder_smaller_than_the_world_joins_the_last_batch() -> None:
    """Otherwise a rank would have a batch less, and the others would wait for it for ever."""
    batches = [ids_of(order, 0) for order in orders(9, 2, 4, drop_last=False, shuffled=False)]
    assert batches == [[[0, 4, 8]], [[1, 5]], [[2, 6]], [[3, 7]]]
    assert [ids_of(o, 0) for o in orders(11, 2, 2, drop_last=False, shuffled=False)] == [
        [[0, 2], [4, 6], [8, 10]],
        [[1, 3], [5, 7], [9]],
    ]


def test_the_order_of_a_seed_is_pinned() -> None:
    """These integers must not change between versions: runs would not be repeatable."""
    assert ids_of(orders(12, 5, 1, drop_last=False, seed=0)[0], 0) == GOLDEN_0
    assert ids_of(orders(12, 5, 1, drop_last=False, seed=2**64 - 1)[0], 7) == GOLDEN_7


GOLDEN_0 = [[9, 10, 0, 7, 6], [11, 8, 3, 1, 2], [4, 5]]
GOLDEN_7 = [[4, 8, 0, 7, 6], [9, 1, 10, 5, 11], [2, 3]]


@given(
    sampler=st.sampled_from(streams.SAMPLERS),
    skip=st.integers(0, 12),
    epoch=st.integers(0, 2),
    workers=st.sampled_from((0, 2)),
)
def test_replaying_gives_what_was_not_yet_seen(
    sampler: str, skip: int, epoch: int, workers: int
) -> None:
    """From the start's plain values alone, by an order that has never run."""
    dataset = streams.tensor_dataset(17)

    def order() -> SamplerOrder:
        loader = streams.plain_loader(dataset, sampler, 3, False, num_workers=workers)
        return SamplerOrder(loader, 17)

    torch.manual_seed(epoch)
    first = order()
    for number in range(epoch):
        list(first.begin(number)[1])
    start, batches = first.begin(epoch)
    whole = [ids.tolist() for ids in batches]
    rest, skipped = order().replay(Start.from_dict(start.as_dict()), skip)
    assert [ids.tolist() for ids in skipped] == whole[:skip]
    assert [ids.tolist() for ids in rest] == whole[skip:]


def test_persistent_workers_draw_one_base_seed() -> None:
    """As in a plain loader, which makes its iterator once."""
    loader = DataLoader(streams.OwnCode(8), num_workers=2, persistent_workers=True)
    order = SamplerOrder(loader, 8)
    starts = [order.begin(epoch)[0] for epoch in range(3)]
    assert len({start.seed for start in starts}) == 1
    assert [start.is_drawn for start in starts] == [True, False, False]
    plain = SamplerOrder(DataLoader(streams.OwnCode(8), num_workers=2), 8)
    assert len({plain.begin(epoch)[0].seed for epoch in range(3)}) == 3


@pytest.mark.parametrize(
    ("sampler", "may_repeat"),
    [
        ("in order", False),
        ("shuffled", False),
        ("part", True),
        ("more than once", True),
        ("replacement", True),
        ("weighted", True),
        ("distributed", True),
        ("list of batches", True),
        ("list", True),
    ],
)
def test_whether_a_sample_can_come_twice(sampler: str, may_repeat: bool) -> None:
    """Only torch's own samplers without replacement are known not to repeat."""
    loader = streams.plain_loader(streams.OwnCode(9), sampler, 3, False)
    assert SamplerOrder(loader, 9).may_repeat is may_repeat


def test_a_sampler_that_repeats_within_its_indices_may_repeat() -> None:
    """`SubsetRandomSampler` over indices that repeat gives a sample twice."""
    sampler = torch.utils.data.SubsetRandomSampler([1, 1, 2])
    loader = DataLoader(streams.OwnCode(9), 3, sampler=sampler)
    assert SamplerOrder(loader, 9).may_repeat


@given(st.lists(st.lists(st.integers(0, 5), max_size=9), max_size=5))
def test_occurrences_count_what_came_before(batches: list[list[int]]) -> None:
    """Over the batches of an epoch and within each of them."""
    counter, seen = Occurrences(6), []
    for batch in batches:
        found = counter.of(np.array(batch, dtype=np.int64)).tolist()
        for index, count in zip(batch, found, strict=True):
            assert count == seen.count(index)
            seen.append(index)


def test_ids_are_checked() -> None:
    """Those counted from the end are made positive; the others are refused."""
    assert check_ids(np.array([0, -1, -3, 2]), 3).tolist() == [0, 2, 0, 2]
    assert check_ids(np.zeros(0, np.int64), 3).tolist() == []
    for wrong in (3, -4):
        with pytest.raises(ConfigError, match=r"the sampler gave index .*, but the dataset has 3"):
            check_ids(np.array([0, wrong]), 3)


@pytest.mark.parametrize(
    "kind", [torch.tensor, np.array, tuple, list, lambda ids: list(torch.tensor(ids)), iter]
)
def test_samplers_may_give_batches_of_any_kind(kind: Any) -> None:
    """Tensors, arrays, tuples, lists of tensors, iterators: as plain loaders take them."""
    batches = [kind([0, 2]), kind([1])]
    loader = DataLoader(streams.OwnCode(3), batch_sampler=batches)
    found = [ids.tolist() for ids in SamplerOrder(loader, 3).begin(0)[1]]
    assert found == [[0, 2], [1]]
