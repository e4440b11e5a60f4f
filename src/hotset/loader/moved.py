"""Batches made on the CPU, copied to a device."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from typing import Any

from torch import Tensor

from hotset.loader.batch import Make, Pipeline
from hotset.placement.link import Link
from hotset.placement.stats import Tally


class MovedPipeline:
    """Batches made on the CPU and copied to the device.

    Args:
        inner: makes them.
        link: to the device.
        tally: counts what is copied.
    """

    def __init__(self, inner: Pipeline, link: Link, tally: Tally) -> None:
        self._inner, self._link, self._tally = inner, link, tally

    @contextmanager
    def session(self) -> Iterator[Make]:
        with self._inner.session() as make:
            yield lambda requests: (
                move(batch, self._link, self._tally) for batch in make(requests)
            )


def move(batch: Any, link: Link, tally: Tally) -> Any:
    """A batch with every tensor in it on the device; containers keep their types.

    An object with a `to` method is asked to move itself.
    """
    if not link.is_apart:
        return batch
    if isinstance(batch, Tensor):
        if batch.device == link.device and link.device.type != "cpu":
            return batch
        tally.bytes_copied += batch.numel() * batch.element_size()
        return link.send(batch)
    if hasattr(batch, "to"):  # a container may have one too, such as PackedSequence
        return batch.to(link.device)
    if isinstance(batch, Mapping):
        moved = {key: move(value, link, tally) for key, value in batch.items()}
        if not isinstance(batch, MutableMapping):
            # A mapping that cannot be changed is made anew; no protocol says how, so by convention.
            return type(batch)(moved)  # type: ignore[call-arg]
        clone = copy.copy(batch)
        clone.update(moved)
        return clone
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(move(value, link, tally) for value in batch))
    if isinstance(batch, (list, tuple)):
        return type(batch)(move(value, link, tally) for value in batch)
    return batch
