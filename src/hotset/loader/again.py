"""The data of a loader once more, in the order of another `DataLoader`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from torch.utils.data import DataLoader

from hotset.errors import ConfigError
from hotset.loader.loader import Loader
from hotset.loader.order import SamplerOrder


def again(made: Loader, loader: DataLoader[Any]) -> Loader | None:
    """A loader over what another one keeps; nothing is read, nothing is kept twice.

    An index from the end is an error there: a dataset need not take it for what hotset does.

    Args:
        made: as `accelerate` gives it.
        loader: over the same dataset object, with the same collate_fn. Its samplers and generators
            say which samples come when.

    Returns:
        None where what was made suits another kind of order: it may read ahead of the sampler and
        this one must not, or part of its data is on a device by what was known of the order.
    """
    order = _StrictOrder(loader, len(made.dataset))
    had, has = made._parts.order.outlook, order.outlook
    if made.plan.tier == "mixed" or had.may_read_ahead != has.may_read_ahead:
        return None
    result = Loader._of(replace(made._parts, order=order, batch_size=loader.batch_size))
    result.sampler, result.batch_sampler = loader.sampler, loader.batch_sampler
    result.drop_last, result.num_workers = loader.drop_last, loader.num_workers
    return result


class _StrictOrder(SamplerOrder):
    """The order of a `DataLoader` whose indices all count from the start."""

    def _ids(self, batch: Sequence[int]) -> np.ndarray:
        ids = super()._ids(batch)
        from_end = [index for index in batch if index < 0]
        if from_end:
            raise ConfigError(
                f"the sampler gave the index {int(from_end[0])}, from the end, which a dataset may "
                "take for something else; give it as a whole number from 0 on"
            )
        return ids
