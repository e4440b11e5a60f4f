"""What all commands share: exit codes, and where commands are added."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130
"""What shells report for a process that Ctrl-C ended: 128 plus the signal's number."""

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]
else:
    Commands = argparse._SubParsersAction
