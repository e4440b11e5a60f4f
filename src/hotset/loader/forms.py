"""How leaves whose shape differs come out: what is asked for, and what becomes of each."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import default_collate

from hotset.errors import ConfigError
from hotset.kernels.padding import jagged_rows, pad_rows
from hotset.sample.column import LeafSchema, RaggedColumn, widened
from hotset.sample.padding import Jagged, Padded, check_jagged
from hotset.sample.tree import LEAF, Spec, batch_leaves, flatten, is_at, unflatten_batch

Rule = Padded | Literal["jagged"]
"""How a field comes out."""
Rules = Rule | dict[Any, Rule | None] | None
"""One rule for all that differ, or one for each field."""
EXPECTED = "'pad', 'jagged' or hotset.Padded(...)"


def check_ragged(ragged: Any) -> Rules:
    """The argument `ragged`, looked at.

    Raises:
        ConfigError: if it is none of what may be given.
    """
    if isinstance(ragged, Mapping):
        return {name: _rule(rule, f"`ragged` of {name!r}") for name, rule in ragged.items()}
    return _rule(ragged, "`ragged`")


def named_in(rules: Rules) -> Collection[Any] | None:
    """The fields that rules speak of; None where one rule is for all.

    A list of arrays that is spoken of is one field; see `sources.fields.columns_of`.
    """
    if isinstance(rules, dict):
        return rules
    return () if rules is None else None


def _rule(rule: Any, name: str) -> Rule | None:
    if rule is None or isinstance(rule, Padded):
        return rule
    if rule == "pad":
        return Padded()
    if rule == "jagged":
        return "jagged"
    if rule is Padded:
        raise ConfigError(f"{name} must be {EXPECTED}, got the class itself: write hotset.Padded()")
    raise ConfigError(f"{name} must be {EXPECTED}, by field for some of them only, got {rule!r}")


@dataclass(frozen=True)
class Asked:
    """What was asked for one leaf.

    Attributes:
        rule: how it comes out.
        is_named: whether its field was named: it then does so where all shapes are the same, too.
    """

    rule: Rule
    is_named: bool


def asked_of(rules: Rules, spec: Spec) -> list[Asked | None]:
    """What is asked for each leaf of a sample; None where nothing is.

    Args:
        rules: as `check_ragged` gives them.
        spec: the structure of a sample.

    Raises:
        ConfigError: if a field is named that there is not.
    """
    paths = spec.paths()
    if not isinstance(rules, dict):
        return [None if rules is None else Asked(rules, False)] * len(paths)
    asked: list[Asked | None] = [None] * len(paths)
    for name, rule in rules.items():
        found = [number for number, path in enumerate(paths) if is_at(path, name)]
        if not found:
            raise ConfigError(f"`ragged` names the field {name!r}; samples have {paths}")
        for number in found:
            asked[number] = None if rule is None else Asked(rule, True)
    return asked


@dataclass(frozen=True)
class Form:
    """How one leaf comes out.

    Attributes:
        rule: the user's.
        path: how messages call the leaf.
        axis: the one that is its length.
        dtype: that it is kept in, and that a pad value is rounded to.
    """

    rule: Rule
    path: str
    axis: int
    dtype: torch.dtype

    def of_column(
        self, column: RaggedColumn, rows: Tensor, dtype: torch.dtype | None
    ) -> Tensor | Jagged:
        """The leaf of a batch, where the column's data lies.

        Args:
            column: its values may lie on any device, its index is on the host.
            rows: (B,) int64 on the host.
            dtype: that it is cast to; None casts nothing.
        """
        index = column.index[rows.numpy(), : 1 + len(column.schema.shape)]
        if column.data.dtype is column.schema.dtype:
            return self._joined(column.data, index, dtype)
        # Kept in a narrower dtype: widened first, so that what is padded with is exact.
        sizes = index[:, 1:].prod(axis=1)
        values = jagged_rows(column.data, np.stack([index[:, 0], sizes], axis=1)).values
        index[:, 0] = sizes.cumsum() - sizes
        return self._joined(widened(values, column.schema), index, dtype)

    def of_batch(self, batch: Tensor, dtype: torch.dtype | None = None) -> Tensor | Jagged:
        """The same of leaves that have one shape.

        Args:
            batch: (B, ...), on any device.
            dtype: that it is cast to; None casts nothing.
        """
        shape = batch.shape[1:]
        index = np.empty((len(batch), 1 + len(shape)), dtype=np.int64)
        index[:, 0], index[:, 1:] = np.arange(len(batch)) * math.prod(shape), shape
        return self._joined(batch.detach().reshape(-1), index, dtype)

    def of_items(self, items: Sequence[Any]) -> Tensor | Jagged:
        """The same of single tensors or arrays.

        Raises:
            SchemaError: if it is to be jagged, and shapes differ behind the first axis.
        """
        tensors = [torch.as_tensor(item).detach() for item in items]
        shapes = np.array([tuple(tensor.shape) for tensor in tensors], dtype=np.int64)
        sizes = shapes.prod(axis=1)
        index = np.concatenate([(sizes.cumsum() - sizes)[:, None], shapes], axis=1)
        if self.rule == "jagged":
            check_jagged(shapes, self.path)
        data = torch.cat([tensor.as_subclass(Tensor).reshape(-1) for tensor in tensors])
        return self._joined(data, index, None)

    def _joined(
        self, data: Tensor, index: np.ndarray, dtype: torch.dtype | None
    ) -> Tensor | Jagged:
        if isinstance(self.rule, Padded):
            out = pad_rows(data, index, padded=self.rule, axis=self.axis)
            return out if dtype is None else out.to(dtype)
        found = jagged_rows(data, index)
        return found if dtype is None else found._replace(values=found.values.to(dtype))

    def of_parts(self, parts: Sequence[Any]) -> Tensor | Jagged:
        """The leaf of one batch that was made in parts."""
        if not isinstance(self.rule, Padded):
            offsets = [parts[0].offsets]
            for part in parts[1:]:
                offsets.append(part.offsets[1:] + offsets[-1][-1])
            return Jagged(
                torch.cat([part.values for part in parts]),
                torch.cat(offsets),
                min(part.least for part in parts),
                max(part.most for part in parts),
            )
        shape = [max(edges) for edges in zip(*(part.shape[1:] for part in parts), strict=True)]
        return torch.cat([self._padded_to(part, shape) for part in parts])

    def _padded_to(self, batch: Tensor, shape: Sequence[int]) -> Tensor:
        """(B, *shape): leaves of one shape that is no larger, padded further."""
        assert isinstance(self.rule, Padded)
        fill = self.rule.fill(self.dtype).to(batch.dtype).item()
        out = torch.full((len(batch), *shape), fill, dtype=batch.dtype, device=batch.device)
        into = [slice(edge) for edge in batch.shape[1:]]
        if self.rule.side == "left":
            into[self.axis] = slice(shape[self.axis] - batch.shape[1 + self.axis], None)
        out[(slice(None), *into)] = batch
        return out

    def alone(self, leaf: Tensor, found: Tensor) -> Tensor:
        """What one sample's leaf must look like in a batch.

        Args:
            leaf: as the user's own chain gives it, in the batch's dtype.
            found: as it stands in the batch.
        """
        if not isinstance(self.rule, Padded) or leaf.ndim != found.ndim:
            return leaf
        most = self.rule.max_length
        if most is not None and leaf.shape[self.axis] > most:
            first = leaf.shape[self.axis] - most if self.rule.side == "left" else 0
            leaf = leaf.narrow(self.axis, first, most)
        if any(a > b for a, b in zip(leaf.shape, found.shape, strict=True)):
            return leaf
        return self._padded_to(leaf.detach()[None], found.shape)[0]

    def __str__(self) -> str:
        if isinstance(self.rule, Padded):
            return f"sample{self.path} is padded to the longest of its batch"
        return f"sample{self.path} comes out as a nested tensor of jagged layout"


@dataclass(frozen=True)
class Forms:
    """The forms of those leaves of a sample that have one.

    Attributes:
        spec: the structure of a sample.
        by_leaf: the form of each such leaf.
    """

    spec: Spec = LEAF
    by_leaf: dict[int, Form] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.by_leaf)

    @property
    def notes(self) -> tuple[str, ...]:
        """A sentence for each."""
        return tuple(map(str, self.by_leaf.values()))

    def collate(self, samples: Sequence[Any]) -> Any:
        """A batch of single samples: as `default_collate` makes it where a leaf has no form.

        What is to be jagged is `Jagged` still, which passes between processes; see `finish`.
        """
        leaves = zip(*(flatten(sample, self.spec)[0] for sample in samples), strict=True)
        made = [
            self.by_leaf[number].of_items(items)
            if number in self.by_leaf
            else default_collate(list(items))
            for number, items in enumerate(leaves)
        ]
        return unflatten_batch(self.spec, iter(made))

    def finish(self, batch: Any) -> Any:
        """A batch that `collate` made, with nested tensors in it."""
        if all(isinstance(form.rule, Padded) for form in self.by_leaf.values()):
            return batch
        return unflatten_batch(self.spec, iter(map(finished, batch_leaves(batch, self.spec))))


def finished(leaf: Any) -> Any:
    """A leaf of a batch as the user gets it."""
    return leaf.nested() if isinstance(leaf, Jagged) else leaf


def form_of(
    asked: Asked, path: str, schemas: Sequence[LeafSchema], shapes: np.ndarray | None
) -> Form | None:
    """The form of a leaf; None where its shape does not differ and its field was not named.

    Args:
        asked: for it.
        path: how messages call it.
        schemas: of the leaf as it comes out, in one sample or several.
        shapes: (N, axes) int64 of what is kept, where it is kept as ragged; None where it is not.

    Raises:
        ConfigError: if its field was named and has no axis, or the pad value does not fit.
        SchemaError: if it is to be jagged, and shapes differ behind the first axis.
    """
    first = schemas[0]
    axes = len(first.shape)
    if first.kind not in ("tensor", "array") or axes == 0 or first.dtype is None:
        if asked.is_named:
            raise ConfigError(
                f"`ragged` names sample{path}, which is a {first}: only tensors and arrays with "
                "an axis can be padded or jagged"
            )
        return None
    seen = np.array([s.shape for s in schemas if len(s.shape) == axes], dtype=np.int64)
    if shapes is not None and shapes.shape[1] == axes:
        seen = np.concatenate([seen, shapes])
    differs = (seen != seen[:1]).any(axis=0)
    if not (asked.is_named or differs.any() or shapes is not None):
        return None
    if not isinstance(asked.rule, Padded):
        check_jagged(seen, path)
    else:
        try:
            asked.rule.fill(first.dtype)
        except ConfigError as error:
            raise ConfigError(f"sample{path}: {error}") from error
    return Form(asked.rule, path, int(differs.argmax()), first.dtype)
