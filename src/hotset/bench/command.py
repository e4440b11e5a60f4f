"""What every comparison does on the command line: measures, prints, writes a file, says errors."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TextIO, TypeVar

from hotset.bench.timing import Say
from hotset.errors import ConfigError, HotsetError

FAILED = 2
"""Exit status where the comparison could not be made."""


class Printable(Protocol):
    """A report, as text and as plain values."""

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        ...


R = TypeVar("R", bound=Printable)


@dataclass(frozen=True)
class Output(Generic[R]):
    """A file that was asked for.

    Attributes:
        option: its name on the command line.
        file: where to; None for nowhere.
        content: of a report, what is written.
    """

    option: str
    file: Path | None
    content: Callable[[R], bytes]


def run(
    name: str,
    measure: Callable[[Say], R],
    file: Path | None,
    outputs: Sequence[Output[R]] = (),
) -> int:
    """Measures, prints the report, writes the files asked for; returns the exit status.

    Args:
        name: of the comparison, for errors.
        measure: told how to say what is being done; gives the report.
        file: written as JSON; None for none.
        outputs: further files.
    """
    progress = Progress(sys.stderr)
    files: list[Output[R]] = [Output("--json", file, _as_json), *outputs]
    wanted = [(output, output.file) for output in files if output.file is not None]
    try:
        for output, path in wanted:
            _check_file(output.option, path)
        report = measure(progress)
    except HotsetError as error:
        progress.clear()
        print(f"hotset bench {name}: {error}", file=sys.stderr)
        return FAILED
    progress.clear()
    print(report)
    for output, path in wanted:
        path.write_bytes(output.content(report))
    if wanted:
        print(f"\nwritten: {', '.join(str(path) for _, path in wanted)}")
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


def _as_json(report: Printable) -> bytes:
    text = json.dumps(report.as_dict(), indent=2, allow_nan=False, ensure_ascii=False)
    return f"{text}\n".encode()


def _check_file(option: str, path: Path) -> None:
    """Refuses a file that cannot be written, before minutes are spent."""
    if path.is_dir() or not path.parent.is_dir():
        raise ConfigError(
            f"`{option}` must name a file in a folder that is there, got {str(path)!r}"
        )
