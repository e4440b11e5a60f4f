"""Streams that every worker goes through as a whole."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from hotset.doctor.examination import Examination
from hotset.doctor.facts import facts_of
from hotset.doctor.traps.traps import traps_of

NAME = "samples that come once from each worker"


class Stream(IterableDataset[Any]):
    """Some numbers, of which each worker gives a part, or all."""

    def __init__(self, numbers: list[float], *, is_split: bool) -> None:
        self._numbers, self._is_split = numbers, is_split

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        part = slice(info.id, None, info.num_workers) if info and self._is_split else slice(None)
        return (torch.tensor([number]) for number in self._numbers[part])


def names_of(loader: Any) -> list[str]:
    """The traps that a loader is in."""
    return [trap.name for trap in traps_of(loader, Examination(facts_of(loader), cores=8))]


def test_a_stream_that_all_workers_go_through() -> None:
    """Results are wrong, and so they are: each sample comes twice. The code gives each its part."""
    loader = DataLoader(Stream([1.0, 2.0, 3.0, 4.0], is_split=False), 2, num_workers=2)
    assert sorted(float(x) for batch in loader for x in batch) == [1, 1, 2, 2, 3, 3, 4, 4]
    (trap,) = traps_of(loader, Examination(facts_of(loader), cores=8))
    assert (trap.name, trap.is_wrong) == (NAME, True)
    assert trap.what == "two workers began with the same 4 samples"
    assert "an epoch has every sample 2 times" in trap.why
    scope: dict[str, Any] = {}
    exec(trap.code, scope)
    assert list(scope["part_of"]([1, 2])) == list(islice([1, 2], 2))


def test_streams_whose_workers_have_each_their_part() -> None:
    """Nor is there anything to be said without a second worker."""
    numbers = [1.0, 2.0, 3.0, 4.0]
    assert names_of(DataLoader(Stream(numbers, is_split=True), 2, num_workers=2)) == []
    assert names_of(DataLoader(Stream(numbers, is_split=False), 2, num_workers=1)) == []


@pytest.mark.parametrize("numbers", [[0.0] * 6, [1.0], []])
def test_samples_that_are_all_alike_tell_nothing(numbers: list[float]) -> None:
    """Two parts of them would look the same."""
    assert names_of(DataLoader(Stream(numbers, is_split=True), 2, num_workers=2)) == []
