"""Tensors, arrays and images taken apart: dtype, shape and content."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import Parameter

from hotset.keys.piece import Link, Piece, UnkeyableError, digest_of, label

SPARSE_PARTS = {
    torch.sparse_csr: ("crow_indices", "col_indices", "values"),
    torch.sparse_csc: ("ccol_indices", "row_indices", "values"),
    torch.sparse_bsr: ("crow_indices", "col_indices", "values"),
    torch.sparse_bsc: ("ccol_indices", "row_indices", "values"),
}


def tensor_piece(tensor: Tensor) -> Piece:
    """A tensor by class, dtype, shape and content; neither its device nor its strides count."""
    kind = type(tensor)
    links: list[Link] = []
    if kind not in (Tensor, Parameter):
        links.append((("class {}", kind.__name__), kind))
        attributes = sorted(getattr(tensor, "__dict__", {}).items())
        links += [(("attribute {!r} of the tensor", name), value) for name, value in attributes]
    try:
        plain = tensor.detach()
        plain = plain if kind in (Tensor, Parameter) else plain.as_subclass(Tensor)
        head: list[Any] = [kind.__name__, str(plain.dtype), tuple(plain.shape), str(plain.layout)]
        if plain.layout is torch.sparse_coo:
            plain = plain.coalesce()
            parts = {"indices": plain.indices(), "values": plain.values()}
        elif plain.layout in SPARSE_PARTS:
            parts = {name: getattr(plain, name)() for name in SPARSE_PARTS[plain.layout]}
        else:
            parts = {}
            head.append(_digest_of_tensor(plain))
    except Exception as error:  # no data, or a kind of tensor that does not give it
        raise UnkeyableError(f"a tensor whose content cannot be read ({error})") from error
    links += [(("the {} of the tensor", name), part) for name, part in parts.items()]
    return Piece(label("tensor", *head), links)


def _digest_of_tensor(tensor: Tensor) -> bytes:
    if tensor.is_meta:
        raise ValueError("it is on the device 'meta'")
    if tensor.is_quantized:
        raise ValueError("it is quantized")
    if tensor.numel() == 0:
        return b""
    # A clone of a single element: its stride may be anything, and `view` minds.
    flat = tensor.resolve_conj().resolve_neg().cpu().contiguous().reshape(-1)
    flat = flat.clone() if flat.numel() == 1 else flat
    return digest_of([flat.view(torch.uint8).numpy().data])


def array_piece(array: np.ndarray) -> Piece:
    """An array by dtype, shape and content; its strides do not count."""
    dtype = array.dtype
    head = label("array", dtype.str, str(dtype), array.shape)
    if dtype.names is not None:  # what lies between the fields is anything
        return Piece(head, [(("field {!r}", name), array[name]) for name in dtype.names])
    if dtype.hasobject or dtype.kind in "TUS":  # as a list, which may name files
        return Piece(head, [(("the items of an array",), array.tolist())])
    if array.size == 0 or dtype.itemsize == 0:
        return Piece(head)
    flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return Piece(label("array", head, digest_of([flat.data])))


def is_image(value: Any) -> bool:
    """Whether it is a PIL image; where PIL is not imported, nothing is."""
    pil = sys.modules.get("PIL.Image")
    return pil is not None and issubclass(type(value), pil.Image)


def image_piece(image: Any) -> Piece:
    """A PIL image by mode, size, pixels and palette."""
    pixels = digest_of([image.tobytes()])
    palette = image.getpalette() if image.mode in ("P", "PA") else None
    links = [(("the transparency of the image",), image.info.get("transparency"))]
    return Piece(label("image", image.mode, image.size, pixels, palette), links)


def generator_piece(generator: torch.Generator) -> Piece:
    """A generator of torch's by device and state."""
    state = digest_of([generator.get_state().numpy().data])
    return Piece(label("generator", str(generator.device), state))
