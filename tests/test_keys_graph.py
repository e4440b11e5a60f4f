"""The walk over objects: circles, depth, sharing, and a time that grows with their number."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hotset.errors import KeyingError
from hotset.keys import graph
from hotset.keys.graph import Walk, key_of
from hotset.keys.value import take_apart


class Node:
    """Refers to others."""

    def __init__(self, name: Any = None) -> None:
        self.name = name
        self.links: list[Node] = []


def _graph(edges: list[tuple[int, int]], names: list[int], order: list[int]) -> list[Node]:
    nodes: dict[int, Node] = {number: Node(names[number]) for number in order}
    for start, end in edges:
        nodes[start].links.append(nodes[end])
    return [nodes[number] for number in range(len(names))]


GRAPHS = st.integers(1, 5).flatmap(
    lambda count: st.tuples(
        st.lists(
            st.tuples(st.integers(0, count - 1), st.integers(0, count - 1)), max_size=2 * count
        ),
        st.lists(st.integers(0, 1), min_size=count, max_size=count),
    )
)


def _unfolded(node: Node, depth: int) -> Any:
    """What can be seen from a node within some steps; it tells all that there is to tell apart."""
    below = [_unfolded(link, depth - 1) for link in node.links] if depth else None
    return node.name, below


@given(GRAPHS, st.data())
def test_keys_in_circles_are_equal_exactly_where_all_in_reach_is(
    shape: tuple[list[tuple[int, int]], list[int]], data: st.DataObject
) -> None:
    """From each node of a random graph, whichever way the walk comes."""
    edges, names = shape
    edges = edges[:6]
    nodes = _graph(edges, names, list(range(len(names))))
    again = _graph(edges, names, data.draw(st.permutations(range(len(names)))))
    keys = [key_of(node) for node in nodes]
    assert keys == [key_of(node) for node in again]
    shared = Walk()
    for number in data.draw(st.permutations(range(len(names)))):
        assert shared.digest(nodes[number]).hex() == keys[number]
    for a, b in itertools.combinations(range(len(names)), 2):
        if _unfolded(nodes[a], 5) != _unfolded(nodes[b], 5):
            assert keys[a] != keys[b]


def test_list_in_itself() -> None:
    """Is keyed, and its other items count."""
    one: list[Any] = [1]
    other: list[Any] = [2]
    for value in (one, other):
        value.append(value)
    again: list[Any] = [1]
    again.append(again)
    assert key_of(one) == key_of(again)
    assert key_of(one) != key_of(other)


def test_long_rings_of_equal_objects_are_told_apart() -> None:
    """Also beyond the rounds in which neighbours are compared."""

    def ring(length: int, special: int = -1) -> Node:
        nodes = [Node(number == special) for number in range(length)]
        for node, after in zip(nodes, nodes[1:] + nodes[:1], strict=True):
            node.links.append(after)
            after.links.append(node)
        return nodes[0]

    length = 6 * graph.ROUNDS
    keys = [key_of(ring(length, special)) for special in (0, 10, 2 * graph.ROUNDS, 300)]
    assert len({*keys, key_of(ring(length + 1, 300))}) == 5
    assert key_of(ring(length, 300)) == keys[-1]


def test_depth_is_no_limit() -> None:
    """A list 100,000 deep, and a chain of 20,000 objects."""
    deep: Any = [object]
    chain = Node("end")
    for _ in range(100_000):
        deep = [deep]
    for _ in range(20_000):
        before = Node()
        before.links.append(chain)
        chain = before
    assert key_of(deep) != key_of([deep])
    assert key_of(chain) == key_of(chain)


def test_each_object_is_taken_apart_once() -> None:
    """However often it is referred to: 2 to the power of 200 ways lead to the innermost."""
    taken: list[int] = []

    def take(value: Any) -> Any:
        taken.append(id(value))
        return take_apart(value)

    value: Any = [object]
    for _ in range(200):
        value = [value, value]
    Walk(take).digest(value)
    assert len(taken) == len(set(taken)) == 202


def test_long_lists_are_taken_whole() -> None:
    """A million file names with their classes are looked at without a step for each."""
    taken: list[Any] = []

    def take(value: Any) -> Any:
        taken.append(value)
        return take_apart(value)

    samples = [(f"/data/train/{number}.jpg", number % 10) for number in range(1_300_000)]
    digest = Walk(take).digest({"samples": samples, "imgs": samples, "none": object})
    assert len(taken) == 2
    samples[650_000] = ("/data/train/650000.jpg", 1)
    assert Walk().digest({"samples": samples, "imgs": samples, "none": object}) != digest


def test_large_arrays_are_hashed_in_place() -> None:
    """150 MB, the last byte of which counts."""
    data = torch.zeros(150_000_000, dtype=torch.uint8)
    array = data.numpy()
    keys = [key_of(data), key_of(array)]
    data[-1] = 1
    assert len({*keys, key_of(data), key_of(array)}) == 4
    assert key_of(array) == key_of(np.array(array))


def test_digest_does_not_depend_on_what_was_walked_before() -> None:
    """A walk that has been to a part gives it the digest that a fresh one gives."""
    walk = Walk()
    functions = [key_of, take_apart, Node, _graph, test_list_in_itself]
    first = [walk.digest(function) for function in functions]
    assert first == [Walk().digest(function) for function in reversed(functions)][::-1]


def test_a_refused_walk_can_go_on() -> None:
    """What was under way is forgotten, and the next digest is right."""
    walk = Walk()
    node = Node()
    node.links.append(node)
    with pytest.raises(KeyingError, match="the value: item 1 is a generator"):
        walk.digest([node, (number for number in ())])
    assert walk.digest(node) == Walk().digest(node)


def test_long_ways_are_shortened() -> None:
    """A message shows the name and the last few steps."""
    value: Any = (number for number in ())
    for _ in range(50):
        value = [value]
    with pytest.raises(KeyingError, match=r"^it {curly}: …, (item 0, ){5}item 0 is a generator"):
        Walk().digest(value, "it {curly}")
