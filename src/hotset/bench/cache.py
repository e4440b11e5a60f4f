"""`hotset bench cache`: hit rates of cache policies under the orders of training, simulated."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from hotset.bench.command import Output, run

if TYPE_CHECKING:
    from hotset.bench.cache_report import CacheReport, CacheSettings
    from hotset.bench.timing import Say

SAMPLES, QUICK_SAMPLES = 50_000, 5_000
BATCH_SIZE, QUICK_BATCH_SIZE = 256, 64
QUICK_SETTLE = 8


def add_arguments(parser: ArgumentParser) -> None:
    """Adds the command's options to a parser."""
    numbers = (
        ("--samples", f"rows (default: {SAMPLES:,}, or {QUICK_SAMPLES:,} with --quick)"),
        ("--batch-size", f"default: {BATCH_SIZE}, or {QUICK_BATCH_SIZE} with --quick"),
    )
    for option, meaning in numbers:
        parser.add_argument(option, type=int, metavar="N", help=meaning)
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the orders")
    files = (
        ("--json", "also write everything to FILE"),
        ("--html", "also write FILE, one page with the curves; needs matplotlib"),
        ("--png", "also write FILE, a picture of the curves; needs matplotlib"),
    )
    for option, meaning in files:
        parser.add_argument(option, metavar="FILE", type=Path, help=meaning)
    parser.add_argument(
        "--quick", action="store_true", help="fewer samples and points: a first impression"
    )


def main(args: Namespace) -> int:
    """Simulates, prints the tables, writes the files asked for; returns the exit status."""

    def simulated(say: Say) -> CacheReport:
        from hotset.bench.cache_report import QUICK_SHARES, CacheSettings

        if (args.html is not None or args.png is not None) and find_spec("matplotlib") is None:
            from hotset.errors import MissingExtraError

            raise MissingExtraError(
                "`--html` and `--png` need matplotlib: pip install 'hotset[demo]'"
            )
        usual = CacheSettings(
            samples=_or(args.samples, QUICK_SAMPLES if args.quick else SAMPLES),
            batch_size=_or(args.batch_size, QUICK_BATCH_SIZE if args.quick else BATCH_SIZE),
            seed=args.seed,
        )
        if not args.quick:
            return measure(usual, say)
        quick = {**usual.as_dict(), "shares": QUICK_SHARES, "settle": QUICK_SETTLE}
        return measure(CacheSettings(**quick), say)

    outputs = (Output("--html", args.html, _page), Output("--png", args.png, _picture))
    return run("cache", simulated, args.json, outputs)


def measure(settings: CacheSettings, say: Say) -> CacheReport:
    """Simulates everything.

    Args:
        settings: sizes.
        say: told what is being done.
    """
    from hotset.bench.cache_report import CacheReport, compare
    from hotset.hardware import versions

    date = datetime.now(UTC).isoformat(timespec="seconds")
    return CacheReport(settings, date, versions(), compare(settings, say))


def _or(asked: int | None, otherwise: int) -> int:
    return otherwise if asked is None else asked


def _page(report: CacheReport) -> bytes:
    from hotset.bench.cache_page import as_page

    return as_page(report).encode("utf-8")


def _picture(report: CacheReport) -> bytes:
    from hotset.bench.cache_page import as_picture

    return as_picture(report)
