"""The dtype that the chain's leaf comes out as."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from hotset.chain.step import BatchForm
from hotset.errors import ConfigError
from hotset.ops.pointwise import Elementwise
from hotset.sample.column import LeafSchema, describe
from hotset.sample.tree import flatten, unflatten


def check_dtype(dtype: Any) -> torch.dtype | None:
    """A floating dtype, or None.

    Raises:
        ConfigError: if it is anything else.
    """
    if dtype is None or (isinstance(dtype, torch.dtype) and dtype.is_floating_point):
        return dtype
    raise ConfigError(
        f"`dtype` must be a floating torch dtype such as torch.float16, got {dtype!r}; "
        "integers and labels keep their own"
    )


class Cast:
    """Casts one leaf of a sample; picklable.

    Args:
        leaf: which.
        dtype: floating dtype; None leaves samples as they are.
    """

    def __init__(self, leaf: int, dtype: torch.dtype | None) -> None:
        self._leaf, self._dtype = leaf, dtype

    def __call__(self, sample: Any) -> Any:
        """The sample with the leaf cast, where it is a tensor or array that may be."""
        if self._dtype is None:
            return sample
        leaves, spec = flatten(sample)
        if is_castable(describe(leaves[self._leaf])):
            leaves[self._leaf] = torch.as_tensor(leaves[self._leaf]).to(self._dtype)
        return unflatten(spec, iter(leaves))


class ToDtype:
    """The cast as a step at the end of a chain.

    Args:
        dtype: floating dtype.
    """

    def __init__(self, dtype: torch.dtype) -> None:
        self._dtype = dtype

    def __call__(self, value: Any) -> Tensor:
        """The value in the dtype."""
        return torch.as_tensor(value).to(self._dtype)

    def __repr__(self) -> str:
        return f"ToDtype({self._dtype})"

    def batch_form(self, leaf: Any, number: int) -> BatchForm | None:
        """The batched form, for floating-point images; bytes are better served by a table."""
        schema = describe(leaf)
        if schema.dtype is None or not schema.dtype.is_floating_point or len(schema.shape) != 3:
            return None
        return BatchForm((Elementwise(number, self),), lambda params: self)


def is_castable(schema: LeafSchema) -> bool:
    """Floating-point values and images may be cast; labels and counts never."""
    if schema.kind not in ("tensor", "array") or schema.dtype is None:
        return False
    return schema.dtype.is_floating_point or (
        schema.dtype is torch.uint8 and len(schema.shape) == 3
    )


def cast_schemas(
    schemas: Sequence[LeafSchema], leaf: int, dtype: torch.dtype | None
) -> list[LeafSchema]:
    """The schemas of a sample's leaves after the cast; None casts nothing."""
    result = list(schemas)
    if dtype is not None:
        result[leaf] = replace(result[leaf], kind="tensor", dtype=dtype, cls=Tensor)
    return result
