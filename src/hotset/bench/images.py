"""`hotset bench images`: an image folder, decoded and cropped every epoch, or from a store."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from hotset.bench.command import run

if TYPE_CHECKING:
    from hotset.bench.image_report import ImageReport
    from hotset.bench.image_rows import ImageSettings
    from hotset.bench.timing import Say

SAMPLES, QUICK_SAMPLES = 2000, 600
ROUNDS, QUICK_ROUNDS = 7, 3


def add_arguments(parser: ArgumentParser) -> None:
    """Adds the command's options to a parser."""
    numbers = (
        ("--samples", None, f"JPEG files (default: {SAMPLES:,}, or {QUICK_SAMPLES} with --quick)"),
        ("--rounds", None, f"timed runs (default: {ROUNDS}, or {QUICK_ROUNDS} with --quick)"),
        ("--batch-size", 64, "default: 64"),
        ("--workers", 2, "worker processes of the plain loader (default: 2)"),
    )
    for option, default, meaning in numbers:
        parser.add_argument(option, type=int, default=default, metavar="N", help=meaning)
    parser.add_argument("--json", metavar="FILE", type=Path, help="also write everything to FILE")
    parser.add_argument(
        "--scratch", metavar="DIR", type=Path, help="where about 6 GB of files are made and removed"
    )
    parser.add_argument(
        "--quick", action="store_true", help="less data and fewer rounds: a first impression"
    )


def main(args: Namespace) -> int:
    """Measures, prints the table, writes the file that was asked for; returns the exit status."""

    def measured(say: Say) -> ImageReport:
        from hotset.bench.image_rows import ImageSettings

        settings = ImageSettings(
            samples=args.samples or (QUICK_SAMPLES if args.quick else SAMPLES),
            rounds=args.rounds or (QUICK_ROUNDS if args.quick else ROUNDS),
            batch_size=args.batch_size,
            workers=args.workers,
        )
        return measure(settings, say, args.scratch)

    return run("images", measured, args.json)


def measure(settings: ImageSettings, say: Say, parent: Path | None = None) -> ImageReport:
    """Runs the whole comparison.

    Args:
        settings: sizes and rounds.
        say: told what is being done.
        parent: where files are made, and removed again.
    """
    from hotset.bench.image_report import ImageReport
    from hotset.bench.image_rows import ImageRows, scratch_folder
    from hotset.bench.photographs import write_photographs
    from hotset.bench.timing import Stopwatch, interleaved
    from hotset.hardware import hardware, versions

    date, machine = datetime.now(UTC).isoformat(timespec="seconds"), hardware()
    with scratch_folder(parent) as scratch:
        say("writing photographs")
        folder = scratch / "photographs"
        file_bytes = write_photographs(folder, settings.samples)
        say("filling, compiling and spot-checking")
        rows = ImageRows(settings, folder, scratch, Stopwatch()).all()
        found = interleaved({row.name: row.rate for row in rows}, settings.rounds, say)
    rates = {row.key: found[row.name] for row in rows}
    return ImageReport(settings, date, machine, versions(), file_bytes, rows, rates)
