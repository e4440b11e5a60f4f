"""What every comparison does on the command line: measures, prints, writes a file, says errors."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, TextIO

from hotset.bench.timing import Say
from hotset.errors import ConfigError, HotsetError

FAILED = 2
"""Exit status where the comparison could not be made."""


class Printable(Protocol):
    """A report, as text and as plain values."""

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        ...


def run(name: str, measure: Callable[[Say], Printable], file: Path | None) -> int:
    """Measures, prints the report, writes the file that was asked for; returns the exit status.

    Args:
        name: of the comparison, for errors.
        measure: told how to say what is being done; gives the report.
        file: written as JSON; None for none.
    """
    progress = Progress(sys.stderr)
    try:
        _check_file(file)
        report = measure(progress)
    except HotsetError as error:
        progress.clear()
        print(f"hotset bench {name}: {error}", file=sys.stderr)
        return FAILED
    progress.clear()
    print(report)
    if file is not None:
        text = json.dumps(report.as_dict(), indent=2, allow_nan=False, ensure_ascii=False)
        file.write_text(text + "\n", encoding="utf-8")
        print(f"\nwritten: {file}")
    return 0


class Progress:
    """Says what is being done: one line that changes on a terminal, a line each elsewhere.

    Args:
        stream: where to.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._is_terminal = stream, stream.isatty()
        self._last = ""

    def __call__(self, text: str, detail: str = "") -> None:
        """Shows a text, on a terminal with its detail."""
        if self._is_terminal:
            self._stream.write(f"\r\x1b[K{text}{': ' if detail else ''}{detail}")
        elif text != self._last:
            self._stream.write(f"{text}\n")
        self._last = text
        self._stream.flush()

    def clear(self) -> None:
        """Takes the line away, where there is one that changes."""
        if self._is_terminal:
            self._stream.write("\r\x1b[K")
            self._stream.flush()


def _check_file(path: Path | None) -> None:
    """Refuses a file that cannot be written, before minutes are spent."""
    if path is not None and (path.is_dir() or not path.parent.is_dir()):
        raise ConfigError(f"`--json` must name a file in a folder that is there, got {str(path)!r}")
