"""`hotset.watch`: a loader in somebody's own loop, and the report on that loop."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any

import torch

from hotset.doctor.diagnosis import diagnosed, iter_is_itself, phases
from hotset.doctor.machine.cuda import spans_if_used
from hotset.doctor.machine.machine import Machine
from hotset.doctor.machine.usage import SETTLED, Usage
from hotset.doctor.measure import Recording
from hotset.doctor.report import Report
from hotset.errors import ConfigError
from hotset.placement.link import Link


def watch(loader: Iterable[Any]) -> Watched:
    """The same batches as `loader` gives, with the times at which they are asked for and come.

    Iterate over it in your own training loop, over as many epochs as you like, then ask for its
    `report()`. All else that `loader` has, it has too.

    Args:
        loader: a `DataLoader`, a `hotset.Loader`, or any iterable of batches.

    Raises:
        ConfigError: if it cannot be iterated over, or only once.

    Example:
        >>> import torch, hotset
        >>> data = torch.utils.data.TensorDataset(torch.zeros(64, 4))
        >>> with hotset.watch(torch.utils.data.DataLoader(data, batch_size=4)) as loader:
        ...     for (x,) in loader:
        ...         pass  # your training step
        >>> loader.report().loop.batches
        16
    """
    if not hasattr(loader, "__iter__") or isinstance(loader, (type, str, bytes, Mapping)):
        raise ConfigError(
            f"`loader` must be a DataLoader or another iterable of batches, got {loader!r}"
        )
    if iter_is_itself(loader):
        raise ConfigError("`loader` must be the loader itself, got an iterator of it")
    return Watched(loader)


class Watched:
    """A loader whose loop is watched; see `hotset.watch`.

    Args:
        loader: gives the batches.
    """

    def __init__(self, loader: Iterable[Any]) -> None:
        self._loader = loader
        self._recording: Recording | None = None
        self._machine = Machine()
        self._usage: Usage | None = None
        self._is_over = False

    def __iter__(self) -> Iterator[Any]:
        """An epoch. Only the latest one that was begun counts."""
        if self._is_over:
            yield from self._loader
            return
        machine = self._machine
        if self._recording is None:  # a model has gone to its device by now, if it ever does
            self._recording = Recording(spans=spans_if_used())
            machine.begin()
        recording = self._recording
        recording.begin_epoch()
        mine = recording.epochs
        iterator = iter(self._loader)
        while self._is_watched(mine):
            recording.ask()
            try:
                batch = next(iterator)
            except StopIteration:
                recording.end_epoch()
                return
            recording.come(batch)
            looked = machine.look()
            if len(recording) == SETTLED:
                machine.settle()
                looked = True
            if looked:  # which took a while, and is no part of the step
                recording.excuse()
            yield batch
        yield from iterator

    def _is_watched(self, epoch: int) -> bool:
        """Whether an epoch is the latest, and watching goes on."""
        recording = self._recording
        return not self._is_over and recording is not None and recording.epochs == epoch

    def __len__(self) -> int:
        return len(self._loader)  # type: ignore[arg-type]  # its own error where it has none

    def __getattr__(self, name: str) -> Any:
        if name == "_loader":  # asked for while it is copied, before there is one
            raise AttributeError(name)
        return getattr(self._loader, name)

    def __enter__(self) -> Watched:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stops watching; the loader goes on giving batches."""
        self.stop()

    def stop(self) -> None:
        """Stops watching, for good."""
        if not self._is_over:
            self._is_over = True
            if self._recording is not None:
                self._usage = self._machine.end()

    def report(
        self,
        *,
        device: str | torch.device | Link | None = None,
        progress: bool = True,
    ) -> Report:
        """Stops watching, examines the loader on a few samples, and says what was found.

        Args:
            device: where batches are trained on; None is the GPU where this process uses one.
            progress: whether to say on a terminal what is being done.

        Raises:
            ConfigError: if no batch was asked for.
        """
        self.stop()
        recording = Recording() if self._recording is None else self._recording
        with phases(is_shown=progress) as told:
            return diagnosed(self._loader, recording, usage=self._usage, device=device, told=told)
