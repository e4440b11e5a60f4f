"""Somebody's script, run in this process as Python would run it."""

from __future__ import annotations

import builtins
import concurrent.futures.thread
import importlib.util
import io
import os
import pkgutil
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import CodeType, ModuleType, TracebackType

from hotset.doctor.scripts.hooks import Hooks as Hooks
from hotset.doctor.scripts.hooks import Stop as Stop
from hotset.doctor.scripts.hooks import hooked as hooked
from hotset.doctor.scripts.hooks import stopping
from hotset.errors import ConfigError

EXIT_FAILED = 1
EXIT_INTERRUPTED = 130
LEAVE_AFTER_S = 5.0
"""How long the threads of a stopped script are waited for."""
OURS = os.path.dirname(__file__) + os.sep
"""Where frames come from that no traceback is to show."""


@dataclass(frozen=True)
class Target:
    """What is to be run.

    Attributes:
        name: path of a script, or of a folder or zip file with a `__main__.py` in it; or the name
            of a module or package.
        is_module: whether it is a module's name, as behind `python -m`.
        arguments: of its own.
    """

    name: str
    is_module: bool = False
    arguments: tuple[str, ...] = ()


@dataclass(frozen=True)
class Outcome:
    """How a script ended.

    Attributes:
        code: the exit code that Python would have ended with; 0 where the script was stopped.
        error: what it raised, unless to exit; its traceback has been printed.
        was_stopped: whether a hook ended it.
        threads: names of those that a stopped script left, and that did not end in a while; Python
            would wait for them.
    """

    code: int
    error: BaseException | None = None
    was_stopped: bool = False
    threads: tuple[str, ...] = ()


class _AbsentError(ConfigError):
    """There is no such script or module."""


def run_target(target: Target) -> Outcome:
    """Runs a script or module as `__main__`, and tells how it ended.

    What it prints goes where it would. A traceback is printed as Python would print it, without
    frames of hotset's. Its threads are waited for, as Python would. `sys.argv`, `sys.path` and
    `sys.modules["__main__"]` stay as the script has them, so that its classes can still be pickled.

    Raises:
        ConfigError: if there is no such script or module.
    """
    error: BaseException | None = None
    before = threading.enumerate()
    stopping.begin()
    try:
        try:
            _execute(target)
        finally:
            stopping.end()
    except _AbsentError:
        raise
    except BaseException as caught:  # whatever a script ends by is told, and not passed through
        error = caught
    outcome = _outcome(error)
    try:
        left = _wait_for_threads([each for each in threading.enumerate() if each not in before])
        if stopping.is_asked:  # also in a thread that outlived the main one
            outcome = Outcome(0, was_stopped=True, threads=left)
    except KeyboardInterrupt as caught:
        outcome = Outcome(EXIT_INTERRUPTED, caught)
    with suppress(AttributeError, OSError, ValueError):  # there is none, or it is closed
        sys.stdout.flush()
    return outcome


def _execute(target: Target) -> None:
    main = ModuleType("__main__")
    main.__dict__["__builtins__"] = builtins
    code = _module(main, target) if target.is_module else _script(main, target)
    exec(code, main.__dict__)


def _script(main: ModuleType, target: Target) -> CodeType:
    """The code of a script, a folder or a zip file; the interpreter is made ready for it."""
    path = target.name
    if not os.path.exists(path):
        raise _AbsentError(f"there is no script {path!r}; `-m` in front of it runs a module")
    if pkgutil.get_importer(path) is not None:
        full = os.path.join(os.getcwd(), path)
        spec = PathFinder.find_spec("__main__", [full])
        if spec is None:
            raise _AbsentError(f"there is no __main__.py in {path!r}, so there is nothing to run")
        _enter(main, full, path, target)
        return _code(main, spec)
    full = os.path.join(os.getcwd(), path)  # not normalised: as Python has it
    try:
        with io.open_code(full) as file:
            source = file.read()
    except OSError as error:
        raise _AbsentError(f"{path!r} cannot be read: {error.strerror or error}") from error
    main.__dict__.update(
        __file__=full, __cached__=None, __loader__=SourceFileLoader("__main__", full)
    )
    _enter(main, os.path.dirname(os.path.realpath(path)), path, target)
    return compile(source, full, "exec", dont_inherit=True)


def _module(main: ModuleType, target: Target) -> CodeType:
    """The code of a module, or of a package's `__main__`; the packages above it are imported."""
    name = target.name
    _enter(main, os.getcwd(), "-m", target)
    spec = _spec(name)
    if spec is not None and spec.submodule_search_locations is not None:
        spec = _spec(f"{name}.__main__")
        if spec is None:
            raise _AbsentError(f"{name!r} is a package and has no __main__ that could be run")
    if spec is None:
        raise _AbsentError(f"there is no module {name!r} here, nor where Python looks for modules")
    code = _code(main, spec)
    sys.argv[0] = str(spec.origin)
    return code


def _spec(name: str) -> ModuleSpec | None:
    """Where a module is; None if there is none of that name."""
    if not all(name.split(".")):
        raise _AbsentError(f"expected a module's name like package.module, got {name!r}")
    try:
        return importlib.util.find_spec(name)
    except ModuleNotFoundError as error:  # a package above it; or what one of them imports
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            return None
        raise


def _code(main: ModuleType, spec: ModuleSpec) -> CodeType:
    loader = spec.loader
    code: CodeType | None = None
    read = getattr(loader, "get_code", None)  # not all that have it say so by their class
    if callable(read):
        try:
            code = read(spec.name)
        except SyntaxError as error:
            raise error.with_traceback(None) from None
    if code is None:
        raise _AbsentError(f"{spec.name!r} has no Python code that could be run")
    main.__dict__.update(
        __file__=spec.origin,
        __cached__=spec.cached,
        __loader__=loader,
        __package__=spec.parent,
        __spec__=spec,
    )
    return code


def _enter(main: ModuleType, folder: str, program: str, target: Target) -> None:
    """Makes the interpreter what it is when Python runs a script."""
    sys.modules["__main__"] = main
    sys.argv = [program, *target.arguments]
    if not sys.flags.safe_path:
        sys.path[0:1] = [folder]
    elif "PYTHONSAFEPATH" not in os.environ:  # our own command was started safely, not the script
        sys.path.insert(0, folder)


def _outcome(error: BaseException | None) -> Outcome:
    """What is made of a script's end; prints what Python would print of it."""
    try:
        if stopping.is_asked or isinstance(error, Stop):
            if error is not None and not any(map(_is_exit, _chain(error))):
                _show(error)
            return Outcome(0, was_stopped=True)
        if error is None:
            return Outcome(0)
        if isinstance(error, SystemExit):
            return Outcome(_exit_code(error))
        code = _show(error)
        return Outcome(EXIT_INTERRUPTED if isinstance(error, KeyboardInterrupt) else code, error)
    finally:
        for each in _chain(error):  # what its frames hold: loaders' iterators, with their workers
            traceback.clear_frames(each.__traceback__)


def _is_exit(error: BaseException) -> bool:
    """Whether it may come of a stop: from the loop, or from the main thread's interrupt."""
    return isinstance(error, Stop | KeyboardInterrupt | SystemExit)


def _exit_code(error: SystemExit) -> int:
    """As Python has it: what is neither None nor a number is printed, and stands for failure."""
    code = error.code
    if code is None:
        return 0
    if isinstance(code, int):
        return int(code)
    with suppress(AttributeError, OSError, ValueError):  # there is no output, or it is closed
        sys.stdout.flush()
        sys.stderr.write(f"{code}\n")
    return EXIT_FAILED


def _show(error: BaseException) -> int:
    """Prints a traceback by whatever hook the script has set, and gives the exit code."""
    for each in _chain(error):
        each.__traceback__ = _without_ours(each.__traceback__)
    sys.last_type, sys.last_value, sys.last_traceback = type(error), error, error.__traceback__
    try:
        sys.excepthook(type(error), error, error.__traceback__)
    except SystemExit as left:
        return _exit_code(left)
    except BaseException as failed:  # a script's hook may fail in any way: then Python shows both
        failed.__traceback__ = _without_ours(failed.__traceback__)
        sys.stderr.write("Error in sys.excepthook:\n")
        sys.__excepthook__(type(failed), failed, failed.__traceback__)
        sys.stderr.write("\nOriginal exception was:\n")
        sys.__excepthook__(type(error), error, error.__traceback__)
    return EXIT_FAILED


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """An error, and all that it came of."""
    seen: set[int] = set()
    left = [error]
    while left:
        each = left.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        yield each
        left += [each.__cause__, each.__context__]
        if isinstance(each, BaseExceptionGroup):
            left += each.exceptions


def _without_ours(frames: TracebackType | None) -> TracebackType | None:
    """A traceback without the frames of this package."""
    first = last = None
    while frames is not None:
        following = frames.tb_next
        if not frames.tb_frame.f_code.co_filename.startswith(OURS):
            frames.tb_next = None
            if last is None:
                first = frames
            else:
                last.tb_next = frames
            last = frames
        frames = following
    return first


def _wait_for_threads(threads: list[threading.Thread]) -> tuple[str, ...]:
    """Waits for those that Python would wait for; not for long once a script was stopped.

    The threads of a pool are left out: they end only when Python does.

    Returns:
        The names of those that go on.
    """
    pool = concurrent.futures.thread.__name__
    awaited = [
        thread
        for thread in threads
        if not thread.daemon and getattr(getattr(thread, "_target", None), "__module__", "") != pool
    ]
    left_s = LEAVE_AFTER_S
    for thread in awaited:
        while thread.is_alive() and left_s > 0:
            began = time.monotonic()
            thread.join(0.05)
            if stopping.is_asked:
                left_s -= time.monotonic() - began
    return tuple(thread.name for thread in awaited if thread.is_alive())
