"""Moving a batch: every tensor goes, every container stays what it was."""

from __future__ import annotations

from collections import OrderedDict, UserDict, defaultdict
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pack_sequence
from torchvision import tv_tensors

from hotset.loader.moved import move
from hotset.placement.link import HostLink
from hotset.placement.stats import Tally
from hotset.testing import SimulatedAccelerator

META = torch.device("meta")


class ToMeta(SimulatedAccelerator):
    """A link to tensors that have no values."""

    def __init__(self) -> None:
        super().__init__("1MB", bandwidth="1MB")
        self.device = META

    def send(self, source: Tensor) -> Tensor:
        return source.to(META)


def moved_to_meta(batch: Any) -> Any:
    """A batch on the meta device."""
    return move(batch, ToMeta(), Tally())


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
    moved = moved_to_meta(batch)
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
    assert moved_to_meta([Boxes(torch.zeros(1))])[0].data.device == META
    packed = moved_to_meta((pack_sequence([torch.zeros(3), torch.zeros(2)]),))[0]
    assert type(packed) is PackedSequence
    assert packed.data.device == META
    assert packed.batch_sizes.device == torch.device("cpu")


def test_on_the_cpu_nothing_is_done() -> None:
    """The batch itself."""
    batch = [torch.zeros(1)]
    tally = Tally()
    assert move(batch, HostLink(), tally) is batch
    assert tally.bytes_copied == 0


def test_what_is_moved_is_counted() -> None:
    """The bytes of every tensor, once."""
    tally, device = Tally(), SimulatedAccelerator("1MB", bandwidth="1MB")
    batch = {"x": torch.arange(6.0), "y": (torch.arange(3), "text")}
    moved = move(batch, device, tally)
    assert torch.equal(moved["x"], batch["x"])
    assert moved["x"] is not batch["x"]
    assert tally.bytes_copied == device.bytes_copied == 6 * 4 + 3 * 8


def test_tensors_keep_their_class_strides_and_layout() -> None:
    """As `Tensor.to` leaves them."""
    device = SimulatedAccelerator("1MB", bandwidth="1MB")
    picture = torch.rand(2, 3, 4, 5).to(memory_format=torch.channels_last)
    box = tv_tensors.Image(torch.zeros(3, 4, 4))
    sparse = torch.eye(3).to_sparse()
    batch = move([picture, box, sparse], device, Tally())
    assert batch[0].is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(batch[0], picture)
    assert type(batch[1]) is tv_tensors.Image
    assert torch.equal(batch[2].to_dense(), torch.eye(3))
