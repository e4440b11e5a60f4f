"""The comparison of cache policies: exact counts, complete output, pages that need nothing."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from hotset.bench import cache, cache_report
from hotset.bench.cache import measure
from hotset.bench.cache_orders import (
    ORDERS,
    PERMUTATION,
    RANKS_4,
    REPLACEMENT,
    WEIGHTED,
    simulate,
)
from hotset.bench.cache_page import as_page, as_picture
from hotset.bench.cache_report import POLICIES, CacheReport, CacheSettings
from hotset.bench.cache_theory import theory
from hotset.cli import main
from hotset.errors import ConfigError
from hotset.placement.policy import NextUse, Static

TINY = CacheSettings(samples=400, batch_size=8, shares=(0.25, 0.5), settle=2, count=1)


@pytest.fixture(scope="module")
def report() -> CacheReport:
    """A comparison of a few samples."""
    return measure(TINY, lambda text, detail="": None)


def test_orders_are_what_they_are_called() -> None:
    """As many reads as passes; permutations, parts of permutations, draws by weight."""
    for order in ORDERS:
        epochs = order.epochs(1_000, 3, seed=1)
        assert sum(map(len, epochs)) == 3_000
        assert all(epoch.min() >= 0 and epoch.max() < 1_000 for epoch in epochs)
        again = order.epochs(1_000, 3, seed=1)
        assert all(np.array_equal(a, b) for a, b in zip(epochs, again, strict=True))
        is_deal = order.draw == "permutation"
        assert all((len(np.unique(epoch)) == len(epoch)) == is_deal for epoch in epochs)
    assert [len(epoch) for epoch in RANKS_4.epochs(1_000, 1, seed=1)] == [250] * 4
    drawn = np.bincount(np.concatenate(WEIGHTED.epochs(50, 400, seed=1)), minlength=50)
    assert drawn / drawn.sum() == pytest.approx(WEIGHTED.weights(50), abs=0.01)
    assert WEIGHTED.weights(3) / WEIGHTED.weights(3)[0] == pytest.approx([1, 2**-0.8, 3**-0.8])


def test_counted_are_the_epochs_asked_for() -> None:
    """Those before and after do not count; short last batches do."""
    epochs = PERMUTATION.epochs(103, 5, seed=1)
    counts = simulate(Static(103, 50), epochs, batch_size=8, skip=2, count=2)
    assert (counts.reads, counts.misses) == (206, 106)
    assert counts.hit_rate == 1 - 106 / 206
    known = NextUse(103, 50, window=1)
    assert simulate(known, epochs, batch_size=8, skip=0, count=5).reads == 515


def test_curves_rise_from_nothing_to_all() -> None:
    """Every formula, and next-use is nowhere below static, nor static below LRU."""
    shares = np.linspace(0, 1, 41)
    for order in ORDERS:
        curves = {name: theory(order, name, 500) for name in POLICIES}
        rates = {name: curve(shares) for name, curve in curves.items() if curve is not None}
        for values in rates.values():
            assert values[0] == pytest.approx(0, abs=1e-6)
            assert values[-1] == pytest.approx(1, abs=1e-6)
            assert np.all(np.diff(values) >= 0)
        assert np.all(rates["static"] >= rates["lru"] - 0.01)
        if "next-use" in rates:
            assert np.all(rates["next-use"] >= rates["static"] - 0.01)


def test_curve_of_next_use_with_replacement_is_the_formula() -> None:
    """With u = exp(-T): f = 1 - u (1 + T), and 1 - u of the reads are hits."""
    curve = theory(REPLACEMENT, "next-use", 100)
    assert curve is not None
    times = np.array([0.2, 0.532, 0.961, 1.678])
    shares = 1 - np.exp(-times) * (1 + times)
    assert curve(shares) == pytest.approx(1 - np.exp(-times), abs=1e-3)


def test_report_is_complete(report: CacheReport) -> None:
    """As JSON and as text: every order, policy and share, exact where it can be."""
    values: dict[str, Any] = json.loads(json.dumps(report.as_dict(), allow_nan=False))
    found = [(point["order"], point["policy"], point["share"]) for point in values["points"]]
    expected = [(o.key, p, f) for o in ORDERS for p in POLICIES for f in TINY.shares]
    assert found == expected
    assert all(point["reads"] == 400 for point in values["points"])
    static = report.of(PERMUTATION, "static")
    assert [(point.misses, point.hit_rate, point.theory) for point in static] == [
        (300, 0.25, 0.25),
        (200, 0.5, 0.5),
    ]
    text = str(report)
    assert all(order.name in text for order in ORDERS)
    assert "0.500 (0.500)" in text
    assert "(–)" in text
    assert "400 samples in batches of 8; 400 reads are counted after 800" in text
    assert text.count("furthest from theory: ") == len(ORDERS)


def test_page_needs_nothing_else(report: CacheReport) -> None:
    """A plot for each order in the page's own colours, its figures, and what they say."""
    page = as_page(report)
    assert page.count("<svg") == page.count("</svg>") == len(ORDERS)
    assert page.count("<table") == len(ORDERS)
    assert all(order.name in page for order in ORDERS)
    assert "0.500 (0.500)" in page
    assert "a fixed set cannot be beaten: 0.50 of the reads" in page
    assert not re.search(r"<script|<link|<img|https?://|@import|url\((?!#)", page)
    assert not re.search(r"#0102[0-9a-f]{2}", page)
    rarer = CacheReport(
        CacheSettings(samples=400, shares=(0.25,)),
        report.date,
        report.versions,
        [point for point in report.points if point.share == 0.25],
    )
    assert "cannot be beaten" not in as_page(rarer)


def test_picture_is_a_png(report: CacheReport) -> None:
    """With room for all panels."""
    picture = as_picture(report)
    assert picture.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = (int.from_bytes(picture[at : at + 4]) for at in (16, 20))
    assert width > 1.5 * height > 1000


def test_command_writes_what_is_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All three files, and the tables on the terminal."""
    monkeypatch.setattr(cache_report, "QUICK_SHARES", (0.5,))
    files = [tmp_path / name for name in ("a.json", "a.html", "a.png")]
    options = [
        word
        for option, file in zip(("--json", "--html", "--png"), files, strict=True)
        for word in (option, str(file))
    ]
    status = main(["bench", "cache", "--quick", "--samples", "200", "--batch-size", "9", *options])
    printed = capsys.readouterr().out
    assert status == 0
    assert "with replacement" in printed
    assert f"written: {', '.join(map(str, files))}" in printed
    values = json.loads(files[0].read_text(encoding="utf-8"))
    assert values["schema"] == "hotset.bench.cache"
    assert (values["parameters"]["samples"], values["parameters"]["settle"]) == (200, 8)
    assert files[1].read_text(encoding="utf-8").startswith("<!doctype html>")
    assert files[2].read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["--samples", "99"], "`--samples` must be at least 100, got 99"),
        (["--batch-size", "0"], "`--batch-size` must be at least 1, got 0"),
        (["--seed", "-1"], "`--seed` must be at least 0, got -1"),
        (["--html", "nowhere/a.html"], "`--html` must name a file in a folder that is there"),
        (["--png", "nowhere/a.png"], "`--png` must name a file in a folder that is there"),
    ],
)
def test_what_makes_no_sense_is_refused(
    arguments: list[str], error: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the option's name, before anything is simulated."""
    assert main(["bench", "cache", *arguments]) == 2
    printed = capsys.readouterr()
    assert error in printed.err
    assert printed.out == ""


def test_plots_without_matplotlib_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With what to install, before anything is simulated."""
    monkeypatch.setattr(cache, "find_spec", lambda name: None)
    assert main(["bench", "cache", "--html", str(tmp_path / "a.html")]) == 2
    assert "need matplotlib: pip install 'hotset[demo]'" in capsys.readouterr().err


def test_settings_refuse_what_is_too_small() -> None:
    """Also from Python."""
    with pytest.raises(ConfigError, match="`--samples` must be at least 100, got 5"):
        CacheSettings(samples=5)
