"""Whether one leaf can be stored such that it comes back as it was; if not, what to do."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from hotset.errors import SchemaError
from hotset.sample.column import LeafSchema, is_pil_image
from hotset.store.field import MOST_EDGE
from hotset.store.structure import DTYPES, class_to_name

ORIENTATION = 0x0112
"""The EXIF tag that says how an image is to be turned."""
UPRIGHT = (None, 0, 1)
_PIL_ADVICE = {"1": "convert('L')", "P": "convert('RGB') or, for class numbers, np.asarray(image)"}
_WIDE_GREY = ("I;16B", "I;16L", "I;16N")


def check_leaf(leaf: Any, schema: LeafSchema, where: str) -> None:
    """Refuses a leaf that would not come back as it is.

    Args:
        leaf: a value.
        schema: its own.
        where: what messages call it.

    Raises:
        SchemaError: if it cannot be stored; says what to do.
    """
    problem = None
    if leaf is None:
        problem = "None, which has no value to keep; leave it out, or put a number or text there"
    elif isinstance(leaf, Tensor):
        problem = _tensor_problem(leaf, schema)
    elif isinstance(leaf, np.ndarray) and not schema.is_storable:
        problem = _array_problem(leaf)
    elif is_pil_image(leaf):
        problem = _image_problem(leaf, schema)
    if problem is not None:
        raise SchemaError(f"{where} is {problem}")
    class_to_name(schema, where)


def _tensor_problem(leaf: Tensor, schema: LeafSchema) -> str | None:
    name = type(leaf).__name__
    if leaf.is_nested or leaf.layout is not torch.strided:
        kind = "nested" if leaf.is_nested else str(leaf.layout).removeprefix("torch.")
        return f"a {kind} tensor, which cannot be stored; make it dense, or store its parts"
    if leaf.device.type == "meta":
        return "a tensor on the meta device, which has no values to store"
    if leaf.is_quantized:
        return "a quantized tensor, which cannot be stored; store leaf.dequantize()"
    if not schema.is_storable:
        return (
            f"a {name}, which holds more than its values; store leaf.as_subclass(torch.Tensor), "
            "and what it holds besides as further fields"
        )
    if leaf.dtype not in DTYPES.values():
        dtype = str(leaf.dtype).removeprefix("torch.")
        return f"a tensor of {dtype}, which cannot be stored; convert it to a dtype of whole bytes"
    return None


def _array_problem(leaf: np.ndarray) -> str:
    kind = leaf.dtype.kind
    if type(leaf) is not np.ndarray:
        return f"a {type(leaf).__name__}, which cannot be stored; make it an array: np.array(leaf)"
    advice = "convert it to numbers"
    if leaf.dtype.names:
        advice = "store each of its fields by itself"
    elif kind in "US":
        advice = "give a str, or a list of them"
    elif kind in "mM":
        advice = "store array.astype('int64')"
    elif kind == "O":
        advice = "give a tuple of its elements"
    elif not leaf.dtype.isnative:
        advice = "convert it with array.astype(array.dtype.newbyteorder('='))"
    return f"an array of dtype {leaf.dtype.str}, which cannot be stored; {advice}"


def _image_problem(leaf: Any, schema: LeafSchema) -> str | None:
    if not schema.is_storable:
        wide = "convert('I')" if leaf.mode in _WIDE_GREY else "convert('RGB')"
        advice = _PIL_ADVICE.get(leaf.mode, wide)
        return f"a PIL image of mode {leaf.mode!r}, which cannot be stored; use {advice}"
    if max(schema.shape) > MOST_EDGE:
        return f"a {schema}, which is more than {MOST_EDGE} pixels wide or high; cut it up"
    return None


def is_turned(leaf: Any) -> bool:
    """Whether a leaf is a PIL image whose EXIF says that it is to be turned.

    A store keeps pixels as they lie, and no EXIF; torchvision's own steps do not look at it either.
    """
    return is_pil_image(leaf) and _orientation(leaf) not in UPRIGHT


def _orientation(image: Any) -> Any:
    if not image.info and not hasattr(image, "tag_v2"):
        return None
    try:
        image.load()  # PIL turns TIFFs upright by itself
        return image.getexif().get(ORIENTATION)
    except Exception:  # EXIF that cannot be read turns nothing
        return None
