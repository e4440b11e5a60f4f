"""`hotset run`: its arguments, and what is printed beside what the script prints."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from pathlib import Path

from hotset.cli.commands import Commands
from hotset.cli.target import add_target, apart, check_device, leave, target_of, writable
from hotset.errors import FaithfulnessError, StorageError

WIDTH = 100


def add_run(commands: Commands) -> None:
    """Adds the command."""
    run = commands.add_parser(
        "run",
        help="runs a training script unedited, with every loader accelerated that provably may be",
        usage="hotset run [options] [-m] TARGET [ARGUMENTS ...]",
        description=(
            "Runs a training script as Python would. Each torch DataLoader that it goes through is "
            "accelerated where the plan is proven to give the same batches, and left alone where "
            "not. The script's own output and exit code are passed on; what was done, and what it "
            "brought, is said on standard error in the end. "
            "A dry run stops the script by an exception, as by Ctrl-C: its `finally` clauses run."
        ),
    )
    add_target(run)
    run.add_argument(
        "--device",
        metavar="NAME",
        help="where batches of accelerated loaders come out (default: CUDA if the script has "
        "initialised it by then, else the CPU)",
    )
    run.add_argument(
        "--dry-run",
        dest="is_dry",
        action="store_true",
        help="say what would be done, and stop the script where it first goes through a loader",
    )
    run.add_argument(
        "--json", type=Path, metavar="FILE", help="write the summary as plain values, to FILE"
    )
    run.set_defaults(handler=_run)


def _run(args: argparse.Namespace) -> int:
    from hotset.running.running import run

    file = writable(args.json)
    apart(args.target, [file])
    check_device(args.device)
    summary, outcome = run(target_of(args), device=args.device, is_dry=args.is_dry)
    columns = shutil.get_terminal_size((WIDTH, 24)).columns
    print(f"\n{summary.text(min(WIDTH, columns))}", file=sys.stderr)
    if file is not None:
        text = json.dumps(summary.as_dict(), indent=2, ensure_ascii=False)
        try:
            file.write_text(text + "\n", encoding="utf-8")
        except OSError as error:
            raise StorageError(f"{file} cannot be written: {error.strerror or error}") from error
        print(f"\nwritten: {file}", file=sys.stderr)
    if isinstance(outcome.error, FaithfulnessError):
        print(f"\nhotset: {outcome.error}", file=sys.stderr)
    if outcome.threads:
        left = ", ".join(outcome.threads)
        print(f"hotset: not waited for: {left}, which the stopped script left", file=sys.stderr)
        leave(outcome.code)
    return outcome.code
