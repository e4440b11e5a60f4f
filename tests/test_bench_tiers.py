"""The comparison of tiers: exact counts, complete output. No time decides."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from hotset.bench.tier_report import FIGURES, TierReport
from hotset.bench.tier_rows import BY_HAND, HOST, PLAIN, PLAIN_0, SIMULATED, TierRows, TierSettings
from hotset.bench.tiers import measure
from hotset.bench.timing import Run, Stopwatch
from hotset.cli import main
from hotset.errors import ConfigError

TINY = TierSettings(
    rows=100, columns=3, batch_size=16, workers=1, rounds=2, part_batches=2, epochs=2
)


def _say(text: str, detail: str = "") -> None:
    pass


@pytest.fixture(scope="module")
def report() -> TierReport:
    """A comparison of a few rows."""
    return measure(TINY, _say)


def test_every_way_gives_every_row(report: TierReport) -> None:
    """In one epoch; nothing is copied to a device where there is none."""
    near = [f"simulated_{tier}" for tier in SIMULATED]
    assert [row.key for row in report.rows] == [PLAIN_0, PLAIN, BY_HAND, HOST, *near]
    assert [row.counts.samples for row in report.rows] == [100] * 7
    *others, mixed, host = [row.counts.link_bytes for row in report.rows]
    assert others == [0] * 5
    assert host == 100 * 20
    assert 0 < mixed < host
    assert mixed % 20 == 0
    assert [len(report.rates[row.key].values) for row in report.rows] == [2] * 7


def test_runs_cover_what_is_said(report: TierReport) -> None:
    """Parts of an epoch of the plain loaders, whole epochs of the others."""
    assert [row.run().samples for row in report.rows] == [32, 32, *[200] * 5]


def test_rows_by_hand_are_those_of_the_data() -> None:
    """Each with its label, in the order of the permutation; the number of threads is put back."""
    given: list[list[tuple[Tensor, Tensor]]] = []

    class _Kept(TierRows):
        def whole(self, key: str, name: str, loader: Any, copied: Any = None) -> Any:
            torch.manual_seed(3)
            given.append([(x, y) for x, y in loader])
            return super().whole(key, name, loader, copied)

    threads = torch.get_num_threads()
    rows = _Kept(TINY, Stopwatch(), _say)
    rows.all()
    assert torch.get_num_threads() == threads
    by_hand = given[0]
    torch.manual_seed(3)
    order = torch.randperm(100)
    assert torch.equal(torch.cat([x for x, _ in by_hand]), rows.x[order])
    assert torch.equal(torch.cat([y for _, y in by_hand]), rows.y[order])


def test_a_row_can_be_added() -> None:
    """Of any loader: it is counted over one epoch, and timed over whole ones."""
    rows = TierRows(TINY, Stopwatch(clock=iter(range(9)).__next__), _say)
    added = rows.whole("another", "another loader", [(rows.x[:60], rows.y[:60])])
    assert added.counts.samples == 60
    assert added.run() == Run(120, 1)


def test_report_is_complete(report: TierReport) -> None:
    """As JSON and as text: every ratio with its spread and its bound."""
    values: dict[str, Any] = json.loads(json.dumps(report.as_dict(), allow_nan=False))
    assert values["schema"] == "hotset.bench.tiers"
    assert values["parameters"] == TINY.as_dict()
    assert [(r["row"], r["to"]) for r in values["ratios"]] == [f[:2] for f in FIGURES]
    for ratio in values["ratios"]:
        rounds = zip(
            report.rates[ratio["row"]].values, report.rates[ratio["to"]].values, strict=True
        )
        assert ratio["values"] == [row / to for row, to in rounds]
    text = str(report)
    assert "100 rows of 3 float32 and a label, shuffled, batches of 16" in text
    assert all(what in text and bound in text for _, _, what, bound in FIGURES)
    assert all(row.name in text for row in report.rows)


def test_command_writes_its_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With the numbers that were asked for; those that make no sense are refused by name."""
    file = tmp_path / "result.json"
    numbers = {"rows": 64, "columns": 2, "batch_size": 8, "workers": 1, "rounds": 1}
    options = [f"--{name.replace('_', '-')}={number}" for name, number in numbers.items()]
    assert main(["bench", "tiers", "--quick", *options, "--json", str(file)]) == 0
    parameters = json.loads(file.read_text())["parameters"]
    assert {name: parameters[name] for name in numbers} == numbers
    capsys.readouterr()
    assert main(["bench", "tiers", "--rows", "10"]) == 2
    assert "`--rows` must be at least 24576" in capsys.readouterr().err
    with pytest.raises(ConfigError, match="`--columns` must be at least 1, got 0"):
        TierSettings(columns=0)
