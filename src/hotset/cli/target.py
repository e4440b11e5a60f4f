"""What commands that run somebody's script share: its arguments, files, and how they end."""

from __future__ import annotations

import argparse
import atexit
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from hotset.errors import ConfigError, StorageError

if TYPE_CHECKING:
    from hotset.doctor.scripts.script import Target


def add_target(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments that name a script; what stands behind it is the script's own."""
    parser.add_argument("target", metavar="TARGET", help="the script; with -m, a module's name")
    parser.add_argument(
        "arguments",
        nargs=argparse.REMAINDER,
        metavar="ARGUMENTS",
        help="the script's own: everything behind TARGET",
    )
    parser.add_argument(
        "-m", dest="is_module", action="store_true", help="run a module, as `python -m` does"
    )


def target_of(args: argparse.Namespace) -> Target:
    """The script that the arguments name."""
    from hotset.doctor.scripts.script import Target

    return Target(args.target, args.is_module, tuple(args.arguments))


def writable(path: Path | None) -> Path | None:
    """The path in full, since a script may change its folder; known to be of use before it runs.

    Raises:
        StorageError: if it cannot be written.
    """
    if path is None:
        return None
    full = Path(os.path.abspath(path))
    if full.is_dir():
        raise StorageError(f"{path} cannot be written: it is a folder")
    if not full.parent.is_dir():
        raise StorageError(f"{path} cannot be written: there is no folder {full.parent}")
    if not os.access(full if full.exists() else full.parent, os.W_OK):
        raise StorageError(f"{path} cannot be written: that is not permitted")
    return full


def apart(script: str, files: Iterable[Path | None]) -> None:
    """Refuses files that would overwrite each other, or the script.

    Args:
        script: as it is named.
        files: in full, as `writable` gives them.

    Raises:
        ConfigError: names the file.
    """
    seen = [Path(os.path.abspath(script))]
    for file in files:
        if file is None:
            continue
        if file in seen:
            what = "the script itself" if file == seen[0] else "two things at once"
            raise ConfigError(f"{file} would be {what}: name another file")
        seen.append(file)


def check_device(name: str | None) -> None:
    """Refuses a device that is not there before a script has run for hours.

    Raises:
        ConfigError: if it is no device's name.
        DeviceError: if this machine has no such device.
    """
    if name is not None:
        from hotset.placement.device import resolve_device

        resolve_device(name)


def leave(code: int) -> NoReturn:
    """Ends the process as Python would, but for threads that would never end."""
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)
