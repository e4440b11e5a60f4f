"""The simulated loops, against times that are known in closed form."""

from __future__ import annotations

from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

from hotset.doctor.judging.loop import LoopTimes
from tests.examined import examination_of, workers_of
from tests.loops import Planted, timeline_of, times_of
from tests.processes import Machine, Work


def times(**planted: Any) -> LoopTimes:
    """Of a loop."""
    return times_of(Planted(**planted))


@hypothesis.given(make=st.integers(1, 200), step=st.integers(1, 200), workers=st.integers(1, 8))
@hypothesis.settings(max_examples=30)
def test_workers_run_beside_the_step(make: int, step: int, workers: int) -> None:
    """A batch takes the step, or the workers' share of making it, whichever is longer."""
    found = times(read_ms=make, step_ms=step, workers=workers, cores=16, batches=80 * workers)
    assert found.step_ms == pytest.approx(step)
    steady = max(step, make / workers)
    # What is ready at the start and what is left at the end weigh a few batches at most.
    slip = 2 * workers * steady / (80 * workers)
    assert found.wait_ms + found.step_ms == pytest.approx(steady, abs=slip)
    assert found.loop_ms == pytest.approx(steady, abs=slip + make / (80 * workers))


def test_a_loader_in_the_process_makes_then_trains() -> None:
    """One behind the other, from the first batch on."""
    found = times(read_ms=4, transforms=(("crop", 2.0), ("flip", 1.0)), collate_ms=3, step_ms=20)
    assert (found.wait_ms, found.step_ms) == (pytest.approx(10.0), pytest.approx(20.0))
    assert (found.start_ms, found.sawtooth) == (pytest.approx(0.0, abs=1e-9), None)
    assert found.gain.value == pytest.approx(1.5)


def test_the_slowest_worker_sets_the_pace() -> None:
    """Batches come in order: three workers wait for the fourth."""
    found = times(read_ms=40, step_ms=5, workers=4, slowness=(1, 1, 1, 2), batches=400)
    assert found.wait_ms + found.step_ms == pytest.approx(80 / 4, rel=0.02)
    assert found.sawtooth is not None
    assert max(found.sawtooth.wait_ms) == found.sawtooth.wait_ms[3]


def test_batches_come_in_bursts_of_the_workers() -> None:
    """All workers finish at once, and the loop waits at the first of each burst."""
    found = times(read_ms=40, step_ms=5, workers=4)
    assert found.sawtooth is not None
    assert (found.sawtooth.period, found.sawtooth.is_seen) == (4, True)
    assert found.sawtooth.wait_ms == pytest.approx((20, 0, 0, 0), abs=1e-6)


def test_workers_start_one_after_the_other_at_each_epoch() -> None:
    """And are there later; the first batch is made only then. They end before the next epoch."""
    planted = Planted(
        read_ms=40, step_ms=20, workers=4, start_ms=30, boot_ms=50, end_ms=5, batches=10, epochs=4
    )
    found = times_of(planted)
    # The batches are given out once all have started; the first worker booted meanwhile.
    assert found.epochs[1].start_ms == pytest.approx(4 * 30 + 40)
    assert found.epochs[1].end_ms == pytest.approx(4 * 5)
    assert found.start_ms == pytest.approx(4 * 30 + 40 + 4 * 5)
    lasting = times_of(planted.with_(is_persistent=True))
    assert lasting.epochs[0].start_ms == pytest.approx(4 * 30 + 40)
    assert lasting.start_ms == pytest.approx(40)


def test_each_worker_is_ahead_by_its_prefetch() -> None:
    """With one slow batch, more ahead hide more of it."""
    begins = {
        prefetch: timeline_of(Planted(read_ms=10, step_ms=100, workers=2, prefetch=prefetch))
        for prefetch in (1, 4)
    }
    for timeline in begins.values():
        assert timeline.wait_s[1:100] == pytest.approx(0.0, abs=1e-9)
    planted = Planted(read_ms=10, step_ms=10, workers=2, slow_chance=0.1, slow_ms=60, batches=400)
    near, far = (times_of(planted.with_(prefetch=prefetch)).wait_ms for prefetch in (1, 8))
    assert near > 2 * far


def test_taking_a_batch_over_is_done_by_the_loop() -> None:
    """Nothing runs beside it but the workers."""
    found = times(read_ms=4, hand_ms=3, step_ms=10, workers=4)
    assert (found.wait_ms, found.step_ms) == (pytest.approx(3.0), pytest.approx(10.0))
    sent = times(read_ms=4, ship_ms=36, step_ms=5, workers=4, batches=400)
    assert sent.wait_ms + sent.step_ms == pytest.approx(10.0, rel=0.02)


def test_the_first_epoch_is_cold() -> None:
    """Storage keeps no core busy, and later epochs find the files in memory."""
    found = times(read_ms=10, cold_ms=90, step_ms=10, workers=2, cores=3, batches=400)
    assert found.first_wait_ms == pytest.approx(40, rel=0.05)
    assert found.wait_ms == pytest.approx(0.0, abs=0.5)


def test_cores_are_shared() -> None:
    """Four workers and a step on two cores: no more work is done than these can do."""
    found = times(read_ms=40, step_ms=10, step_cores=1.0, workers=4, cores=2, batches=400)
    assert found.wait_ms + found.step_ms == pytest.approx((40 + 10) / 2, rel=0.03)


def test_a_process_that_wants_little_gets_it_all() -> None:
    """The others share what is left."""
    machine = Machine(2)

    def doing(ms: float, cores: float):
        yield Work(ms, cores)

    processes = [machine.start(doing(*each)) for each in ((10.0, 0.5), (10.0, 1.0), (10.0, 1.0))]
    machine.run(lambda: processes[0].is_over)
    assert machine.now_ms == pytest.approx(10.0)
    assert processes[1].left_ms == pytest.approx(2.5)
    machine.run(lambda: processes[2].is_over)
    assert machine.now_ms == pytest.approx(12.5)
    assert [p.cpu_ms for p in processes] == pytest.approx([5.0, 10.0, 10.0])


def test_threads_that_crowd_the_cores_slow_each_other_down() -> None:
    """Four workers of four threads on eight cores have half of what they can use, and lose more."""
    planted = Planted(transforms=(("warp", 10.0),), workers=4, threads=4, cores=8, penalty=0.5)
    assert [each.ms for each in workers_of(planted)] == pytest.approx([10 * 2 * 1.5] * 4)
    assert [each.cores for each in workers_of(planted)] == pytest.approx([2.0] * 4)
    alone = examination_of(planted)
    assert [each.ms for each in alone.limited] == pytest.approx([10.0] * 4)
    assert alone.cpu_cores == 4.0


def test_a_device_that_still_works_hides_the_wait() -> None:
    """The host waits for data while steps are queued; the device does not stand still."""
    planted = Planted(read_ms=60, workers=4, step_ms=20, launch_ms=1, batches=200)
    found = times_of(planted)
    assert found.is_device_seen
    assert found.wait_ms == pytest.approx(0.0, abs=0.2)
    assert found.wait_ms + found.step_ms == pytest.approx(20.0, rel=0.02)
    slow = times_of(planted.with_(read_ms=160, batches=400))
    assert (slow.wait_ms, slow.step_ms) == (
        pytest.approx(20.0, rel=0.05),
        pytest.approx(20, rel=0.05),
    )


def test_draws_are_the_same_each_time() -> None:
    """Jitter changes the batches, not their mean, and follows the seed."""
    planted = Planted(read_ms=20, step_ms=5, jitter=0.3, batches=400)
    first, again = (timeline_of(planted).wait_s for _ in range(2))
    assert (first == again).all()
    assert (first != timeline_of(planted.with_(seed=1)).wait_s).any()
    assert times_of(planted).wait_ms == pytest.approx(20, rel=0.05)
