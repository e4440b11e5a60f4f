"""The comparison of image folders: exact counts, complete output. No time decides."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

pytest.importorskip("torchvision")
pytest.importorskip("skimage")

from hotset.bench.image_report import FIGURES, ImageReport
from hotset.bench.image_rows import MEMORY, STORE, ImageSettings
from hotset.bench.images import measure
from hotset.bench.photographs import PHOTOGRAPHS, write_photographs
from hotset.cli import main
from hotset.errors import ConfigError

TINY = ImageSettings(
    samples=16, batch_size=4, workers=1, rounds=2, part_batches=2, epochs=1, arrays=64
)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> ImageReport:
    """A comparison of a few files."""
    return measure(TINY, lambda text, detail="": None, tmp_path_factory.mktemp("scratch"))


def test_photographs_are_a_folder_for_each_scene(tmp_path: Path) -> None:
    """Of about the size that is promised, the same for the same seed."""
    written = write_photographs(tmp_path / "a", 10)
    files = sorted((tmp_path / "a").glob("*/*.jpg"))
    assert written == sum(file.stat().st_size for file in files)
    assert len(files) == 10
    assert len({file.parent for file in files}) == len(PHOTOGRAPHS)
    for file in files:
        with Image.open(file) as image:
            width, height = image.size
        assert abs(width - 500) <= 40
        assert abs(height - 375) <= 40
    write_photographs(tmp_path / "b", 10)
    again = sorted((tmp_path / "b").glob("*/*.jpg"))
    assert [file.read_bytes() for file in again] == [file.read_bytes() for file in files]


def test_kept_rows_call_no_transform(report: ImageReport) -> None:
    """After the first epoch; every row has a rate in every round."""
    calls = {row.key: row.calls for row in report.rows}
    assert calls[STORE] == calls[MEMORY] == 0
    assert all(len(spread.values) == TINY.rounds for spread in report.rates.values())
    assert all(value > 0 for spread in report.rates.values() for value in spread.values)


def test_report_is_complete(report: ImageReport) -> None:
    """As JSON and as text: every ratio with its spread and its bound."""
    values: dict[str, Any] = json.loads(json.dumps(report.as_dict(), allow_nan=False))
    assert [(r["row"], r["to"]) for r in values["ratios"]] == [f[:2] for f in FIGURES]
    for ratio in values["ratios"]:
        rounds = zip(
            report.rates[ratio["row"]].values, report.rates[ratio["to"]].values, strict=True
        )
        assert ratio["values"] == [row / to for row, to in rounds]
    text = str(report)
    assert all(what in text and bound in text for _, _, what, bound in FIGURES)
    assert "16 JPEG files" in text


def test_scratch_is_left_as_it_was(tmp_path: Path) -> None:
    """Gigabytes are not left behind."""
    measure(TINY, lambda text, detail="": None, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_settings_that_make_no_sense_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """By the option's name."""
    with pytest.raises(ConfigError, match="`--batch-size` must be at least 1, got 0"):
        ImageSettings(batch_size=0)
    assert main(["bench", "images", "--samples", "10"]) == 2
    assert "`--samples` must be at least 384" in capsys.readouterr().err
