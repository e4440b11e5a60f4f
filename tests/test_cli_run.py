"""`hotset run`: what is parsed, what is printed where, and how it ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from hotset import cli

SCRIPT = """
import hashlib, random, sys
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

class Rows(Dataset):
    def __len__(self):
        return 40
    def __getitem__(self, index):
        return torch.full((3, 4), float(index)), index

if __name__ == "__main__":
    torch.manual_seed(1)
    loader = DataLoader(Rows(), batch_size=6, shuffle=True, num_workers=2, drop_last=True)
    for epoch in range(2):
        for x, y in loader:
            print(y.tolist(), x.dtype, hashlib.md5(x.numpy().tobytes()).hexdigest())
        print(torch.initial_seed(), torch.rand(1).item(), random.random() < 2, sys.argv[1:])
    print("end", __name__, __file__, file=sys.stderr)
    sys.exit(7)
"""
LIGHTNING = """
import logging, warnings
warnings.filterwarnings("ignore")
import lightning as L
import torch
from torch.utils.data import DataLoader, TensorDataset

class Net(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 2)
        self.seen = 0
    def training_step(self, batch, number):
        x, y = batch
        self.seen += int(y.sum())
        return torch.nn.functional.cross_entropy(self.layer(x), y % 2)
    def validation_step(self, batch, number):
        self.seen += len(batch[0])
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)

L.seed_everything(3, workers=True)
data = TensorDataset(torch.randn(20, 4), torch.arange(20))
net = Net()
trainer = L.Trainer(
    max_epochs=2, accelerator="cpu", logger=False, enable_checkpointing=False,
    enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=1,
)
trainer.fit(
    net,
    DataLoader(data, batch_size=4, shuffle=True, num_workers=1),
    DataLoader(TensorDataset(torch.randn(6, 4)), batch_size=3, collate_fn=lambda rows: rows[0]),
)
print("seen", net.seen, round(float(net.layer.weight.sum()), 5))
"""
TRAINER = """
import torch
from torch.utils.data import Dataset, default_collate
from transformers import Trainer, TrainingArguments

class Rows(Dataset):
    def __init__(self, count):
        self.count = count
    def __len__(self):
        return self.count
    def __getitem__(self, index):
        return {"x": torch.full((4,), index / 10), "labels": torch.tensor(index % 2)}

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 2)
    def forward(self, x, labels):
        logits = self.layer(x)
        return {"loss": torch.nn.functional.cross_entropy(logits, labels), "logits": logits}

torch.manual_seed(2)
net = Net()
trainer = Trainer(
    net,
    TrainingArguments(
        "out", num_train_epochs=2, per_device_train_batch_size=4, use_cpu=True, report_to=[],
        save_strategy="no", eval_strategy="epoch", disable_tqdm=True, logging_strategy="no",
        remove_unused_columns=False, seed=4, dataloader_num_workers=1,
    ),
    data_collator=default_collate,
    train_dataset=Rows(16),
    eval_dataset=Rows(6),
)
trainer.train()
print("weights", round(float(net.layer.weight.sum()), 5))
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A current directory with a script, and an interpreter that is put back."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    monkeypatch.setenv("COLUMNS", "100")
    (tmp_path / "train.py").write_text(SCRIPT)
    state = torch.get_rng_state()
    yield tmp_path
    torch.set_rng_state(state)


def ran(*arguments: str) -> tuple[int, str, str]:
    """Exit code, output and errors of Python with some arguments."""
    done = subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "TOKENIZERS_PARALLELISM": "false", "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def test_a_script_prints_what_it_prints_by_itself(here: Path) -> None:
    """Byte for byte, with its exit code; what was done goes to standard error, and to a file."""
    code, out, err = ran("train.py", "a", "--json")
    found = ran("-m", "hotset", "run", "--json", "done.json", "train.py", "a", "--json")
    assert (code, out) == (7, found[1])
    assert found[0] == 7
    assert out.count("\n") == 14
    assert found[2].startswith(err)
    said = found[2].removeprefix(err)
    assert said.startswith("\nhotset run train.py: 1 of 1 loader accelerated, ")
    assert "DataLoader of Rows, 40 samples by 6: accelerated\n" in said
    assert said.endswith(f"\nwritten: {here / 'done.json'}\n")
    values = json.loads((here / "done.json").read_text())
    assert (values["schema"], values["version"]) == ("hotset-run-summary", 1)
    assert [(r["batches"], r["plan"]["tier"]) for r in values["loaders"]] == [(12, "device")]


def test_a_module_is_run(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By its name, with what stands behind it as its own."""
    (here / "parcel").mkdir()
    (here / "parcel" / "__init__.py").touch()
    (here / "parcel" / "go.py").write_text("import sys; print(__name__, sys.argv[1:])")
    assert cli.main(["run", "-m", "parcel.go", "--dry-run", "-m"]) == 0
    printed = capsys.readouterr()
    assert printed.out == "__main__ ['--dry-run', '-m']\n"
    assert printed.err.startswith("\nhotset run -m parcel.go: it went through no DataLoader, ")
    for name in ("parcel", "parcel.go"):  # as a process of its own would forget it
        sys.modules.pop(name, None)


def test_a_dry_run_ends_well(capsys: pytest.CaptureFixture[str]) -> None:
    """Without a batch; lines fit."""
    assert cli.main(["run", "--dry-run", "--device", "cpu", "train.py"]) == 0
    printed = capsys.readouterr()
    assert printed.out == ""
    lines = printed.err.splitlines()
    assert max(map(len, lines)) <= 100
    assert lines[3] == "DataLoader of Rows, 40 samples by 6: would be accelerated"
    assert lines[4] == "  steps     Rows → once"
    assert lines[5] == "  kept      40 samples, 2.2 KB, tier device; batches come out on cpu"
    assert lines[6].startswith("  predicted ")


def test_what_cannot_be_run_is_said(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No script; no place for the file, which is found out before the script runs."""
    assert cli.main(["run", "nothing.py"]) == 2
    assert "there is no script 'nothing.py'" in capsys.readouterr().err
    assert cli.main(["run", "--json", "no/where.json", "train.py"]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "no/where.json cannot be written: there is no folder" in printed.err


def test_an_unknown_device_is_refused_before_the_script_runs(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not after it has run for hours."""
    assert cli.main(["run", "--device", "moon", "train.py"]) == cli.EXIT_USAGE
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "`device` must be like 'cpu' or 'cuda:0', got 'moon'" in printed.err


def test_a_batch_that_differs_ends_it_with_its_text(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 1, whatever the script makes of errors."""
    script = SCRIPT.partition("if __name__")[0] + textwrap.dedent(
        """
        batches = iter(DataLoader(Rows(), batch_size=4))
        Rows.__getitem__ = lambda self, index: (torch.zeros(3, 4) - 1, index)
        try:
            next(batches)
        except Exception:
            print("went on")
        """
    )
    (here / "train.py").write_text(script)
    assert cli.main(["run", "train.py"]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "\nhotset: sample 0 of Rows differs from what your own chain gives" in printed.err


def test_lightning_trains_by_it(here: Path) -> None:
    """The same weights come of it; one loader is accelerated, the other says why not."""
    (here / "fit.py").write_text(LIGHTNING)
    plain, found = ran("fit.py"), ran("-m", "hotset", "run", "fit.py")
    assert plain[0] == found[0] == 0
    assert "seen" in plain[1]
    assert plain[1] == found[1]
    assert "DataLoader of TensorDataset, 20 samples by 4: accelerated\n" in found[2]
    assert "DataLoader of TensorDataset, 6 samples by 3: left alone\n" in found[2]
    assert "its collate_fn (<lambda>) is its own" in found[2]


def test_the_trainer_of_transformers_trains_by_it(here: Path) -> None:
    """The same weights come of it; its loaders are seen through the library that wraps them."""
    (here / "fit.py").write_text(TRAINER)
    plain, found = ran("fit.py"), ran("-m", "hotset", "run", "fit.py")
    assert plain[0] == found[0] == 0, plain[2] + found[2]
    assert plain[1].splitlines()[-1] == found[1].splitlines()[-1]
    assert plain[1].splitlines()[-1].startswith("weights")
    assert "DataLoader of Rows, 16 samples by 4: accelerated\n" in found[2]
    assert "DataLoader of Rows, 6 samples by 8, 2 of them: accelerated\n" in found[2]
