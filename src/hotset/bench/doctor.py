"""`hotset bench doctor`: what the doctor costs, and whether what it says is so."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from hotset.bench.command import run
from hotset.bench.doctor_settings import LOOPS, SCRIPT, DoctorSettings

if TYPE_CHECKING:
    from hotset.bench.doctor_report import DoctorReport
    from hotset.bench.timing import Say

STEPS, QUICK_STEPS = 100, 40
ROUNDS, QUICK_ROUNDS = 5, 2
WATCH_ROUNDS, QUICK_WATCH_ROUNDS = 9, 3
BATCHES = 1250
SCRIPT_ROUNDS, QUICK_SCRIPT_ROUNDS = 3, 1
NUMBERS = ("steps", "rounds", "watch_rounds", "batches")


def add_arguments(parser: ArgumentParser) -> None:
    """Adds the command's options to a parser."""
    numbers = (
        ("--steps", "batches that the doctor watches", STEPS, QUICK_STEPS),
        ("--rounds", "timed runs of a planted loop", ROUNDS, QUICK_ROUNDS),
        ("--watch-rounds", "likewise of hotset.watch", WATCH_ROUNDS, QUICK_WATCH_ROUNDS),
        ("--batches", "in each of the latter", BATCHES, BATCHES),
    )
    for option, meaning, usual, quick in numbers:
        default = f"default: {usual:,}" + (f", or {quick} with --quick" if quick != usual else "")
        parser.add_argument(option, type=int, metavar="N", help=f"{meaning} ({default})")
    parser.add_argument(
        "--loop",
        action="append",
        metavar="KEY",
        help=f"a planted loop, may be repeated (default: all of {', '.join(LOOPS)})",
    )
    parser.add_argument(
        "--script",
        type=Path,
        default=SCRIPT,
        metavar="FILE",
        help=f"training script that a report is made on (default: {SCRIPT}, from the repository)",
    )
    parser.add_argument("--no-script", action="store_true", help="leave the script out")
    parser.add_argument("--json", metavar="FILE", type=Path, help="also write everything to FILE")
    parser.add_argument(
        "--quick", action="store_true", help="fewer batches and rounds: a first impression"
    )


def main(args: Namespace) -> int:
    """Measures, prints the tables, writes the file asked for; returns the exit status."""

    def measured(say: Say) -> DoctorReport:
        usual = DoctorSettings(
            steps=QUICK_STEPS if args.quick else STEPS,
            rounds=QUICK_ROUNDS if args.quick else ROUNDS,
            batches=BATCHES,
            loops=LOOPS if args.loop is None else tuple(args.loop),
            watch_rounds=QUICK_WATCH_ROUNDS if args.quick else WATCH_ROUNDS,
            script=None if args.no_script else args.script,
            script_rounds=QUICK_SCRIPT_ROUNDS if args.quick else SCRIPT_ROUNDS,
        )
        asked = {name: getattr(args, name) for name in NUMBERS}
        given = {name: value for name, value in asked.items() if value is not None}
        return measure(replace(usual, **given), say)

    return run("doctor", measured, args.json)


def measure(settings: DoctorSettings, say: Say) -> DoctorReport:
    """Runs the whole benchmark.

    Args:
        settings: sizes and rounds.
        say: told what is being done.
    """
    from hotset.bench.doctor_costs import Costs
    from hotset.bench.doctor_gains import measure_gains
    from hotset.bench.doctor_loops import planted
    from hotset.bench.doctor_overhead import measure_watch
    from hotset.bench.doctor_report import DoctorReport
    from hotset.bench.doctor_script import measure_script
    from hotset.bench.timing import Stopwatch
    from hotset.hardware import hardware, versions

    date, machine, watch = datetime.now(UTC).isoformat(timespec="seconds"), hardware(), Stopwatch()
    overhead = measure_watch(settings, watch, say)
    gains = measure_gains(planted(Costs.measured(), settings.loops), settings, say)
    script = None
    if settings.script is not None:
        script = measure_script(
            settings.script,
            steps=settings.steps,
            rounds=settings.script_rounds,
            say=say,
            clock=watch.clock,
        )
    return DoctorReport(settings, date, machine, versions(), overhead, gains, script)
