"""Rows gathered by compiled code: every bit that torch would gather, whatever the rows are."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

import hotset
from hotset.kernels import gather
from hotset.kernels.gather import RowGather, check_rows, choose_gather, gather_rows, is_plain
from hotset.kernels.threads import Threads
from hotset.sample.collate import same_bits

CPU = torch.device("cpu")
DTYPES = (
    torch.uint8,
    torch.bool,
    torch.int16,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.int64,
    torch.float64,
    torch.complex64,
    torch.complex128,
)
SHAPES = st.lists(st.integers(1, 7), max_size=3).map(tuple)
WAYS = pytest.mark.parametrize("is_compiled", [True, False], ids=["compiled", "NumPy"])


@contextmanager
def _gathering(*, is_compiled: bool, least_source: int = 0) -> Iterator[None]:
    """Where numba is there or is not, and even small fields are worth it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gather, "has_numba", lambda: is_compiled)
        patch.setattr(gather, "LEAST_SOURCE", least_source)
        yield


def _random(shape: tuple[int, ...], dtype: torch.dtype, seed: int = 0) -> Tensor:
    """Random bits, NaNs of every kind included; of truth values 0 and 1 only."""
    generator = np.random.default_rng(seed)
    most = 2 if dtype is torch.bool else 256
    values = generator.integers(0, most, (*shape, dtype.itemsize), dtype=np.uint8)
    return torch.from_numpy(values).view(dtype).reshape(shape)


@WAYS
@given(st.data())
@settings(max_examples=150)
def test_rows_of_every_length(is_compiled: bool, data: st.DataObject) -> None:
    """Lengths about every width that is copied at once, from any address; beside them nothing."""
    row_bytes = data.draw(st.one_of(st.integers(0, 140), st.sampled_from((1000, 3072))))
    shift = data.draw(st.integers(0, 70))
    rows = data.draw(st.lists(st.integers(0, 39), max_size=90).map(np.array)).astype(np.int64)
    memory = np.random.default_rng(row_bytes).integers(0, 256, shift + 40 * row_bytes, np.uint8)
    source = memory[shift:].reshape(40, row_bytes)
    around = np.full(len(rows) * row_bytes + 200, 77, np.uint8)
    out = around[100 : 100 + len(rows) * row_bytes].reshape(len(rows), row_bytes)
    with _gathering(is_compiled=is_compiled):
        gather_rows(source, rows, out)
    assert out.tobytes() == source[rows].tobytes()
    assert set(around[:100].tolist()) | set(around[100 + out.size :].tolist()) == {77}


@WAYS
@pytest.mark.parametrize("row", [-1, 4, 2**62, -(2**63)])
def test_rows_that_are_not_there_are_refused(is_compiled: bool, row: int) -> None:
    """Before anything is written."""
    rows, out = np.array([3, row, 0]), np.full((3, 5), 7, np.uint8)
    message = f"rows must lie between 0 and 3, of 4; got {min(row, 0)} to {max(row, 3)}"
    with _gathering(is_compiled=is_compiled):
        with pytest.raises(IndexError, match=message):
            gather_rows(np.zeros((4, 5), np.uint8), rows, out)
        with pytest.raises(IndexError, match="of 0; got 0 to 0"):
            check_rows(np.zeros(1, np.int64), 0)
        check_rows(np.zeros(0, np.int64), 0)
    assert (out == 7).all()


def test_source_may_be_read_only() -> None:
    """As a mapped file is; so may the rows."""
    source, rows = np.arange(12, dtype=np.uint8).reshape(4, 3), np.array([2, 1])
    out = np.zeros((2, 3), np.uint8)
    source.flags.writeable = rows.flags.writeable = False
    gather_rows(source, rows, out)
    assert out.tolist() == [[6, 7, 8], [3, 4, 5]]


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("source", np.zeros((4, 6), np.uint8)[:, ::2]),
        ("source", np.zeros((4, 3), np.int8)),
        ("source", np.zeros(12, np.uint8)),
        ("rows", np.zeros(2, np.int32)),
        ("rows", np.zeros(4, np.int64)[::2]),
        ("out", np.zeros((3, 2), np.uint8).T),
    ],
)
def test_other_arrays_are_refused(name: str, array: np.ndarray) -> None:
    """By name: strides, dtype and axes are not looked at in the kernel."""
    arrays = {
        "source": np.zeros((4, 3), np.uint8),
        "rows": np.zeros(2, np.int64),
        "out": np.zeros((2, 3), np.uint8),
    }
    with pytest.raises(ValueError, match=f"`{name}` must be a C-contiguous array of . axes and"):
        gather_rows(**{**arrays, name: array})


def test_room_of_another_shape_is_refused() -> None:
    """The kernel would write beyond its end."""
    with pytest.raises(ValueError, match=r"`out` must have the shape \(2, 3\) .* got \(1, 3\)"):
        gather_rows(np.zeros((4, 3), np.uint8), np.zeros(2, np.int64), np.zeros((1, 3), np.uint8))


def test_kernels_hold_no_lock() -> None:
    """Other threads of Python run while rows are gathered."""
    kernels = pytest.importorskip("hotset.kernels.gather_cpu")
    for kernel in (kernels.copy_rows, kernels.gather_segments, kernels.greatest):
        assert kernel.targetoptions["nogil"]


@given(st.data())
@settings(max_examples=100)
def test_batches_are_those_of_index_select(data: st.DataObject) -> None:
    """Several fields of any dtype and shape, several batches of any size, on any thread."""
    shapes = data.draw(st.lists(st.tuples(st.sampled_from(DTYPES), SHAPES), min_size=1, max_size=4))
    fields = [_random((50, *shape), dtype, seed) for seed, (dtype, shape) in enumerate(shapes)]
    sizes = data.draw(st.lists(st.integers(0, 60), min_size=1, max_size=5))
    generator = np.random.default_rng(len(sizes))
    rows = torch.from_numpy(generator.integers(0, 50, sum(sizes)))
    with pytest.MonkeyPatch.context() as patch, Threads(data.draw(st.integers(1, 3))) as threads:
        patch.setattr(gather, "LEAST_SHARED", 1)
        patch.setattr(gather, "PART", data.draw(st.sampled_from((1, 200, 2**20))))
        patch.setattr(gather, "LEAST_RECYCLED", data.draw(st.sampled_from((0, 500, 2**40))))
        found = RowGather().batches(fields, rows, sizes, threads=threads)
    for field, batches in zip(fields, found, strict=True):
        for batch, part in zip(batches, torch.split(rows, sizes), strict=True):
            assert same_bits(batch, field.index_select(0, part))
            assert batch.is_contiguous()
            assert not batch.requires_grad


def test_fields_of_differing_length_are_bounded_by_the_shortest() -> None:
    """No field is read beyond its end."""
    fields = [torch.zeros(5), torch.zeros(4)]
    with pytest.raises(IndexError, match="rows must lie between 0 and 3, of 4; got 4 to 4"):
        RowGather().batches(fields, torch.tensor([4]), (1,))


class _Own(Tensor):
    """A tensor of a user's own."""


SAME = torch.arange(24.0).reshape(6, 4)
NOT_PLAIN: list[Any] = [
    SAME.as_subclass(_Own),
    SAME.clone().requires_grad_(),
    SAME.t(),
    SAME[::2],
    SAME[:, 1:3],
    torch.complex(SAME, SAME).conj(),
    torch.complex(SAME, SAME).conj().imag,
    torch.zeros(()),
    SAME.to_sparse(),
    SAME.to("meta"),
]


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor:UserWarning")
def test_what_is_plain() -> None:
    """Contiguous rows in host memory, also those in the middle of a tensor; nothing besides."""
    assert not any(is_plain(data) for data in NOT_PLAIN)
    assert not is_plain(torch.quantize_per_tensor(SAME, 0.1, 0, torch.quint8))
    assert is_plain(SAME)
    assert is_plain(SAME[2:5])
    assert is_plain(torch.zeros(3))
    assert is_plain(SAME.bfloat16())


@pytest.mark.parametrize("place", range(7))
def test_loader_gathers_the_rest_by_torch(place: int) -> None:
    """Sources that are not plain come out as torch gathers them, beside one that is."""
    data = NOT_PLAIN[place]
    labels = torch.arange(len(data))
    with _gathering(is_compiled=True):
        loader = hotset.Loader((data, labels), 4, shuffle=True, device="cpu")
        for batch, rows in loader:
            expected = data.index_select(0, rows)
            assert torch.equal(batch.resolve_conj(), expected.resolve_conj())


def test_what_is_worth_compiling() -> None:
    """Large fields in host memory, where numba is there."""
    with _gathering(is_compiled=True, least_source=100):
        assert choose_gather(99, CPU) is None
        assert choose_gather(100, torch.device("meta")) is None
        assert isinstance(choose_gather(100, CPU), RowGather)
    with _gathering(is_compiled=False, least_source=100):
        assert choose_gather(100, CPU) is None


@pytest.mark.parametrize("batch_size", [7, 64, 1000])
def test_loader_gives_the_plain_loaders_batches(batch_size: int) -> None:
    """Rows and labels, shuffled: the same samples, bits and order, epoch after epoch."""
    x, y = torch.randn(1000, 32), torch.arange(1000)
    plain = DataLoader(TensorDataset(x, y), batch_size, shuffle=True)
    with _gathering(is_compiled=True):
        fast = hotset.accelerate(plain, device="cpu")
    for epoch in range(2):
        torch.manual_seed(epoch)
        expected = list(plain)
        torch.manual_seed(epoch)
        found = list(fast)
        assert len(found) == len(expected)
        for (rows, labels), (rows_now, labels_now) in zip(expected, found, strict=True):
            assert same_bits(rows_now, rows)
            assert same_bits(labels_now, labels)


def test_batches_are_made_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one alone, which tells how large one is; then as many as have memory to use."""
    calls: list[list[int]] = []
    made = RowGather.batches

    def counted(self: RowGather, fields: Any, rows: Any, sizes: Any, **how: Any) -> Any:
        calls.append([len(fields), *sizes])
        return made(self, fields, rows, sizes, **how)

    monkeypatch.setattr(RowGather, "batches", counted)
    x, y = torch.randn(205, 8), torch.arange(205)
    with _gathering(is_compiled=True):
        loader = hotset.Loader((x, y), 10, device="cpu", seed=0)
    assert len(list(loader)) == 21
    assert calls == [[2, 10], [2, *[10] * 8], [2, *[10] * 8], [2, 10, 10, 10, 5]]


def test_memory_is_used_again_but_never_while_it_is_held() -> None:
    """An epoch takes no more blocks than are kept; a batch that is kept stays as it is."""
    x, y = torch.arange(64_000.0).reshape(2000, 32), torch.arange(2000)
    with _gathering(is_compiled=True), pytest.MonkeyPatch.context() as patch:
        patch.setattr(gather, "LEAST_RECYCLED", 1)
        loader = hotset.Loader((x, y), 100, shuffle=True, device="cpu")
        kept = [batch for _ in range(3) for batch in loader]
        assert len({rows.data_ptr() for rows, _ in kept}) == 60
        assert all(torch.equal(rows, x[labels]) for rows, labels in kept)
        del kept
        gc.collect()
        places = {rows.data_ptr() for _ in range(3) for rows, _ in loader}
        assert len(places) <= gather.KEPT + 2  # and those that are held while more are made


def test_two_epochs_at_once() -> None:
    """An epoch that ends takes no threads from one that goes on."""
    x, y = torch.randn(5000, 32), torch.arange(5000)
    with _gathering(is_compiled=True), pytest.MonkeyPatch.context() as patch:
        patch.setattr(gather, "LEAST_SHARED", 1)
        loader = hotset.Loader((x, y), 50, shuffle=True, device="cpu")
        outer, inner = iter(loader), iter(loader)
        next(inner)
        for batches in (outer, inner):
            for rows, labels in batches:
                assert torch.equal(rows, x[labels])


def test_dtype_of_the_first_field(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cast behind the gathering; labels stay."""
    x, y = torch.randn(40, 3), torch.randn(40, dtype=torch.float64)
    with _gathering(is_compiled=True):
        loader = hotset.Loader((x, y), 16, device="cpu", dtype=torch.float16)
    (rows, labels), *_ = loader
    assert same_bits(rows, x[:16].half())
    assert same_bits(labels, y[:16])


def test_what_is_written_to_the_source_is_seen() -> None:
    """Arrays in memory are not copied; nor is anything of them remembered between epochs."""
    x = torch.zeros(64, 4)
    with _gathering(is_compiled=True):
        loader = hotset.Loader((x,), 64, device="cpu", check_every=0)
        assert (next(iter(loader))[0] == 0).all()
        x += 1
        assert (next(iter(loader))[0] == 1).all()
