"""Progress: the line that changes, what it says, and who is told."""

from __future__ import annotations

import io

import pytest

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


def test_bar_is_shown_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """And gone at the end."""
    stream = io.StringIO()
    monkeypatch.setattr(stream, "isatty", lambda: True)
    monkeypatch.setattr("sys.stderr", stream)
    with shown(None, "a") as told:
        assert told is not None
        told(0, 4)
    assert stream.getvalue() == "\r  0%  a: 0/4\x1b[K\r\x1b[K"
