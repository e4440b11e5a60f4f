"""Rows of cuts: what they save, and the sentence for each that lost."""

from __future__ import annotations

import pytest

from hotset.chain.split import Position, Rest
from hotset.placement.tiers import Rooms, Tier
from hotset.planning.cuts import Epoch, Fact, cuts_of, exceeding
from hotset.planning.measure import Row, Timing

EPOCH = Epoch(samples=1000, kept=1000, parallel=2)


def fact(
    name: str,
    ms: float,
    size: int,
    rest: Rest,
    *,
    noise_ms: float = 0.0,
    copied: float = 0.0,
    tier: Tier | None = "device",
) -> Fact:
    """A position that samples can be kept at."""
    row = Row(name, Timing(ms, noise_ms), size, True)
    rooms = Rooms(device=8_000_000_000, host=12_000_000_000, name="cuda:0")
    return Fact(Position(True, "", rest), row, size, copied, rooms, tier)


def test_what_runs_once_is_saved_by_as_many_as_would_have_run_it() -> None:
    """On whole batches all of the chain is, but for what runs there instead."""
    facts = [fact("data", 4.0, 10, "worker"), fact("step", 2.0, 40, "batch")]
    epoch = Epoch(1000, 500, 2, collate_ms=1.0, batched_ms=0.25)
    cuts = cuts_of(facts, epoch, 1)
    assert [cut.saved_ms for cut in cuts] == [2000.0, (3.0 + 0.5 - 0.25) * 1000]
    assert [cut.nbytes for cut in cuts] == [5000, 20_000]
    assert [cut.is_chosen for cut in cuts] == [False, True]
    assert cuts[0].reason == "saves 1.2 s less per epoch"


def test_what_is_saved_for_a_megabyte() -> None:
    """None of it where none can be kept, or where what is kept takes no bytes."""
    facts = [fact("data", 4.0, 10_000, "batch"), fact("step", 2.0, 0, "batch")]
    kept, free = cuts_of(facts, EPOCH, 0)
    assert (kept.saved_ms, kept.nbytes, kept.saved_ms_per_mb) == (3000.0, 10_000_000, 300.0)
    assert free.saved_ms_per_mb is None
    (none,) = cuts_of(facts[:1], Epoch(9, 9, 1, unkeepable="it draws"), None)
    assert none.saved_ms_per_mb is None


def test_copies_that_are_spared_count() -> None:
    """At the link's bandwidth, in bytes per second."""
    facts = [fact("data", 4.0, 10, "batch", copied=3000.0)]
    epoch = Epoch(1000, 1000, 2, copied=10_000.0, bandwidth=1000.0)
    assert cuts_of(facts, epoch, 0)[0].saved_ms == 2000.0 + 7000.0


def test_more_bytes_for_the_same_saving_lose() -> None:
    """In the words of what they would be for."""
    facts = [fact("data", 1.0, 154_000, "table"), fact("step", 1.0, 614_000, "nothing")]
    cuts = cuts_of(facts, EPOCH, 0)
    assert cuts[1].reason == "614.0 MB for what 154.0 MB save as well"
    assert cuts[0].reason == "the fewest bytes of those behind which all runs on whole batches"


def test_more_bytes_that_save_more_are_told() -> None:
    """By how much, since bytes decide on whole batches."""
    facts = [
        fact("data", 1.0, 3000, "batch", copied=0.0),
        fact("step", 1.0, 6000, "batch", copied=-500.0),
    ]
    epoch = Epoch(1000, 1000, 2, bandwidth=1000.0)
    assert cuts_of(facts, epoch, 0)[1].reason == (
        "6.0 MB for what 3.0 MB save all but 500 ms of, per epoch"
    )


@pytest.mark.parametrize(
    ("batched_ms", "reason"),
    [
        (0.0, "saves 500 ms less per epoch"),
        (0.5, "saves as much, but leaves step to be run for every sample again"),
        (2.0, "saves 1.5 s more per epoch, but leaves step to be run for every sample again"),
    ],
)
def test_fewer_bytes_lose_where_a_step_is_left(batched_ms: float, reason: str) -> None:
    """Whatever they save: on whole batches nothing of the user's is called again."""
    facts = [fact("data", 4.0, 10, "worker"), fact("step", 1.0, 40, "nothing")]
    epoch = Epoch(1000, 1000, 2, batched_ms=batched_ms)
    assert cuts_of(facts, epoch, 1)[0].reason == reason


def test_noise_makes_savings_alike() -> None:
    """Only that of the steps between the two cuts counts."""
    facts = [fact("data", 4.0, 10, "worker"), fact("step", 1.0, 40, "worker", noise_ms=1.0)]
    assert cuts_of(facts, EPOCH, 1)[0].reason.startswith("saves as much")
    facts = [fact("data", 4.0, 10, "worker", noise_ms=9.0), fact("step", 1.0, 40, "worker")]
    assert cuts_of(facts, EPOCH, 1)[0].reason == "saves 500 ms less per epoch"


def test_nothing_is_kept_of_a_dataset_that_draws() -> None:
    """Every cut says why."""
    cuts = cuts_of([fact("data", 1.0, 10, "batch")], Epoch(9, 9, 1, unkeepable="it draws"), None)
    assert [(cut.reason, cut.saved_ms, cut.tier) for cut in cuts] == [("it draws", 0.0, None)]
    assert not cuts[0].is_deterministic


def test_budgets_are_listed_where_none_is_enough() -> None:
    """Each memory that was offered, and no other."""
    rooms = Rooms(device=8_000_000_000, host=12_000_000_000)
    assert exceeding(80_000_000_000, rooms) == (
        "80.0 GB exceed the budgets: 8.0 GB on the device, 12.0 GB in host memory"
    )
    far = fact("data", 1.0, 80_000_000, "batch", tier=None)
    assert cuts_of([far], EPOCH, None)[0].reason == (
        "80.0 GB exceed the budgets: 8.0 GB on cuda:0, 12.0 GB in host memory"
    )
