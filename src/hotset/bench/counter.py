"""Exact counts: calls of transforms in every process, bytes copied from the host to a device."""

from __future__ import annotations

import functools
import multiprocessing
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

COPIES = (torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default)


class CallCounter:
    """Counts calls of the instances of some classes, in this process and in worker processes.

    The classes themselves are made to count, so that an instance looks as it always did.
    As a `worker_init_fn` it does the same in a worker, however that was started.

    Args:
        classes: whose instances' calls count, each as one.
    """

    def __init__(self, classes: Iterable[type]) -> None:
        self._classes: tuple[Any, ...] = tuple(dict.fromkeys(classes))
        # A lock of the spawning kind is understood by processes of every kind.
        self._count = multiprocessing.get_context("spawn").Value("q", 0)
        self._is_counting = False

    @property
    def calls(self) -> int:
        """Calls so far."""
        return int(self._count.value)

    def __call__(self, worker_id: int) -> None:
        """Makes the classes count in this worker process; a forked one inherits that they do."""
        if not self._is_counting:
            self._install()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_is_counting": False}

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Counts while the context lasts."""
        own = {cls: cls.__dict__.get("__call__") for cls in self._classes}
        self._install()
        try:
            yield
        finally:
            self._is_counting = False
            for cls, call in own.items():
                if call is None:
                    del cls.__call__
                else:
                    cls.__call__ = call

    def _install(self) -> None:
        self._is_counting = True
        for cls in self._classes:
            cls.__call__ = self._counted(cls.__call__)

    def _counted(self, call: Any) -> Any:
        @functools.wraps(call)
        def counted(*args: Any, **kwargs: Any) -> Any:
            with self._count.get_lock():
                self._count.value += 1
            return call(*args, **kwargs)

        return counted


class LinkBytes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the bytes that PyTorch copies from host memory to a device while the context lasts.

    Attributes:
        total: bytes so far.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.total = 0

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """The operation's own result, its bytes counted if it is a copy from the host."""
        result = func(*args, **(kwargs or {}))
        if func in COPIES:
            source = args[0] if func is COPIES[0] else args[1]
            if source.device.type == "cpu" and result.device.type != "cpu":
                self.total += source.nbytes
        return result


def batch_bytes(batch: Iterable[Any]) -> int:
    """Bytes of the tensors of a batch."""
    return sum(leaf.nbytes for leaf in batch if isinstance(leaf, Tensor))
