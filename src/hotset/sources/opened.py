"""Which files are opened for reading while samples are read, as Python itself tells."""

from __future__ import annotations

import os
import stat
import sys
import sysconfig
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

CODE = (".py", ".pyc", ".pyi", ".so", ".pyd", ".dll", ".dylib", ".nbi", ".nbc")
"""How names of files end that hold code: of Python, of C, and compiled by Numba."""
CODE_FOLDERS = frozenset(("site-packages", "dist-packages", "__pycache__", ".triton"))
CODE_FOLDER_STARTS = "torchinductor_"
CODE_FOLDER_ENDS = (".dist-info", ".egg-info")
SYSTEM_FOLDERS = ("/proc", "/sys", "/etc", "/usr/share/zoneinfo")
EVENTS = frozenset(("open", "sqlite3.connect"))
"""Source: https://docs.python.org/3/library/audit_events.html"""


class Opened:
    """The files of data that are opened for reading while it is entered, and by which sample.

    Files of code and of the system, folders, devices, and files opened to be written do not count.
    Threads that ran before do not count either, but for the one that enters; those that begin
    meanwhile do. It may be entered again and again. Files that C code opens are not seen.
    """

    def __init__(self) -> None:
        self._found: dict[tuple[str, int | None], int] = {}
        self._others: frozenset[int] = frozenset()

    def __enter__(self) -> Opened:
        _install()
        self._others = frozenset(sys._current_frames()) - {threading.get_ident()}
        _now.watching = (*_now.watching, self)
        _now.sample = 0
        return self

    def __exit__(self, *error: object) -> None:
        _now.watching = tuple(each for each in _now.watching if each is not self)

    def files(self, steps: int | None = None) -> dict[str, int]:
        """For each file the first sample that it was opened for.

        Args:
            steps: files that steps from this number on opened are left out; None leaves none out.
        """
        found: dict[str, int] = {}
        for (path, step), sample in self._found.items():
            if step is None or steps is None or step < steps:
                found.setdefault(path, sample)
        return found

    def note(self, path: str) -> None:
        """Takes in a file that is being opened."""
        if threading.get_ident() not in self._others:
            self._found.setdefault((path, _now.step), _now.sample)


class _Now:
    """What is going on in this process.

    Attributes:
        watching: those that are told of files.
        sample: the index of the one being read.
        step: the number of the step of a chain that runs; None outside of them.
        is_installed: whether the hook is; it cannot be taken away again.
    """

    def __init__(self) -> None:
        self.watching: tuple[Opened, ...] = ()
        self.sample = 0
        self.step: int | None = None
        self.is_installed = False


_now = _Now()


def note_sample(index: int) -> None:
    """Says which sample is read from now on."""
    _now.sample = index


@contextmanager
def within_step(number: int) -> Iterator[None]:
    """What is opened meanwhile is opened by a step of the chain, and not by the dataset."""
    before, _now.step = _now.step, number
    try:
        yield
    finally:
        _now.step = before


class Numbered:
    """A step of a chain that says when it runs."""

    def __init__(self, number: int, call: Any) -> None:
        self._number, self._call = number, call

    def __call__(self, value: Any) -> Any:
        with within_step(self._number):
            return self._call(value)


def _install() -> None:
    if not _now.is_installed:
        _now.is_installed = True
        sys.addaudithook(_hear)


def _hear(event: str, arguments: tuple[Any, ...]) -> None:
    watching = _now.watching
    if not watching or event not in EVENTS:
        return
    try:
        path = _data_file(*arguments)
    except Exception:  # whatever is raised here would keep the file from being opened
        return
    if path is not None:
        for each in watching:
            each.note(path)


def _data_file(name: Any, mode: Any = None, flags: Any = 0, *_: Any) -> str | None:
    """The absolute path of what is being opened, if it is there and is read as data."""
    if isinstance(name, int) or not isinstance(flags, int):
        return None
    is_new = flags & (os.O_CREAT | os.O_TRUNC) and flags & (os.O_WRONLY | os.O_RDWR)
    if is_new or flags & os.O_WRONLY:
        return None
    path = os.path.abspath(os.fsdecode(name))
    if not stat.S_ISREG(os.stat(path).st_mode) or _is_code(path):
        return None
    return path


def _is_code(path: str) -> bool:
    """Whether a file belongs to Python, to a library, or to the system."""
    if path.endswith(CODE) or path.startswith(_code_places()):
        return True
    return any(
        part in CODE_FOLDERS
        or part.startswith(CODE_FOLDER_STARTS)
        or part.endswith(CODE_FOLDER_ENDS)
        for part in path.split(os.sep)[:-1]
    )


@cache
def _code_places() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    own = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    places = [sys.prefix, sys.base_prefix, sys.exec_prefix, paths["stdlib"], paths["platstdlib"]]
    found = {each for place in (*places, own) for each in (place, os.path.realpath(place))}
    return tuple(os.path.join(place, "") for place in (*sorted(found), *SYSTEM_FOLDERS))
