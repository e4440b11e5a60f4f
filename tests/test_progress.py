"""Progress: the line that changes, what it says, and who is told."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
import torch

import hotset
from hotset.errors import ConfigError
from hotset.progress import Bar, Progress, shown


def test_live_progress_rewrites_one_line_now_and_then() -> None:
    """On a terminal a line is rewritten ten times a second at most, and is gone before the next."""
    now = 0.0
    stream = io.StringIO()
    progress = Progress(stream, is_live=True, clock=lambda: now)
    progress.update("training", 1, 4)
    progress.update("training", 2, 4)  # too soon
    now = 1.0
    progress.update("training", 3, 4)
    progress.say("done")
    progress.clear()
    assert stream.getvalue() == "\r 25%  training\x1b[K\r 75%  training\x1b[K\r\x1b[Kdone\n"


def test_progress_is_sparse_where_nobody_watches() -> None:
    """Into a file only whole lines are written."""
    stream = io.StringIO()
    progress = Progress(stream)
    progress.update("training", 1, 4)
    progress.say("done")
    progress.clear()
    assert stream.getvalue() == "done\n"


def test_bar_says_rate_and_time_left() -> None:
    """What was there before the first call does not count into the rate."""
    now, stream = 0.0, io.StringIO()
    progress = Progress(stream, is_live=True, clock=lambda: now)
    bar = Bar("building a.hotset", progress, clock=lambda: now)
    bar(2000, 10_000)
    now = 4.0
    bar(3000, 10_000)
    bar.clear()
    assert stream.getvalue() == (
        "\r 20%  building a.hotset: 2,000/10,000\x1b[K"
        "\r 30%  building a.hotset: 3,000/10,000, 250 samples/s, 0:28 left\x1b[K"
        "\r\x1b[K"
    )
    assert (bar.read, bar.rate, bar.seconds) == (1000, 250.0, 4.0)


def test_bar_does_without_a_total() -> None:
    """Where nobody knows how many samples come, there is no share and no time left."""
    now = 0.0
    bar = Bar("building a.hotset", Progress(io.StringIO(), is_live=True), clock=lambda: now)
    assert bar.rate is None
    bar(0, None)
    now = 0.5
    bar(7, None)
    assert bar.line() == "building a.hotset: 7, 14 samples/s"


def test_users_callable_is_told_instead_of_a_bar(capsys: pytest.CaptureFixture[str]) -> None:
    """None is a bar where standard error is a terminal, False is silence."""
    calls: list[tuple[int, int | None]] = []
    with shown(lambda *n: calls.append(n), "a") as told:
        assert told is not None
        told(1, 2)
    with shown(False, "a") as told:
        assert told is None
    with shown(None, "a") as told:
        assert told is None  # standard error is none here
    assert calls == [(1, 2)]
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("asked", [None, True])
def test_bar_is_shown_on_a_terminal(asked: bool | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """And gone at the end."""
    stream = io.StringIO()
    monkeypatch.setattr(stream, "isatty", lambda: True)
    monkeypatch.setattr("sys.stderr", stream)
    with shown(asked, "a") as told:
        assert told is not None
        told(0, 4)
    assert stream.getvalue() == "\r  0%  a: 0/4\x1b[K\r\x1b[K"


def test_what_cannot_be_told_of_progress_is_refused() -> None:
    """With what is expected."""
    match = r"^`progress` must be a callable .*, None or True for a bar, or False .*, got 3$"
    with pytest.raises(ConfigError, match=match), shown(3, "a"):  # type: ignore[arg-type]
        pass


class Halves(torch.utils.data.Dataset[Any]):
    """Numbers that do not lie in memory."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Any:
        return torch.tensor(index / 2)


@pytest.mark.parametrize("progress", [True, False])
def test_true_and_false_are_for_every_reading(
    progress: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bar where somebody watches, and silence: of stores, and of what is kept in memory."""
    stream = io.StringIO()
    monkeypatch.setattr(stream, "isatty", lambda: True)
    monkeypatch.setattr("sys.stderr", stream)
    hotset.build(Halves(), tmp_path / "a.hotset", progress=progress, workers=0)
    assert ("building a.hotset: " in stream.getvalue()) == progress
    hotset.Loader(Halves(), 2, device="cpu", progress=progress)
    assert ("reading Halves: " in stream.getvalue()) == progress
    with pytest.raises(ConfigError, match="`progress` must be a callable"):
        hotset.Loader(Halves(), 2, device="cpu", progress=3)  # type: ignore[arg-type]
