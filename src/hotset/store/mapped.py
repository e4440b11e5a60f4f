"""Columns over the bytes of a store's files; nothing is copied."""

from __future__ import annotations

import warnings

import numpy as np
import torch
from torch import Tensor

from hotset.sample.column import IMAGE_BANDS, Column, DenseColumn, RaggedColumn
from hotset.store.field import MOST_EDGE, Field
from hotset.store.npy import MOST


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


def index_problem(
    f: Field, index: np.ndarray, values: int, channels: int | None = None
) -> tuple[int, str] | None:
    """(place, what is wrong) of the first row of an index that points where it may not; or None.

    Args:
        f: a ragged field.
        index: (R, columns) int64, some rows.
        values: how many values there are.
        channels: that every leaf must have, if any.
    """
    starts, shapes = index[:, 0], index[:, 1 : 1 + f.axes]
    # In floating point: a product of huge edges must not wrap around into a small one. Edges of 0
    # count as 1 where strides are concerned, which must not overflow either.
    counts = shapes.astype(np.float64).prod(axis=1)
    strides = np.maximum(shapes, 1).astype(np.float64).prod(axis=1)
    is_wrong = (index < 0).any(axis=1) | (starts + counts > values) | (strides > MOST >> 4)
    if f.schema.kind == "image":
        bands = np.array([IMAGE_BANDS.get(mode, 1) for mode in f.modes])
        is_known = index[:, -1] < len(bands)
        is_wrong |= bands[np.where(is_known & (index[:, -1] >= 0), index[:, -1], 0)] != shapes[:, 0]
        is_wrong |= ~is_known | (shapes > MOST_EDGE).any(axis=1)
    if channels is not None:
        is_wrong |= shapes[:, 0] != channels
    if not is_wrong.any():
        return None
    place = int(is_wrong.argmax())
    return place, f"start and shape {index[place].tolist()} of {values} values"
