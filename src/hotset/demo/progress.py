"""Progress on a terminal: one line that changes, or plain lines where nobody watches."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable
from typing import TextIO

UPDATE_EVERY_S = 0.1


class Progress:
    """Says how far the work is.

    Args:
        stream: where to; None is standard error, so that the result can be piped elsewhere.
        is_live: whether a line may be rewritten; None asks the stream.
        clock: seconds.
    """

    def __init__(
        self,
        stream: TextIO | None = None,
        *,
        is_live: bool | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._is_live = self._stream.isatty() if is_live is None else is_live
        self._clock = clock
        self._next_s = float("-inf")
        self._has_line = False

    def update(self, text: str, done: int, total: int) -> None:
        """Rewrites the line, at most ten times a second; says nothing where it cannot."""
        if not self._is_live or self._clock() < self._next_s:
            return
        share = f"{done / total:4.0%}" if total else f"{done:,}"
        columns = shutil.get_terminal_size().columns
        self._stream.write("\r" + f"{share}  {text}"[: columns - 1] + "\x1b[K")
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
