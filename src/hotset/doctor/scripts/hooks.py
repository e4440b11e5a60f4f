"""What is called in place of the methods that torch's loaders are gone through by.

Nothing here imports torch: a script may set variables of the environment that torch reads when it
is loaded, so the hooks are put in where the script imports it.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial, wraps
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import FrameType, ModuleType
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from torch.utils.data import DataLoader

Value = TypeVar("Value")
DATALOADER = "torch.utils.data.dataloader"
AGAIN_AFTER_S = 2.0
"""Before the main thread is interrupted once more, where it went on."""


class Stop(SystemExit):
    """Ends a script from within its loop; raised by `Hooks.take`.

    It is a `SystemExit`, which event loops and frameworks hand on where they keep other errors to
    themselves. From a thread other than the main one it comes as a plain `SystemExit`, which ends
    the thread in silence, and the main thread is interrupted.
    """


class Hooks(Protocol):
    """What is called in place of `DataLoader`'s own methods.

    Nothing is called in worker processes, for loaders that a hook or another loader goes through
    while it makes a batch, and for those that hotset itself makes or goes through.
    """

    def made(self, loader: DataLoader[Any]) -> None:
        """A loader was made; what a subclass of `DataLoader` adds to it may not be there yet."""

    def iterate(self, loader: DataLoader[Any], plain: Callable[[], Iterator[Any]]) -> Iterator[Any]:
        """Stands for `DataLoader.__iter__`; `plain` gives what that would."""

    def take(self, iterator: Iterator[Any], plain: Callable[[], Any]) -> Any:
        """Stands for the `__next__` of a loader's iterator; `plain` gives what that would.

        Raises:
            Stop: from any thread, if the script is to end; again whenever this is called again.
        """


class Stopping:
    """Whether a hook ended the script; interrupts the main thread on behalf of others."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._interrupted_s = float("-inf")
        self._is_running = False
        self.is_asked = False

    def begin(self) -> None:
        """A script begins."""
        self._interrupted_s, self.is_asked, self._is_running = float("-inf"), False, True

    def end(self) -> None:
        """It is over: nothing interrupts any more, but for what is under way and comes here."""
        with self._lock:
            self._is_running = False
        time.sleep(0)

    def ask(self) -> None:
        """The script is to end.

        Where another thread takes the batches, the main thread may wait for it and never go on.
        """
        with self._lock:
            self.is_asked = True
            main, now = threading.main_thread(), time.monotonic()
            if threading.current_thread() is main or not self._is_running:
                return
            if now - self._interrupted_s < AGAIN_AFTER_S:
                return
            self._interrupted_s = now
            if hasattr(signal, "pthread_kill") and main.ident is not None:
                signal.pthread_kill(main.ident, signal.SIGINT)  # wakes it from waiting for a lock
            else:
                signal.raise_signal(signal.SIGINT)


stopping = Stopping()


class _Inside(threading.local):
    """Whether this thread is in a hook."""

    is_set = False


class Kept(Generic[Value]):
    """Values for objects, for as long as those live; by identity, whatever they say they equal."""

    def __init__(self) -> None:
        self._values: dict[int, tuple[weakref.ref[Any], Value]] = {}

    def __setitem__(self, thing: Any, value: Value) -> None:
        number = id(thing)
        gone = weakref.ref(thing, lambda _: self._values.pop(number, None))
        self._values[number] = (gone, value)

    def get(self, thing: Any) -> Value | None:
        """The value; None where there is none."""
        found = self._values.get(id(thing))
        return None if found is None else found[1]

    def discard(self, thing: Any) -> None:
        """Forgets it."""
        self._values.pop(id(thing), None)

    def __contains__(self, thing: Any) -> bool:
        return id(thing) in self._values

    def living(self) -> list[Any]:
        """The objects."""
        found = [reference() for reference, _ in list(self._values.values())]
        return [thing for thing in found if thing is not None]


class Patch:
    """The hooks, in place of methods of torch's classes."""

    def __init__(self, hooks: Hooks) -> None:
        self._hooks = hooks
        self._inside = _Inside()
        self._process = os.getpid()
        self._aside: Kept[bool] = Kept()
        self._before: list[tuple[type, str, Any]] = []

    def put(self) -> None:
        """Puts them in; torch's module has been loaded."""
        module = sys.modules[DATALOADER]
        loader, iterator = module.DataLoader, module._BaseDataLoaderIter
        self._replace(loader, "__init__", self._made(loader.__init__))
        self._replace(loader, "__iter__", self._iterate(loader.__iter__))
        self._replace(iterator, "__next__", self.taking(iterator.__next__))

    def _replace(self, owner: type, name: str, new: Any) -> None:
        self._before.append((owner, name, owner.__dict__[name]))
        setattr(owner, name, new)

    def put_back(self) -> None:
        """Puts back what was there."""
        while self._before:
            setattr(*self._before.pop())

    def _is_counted(self) -> bool:
        return not self._inside.is_set and os.getpid() == self._process

    def _within(self, hook: Callable[..., Any], *args: Any) -> Any:
        """Calls a hook: what it goes through itself is not counted."""
        self._inside.is_set = True
        try:
            return hook(*args)
        finally:
            self._inside.is_set = False

    def _made(self, plain: Any) -> Any:
        @wraps(plain)  # frameworks read its signature
        def init(loader: Any, *args: Any, **kwargs: Any) -> None:
            plain(loader, *args, **kwargs)
            if self._is_counted() and not _is_ours(sys._getframe(1)):
                self._within(self._hooks.made, loader)
            else:
                self._aside[loader] = True

        return init

    def _iterate(self, plain: Any) -> Any:
        @wraps(plain)
        def iterate(loader: Any) -> Any:
            if not self._is_counted() or loader in self._aside or _is_ours(sys._getframe(1)):
                iterator = plain(loader)
                self._aside[iterator] = True
                return iterator
            iterator = self._within(self._hooks.iterate, loader, partial(plain, loader))
            self._aside.discard(iterator)  # it may stay from an epoch that did not count
            return iterator

        return iterate

    def taking(self, plain: Any) -> Any:
        """What stands for the `__next__` that is given."""

        @wraps(plain)
        def take(iterator: Any) -> Any:
            if not self._is_counted() or iterator in self._aside:
                return plain(iterator)
            try:
                return self._within(self._hooks.take, iterator, partial(plain, iterator))
            except Stop:
                stopping.ask()
                if threading.current_thread() is threading.main_thread():
                    raise
                raise SystemExit from None

        return take


def _is_ours(frame: FrameType) -> bool:
    """Whether hotset's own code is the caller."""
    return str(frame.f_globals.get("__name__")).partition(".")[0] == "hotset"


class _Finder(MetaPathFinder):
    """Puts the hooks in as soon as the module is loaded that they belong to."""

    def __init__(self, patch: Patch) -> None:
        self._patch = patch

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        """Python's own, whose loader calls back; None for every other module."""
        if fullname != DATALOADER:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                load(module)
                self._patch.put()

            vars(spec.loader)["exec_module"] = exec_module
        return spec


@contextmanager
def hooked(hooks: Hooks) -> Iterator[None]:
    """Has the hooks called for every torch `DataLoader` of this process; puts all back after.

    Classes and iterators keep their types. Subclasses are seen where they call what they inherit.
    """
    patch = Patch(hooks)
    finder = _Finder(patch)
    if DATALOADER in sys.modules:
        patch.put()
    else:
        sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        with suppress(ValueError):
            sys.meta_path.remove(finder)
        patch.put_back()
