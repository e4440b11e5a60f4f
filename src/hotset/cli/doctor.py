"""`hotset doctor`: its arguments, and what is printed beside what the script prints."""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
import webbrowser
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from hotset.cli.commands import Commands
from hotset.cli.target import add_target, apart, check_device, leave, target_of, writable
from hotset.errors import MissingExtraError
from hotset.progress import Progress

if TYPE_CHECKING:
    from hotset.doctor.report import Report

WIDTH = 100
UPDATE_EVERY_S = 0.5
"""The script may rewrite a line of its own: seldom enough that both can be read."""


def add_doctor(commands: Commands) -> None:
    """Adds the command."""
    doctor = commands.add_parser(
        "doctor",
        help="runs a training script unedited, and says whether data holds it back, and what helps",
        usage="hotset doctor [options] [-m] TARGET [ARGUMENTS ...]",
        description=(
            "Runs a training script as Python would, and times every torch DataLoader that it goes "
            "through. Then examines the one that it waited for most, on a few samples, and reports "
            "whether data holds training back, where, and what would help, by how much. The "
            "script's own output and exit code are passed on; the report goes to standard error. "
            "Nothing is written unless asked for. A script is stopped early by an exception, as by "
            "Ctrl-C: its `finally` clauses run."
        ),
    )
    add_target(doctor)
    doctor.add_argument(
        "--steps",
        type=int,
        metavar="N",
        help="stop the script after N batches, of all loaders together (default: let it end)",
    )
    doctor.add_argument(
        "--seconds",
        type=float,
        metavar="S",
        help="stop the script S seconds after it asked for its first batch",
    )
    doctor.add_argument(
        "--device", metavar="NAME", help="where training wants its batches (default: as it seems)"
    )
    for option, what in (
        ("--json", "the report as plain values"),
        ("--html", "the report as one page, with plots"),
        ("--trace", "the loop for a trace viewer, as Perfetto"),
    ):
        doctor.add_argument(option, type=Path, metavar="FILE", help=f"write {what}, to FILE")
    doctor.add_argument(
        "--open",
        dest="is_opened",
        action="store_true",
        help="open the page in a browser; without --html it is a temporary file",
    )
    doctor.set_defaults(handler=_doctor)


def _doctor(args: argparse.Namespace) -> int:
    from hotset.doctor.scripts.launch import doctor

    files = {name: writable(getattr(args, name)) for name in ("json", "html", "trace")}
    apart(args.target, files.values())
    check_device(args.device)
    if files["html"] is not None or args.is_opened:
        _check_page()
    shown = _Shown()
    try:
        report, outcome = doctor(
            target_of(args),
            steps=args.steps,
            seconds=args.seconds,
            device=args.device,
            told=shown.phase,
            counted=shown.batches if shown.is_live else None,
            said=shown.say,
        )
    finally:
        shown.clear()
    if report is not None:
        columns = shutil.get_terminal_size((WIDTH, 24)).columns
        shown.line("\n" + report.text(min(WIDTH, columns)))
        _write(report, files, shown, is_opened=args.is_opened)
    if outcome.threads:
        shown.say(f"not waited for: {', '.join(outcome.threads)}, which the stopped script left")
        leave(outcome.code)
    return outcome.code


class _Shown:
    """What a person at the terminal sees of it: all of it on standard error."""

    def __init__(self) -> None:
        self._progress = Progress()
        self.is_live = self._progress.is_live
        self._next_s = float("-inf")

    def batches(self, done: int, total: int | None) -> None:
        """How far the script is."""
        now = time.monotonic()
        if now >= self._next_s:
            self._next_s = now + UPDATE_EVERY_S
            batches = f"{done:,}" if total is None else f"{done:,} of {total:,}"
            self._progress.show(f"hotset: {batches} batches")

    def phase(self, text: str) -> None:
        """What is being done."""
        self._progress.show(f"hotset: {text} …")

    def say(self, text: str) -> None:
        """Words that stay."""
        self.line(f"hotset: {text}")

    def line(self, text: str) -> None:
        """A line of the report."""
        self._progress.say(text)

    def clear(self) -> None:
        """Takes away what does not stay."""
        self._progress.clear()


def _check_page() -> None:
    if find_spec("matplotlib") is None:
        raise MissingExtraError(
            "the page needs matplotlib, which draws its plots; install it with "
            "`pip install 'hotset[doctor]'`, or leave out --html and --open"
        )


def _write(
    report: Report, files: dict[str, Path | None], shown: _Shown, *, is_opened: bool
) -> None:
    page = files["html"]
    if page is None and is_opened:
        handle, name = tempfile.mkstemp(prefix="hotset-doctor-", suffix=".html")
        os.close(handle)
        page = Path(name)
    written = []
    for path, write in (
        (files["json"], report.to_json),
        (page, report.to_html),
        (files["trace"], report.to_trace),
    ):
        if path is not None:
            write(path)
            written.append(str(path))
    if written:
        shown.line("\nwritten: " + ", ".join(written))
    if is_opened and page is not None and not webbrowser.open(page.as_uri()):
        shown.say("no browser was found to open the page with")
