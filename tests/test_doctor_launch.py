"""What is recorded of a script's loaders, and which of them is examined."""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from hotset.doctor.scripts.hooks import Stop, hooked
from hotset.doctor.scripts.launch import doctor
from hotset.doctor.scripts.script import Target
from hotset.doctor.scripts.tracks import Tracks
from hotset.errors import ConfigError
from tests.launched import Ran, command, stand_in


class Clock:
    """Seconds that pass only when told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Slow(IterableDataset):
    """Samples that take time each, and starting takes some too."""

    def __init__(self, clock: Clock, *, start_s: float, sample_s: float, samples: int = 3) -> None:
        self.clock, self.start_s, self.sample_s, self.samples = clock, start_s, sample_s, samples

    def __iter__(self) -> Iterator[int]:
        self.clock.now += self.start_s
        return self._samples()

    def _samples(self) -> Iterator[int]:
        for sample in range(self.samples):
            self.clock.now += self.sample_s
            yield sample


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine and a device that nobody looks at."""
    import sys

    for name in ("diagnosis", "machine.machine", "machine.cuda"):
        monkeypatch.setitem(sys.modules, f"hotset.doctor.{name}", None)
    stand_in()


def rows(count: int) -> TensorDataset:
    """Samples that are their own index."""
    return TensorDataset(torch.arange(count))


def go_through(loader: DataLoader, clock: Clock) -> None:
    """A loop whose step takes two seconds."""
    for _ in loader:
        clock.now += 2


def seen(tracks: Tracks) -> list[tuple[str, int, int]]:
    """Of each loader its name, its batches and its epochs."""
    return [(track.name, track.batches, track.recording.epochs) for track in tracks.given]


@pytest.mark.usefixtures("machine")
def test_waits_are_told_from_the_rest_of_the_loop() -> None:
    """Making an iterator is waited for; what comes between that and its first batch is not."""
    clock = Clock()
    tracks = Tracks(clock=clock)
    with hooked(tracks):
        loader = DataLoader(Slow(clock, start_s=4, sample_s=1), batch_size=None)
        iterator = iter(loader)
        clock.now += 1000
        for _ in iterator:
            clock.now += 8
        for _ in loader:
            clock.now += 16
            break
    (track,) = tracks.given
    times = track.recording.timeline()
    assert times.epoch.tolist() == [0, 0, 0, 1]
    assert times.wait_s.tolist() == [5, 1, 1, 5]
    assert times.step_s.tolist()[:3] == [8, 8, 8]
    assert times.end_s.tolist()[0] == 0
    assert track.waited_s == 12


@pytest.mark.usefixtures("machine")
def test_other_loaders_are_no_part_of_a_step() -> None:
    """Neither is what making their iterators takes; the longest waited for is examined."""
    clock = Clock()
    tracks = Tracks(clock=clock)
    with hooked(tracks):
        first = DataLoader(Slow(clock, start_s=0, sample_s=1), batch_size=None)
        second = DataLoader(Slow(clock, start_s=2, sample_s=3), batch_size=None)
        for _ in zip(first, second, strict=True):
            clock.now += 8
    assert [track.waited_s for track in tracks.given] == [11, 3]
    assert tracks.examined is tracks.given[0]
    assert tracks.examined.loader is second
    assert [track.recording.timeline().step_s.tolist() for track in tracks.given] == [[8] * 3] * 2
    assert [(share.name, share.batches, share.is_examined) for share in tracks.shares()] == [
        ("DataLoader over Slow", 3, True),
        ("DataLoader over Slow", 3, False),
    ]


@pytest.mark.usefixtures("machine")
def test_a_loader_made_anew_goes_on() -> None:
    """Over the same dataset, in the same way, and not beside the one before."""
    train, held = rows(12), rows(4)
    tracks = Tracks()
    with hooked(tracks):
        for _ in range(3):
            list(DataLoader(train, batch_size=4))
            for _ in DataLoader(held, batch_size=2):
                break
    assert sorted(seen(tracks)) == [
        ("DataLoader over TensorDataset", 3, 3),
        ("DataLoader over TensorDataset", 9, 3),
    ]
    tracks = Tracks()
    with hooked(tracks):
        for _ in range(2):  # two at once
            list(zip(DataLoader(train, batch_size=4), DataLoader(train, batch_size=4), strict=True))
        list(DataLoader(train, batch_size=3))
    assert sorted(batches for _, batches, _ in seen(tracks)) == [4, 6, 6]


@pytest.mark.usefixtures("machine")
def test_a_loader_made_anew_may_have_a_dataset_made_anew() -> None:
    """Where the same lines have made it; others make another loader, however alike."""

    def made(count: int) -> DataLoader:
        return DataLoader(rows(count), batch_size=2)

    tracks = Tracks()
    with hooked(tracks):
        for _ in range(3):
            list(made(8))
            list(made(8))
            list(made(6))
    assert sorted(seen(tracks)) == [
        ("DataLoader over TensorDataset", 9, 3),
        ("DataLoader over TensorDataset", 12, 3),
        ("DataLoader over TensorDataset", 12, 3),
    ]


@pytest.mark.usefixtures("machine")
def test_loaders_are_held_on_to_but_not_without_end() -> None:
    """The one to examine and the latest; the others go when the script lets them go."""
    clock = Clock()
    tracks = Tracks(clock=clock)
    datasets = []
    with hooked(tracks):
        for number in range(20):
            data = type("Kind", (Slow,), {})(clock, start_s=0, sample_s=9 if number == 2 else 1)
            datasets.append(weakref.ref(data))
            list(DataLoader(data, batch_size=None))
            del data
    assert [number for number, data in enumerate(datasets) if data() is not None] == [
        2,
        *range(12, 20),
    ]
    assert len(tracks.shares()) == 20
    assert tracks.examined.loader.dataset is datasets[2]()


@pytest.mark.usefixtures("machine")
def test_loaders_with_workers_that_stay_are_not_held_on_to() -> None:
    """Each would keep its processes; but the one to examine, and the latest."""
    clock = Clock()
    tracks = Tracks(clock=clock)
    loaders = []
    with hooked(tracks):
        for number in range(5):
            data = type("Kind", (Slow,), {})(clock, start_s=0, sample_s=9 if number == 1 else 1)
            loader = DataLoader(data, batch_size=None)
            # Real ones would have to be waited for; what counts is that it says so.
            vars(loader)["persistent_workers"] = True
            loaders.append(weakref.ref(loader))
            list(loader)
            del loader, data
    assert [number for number, each in enumerate(loaders) if each() is not None] == [1, 4]


@pytest.mark.usefixtures("machine")
def test_a_script_is_stopped_after_steps_or_seconds() -> None:
    """Of all loaders together; the step before has its time."""
    clock = Clock()
    tracks = Tracks(steps=4, clock=clock)
    with hooked(tracks):
        loader = DataLoader(Slow(clock, start_s=0, sample_s=1), batch_size=None)
        go_through(loader, clock)
        with pytest.raises(Stop, match=r"^$"):
            go_through(loader, clock)
        with pytest.raises(Stop, match=r"^$"):
            next(iter(loader))
    assert tracks.batches == 4
    assert tracks.given[0].recording.timeline().step_s.tolist() == [2, 2, 2, 2]
    tracks = Tracks(seconds=7, clock=clock)
    with hooked(tracks):
        loader = DataLoader(Slow(clock, start_s=0, sample_s=1, samples=100), batch_size=None)
        with pytest.raises(Stop, match=r"^$"):
            go_through(loader, clock)
    assert tracks.batches == 3


@pytest.mark.usefixtures("machine")
def test_the_machine_is_looked_at_batch_by_batch() -> None:
    """From the first one on; it has settled after the first epoch, or a few batches."""
    for samples, before in ((3, 3), (20, 8)):
        tracks = Tracks()
        with hooked(tracks):
            list(DataLoader(rows(samples)))
        looks = ["look"] * samples
        assert tracks.finish() == ["begin", *looks[:before], "settle", *looks[before:], "end"]
    assert Tracks().finish() is None


@pytest.mark.usefixtures("machine")
def test_workers_that_are_left_are_ended() -> None:
    """So that nothing runs beside the examination; the loader can be gone through again."""
    tracks = Tracks()
    with hooked(tracks):
        loader = DataLoader(rows(4), num_workers=1, persistent_workers=True)
        next(iter(loader))
    workers = loader._iterator._workers
    assert [worker.is_alive() for worker in workers] == [True]
    tracks.finish()
    assert [worker.is_alive() for worker in workers] == [False]
    assert len(list(loader)) == 4
    loader._iterator._shutdown_workers()


@pytest.mark.parametrize("limits", [{"steps": 0}, {"seconds": -1.0}, {"seconds": float("nan")}])
def test_limits_must_be_above_zero(limits: dict[str, Any]) -> None:
    """Said before anything runs."""
    with pytest.raises(ConfigError, match=r"^`(steps|seconds)` must be above zero, got"):
        doctor(Target("none.py"), **limits)


SCRIPT = """
    import sys
    import torch
    from torch.utils.data import DataLoader, Dataset

    class Numbers(Dataset):
        def __init__(self, count):
            self.count = count
        def __len__(self):
            return self.count
        def __getitem__(self, index):
            if index == 6 and "fail" in sys.argv:
                raise ValueError("the sixth")
            return torch.tensor(index)

    def threaded(loader):
        import queue, threading
        batches = queue.Queue(1)
        def fill():
            for batch in loader:
                batches.put(batch)
            batches.put(None)
        threading.Thread(target=fill, daemon="daemon" in sys.argv).start()
        return iter(batches.get, None)

    def swallowing(loader):
        for _ in range(3):
            try:
                yield from loader
            except BaseException as error:
                print("swallowed", type(error).__name__)

    def main():
        how = {"num_workers": 1, "multiprocessing_context": "spawn"} if "spawn" in sys.argv else {}
        loader = DataLoader(Numbers(10), batch_size=4, **how)
        if "threaded" in sys.argv:
            loader = threaded(loader)
        if "swallowing" in sys.argv:
            loader = swallowing(loader)
        print("begins")
        for batch in loader:
            print(batch.sum().item())
        print("over")
        if "exit" in sys.argv:
            sys.exit(7)

    if __name__ == "__main__":
        main()
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """The script's folder."""
    (tmp_path / "train.py").write_text(inspect.cleandoc(SCRIPT))
    return tmp_path


def test_a_script_is_reported_on(script: Path) -> None:
    """Its exit code is passed on, and its classes can still be pickled."""
    ran = command("doctor", "--device", "cpu", "train.py", "exit", here=script, LOOKS="1")
    assert (ran.code, ran.out) == (7, b"begins\n6\n22\n17\nover\n")
    facts = ran.facts
    assert (facts["title"], facts["loader"], facts["device"]) == ("train.py", "DataLoader", "cpu")
    assert (facts["samples"], facts["epochs"]) == ([4, 4, 2], [0, 0, 0])
    assert (facts["open_steps"], facts["ends"], facts["waits"]) == (0, [True], True)
    assert (facts["same_dataset"], facts["notes"], facts["loaders"]) == (True, [], [])
    assert facts["cost"]
    assert facts["usage"] == ["begin", "look", "look", "look", "settle", "end"]
    words = "hotset: the script ended after 3 batches; examining DataLoader over Numbers\n"
    assert ran.err.startswith(words)


def test_a_failing_script_is_reported_on(script: Path) -> None:
    """As far as it came; its traceback is Python's own."""
    ran = command("doctor", "train.py", "fail", here=script)
    assert (ran.code, ran.out) == (1, b"begins\n6\n")
    assert (ran.facts["batches"], ran.facts["ends"]) == (1, [False])
    words = "the script failed after 1 batch, with ValueError"
    assert ran.facts["notes"] == [f"{words}; the times are from before"]
    assert "ValueError: the sixth\nhotset: " + words in ran.err
    assert "hotset" not in ran.err.partition("ValueError: the sixth")[0].replace(str(script), "")


def test_workers_may_be_spawned(script: Path) -> None:
    """They find the script's classes, and do not run it again; also of a module."""
    for arguments in (["train.py"], ["-m", "train"]):
        ran = command("doctor", "--steps", "2", *arguments, "spawn", here=script)
        assert (ran.code, ran.out) == (0, b"begins\n6\n22\n")
        assert (ran.facts["batches"], ran.facts["workers"]) == (2, 0)


@pytest.mark.parametrize("kind", ["fork", "daemon fork"])
def test_a_thread_that_takes_the_batches_can_be_stopped(kind: str, script: Path) -> None:
    """The main thread, which waits for it, is too; the report says so."""
    ran = command("doctor", "--steps", "2", "train.py", "threaded", *kind.split(), here=script)
    assert ran.code == 0
    assert ran.out.startswith(b"begins\n")
    assert b"over" not in ran.out
    assert ran.facts["batches"] == 2
    assert ran.facts["notes"][0].startswith("batches were taken in a thread other than the main")
    assert "Traceback" not in ran.err


def test_threads_that_would_never_end_are_left(tmp_path: Path) -> None:
    """Once the script has been stopped; what it does at its exit is done."""
    (tmp_path / "stuck.py").write_text(
        "import atexit, threading, torch\nfrom torch.utils.data import DataLoader\n"
        "threading.Thread(target=threading.Event().wait, name='stuck').start()\n"
        "atexit.register(print, 'at exit')\n"
        "list(DataLoader(torch.zeros(9)))\n"
    )
    ran = command("doctor", "--steps", "2", "stuck.py", here=tmp_path, LEAVE_S="0.1")
    assert (ran.code, ran.out, ran.facts["batches"]) == (0, b"at exit\n", 2)
    assert ran.err.endswith("hotset: not waited for: stuck, which the stopped script left\n")


def test_a_script_that_goes_on_is_stopped_again(script: Path) -> None:
    """Each time that it asks for a batch."""
    ran = command("doctor", "--steps", "2", "train.py", "swallowing", "exit", here=script)
    assert ran.out == b"begins\n6\n22\n" + b"swallowed Stop\n" * 3 + b"over\n"
    assert (ran.code, ran.facts["batches"]) == (0, 2)
    assert "hotset: stopped after 2 batches; examining" in ran.err


def test_what_cannot_be_examined_is_told(script: Path) -> None:
    """And the script's exit code is passed on."""
    ran = command("doctor", "train.py", "exit", here=script, FAILS="1")
    assert ran.code == 7
    assert "hotset: no report: the loader could not be examined\nTraceback" in ran.err
    assert ran.err.endswith("ValueError: the data is closed\n")


def test_only_the_first_of_several_processes_reports(script: Path) -> None:
    """All of them stop."""
    ran = command("doctor", "--steps", "2", "train.py", here=script, RANK="1", LOCAL_RANK="0")
    assert (ran.code, ran.out, ran.err) == (0, b"begins\n6\n22\n", "")
    ran = command("doctor", "train.py", here=script, RANK="0", LOCAL_RANK="0")
    assert ran.facts["batches"] == 3


def test_a_loader_without_a_batch_is_told(tmp_path: Path) -> None:
    """In other words than a script without a loader."""
    (tmp_path / "idle.py").write_text(
        "import torch\nfrom torch.utils.data import DataLoader\n"
        "loader = DataLoader(torch.zeros(3))\niter(loader)\n"
    )
    ran = command("doctor", "idle.py", here=tmp_path)
    assert ran.code == 0
    assert ran.err == (
        "hotset: no report: the script made a DataLoader, but took no batch from it in this "
        "process\n"
    )


def test_forks_of_the_script_do_not_report(tmp_path: Path) -> None:
    """Though they come to its end too."""
    (tmp_path / "forking.py").write_text(
        "import os, torch\nfrom torch.utils.data import DataLoader\n"
        "list(DataLoader(torch.zeros(3)))\n"
        "child = os.fork()\n"
        "list(DataLoader(torch.zeros(3)))\n"
        "child and os.waitpid(child, 0)\n"
    )
    ran = command("doctor", "forking.py", here=tmp_path)
    assert sorted(batches for _, batches, _, _ in ran.facts["loaders"]) == [3, 3]


LIGHTNING = """
    import sys
    import torch
    import lightning.pytorch as pl
    from torch.utils.data import DataLoader, TensorDataset

    class Model(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = torch.nn.Linear(2, 1)
        def training_step(self, batch, number):
            return self.net(batch[0]).mean()
        def validation_step(self, batch, number):
            self.net(batch[0])
        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.1)

    trainer = pl.Trainer(
        max_epochs=2, accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_model_summary=False, enable_progress_bar=False, num_sanity_val_steps=0,
    )
    train = DataLoader(TensorDataset(torch.zeros(12, 2)), batch_size=2, shuffle=True)
    trainer.fit(Model(), train, DataLoader(TensorDataset(torch.zeros(4, 2)), batch_size=1))
    print("fitted", trainer.global_step)
"""

TRANSFORMERS = """
    import torch
    from torch.utils.data import Dataset
    from transformers import Trainer, TrainingArguments

    class Rows(Dataset):
        def __len__(self):
            return 12
        def __getitem__(self, index):
            return {"x": torch.full((2,), float(index)), "labels": torch.tensor(0.0)}

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net = torch.nn.Linear(2, 1)
        def forward(self, x, labels=None):
            return {"loss": self.net(x).mean()}

    arguments = TrainingArguments(
        "out", num_train_epochs=2, per_device_train_batch_size=2, report_to=[],
        save_strategy="no", use_cpu=True, disable_tqdm=True, logging_strategy="no",
    )
    trainer = Trainer(Model(), arguments, train_dataset=Rows())
    trainer.train()
    print("trained", trainer.state.global_step)
"""


def of_framework(text: str, here: Path, *options: str) -> Ran:
    """A script of a framework's, whole or stopped."""
    (here / "fit.py").write_text(inspect.cleandoc(text))
    return command("doctor", *options, "fit.py", here=here)


def test_lightning_is_seen_and_stopped(tmp_path: Path) -> None:
    """Its training and its validation, epoch by epoch."""
    ran = of_framework(LIGHTNING, tmp_path)
    assert (ran.code, ran.out.splitlines()[-1]) == (0, b"fitted 12")
    loaders = sorted(ran.facts["loaders"])
    assert [each[1:3] for each in loaders] == [[8, 2], [12, 2]]
    ran = of_framework(LIGHTNING, tmp_path, "--steps", "8")
    assert ran.code == 0
    assert b"fitted" not in ran.out
    assert sorted(each[1:3] for each in ran.facts["loaders"]) == [[2, 1], [6, 1]]
    assert "Traceback" not in ran.err


def test_transformers_are_seen_and_stopped(tmp_path: Path) -> None:
    """Through accelerate's loader, which wraps torch's."""
    ran = of_framework(TRANSFORMERS, tmp_path)
    assert (ran.code, ran.out.splitlines()[-1]) == (0, b"trained 12")
    assert (ran.facts["batches"], ran.facts["ends"]) == (12, [True, True])
    ran = of_framework(TRANSFORMERS, tmp_path, "--steps", "8")
    assert ran.code == 0
    assert b"trained" not in ran.out
    assert (ran.facts["epochs"], ran.facts["ends"]) == ([0] * 6 + [1] * 2, [True, False])
    assert "Traceback" not in ran.err
