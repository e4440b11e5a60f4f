"""Datasets inside `Subset` and `ConcatDataset`, and the one transform that they share."""

from __future__ import annotations

import copy
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FunctionType, MethodType
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import ConcatDataset, Subset

from hotset.chain.step import StepCall, flatten_chain
from hotset.sample.collate import same_bits


def base_datasets(dataset: Any) -> list[Any]:
    """The datasets inside nested `Subset` and `ConcatDataset`, in order."""
    if type(dataset) is Subset:
        return base_datasets(dataset.dataset)
    if type(dataset) is ConcatDataset:
        return [base for part in dataset.datasets for base in base_datasets(part)]
    return [dataset]


def path_of(dataset: Any, index: int) -> str:
    """The file that a sample is read from, by torchvision's attributes; nothing where not known."""
    if type(dataset) is Subset:
        return path_of(dataset.dataset, int(dataset.indices[index]))
    if type(dataset) is ConcatDataset:
        part = bisect_right(dataset.cumulative_sizes, index)
        before = dataset.cumulative_sizes[part - 1] if part else 0
        return path_of(dataset.datasets[part], index - before)
    for name in ("samples", "imgs", "files", "paths"):
        entries = getattr(dataset, name, None)
        if isinstance(entries, (list, tuple)) and index < len(entries):
            entry = entries[index]
            first = entry[0] if isinstance(entry, (list, tuple)) and entry else entry
            if isinstance(first, (str, Path)):
                return str(first)
    return ""


def with_transform(dataset: Any, transform: StepCall) -> Any:
    """A shallow copy of a dataset, and of those inside it, that applies `transform` instead."""
    clone = copy.copy(dataset)
    if type(dataset) is Subset:
        clone.dataset = with_transform(dataset.dataset, transform)
    elif type(dataset) is ConcatDataset:
        clone.datasets = [with_transform(part, transform) for part in dataset.datasets]
    else:
        clone.transform = transform
        joint = getattr(dataset, "transforms", None)
        if type(joint).__name__ == "StandardTransform":  # torchvision keeps the transform twice
            clone.transforms = copy.copy(joint)
            clone.transforms.transform = transform
    return clone


def shared_transform(datasets: Sequence[Any]) -> StepCall | None:
    """The one transform that all the datasets apply; None where there is none or they differ."""
    transforms = [getattr(dataset, "transform", None) for dataset in datasets]
    first = transforms[0]
    if not callable(first) or any(not _same_chain(first, other) for other in transforms[1:]):
        return None
    return first  # type: ignore[no-any-return]


def all_transforms(dataset: Any) -> list[StepCall]:
    """Every transform that the datasets inside name, by the attributes that torchvision uses."""
    names = ("transform", "transforms", "target_transform")
    found = [getattr(base, name, None) for base in base_datasets(dataset) for name in names]
    return [call for transform in found for call in flatten_chain(transform)]


def signature_of(dataset: Any) -> list[Any]:
    """What tells whether the transforms are the same objects as before, with the same parameters.

    Parameters count where they are plain values of torchvision's own transforms; a user's callable
    may count its calls. Methods and properties make a new object whenever they are asked for, so
    what is not the same twice in a row does not count.
    """
    once, again = all_transforms(dataset), all_transforms(dataset)
    return [
        (id(call), *_parameters(call))
        for call, other in zip(once, again, strict=False)
        if call is other
    ]


def _parameters(call: StepCall) -> list[tuple[str, str]]:
    if not type(call).__module__.startswith("torchvision.transforms"):
        return []
    plain = (int, float, str, list, tuple, torch.Size)
    return [
        (name, repr(value))
        for name, value in vars(call).items()
        if isinstance(value, plain) and not name.startswith("_") and name != "training"
    ]


def _same_chain(a: Any, b: Any) -> bool:
    """Whether two transforms are the same callables with the same parameters."""
    try:
        return _same_value(flatten_chain(a), flatten_chain(b))
    except Exception:  # whatever a user's class does when asked for its state
        return False


def _same_value(a: Any, b: Any) -> bool:
    """Whether two objects are one, or of one class and state; functions must be the very same."""
    if a is b:
        return True
    if type(a) is not type(b) or isinstance(a, (type, FunctionType, MethodType)):
        return False
    if isinstance(a, (int, float, complex, str, bytes, Tensor, np.ndarray, np.generic)):
        return same_bits(a, b)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(_same_value, a, b))
    if isinstance(a, dict):
        return _same_value(list(a.items()), list(b.items()))
    if isinstance(a, (set, frozenset)):
        return bool(a == b)
    parts, others = a.__reduce_ex__(4), b.__reduce_ex__(4)
    if isinstance(parts, str) or isinstance(others, str):
        return False  # known by its name alone
    plain = [[list(p) if isinstance(p, Iterator) else p for p in o] for o in (parts, others)]
    return _same_value(*plain)
