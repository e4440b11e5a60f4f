"""What traps are looked for in."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from torch import Tensor
from torch.utils.data import DataLoader

from hotset.chain.probe import own_generators, preserved_generators
from hotset.doctor.examination import Examination
from hotset.doctor.facts import Fetch, fetch_of
from hotset.doctor.machine.cuda import is_used
from hotset.doctor.machine.usage import Usage
from hotset.doctor.traps.holdings import Held, held_by, on_devices
from hotset.sample.tree import flatten

LITTLE = 0.05
"""A smaller share of the time is not worth a word."""


@dataclass(frozen=True, eq=False)
class Seen:
    """What traps are looked for in; what takes a moment is looked at once, when it is asked for.

    Attributes:
        loader: the user's own.
        examination: what was found out about it.
        usage: of the machine while its loop ran; None where that was not seen.
        shared_memory: where tensors lie that processes share.
    """

    loader: DataLoader[Any]
    examination: Examination
    usage: Usage | None
    shared_memory: str

    @cached_property
    def fetch(self) -> Fetch:
        """How the loader comes by its batches."""
        return fetch_of(self.loader)

    @cached_property
    def held(self) -> list[Held]:
        """What the dataset holds."""
        return held_by(self.loader.dataset)

    @cached_property
    def device(self) -> str:
        """The device other than the CPU that samples come on; empty where they do not."""
        if not on_devices(self.held) and not is_used():
            return ""
        try:
            with preserved_generators(own_generators([self.fetch.dataset])):
                leaves = flatten(self._item())[0]
        except Exception:  # the user's dataset may raise anything, which is noted where it is timed
            return ""
        devices = [leaf.device for leaf in leaves if isinstance(leaf, Tensor)]
        return next((str(device) for device in devices if device.type != "cpu"), "")

    def _item(self) -> Any:
        fetch = self.fetch
        if fetch.is_stream:
            return None
        return fetch.read(next(fetch.rows(fetch.size if fetch.is_keyed else 1)))

    @property
    def is_one_by_one(self) -> bool:
        """Whether the samples of a batch are asked for one by one."""
        fetch = self.fetch
        return fetch.items > 1 and not fetch.is_whole and not fetch.is_stream
