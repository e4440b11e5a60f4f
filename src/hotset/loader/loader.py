"""The public ways to a loader: `hotset.accelerate` and `hotset.Loader`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    RandomSampler,
    SequentialSampler,
)

from hotset.building.finding import location_of
from hotset.errors import ConfigError, UnsupportedError
from hotset.keys.source import identity_of
from hotset.loader.assemble import as_parts, assemble
from hotset.loader.cast import check_dtype
from hotset.loader.epochs import Epochs, Parts
from hotset.loader.forms import check_ragged, named_in
from hotset.loader.narrowing import check_storage_dtype
from hotset.loader.options import CHECK_EVERY, FILL, Cache, Fill, Options
from hotset.loader.order import Order, SamplerOrder
from hotset.loader.seeded import SeededOrder
from hotset.loader.worker import worker_settings
from hotset.placement.budget import Budget
from hotset.placement.link import Link, link_to
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
from hotset.sources.sweep import Progress


def accelerate(
    loader: DataLoader[Any],
    *,
    device: str | torch.device | Link | None = None,
    dtype: torch.dtype | None = None,
    channels_last: bool = False,
    budget: int | str | Mapping[str, Any] | Budget | None = None,
    check_every: int = CHECK_EVERY,
    progress: Progress | None = None,
    cache: str | os.PathLike[str] | None = None,
    fill: Fill = "eager",
    version: str | None = None,
    tier: str = "auto",
    reserve: int | str = 0,
    policy: str = "auto",
    prefetch_batches: int = PREFETCH_BATCHES,
    prefetch_bytes: int | str = PREFETCH_BYTES,
    storage_dtype: torch.dtype | Mapping[Any, torch.dtype] | None = None,
) -> Loader:
    """A loader that gives the same batches as `loader`, only sooner.

    The deterministic part of the dataset's transform chain is run once and kept in memory; the
    random part is drawn per sample, for whole batches, on the device. For the same
    `torch.manual_seed`, samples come in the same order. What was decided, and why, stands in
    `.plan`.

    Args:
        loader: over a map-style dataset. It is read, never changed.
        device: where batches come out; None is torch's default device.
        dtype: floating dtype that what the transform makes, or without one the first leaf, comes
            out as, if it is an image or floating-point; integers and labels keep theirs. None keeps
            what the chain makes.
        channels_last: whether images come out in `torch.channels_last`.
        budget: what kept samples may take on the device (on the CPU: in memory): bytes, "8GB" or
            "60%" of what is free; None is half of what is free. For several memories a mapping of
            "device", "host" and "disk" to these; for several loaders one `hotset.Budget`.
        check_every: one sample in so many of the first epoch is made again by the dataset itself
            and compared bit for bit; 0 compares none.
        progress: called with (samples read, total) while the data is read once.
        cache: a folder that keeps the data on disk from one run to the next, as a `hotset.Store`
            for each dataset and chain, made where there is none; or the URL of such a folder, as
            "s3://bucket/stores" (see `hotset.open`). None keeps it in memory.
        fill: when a new store is filled: "eager" at once, "lazy" in the first epoch, which then
            starts without delay. An epoch that is left early is used as far as it got.
        version: your word for what the store cannot be told apart by itself (see `hotset.build`).
        tier: where samples are kept: "device", "mixed" (a part there, the rest copied when it is
            wanted), "host" or "disk"; "auto" takes the first of these that has room.
        reserve: bytes to be left free on the device for the model, in the same spellings.
        policy: which samples a device keeps that has no room for all: "static", "next-use",
            "frequency" or "lru"; "auto" chooses by the sampler.
        prefetch_batches: batches on their way to the device at once.
        prefetch_bytes: bytes on their way at once, at most.
        storage_dtype: torch.float16, torch.bfloat16 or torch.float32, which floating-point samples
            are kept in where they are held in memory or on the device: what the steps that run
            once give is rounded to it, and widened again before the other steps, so that batches
            come out in the dtype that they had. The error is measured and stands in `.plan`. It
            acts on what `dtype` acts on; for samples that are dictionaries `{field: dtype}` names
            others. None keeps every bit.

    Returns:
        A `hotset.Loader`.

    Raises:
        UnsupportedError: for an `IterableDataset`, or what is no DataLoader.
        ConfigError: for arguments that cannot be used, or an empty dataset.
        DeviceError: if the device is not there.
        SampleError: if a sample cannot be read; names its index.
        SchemaError: if samples cannot be batched; names the index and the leaf.
        PrecisionError: if a value lies outside the range of `storage_dtype`.
        KeyingError: with `cache`, if something cannot be told apart by itself, or samples are read
            from files that nothing names; give a `version`.

    Example:
        >>> import torch, hotset
        >>> data = torch.utils.data.TensorDataset(torch.arange(6.0).reshape(6, 1), torch.arange(6))
        >>> fast = hotset.accelerate(torch.utils.data.DataLoader(data, batch_size=4), device="cpu")
        >>> [y.tolist() for x, y in fast]
        [[0, 1, 2, 3], [4, 5]]
    """
    check_loader(loader)
    link, out_dtype = link_to(device), check_dtype(dtype)
    _check_every(check_every)
    dataset = loader.dataset
    length = dataset_length(dataset)
    if fill not in FILL:
        raise ConfigError(f"`fill` must be one of {', '.join(FILL)}, got {fill!r}")
    if cache is None and (fill != "eager" or version is not None):
        raise ConfigError("`fill` and `version` are for a store on disk: give a `cache` folder")
    order = SamplerOrder(loader, length)
    kept: Cache | None = None
    if cache is not None:
        # Samples in memory stay as they are when they are read; all else may not.
        identity = None if memory_source(dataset) is not None else identity_of(dataset)
        place = location_of(cache, argument="cache")
        kept = Cache(place, dataset, fill, version, identity)
    options = Options(
        link=link,
        placing=placing_of(
            tier=tier,
            budget=budget,
            reserve=reserve,
            policy=policy,
            prefetch_batches=prefetch_batches,
            prefetch_bytes=prefetch_bytes,
            is_apart=link.is_apart,
        ),
        dtype=out_dtype,
        storage_dtype=check_storage_dtype(storage_dtype, tier=tier),
        is_channels_last=channels_last,
        check_every=check_every,
        settings=worker_settings(loader),
        progress=progress,
        outlook=order.outlook,
        cache=kept,
    )
    with nullcontext() if kept is None else kept.opened:
        source = dataset_source(dataset)
    made = assemble(source, options)
    result = Loader._of(as_parts(made, order, dataset, loader.batch_size))
    result.sampler, result.batch_sampler = loader.sampler, loader.batch_sampler
    result.drop_last, result.num_workers = loader.drop_last, loader.num_workers
    return result


def check_loader(loader: Any) -> None:
    """Refuses what is not a `DataLoader` whose batches are known from its parts.

    Raises:
        UnsupportedError: says what to give instead.
    """
    if isinstance(loader, Epochs):
        raise UnsupportedError("this loader is hotset's own already; pass the DataLoader")
    if isinstance(loader, (str, bytes, os.PathLike)):
        raise UnsupportedError(
            f"accelerate takes a torch.utils.data.DataLoader, got {loader!r}; for a store's path "
            f"use hotset.Loader(hotset.open({loader!r}), batch_size=...)"
        )
    if not isinstance(loader, DataLoader):
        raise UnsupportedError(
            f"accelerate takes a torch.utils.data.DataLoader, got a {type(loader).__name__}; for a "
            "dataset or arrays use hotset.Loader(data, batch_size=...)"
        )
    if type(loader).__iter__ is not DataLoader.__iter__:
        raise UnsupportedError(
            f"{type(loader).__name__} has an __iter__ of its own, which need not give what its "
            "sampler and collate_fn say; pass a torch.utils.data.DataLoader itself"
        )


class Loader(Epochs):
    """Batches from a dataset or from arrays, resident and augmented in batches on the device.

    Args:
        source: a map-style dataset; or a tensor, array, or tuple, list or dictionary of them,
            samples along the first axis. Arrays that lie on the device are not copied: what you
            write to them is seen by later batches, so change them between epochs only. A field
            whose samples differ in length is a list of tensors or arrays, one for each sample, or
            a nested tensor; see `ragged`.
        batch_size: samples per batch (and rank).
        shuffle: a new order every epoch.
        transform: callable, or list of callables, on the first field of a sample (behind a
            dataset's own transform); for dictionaries `{field: transform}`.
        device: where batches come out; None is torch's default device.
        dtype: floating dtype that the transform's field, or without one the first, comes out as, if
            it is an image or floating-point; integers and labels keep theirs.
        seed: makes order and augmentation a function of (seed, epoch), on every machine and at any
            world size. None draws from torch's generator as a `DataLoader` does.
        drop_last: whether a short last batch is left out.
        shard: (rank, world size): this loader's part of every global batch. Needs a seed.
        num_workers: processes for steps that have no batched form.
        channels_last: whether images come out in `torch.channels_last`.
        budget: what kept samples may take: bytes, "8GB", "60%", a mapping of "device", "host" and
            "disk" to these, or a `hotset.Budget` (see `hotset.accelerate`).
        check_every: one sample in so many of the first epoch is made again and compared; 0 for
            none.
        progress: called with (samples read, total) while data is read once.
        tier: where samples are kept; as all that follow but the last, see `hotset.accelerate`.
        reserve: bytes to be left free on the device for the model.
        policy: which samples a device keeps that has no room for all.
        prefetch_batches: batches on their way to the device at once.
        prefetch_bytes: bytes on their way at once, at most.
        storage_dtype: dtype that the first field is kept in, if it is floating-point; for
            dictionaries also `{field: dtype}`. Arrays are then copied, and what you write to them
            is not seen.
        ragged: how fields whose length differs come out: "pad", or a `hotset.Padded` with more to
            say, fills up to the longest of the batch; "jagged" gives nested tensors
            (`torch.nested`) of jagged layout, whose offsets tell the lengths. By field for some of
            them, as {"tokens": "pad"}; a field that is named comes out so even where all lengths
            are the same. None refuses such fields. With "pad", add a field of lengths where you
            want them.

    Raises:
        ConfigError: for arguments that cannot be used, or no samples.
        HotsetError: as `hotset.accelerate` does.

    Example:
        >>> import torch, hotset
        >>> images, labels = torch.zeros(8, 3, 4, 4, dtype=torch.uint8), torch.arange(8)
        >>> loader = hotset.Loader(
        ...     (images, labels), batch_size=4, shuffle=True, seed=0, device="cpu"
        ... )
        >>> sorted(int(y) for _, labels in loader for y in labels)
        [0, 1, 2, 3, 4, 5, 6, 7]
    """

    sampler: Any = None
    batch_sampler: Any = None
    drop_last: bool = False
    num_workers: int = 0

    def __init__(
        self,
        source: Any,
        batch_size: int = 1,
        *,
        shuffle: bool = False,
        transform: Any = None,
        device: str | torch.device | Link | None = None,
        dtype: torch.dtype | None = None,
        seed: int | None = None,
        drop_last: bool = False,
        shard: tuple[int, int] = (0, 1),
        num_workers: int = 0,
        channels_last: bool = False,
        budget: int | str | Mapping[str, Any] | Budget | None = None,
        check_every: int = CHECK_EVERY,
        progress: Progress | None = None,
        tier: str = "auto",
        reserve: int | str = 0,
        policy: str = "auto",
        prefetch_batches: int = PREFETCH_BATCHES,
        prefetch_bytes: int | str = PREFETCH_BYTES,
        storage_dtype: torch.dtype | Mapping[Any, torch.dtype] | None = None,
        ragged: Any = None,
    ) -> None:
        if isinstance(source, DataLoader):
            raise UnsupportedError("to make a DataLoader faster use hotset.accelerate(loader)")
        _check_batch_size(batch_size)
        _check_workers(num_workers)
        _check_every(check_every)
        link, out_dtype, rules = link_to(device), check_dtype(dtype), check_ragged(ragged)
        if is_array_data(source):
            found: Source = array_source(source, transform, ragged=named_in(rules))
            length = check_length(len(found), "the data")
        else:
            length = dataset_length(source)
            found = dataset_source(source, transform)
        order = _order(length, batch_size, shuffle, drop_last, seed, shard)
        options = Options(
            link=link,
            placing=placing_of(
                tier=tier,
                budget=budget,
                reserve=reserve,
                policy=policy,
                prefetch_batches=prefetch_batches,
                prefetch_bytes=prefetch_bytes,
                is_apart=link.is_apart,
            ),
            dtype=out_dtype,
            storage_dtype=check_storage_dtype(storage_dtype, tier=tier),
            ragged=rules,
            is_channels_last=channels_last,
            check_every=check_every,
            settings={"num_workers": num_workers, "collate_fn": None},
            progress=progress,
            outlook=order.outlook,
        )
        super().__init__(as_parts(assemble(found, options), order, source, batch_size))
        self.drop_last, self.num_workers = drop_last, num_workers

    @classmethod
    def _of(cls, parts: Parts) -> Loader:
        loader = cls.__new__(cls)
        Epochs.__init__(loader, parts)
        return loader


def _order(
    length: int,
    batch_size: int,
    shuffle: bool,
    drop_last: bool,
    seed: Any,
    shard: tuple[int, int],
) -> Order:
    rank, world = _check_shard(shard)
    if seed is not None:
        if not isinstance(seed, int) or isinstance(seed, bool):
            raise ConfigError(f"`seed` must be a whole number or None, got {seed!r}")
        return SeededOrder(
            length,
            batch_size,
            is_shuffled=shuffle,
            drop_last=drop_last,
            seed=seed,
            shard=(rank, world),
        )
    if world > 1:
        raise ConfigError("`shard` needs a `seed`, so that all ranks agree on the order")
    indices = range(length)
    sampler = RandomSampler(indices) if shuffle else SequentialSampler(indices)
    batches = BatchSampler(sampler, batch_size, drop_last)
    return SamplerOrder(DataLoader(indices, batch_sampler=batches), length)  # type: ignore[arg-type]


def _check_batch_size(batch_size: Any) -> None:
    if not isinstance(batch_size, int) or isinstance(batch_size, bool) or batch_size < 1:
        raise ConfigError(f"`batch_size` must be a whole number of at least 1, got {batch_size!r}")


def _check_workers(num_workers: Any) -> None:
    if not isinstance(num_workers, int) or isinstance(num_workers, bool) or num_workers < 0:
        raise ConfigError(f"`num_workers` must be a whole number, 0 or more, got {num_workers!r}")


def _check_every(check_every: Any) -> None:
    if not isinstance(check_every, int) or isinstance(check_every, bool) or check_every < 0:
        raise ConfigError(
            f"`check_every` must be a whole number, 0 for no comparison, got {check_every!r}"
        )


def _check_shard(shard: Any) -> tuple[int, int]:
    try:
        rank, world = (int(number) for number in shard)
    except (TypeError, ValueError):
        rank, world = -1, 0
    if not 0 <= rank < world:
        raise ConfigError(f"`shard` must be (rank, world size), as (0, 4), got {shard!r}")
    return rank, world
