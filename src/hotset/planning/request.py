"""What a plan is asked for, looked at."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from torch.utils.data import DataLoader

from hotset.building.finding import location_of
from hotset.errors import ConfigError, UnsupportedError
from hotset.keys.source import SourceIdentity, identity_of
from hotset.loader.epochs import Epochs
from hotset.loader.forms import check_ragged, named_in
from hotset.loader.loader import check_loader
from hotset.loader.narrowing import check_storage_dtype
from hotset.loader.options import Cache, Options
from hotset.loader.order import SamplerOrder
from hotset.loader.worker import worker_settings
from hotset.placement.link import Link
from hotset.placement.outlook import Outlook
from hotset.placement.placing import PREFETCH_BATCHES, PREFETCH_BYTES, placing_of
from hotset.sources.mapstyle import dataset_source
from hotset.sources.source import (
    Source,
    array_source,
    check_length,
    dataset_length,
    is_array_data,
    memory_source,
)

BATCH_SIZE = 64
"""Of a dataset's batches, where none is given."""
Step = Callable[[Any], object] | float | None
"""A training step: a callable that takes a batch, or the milliseconds that it takes for one."""


@dataclass(frozen=True)
class Asked:
    """What a plan is asked for.

    Attributes:
        dataset: the user's dataset or arrays.
        source_of: makes its source, which may read samples.
        options: as for a loader.
        batch_size: samples in a batch.
        drawn: samples in an epoch.
        step: a training step, its time, or None.
        samples: how many samples are measured at most.
        is_persistent: whether the plain loader keeps its workers from one epoch to the next.
        step_cores: cores that a step was seen to keep busy whose time is given; None where that is
            not known.
    """

    dataset: Any
    source_of: Callable[[], Source]
    options: Options
    batch_size: int
    drawn: int
    step: Step
    samples: int
    is_persistent: bool = False
    step_cores: float | None = None


def asked_for(
    data: Any,
    *,
    link: Link,
    placing: dict[str, Any],
    cache: Any = None,
    step: Any = None,
    step_cores: float | None = None,
    workers: Any = None,
    batch_size: Any = None,
    samples: Any = 16,
    storage_dtype: Any = None,
    ragged: Any = None,
    transform: Any = None,
) -> Asked:
    """What was asked for.

    Args:
        data: a loader, a dataset or arrays.
        link: to the device.
        placing: tier, budget, reserve and policy, as for a loader.
        cache: see `hotset.plan`, as all that follow.
        step: likewise.
        step_cores: cores that the step was seen to keep busy, where `step` is its time.
        workers: likewise.
        batch_size: likewise.
        samples: likewise.
        storage_dtype: likewise.
        ragged: likewise.
        transform: likewise.

    Raises:
        HotsetError: as `hotset.plan` does.
    """
    if isinstance(data, Epochs):
        raise UnsupportedError("this loader is hotset's own already; what it does is its `.plan`")
    rules = check_ragged(ragged)
    settings: dict[str, Any] = {"num_workers": 0, "collate_fn": None}
    dataset, size, drawn, outlook = data, BATCH_SIZE, None, Outlook(may_read_ahead=True)
    if isinstance(data, DataLoader):
        check_loader(data)
        _refuse_for_loader(ragged=ragged, transform=transform)
        dataset, settings = data.dataset, worker_settings(data)
    source_of: Callable[[], Source] = partial(dataset_source, dataset, transform)
    if not isinstance(data, DataLoader) and is_array_data(data):
        source_of = partial(array_source, data, transform, ragged=named_in(rules))
        length = check_length(len(source_of()), "the data")
    else:
        length = dataset_length(dataset)
    if isinstance(data, DataLoader):
        outlook = SamplerOrder(data, length).outlook
        size, drawn = _batches_of(data)
    if workers is not None:
        settings["num_workers"] = _whole("workers", workers, 0)
    if batch_size is not None:
        size = _whole("batch_size", batch_size, 1)
    if batch_size is not None or not isinstance(data, DataLoader):
        outlook = replace(outlook, batch_rows=size)
    where = None if cache is None else location_of(cache, argument="cache")
    options = Options(
        link=link,
        placing=placing_of(
            **placing,
            prefetch_batches=PREFETCH_BATCHES,
            prefetch_bytes=PREFETCH_BYTES,
            is_apart=link.is_apart,
        ),
        storage_dtype=check_storage_dtype(storage_dtype, tier=placing["tier"]),
        ragged=rules,
        settings=settings,
        outlook=outlook,
        cache=None if where is None else Cache(where, dataset, identity=_identity_of(dataset)),
    )
    return Asked(
        dataset,
        source_of,
        options,
        min(size, length),
        length if drawn is None else drawn,
        _checked_step(step),
        _whole("samples", samples, 2),
        is_persistent=isinstance(data, DataLoader) and data.persistent_workers,
        step_cores=step_cores,
    )


def _refuse_for_loader(**given: Any) -> None:
    """Refuses what acts on datasets and arrays alone.

    Raises:
        ConfigError: names the argument.
    """
    for name, value in given.items():
        if value is not None:
            raise ConfigError(
                f"`{name}` is for datasets and arrays, as in hotset.Loader; hotset.accelerate has "
                "none for a DataLoader: leave it out, or plan the DataLoader's dataset"
            )


def _identity_of(dataset: Any) -> SourceIdentity | None:
    """As loaders take it, before anything is read; samples in memory stay as they are."""
    return None if memory_source(dataset) is not None else identity_of(dataset)


def _batches_of(loader: DataLoader[Any]) -> tuple[int, int | None]:
    """Samples in a batch and in an epoch, as far as the loader says so; no sampler is started."""
    batches: Any = loader.batch_sampler
    size = loader.batch_size or getattr(batches, "batch_size", None)
    try:
        count = len(batches)
        drawn = len(batches.sampler) if hasattr(batches, "sampler") else None
    except TypeError:  # a sampler need not know its length
        return size or BATCH_SIZE, None
    if not isinstance(size, int):
        # torch's `Dataset` has no length for the checker; that it has one was looked at before.
        size = max(1, -(-(drawn or len(loader.dataset)) // max(1, count)))  # type: ignore[arg-type]
    return size, drawn if not loader.drop_last else count * size


def _whole(name: str, value: Any, least: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ConfigError(f"`{name}` must be a whole number of at least {least}, got {value!r}")
    return value


def _checked_step(step: Any) -> Step:
    if isinstance(step, (int, float)) and not isinstance(step, bool) and 0 <= step < math.inf:
        return float(step)
    if step is None or callable(step):
        # A callable of the user's own: what it takes cannot be told without calling it.
        return step  # type: ignore[no-any-return]
    raise ConfigError(
        f"`step` must be a callable that takes a batch, milliseconds per batch, or None, got "
        f"{step!r}"
    )
