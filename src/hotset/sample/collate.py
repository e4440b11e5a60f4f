"""Batches from columns, equal to what `torch.utils.data.default_collate` makes of the samples."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import default_collate

from hotset.errors import SchemaError
from hotset.sample.column import (
    Column,
    DenseColumn,
    LeafSchema,
    describe,
    is_pil_image,
    widened,
)
from hotset.sample.tree import Spec, flatten

LEAST_ROW_BYTES = 256
"""Shorter rows than this are gathered by torch, as long as it takes one thread for them."""
MOST_VALUES = 32_768
"""Torch shares more values than these among its threads (its grain size for copies)."""
MOST_GATHERED_BYTES = 8 << 20
"""Larger batches than this are gathered by torch's threads."""


def check_collatable(schemas: list[LeafSchema], spec: Spec) -> None:
    """Refuses leaves that `default_collate` would refuse, by name.

    Raises:
        SchemaError: if a leaf is None, a PIL image, or another object that cannot be batched.
    """
    for schema, path in zip(schemas, spec.paths(), strict=True):
        if schema.cls is type(None):
            raise SchemaError(
                f"sample{path} is None, which cannot be batched; leave it out of the sample, "
                "put a number in its place, or give the DataLoader a collate_fn that handles it"
            )
        if schema.kind == "image":
            raise SchemaError(
                f"sample{path} is a {schema}, which cannot be batched; "
                "end the transform with ToTensor() (or v2.ToImage()), or give a collate_fn"
            )
        if schema.kind == "other":
            raise SchemaError(
                f"sample{path} is of type {schema.cls.__name__}, which cannot be batched; expected "
                "tensors, NumPy arrays, numbers or text, or a collate_fn that handles it"
            )


def gather(column: Column, rows: Tensor, dtype: torch.dtype | None = None) -> Any:
    """One leaf of a batch, as `default_collate` makes it: a tensor, or a list of text.

    Args:
        column: what to gather from.
        rows: (B,) int64, on the column's device for dense data.
        dtype: what the leaf is cast to; None leaves it as it is.
    """
    if isinstance(column, DenseColumn):
        return cast(_rows_of(column.data, rows), column.schema, dtype)
    leaf = default_collate([column.item(row) for row in rows.tolist()])
    return leaf if dtype is None else leaf.to(dtype)


def cast(values: Tensor, schema: LeafSchema, dtype: torch.dtype | None) -> Tensor:
    """Values of a leaf as they come out: cast once, also where they are kept in a narrower dtype.

    Args:
        values: (B, ...) as they are kept.
        schema: of the leaf.
        dtype: what they are cast to; None gives them the leaf's own.
    """
    return widened(values, schema) if dtype is None else values.to(dtype)


def _rows_of(data: Tensor, rows: Tensor) -> Tensor:
    """(B, ...) rows of (N, ...) data.

    On the CPU one thread copies rows of some length as fast as several, and starting those costs
    more than copying a batch of a few megabytes takes; where other processes keep the cores busy,
    torch's threads wait for one another a hundred times as long.
    """
    values = data[:1].numel()
    row_bytes = values * data.element_size()
    is_worth_it = row_bytes >= LEAST_ROW_BYTES or values * len(rows) > MOST_VALUES
    is_small = is_worth_it and row_bytes * len(rows) <= MOST_GATHERED_BYTES
    is_plain = type(data) is Tensor and data.is_contiguous() and not data.requires_grad
    if not is_small or not is_plain or data.device.type != "cpu" or data.is_conj() or data.is_neg():
        return data.index_select(0, rows)
    out = torch.empty((len(rows), *data.shape[1:]), dtype=data.dtype)
    source = data.reshape(len(data), -1).view(torch.uint8).numpy()
    chosen = rows.numpy()
    if len(chosen) and not (chosen.min() >= 0 and chosen.max() < len(data)):
        raise IndexError(f"rows {chosen.min()} to {chosen.max()} of {len(data)}")
    # With the mode "raise" NumPy copies twice.
    source.take(chosen, 0, out=out.view(len(rows), -1).view(torch.uint8).numpy(), mode="clip")
    return out


def as_it_is(batch: Any) -> Any:
    """The batch itself: a collate_fn for a `DataLoader` that is only to run something.

    Without one, torch makes tensors of arrays and NumPy scalars.
    """
    return batch


_NUMBERS = ("int", "float", "bool", "scalar")


def can_batch(first: LeafSchema, other: LeafSchema, *, is_ragged: bool = False) -> bool:
    """Whether two such leaves can stand in one batch: dtypes may differ, shapes may not.

    Args:
        first: of one leaf.
        other: of the other.
        is_ragged: whether edges may differ, since leaves are padded or come out jagged.
    """
    if first.kind in _NUMBERS and other.kind in _NUMBERS:
        return True
    if is_ragged and first.kind in ("tensor", "array"):
        return first.kind == other.kind and len(first.shape) == len(other.shape)
    return first.kind == other.kind and first.shape == other.shape


def check_same(
    first: Any, other: Any, first_index: int, other_index: int, ragged: Collection[int] = ()
) -> None:
    """Names the first difference in structure, shape or dtype between two samples.

    Args:
        first: a sample.
        other: another.
        first_index: its index.
        other_index: the other's.
        ragged: leaves whose edges may differ.

    Raises:
        SchemaError: if they cannot stand in one batch.
    """
    first_leaves, spec = flatten(first)
    other_leaves, other_spec = flatten(other, spec)
    if spec != other_spec:
        raise SchemaError(
            f"samples {first_index} and {other_index} have different structures: leaves "
            f"{spec.paths()} and {other_spec.paths()}"
        )
    leaves = zip(first_leaves, other_leaves, spec.paths(), strict=True)
    for number, (a, b, path) in enumerate(leaves):
        was, now = describe(a), describe(b)
        if not can_batch(was, now, is_ragged=number in ragged):
            raise SchemaError(difference(path, first_index, was, other_index, now))


def difference(
    path: str, index: int, schema: LeafSchema, other_index: int, other: LeafSchema
) -> str:
    """The sentence that says how two leaves differ."""
    text = (
        f"sample{path} is a {schema} at index {index} but a {other} at index {other_index}; "
        "they cannot stand in one batch: resize or pad to one shape in the transform, or give the "
        "DataLoader a collate_fn that handles differing shapes"
    )
    is_ragged = schema.kind in ("tensor", "array") and schema.dtype == other.dtype
    if is_ragged and can_batch(schema, other, is_ragged=True):
        text += "; hotset.Loader pads them by itself with ragged='pad'"
    return text


def same_bits(a: Any, b: Any) -> bool:
    """Whether two leaves agree in type, shape, dtype and every bit (a NaN equals itself)."""
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        if a.shape != b.shape or a.dtype != b.dtype:
            return False
        if a.layout is not torch.strided or b.layout is not torch.strided:
            return False
        if a.is_quantized:
            return torch.equal(a, b)
        try:
            return _tensor_bytes(a) == _tensor_bytes(b)
        except NotImplementedError:  # no values, as on the meta device, or none that torch copies
            return False
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()
    if type(a) is not type(b):
        return False
    if isinstance(a, np.generic):
        return bool(a.dtype == b.dtype and a.tobytes() == b.tobytes())
    if isinstance(a, float):
        return bool(a.hex() == b.hex())  # which tells -0.0 from 0.0, and writes every NaN alike
    if is_pil_image(a):
        return bool(a.mode == b.mode and a.size == b.size and a.tobytes() == b.tobytes())
    try:
        return bool(a == b)
    except Exception:  # an object that cannot say counts as another
        return False


def _tensor_bytes(tensor: Tensor) -> bytes:
    # A new tensor: one of a single element may keep a stride that `view` refuses.
    flat = torch.empty(tensor.numel(), dtype=tensor.dtype)
    flat.copy_(tensor.detach().as_subclass(Tensor).flatten())
    return flat.view(torch.uint8).numpy().tobytes()
