"""Leaves of differing shapes in one batch: compiled on the CPU, the reference elsewhere."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from hotset.kernels.threads import has_numba
from hotset.sample import padding as reference
from hotset.sample.moving import to_device
from hotset.sample.padding import INTEGERS, Jagged, Padded, bits_of, fill_of, padded_shape


def pad_rows(data: Tensor, index: np.ndarray, *, padded: Padded, axis: int = 0) -> Tensor:
    """(B, longest, ...) of data's dtype, where it lies: some leaves, padded.

    Args:
        data: (values,) on any device.
        index: (B, 1 + axes) int64 on the host: where each leaf starts in `data`, and its shape.
        padded: how.
        axis: the one that is the length.
    """
    if not _is_compiled(data):
        return reference.pad_rows(data, index, padded=padded, axis=axis)
    from hotset.kernels.padding_cpu import pad_boxes, pad_lines

    shapes = index[:, 1:]
    shape = padded_shape(shapes, padded, axis)
    out = torch.empty((len(index), *shape), dtype=data.dtype)
    fill, is_left = fill_of(padded, data.dtype), padded.side == "left"
    source, target = bits_of(data).numpy(), bits_of(out).view(-1).numpy()
    # Axes behind the last that is padded or cut are one run of values.
    last = 0
    if len(shape) > 1:
        last = int(max(np.flatnonzero((shapes != shape).any(axis=0)), default=0))
    run = math.prod(shape[last + 1 :])
    starts = np.ascontiguousarray(index[:, 0])
    filled = source.dtype.type(fill)
    if last == 0:
        is_before = is_left and axis == 0
        pad_lines(source, starts, shapes[:, 0] * run, shape[0] * run, is_before, filled, target)
        return out
    edges, boxes = np.array(shape[: last + 1]), shapes[:, : last + 1].copy()
    edges[last] *= run
    boxes[:, last] *= run
    pad_boxes(source, starts, boxes, edges, axis if is_left else -1, filled, target)
    return out


def jagged_rows(data: Tensor, index: np.ndarray) -> Jagged:
    """Some leaves end to end, where data lies.

    Args:
        data: (values,) on any device.
        index: (B, 1 + axes) int64 on the host: where each leaf starts in `data`, and its shape;
            the shapes are equal but for the first axis.
    """
    if not _is_compiled(data):
        return reference.jagged_rows(data, index)
    from hotset.kernels.padding_cpu import join_lines

    runs = reference.runs_of(index)
    out = torch.empty(runs.shape, dtype=data.dtype)
    starts = np.ascontiguousarray(runs.starts)
    join_lines(bits_of(data).numpy(), starts, runs.sizes, bits_of(out).view(-1).numpy())
    return Jagged(out, to_device(runs.offsets, data.device), runs.least, runs.most)


def join_rows(data: Tensor, starts: np.ndarray, sizes: np.ndarray, out: Tensor) -> None:
    """Writes stretches of host memory end to end; compiled code holds no lock of Python's.

    Args:
        data: (values,) on the CPU.
        starts: (B,) int64, where each stretch starts in `data`.
        sizes: (B,) int64, its values.
        out: (sum of sizes,) of data's dtype.
    """
    if not _is_compiled(data):
        to = 0
        for start, size in zip(starts.tolist(), sizes.tolist(), strict=True):
            out[to : to + size] = data[start : start + size]
            to += size
        return
    from hotset.kernels.padding_cpu import join_lines

    join_lines(
        bits_of(data).numpy(),
        np.ascontiguousarray(starts),
        np.ascontiguousarray(sizes),
        bits_of(out).numpy(),
    )


def _is_compiled(data: Tensor) -> bool:
    return data.device.type == "cpu" and data.element_size() in INTEGERS and has_numba()
