"""Policies: each equals its own rule written out, and a cache that obeys them serves every row."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotset.errors import ConfigError
from hotset.placement import ranking
from hotset.placement.policy import (
    Frequency,
    LeastRecent,
    Lookup,
    NextUse,
    Policy,
    Reuse,
    Static,
    choose_policy,
)

NEVER = 10**9
Requests = list[list[int]]


class Device:
    """Obeys look-ups as a device does, and refuses what it cannot obey."""

    def __init__(self, policy: Policy) -> None:
        self.slots = np.full(policy.capacity, -1)
        held = policy.preload()
        self.slots[: len(held)] = held
        self.loads, self.reads = len(held), 0

    @property
    def rows(self) -> set[int]:
        """What it holds."""
        return set(self.slots[self.slots >= 0].tolist())

    def read(self, rows: np.ndarray, found: Lookup) -> None:
        """Reads one request, then copies what is admitted."""
        buffer = rows[found.misses]
        assert np.all(np.diff(found.misses) > 0)
        assert len(set(buffer.tolist())) == len(buffer)
        is_hit = found.slots >= 0
        got = np.empty_like(rows)
        got[is_hit] = self.slots[found.slots[is_hit]]
        got[~is_hit] = buffer[-1 - found.slots[~is_hit]]
        assert np.array_equal(got, rows)
        assert len(set(found.into.tolist())) == len(found.into) == len(found.admitted)
        assert np.all(np.diff(found.admitted) > 0)
        self.slots[found.into] = buffer[found.admitted]
        assert len(self.rows) == np.sum(self.slots >= 0)
        self.loads += len(found.misses)
        self.reads += len(rows)
        assert found.hits == len(rows) - len(found.misses)


def run(policy: Policy, requests: Requests, *, ahead: int | None = None) -> Iterator[set[int]]:
    """Serves requests, `ahead` of them announced; gives what is held after each."""
    device = Device(policy)
    announced = 0
    for here, request in enumerate(requests):
        while announced < len(requests) and (ahead is None or announced <= here + ahead):
            policy.announce(np.array(requests[announced], np.int64))
            announced += 1
        rows = np.array(request, np.int64)
        device.read(rows, policy.look_up(rows))
        yield device.rows


def ranked(
    requests: Requests, capacity: int, key: Callable[[int, int], tuple[int, ...]]
) -> Iterator[set[int]]:
    """What a rule keeps: after each request the highest of what was kept and what was read.

    Args:
        requests: rows.
        capacity: slots.
        key: of a row once a number of requests has been read.
    """
    held: set[int] = set()
    for number, request in enumerate(requests, 1):
        union = sorted(held | set(request), key=lambda row: key(row, number), reverse=True)
        held = set(union[:capacity])
        yield set(held)


def _order(requests: Requests, until: int | None = None) -> list[int]:
    return [row for request in requests[:until] for row in request]


def last_use(requests: Requests, row: int, number: int) -> int:
    """Place in the order at which a row was last read."""
    return max(place for place, each in enumerate(_order(requests, number)) if each == row)


def next_use(requests: Requests, row: int, number: int, ahead: int) -> int:
    """Place at which it is wanted next, as far as is announced."""
    past = len(_order(requests, number))
    coming = _order(requests, number + ahead)[past:]
    return past + coming.index(row) if row in coming else NEVER


@st.composite
def orders(draw: st.DrawFn) -> tuple[int, int, Requests]:
    """Numbers of samples and of slots, and requests of differing lengths."""
    samples = draw(st.integers(1, 9))
    rows = st.lists(st.integers(0, samples - 1), max_size=7)
    return samples, draw(st.integers(0, samples + 1)), draw(st.lists(rows, max_size=14))


@pytest.fixture(params=["compiled", "plain"], scope="module", autouse=True)
def is_compiled(request: pytest.FixtureRequest) -> Iterator[bool]:
    """Every test here is run with Numba, and as if it were not installed."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "plain":
            patch.setattr(ranking, "has_numba", lambda: False)
        yield request.param == "compiled"


def test_plain_ranking_is_used_without_numba(is_compiled: bool) -> None:
    """And the compiled one where it is installed."""
    assert importlib.util.find_spec("numba") is not None
    kind = ranking.CompiledRanking if is_compiled else ranking.PlainRanking
    assert isinstance(ranking.make_ranking(3, 2), kind)


@given(orders())
def test_lru_keeps_what_was_read_last(case: tuple[int, int, Requests]) -> None:
    """After every request, by the rule written out."""
    samples, capacity, requests = case
    rule = ranked(requests, capacity, lambda row, number: (last_use(requests, row, number),))
    assert list(run(LeastRecent(samples, capacity), requests)) == list(rule)


@given(orders())
def test_frequency_keeps_what_was_read_most_often(case: tuple[int, int, Requests]) -> None:
    """And of equal ones the last."""
    samples, capacity, requests = case

    def key(row: int, number: int) -> tuple[int, int]:
        return _order(requests, number).count(row), last_use(requests, row, number)

    rule = ranked(requests, capacity, key)
    assert list(run(Frequency(samples, capacity), requests)) == list(rule)


@given(orders(), st.integers(0, 15))
def test_next_use_keeps_what_is_wanted_soonest(case: tuple[int, int, Requests], ahead: int) -> None:
    """As far as is announced; of rows that are not wanted, the ones read first."""
    samples, capacity, requests = case

    def key(row: int, number: int) -> tuple[int, int]:
        return -next_use(requests, row, number, ahead), -last_use(requests, row, number)

    rule = ranked(requests, capacity, key)
    policy = NextUse(samples, capacity, window=1)
    assert list(run(policy, requests, ahead=ahead)) == list(rule)


def test_compiled_ranking_equals_the_plain_one() -> None:
    """Every look-up of a long run, slot by slot, with enough exchanges for heaps of some depth."""
    generator = np.random.default_rng(5)
    compiled, plain = ranking.CompiledRanking(400, 150), ranking.PlainRanking(400, 150)
    exchanges = 0
    for number in range(300):
        rows = generator.zipf(1.3, 24) % 400
        first, second = generator.integers(0, 40, 24), np.arange(24) + 24 * number
        parts = compiled.serve(rows, first, second), plain.serve(rows, first, second)
        assert all(np.array_equal(a, b) for a, b in zip(*parts, strict=True))
        assert np.array_equal(compiled.slot_of, plain.slot_of)
        slots = np.unique(parts[0][0][parts[0][0] >= 0])
        for each in (compiled, plain):
            each.rekey(slots, np.arange(len(slots)))
        exchanges += len(parts[0][2])
    assert exchanges > 1000


@given(orders())
def test_next_use_has_the_fewest_misses_possible(case: tuple[int, int, Requests]) -> None:
    """Over requests of one sample: as few as the best of all ways to choose has."""
    samples, capacity, requests = case
    order = _order(requests)[:12]
    singles = [[row] for row in order]
    # Every set that could be held, with the fewest misses up to here.
    ways = {frozenset[int](): 0}
    for row in order:
        reached: dict[frozenset[int], int] = {}
        for held, misses in ways.items():
            cost = misses + (row not in held)
            options = [held]
            if row not in held and len(held) < capacity:
                options.append(held | {row})
            elif row not in held:
                options += [held - {gone} | {row} for gone in held]
            for option in options:
                reached[option] = min(cost, reached.get(option, cost))
        ways = reached
    policy = NextUse(samples, capacity)
    device = Device(policy)
    policy.announce(np.array(order, np.int64))
    for single in singles:
        rows = np.array(single, np.int64)
        device.read(rows, policy.look_up(rows))
    assert device.loads == min(ways.values())


@given(orders(), st.data())
def test_next_use_forgets_what_will_not_come(
    case: tuple[int, int, Requests], data: st.DataObject
) -> None:
    """After an epoch that was left early it decides as if only the rest were announced."""
    samples, capacity, requests = case
    cut = data.draw(st.integers(0, len(requests)))
    gone = data.draw(st.lists(st.integers(0, samples - 1), max_size=20))
    told, untold = NextUse(samples, capacity), NextUse(samples, capacity)
    for policy in (told, untold):
        assert len(list(run(policy, requests[:cut]))) == cut
    told.announce(np.array(gone, np.int64))
    for policy in (told, untold):
        policy.begin()
    for request in requests[cut:]:
        for policy in (told, untold):
            policy.announce(np.array(request, np.int64))
    for request in requests[cut:]:
        a, b = (policy.look_up(np.array(request, np.int64)) for policy in (told, untold))
        for name in ("slots", "misses", "admitted", "into"):
            assert np.array_equal(getattr(a, name), getattr(b, name))


@given(orders(), st.booleans())
def test_static_never_exchanges(case: tuple[int, int, Requests], is_weighted: bool) -> None:
    """What is pinned stays, and a row that is missed twice in a request is copied once."""
    samples, capacity, requests = case
    weights = np.arange(samples)[::-1] if is_weighted else None
    policy = Static(samples, capacity, weights)
    pinned = set(policy.preload().tolist())
    assert len(pinned) == min(samples, capacity)
    assert all(held == pinned for held in run(policy, requests))


@given(st.integers(1, 400), st.data())
def test_static_is_spread_evenly(samples: int, data: st.DataObject) -> None:
    """Any run of L consecutive samples holds L f pinned ones, one more or one less at most."""
    pinned = data.draw(st.integers(0, samples))
    start = data.draw(st.integers(0, samples))
    stop = data.draw(st.integers(start, samples))
    rows = Static(samples, pinned).preload()
    inside = np.sum((rows >= start) & (rows < stop))
    assert abs(int(inside) * samples - (stop - start) * pinned) < samples


def test_static_set_is_the_formula() -> None:
    """Sample i is pinned where floor((i + 1) P / N) exceeds floor(i P / N)."""
    expected = [i for i in range(50) if (i + 1) * 18 // 50 > i * 18 // 50]
    assert Static(50, 18).preload().tolist() == expected
    assert Static(50, 60).preload().tolist() == list(range(50))
    assert Static(0, 0).preload().tolist() == []


def test_static_keeps_the_heaviest() -> None:
    """Of equal weights the first."""
    weights = np.array([1, 5, 2, 5, 2, 0])
    assert Static(6, 3, weights).preload().tolist() == [1, 2, 3]


def test_row_that_is_missed_and_comes_again_is_copied_once() -> None:
    """Its second place refers to the same miss, kept or not."""
    found = LeastRecent(10, 1).look_up(np.array([7, 3, 7, 7]))
    assert found.slots.tolist() == [-1, -2, -1, -1]
    assert (found.misses.tolist(), found.hits) == ([0, 1], 2)
    assert (found.admitted.tolist(), found.into.tolist()) == ([0], [0])
    found = Static(10, 0).look_up(np.array([7, 3, 7, 7]))
    assert found.slots.tolist() == [-1, -2, -1, -1]
    assert (found.misses.tolist(), found.hits) == ([0, 1], 2)


def test_slot_that_is_given_away_still_serves_the_request() -> None:
    """The device reads the cache as it stood before, so no copy is needed."""
    policy = LeastRecent(10, 1)
    policy.look_up(np.array([4]))
    found = policy.look_up(np.array([4, 5, 4, 6]))
    assert found.slots.tolist() == [0, -1, 0, -2]
    assert (found.admitted.tolist(), found.into.tolist()) == ([1], [0])


def test_next_use_does_not_keep_what_comes_last() -> None:
    """A row that is wanted later than all kept ones is read and left."""
    policy = NextUse(5, 2)
    policy.announce(np.array([0, 1, 2, 0, 1, 2]))
    found = [policy.look_up(np.array([row])) for row in (0, 1, 2, 0, 1, 2)]
    assert [each.hits for each in found] == [0, 0, 0, 1, 1, 0]
    assert [len(each.admitted) for each in found] == [1, 1, 0, 0, 0, 0]


def test_next_use_begins_with_the_rows_it_is_given() -> None:
    """As many as there are slots; they are exchanged like any others."""
    policy = NextUse(9, 2, first=np.array([8, 3, 5]))
    assert policy.preload().tolist() == [8, 3]
    policy.announce(np.array([3, 1, 1, 3]))
    assert policy.look_up(np.array([3])).slots.tolist() == [1]
    found = policy.look_up(np.array([1]))
    assert (found.slots.tolist(), found.into.tolist()) == ([-1], [0])
    assert policy.look_up(np.array([1, 3])).slots.tolist() == [0, 1]


def test_next_use_wants_four_epochs() -> None:
    """Unless it is told another window; the other policies want none."""
    assert NextUse(100, 5).window == 400
    assert NextUse(100, 5, window=7).window == 7
    assert Static(9, 2).window == LeastRecent(9, 2).window == Frequency(9, 2).window == 0


@pytest.mark.parametrize("announced", [[], [1, 2], [1, 3, 2]])
def test_next_use_refuses_what_was_not_announced(announced: list[int]) -> None:
    """It would evict by a wrong order otherwise."""
    policy = NextUse(9, 2)
    policy.announce(np.array(announced, np.int64))
    with pytest.raises(ConfigError, match=r"rows are announced, and the 3 that are asked for are"):
        policy.look_up(np.array([1, 2, 3]))


def test_what_cannot_be_used_is_refused() -> None:
    """With the argument's name."""
    with pytest.raises(ConfigError, match="samples and slots from 0 on, got 4 and -1"):
        LeastRecent(4, -1)
    with pytest.raises(ConfigError, match=r"`weights` must be 3 numbers .* of shape \(2,\)"):
        Static(3, 1, np.array([1, 2]))
    with pytest.raises(ConfigError, match=r"`weights` must be 2 numbers .* with -1"):
        Static(2, 1, np.array([1, -1]))
    with pytest.raises(ConfigError, match="`window` must be at least 1 sample, got 0"):
        NextUse(4, 2, window=0)
    for first in ([1, 1], [4], [-1]):
        with pytest.raises(ConfigError, match="`first` must hold rows from 0 to 3, each once"):
            NextUse(4, 2, first=np.array(first))


@pytest.mark.parametrize(
    ("reuse", "is_weighted", "may_read_ahead", "name", "reason"),
    [
        ("once", False, True, "static", "static: a permutation visits every sample once, so no"),
        ("once", False, False, "static", "no other set of 3 has more hits"),
        ("repeats", False, True, "next-use", "next-use: samples repeat, and the order shows"),
        ("repeats", True, True, "next-use", "which of them come again soon"),
        ("repeats", True, False, "static", "static: the order may not be read ahead, and the 3"),
        ("repeats", False, False, "frequency", "frequency: the order may not be read ahead"),
        ("ranks", False, True, "next-use", "next-use: a rank sees a part of each permutation"),
        ("ranks", False, False, "static", "every set of 3 has as many hits"),
        ("unknown", False, True, "lru", "lru: nothing is known of the order"),
    ],
)
def test_policy_follows_the_sampler(
    reuse: Reuse, is_weighted: bool, may_read_ahead: bool, name: str, reason: str
) -> None:
    """And says why."""
    policy, why = choose_policy(
        "auto",
        reuse,
        4,
        3,
        weights=np.arange(4) if is_weighted else None,
        may_read_ahead=may_read_ahead,
    )
    assert policy.name == name
    assert reason in why
    if reuse == "repeats" and name == "static":
        assert policy.preload().tolist() == [1, 2, 3]


def test_name_is_followed() -> None:
    """Whatever the sampler; frequency pins the heaviest where the weights are known."""
    for name in ("static", "next-use", "frequency", "lru"):
        policy, why = choose_policy(name, "once", 4, 2, may_read_ahead=True)
        assert (policy.name, why) == (name, f"{name}: asked for")
    policy, why = choose_policy(
        "frequency", "repeats", 4, 2, weights=np.array([3, 0, 0, 3]), may_read_ahead=True
    )
    assert (policy.name, policy.preload().tolist()) == ("static", [0, 3])
    assert why == ("static: asked for; the weights are known, so the 2 heaviest samples are kept")
    policy, _ = choose_policy("auto", "ranks", 4, 2, may_read_ahead=True, first=np.array([3, 1, 0]))
    assert policy.preload().tolist() == [3, 1]


def test_next_use_says_that_it_sees_one_epoch() -> None:
    """Where samples repeat and later epochs are not known; and what helps."""
    for name, reason in (
        ("auto", "samples repeat, and the order shows"),
        ("next-use", "asked for"),
    ):
        policy, why = choose_policy(
            name, "repeats", 4, 2, may_read_ahead=True, is_future_known=False
        )
        assert policy.name == "next-use"
        assert why.startswith(f"next-use: {reason}")
        assert why.endswith(
            "; only this epoch's order is known, as the sampler draws from torch's own generator: "
            "give it a generator of its own"
        )
    policy, why = choose_policy(
        "static", "repeats", 4, 2, may_read_ahead=True, is_future_known=False
    )
    assert why == "static: asked for"


def test_policy_that_cannot_be_had_is_refused() -> None:
    """Next-use without a known order; and a name that is none."""
    with pytest.raises(ConfigError, match="may not be read ahead: it could draw other samples"):
        choose_policy("next-use", "repeats", 4, 2, may_read_ahead=False)
    with pytest.raises(ConfigError, match=r"`policy` must be one of auto, static, .* got 'fifo'"):
        choose_policy("fifo", "once", 4, 2, may_read_ahead=True)
