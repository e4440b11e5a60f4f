"""`hotset.running.snapshot`: changes of a dataset, seen without reading it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Subset

from hotset.running.snapshot import LONG, change, differing, snapshot_of


class Part:
    def __init__(self) -> None:
        self.epoch = 0


class Data:
    def __init__(self) -> None:
        self.root = "a"
        self.scale = 1.0
        self.part = Part()
        self.items = [{"path": "x", "weights": [1, 2]}, ("y", 3)]
        self.long = list(range(LONG + 5))
        self.pixels = np.zeros((4, 4), np.uint8)
        self.large = torch.zeros(9, 3)
        self.transform = len
        self.me = self


def swap(data: Data, name: str, value: Any) -> None:
    """Sets an attribute."""
    setattr(data, name, value)


@pytest.mark.parametrize(
    ("act", "where"),
    [
        (lambda data: swap(data, "root", "b"), ".root"),
        (lambda data: swap(data, "scale", float("nan")), ".scale"),
        (lambda data: swap(data, "transform", max), ".transform"),
        (lambda data: swap(data, "new", 1), ".new"),
        (lambda data: swap(data.part, "epoch", 1), ".part.epoch"),
        (lambda data: data.items[0].update(path="z"), ".items[0]['path']"),
        (lambda data: data.items.append(1), ".items"),
        (lambda data: data.long.__setitem__(7, 0), ".long"),
        (lambda data: data.pixels.__setitem__((3, 3), 1), ".pixels"),
        (lambda data: data.large.add_(1), ".large"),
        (lambda data: swap(data, "part", Part()), ".part"),
    ],
)
def test_a_change_is_named_by_its_place(act: Callable[[Data], Any], where: str) -> None:
    """The nearest to the dataset, through objects, lists and arrays."""
    data = Data()
    kept = data.part
    before = snapshot_of(data)
    assert change(before, snapshot_of(data)) == ""
    act(data)
    assert kept is not None
    assert change(before, snapshot_of(data)) == where


def test_what_reading_changes_does_not_count() -> None:
    """Nor what lies within it."""
    data = Data()
    before = snapshot_of(data)
    data.items[0]["weights"].append(3)
    data.part.epoch = 5
    read = snapshot_of(data)
    ignored = differing(before, read)
    assert ignored == {".items[0]['weights']", ".items[0]['weights'][2]", ".part.epoch"}
    data.items[0]["weights"][0] = 9
    data.part.epoch = 6
    assert change(read, snapshot_of(data), but=ignored) == ""
    data.root = "b"
    assert change(read, snapshot_of(data), but=ignored) == ".root"


def test_datasets_within_datasets_are_looked_into() -> None:
    """A subset's own, and its indices."""
    subset = Subset(Data(), [0, 1])
    before = snapshot_of(subset)
    subset.dataset.part.epoch = 1
    assert change(before, snapshot_of(subset)) == ".dataset.part.epoch"
    assert change({}, before) == "it"


@pytest.mark.parametrize(
    "tensor",
    [
        torch.zeros(0),
        torch.zeros(4, 4).t(),
        torch.eye(3).to_sparse(),
        torch.zeros((), dtype=torch.bfloat16),
        torch.zeros(3, dtype=torch.complex64).conj(),
        torch.zeros(3, requires_grad=True),
    ],
)
def test_tensors_of_all_kinds_can_be_looked_at(tensor: torch.Tensor) -> None:
    """And are the same twice."""
    assert change(snapshot_of([tensor]), snapshot_of([tensor])) == ""


def test_tensors_made_for_inference_can_be_looked_at() -> None:
    """They count no versions, so their values must do."""
    with torch.inference_mode():
        tensor = torch.zeros(3)
        before = snapshot_of([tensor])
        tensor[1] = 2
    assert change(before, snapshot_of([tensor])) == "[0]"
