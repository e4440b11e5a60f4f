"""A few threads for the length of an epoch."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotset.kernels.threads import MIN_ITEMS, Threads


@given(st.integers(1, 5), st.integers(0, 300))
def test_slices_cover_every_item_once(count: int, items: int):
    """All items, none twice, whatever the number of threads."""
    seen: list[tuple[int, int]] = []
    with Threads(count) as threads:
        threads.run(lambda start, stop: seen.append((start, stop)), items)
    covered = [item for start, stop in seen for item in range(start, stop)]
    assert sorted(covered) == list(range(items))
    assert len(seen) <= max(1, min(count, items // MIN_ITEMS))


def test_small_batches_stay_with_the_caller():
    """Fewer than two threads' worth of items start no hand-over."""
    names = []
    with Threads(4) as threads:
        threads.run(lambda *_: names.append(threading.current_thread().name), 2 * MIN_ITEMS - 1)
    assert names == [threading.current_thread().name]


def test_work_runs_side_by_side():
    """Two slices wait for one another, which only two threads can do."""
    meeting = threading.Barrier(2, timeout=30)
    with Threads(2) as threads:
        threads.run(lambda *_: meeting.wait(), 2 * MIN_ITEMS)


def test_no_thread_is_left():
    """The threads end with the context, also after an error."""
    before = threading.active_count()
    with Threads(3) as threads:
        threads.run(lambda *_: None, 100)
        assert threading.active_count() > before
    assert threading.active_count() == before


@pytest.mark.parametrize("failing", [0, 1])
def test_errors_reach_the_caller(failing: int):
    """An error in any slice, the caller's own or another thread's, is raised."""

    def work(start: int, stop: int) -> None:
        if (start > 0) == bool(failing):
            raise RuntimeError(f"slice at {start}")

    before = threading.active_count()
    with pytest.raises(RuntimeError, match="slice at"), Threads(2) as threads:
        threads.run(work, 64)
    assert threading.active_count() == before


def test_outside_a_context_the_caller_works_alone():
    """Without threads the work is done all the same."""
    seen = []
    Threads(4).run(lambda start, stop: seen.append((start, stop)), 1000)
    assert seen == [(0, 1000)]


@given(st.integers(1, 5), st.integers(0, 60))
def test_each_item_is_done_once(count: int, items: int):
    """All items, none twice, whatever the number of threads; done when the call returns."""
    seen: list[int] = []
    with Threads(count) as threads:
        threads.each(seen.append, items)
        assert sorted(seen) == list(range(items))


def test_items_go_to_the_thread_that_is_free():
    """One that is held up by its item leaves the rest to the others."""
    is_done = threading.Event()
    names: dict[int, str] = {}

    def work(item: int) -> None:
        names[item] = threading.current_thread().name
        if item == 0:
            assert is_done.wait(60)
        elif len(names.keys() - {0}) == 19:
            is_done.set()

    with Threads(2) as threads:
        threads.each(work, 20)
    assert len({name for item, name in names.items() if item > 0}) == 1
    assert names[0] != names[1]


def test_without_its_context_the_caller_does_each_item():
    """There are no threads yet, or none any more."""
    names: list[str] = []
    Threads(3).each(lambda item: names.append(threading.current_thread().name), 4)
    assert names == [threading.current_thread().name] * 4


def test_an_error_of_an_item_is_the_callers():
    """In whichever thread it happens; no thread works on when the call is over."""

    def work(item: int) -> None:
        raise KeyError(item)

    with Threads(2) as threads, pytest.raises(KeyError, match=r"[0-7]"):
        threads.each(work, 8)
