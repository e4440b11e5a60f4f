"""What a dataset holds in its attributes, a few levels deep."""

from __future__ import annotations

import itertools
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import FunctionType, MethodType, ModuleType
from typing import Any

import torch
from torch import Tensor

DEEP = 8
"""Levels that are looked into, those of attributes and of containers together."""
MOST = 5000
"""Values that are looked at."""
FIRST = 50
"""Members of a container that are looked into."""
TAKEN = 64
"""Members of a long container that its objects are counted by."""
SHARED = range(-5, 257)
"""Whole numbers of which Python has but one object each."""
CONTAINERS = (list, tuple, set, frozenset, dict)


@dataclass(frozen=True, eq=False)
class Held:
    """A value that a dataset holds.

    Attributes:
        path: how it is reached from the dataset, as Python would write it; empty for itself.
        value: the value.
    """

    path: str
    value: Any


@dataclass(frozen=True)
class Objects:
    """The objects in a container, by a few of its members.

    Attributes:
        path: how the container is reached from the dataset.
        kind: the container's class.
        count: its members, and what those are made of.
        nbytes: that they take.
        is_numbers: whether its members are numbers, and nothing else.
    """

    path: str
    kind: str
    count: int
    nbytes: int
    is_numbers: bool


def held_by(dataset: Any) -> list[Held]:
    """What a dataset holds, nearest first; properties are not asked."""
    found: list[Held] = []
    seen: set[int] = set()
    waiting = deque([(Held("", dataset), DEEP)])
    while waiting and len(found) < MOST:
        held, levels = waiting.popleft()
        if id(held.value) in seen or isinstance(held.value, (type, ModuleType)):
            continue
        seen.add(id(held.value))
        found.append(held)
        if levels:
            waiting.extend((each, levels - 1) for each in _inside(held))
    return found


def _inside(held: Held) -> Iterator[Held]:
    path, value = held.path, held.value
    if isinstance(value, dict):
        for key, member in itertools.islice(value.items(), FIRST):
            yield Held(f"{path}[{key!r}]", member)
    elif isinstance(value, (list, tuple)):
        for place, member in enumerate(value[:FIRST]):
            yield Held(f"{path}[{place}]", member)
    elif not isinstance(value, (Tensor, FunctionType, MethodType)):
        for name, member in getattr(value, "__dict__", {}).items():
            yield Held(f"{path}.{name}", member)


def on_devices(held: Sequence[Held]) -> list[Held]:
    """The tensors, and torch's generators, that are not on the CPU."""
    return [
        each
        for each in held
        if isinstance(each.value, (Tensor, torch.Generator)) and each.value.device.type != "cpu"
    ]


def many_objects(held: Sequence[Held], least: int) -> list[Objects]:
    """The containers of more than so many objects, the largest first."""
    counted = [
        _objects(each)
        for each in held
        if isinstance(each.value, CONTAINERS) and len(each.value) > least // FIRST
    ]
    return sorted((each for each in counted if each.count > least), key=lambda each: -each.count)


def _objects(held: Held) -> Objects:
    value = held.value
    if isinstance(value, (list, tuple)):
        members = [value[place] for place in range(0, len(value), -(-len(value) // TAKEN))]
    else:
        members = list(itertools.islice(value.values() if _is_dict(value) else value, TAKEN))
    # One object that stands in many places is one.
    sizes = {id(part): sys.getsizeof(part) for member in members for part in _parts(member)}
    scale = len(value) / len(members)
    is_few = len(sizes) <= 1
    return Objects(
        path=held.path,
        kind=type(value).__name__,
        count=len(sizes) if is_few else round(scale * len(sizes)),
        nbytes=sum(sizes.values()) if is_few else round(scale * sum(sizes.values())),
        is_numbers=all(type(member) in (int, float) for member in members),
    )


def _is_dict(value: Any) -> bool:
    return isinstance(value, dict)


def _parts(member: Any) -> Iterator[Any]:
    """An object and those it is made of, without those of which Python has but one."""
    if member is None or isinstance(member, bool):
        return
    if type(member) is int and member in SHARED:
        return
    yield member
    if isinstance(member, CONTAINERS):
        inner = member.values() if isinstance(member, dict) else member
        for each in itertools.islice(inner, FIRST):
            if not isinstance(each, CONTAINERS):
                yield from _parts(each)
