"""The training scripts among the examples: each runs by itself, and learns."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from examples import image_folder

EXAMPLES = Path(__file__).parent.parent / "examples"
CLASSES = {"cifar": 10, "image_folder": 4, "tabular": 4}
EPOCH = re.compile(
    r"epoch (\d+): loss (\d+\.\d{4}), accuracy (\d+\.\d)%; "
    r"validation: loss (\d+\.\d{4}), accuracy (\d+\.\d)%"
)


@dataclass(frozen=True)
class Output:
    """What a script printed.

    Attributes:
        first: its first line.
        epochs: number, loss, accuracy in percent, and loss and accuracy of the validation, each.
    """

    first: str
    epochs: list[tuple[float, ...]]


def run(name: str, *arguments: str, temporary: Path) -> Output:
    """A script in a process of its own, where warnings are errors."""
    # Python 3.12 and later warn where a process with threads forks, as torch's workers do.
    warnings = ["-W", "error", "-W", "ignore:This process:DeprecationWarning"]
    done = subprocess.run(
        [sys.executable, *warnings, str(EXAMPLES / f"{name}.py"), *arguments],
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
        env={**os.environ, "TMPDIR": str(temporary)},
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    first, *lines = done.stdout.splitlines()
    matches = [EPOCH.fullmatch(line) for line in lines]
    assert all(matches), lines
    return Output(first, [tuple(map(float, match.groups())) for match in matches if match])


@pytest.mark.parametrize(
    ("name", "arguments", "first"),
    [
        (
            "cifar",
            ("--images", "600", "--batch-size", "32", "--workers", "1"),
            "18 batches to train on, 4 to validate on",
        ),
        (
            "image_folder",
            ("--images", "96", "--batch-size", "8", "--workers", "1"),
            "12 batches to train on, 3 to validate on",
        ),
        (
            "tabular",
            ("--rows", "20000", "--batch-size", "256"),
            "78 batches to train on, 16 to validate on",
        ),
    ],
)
def test_scripts_learn(name: str, arguments: tuple[str, ...], first: str, tmp_path: Path) -> None:
    """The loss falls, is below that of guessing, and nothing stays behind."""
    output = run(name, *arguments, "--epochs", "2", temporary=tmp_path)
    assert output.first == first
    assert [epoch[0] for epoch in output.epochs] == [1, 2]
    (_, loss, *_), (_, after, accuracy, validation, right) = output.epochs
    assert after < loss
    assert max(after, validation) < torch.log(torch.tensor(float(CLASSES[name]))).item()
    assert min(accuracy, right) > 200 / CLASSES[name]
    assert list(tmp_path.iterdir()) == []


def test_image_folder_reads_a_folder_of_ones_own(tmp_path: Path) -> None:
    """As it is given, which stays."""
    for part, count in (("train", 24), ("val", 8)):
        image_folder.write_images(tmp_path / "data" / part, count, seed=3)
    output = run(
        "image_folder",
        *("--data", str(tmp_path / "data"), "--epochs", "1", "--batch-size", "8", "--workers", "0"),
        temporary=tmp_path,
    )
    assert output.first == "3 batches to train on, 1 to validate on"
    assert len([*(tmp_path / "data").rglob("*.jpg")]) == 32


def test_made_images_are_the_same_for_a_seed(tmp_path: Path) -> None:
    """JPEG files of about 300x225, as many for each class."""
    for folder in ("a", "b"):
        image_folder.write_images(tmp_path / folder, 6, seed=5)
    names = sorted(path.relative_to(tmp_path / "a") for path in (tmp_path / "a").rglob("*.jpg"))
    assert [str(name.parent) for name in names] == [f"class_{n}" for n in (0, 0, 1, 1, 2, 3)]
    for name in names:
        one, two = (np.asarray(Image.open(tmp_path / folder / name)) for folder in ("a", "b"))
        assert abs(one.shape[0] - 225) <= 20
        assert abs(one.shape[1] - 300) <= 20
        np.testing.assert_array_equal(one, two)


def test_scripts_know_nothing_of_hotset() -> None:
    """They are what is watched and accelerated without being edited."""
    assert [name for name in CLASSES if "hotset" in (EXAMPLES / f"{name}.py").read_text()] == []


SMALL = {
    "cifar": ("--images", "1280", "--epochs", "2", "--batch-size", "64"),
    "image_folder": ("--images", "192", "--epochs", "2", "--batch-size", "32"),
    "tabular": ("--rows", "40000", "--epochs", "2"),
}


def hotset(*arguments: str, temporary: Path) -> subprocess.CompletedProcess[str]:
    """A command of hotset's, in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "hotset", *arguments],
        capture_output=True,
        text=True,
        timeout=115,
        check=False,
        env={**os.environ, "TMPDIR": str(temporary)},
    )


@pytest.mark.parametrize("name", CLASSES)
def test_the_doctor_reports_on_scripts(name: str, tmp_path: Path) -> None:
    """All batches of both loaders are seen; the script prints what it prints; files are written."""
    json_file, page = tmp_path / "report.json", tmp_path / "report.html"
    files = ("--json", str(json_file), "--html", str(page))
    script = (str(EXAMPLES / f"{name}.py"), *SMALL[name])
    done = hotset("doctor", *files, *script, temporary=tmp_path)
    assert done.returncode == 0, done.stderr
    first, *epochs = done.stdout.splitlines()
    assert [EPOCH.fullmatch(line) is not None for line in epochs] == [True, True]
    batches = re.match(r"(\d+) batches to train on, (\d+) to validate on", first)
    assert batches is not None
    report = json.loads(json_file.read_text())
    seen = sorted(loader["batches"] for loader in report["loaders"])
    assert seen == sorted(2 * int(count) for count in batches.groups())
    assert page.read_text().count("<svg") >= 2
    assert f"hotset doctor: {EXAMPLES / name}.py" in done.stderr


@pytest.mark.parametrize("name", CLASSES)
def test_scripts_are_accelerated_unedited(name: str, tmp_path: Path) -> None:
    """Both loaders are; each epoch's lines are there, and the network learns as it did."""
    script = (str(EXAMPLES / f"{name}.py"), *SMALL[name])
    done = hotset("run", *script, temporary=tmp_path)
    assert done.returncode == 0, done.stderr
    losses = [float(EPOCH.fullmatch(line)[2]) for line in done.stdout.splitlines()[1:]]
    assert len(losses) == 2
    assert losses[1] < losses[0]
    assert f"{name}.py: 2 of 2 loaders accelerated" in done.stderr
