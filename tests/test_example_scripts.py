"""The training scripts among the examples: each runs by itself, and learns."""

from __future__ import annotations

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
