"""Moving a batch: every tensor goes, every container stays what it was."""

from __future__ import annotations

from collections import OrderedDict, UserDict, defaultdict
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pack_sequence

from hotset.loader.batch import move

META = torch.device("meta")


class Pair(NamedTuple):
    """Two things."""

    first: Any
    second: Any


class Boxes:
    """An object that can move itself."""

    def __init__(self, data: Tensor) -> None:
        self.data = data

    def to(self, device: torch.device) -> Boxes:
        """Itself, elsewhere."""
        return Boxes(self.data.to(device))


def test_containers_keep_their_types() -> None:
    """Dictionaries of any kind, named tuples, lists, tuples; text and numbers stay."""
    counted: defaultdict[str, Any] = defaultdict(list, x=torch.zeros(1))
    batch = {
        "plain": [torch.zeros(2), "text", 3],
        "named": Pair(torch.zeros(1), (torch.zeros(1), None)),
        "ordered": OrderedDict(b=torch.zeros(1), a=b"bytes"),
        "counted": counted,
        "own": UserDict(x=torch.zeros(1)),
    }
    moved = move(batch, META)
    assert moved["plain"][0].device == META
    assert moved["plain"][1:] == ["text", 3]
    assert type(moved["named"]) is Pair
    assert moved["named"].first.device == moved["named"].second[0].device == META
    assert list(moved["ordered"]) == ["b", "a"]
    assert type(moved["ordered"]) is OrderedDict
    assert type(moved["counted"]) is defaultdict
    assert moved["counted"].default_factory is list
    assert moved["counted"]["x"].device == META
    assert type(moved["own"]) is UserDict
    assert moved["own"]["x"].device == META
    assert counted["x"].device == torch.device("cpu")


def test_objects_move_themselves() -> None:
    """Also those that are containers besides, such as a packed sequence."""
    assert move([Boxes(torch.zeros(1))], META)[0].data.device == META
    packed = move((pack_sequence([torch.zeros(3), torch.zeros(2)]),), META)[0]
    assert type(packed) is PackedSequence
    assert packed.data.device == META
    assert packed.batch_sizes.device == torch.device("cpu")


def test_on_the_cpu_nothing_is_done() -> None:
    """The batch itself."""
    batch = [torch.zeros(1)]
    assert move(batch, torch.device("cpu")) is batch
