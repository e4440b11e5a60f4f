"""Fields that a user gave as arrays: which container is one field, and the column of each.

A list of arrays in a dictionary or tuple may be a structure, an array for each of its places, or
one field whose samples differ in shape. Arrays of a structure have one length, the number of
samples; where that cannot be, the list is a field.
"""

from __future__ import annotations

import numbers
from collections.abc import Collection
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hotset.errors import ConfigError, SchemaError
from hotset.sample.column import Column, LeafSchema, RaggedColumn, column_of, describe
from hotset.sample.tree import Spec, flatten, is_at


def columns_of(data: Any, named: Collection[Any] | None = ()) -> tuple[list[Column], Spec]:
    """A column for each field, and the structure of a sample.

    Args:
        data: a tensor or array, or a tuple, list or dictionary of them. Beneath the outermost
            container, a list or tuple of arrays, one for each sample, is one field where their
            lengths differ, or where they cannot be arrays of samples for their length; so is a
            nested tensor anywhere.
        named: names or paths of fields that the user speaks of: a list there is one field too;
            None speaks of all.

    Raises:
        ConfigError: if it holds nothing.
        SchemaError: if a field is none that can be kept; names it.
    """
    found, spec = flatten(data, is_leaf=lambda node: node is not data and _is_list(node))
    for value, path in zip(found, spec.paths(), strict=True):
        if isinstance(value, (list, tuple)) and not isinstance(value[0], (Tensor, np.ndarray)):
            _refuse_numbers(value, path)
    counts = {v.shape[0] if isinstance(v, np.ndarray) else v.size(0) for v in found if _has_axis(v)}
    all_lists = [
        (value, path)
        for value, path in zip(found, spec.paths(), strict=True)
        if isinstance(value, (list, tuple))
    ]
    lists = {
        id(value)
        for value, path in all_lists
        if _is_field(value, counts) or any(is_at(path, name) for name in named or ())
    }
    if named is None:
        known = counts | {len(value) for value, _ in all_lists if id(value) in lists}
        lists |= {id(value) for value, _ in all_lists if not _is_structure(value, known)}
    fields, spec = flatten(data, is_leaf=lambda node: node is not data and id(node) in lists)
    if not fields:
        raise ConfigError(f"the data holds no field, got {data!r}")
    columns = [
        _column(value, f"data{path}" if path else "the data")
        for value, path in zip(fields, spec.paths(), strict=True)
    ]
    return columns, spec


def _has_axis(value: Any) -> bool:
    """Whether it is an array or tensor with samples along its first axis."""
    return isinstance(value, (Tensor, np.ndarray)) and value.ndim > 0


def _is_list(node: Any) -> bool:
    """Whether a container may be one field: arrays only, or numbers, which are refused."""
    if not isinstance(node, (list, tuple)) or hasattr(node, "_fields") or not node:
        return False
    if isinstance(node[0], (Tensor, np.ndarray)):
        return all(isinstance(item, (Tensor, np.ndarray)) for item in node)
    return isinstance(node, list) and _is_numbers(node)


def _is_numbers(node: list[Any]) -> bool:
    first = next((item for item in node if not (isinstance(item, list) and not item)), None)
    if isinstance(first, list):
        first = first[0]
    return isinstance(first, numbers.Number)


def _refuse_numbers(value: Any, path: str) -> None:
    if isinstance(value[0], list):
        raise SchemaError(
            f"data{path} is a list of lists of numbers, which do not say their dtype; give a "
            f"tensor or array for each, as [torch.tensor(row) for row in data{path}]"
        )
    raise SchemaError(
        f"data{path} is a list of numbers, which do not say their dtype; give a tensor or array of "
        f"them, as torch.tensor(data{path})"
    )


def _is_field(items: Any, counts: set[int]) -> bool:
    """Whether a list of arrays is one field, rather than an array of samples in each place.

    Args:
        items: the arrays.
        counts: numbers of samples that other arrays have.
    """
    lengths = {len(item) if item.ndim > 0 else -1 for item in items}
    if -1 in lengths:
        return False
    return len(lengths) > 1 or (bool(counts) and lengths.isdisjoint(counts))


def _is_structure(items: Any, counts: set[int]) -> bool:
    """Whether other fields say that a list holds an array of samples in each place.

    Args:
        items: the arrays.
        counts: numbers of samples that other fields have.
    """
    lengths = {len(item) if item.ndim > 0 else -1 for item in items}
    return bool(counts) and lengths <= counts and len(items) not in counts


def _column(value: Any, name: str) -> Column:
    if isinstance(value, (list, tuple)):
        return _of_items(value, name)
    if isinstance(value, Tensor) and value.is_nested:
        return _of_nested(value, name)
    return column_of(value, name)


def _of_items(items: Any, name: str) -> RaggedColumn:
    first = describe(items[0])
    if first.dtype is None or not first.shape:
        raise SchemaError(
            f"{name} must hold plain tensors or arrays with an axis, one for each sample, got a "
            f"{first}"
        )
    alike = _kind(items[0])
    for number, item in enumerate(items):
        if _kind(item) != alike:
            raise SchemaError(
                f"{name} has a {first} at index 0 but a {describe(item)} at index {number}; the "
                "samples of a field must have one type, one dtype and one number of axes, and lie "
                "on one device"
            )
    index = _index_of(np.array([item.shape for item in items], dtype=np.int64))
    if isinstance(items[0], Tensor):
        flat = [item.detach().as_subclass(Tensor).reshape(-1) for item in items]
        data = torch.cat(flat).resolve_conj().resolve_neg()
    else:
        data = torch.from_numpy(np.concatenate([item.reshape(-1) for item in items]))
    return RaggedColumn(first, data, index)


def _kind(item: Any) -> tuple[Any, ...]:
    """What the samples of a field have in common."""
    return type(item), item.dtype, item.ndim, getattr(item, "device", None)


def _of_nested(tensor: Any, name: str) -> RaggedColumn:
    """A nested tensor's values are not copied where they lie end to end already."""
    is_plain = tensor.layout is torch.jagged and isinstance(tensor.shape[1], torch.SymInt)
    if not is_plain or tensor.lengths() is not None:
        return _of_items(list(tensor.detach().unbind()), name)
    values, offsets = tensor.values().detach(), tensor.offsets().cpu().numpy()
    lengths = np.diff(offsets)
    if (lengths < 0).any() or offsets[0] < 0 or offsets[-1] > len(values):
        raise SchemaError(
            f"{name} is a nested tensor whose offsets {offsets.tolist()[:8]} do not lie within its "
            f"{len(values)} values"
        )
    tail = tuple(values.shape[1:])
    index = _index_of(np.stack([lengths, *(np.full_like(lengths, edge) for edge in tail)], axis=1))
    index[:, 0] += offsets[0] * int(np.prod(tail, dtype=np.int64))
    schema = LeafSchema("tensor", tuple(index[:1, 1:].reshape(-1).tolist()), values.dtype, Tensor)
    return RaggedColumn(schema, values.contiguous().reshape(-1), index)


def _index_of(shapes: np.ndarray) -> np.ndarray:
    """(N, 1 + axes) int64 index of leaves that lie end to end, of their (N, axes) shapes."""
    sizes = shapes.prod(axis=1)
    return np.concatenate([(sizes.cumsum() - sizes)[:, None], shapes], axis=1)
