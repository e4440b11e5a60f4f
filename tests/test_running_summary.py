"""`hotset.running.summary` and `job`: what was done, and what that brought."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, Subset, TensorDataset

from hotset.chain.split import Decision
from hotset.doctor.measure import Recording
from hotset.placement.plan import Plan
from hotset.placement.prediction import Prediction
from hotset.running import job as job_module
from hotset.running.job import Job, Settings
from hotset.running.summary import LoaderRun, Summary

PLAN = Plan(
    (Decision("Pictures", "once", ""), Decision("Flip", "batch", "drawn per sample")),
    "cpu",
    "device",
    1200,
    3_600_000,
    "",
)
DATA = TensorDataset(torch.arange(10.0))


def run_of(**changes: Any) -> LoaderRun:
    """A loader that was accelerated, but for some changes."""
    values: dict[str, Any] = {
        "name": "DataLoader",
        "dataset": "Pictures",
        "samples": 1200,
        "batch_size": 64,
        "loaders": 1,
        "is_accelerated": True,
        "why": "",
        "plan": PLAN,
        "epochs": 2,
        "accelerated_epochs": 2,
        "batches": 38,
        "wait_s": 0.5,
        "rest_s": 1.5,
        "planned_s": 0.25,
        "filled_s": 1.0,
        "loop_s": 2.0,
        "plain_s": 6.0,
    }
    return LoaderRun(**(values | changes))


def test_a_summary_in_words() -> None:
    """All that was done, and what was not, with the reason."""
    left = run_of(
        name="Mine",
        is_accelerated=False,
        why="its collate_fn (pad) is its own",
        plan=None,
        accelerated_epochs=0,
        planned_s=0.0,
        filled_s=0.0,
        loop_s=0.0,
        plain_s=None,
        batch_size=None,
        samples=1,
        loaders=3,
        notes=("more",),
    )
    summary = Summary("train.py", False, 9.0, (run_of(), left), ("so it is",))
    assert summary.text(100) == "\n".join(
        [
            "hotset run train.py: 1 of 2 loaders accelerated, 9.0 s in all",
            "",
            "DataLoader of Pictures, 1,200 samples by 64: accelerated",
            "  steps     Pictures → once, Flip → batch",
            "  kept      1,200 samples, 3.6 MB, tier device; batches come out on cpu",
            "  loop      2 epochs, 38 batches: waited 500 ms, all else 1.5 s",
            "  before    planning 250 ms, reading all samples once 1.0 s",
            "  brought   2.0 s instead of 6.0 s as predicted, 3 times as fast; 2.8 s saved, with "
            "what went before",
            "",
            "Mine of Pictures, 1 sample, 3 of them: left alone",
            "  why       its collate_fn (pad) is its own",
            "  loop      2 epochs, 38 batches: waited 500 ms, all else 1.5 s",
            "  note      more",
            "",
            "so it is",
        ]
    )
    assert max(map(len, summary.text(60).splitlines())) <= 60
    assert str(summary).count("\n") < summary.text(60).count("\n")


def test_what_cost_more_than_it_brought_is_said() -> None:
    """Planning and reading all once count against it."""
    run = run_of(plain_s=3.0)
    assert (run.brought, run.saved_s) == (1.5, -0.25)
    words = dict(run.lines())["brought"]
    assert words == (
        "2.0 s instead of 3.0 s as predicted, 1.5 times as fast; with what went before, it cost "
        "250 ms more than that brought"
    )


def test_a_loader_left_after_a_while_is_said_to_be() -> None:
    """With the reason."""
    text = str(Summary("x", False, 1.0, (run_of(epochs=3, why="it was changed"),)))
    assert ": accelerated for 2 epochs, then left alone\n  why       it was changed\n" in text


def test_plain_values_have_a_schema() -> None:
    """And what follows from the others."""
    values = Summary("x", True, 1.0, (run_of(),)).as_dict()
    assert (values["schema"], values["version"]) == ("hotset-run-summary", 1)
    (run,) = values["loaders"]
    assert (run["brought"], run["saved_s"], run["plan"]["tier"]) == (3.0, 2.75, "device")


def predicted(workers: int, data_ms: float) -> Prediction:
    """Of a batch."""
    return Prediction(5, workers, None, 0.0, data_ms, 0.0, 0.0, 1.0, 1.0, 1.0, None, None, "", "")


@pytest.mark.parametrize(
    ("workers", "data_ms", "cpu", "plain_s"),
    [
        (0, 2000, 0.0, 4 * 2 + 4 * 3),  # one after the other
        (1, 2000, 0.0, 12),  # the step is longer
        (1, 5000, 0.0, 20),  # the data is longer
        (2, 3000, 8.0, (4 * 3 * 2 + 4 * 8) / 2),  # both want the cores
        (8, 3000, 8.0, (4 * 3 * 2 + 4 * 8) / 2),  # more workers than cores
    ],
)
def test_what_the_plain_loader_would_have_taken(
    monkeypatch: pytest.MonkeyPatch, workers: int, data_ms: float, cpu: float, plain_s: float
) -> None:
    """Of an epoch of four batches, a step of 3 s and a wait of 1 s; a later epoch was plain."""
    monkeypatch.setattr(job_module, "usable_cores", lambda: 2)
    now, spent = [0.0], [0.0]
    recording = Recording(clock=lambda: now[0], cpu_clock=lambda: spent[0])
    loader = DataLoader(DATA, batch_size=5)
    job = Job(Settings.of(loader, "cpu"), DATA, recording)
    job.plan, job.prediction, job.accelerated_epochs = PLAN, predicted(workers, data_ms), 1
    for batches in (4, 7):
        recording.begin_epoch()
        for _ in range(batches):
            recording.ask()
            now[0] += 1
            recording.come([torch.zeros(5)])
            now[0] += 3
            spent[0] += cpu
        recording.ask()
        recording.end_epoch()
    run = job.run()
    assert (run.epochs, run.batches, run.wait_s, run.rest_s) == (2, 11, 11.0, 33.0)
    assert (run.loop_s, run.plain_s) == (16.0, plain_s)
    is_crowded = workers * 3 + cpu > 2 * 3 and workers > 0
    assert run.notes == (job_module.CROWDED,) * is_crowded


class Stream(IterableDataset):
    def __iter__(self) -> Any:
        return iter(())

    def __len__(self) -> int:
        return 3


def test_datasets_have_names_and_lengths() -> None:
    """What is inside a subset is named; a stream has no length to count on."""
    recording = Recording()
    settings = Settings.of(DataLoader(DATA), "cpu")
    job = Job(settings, Subset(DATA, [1, 2]), recording)
    assert (job.name, job.length) == ("Subset of TensorDataset", 2)
    assert Job(settings, Stream(), recording).length is None
    rows = [1, 2, 3]
    job = Job(settings, rows, recording)
    assert job.is_over(rows)
    assert not job.is_over([1, 2, 3])
    assert job.is_like([1, 2, 4])
    assert not job.is_like([1, 2])


def test_loaders_are_alike_by_their_settings() -> None:
    """A shuffled one is not like one in order."""
    alike = [DataLoader(DATA, batch_size=2, shuffle=True) for _ in range(2)]
    assert Settings.of(alike[0], "cpu") == Settings.of(alike[1], "cpu")
    others = [
        (DataLoader(DATA, batch_size=2), "cpu"),
        (DataLoader(DATA, batch_size=3, shuffle=True), "cpu"),
        (DataLoader(DATA, batch_size=2, shuffle=True, collate_fn=list), "cpu"),
        (alike[0], "cuda:0"),
    ]
    assert all(Settings.of(*other) != Settings.of(alike[0], "cpu") for other in others)
