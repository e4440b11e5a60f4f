"""Whether a loader provably may be accelerated: that the same batches come, or why not."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from functools import partial
from types import CodeType, FunctionType, MethodType
from typing import Any

from torch import Tensor
from torch.utils.data import DataLoader, Subset, default_collate

from hotset.chain.probe import preserved_generators, same_sample, seed_generators
from hotset.loader.cached import CachedDataset
from hotset.placement.plan import Plan
from hotset.sample.tree import flatten
from hotset.sources.source import spread
from hotset.store.store import Store

INNER = ("_get_iterator", "_index_sampler", "_auto_collation", "__getattribute__")
"""What of `DataLoader` tells which batches its `__iter__` gives, beside plain attributes."""
SEEDERS = ("torch", "lightning", "pytorch_lightning", "lightning_fabric", "transformers")
"""Packages whose own worker_init_fn seeds generators, and does no more."""
PROBES = 4


def twin_of(loader: DataLoader[Any]) -> DataLoader[Any] | str:
    """A plain `DataLoader` that gives what `DataLoader.__iter__` gives for a loader; or why not.

    It is the loader itself, or where that has an `__iter__` of its own, which goes through the
    inherited one, a plain loader of the same parts: what the subclass does with batches, it does
    with the twin's too.
    """
    kind = type(loader)
    own = [name for name in INNER if getattr(kind, name) is not getattr(DataLoader, name)]
    own += [name for name in INNER if name in vars(loader)]
    if own:
        return f"{kind.__name__} has its own {own[0]}"
    if kind.__iter__ is DataLoader.__iter__:
        return loader
    if loader.batch_sampler is None:
        return "it has batch_size=None: it gives single samples, not batches"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what there is to be said was, when the loader was made
        return DataLoader(
            loader.dataset,
            batch_sampler=loader.batch_sampler,
            num_workers=loader.num_workers,
            collate_fn=loader.collate_fn,
            timeout=loader.timeout,
            worker_init_fn=loader.worker_init_fn,
            multiprocessing_context=loader.multiprocessing_context,
            generator=loader.generator,
            prefetch_factor=loader.prefetch_factor if loader.num_workers else None,
            persistent_workers=loader.persistent_workers,
        )


def doubt_about(loader: DataLoader[Any]) -> str:
    """Why its batches need not be those of its samples, by what can be told without reading any.

    Empty where nothing speaks against it.
    """
    if loader.batch_sampler is not None and loader.collate_fn is not default_collate:
        return f"its collate_fn ({name_of(loader.collate_fn)}) is its own"
    if loader.num_workers and loader.worker_init_fn is not None:
        return _doubt_about_init(loader.worker_init_fn, loader.dataset)
    return ""


def doubt_of_batches(dataset: Any) -> str:
    """Whether reading several samples at once, where a dataset can, gives what it gives one by one.

    Raises:
        Exception: whatever the dataset does.
    """
    inner = dataset
    while type(inner) is Subset:
        inner = inner.dataset
    if isinstance(inner, (Store, CachedDataset)) or not getattr(inner, "__getitems__", None):
        return ""
    indices = spread(len(dataset), PROBES)
    for chosen in (indices, indices[:0:-1]):  # in two companies, lest the first tell nothing
        with preserved_generators():
            seed_generators(0)
            together = dataset.__getitems__(chosen) if chosen else []
            seed_generators(0)
            alone = [dataset[index] for index in chosen]
        if len(together) != len(alone) or not all(map(same_sample, together, alone)):
            return f"{type(inner).__name__}.__getitems__ gives other samples than its __getitem__"
    return ""


def doubt_in(plan: Plan) -> str:
    """Why a plan does not keep all that is needed; empty where it does."""
    for decision in plan.decisions:
        if decision.action == "worker":
            reason = decision.reason.removeprefix("per sample, since ")
            return reason if reason.startswith(decision.step) else f"{decision.step}: {reason}"
    if plan.tier == "source":
        found = plan.prediction
        return "nothing of it can be kept" if found is None else found.reason
    return ""


def doubt_of_tensors(samples: Iterable[Any]) -> str:
    """Whether tensors of samples are of a class that would be lost; torchvision's are kept."""
    for sample in samples:
        for leaf in flatten(sample)[0]:
            kind = type(leaf)
            is_kept = kind is Tensor or kind.__module__.startswith("torchvision.tv_tensors")
            if isinstance(leaf, Tensor) and not is_kept:
                return f"its samples have tensors of a class of their own ({kind.__qualname__})"
    return ""


def is_drawing(plan: Plan) -> bool:
    """Whether a step of it draws random numbers."""
    return any(d.action == "batch" and d.reason.startswith("drawn") for d in plan.decisions)


def name_of(call: Any) -> str:
    """What to call a callable."""
    while isinstance(call, partial):
        call = call.func
    return str(getattr(call, "__qualname__", type(call).__qualname__))


def _doubt_about_init(call: Any, dataset: Any) -> str:
    """Whether a worker_init_fn could do something to the dataset of its worker."""
    words = f"its worker_init_fn ({name_of(call)}) may change what a worker reads"
    function, held = call, []
    while isinstance(function, partial):
        held += [*function.args, *function.keywords.values()]
        function = function.func
    if str(getattr(function, "__module__", "")).partition(".")[0] in SEEDERS:
        return ""
    if isinstance(function, MethodType):
        held.append(function.__self__)
        function = function.__func__
    if not isinstance(function, FunctionType):
        return words
    held += [cell.cell_contents for cell in function.__closure__ or () if _is_filled(cell)]
    names = set(_names(function.__code__))
    held += [value for name, value in function.__globals__.items() if name in names]
    if "get_worker_info" in names or any(_reaches(value, dataset) for value in held):
        return words
    return ""


def _is_filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018  # which raises where it is empty
    except ValueError:
        return False
    return True


def _names(code: CodeType) -> Iterator[str]:
    """Names that code speaks of, with the functions within it."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _reaches(value: Any, dataset: Any) -> bool:
    """Whether a value is the dataset or a part of it, holds it, or is code that may."""
    parts = [dataset]
    while type(parts[-1]) is Subset:
        parts.append(parts[-1].dataset)
    things = [value, *getattr(value, "__dict__", {}).values()]
    is_code = isinstance(value, FunctionType) and "get_worker_info" in set(_names(value.__code__))
    return is_code or any(thing is part for thing in things for part in parts)
