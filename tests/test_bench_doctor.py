"""The doctor's benchmark: exact counts, complete output. No time decides."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from hotset.bench.doctor_costs import CALIBRATED, Cost, Costs, Inverted, Samples, Speckled
from hotset.bench.doctor_gains import Gain, measure_gains
from hotset.bench.doctor_loops import planted
from hotset.bench.doctor_overhead import READY, SLICED, Sliced, measure_watch
from hotset.bench.doctor_report import DoctorReport
from hotset.bench.doctor_script import ScriptTime, measure_script
from hotset.bench.doctor_settings import LOOPS, DoctorSettings
from hotset.bench.timing import Spread, Stopwatch
from hotset.cli import main
from hotset.doctor.findings import Advice, Range, Verdict
from hotset.errors import ConfigError
from hotset.loader.loader import Loader

CHEAP = Costs(rounds_per_ms=1.0)
"""A millisecond of work is a single round."""
TINY = DoctorSettings(steps=4, rounds=2, loops=("read",), batches=10, watch_rounds=2, script=None)


class Clock:
    """Seconds that tests advance, and that pass by a little at every look."""

    def __init__(self, tick: float = 0.0) -> None:
        self.now, self.tick = 0.0, tick

    def __call__(self) -> float:
        self.now += self.tick
        return self.now


class Timed:
    """A loader of 2 batches that take so many seconds of a clock each."""

    def __init__(self, seconds: float, clock: Clock) -> None:
        self.seconds, self.clock, self.epochs = seconds, clock, 0

    def __iter__(self) -> Iterator[int]:
        self.epochs += 1
        for number in range(2):
            self.clock.now += self.seconds
            yield number


class OnClock:
    """A loop whose batches take 5 s, or 1 s where advice is taken, and whose step takes 1 s."""

    key, name, bound, cause = "read", "slow decoding", "data-bound", "read"

    def __init__(self) -> None:
        self.clock = Clock()
        self.before, self.after = Timed(5, self.clock), Timed(1, self.clock)

    def loader(self) -> Timed:
        return self.before

    def advised(self, advice: Advice) -> Timed:
        return self.after

    def step(self, batch: Any) -> None:
        self.clock.now += 1

    def measured(self, advice: Sequence[Advice], bound: Any = "data-bound") -> Gain:
        """What is measured of it, after a made-up report that takes 7 s."""

        def diagnose(loader: Iterable[Any], **arguments: Any) -> Any:
            assert loader is self.before
            assert arguments == {"step": self.step, "steps": 4, "device": "cpu", "progress": False}
            self.clock.now += 7
            verdict = Verdict(bound, "read", "it", 0.9, "so it is", is_left=False)
            return SimpleNamespace(
                advice=tuple(advice), verdict=verdict, gain=Range(6.5, 5.0, float("inf"))
            )

        (gain,) = measure_gains([self], TINY, _say, clock=self.clock, diagnose=diagnose)
        return gain


def _say(text: str, detail: str = "") -> None:
    pass


def _advice(action: str, gain: float = 4.0, code: str = "") -> Advice:
    return Advice(action, "to do", Range(gain, gain, gain), False, "because", code)


def test_work_is_counted_in_rounds() -> None:
    """As many as a millisecond was measured to be worth; sleeping is in seconds."""
    costs = Costs.measured(Clock(tick=0.5))
    assert costs.rounds_per_ms == CALIBRATED / 500
    assert costs.work(2) == Cost(rounds=CALIBRATED // 250)
    assert costs.sleep(3) == Cost(sleep_s=0.003)


def test_samples_are_what_they_are_planted_to_be() -> None:
    """The same image each time, or never; the transforms do as they say."""
    samples, random = Samples(3), Samples(3, is_random=True)
    image, label = samples[2]
    assert (image.shape, image.dtype, label) == ((3, 8, 8), torch.uint8, 2)
    assert torch.equal(samples[2][0], image)
    torch.manual_seed(0)
    noise = torch.randint(0, 2, image.shape, dtype=torch.uint8)
    torch.manual_seed(0)
    assert torch.equal(random[2][0], image + noise)
    torch.manual_seed(0)
    assert torch.equal(Speckled(Cost())(image), image * noise)
    assert torch.equal(Samples(3, transform=Inverted(Cost()))[2][0], 255 - image)


def test_every_planted_loop_gives_its_batches() -> None:
    """One for each key, in order; costs are scaled, so that this takes no time."""
    loops = planted(CHEAP, scale=0.0)
    assert [loop.key for loop in loops] == list(LOOPS)
    lengths = {loop.key: len(loop.loader(num_workers=0)) for loop in loops}
    assert {key: count for key, count in lengths.items() if count != 40} == {
        "read": 20,
        "random_transform": 50,
        "worker_start": 4,
        "in_memory": 50,
        "float_work": 20,
    }
    for loop in loops:
        batch = next(iter(loop.loader(num_workers=0)))
        loop.step(batch)
        assert len(batch) == 2


def test_advice_is_taken() -> None:
    """Each in its way, with as many samples as before; what cannot be taken is refused by name."""
    loop, starts, collated, slow = planted(
        CHEAP, ("read", "worker_start", "collate", "slow_worker"), scale=0.0
    )
    assert isinstance(loop.advised(_advice("accelerate")), Loader)
    assert len(list(loop.advised(_advice("accelerate")))) == 20
    more = loop.advised(_advice("workers", code="DataLoader(…, num_workers=3)"))
    assert (more.num_workers, more.dataset) == (3, loop.dataset)
    none = collated.advised(_advice("no workers", code="DataLoader(…, num_workers=0)"))
    assert (none.num_workers, none.persistent_workers) == (0, False)
    assert starts.loader().persistent_workers is False
    assert starts.advised(_advice("persistent workers")).persistent_workers is True
    assert starts.advised(_advice("leave it")).num_workers == 2
    assert collated.loader().collate_fn.cost.rounds == 1
    assert not hasattr(collated.advised(_advice("collate")).collate_fn, "cost")
    even = slow.advised(_advice("even workers"))
    assert (even.num_workers, slow.dataset.slow_worker, even.dataset.slow_worker) == (3, 1, None)
    with pytest.raises(ConfigError, match="the loop 'worker_start' has no remedy for 'collate'"):
        starts.advised(_advice("collate"))
    with pytest.raises(ConfigError, match="must say how many, got the code 'num_workers=many'"):
        starts.advised(_advice("workers", code="num_workers=many"))


def test_the_slow_worker_pays_more_often() -> None:
    """Only in the worker that it is planted in."""
    spent: list[int] = []

    class _Counted(Cost):
        def spend(self) -> None:
            spent.append(1)

    samples = Samples(2, _Counted(), slow_worker=1, times=4)
    samples[0]
    assert len(spent) == 1
    info = SimpleNamespace(id=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hotset.bench.doctor_costs.get_worker_info", lambda: info)
        samples[0]
        assert len(spent) == 1 + 4
        info.id = 0
        samples[0]
        assert len(spent) == 5 + 1


def test_gains_are_measured_over_whole_epochs() -> None:
    """Of the loop as it is, with the advice taken, and with its batches ready."""
    loop = OnClock()
    gain = loop.measured([_advice("accelerate", 4.0), _advice("workers")])
    assert gain.before_ms == Spread((6000.0, 6000.0))
    assert gain.after_ms == Spread((2000.0, 2000.0))
    assert gain.least_ms == Spread((1000.0, 1000.0))
    assert gain.measured == Spread((3.0, 3.0))
    assert gain.measured_most == Spread((6.0, 6.0))
    assert gain.agreement == 4 / 3
    assert gain.agreement_most == 6.5 / 6
    assert (gain.doctor_s, gain.is_named) == (7, True)
    # Two rounds of two epochs; one to keep its batches, and one that fills.
    assert (loop.before.epochs, loop.after.epochs) == (1 + 4, 1 + 4)


def test_a_loop_without_advice_has_no_gain() -> None:
    """And a verdict that is not the planted one does not count as named."""
    loop = OnClock()
    gain = loop.measured([], bound="compute-bound")
    assert (gain.after_ms, gain.measured, gain.agreement) == (None, None, None)
    assert gain.is_named is False
    assert loop.after.epochs == 0
    assert gain.as_dict()["advice"] is None


def test_watching_is_compared_with_not_watching() -> None:
    """Each loader and step, with as many batches in either; the clock is looked at twice a run."""
    assert [len(x) for x, _ in Sliced(3)] == [64] * 3
    settings = DoctorSettings(batches=10, step_ms=0.0, watch_rounds=2, script=None)
    overhead = measure_watch(settings, Stopwatch(clock=Clock(tick=1.0)), _say)
    assert [(cost.loader, cost.step_ms) for cost in overhead.costs] == [
        (READY, 0.0),
        (SLICED, 0.0),
        (READY, 0.0),
    ]
    for cost in overhead.costs:
        assert cost.bare_us == cost.watched_us == Spread((1e5, 1e5))
        assert cost.ratio == Spread((1.0, 1.0))
        assert cost.added_us == Spread((0.0, 0.0))
    assert overhead.once_ms == Spread((1000.0, 1000.0))


def test_the_step_waits_by_the_clock() -> None:
    """A millisecond of it in every batch: four looks of a quarter each, and one that begins it."""
    settings = DoctorSettings(batches=10, step_ms=1.0, watch_rounds=1, script=None)
    overhead = measure_watch(settings, Stopwatch(clock=Clock(tick=0.00025)), _say)
    looks = 10 * 5 + 1
    for cost in overhead.costs[:2]:
        assert cost.bare_us.median == pytest.approx(looks * 250 / 10)
        assert cost.watched_us.median == pytest.approx(looks * 250 / 10)


def test_a_script_is_timed_as_a_process(tmp_path: Path) -> None:
    """With the steps asked for; a failure is told with what it said."""
    script, commands = tmp_path / "train.py", []
    clock = Clock(tick=2.0)

    def launch(command: Sequence[str], status: int = 0) -> subprocess.CompletedProcess[str]:
        commands.append(command[1:])
        return subprocess.CompletedProcess(command, status, "", "it broke\n")

    found = measure_script(script, steps=9, rounds=2, say=_say, clock=clock, launch=launch)
    assert commands == [["-m", "hotset", "doctor", "--steps", "9", str(script)]] * 2
    assert found.as_dict()["script"] == "train.py"
    assert found.seconds == Spread((2.0, 2.0))
    with pytest.raises(ConfigError, match=r"`hotset doctor train.py` ended with 3, .*it broke$"):
        measure_script(
            script, steps=9, rounds=1, say=_say, clock=clock, launch=lambda c: launch(c, 3)
        )


def test_report_is_complete() -> None:
    """As JSON, where what is not finite is null, and as text."""
    settings = DoctorSettings(batches=10, step_ms=0.0, watch_rounds=1, script=None)
    overhead = measure_watch(settings, Stopwatch(clock=Clock(tick=1.0)), _say)
    gains = [
        OnClock().measured([_advice("accelerate", 3.3)]),
        OnClock().measured([_advice("accelerate", 3.6)], bound="compute-bound"),
        OnClock().measured([]),
    ]
    machine = {
        "cpu": "a processor",
        "cores": 2,
        "memory_bytes": None,
        "gpus": [],
        "load_average": None,
    }
    names = ("hotset", "torch", "torchvision", "numba", "python")
    report = DoctorReport(
        settings=settings,
        date="2026-01-01T00:00:00+00:00",
        hardware=machine,
        versions=dict.fromkeys(names, "1.0"),
        overhead=overhead,
        gains=gains,
        script=ScriptTime("train.py", 100, Spread((12.0, 14.0, 13.0))),
    )
    values = json.loads(json.dumps(report.as_dict(), allow_nan=False))
    assert (values["schema"], values["schema_version"]) == ("hotset.bench.doctor", 1)
    assert values["parameters"] == settings.as_dict()
    assert (values["named"], values["predicted"], values["predicted_within_15_percent"]) == (
        2,
        2,
        1,
    )
    first, _, last = values["loops"]
    assert first["planted"] == {"bound": "data-bound", "cause": "read"}
    assert first["advice"]["predicted"] == {"value": 3.3, "low": 3.3, "high": 3.3}
    assert first["measured"]["values"] == [3.0, 3.0]
    assert first["most_predicted"] == {"value": 6.5, "low": 5.0, "high": None}
    assert (last["advice"], last["measured"], last["predicted_to_measured"]) == (None, None, None)
    assert values["script"]["seconds"]["median"] == 13.0
    text = str(report)
    assert "causes named as planted: 2 of 3 (goal: all)" in text
    assert "gains predicted within 15 %: 1 of 2 (goal: all)" in text
    assert "hotset doctor --steps 100 train.py: 13.0 (12.0 – 14.0) s (goal: 30)" in text
    assert "a list of batches" in text
    assert "slices of tensors" in text


def test_a_loop_is_diagnosed_for_real() -> None:
    """The doctor, its advice taken, and both timed; what they come to is not looked at."""
    (gain,) = measure_gains(planted(CHEAP, ("in_memory",), scale=0.1), TINY, _say)
    assert len(gain.before_ms.values) == len(gain.least_ms.values) == 2
    assert gain.most.value >= 1
    assert gain.doctor_s > 0
    json.dumps(gain.as_dict(), allow_nan=False)


def test_command_writes_its_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With what was asked for; what makes no sense is refused by name."""
    file = tmp_path / "result.json"
    numbers = ["--steps=8", "--rounds=1", "--watch-rounds=1", "--batches=8"]
    chosen = ["--loop=in_memory", "--no-script"]
    assert main(["bench", "doctor", "--quick", *numbers, *chosen, "--json", str(file)]) == 0
    values = json.loads(file.read_text())
    parameters = values["parameters"]
    wanted = {"steps": 8, "rounds": 1, "watch_rounds": 1, "batches": 8}
    assert {name: parameters[name] for name in wanted} == wanted
    assert (parameters["loops"], parameters["script"]) == (["in_memory"], None)
    assert [loop["key"] for loop in values["loops"]] == ["in_memory"]
    assert values["script"] is None
    assert "rows in memory, 0 workers" in capsys.readouterr().out
    for options, words in (
        (["--rounds", "0", "--no-script"], "`--rounds` must be at least 1, got 0"),
        (["--loop", "none", "--no-script"], "`--loop` must be one of read, transform, "),
        (["--script", str(tmp_path / "no.py")], "`--script` must be a training script, got "),
    ):
        assert main(["bench", "doctor", *options]) == 2
        assert words in capsys.readouterr().err
