"""A sample as a tree: containers outside, leaves inside.

Containers are what `torch.utils.data.default_collate` descends into: mappings, named tuples, tuples
and lists. Everything else is a leaf.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, MutableMapping, MutableSequence, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Spec:
    """Where the leaves of a sample stand.

    Attributes:
        kind: "leaf", "mapping", "namedtuple", "tuple" or "sequence".
        example: an empty-handed copy of the container, from which others are made; None for a leaf.
        keys: keys of a mapping.
        children: one per child, in order.
    """

    kind: str
    example: Any = None
    keys: tuple[Any, ...] = ()
    children: tuple[Spec, ...] = ()

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Spec)
            and self.kind == other.kind
            and type(self.example) is type(other.example)
            and self.keys == other.keys
            and self.children == other.children
        )

    __hash__ = None  # type: ignore[assignment]

    def count(self) -> int:
        """Number of leaves."""
        return 1 if self.kind == "leaf" else sum(child.count() for child in self.children)

    def paths(self, prefix: str = "") -> list[str]:
        """How each leaf is reached from the sample, as Python would write it: `[0]`, `['x'][1]`."""
        if self.kind == "leaf":
            return [prefix]
        keys = self.keys if self.kind == "mapping" else range(len(self.children))
        return [
            path
            for key, child in zip(keys, self.children, strict=True)
            for path in child.paths(f"{prefix}[{key!r}]")
        ]


LEAF = Spec("leaf")


def is_at(path: str, name: Any) -> bool:
    """Whether a leaf's path is meant by a name: its own, or that of what it stands in."""
    return path == name or path.startswith(f"[{name!r}]")


def flatten(
    sample: Any, like: Spec | None = None, *, is_leaf: Callable[[Any], bool] | None = None
) -> tuple[list[Any], Spec]:
    """The leaves of a sample, in order, and the spec that puts them back.

    Args:
        sample: the sample.
        like: the spec of another sample; mappings with its keys are taken in its order, as
            `default_collate` takes them.
        is_leaf: says of a container whether it is a leaf itself; None for none.

    Example:
        >>> leaves, spec = flatten({"x": (1, 2), "y": "cat"})
        >>> leaves, spec.paths()
        ([1, 2, 'cat'], ["['x'][0]", "['x'][1]", "['y']"])
    """
    leaves: list[Any] = []
    return leaves, _flatten(sample, leaves, like, is_leaf)


IsLeaf = Callable[[Any], bool] | None


def _flatten(node: Any, leaves: list[Any], like: Spec | None, is_leaf: IsLeaf) -> Spec:
    if isinstance(node, (str, bytes)) or (is_leaf is not None and is_leaf(node)):
        leaves.append(node)
        return LEAF
    if isinstance(node, Mapping):
        keys = tuple(node)
        if like is not None and like.kind == "mapping" and set(keys) == set(like.keys):
            keys = like.keys
        children = _flatten_all([node[key] for key in keys], leaves, like, is_leaf)
        return Spec("mapping", node, keys, children)
    if isinstance(node, tuple):
        kind = "namedtuple" if hasattr(node, "_fields") else "tuple"
        return Spec(kind, node, (), _flatten_all(node, leaves, like, is_leaf))
    if isinstance(node, Sequence):
        return Spec("sequence", node, (), _flatten_all(node, leaves, like, is_leaf))
    leaves.append(node)
    return LEAF


def _flatten_all(
    nodes: Sequence[Any], leaves: list[Any], like: Spec | None, is_leaf: IsLeaf
) -> tuple[Spec, ...]:
    is_alike = like is not None and len(like.children) == len(nodes)
    likes = like.children if like is not None and is_alike else (None,) * len(nodes)
    return tuple(
        _flatten(node, leaves, other, is_leaf) for node, other in zip(nodes, likes, strict=True)
    )


def unflatten(spec: Spec, leaves: Iterator[Any]) -> Any:
    """A sample with the same containers as the one `spec` came from."""
    if spec.kind == "leaf":
        return next(leaves)
    children = [unflatten(child, leaves) for child in spec.children]
    return _container(spec, children, tuple_as=tuple)


def unflatten_batch(spec: Spec, leaves: Iterator[Any]) -> Any:
    """A batch, in the containers `default_collate` makes: tuples become lists, other types stay.

    A leaf of text is a list, but a tuple where its sample is a sequence.

    Source: torch.utils.data.default_collate, whose rules the tests compare with.
    """
    if spec.kind == "leaf":
        return next(leaves)
    children = [unflatten_batch(child, leaves) for child in spec.children]
    if spec.kind != "mapping":
        children = [
            tuple(child) if part.kind == "leaf" and isinstance(child, list) else child
            for part, child in zip(spec.children, children, strict=True)
        ]
    return _container(spec, children, tuple_as=list)


def batch_leaves(batch: Any, spec: Spec) -> list[Any]:
    """The leaves of a batch; one of text is a list or tuple, which `flatten` would open."""
    if spec.kind == "leaf":
        return [batch]
    keys = spec.keys if spec.kind == "mapping" else range(len(spec.children))
    return [
        leaf
        for key, child in zip(keys, spec.children, strict=True)
        for leaf in batch_leaves(batch[key], child)
    ]


def _container(spec: Spec, children: list[Any], tuple_as: type) -> Any:
    example = spec.example
    if spec.kind == "tuple":
        return tuple_as(children)
    if spec.kind == "namedtuple":
        return type(example)(*children)
    if spec.kind == "mapping":
        content = dict(zip(spec.keys, children, strict=True))
        try:
            if isinstance(example, MutableMapping):
                mapping = copy.copy(example)
                mapping.update(content)
                return mapping
            return type(example)(content)
        except TypeError:
            return content
    try:
        if isinstance(example, MutableSequence):
            sequence = copy.copy(example)
            for position, child in enumerate(children):
                sequence[position] = child
            return sequence
        return type(example)(children)
    except TypeError:
        return children


def strip(spec: Spec) -> Spec:
    """The same spec with containers emptied of their sample's leaves, so that it holds no data."""
    if spec.kind == "leaf":
        return spec
    children = tuple(strip(child) for child in spec.children)
    hollow = _container(spec, [None] * len(children), tuple_as=tuple)
    is_rebuilt = type(hollow) is type(spec.example)  # a range, say, cannot be
    return Spec(spec.kind, hollow if is_rebuilt else spec.example, spec.keys, children)
