"""The header of an `.npy` file, with room to grow in. Pure.

Source: numpy.lib.format, version 1.0.
"""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import torch

from hotset.sample.column import has_numpy

MOST = 2**62
"""No count of bytes or values in a store may exceed this."""
ALIGNMENT = 64
"""Headers take a multiple of so many bytes."""
MOST_HEADER_BYTES = 1 << 16


def array_dtype(dtype: torch.dtype) -> np.dtype[Any]:
    """The dtype that NumPy reads a file as: unsigned integers for those that it lacks."""
    if has_numpy(dtype):
        return torch.empty(0, dtype=dtype).numpy().dtype
    return np.dtype(f"u{dtype.itemsize}")


def array_header(dtype: np.dtype[Any], shape: tuple[int, ...], room: int) -> bytes:
    """The header of an `.npy` file.

    Args:
        dtype: of the values.
        shape: of the array.
        room: bytes that the header is to take, as `header_room` gives it.

    Raises:
        ValueError: if the header does not fit.
    """
    header = _header(dtype, shape)
    spaces = room - len(header)
    if spaces < 0 or room > MOST_HEADER_BYTES:
        raise ValueError(f"a header of {len(header)} bytes does not fit into {room}")
    length = int.from_bytes(header[8:10], "little") + spaces
    return header[:8] + length.to_bytes(2, "little") + header[10:-1] + b" " * spaces + b"\n"


def header_room(dtype: np.dtype[Any], shape: tuple[int, ...]) -> int:
    """Bytes that the header of an array takes whose samples have a shape, however many come."""
    return max(len(_header(dtype, (MOST, *rest))) for rest in (shape, ()))


def _header(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    buffer = io.BytesIO()
    content = {"descr": dtype.str, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(buffer, content)
    return buffer.getvalue()
