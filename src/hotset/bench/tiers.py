"""`hotset bench tiers`: rows of a table, gathered batch by batch, from where they are kept."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from hotset.bench.command import run

if TYPE_CHECKING:
    from hotset.bench.tier_report import TierReport
    from hotset.bench.tier_rows import TierSettings
    from hotset.bench.timing import Say

ROWS, QUICK_ROWS = 1_000_000, 100_000
ROUNDS, QUICK_ROUNDS = 7, 3


def add_arguments(parser: ArgumentParser) -> None:
    """Adds the command's options to a parser."""
    numbers = (
        ("--rows", None, f"samples (default: {ROWS:,}, or {QUICK_ROWS:,} with --quick)"),
        ("--columns", 32, "float32 numbers in a sample (default: 32)"),
        ("--batch-size", 4096, "default: 4096"),
        ("--workers", 2, "worker processes of the plain loader that has any (default: 2)"),
        ("--rounds", None, f"timed runs (default: {ROUNDS}, or {QUICK_ROUNDS} with --quick)"),
    )
    for option, default, meaning in numbers:
        parser.add_argument(option, type=int, default=default, metavar="N", help=meaning)
    parser.add_argument("--json", metavar="FILE", type=Path, help="also write everything to FILE")
    parser.add_argument(
        "--quick", action="store_true", help="less data and fewer rounds: a first impression"
    )


def main(args: Namespace) -> int:
    """Measures, prints the table, writes the file that was asked for; returns the exit status."""

    def measured(say: Say) -> TierReport:
        from hotset.bench.tier_rows import TierSettings

        settings = TierSettings(
            rows=(QUICK_ROWS if args.quick else ROWS) if args.rows is None else args.rows,
            columns=args.columns,
            batch_size=args.batch_size,
            workers=args.workers,
            rounds=(QUICK_ROUNDS if args.quick else ROUNDS) if args.rounds is None else args.rounds,
        )
        return measure(settings, say)

    return run("tiers", measured, args.json)


def measure(settings: TierSettings, say: Say) -> TierReport:
    """Runs the whole comparison.

    Args:
        settings: sizes and rounds.
        say: told what is being done.
    """
    from hotset.bench.tier_report import TierReport
    from hotset.bench.tier_rows import TierRows
    from hotset.bench.timing import Stopwatch, interleaved
    from hotset.hardware import hardware, versions

    date, machine = datetime.now(UTC).isoformat(timespec="seconds"), hardware()
    rows = TierRows(settings, Stopwatch(), say).all()
    found = interleaved({row.name: row.rate for row in rows}, settings.rounds, say)
    rates = {row.key: found[row.name] for row in rows}
    return TierReport(settings, date, machine, versions(), rows, rates)
