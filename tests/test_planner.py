"""`hotset.plan`: what it says of chains whose times are known, and that it leaves no trace."""

from __future__ import annotations

import dataclasses
import json
import random
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset
from torchvision import transforms as v1

import hotset
from hotset.chain.probe import generator_states
from hotset.errors import ConfigError, SampleError, SchemaError, UnsupportedError
from hotset.placement.plan import Plan
from hotset.testing import SimulatedAccelerator
from tests.planned import TICK, Clock, Rows, Timed, noisy, plan_of, widened
from tests.streams import MEAN, STD, Pictures


@pytest.fixture(autouse=True)
def many_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """More than step and workers need, whatever this machine has."""
    monkeypatch.setattr("hotset.planning.estimate.usable_cores", lambda: 16)
    monkeypatch.setattr("hotset.planning.estimate._threads", lambda: 1)


def chain_on(clock: Clock) -> list[Any]:
    """Widening in 2 ticks, then noise in 3: per sample, with fewer bytes before than behind."""
    return [
        Timed("widened", widened, 2, clock),
        hotset.random(Timed("noisy", noisy, 3, clock)),
    ]


def test_times_of_a_chain_that_runs_per_sample() -> None:
    """Every number of the table and of the prediction, of 40 samples read in 5 ticks each."""
    clock = Clock()
    data = Rows(clock, 5, chain_on(clock))
    plan = plan_of(data, clock, batch_size=10, step=4 * TICK)
    first, second, third = plan.cuts
    assert [cut.behind for cut in plan.cuts] == ["Rows", "widened", "noisy"]
    assert [cut.ms for cut in plan.cuts] == [5 * TICK, 2 * TICK, 3 * TICK]
    assert [cut.noise_ms for cut in plan.cuts] == [0, 0, 0]
    assert [cut.bytes_per_sample for cut in plan.cuts] == [12 + 8, 48 + 8, 96 + 8]
    assert [cut.nbytes for cut in plan.cuts] == [800, 2240, 4160]
    assert [cut.saved_ms for cut in plan.cuts] == [200 * TICK, 280 * TICK, 0]
    assert [cut.tier for cut in plan.cuts] == ["device", "device", None]
    assert [cut.rest for cut in plan.cuts] == ["worker", "worker", "nothing"]
    assert [cut.is_deterministic for cut in plan.cuts] == [True, True, False]
    assert [cut.is_chosen for cut in plan.cuts] == [False, True, False]
    assert first.reason == "saves 78 ms less per epoch"
    assert second.reason == "saves the most of what runs per sample"
    assert third.reason == third.problem == "random from noisy on"
    found = plan.prediction
    assert found is not None
    assert (found.batch_size, found.workers) == (10, 0)
    assert (found.step_ms, found.data_ms, found.rest_ms) == (4 * TICK, 100 * TICK, 30 * TICK)
    assert found.plain_s == 4 * 104 * TICK / 1000
    assert found.steady_s == 4 * 34 * TICK / 1000
    assert found.first_s == (4 * 34 + 40 * 7) * TICK / 1000
    assert found.gain == 104 / 34
    assert found.verdict == "accelerate"
    assert found.reason == "133 ms an epoch instead of 406 ms, 3.1 times as fast"


def test_workers_share_the_data_and_the_cores_with_the_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two workers halve what is read; a step on both cores leaves them none."""
    monkeypatch.setattr("hotset.planning.estimate.usable_cores", lambda: 2)
    monkeypatch.setattr("hotset.planning.estimate._threads", lambda: 8)
    clock = Clock()
    data = Rows(clock, 5, chain_on(clock))
    for workers in (2, 8):
        found = plan_of(data, clock, batch_size=10, step=20 * TICK, workers=workers)
        assert found.prediction is not None
        assert found.prediction.data_ms == 50 * TICK
        assert found.prediction.step_cores == 2
        assert found.prediction.plain_s == 4 * (20 + 100 / 2) * TICK / 1000
        assert found.prediction.steady_s == 4 * (20 + 30 / 2) * TICK / 1000
        assert found.cuts[1].saved_ms == 140 * TICK
        assert found.notes[-1] == (
            "the step is taken to keep 2 of 2 cores busy, which the workers need too"
        )


@pytest.mark.parametrize(("given", "cores", "plain"), [(0.5, 0.5, 55), (9.0, 2, 70)])
def test_the_cores_of_a_step_may_be_given(
    given: float, cores: float, plain: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its time, as they were seen in a loop; they replace what is taken for them."""
    monkeypatch.setattr("hotset.planning.estimate.usable_cores", lambda: 2)
    monkeypatch.setattr("hotset.planning.estimate._threads", lambda: 8)
    clock = Clock()
    data = Rows(clock, 5, chain_on(clock))
    plan = plan_of(data, clock, batch_size=10, step=20 * TICK, step_cores=given, workers=2)
    assert plan.prediction is not None
    assert plan.prediction.step_cores == cores
    assert plan.prediction.plain_s == pytest.approx(4 * plain * TICK / 1000)
    assert plan.notes[-1] == (
        f"the step was seen to keep {cores} of 2 cores busy, which the workers need too"
    )


@pytest.mark.parametrize(
    ("cpu_share", "cores", "plain"), [(0, 0, 50), (1, 1, (20 + 100) / 2), (4, 2, 20 + 100 / 2)]
)
def test_the_processor_time_of_a_step_is_measured(
    cpu_share: int, cores: int, plain: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a callable: one that waits leaves the workers all cores."""
    monkeypatch.setattr("hotset.planning.estimate.usable_cores", lambda: 2)
    clock, cpu = Clock(), Clock()

    class Read(Rows):
        def __getitem__(self, index: int) -> tuple[Any, int]:
            cpu.ticks += 5 + 2 + 3  # with its steps
            return super().__getitem__(index)

    def step(batch: Any) -> None:
        clock.ticks += 20
        cpu.ticks += 20 * cpu_share

    data = Read(clock, 5, chain_on(clock))
    plan = plan_of(data, clock, cpu_clock=cpu, batch_size=10, step=step, workers=2)
    assert plan.prediction is not None
    assert (plan.prediction.step_ms, plan.prediction.step_cores) == (20 * TICK, cores)
    assert plan.prediction.plain_s == 4 * plain * TICK / 1000
    told = [note for note in plan.notes if note.startswith("the step was seen to keep")]
    assert len(told) == (cores > 0)


def test_data_that_waits_leaves_the_cores_to_the_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """As from a network: its workers run beside the step after all."""
    monkeypatch.setattr("hotset.planning.estimate.usable_cores", lambda: 2)
    clock = Clock()
    data = Rows(clock, 5, chain_on(clock))
    asked: dict[str, Any] = {"batch_size": 10, "step": 60 * TICK, "workers": 2}
    plan = plan_of(data, clock, cpu_clock=lambda: 0.0, **asked)
    assert plan.prediction is not None
    assert plan.prediction.plain_s == 4 * 60 * TICK / 1000


def test_a_step_on_a_device_of_its_own_keeps_no_core_busy() -> None:
    """So long as only its milliseconds are known."""
    clock = Clock()
    asked: dict[str, Any] = {"batch_size": 10, "step": 60 * TICK, "workers": 2}
    for device, cores in (("cpu", 1), (apart(), 0)):
        found = plan_of(Rows(clock, 5, chain_on(clock)), clock, device=device, **asked).prediction
        assert found is not None
        assert found.step_cores == cores


def test_a_step_that_hides_the_data_is_left_alone() -> None:
    """With what both take."""
    clock = Clock()
    plan = plan_of(
        Rows(clock, 5, chain_on(clock)), clock, batch_size=10, step=120 * TICK, workers=1
    )
    assert plan.prediction is not None
    assert plan.prediction.verdict == "leave it"
    assert plan.prediction.reason == (
        "the step takes 117 ms a batch and the data 98 ms with 1 worker, which runs beside it"
    )


def test_an_unknown_step_is_told_what_it_may_take() -> None:
    """Above the data's own time a worker hides it; the gain must be 5 %."""
    clock = Clock()
    plan = plan_of(Rows(clock, 5, chain_on(clock)), clock, batch_size=10, workers=1)
    assert plan.prediction is not None
    assert plan.prediction.verdict == "it depends"
    assert plan.prediction.worth_below_ms == pytest.approx(100 * TICK / 1.05, rel=1e-5)
    assert plan.prediction.reason == "worth it where a step takes less than 93 ms a batch"


def test_a_step_is_timed_on_batches() -> None:
    """A callable gets a batch as torch collates it, several times; the first does not count."""
    clock = Clock()
    seen: list[Any] = []

    def step(batch: Any) -> None:
        seen.append(batch)
        clock.ticks += 1000 if len(seen) == 1 else 7

    plan = plan_of(Rows(clock, 1, []), clock, batch_size=8, step=step)
    assert plan.prediction is not None
    assert plan.prediction.step_ms == 7 * TICK
    rows, labels = seen[0]
    assert (rows.shape, rows.dtype, labels.shape) == ((8, 6), torch.int16, (8,))


def test_a_first_call_alone_does_not_count() -> None:
    """What is loaded by it is no part of what it takes."""
    clock, calls = Clock(), []

    def loads(row: Tensor) -> Tensor:
        calls.append(row)
        clock.ticks += 500 if len(calls) < 20 else 1
        return row * 2

    plan = plan_of(Rows(clock, 1, [loads]), clock)
    assert plan.cuts[1].ms == TICK


def test_differences_below_the_noise_do_not_count() -> None:
    """A step whose times differ by more than it takes saves nothing that could be told."""
    clock = Clock()

    def unsteady(row: Tensor) -> Tensor:
        clock.ticks += (0, 4, 1, 0, 4)[torch.initial_seed() % 5]  # the run that is measured
        return row.repeat(2)

    data = Rows(clock, 5, [unsteady, hotset.random(Timed("noisy", noisy, 3, clock))])
    plan = plan_of(data, clock)
    assert (plan.cuts[1].ms, plan.cuts[1].noise_ms) == (TICK, 2 * TICK)
    assert plan.cuts[1].saved_ms - plan.cuts[0].saved_ms == 40 * TICK
    assert [cut.is_chosen for cut in plan.cuts] == [False, True, False]
    assert plan.cuts[0].reason == (
        "saves as much, but leaves unsteady to be run for every sample again"
    )


def test_bytes_decide_where_all_that_is_left_runs_in_batches() -> None:
    """The larger form saves as much, and says for what it would be."""
    clock = Clock()
    chain = v1.Compose([v1.ToTensor(), v1.Normalize(MEAN, STD)])
    plan = plan_of(Pictures(10, chain), clock)
    assert [cut.is_chosen for cut in plan.cuts] == [True, False, False]
    assert [cut.rest for cut in plan.cuts] == ["table", "batch", "nothing"]
    assert plan.cuts[0].nbytes == 10 * (3 * 8 * 8 + 8)
    assert plan.cuts[1].reason == "7.8 KB for what 2.0 KB save as well"
    assert plan.kernel == "Numba, fused in one pass"


def test_no_room_is_told_with_every_budget() -> None:
    """What the samples take, and what each memory may."""
    clock = Clock()
    plan = plan_of(Rows(clock, 5, chain_on(clock)), clock, budget=500)
    assert [cut.reason for cut in plan.cuts] == [
        "800 bytes exceed the budget: 500 bytes in host memory",
        "2.2 KB exceed the budget: 500 bytes in host memory",
        "random from noisy on",
    ]
    assert (plan.tier, plan.bytes_held) == ("source", 0)
    assert all(decision.action == "worker" for decision in plan.decisions)
    assert plan.prediction is not None
    assert plan.prediction.verdict == "leave it"
    assert plan.prediction.plain_s == plan.prediction.steady_s == plan.prediction.first_s
    assert plan.prediction.reason == (
        "nothing of it can be kept: 2.2 KB exceed the budget: 500 bytes in host memory"
    )


def test_an_earlier_cut_is_planned_where_only_it_has_room() -> None:
    """And the cut that lost for want of room says so."""
    clock = Clock()
    plan = plan_of(Rows(clock, 5, chain_on(clock)), clock, budget=1000)
    assert [cut.is_chosen for cut in plan.cuts] == [True, False, False]
    assert plan.cuts[0].reason == "the best of those that there is room for"
    assert plan.cuts[1].reason == "2.2 KB exceed the budget: 1.0 KB in host memory"
    assert plan.notes[0] == (
        "kept as Rows gives them, 800 bytes: there is no room for 2.2 KB, as they are behind step "
        "0, widened"
    )


class Drawing(Dataset[Any]):
    """Samples that are drawn anew, also from a generator of the dataset's own."""

    def __init__(self) -> None:
        self.own = np.random.default_rng(3)
        self.others = [random.Random(4), torch.Generator(), np.random.RandomState(5)]

    def __len__(self) -> int:
        return 20

    def __getitem__(self, index: int) -> Tensor:
        plain, tensors, old = self.others
        tensor = torch.rand(2, generator=tensors) + torch.rand(2)
        return tensor + self.own.random() + plain.random() + old.random()


def test_a_random_dataset_is_left_alone() -> None:
    """With the reason that the analysis found."""
    plan = hotset.plan(Drawing(), device="cpu")
    assert plan.tier == "source"
    assert plan.cuts[0].reason == "probed: it draws from a random generator"
    assert not plan.cuts[0].is_deterministic
    assert plan.prediction is not None
    assert plan.prediction.reason == (
        "nothing of it can be kept: probed: it draws from a random generator"
    )


def test_every_generator_is_as_before() -> None:
    """The global ones, those of a dataset's own, and a loader's."""
    data = Drawing()
    loader = DataLoader(data, 4, shuffle=True, generator=torch.Generator())
    own = [data.own, *data.others, loader.generator]
    before = generator_states(own)
    plan = hotset.plan(loader, device="cpu", step=lambda batch: torch.rand(3))
    assert plan.samples == 20
    assert generator_states(own) == before


def test_nothing_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No file, no thread; dataset and loader have what they had."""
    monkeypatch.chdir(tmp_path)
    chain = v1.Compose([v1.RandomHorizontalFlip(), v1.ToTensor(), v1.Normalize(MEAN, STD)])
    data = Pictures(12, chain)
    loader = DataLoader(data, 4, shuffle=True)
    before = dict(vars(data)), dict(vars(loader)), list(chain.transforms)
    threads = threading.active_count()
    hotset.plan(loader, device="cpu", cache=tmp_path / "stores")
    assert (dict(vars(data)), dict(vars(loader)), list(chain.transforms)) == before
    assert threading.active_count() == threads
    assert list(tmp_path.iterdir()) == []


def test_a_plan_is_plain() -> None:
    """JSON takes all of it, and gives it back."""
    plan = hotset.plan(Pictures(6, v1.ToTensor()), device="cpu", batch_size=3)
    loaded = json.loads(json.dumps(plan.as_dict(), allow_nan=False))
    assert loaded["cuts"][0]["behind"] == "Pictures"
    assert loaded["cuts"][0]["nbytes"] == 6 * (3 * 8 * 8 + 8)
    rates = [cut["saved_ms"] / (cut["nbytes"] / 1e6) for cut in loaded["cuts"]]
    assert [cut["saved_ms_per_mb"] for cut in loaded["cuts"]] == rates
    assert loaded["prediction"]["batch_size"] == 3
    assert len(loaded["cuts"]) == 2


def test_a_plan_in_words() -> None:
    """The table of the cuts with the one that is made marked, and what is predicted."""
    clock = Clock()
    plan = plan_of(Rows(clock, 5, chain_on(clock)), clock, batch_size=10, step=4 * TICK)
    assert plan.text(100) == (
        "step     what    why\n"
        "Rows     once    probed: same bits twice on 4 samples, no generator moved\n"
        "widened  once    probed: same bits twice on 4 samples, no generator moved\n"
        "noisy    worker  per sample, since noisy is random and has no batched form\n"
        "\n"
        "  cut behind  takes   same twice?  bytes      saves   ms/MB    then    fits\n"
        "  Rows        4.9 ms  yes          800 bytes  195 ms  244,141  worker  device\n"
        "    saves 78 ms less per epoch\n"
        "* widened     2.0 ms  yes          2.2 KB     273 ms  122,070  worker  device\n"
        "    saves the most of what runs per sample\n"
        "  noisy       2.9 ms  no           -          -       -        -       -\n"
        "    random from noisy on\n"
        "\n"
        "data: 40 samples, 2.2 KB, resident on cpu\n"
        "kernel: none: your own callables, sample by sample, in the main process\n"
        "note: times are of 16 samples, made 5 times each; of files, as they are read when the"
        " system has\n"
        "  them in memory\n"
        "a batch of 10: data 98 ms with no workers + step 3.9 ms; with hotset 29 ms + step 3.9"
        " ms\n"
        "an epoch: 406 ms; with hotset 406 ms the first, then 133 ms\n"
        "accelerate: 133 ms an epoch instead of 406 ms, 3.1 times as fast"
    )
    assert max(map(len, plan.text(100).splitlines())) <= 100
    assert str(plan) == plan.text()


def test_arrays_and_tables_are_planned() -> None:
    """What lies in memory already is not read again."""
    arrays = {"x": np.zeros((30, 4), np.float32), "y": np.arange(30)}
    for data in (arrays, TensorDataset(torch.zeros(30, 5), torch.zeros(30, 1))):
        plan = hotset.plan(data, device="cpu")
        assert (plan.tier, plan.samples, plan.bytes_held) == ("device", 30, 30 * 24)
        assert plan.prediction is not None
        assert plan.prediction.first_s == plan.prediction.steady_s
        assert plan.prediction.batch_size == 30


def test_a_loader_gives_its_own_settings() -> None:
    """Batch size, workers, collate function, and how many samples an epoch draws."""
    clock, sizes = Clock(), []

    def listed(samples: list[Any]) -> list[Any]:
        sizes.append(len(samples))
        clock.ticks += 8
        return samples

    sampler = torch.utils.data.SubsetRandomSampler(range(10))
    loader = DataLoader(Rows(clock, 5, []), 4, sampler=sampler, num_workers=1, collate_fn=listed)
    plan = plan_of(loader, clock, step=100 * TICK)
    found = plan.prediction
    assert found is not None
    assert set(sizes) == {4}
    assert (found.batch_size, found.workers, plan.samples) == (4, 1, 40)
    assert found.data_ms == (4 * 5 + 8) * TICK
    assert found.plain_s == 3 * 100 * TICK / 1000
    assert plan.cuts[0].saved_ms == 10 * 5 * TICK  # the collate function runs in any case


def apart() -> SimulatedAccelerator:
    """A device with memory of its own, to which a KiB is copied in a millisecond."""
    return SimulatedAccelerator("1MB", bandwidth=1_024_000)


@pytest.mark.parametrize(
    ("budget", "tier", "copied", "cached"),
    [(2240, "device", 0, 40), (1680, "mixed", 42, 10), (10, "host", 56, 0)],
)
def test_copies_to_a_device_count(budget: int, tier: str, copied: int, cached: int) -> None:
    """What it does not keep, as it is kept; the plain loader copies finished samples."""
    clock = Clock()
    data = Rows(clock, 5, [Timed("widened", widened, 2, clock)])
    device = apart()
    plan = plan_of(data, clock, device=device, budget=budget, batch_size=10, step=200 * TICK)
    assert (plan.device, plan.tier, plan.cached) == (device.name, tier, cached)
    assert (device.allocations, device.bytes_copied) == (0, 0)
    found = plan.prediction
    assert found is not None
    assert found.copy_ms == copied * 10 / 1024
    assert found.rest_ms == 0
    # All of the data runs before the step: 7 ticks a sample, and 56 bytes to be copied.
    assert found.plain_s == 4 * (70 + 560 / 1000 + 200) * TICK / 1000
    assert found.steady_s == 4 * 200 * TICK / 1000
    assert plan.cuts[1].saved_ms == pytest.approx(280 * TICK + (56 - copied) * 40 / 1024)
    assert plan.cuts[1].tier == tier
    assert f"steps that run on whole batches on {device.name} count as 0" in plan.notes


def test_samples_made_one_by_one_are_copied_whole() -> None:
    """Where steps run per sample, nothing can lie on the device."""
    clock = Clock()
    plan = plan_of(Rows(clock, 5, chain_on(clock)), clock, device=apart(), batch_size=10)
    assert plan.tier == "host"
    assert plan.prediction is not None
    assert plan.prediction.copy_ms == (24 * 4 + 8) * 10 / 1024


class Streamed(IterableDataset[Any]):
    """Nothing that could be indexed."""

    def __iter__(self) -> Any:
        return iter(())


@pytest.mark.parametrize(
    ("data", "options", "error", "words"),
    [
        (DataLoader(Streamed(), 2), {}, UnsupportedError, "Streamed is an IterableDataset"),
        (5, {}, UnsupportedError, "expected a map-style dataset"),
        (torch.zeros(0, 2), {}, ConfigError, "the data is empty"),
        (torch.zeros(4, 2), {"samples": 1}, ConfigError, "`samples` must be a whole number of at"),
        (torch.zeros(4, 2), {"workers": -1}, ConfigError, "`workers` must be a whole number of at"),
        (torch.zeros(4, 2), {"batch_size": 0}, ConfigError, "`batch_size` must be a whole number"),
        (torch.zeros(4, 2), {"step": "fast"}, ConfigError, "`step` must be a callable that takes"),
        (torch.zeros(4, 2), {"step": -1}, ConfigError, "`step` must be a callable that takes"),
        (torch.zeros(4, 2), {"step": True}, ConfigError, "`step` must be a callable that takes"),
        (torch.zeros(4, 2), {"tier": "near"}, ConfigError, "`tier` must be one of auto, device"),
        (torch.zeros(4, 2), {"policy": "x"}, ConfigError, "`policy` must be one of auto, static"),
        (DataLoader(torch.zeros(4, 2), None), {}, ConfigError, "the DataLoader has batch_size=Non"),
        (Pictures(4), {}, SchemaError, r"sample\[0\] is a PIL image RGB 8x8, which cannot be"),
    ],
)
def test_what_cannot_be_planned_is_refused(
    data: Any, options: dict[str, Any], error: type[Exception], words: str
) -> None:
    """In the words of `accelerate` where it refuses it too."""
    with pytest.raises(error, match=words):
        hotset.plan(data, device="cpu", **options)


def test_a_tier_that_no_cut_fits_is_refused() -> None:
    """As `accelerate` refuses it."""
    with pytest.raises(ConfigError, match="tier='device' cannot be had: 32 bytes exceed the"):
        hotset.plan(Pictures(4, lambda image: 1.0, "single"), device="cpu", tier="device", budget=3)


def test_loaders_of_hotsets_own_have_a_plan() -> None:
    """They need no other."""
    loader = hotset.Loader(torch.zeros(4, 2), 2, device="cpu")
    with pytest.raises(
        UnsupportedError, match=r"hotset's own already; what it does is its `\.plan"
    ):
        hotset.plan(loader, device="cpu")


def test_a_failing_collate_function_is_named() -> None:
    """With its own error."""

    def failing(samples: list[Any]) -> Any:
        raise ValueError("uneven")

    loader = DataLoader(TensorDataset(torch.zeros(4, 2)), 2, collate_fn=failing)
    with pytest.raises(SampleError, match="the collate_fn failed: ValueError: uneven"):
        hotset.plan(loader, device="cpu")


def test_plans_of_loaders_are_as_they_were() -> None:
    """They have no cuts and no prediction."""
    plan: Plan = hotset.Loader(torch.zeros(4, 2), 2, device="cpu").plan
    assert (plan.cuts, plan.prediction) == ((), None)
    assert dataclasses.asdict(plan) == plan.as_dict()


def test_slow_samples_are_measured_on_fewer() -> None:
    """Two at least, however long they take; the plan says on how many."""
    clock = Clock()
    plan = plan_of(Rows(clock, 1024, []), clock)  # a second each
    assert plan.notes[-1].startswith("times are of 2 samples, made 5 times each")
    plan = plan_of(Rows(clock, 128, []), clock)
    assert plan.notes[-1].startswith("times are of 8 samples, made 5 times each")


def test_a_step_that_fails_on_a_measured_sample_is_named() -> None:
    """Although the few that were probed passed."""

    def picky(row: Tensor) -> Tensor:
        if row[0] == 2:
            raise ValueError("two")
        return row.clone()

    with pytest.raises(SampleError, match="step 0 of the transform, picky, failed at index 2: Val"):
        hotset.plan(Rows(Clock(), 0, [picky]), device="cpu", samples=40)


def test_a_dataset_that_holds_its_transforms_back_is_one_step() -> None:
    """Reading it is all there is to time."""

    class Own(Dataset[Any]):
        def __len__(self) -> int:
            return 12

        def __getitem__(self, index: int) -> dict[str, Any]:
            clock.ticks += 3
            return {"name": "x" * index, "row": torch.zeros(3), "shape": None}

    clock = Clock()

    def names(samples: list[Any]) -> list[str]:
        return [sample["name"] for sample in samples]

    plan = plan_of(DataLoader(Own(), 4, collate_fn=names), clock)
    assert [(cut.behind, cut.ms, cut.is_chosen) for cut in plan.cuts] == [("Own", 3 * TICK, True)]
    assert plan.tier == "device"
