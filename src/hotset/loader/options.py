"""What is asked of a loader, looked at and grouped."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch.utils.data import default_collate

from hotset.building.locations import Location
from hotset.keys.source import SourceIdentity
from hotset.loader.forms import Rules
from hotset.placement.link import Link
from hotset.placement.outlook import Outlook
from hotset.placement.placing import Placing
from hotset.sources.opened import Opened
from hotset.sources.sweep import Progress

CHECK_EVERY = 1000
Fill = Literal["eager", "lazy"]
FILL = ("eager", "lazy")


@dataclass(frozen=True)
class Cache:
    """Where samples are to be kept on disk.

    Attributes:
        folder: holds one store per dataset and chain; of this machine, or at a URL.
        dataset: the user's, which tells what a store was made from.
        fill: "eager" before the first epoch, "lazy" in it.
        version: the user's word for what cannot be keyed.
        identity: of the dataset, taken before anything was read from it; None takes it later.
        opened: listens to which files reading samples opens.
    """

    folder: Location
    dataset: Any
    fill: Fill = "eager"
    version: str | None = None
    identity: SourceIdentity | None = None
    opened: Opened = field(default_factory=Opened)


@dataclass(frozen=True)
class Options:
    """How batches are to come out, and what may be used for it.

    Attributes:
        link: to the device where batches come out.
        placing: where samples may be kept, and which of them.
        dtype: floating dtype of the chain's leaf; None leaves it as the chain makes it.
        storage_dtype: floating dtype that the chain's leaf is kept in, where it is floating-point;
            None keeps it as it is. By field for dictionaries.
        ragged: how leaves whose shape differs come out; None refuses them.
        is_channels_last: memory format of images.
        check_every: one sample in so many of the first epoch is compared; 0 compares none.
        settings: of the `DataLoader` that runs what has no batched form.
        progress: told how far the filling is.
        threads: CPU threads of a kernel; None for torch's number.
        outlook: what is known of the order.
        cache: where samples are to be kept on disk; None keeps them in memory.
    """

    link: Link
    placing: Placing = field(default_factory=Placing)
    dtype: torch.dtype | None = None
    storage_dtype: Any = None
    ragged: Rules = None
    is_channels_last: bool = False
    check_every: int = CHECK_EVERY
    settings: dict[str, Any] = field(default_factory=lambda: {"num_workers": 0, "collate_fn": None})
    progress: Progress | None = None
    threads: int | None = None
    outlook: Outlook = field(default_factory=Outlook)
    cache: Cache | None = None

    @property
    def device(self) -> torch.device:
        """Where batches come out."""
        return self.link.device

    @property
    def collate(self) -> Callable[[list[Any]], Any] | None:
        """A collate function of the user's own; None for torch's default."""
        collate = self.settings.get("collate_fn")
        return None if collate in (None, default_collate) else collate

    @property
    def workers(self) -> int:
        """Processes that may read."""
        return int(self.settings.get("num_workers", 0))
