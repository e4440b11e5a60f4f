"""Progress on a terminal: one line that changes, or plain lines where nobody watches."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from hotset.errors import ConfigError

UPDATE_EVERY_S = 0.1

Told = Callable[[int, int | None], object]
"""Called with the samples so far and their total, None where nobody knows it."""


class Progress:
    """Says how far the work is.

    Args:
        stream: where to; None is standard error, so that the result can be piped elsewhere.
        is_live: whether a line may be rewritten; None asks the stream.
        clock: seconds.

    Attributes:
        is_live: whether a line may be rewritten.
    """

    def __init__(
        self,
        stream: TextIO | None = None,
        *,
        is_live: bool | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stream = sys.stderr if stream is None else stream
        self.is_live = self._stream.isatty() if is_live is None else is_live
        self._clock = clock
        self._next_s = float("-inf")
        self._has_line = False

    def update(self, text: str, done: int, total: int) -> None:
        """Rewrites the line, at most ten times a second; says nothing where it cannot."""
        share = f"{done / total:4.0%}" if total else f"{done:,}"
        self.show(f"{share}  {text}")

    def show(self, line: str) -> None:
        """As `update`, the whole line."""
        if not self.is_live or self._clock() < self._next_s:
            return
        columns = shutil.get_terminal_size().columns
        self._stream.write("\r" + line[: columns - 1] + "\x1b[K")
        self._stream.flush()
        self._next_s, self._has_line = self._clock() + UPDATE_EVERY_S, True

    def say(self, text: str) -> None:
        """Writes a line that stays."""
        self.clear()
        self._stream.write(text + "\n")
        self._stream.flush()

    def clear(self) -> None:
        """Takes the changing line away."""
        if self._has_line:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
        self._has_line, self._next_s = False, float("-inf")


class Bar:
    """One line about samples that are read: how many, how fast, and how long it still takes.

    It is called with the samples so far and their total. The first call says what was there
    before: the rate counts what came since.

    Args:
        text: what is done.
        progress: where it is shown; None is standard error.
        clock: seconds.

    Attributes:
        done: samples so far; None before the first call.
        total: of them; None where nobody knows.
        seconds: between the first call and the latest.
    """

    def __init__(
        self,
        text: str,
        progress: Progress | None = None,
        *,
        unit: str = "samples",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._text, self._unit, self._clock = text, unit, clock
        self._progress = Progress() if progress is None else progress
        self._first, self._began_s = 0, 0.0
        self.done: int | None = None
        self.total: int | None = None
        self.seconds = 0.0

    def __call__(self, done: int, total: int | None) -> None:
        """Takes in how far it is, and shows it."""
        if self.done is None:
            self._first, self._began_s = done, self._clock()
        self.done, self.total, self.seconds = done, total, self._clock() - self._began_s
        self._progress.show(self.line())

    @property
    def is_live(self) -> bool:
        """Whether anybody sees it."""
        return self._progress.is_live

    @property
    def read(self) -> int:
        """Samples since the first call."""
        return 0 if self.done is None else self.done - self._first

    @property
    def rate(self) -> float | None:
        """Samples per second since the first call; None where that cannot be said yet."""
        return self.read / self.seconds if self.read > 0 and self.seconds > 0 else None

    def line(self) -> str:
        """The line as it would be shown."""
        done = self.done or 0
        if self.total is None:
            words = [f"{self._text}: {done:,}"]
        else:
            words = [f"{done / max(1, self.total):4.0%}  {self._text}: {done:,}/{self.total:,}"]
        if self.rate is not None:
            words.append(f"{in_few_digits(self.rate)} {self._unit}/s")
            if self.total is not None:
                words.append(f"{clock_time((self.total - done) / self.rate)} left")
        return ", ".join(words)

    def clear(self) -> None:
        """Takes the line away."""
        self._progress.clear()


@contextmanager
def shown(
    progress: Told | bool | None, text: str, *, unit: str = "samples"
) -> Iterator[Told | None]:
    """What is to be told of the progress: a user's callable, or a bar where somebody watches.

    Args:
        progress: the user's callable; None or True for a bar on standard error where that is a
            terminal; False for nothing.
        text: what the bar says is done.
        unit: what is counted.

    Raises:
        ConfigError: for anything else.
    """
    if callable(progress) or progress is False:
        yield progress or None
        return
    if progress is not None and progress is not True:
        raise ConfigError(
            "`progress` must be a callable that takes (samples so far, total), None or True for a "
            f"bar, or False for silence, got {progress!r}"
        )
    bar = Bar(text, unit=unit)
    try:
        yield bar if bar.is_live else None
    finally:
        bar.clear()


def in_few_digits(number: float) -> str:
    """A number of which a few digits count.

    Example:
        >>> in_few_digits(12345.6), in_few_digits(3.14159)
        ('12,346', '3.14')
    """
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def clock_time(seconds: float) -> str:
    """Seconds as a clock shows them, rounded up.

    Example:
        >>> clock_time(11.2), clock_time(3723)
        ('0:12', '1:02:03')
    """
    whole = -int(-seconds // 1)
    hours, minutes = divmod(whole // 60, 60)
    return f"{hours}:{minutes:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"
