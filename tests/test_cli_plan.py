"""`hotset plan`: what is parsed, what is printed, and the exit codes."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hotset import cli

MODULE = """
import torch
from torch.utils.data import DataLoader, TensorDataset
from torchvision import transforms as T

from tests.streams import Pictures

chain = T.Compose([T.ToTensor(), T.Normalize((0.5,) * 3, (0.2,) * 3)])
pictures = Pictures(20, chain)
loader = DataLoader(pictures, batch_size=5)


def rows():
    return TensorDataset(torch.zeros(6, 2))


def mirrored(image):
    return image.flip(-1)


grown = Pictures(20, T.Compose([T.ToTensor(), mirrored]))
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A current directory with a module, which is forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("COLUMNS", "100")
    (tmp_path / "planned_data.py").write_text(MODULE)
    yield tmp_path
    sys.modules.pop("planned_data", None)


def test_a_loader_is_planned(capsys: pytest.CaptureFixture[str]) -> None:
    """As a table that fits, the cut that is made marked, and the verdict last."""
    assert cli.main(["plan", "planned_data:loader", "--device", "cpu", "--step-ms", "1e6"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 100
    assert [line.split()[0] for line in lines[:4]] == ["step", "Pictures", "ToTensor", "Normalize"]
    marked = [line for line in lines if line.startswith("*")]
    assert len(marked) == 1
    assert marked[0].split()[1] == "Pictures"
    assert "4.0 KB" in marked[0]
    assert any("15.5 KB" in line and "for what 4.0 KB" in line for line in lines)
    assert "data: 20 samples, 4.0 KB, resident on cpu" in lines
    assert lines[-1].startswith("leave it: the step takes 17 min a batch and the data ")


def test_plain_values_take_the_tables_place(capsys: pytest.CaptureFixture[str]) -> None:
    """With `--json` alone nothing else is printed."""
    line = "plan planned_data:rows --workers 2 --batch-size 3 --samples 2 --step-ms 1e6 --json"
    assert cli.main(line.split()) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["samples"], found["bytes_held"], found["tier"]) == (6, 48, "device")
    prediction = found["prediction"]
    assert (prediction["batch_size"], prediction["workers"]) == (3, 2)
    assert (prediction["step_ms"], prediction["verdict"]) == (1e6, "leave it")
    assert [cut["behind"] for cut in found["cuts"]] == ["TensorDataset"]


def test_plain_values_go_to_a_file(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Beside the table."""
    assert cli.main(["plan", "planned_data:rows", "--json", "plan.json"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "written: plan.json"
    assert json.loads((here / "plan.json").read_text())["samples"] == 6
    assert cli.main(["plan", "planned_data:rows", "--json", "none/plan.json"]) == 2
    error = capsys.readouterr().err
    assert error == "hotset: none/plan.json cannot be written: No such file or directory\n"


def test_budgets_may_be_of_several_memories(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And reach the plan, with the folder of a cache, which is not made."""
    line = "plan planned_data:grown --cache stores --budget host=1KB,disk=4KB --json"
    assert cli.main(line.split()) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["tier"], found["bytes_held"]) == ("disk", 4000)
    assert [cut["is_chosen"] for cut in found["cuts"]] == [True, False, False]
    assert not (here / "stores").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--budget 8apples", "`budget` must be bytes, '8GB' or '60%', got '8apples'"),
        ("--budget host=", "`--budget` must be an amount, or amounts as in device=8GB,host=50%"),
        ("--budget ram=1GB", "`budget` may name device, host, disk, got 'ram'"),
        ("--tier near", "`tier` must be one of auto, device, mixed, host, disk, got 'near'"),
        ("--policy fifo", "`policy` must be one of auto, static, next-use, frequency, lru"),
        ("--device tpu", "`device` must be like 'cpu' or 'cuda:0', got 'tpu'"),
        ("--step-ms -1", "`step` must be a callable that takes a batch, milliseconds per batch"),
        ("--samples 1", "`samples` must be a whole number of at least 2, got 1"),
    ],
)
def test_wrong_arguments_are_told_in_a_sentence(
    options: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the exit code of wrong usage."""
    assert cli.main(["plan", "planned_data:rows", *options.split()]) == cli.EXIT_USAGE
    assert capsys.readouterr().err.startswith(f"hotset: {words}")


def test_data_that_is_not_there_is_named(capsys: pytest.CaptureFixture[Any]) -> None:
    """With what may have been meant."""
    assert cli.main(["plan", "planned_data:picture"]) == cli.EXIT_USAGE
    assert "did you mean pictures?" in capsys.readouterr().err
