"""Reading every sample once: columns that give back each leaf as it was."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

import hotset
from hotset.errors import SampleError, SchemaError
from hotset.placement.precision import Narrower
from hotset.sample.collate import same_bits
from hotset.sample.column import Column, DenseColumn, RaggedColumn
from hotset.sample.tree import flatten
from hotset.sources import fill, sweep
from hotset.sources.fill import fill_columns
from tests import streams
from tests.streams import assert_same


def filled(
    function: Callable[[int], Any], length: int, *, ragged: bool = False, **options: Any
) -> list[Column]:
    """The columns of samples given by a function of their index."""
    return fill_columns(
        function,
        length,
        name="Numbers",
        spec=flatten(function(0))[1],
        is_ragged_allowed=ragged,
        **options,
    )


def scalar_sample(index: int) -> Any:
    """One leaf of each kind that is stored densely."""
    return (
        torch.full((2, 3), float(index)),
        np.arange(3, dtype=np.int16) + index,
        streams.picture(index, (2, 4)),
        index,
        index / 3,
        bool(index % 2),
        np.float32(index / 3),
        np.uint8(index),
    )


def text_sample(index: int) -> Any:
    """Text, and a tensor of bfloat16."""
    return f"n{index}", f"n{index}".encode(), torch.tensor([float(index)]).bfloat16()


@pytest.mark.parametrize(
    ("sample", "workers"),
    [(scalar_sample, 0), (scalar_sample, 2), (text_sample, 0), (text_sample, 2)],
)
def test_leaves_come_back_as_they_were(
    sample: Any, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Type, shape, dtype and bits; read in this process or by others."""
    monkeypatch.setattr(sweep, "WORKERS_PAY_SECONDS", -1.0)
    columns = filled(sample, 150, workers=workers)
    for index in (0, 7, 63, 64, 149):
        for column, leaf in zip(columns, flatten(sample(index))[0], strict=True):
            found = column.item(index)
            if hasattr(leaf, "tobytes") and hasattr(leaf, "mode"):
                assert (found.mode, found.tobytes()) == (leaf.mode, leaf.tobytes())
            else:
                assert_same(found, leaf)


def test_dense_columns_take_the_bytes_of_their_leaves() -> None:
    """And nothing more."""
    columns = filled(scalar_sample, 10)
    assert all(isinstance(column, DenseColumn) for column in columns)
    assert [column.nbytes // 10 for column in columns] == [24, 6, 24, 8, 8, 1, 4, 1]


@pytest.mark.parametrize("odd", [1, 5, 99, 149])
@pytest.mark.parametrize("workers", [0, 2])
def test_a_shape_that_differs_is_named(
    odd: int, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With both indices and both shapes."""
    monkeypatch.setattr(sweep, "WORKERS_PAY_SECONDS", -1.0)

    def sample(index: int) -> Any:
        return index, torch.zeros(3 if index == odd else 2)

    with pytest.raises(
        SchemaError,
        match=rf"sample\[1\] is a tensor \(2,\) float32 at index 0 but a tensor \(3,\) float32 at "
        rf"index {odd};",
    ):
        filled(sample, 150, workers=workers)


@pytest.mark.parametrize("odd", [1, 5, 19])
def test_shapes_that_differ_are_kept_end_to_end_where_allowed(odd: int) -> None:
    """What was dense so far comes back as it was."""

    def sample(index: int) -> Tensor:
        return torch.arange(float(index), index + (3 if index == odd else 2))

    (column,) = filled(sample, 20, ragged=True)
    assert isinstance(column, RaggedColumn)
    for index in range(20):
        assert_same(column.item(index), sample(index))
    assert column.nbytes == (19 * 2 + 3) * 4


def test_a_structure_that_differs_is_named() -> None:
    """Before anything is lost in the wrong place."""

    def sample(index: int) -> Any:
        return {"a": index} if index != 13 else {"a": index, "b": 1}

    with pytest.raises(
        SchemaError,
        match=r"Numbers: the sample at index 13 has the leaves .*\['b'\].*one structure",
    ):
        filled(sample, 20)


def broken(index: int) -> int:
    """Fails at one index."""
    if index == 77:
        raise KeyError("no such key")
    return index


@pytest.mark.parametrize("workers", [0, 2])
def test_a_sample_that_fails_is_named(workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process the exception is the cause; from another its traceback is kept as text."""
    monkeypatch.setattr(sweep, "WORKERS_PAY_SECONDS", -1.0)
    with pytest.raises(SampleError, match=r"Numbers failed at index 77: KeyError: 'no s") as caught:
        filled(broken, 150, workers=workers)
    if workers:
        assert "in broken" in str(caught.value)
        assert "Original Traceback" in str(caught.value)
    else:
        assert isinstance(caught.value.__cause__, KeyError)


@pytest.mark.parametrize("workers", [0, 2])
def test_progress_counts_to_the_end(workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Never backwards; the last call says that all is read."""
    monkeypatch.setattr(sweep, "WORKERS_PAY_SECONDS", -1.0)
    calls: list[tuple[int, int]] = []
    filled(lambda i: i, 150, workers=workers, progress=lambda *n: calls.append(n))
    assert calls == sorted(calls)
    assert calls[-1] == (150, 150)


@pytest.mark.parametrize("workers", [0, 2])
def test_torchs_generator_is_left_alone(workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers are given a base seed from elsewhere."""
    monkeypatch.setattr(sweep, "WORKERS_PAY_SECONDS", -1.0)
    before = torch.get_rng_state()
    filled(lambda i: i, 150, workers=workers)
    assert torch.equal(torch.get_rng_state(), before)


def test_every_sample_is_read_once() -> None:
    """In order."""
    read: list[int] = []

    def sample(index: int) -> int:
        read.append(index)
        return index

    filled(sample, 100, workers=0)
    assert read[1:] == list(range(100))  # the first is this test's own look at the structure


def test_what_was_read_is_not_shared_with_the_dataset() -> None:
    """A dataset that gives one buffer over and over does no harm."""
    buffer = torch.zeros(3)

    def sample(index: int) -> Tensor:
        return buffer.fill_(index)

    (column,) = filled(sample, 5)
    assert [column.item(row).tolist() for row in range(5)] == [[float(i)] * 3 for i in range(5)]
    widths = torch.zeros(9)

    def ragged(index: int) -> Tensor:
        return widths.fill_(index)[: 2 + index % 2]

    (column,) = filled(ragged, 5, ragged=True)
    assert [column.item(row)[0].item() for row in range(5)] == [0, 1, 2, 3, 4]


class _Odd(Dataset[Any]):
    """Samples that `default_collate` takes though they differ."""

    def __init__(self, make: Callable[[int], Any]) -> None:
        self.make = make

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> Any:
        return self.make(index)


@pytest.mark.parametrize(
    "make",
    [
        lambda i: {"a": 1.0 * i, "b": i} if i % 2 else {"b": i, "a": 1.0 * i},
        lambda i: torch.full((2,), float(i)).to(torch.float8_e4m3fn),
        lambda i: torch.full((2,), float(i), dtype=torch.float32 if i % 2 else torch.float64),
        lambda i: (i if i % 3 else np.int64(i), "a" * i),
    ],
    ids=["key order", "float8", "mixed dtypes", "mixed numbers"],
)
def test_samples_that_differ_harmlessly_are_batched_as_by_the_plain_loader(
    make: Callable[[int], Any],
) -> None:
    """Key order, dtypes NumPy lacks, and mixed dtypes give the plain loader's batches."""
    loader = DataLoader(_Odd(make), batch_size=4)
    for plain, fast in zip(loader, hotset.accelerate(loader, device="cpu"), strict=True):
        expected, spec = flatten(plain)
        found, other = flatten(fast, spec)
        assert spec == other
        assert all(map(same_bits, found, expected))


def test_whole_numbers_beyond_64_bits_reach_a_collate_fn() -> None:
    """They cannot be stored as int64, and are kept as they are."""
    loader = DataLoader(_Odd(lambda i: 2**63 + i), batch_size=3, collate_fn=list)
    assert list(hotset.accelerate(loader, device="cpu")) == list(loader)


def test_narrow_columns_are_never_held_at_full_width(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows wait in a room of a few values, and are rounded whenever it is full."""
    taken: list[int] = []

    class Watched(Narrower):
        def take(self, values: Tensor, rows_of: Any) -> Tensor:
            taken.append(len(values))
            return super().take(values, rows_of)

    monkeypatch.setattr(fill, "CHUNK_VALUES", 8)
    narrower = Watched(torch.float16, "sample", length=11)
    (column,) = filled(lambda index: torch.full((3,), index + 2**-12), 11, narrowers={0: narrower})
    assert isinstance(column, DenseColumn)
    assert column.data.dtype is torch.float16
    assert taken == [6, 6, 6, 6, 6, 3]
    assert [column.item(row).tolist() for row in (0, 10)] == [[2**-12] * 3, [10.0] * 3]
    assert (narrower.result().largest, narrower.result().sample) == (2**-12, 1)
