"""Columns over the bytes of a store's files; nothing is copied."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hotset.sample.column import Column, DenseColumn, RaggedColumn
from hotset.store.layout import Field


def tensor_over(values: np.ndarray, dtype: torch.dtype) -> Tensor:
    """(values,) tensor of a dtype over bytes, to be read only.

    Args:
        values: (bytes,) uint8, a whole number of values.
        dtype: how they are read.
    """
    if len(values) == 0:
        return torch.empty(0, dtype=dtype)
    with warnings.catch_warnings():
        # A store is never written to through its columns; that torch could is no reason to copy.
        warnings.filterwarnings("ignore", "The given NumPy array is not writable", UserWarning)
        return torch.from_numpy(values).view(dtype)


def column_over(f: Field, values: np.ndarray, index: np.ndarray | None) -> Column:
    """A field's column.

    Args:
        f: the field.
        values: (bytes,) uint8, whole samples; there may be more than are used.
        index: (N, columns) int64 of a ragged field.
    """
    if index is not None:
        size = f.dtype.itemsize
        data = tensor_over(values[: len(values) - len(values) % size], f.dtype)
        return RaggedColumn(f.schema, data, index, f.modes)
    if f.item_bytes == 0:
        raise ValueError(f"{f.name} takes no bytes, so that its rows cannot be counted")
    rows = len(values) // f.item_bytes
    data = tensor_over(values[: rows * f.item_bytes], f.dtype)
    return DenseColumn(f.schema, data.reshape(rows, *f.schema.shape))


def empty_column(f: Field, rows: int) -> DenseColumn:
    """The column of a dense field whose leaves have no value, such as those of shape (0, 4)."""
    return DenseColumn(f.schema, torch.empty((rows, *f.schema.shape), dtype=f.dtype))


def index_problem(f: Field, index: np.ndarray, values: int, channels: dict[str, int]) -> Any:
    """(row, what is wrong) of the first row of an index that points where it may not; or None.

    Args:
        f: a ragged field.
        index: (N, columns) int64.
        values: how many values there are.
        channels: of each PIL mode.
    """
    starts, shapes = index[:, 0], index[:, 1 : 1 + f.axes]
    # In floating point first: a product of huge edges must not wrap around into a small one.
    counts = shapes.astype(np.float64).prod(axis=1)
    is_wrong = (index < 0).any(axis=1) | (starts + counts > values)
    if f.schema.kind == "image":
        modes = index[:, -1]
        is_known = (modes >= 0) & (modes < len(f.modes))
        bands = np.array([channels.get(mode, -1) for mode in f.modes] or [-1])
        is_wrong |= ~is_known | (bands[np.where(is_known, modes, 0)] != shapes[:, 0])
    if not is_wrong.any():
        return None
    row = int(is_wrong.argmax())
    return row, f"start and shape {index[row].tolist()} of {values} values"
