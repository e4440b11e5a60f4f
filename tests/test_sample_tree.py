"""Samples as trees: taken apart, put together, and named."""

from __future__ import annotations

from collections import OrderedDict, UserDict, UserList, namedtuple
from types import MappingProxyType
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hotset.sample.tree import batch_leaves, flatten, strip, unflatten, unflatten_batch

Pair = namedtuple("Pair", ["image", "label"])


class Record(dict):
    """A dictionary of a user's own, with an attribute."""

    source = "disk"


leaves = st.one_of(st.integers(), st.text(max_size=3), st.binary(max_size=3), st.none())
trees = st.recursive(
    leaves,
    lambda child: st.one_of(
        st.lists(child, max_size=3),
        st.lists(child, max_size=3).map(tuple),
        st.tuples(child, child).map(lambda pair: Pair(*pair)),
        st.dictionaries(st.text(max_size=2), child, max_size=3),
        st.dictionaries(st.integers(), child, max_size=3).map(Record),
        st.dictionaries(st.text(max_size=2), child, max_size=3).map(OrderedDict),
        st.lists(child, max_size=3).map(UserList),
    ),
    max_leaves=12,
)


def _types(node: Any) -> Any:
    if isinstance(node, dict):
        return type(node), {key: _types(value) for key, value in node.items()}
    if isinstance(node, (list, tuple, UserList)):
        return type(node), [_types(value) for value in node]
    return type(node)


@given(trees)
def test_flatten_and_back(tree: Any):
    """The same containers of the same types around the same leaves; the original untouched."""
    before, types = repr(tree), _types(tree)
    found, spec = flatten(tree)
    assert spec.count() == len(found) == len(spec.paths())
    again = unflatten(spec, iter(found))
    assert again == tree
    assert _types(again) == types
    other = unflatten(spec, iter(range(len(found))))
    assert flatten(other)[0] == list(range(len(found)))
    assert flatten(other)[1] == spec
    assert repr(tree) == before


@given(trees)
def test_stripped_spec_holds_no_leaf(tree: Any):
    """It equals the spec it came from, puts trees together, and keeps none of the sample's data."""
    found, spec = flatten(tree)
    hollow = strip(spec)
    assert hollow == spec
    assert unflatten(hollow, iter(found)) == tree

    def held(one: Any) -> list[Any]:
        if one.kind == "leaf":
            return []
        return flatten(one.example)[0] + [leaf for child in one.children for leaf in held(child)]

    assert set(held(hollow)) <= {None}


def test_paths_are_written_as_python_would():
    """An index or a key per level."""
    _, spec = flatten({"x": (1, [2, 3]), 5: Pair("a", b"b")})
    assert spec.paths() == ["['x'][0]", "['x'][1][0]", "['x'][1][1]", "[5][0]", "[5][1]"]
    assert flatten(3)[1].paths() == [""]


def test_text_is_a_leaf():
    """Strings and bytes are not opened, although they are sequences."""
    assert flatten("text")[0] == ["text"]
    assert flatten((b"ab", "cd"))[0] == [b"ab", "cd"]


def test_tensors_and_sets_are_leaves():
    """What `default_collate` does not open stays whole."""
    tensor, numbers = torch.zeros(2), {1, 2}
    found, spec = flatten([tensor, numbers])
    assert found[0] is tensor
    assert found[1] is numbers
    assert spec.count() == 2


def test_batches_have_lists_for_tuples():
    """As `default_collate` makes them; named tuples and dictionaries stay what they are."""
    _, spec = flatten(((1, 2), Pair(3, [4]), Record(a=5)))
    batch = unflatten_batch(spec, iter("abcde"))
    assert batch == [["a", "b"], Pair("c", ["d"]), {"a": "e"}]
    assert [type(part) for part in batch] == [list, Pair, Record]


def test_own_dictionaries_keep_their_attributes():
    """They are copied and refilled, not made anew."""
    record = Record(a=1)
    record.source = "network"
    _, spec = flatten(record)
    assert unflatten(spec, iter([2])).source == "network"
    assert unflatten_batch(spec, iter([2])).source == "network"
    assert record == {"a": 1}


def test_containers_that_cannot_be_made_become_plain():
    """A mapping or sequence whose class takes no content comes back as a dict or a list."""

    class Odd(UserList):
        def __init__(self) -> None:
            super().__init__()

        def __setitem__(self, place: Any, value: Any) -> None:
            raise TypeError("fixed")

    odd = Odd()
    odd.data.append(1)
    _, spec = flatten(odd)
    assert unflatten(spec, iter([2])) == [2]
    found = unflatten(flatten(MappingProxyType({"a": 1}))[1], iter([2]))
    assert type(found) is MappingProxyType
    assert found == {"a": 2}
    assert type(unflatten(flatten(UserDict(a=1))[1], iter([2]))) is UserDict
    assert unflatten(flatten(range(2))[1], iter([5, 6])) == [5, 6]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ((1, 2), [1, 2]),
        ((1, 2), (1, 2, 3)),
        ({"a": 1}, {"b": 1}),
        ({"a": 1}, OrderedDict(a=1)),
        (Pair(1, 2), (1, 2)),
        ((1, 2), 1),
        ([1, (2,)], [1, [2]]),
    ],
)
def test_different_structures_differ(one: Any, other: Any):
    """Types of containers, keys and counts count; leaves do not."""
    assert flatten(one)[1] != flatten(other)[1]


def test_leaves_do_not_count():
    """Two samples of one structure have equal specs."""
    assert flatten({"a": (1, "b")})[1] == flatten({"a": (torch.zeros(2), None)})[1]


def test_leaves_of_a_batch():
    """A leaf of text is a list, which is not opened."""
    _, spec = flatten({"x": (1, "a"), "y": Pair(2, [3])})
    batch = {"x": [torch.tensor([1, 1]), ["a", "b"]], "y": Pair(torch.tensor([2, 2]), [[3, 3]])}
    found = batch_leaves(batch, spec)
    assert found[1] == ["a", "b"]
    assert found[3] == [3, 3]
    assert len(found) == spec.count()


def test_mappings_are_taken_in_the_order_of_another_spec() -> None:
    """Keys in another order give the same leaves in the same places; other keys do not."""
    spec = flatten(({"a": 1, "b": {"c": 2, "d": 3}}, 4))[1]
    leaves, found = flatten(({"b": {"d": 3, "c": 2}, "a": 1}, 4), spec)
    assert leaves == [1, 2, 3, 4]
    assert found == spec
    assert flatten(({"a": 1, "e": {"c": 2, "d": 3}}, 4), spec)[1] != spec


def test_a_container_that_cannot_be_made_anew_keeps_its_type_when_stripped() -> None:
    """A range is a sequence that no list of leaves makes; its spec stays equal to itself."""
    spec = flatten((range(3), 1))[1]
    assert strip(spec) == spec
