"""`hotset.running.running`: scripts with their loaders accelerated where that is proven."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from hotset.doctor.scripts.script import Outcome, Target, run_target
from hotset.errors import FaithfulnessError
from hotset.running.running import run
from hotset.running.summary import Summary
from hotset.running.witness import OTHER, Witness

HEAD = """
import hashlib, random, sys
import numpy as np
import torch
from torch.utils.data import BatchSampler, DataLoader, Dataset, IterableDataset, RandomSampler
from torch.utils.data import SequentialSampler, Subset, TensorDataset

class Rows(Dataset):
    def __init__(self, count, scale=2.0):
        self.count, self.scale = count, scale
    def __len__(self):
        return self.count
    def __getitem__(self, index):
        return torch.full((3, 4), float(index)) * self.scale, index

def show(*parts):
    for part in parts:
        if isinstance(part, torch.Tensor):
            part = (part.dtype, tuple(part.shape), hashlib.md5(part.numpy().tobytes()).hexdigest())
        print(part, end=" ")
    print()

def drawn():
    print("drawn", torch.initial_seed(), torch.rand(1).item(), random.random(), np.random.rand())

torch.manual_seed(5); random.seed(5); np.random.seed(5)
"""
Output = Callable[[], str]
Run = Callable[..., tuple[Summary, Outcome]]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A current directory, and an interpreter that is put back when a script has run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    state = torch.get_rng_state()
    yield tmp_path
    torch.set_rng_state(state)


@pytest.fixture
def both(here: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a script plainly and by hotset; what both print must be the same, byte for byte."""

    def run_both(script: str, **options: object) -> tuple[Summary, Outcome]:
        target = written(here, script)
        capsys.readouterr()
        plain = run_target(target)
        expected = capsys.readouterr().out
        summary, outcome = run(target, told=False, **options)  # type: ignore[arg-type]
        assert capsys.readouterr().out == expected
        assert expected
        assert outcome.code == plain.code
        return summary, outcome

    return run_both


def written(folder: Path, script: str) -> Target:
    """A script with the head of all."""
    path = folder / "train.py"
    path.write_text(HEAD + textwrap.dedent(script))
    return Target(str(path))


def test_a_script_sees_the_same_batches_and_draws_the_same_numbers(both: Run) -> None:
    """With workers that stay and that do not, short batches dropped, and an epoch that is left."""
    summary, _ = both(
        """
        train = DataLoader(Rows(50), batch_size=8, shuffle=True, num_workers=2, drop_last=True)
        valid = DataLoader(Rows(20), batch_size=8)
        stays = DataLoader(
            Rows(30), batch_size=7, shuffle=True, num_workers=2, persistent_workers=True
        )
        for epoch in range(3):
            for number, (x, y) in enumerate(train):
                show(epoch, x, y)
                x.mul_(2)
                if epoch == 1 and number == 2:
                    break
            drawn()
            for x, y in valid:
                show(x, y)
            drawn()
            for number, (x, y) in enumerate(stays):
                show(x, y)
                if epoch == 0 and number == 1:
                    break
            drawn()
        print(len(train), len(iter(train)), type(train).__name__)
        if stays._iterator is not None:  # else its workers are waited for for five seconds each
            stays._iterator._shutdown_workers()
        """
    )
    assert [(r.dataset, r.samples, r.batch_size) for r in summary.loaders] == [
        ("Rows", 50, 8),
        ("Rows", 20, 8),
        ("Rows", 30, 7),
    ]
    assert [(r.is_accelerated, r.epochs, r.accelerated_epochs) for r in summary.loaders] == [
        (True, 4, 4),
        (True, 3, 3),
        (True, 3, 3),
    ]
    assert [r.batches for r in summary.loaders] == [6 + 3 + 6, 9, 2 + 5 + 5]
    assert [r.plan.tier for r in summary.loaders if r.plan] == ["device"] * 3


def test_samplers_and_generators_are_the_scripts_own(both: Run) -> None:
    """A generator of the loader's, a batch sampler; indices from the end are the dataset's."""
    summary, _ = both(
        """
        data = Rows(23)
        own = torch.Generator().manual_seed(3)
        a = DataLoader(data, batch_size=4, shuffle=True, generator=own)
        b = DataLoader(data, batch_sampler=BatchSampler(RandomSampler(data), 5, True))
        c = DataLoader(data, batch_size=3, sampler=[22, 4, 4, 3], num_workers=1)
        d = DataLoader(data, batch_size=3, sampler=[-1, 4, -20])
        for epoch in range(2):
            for loader in (a, b, c, d):
                for x, y in loader:
                    show(x, y)
                drawn()
            print(own.initial_seed(), torch.rand(1, generator=own).item())
        for one, two in zip(b, b):
            show(*one, *two)
        drawn()
        """
    )
    assert [r.is_accelerated for r in summary.loaders] == [True, True, True, False]
    assert summary.loaders[3].why.startswith("the sampler gave the index -1, from the end")
    assert "what it keeps is that of another loader over the same dataset" in str(summary)


def test_containers_are_the_scripts_own(both: Run) -> None:
    """A `TensorDataset`, a list of dictionaries, and a subset come out as they would."""
    summary, _ = both(
        """
        tensors = TensorDataset(torch.arange(12.0).reshape(6, 2), torch.arange(6))
        rows = [{"x": torch.full((2,), float(i)), "name": f"n{i}", "y": i} for i in range(9)]
        part = Subset(Rows(20), [3, 1, 19, 7])
        for data in (tensors, rows, part):
            loader = DataLoader(data, batch_size=4, shuffle=True)
            for epoch in range(2):
                for batch in loader:
                    print(type(batch).__name__)
                    show(*(batch.items() if isinstance(batch, dict) else batch))
        drawn()
        """
    )
    assert [(r.dataset, r.is_accelerated) for r in summary.loaders] == [
        ("TensorDataset", True),
        ("list", True),
        ("Subset of Rows", True),
    ]


PICTURES = """
from torchvision import transforms as T

class Pictures(Dataset):
    def __init__(self, count, transform):
        self.transform = transform
        self.data = (np.arange(count * 3 * 64) % 251).astype(np.uint8).reshape(count, 8, 8, 3)
    def __len__(self):
        return len(self.data)
    def __getitem__(self, index):
        return self.transform(self.data[index]), index
"""


def test_random_steps_keep_the_order(both: Run) -> None:
    """Labels come as they would; crops and flips are drawn on whole batches."""
    summary, _ = both(
        PICTURES
        + textwrap.dedent(
            """
        chain = T.Compose([
            T.ToPILImage(), T.RandomCrop(8, padding=1), T.RandomHorizontalFlip(), T.ToTensor()
        ])
        loader = DataLoader(Pictures(30, chain), batch_size=8, shuffle=True, num_workers=2)
        for epoch in range(3):
            for x, y in loader:
                show(y, tuple(x.shape), x.dtype)
            drawn()
        """
        )
    )
    (found,) = summary.loaders
    assert found.plan is not None
    assert found.is_accelerated
    assert {d.step: d.action for d in found.plan.decisions} == {
        "Pictures": "once",
        "ToPILImage": "once",
        "RandomCrop": "batch",
        "RandomHorizontalFlip": "batch",
        "ToTensor": "table",
    }
    assert not any("generator" in note for note in found.notes)


def test_random_steps_without_workers_are_spoken_of(here: Path) -> None:
    """They drew from the script's generator, and no longer do."""
    script = PICTURES + textwrap.dedent(
        """
        loader = DataLoader(
            Pictures(12, T.Compose([T.ToPILImage(), T.RandomHorizontalFlip(), T.ToTensor()]))
        )
        for _ in loader: pass
        """
    )
    summary, _ = run(written(here, script), told=False)
    (found,) = summary.loaders
    assert found.notes == (
        "without workers, its random steps drew from the script's own generator, and no longer do: "
        "the order of later epochs is another one, just as random",
    )


def test_what_is_not_proven_is_left_alone(both: Run) -> None:
    """Each with the reason, and with the batches that it would have given."""
    summary, outcome = both(
        """
        class Noisy(Rows):
            def __getitem__(self, index):
                return torch.from_numpy(np.random.rand(2)), index
        class Stream(IterableDataset):
            def __iter__(self):
                return iter(torch.arange(6.0))
        class Fetched(Rows):
            def __getitems__(self, indices):
                return [(self[i][0] - min(indices), i) for i in indices]
        class Late(DataLoader):
            def _get_iterator(self):
                return super()._get_iterator()
        class Broken(Rows):
            def __getitem__(self, index):
                if index == 7: raise ValueError("no such row")
                return super().__getitem__(index)
        def collate(samples):
            return torch.stack([x for x, _ in samples])
        def init(worker):
            torch.utils.data.get_worker_info().dataset.scale = 7.0
        loaders = [
            DataLoader(Rows(10), batch_size=4, collate_fn=collate),
            DataLoader(Noisy(10), batch_size=4),
            DataLoader(Stream(), batch_size=4),
            DataLoader(Fetched(10), batch_size=4),
            Late(Rows(10), batch_size=4),
            DataLoader(Rows(10), batch_size=4, num_workers=1, worker_init_fn=init),
            DataLoader(Rows(3), batch_size=None),
            DataLoader(Broken(10), batch_size=4, sampler=range(5)),
        ]
        for epoch in range(2):
            for loader in loaders:
                for batch in loader:
                    show(*batch if isinstance(batch, (list, tuple)) else [batch])
                drawn()
        """
    )
    assert outcome.code == 0
    assert [r.is_accelerated for r in summary.loaders] == [False] * 8
    assert [r.why for r in summary.loaders] == [
        "its collate_fn (collate) is its own",
        "Noisy: probed: it draws from a random generator",
        "Stream is an IterableDataset: its samples have no index to keep them by; make a store of "
        "it once, with hotset.build, and load that",
        "Fetched.__getitems__ gives other samples than its __getitem__",
        "Late has its own _get_iterator",
        "its worker_init_fn (init) may change what a worker reads",
        "the DataLoader has batch_size=None (no batches); give it a batch_size or a batch_sampler, "
        "hotset works on whole batches",
        "Broken failed at index 7: ValueError: no such row",
    ]
    assert [r.epochs for r in summary.loaders] == [2] * 8
    assert "DataLoader of Rows, 10 samples by 4: left alone" in str(summary)


def test_a_random_step_without_a_batched_form_is_named(here: Path) -> None:
    """The reason is the plan's."""
    script = PICTURES + textwrap.dedent(
        """
        def noise(x):
            return x + torch.rand(x.shape)
        loader = DataLoader(Pictures(12, T.Compose([T.ToTensor(), noise])), batch_size=4)
        for _ in loader: pass
        """
    )
    summary, _ = run(written(here, script), told=False)
    assert [r.why for r in summary.loaders] == ["noise is random and has no batched form"]


def test_a_subclass_that_goes_through_the_inherited_iterator_is_accelerated(both: Run) -> None:
    """What it does with batches, it does with those that come instead."""
    summary, _ = both(
        """
        class Doubled(DataLoader):
            def __iter__(self):
                for x, y in super().__iter__():
                    yield x * 2, y
        loader = Doubled(Rows(20), batch_size=6, shuffle=True, num_workers=2)
        for epoch in range(3):
            for x, y in loader:
                show(x, y)
            drawn()
        """
    )
    assert [(r.name, r.is_accelerated, r.epochs) for r in summary.loaders] == [("Doubled", True, 3)]


def test_a_loader_made_anew_over_one_dataset_is_read_once(both: Run) -> None:
    """All of them count as one; training and its evaluation share what is kept."""
    summary, _ = both(
        """
        data = Rows(20)
        def epoch(shuffle):
            for x, y in DataLoader(data, batch_size=6, shuffle=shuffle, num_workers=2):
                show(x, y)
            drawn()
        for _ in range(3):
            epoch(True)
            epoch(False)
        """
    )
    assert [(r.loaders, r.epochs, r.accelerated_epochs) for r in summary.loaders] == [
        (3, 3, 3),
        (3, 3, 3),
    ]
    assert [r.filled_s > 0 for r in summary.loaders] == [True, False]


def test_datasets_that_are_made_anew_are_not_kept_for_ever(both: Run) -> None:
    """What is kept of the first two was of use for an epoch only."""
    summary, _ = both(
        """
        def epoch():
            for x, y in DataLoader(Rows(20), batch_size=6, shuffle=True):
                show(x, y)
            drawn()
        for _ in range(5):
            epoch()
        """
    )
    assert [(r.is_accelerated, r.loaders, r.epochs, r.why) for r in summary.loaders] == [
        (True, 1, 1, ""),
        (True, 1, 1, ""),
        (
            False,
            3,
            3,
            "a dataset like it is made anew for every epoch: nothing that is kept would be used "
            "twice",
        ),
    ]


def test_datasets_in_turn_are_kept_and_let_go_of_when_others_follow(both: Run) -> None:
    """As folds of a cross-validation, each with a loader for every epoch."""
    summary, _ = both(
        """
        folds = [Rows(20, float(n)) for n in range(3)]
        def epoch(data):
            for x, y in DataLoader(data, batch_size=6, shuffle=True):
                show(x, y)
            drawn()
        for data in folds:
            for _ in range(3):
                epoch(data)
        epoch(folds[0])
        """
    )
    assert [(r.loaders, r.accelerated_epochs, r.epochs, r.why) for r in summary.loaders] == [
        (
            4,
            3,
            4,
            "what was kept of it was let go of, when a dataset like it was gone through",
        ),
        (3, 3, 3, ""),
        (3, 3, 3, ""),
    ]


def test_two_datasets_alike_in_turn_are_both_kept(both: Run) -> None:
    """As training and validation of one length, with a loader for every epoch."""
    summary, _ = both(
        """
        train, valid = Rows(20, 1.0), Rows(20, 2.0)
        for _ in range(3):
            for data in (train, valid):
                for x, y in DataLoader(data, batch_size=6, shuffle=True):
                    show(x, y)
            drawn()
        """
    )
    assert [(r.loaders, r.accelerated_epochs, r.epochs) for r in summary.loaders] == [
        (3, 3, 3),
        (3, 3, 3),
    ]


def test_a_dataset_that_changes_is_left_from_then_on(both: Run) -> None:
    """Where the plain loader would see the change; workers that stay do not see it."""
    summary, _ = both(
        """
        a = DataLoader(Rows(10), batch_size=4, shuffle=True)
        b = DataLoader(Rows(10), batch_size=4, num_workers=1, persistent_workers=True)
        for epoch in range(4):
            a.dataset.scale = b.dataset.scale = float(epoch // 2)
            for loader in (a, b):
                for x, y in loader:
                    show(x, y)
                drawn()
        """
    )
    assert [(r.accelerated_epochs, r.epochs, r.why) for r in summary.loaders] == [
        (2, 4, "the dataset was changed (.scale)"),
        (4, 4, ""),
    ]
    assert "accelerated for 2 epochs, then left alone" in str(summary)


SEEN = {
    "queue": ("deque([1.0])", "held[0] = 3.0"),
    "shared": ("multiprocessing.Value('d', 1.0)", "held.value = 3.0"),
    "array": ("np.ones(20)", "held[:] = 3.0"),
    "object": ("Holder()", "held.value = 3.0"),
    "file": ("Path('rows.txt'); held.write_text('1.0')", "held.write_text('3.0')"),
}
UNSEEN = """
import multiprocessing
from collections import deque
from pathlib import Path

class Holder:
    __slots__ = ("value",)
    def __init__(self):
        self.value = 1.0

def scale(held, index):
    if isinstance(held, deque):
        return held[0]
    if isinstance(held, np.ndarray):
        return float(held[index])
    return float(held.read_text()) if isinstance(held, Path) else held.value

class Far(Rows):
    def __getitem__(self, index):
        return torch.full((3,), float(index + 1)) * scale(held, index), index
"""


@pytest.mark.parametrize("way", SEEN)
@pytest.mark.parametrize("workers", [0, 1])
def test_a_change_that_no_attribute_shows_is_seen(both: Run, way: str, workers: int) -> None:
    """A few samples are read again before every later epoch; generators stay as they were."""
    make, then = SEEN[way]
    summary, _ = both(
        UNSEEN
        + textwrap.dedent(
            f"""
        held = {make}
        loader = DataLoader(Far(10), batch_size=4, shuffle=True, num_workers={workers})
        for epoch in range(4):
            if epoch == 2:
                {then}
            for x, y in loader:
                show(x, y)
            drawn()
        """
        )
    )
    (found,) = summary.loaders
    assert (found.accelerated_epochs, found.epochs) == (2, 4)
    assert found.why == "the dataset gives other samples than before"


def test_what_is_shared_with_workers_that_stay_is_seen(both: Run) -> None:
    """They see memory that processes share; a change of an attribute, they do not."""
    summary, _ = both(
        UNSEEN
        + textwrap.dedent(
            """
        held = multiprocessing.Value("d", 1.0)
        loader = DataLoader(Far(10), batch_size=4, num_workers=1, persistent_workers=True)
        for epoch in range(3):
            held.value = 3.0 if epoch == 2 else 1.0
            for x, y in loader:
                show(x, y)
            drawn()
        loader._iterator._shutdown_workers()
        """
        )
    )
    assert [r.accelerated_epochs for r in summary.loaders] == [2]


@pytest.mark.parametrize("is_anew", [False, True])
def test_a_dataset_that_grows_is_left_from_then_on(both: Run, is_anew: bool) -> None:
    """Also where each epoch has a loader of its own."""
    summary, _ = both(
        f"""
        from collections import deque
        class Grows(Dataset):
            def __init__(self):
                self.rows = deque(range(10))
            def __len__(self):
                return len(self.rows)
            def __getitem__(self, index):
                return torch.full((3,), float(self.rows[index])), index
        data = Grows()
        loader = DataLoader(data, batch_size=4, shuffle=True)
        for epoch in range(3):
            if epoch == 2:
                data.rows.extend([7, 8])
            if {is_anew}:
                loader = DataLoader(data, batch_size=4, shuffle=True)
            for x, y in loader:
                show(x, y)
            drawn()
        """
    )
    (found,) = summary.loaders
    assert (found.accelerated_epochs, found.epochs) == (2, 3)
    assert found.why == "the dataset has 12 samples by now, and had 10"


def test_samples_that_differ_whatever_the_seed_are_left_alone(
    both: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planning sees most of them; here only the second read of the witness differs."""
    monkeypatch.setattr(Witness, "change", lambda *_, **__: OTHER)
    summary, _ = both("for x, y in DataLoader(Rows(10), batch_size=4): show(x, y)")
    assert [(r.is_accelerated, r.why) for r in summary.loaders] == [
        (
            False,
            "two reads of the same samples in a row, with all generators seeded alike, differ",
        )
    ]


def test_tensors_of_a_class_of_their_own_are_left_alone(both: Run) -> None:
    """They would come out as plain ones."""
    summary, _ = both(
        """
        class Marked(torch.Tensor):
            pass
        class Marks(Rows):
            def __getitem__(self, index):
                return torch.full((3,), float(index)).as_subclass(Marked), index
        for x, y in DataLoader(Marks(10), batch_size=4):
            print(type(x).__name__, x.tolist(), y)
        """
    )
    assert [(r.is_accelerated, r.why) for r in summary.loaders] == [
        (False, "its samples have tensors of a class of their own (Marked)")
    ]


def test_what_a_dataset_prints_while_it_is_looked_at_is_not_the_scripts(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a dry run nothing else is read, and nothing is printed."""
    script = """
        class Loud(Rows):
            def __getitem__(self, index):
                print("reading", index, "\\udc80")
                return super().__getitem__(index)
        for x, y in DataLoader(Loud(10), batch_size=4):
            pass
        """
    summary, _ = run(written(here, script), told=False, is_dry=True)
    assert [r.is_accelerated for r in summary.loaders] == [True]
    assert capsys.readouterr().out == ""


def test_changed_transforms_are_left_from_then_on(both: Run) -> None:
    """As when a script turns its augmentation off for the last epochs."""
    summary, _ = both(
        PICTURES
        + textwrap.dedent(
            """
        loader = DataLoader(Pictures(12, T.ToTensor()), batch_size=4, shuffle=True)
        for epoch in range(3):
            if epoch == 1:
                loader.dataset.transform = T.Compose([T.ToTensor(), T.Normalize(0.5, 0.5)])
            for x, y in loader:
                show(x, y)
            drawn()
        """
        )
    )
    (found,) = summary.loaders
    assert (found.accelerated_epochs, found.epochs) == (1, 3)
    assert found.why == "the dataset was changed (.transform)"


def test_a_sampler_that_gives_no_indices_is_found_out_at_the_first_batch(both: Run) -> None:
    """Generators are put back, and the plain loader begins the epoch."""
    summary, _ = both(
        """
        class Sized(Rows):
            def __getitem__(self, index):
                index, size = index if isinstance(index, tuple) else (index, 2)
                return torch.full((size,), float(index)), index
        class Pairs:
            def __iter__(self):
                size = int(torch.randint(1, 5, ()))
                return iter([[(i, size) for i in torch.randperm(4).tolist()] for _ in range(3)])
            def __len__(self):
                return 3
        for workers in (0, 1):
            loader = DataLoader(Sized(10), batch_sampler=Pairs(), num_workers=workers)
            for epoch in range(2):
                for x, y in loader:
                    show(x, y)
                drawn()
        """
    )
    assert [r.is_accelerated for r in summary.loaders] == [False, False]
    assert [r.epochs for r in summary.loaders] == [2, 2]
    assert all(
        r.why.startswith("the sampler must give batches of whole numbers") for r in summary.loaders
    )


def test_a_batch_that_differs_stops_the_script(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Even one that catches every error."""
    script = """
        Rows.offset = 0
        Rows.__getitem__ = lambda self, index: (torch.full((2,), float(index + Rows.offset)), index)
        loader = DataLoader(Rows(10), batch_size=4)
        batches = iter(loader)
        Rows.offset = 1
        try:
            next(batches)
        except Exception:
            print("went on")
        finally:
            print("cleaned up")
        """
    summary, outcome = run(written(here, script), told=False)
    assert outcome.code == 1
    assert isinstance(outcome.error, FaithfulnessError)
    assert "sample 0 of Rows differs from what your own chain gives" in str(outcome.error)
    assert capsys.readouterr().out == "cleaned up\n"
    assert [r.batches for r in summary.loaders] == [0]


@pytest.mark.parametrize(
    ("ending", "code"),
    [("sys.exit(3)", 3), ("sys.exit()", 0), ("raise KeyError('gone')", 1), ("", 0)],
)
def test_the_end_of_a_script_is_its_own(
    here: Path, capsys: pytest.CaptureFixture[str], ending: str, code: int
) -> None:
    """Exit code and error are passed on, and what was done is told."""
    script = f"""
        for x, y in DataLoader(Rows(10), batch_size=5):
            {ending or "pass"}
        """
    summary, outcome = run(written(here, script), told=False)
    assert outcome.code == code
    assert not outcome.was_stopped
    assert ("KeyError: 'gone'" in capsys.readouterr().err) == ("KeyError" in ending)
    assert [r.batches for r in summary.loaders] == [1 if ending else 2]


def test_a_dry_run_plans_what_was_made_and_stops(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is read whole; the script ends where it first wants a batch."""
    script = """
        train = DataLoader(Rows(10), batch_size=5, shuffle=True)
        valid = DataLoader(Rows(4), batch_size=2, collate_fn=list)
        print("made")
        for x, y in train:
            print("went through")
        """
    summary, outcome = run(written(here, script), told=False, is_dry=True)
    assert outcome.code == 0
    assert outcome.was_stopped
    assert capsys.readouterr().out == "made\n"
    assert [(r.is_accelerated, r.why, r.epochs, r.filled_s) for r in summary.loaders] == [
        (True, "", 0, 0.0),
        (False, "its collate_fn (list) is its own", 0, 0.0),
    ]
    assert "1 of 2 loaders would be accelerated" in str(summary)
    assert "those it would make later were not seen" in str(summary)


def test_a_dry_run_of_a_script_that_goes_through_nothing(here: Path) -> None:
    """What it made is planned in the end."""
    summary, outcome = run(
        written(here, "kept = DataLoader(Rows(10), batch_size=5)"), told=False, is_dry=True
    )
    assert not outcome.was_stopped
    assert [r.is_accelerated for r in summary.loaders] == [True]
    assert summary.notes == ("nothing was done",)


def test_a_script_without_loaders_runs(both: Run) -> None:
    """And that is said."""
    summary, _ = both("drawn()")
    assert summary.loaders == ()
    assert "it went through no DataLoader" in str(summary)


def test_arguments_reach_the_script(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All of them."""
    target = written(here, "print(sys.argv[1:])")
    run(Target(target.name, arguments=("--device", "x")), told=False)
    assert capsys.readouterr().out == "['--device', 'x']\n"


def test_nothing_is_imported_before_the_script_imports_it(here: Path) -> None:
    """torch reads the environment when it is loaded, and a script may set that first."""
    heavy = "{'torch', 'numpy', 'numba', 'matplotlib', 'psutil'}"
    (here / "train.py").write_text(f"import sys; print({heavy} & set(sys.modules))")
    arguments = [sys.executable, "-m", "hotset", "run", "train.py"]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "set()\n")
