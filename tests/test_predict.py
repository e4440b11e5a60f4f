"""Predictions: epochs, gain and verdict, of times that are given."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotset.planning.predict import LEAST_GAIN, Costs, predict

COSTS = Costs(
    samples=1000,
    kept=1000,
    batch_size=100,
    workers=4,
    cores=16,
    sample_ms=1.0,
    once_ms=0.6,
    rest_ms=2.0,
)
"""Ten batches, each 25 ms of data with four workers, of which 2 ms are left."""


def costs(**changes: object) -> Costs:
    """Those costs with some changed."""
    return dataclasses.replace(COSTS, **changes)


def test_the_numbers_of_an_epoch() -> None:
    """Workers run beside the step; what is left does not, and what runs once comes first."""
    found = predict(costs(step_ms=5.0))
    assert (found.data_ms, found.rest_ms, found.copy_ms) == (25.0, 2.0, 0.0)
    assert (found.plain_s, found.steady_s) == (0.25, 0.07)
    assert found.first_s == 0.67
    assert found.gain == 25 / 7
    assert (found.verdict, found.reason) == (
        "accelerate",
        "70 ms an epoch instead of 250 ms, 3.6 times as fast",
    )


def test_a_step_that_takes_longer_hides_the_data() -> None:
    """Then hotset changes nothing, or takes what it runs in the main process."""
    found = predict(costs(step_ms=80.0))
    assert (found.plain_s, found.steady_s) == (0.8, 0.82)
    assert found.verdict == "leave it"
    assert found.reason == (
        "the step takes 80 ms a batch and the data 25 ms with 4 workers, which runs beside it"
    )


def test_without_workers_data_and_step_follow_each_other() -> None:
    """And nothing is hidden."""
    found = predict(costs(workers=0, step_ms=100.0))
    assert (found.data_ms, found.plain_s, found.steady_s) == (100.0, 2.0, 1.02)
    found = predict(costs(workers=0, step_ms=10_000.0))
    assert found.verdict == "leave it"
    assert found.reason == (
        "the step takes 10 s a batch and the data 100 ms, of which 2.0 ms would be left"
    )


def test_more_workers_than_cores_read_no_faster() -> None:
    """Four on two cores are two."""
    assert predict(costs(cores=2)).data_ms == 50.0


def test_what_runs_once_is_shared_by_workers_where_that_pays() -> None:
    """Less than two seconds of it is run in the main process, as `accelerate` does."""
    assert predict(costs(kept=3000, step_ms=0.0)).first_s == pytest.approx(1.8 + 0.02)
    assert predict(costs(kept=4000, step_ms=0.0)).first_s == pytest.approx(2.4 / 4 + 0.02)


def test_copies_run_beside_the_step() -> None:
    """The longer of the two counts; the plain loader's come before its step."""
    found = predict(costs(step_ms=5.0, copy_ms=8.0, plain_copy_ms=30.0))
    assert found.steady_s == 10 * (2.0 + 8.0) / 1000
    assert found.plain_s == 0.35
    waiting = predict(costs(step_ms=5.0, copy_ms=8.0, is_copied_ahead=False))
    assert waiting.steady_s == 10 * (2.0 + 8.0 + 5.0) / 1000


def test_a_rest_in_workers_runs_beside_the_step() -> None:
    """Shared among them."""
    found = predict(costs(rest_ms=60.0, is_rest_in_workers=True, step_ms=5.0))
    assert (found.rest_ms, found.steady_s) == (15.0, 0.15)
    found = predict(costs(rest_ms=60.0, is_rest_in_workers=True, step_ms=20.0))
    assert found.steady_s == 0.2
    found = predict(costs(rest_ms=60.0, is_rest_in_workers=True, step_ms=20.0, workers=0))
    assert found.steady_s == 0.8


PLANTED = costs(
    samples=2000,
    kept=2000,
    workers=2,
    cores=2,
    sample_ms=0.98,
    once_ms=0.1,
    rest_ms=1.0,
    step_cores=2.0,
)
"""Twenty batches of 98 ms of data, read by two workers on the two cores that the step needs."""


def test_a_step_and_workers_on_the_same_cores_take_turns() -> None:
    """Read beside a step of 109 ms the data would be free; on its cores half of 98 ms is added."""
    found = predict(dataclasses.replace(PLANTED, step_ms=109.0))
    assert (found.data_ms, found.step_cores) == (49.0, 2.0)
    assert found.plain_s == 20 * (2 * 109 + 98) / 2 / 1000 == 3.16
    assert found.steady_s == 20 * (1 + 109) / 1000 == 2.2
    assert (found.verdict, found.reason) == (
        "accelerate",
        "2.2 s an epoch instead of 3.2 s, 1.4 times as fast",
    )
    beside = predict(dataclasses.replace(PLANTED, step_ms=109.0, step_cores=0.0))
    assert (beside.plain_s, beside.verdict) == (2.18, "leave it")
    waiting = predict(dataclasses.replace(PLANTED, step_ms=109.0, busy=0.5))
    assert waiting.plain_s == 20 * (2 * 109 + 49) / 2 / 1000


def test_a_step_that_leaves_cores_free_is_run_beside() -> None:
    """One core of four, and two workers: nothing waits."""
    found = predict(dataclasses.replace(PLANTED, cores=4, step_ms=109.0, step_cores=1.0))
    assert found.plain_s == 20 * 109 / 1000


def test_a_rest_in_workers_shares_the_cores_too() -> None:
    """Hotset's epochs as the plain loader's."""
    found = predict(
        dataclasses.replace(PLANTED, rest_ms=40.0, is_rest_in_workers=True, step_ms=109.0)
    )
    assert found.steady_s == 20 * (2 * 109 + 40) / 2 / 1000


def test_little_data_on_shared_cores_is_left_alone() -> None:
    """With the reason that it runs on the step's own."""
    found = predict(dataclasses.replace(PLANTED, step_ms=10_000.0))
    assert found.reason == (
        "the step takes 10 s a batch and the data 49 ms with 2 workers, which runs beside it on "
        "the same cores"
    )


def test_an_unknown_step_depends() -> None:
    """On whether it hides the data: 25 ms must be 5 % more than 2 ms and the step."""
    found = predict(COSTS)
    assert (found.step_ms, found.plain_s, found.steady_s) == (None, 0.25, 0.02)
    assert found.worth_below_ms == pytest.approx(25 / LEAST_GAIN - 2, rel=1e-5)
    assert (found.verdict, found.reason) == (
        "it depends",
        "worth it where a step takes less than 22 ms a batch",
    )


def test_data_that_takes_no_less_is_left_alone_whatever_the_step() -> None:
    """What is left takes as long as the workers need for all of it."""
    found = predict(costs(rest_ms=25.0))
    assert (found.worth_below_ms, found.verdict) == (0.0, "leave it")
    assert found.reason == "the data takes 25 ms a batch, and 25 ms would be left of it"


def test_nothing_left_has_no_gain_in_numbers() -> None:
    """Division by nothing is not reported."""
    found = predict(costs(rest_ms=0.0))
    assert (found.steady_s, found.gain) == (0.0, None)
    assert found.verdict == "it depends"


def test_what_is_not_kept_stays_as_it_is() -> None:
    """All epochs are the plain loader's."""
    found = predict(costs(unkept="it draws", step_ms=5.0))
    assert found.plain_s == found.first_s == found.steady_s == 0.25
    assert (found.gain, found.worth_below_ms) == (1.0, 0.0)
    assert (found.verdict, found.reason) == (
        "leave it",
        "nothing of it can be kept: it draws",
    )


@given(
    sample_ms=st.floats(0.001, 100),
    rest_ms=st.floats(0, 100),
    workers=st.integers(0, 8),
    step_ms=st.floats(0, 1000),
    step_cores=st.floats(0, 4),
)
def test_the_verdict_follows_the_gain(
    sample_ms: float, rest_ms: float, workers: int, step_ms: float, step_cores: float
) -> None:
    """And the step time that an unknown step is told lies where the gain falls below the least."""
    some = costs(sample_ms=sample_ms, rest_ms=rest_ms, workers=workers)
    some = dataclasses.replace(some, cores=4, step_cores=step_cores)
    found = predict(dataclasses.replace(some, step_ms=step_ms))
    assert (found.verdict == "accelerate") == (some.gain(step_ms) >= LEAST_GAIN)
    limit = predict(some).worth_below_ms
    if limit:
        assert some.gain(limit * 0.999) >= LEAST_GAIN
        assert some.gain(limit * 1.001) < LEAST_GAIN
    elif limit == 0.0:
        assert some.gain(0.0) < LEAST_GAIN
