"""Values kept in a narrower dtype: rounded once, every one of them measured, none lost unseen."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor

from hotset.errors import ConfigError, PrecisionError
from hotset.placement import precision
from hotset.placement.precision import Narrower, Rounding, check_narrower, kept_as, rounded
from hotset.sample.collate import gather, same_bits
from hotset.sample.column import (
    Column,
    DenseColumn,
    ListColumn,
    RaggedColumn,
    column_of,
    describe,
    list_item,
)

HALVES = (torch.float16, torch.bfloat16)
ROWS = torch.tensor([2, 0])


def narrow(
    column: Column, dtype: torch.dtype = torch.float16, rows: Tensor | None = None
) -> tuple[Any, Rounding]:
    """The column in a narrower dtype, and what that did."""
    narrower = Narrower(dtype, "sample['x']", length=len(column), rows=rows)
    return precision.narrowed(column, narrower), narrower.result()


def ragged(parts: list[Tensor]) -> RaggedColumn:
    """A column of vectors of differing lengths."""
    sizes = np.array([len(part) for part in parts])
    index = np.stack([sizes.cumsum() - sizes, sizes], axis=1)
    return RaggedColumn(describe(parts[0]), torch.cat(parts), index)


def listed(leaves: list[Any]) -> ListColumn:
    """A column of leaves that differ in kind."""
    return ListColumn(describe(leaves[0]), [list_item(leaf) for leaf in leaves])


FORMS = {
    "dense": lambda parts: column_of(torch.stack(parts), "x"),
    "ragged": lambda parts: ragged(parts),
    "list": lambda parts: listed(parts),
}
every_form = pytest.mark.parametrize("form", FORMS)


@settings(max_examples=200)
@given(
    numbers=st.lists(st.floats(), min_size=1, max_size=20),
    dtype=st.sampled_from((torch.float32, torch.float64)),
)
@example([65519.99, 65520.0, -1e300, 2.0**-25, 2.0**-24, -0.0, math.nan], torch.float64)
def test_float16_is_rounded_as_numpy_rounds(numbers: list[float], dtype: torch.dtype) -> None:
    """Once, to the nearest, ties to even; also what is subnormal, infinite or no number."""
    values = torch.tensor(numbers, dtype=torch.float64).to(dtype)
    with np.errstate(over="ignore"):
        wanted = torch.from_numpy(values.numpy().astype(np.float16))
    found = rounded(values, torch.float16)
    assert torch.equal(found.isnan(), wanted.isnan())
    is_number = ~wanted.isnan()
    assert same_bits(found[is_number], wanted[is_number])


def neighbours(value: Tensor) -> list[float]:
    """The bfloat16 values on both sides of a finite one; an infinity stands for 2**128."""
    bits = value.view(torch.int16)
    around = [(bits + step).view(torch.bfloat16).item() for step in (-1, 1)]
    return [number for number in around if not math.isnan(number)]


def as_fraction(number: float) -> Fraction:
    """A number exactly; an infinity as where it begins for bfloat16."""
    return Fraction(number) if math.isfinite(number) else Fraction(2) ** 128 * (1, -1)[number < 0]


@settings(max_examples=300)
@given(number=st.floats(allow_nan=False, allow_infinity=False))
@example(1 + 2**-8 + 2**-40)
@example(3.39e38)
@example(1e-45)
@example(-(2.0**-133))
def test_bfloat16_of_double_precision_is_the_nearest(number: float) -> None:
    """No neighbour is nearer; of two that are as near, the last bit is 0."""
    found = rounded(torch.tensor([number], dtype=torch.float64), torch.bfloat16)[0]
    distance = abs(as_fraction(found.item()) - Fraction(number))
    if found == 0:
        assert abs(number) <= 2.0**-134
        return
    if abs(number) >= 2.0**128:
        assert found.isinf()
        return
    for other in neighbours(found):
        its = abs(as_fraction(other) - Fraction(number))
        assert distance <= its
        if distance == its:
            assert int(found.view(torch.int16)) % 2 == 0


def test_double_precision_is_rounded_once() -> None:
    """By way of single precision, which PyTorch goes, the result would be the other neighbour."""
    value = torch.tensor([1 + 2**-11 + 2**-40], dtype=torch.float64)
    assert value.half().item() == 1.0
    assert rounded(value, torch.float16).item() == 1 + 2**-10
    value = torch.tensor([1 + 2**-8 + 2**-40], dtype=torch.float64)
    assert value.bfloat16().item() == 1.0
    assert rounded(value, torch.bfloat16).item() == 1 + 2**-7
    assert rounded(value, torch.float32).item() == 1 + 2**-8


@every_form
def test_errors_are_exact(form: str) -> None:
    """The largest, whose it is, and the mean over all finite values; NaN and infinities stay."""
    parts = [
        torch.tensor([1.0, 1 + 2**-12, math.nan]),
        torch.tensor([-math.inf, 2 - 2**-11, 0.0]),
        torch.tensor([-4 - 2**-10, math.inf, 0.5]),
    ]
    column, rounding = narrow(FORMS[form](parts))
    assert rounding == Rounding(
        path="sample['x']",
        dtype=torch.float16,
        largest=2**-10,
        sample=2,
        mean=(2**-12 + 2**-11 + 2**-10) / 6,
        vanished=0.0,
        nbytes=18,
        full_nbytes=36,
    )
    assert column.nbytes == 18
    wanted = [[1, 1, math.nan], [-math.inf, 2, 0], [-4, math.inf, 0.5]]
    for row, numbers in enumerate(wanted):
        leaf = column.item(row)
        assert leaf.dtype is torch.float32
        np.testing.assert_array_equal(leaf.numpy(), np.array(numbers, np.float32))
    assert str(rounding) == (
        "kept as float16: largest error 0.00098 (sample 2, sample['x']), mean 0.00028; 18 bytes "
        "instead of 36 bytes"
    )


@settings(max_examples=60)
@given(
    form=st.sampled_from(sorted(FORMS)),
    seed=st.integers(0, 2**31),
    chunk=st.integers(1, 9),
    count=st.integers(1, 6),
    dtypes=st.sampled_from(
        (
            (torch.float32, torch.float16),
            (torch.float32, torch.bfloat16),
            (torch.float64, torch.float16),
            (torch.float64, torch.float32),
        )
    ),
    is_partial=st.booleans(),
)
def test_chunks_are_as_the_whole(
    form: str,
    seed: int,
    chunk: int,
    count: int,
    dtypes: tuple[torch.dtype, torch.dtype],
    is_partial: bool,
) -> None:
    """However many values are rounded at once, and whichever rows are samples."""
    wide, dtype = dtypes
    generator = torch.Generator().manual_seed(seed)
    lengths = [4] * count if form == "dense" else [(seed + row) % 5 for row in range(count)]
    parts = [torch.randn(length, generator=generator, dtype=wide) for length in lengths]
    rows = torch.randperm(count, generator=generator)[: max(1, count // 2)] if is_partial else None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(precision, "CHUNK_VALUES", chunk)
        column, rounding = narrow(FORMS[form](parts), dtype, rows)
    samples = range(count) if rows is None else rows.tolist()
    errors = [(parts[row].double() - rounded(parts[row], dtype).double()).abs() for row in samples]
    flat = torch.cat(errors)
    largest = float(flat.max()) if len(flat) else 0.0
    assert rounding.largest == largest
    if largest:
        assert float(errors[rounding.sample].max()) == largest
    assert rounding.mean == pytest.approx(float(flat.sum()) / max(1, len(flat)), rel=1e-12)
    for row, part in enumerate(parts):
        assert same_bits(column.item(row), rounded(part, dtype).to(wide))
        assert same_bits(kept_as(part, dtype), column.item(row))


@every_form
@pytest.mark.parametrize(
    ("dtype", "value", "words"),
    [
        (
            torch.float16,
            65520.0,
            r"65520\.0 at sample\['x'\], but float16 ends at 65504: it would become infinite; use "
            "torch.bfloat16, which has the range of float32, or leave `storage_dtype` out",
        ),
        (
            torch.bfloat16,
            -3.4e38,
            r"-3\.4e\+38 at sample\['x'\], but bfloat16 ends at 3\.38953e\+38: it would become "
            "infinite; leave `storage_dtype` out",
        ),
        (
            torch.float16,
            1e300,
            r"1e\+300 at sample\['x'\], but float16 ends at 65504: it would become infinite; leave",
        ),
        (torch.float32, 1e300, r"1e\+300 at sample\['x'\], but float32 ends at 3\.40282e\+38"),
    ],
)
def test_values_beyond_the_range_are_refused(
    form: str, dtype: torch.dtype, value: float, words: str
) -> None:
    """Sample, leaf and value are named; bfloat16 is proposed where it would hold the value."""
    parts = [torch.zeros(2).double(), torch.tensor([0.0, value], dtype=torch.float64)]
    with pytest.raises(PrecisionError, match=f"^sample 1 has the value {words}"):
        narrow(FORMS[form](parts), dtype)


@pytest.mark.parametrize("form", ["dense", "ragged"])
def test_rows_of_no_sample_do_not_count(form: str) -> None:
    """Neither what they lose nor what they would refuse; samples are named by their own number."""
    parts = [torch.tensor([1 + 2**-12]), torch.tensor([1e9]), torch.tensor([2 + 2**-11])]
    column, rounding = narrow(FORMS[form](parts), rows=ROWS)
    assert (rounding.largest, rounding.sample, rounding.mean) == (2**-11, 0, (2**-11 + 2**-12) / 2)
    assert column.item(2).tolist() == [2.0]
    parts[0] = torch.tensor([70000.0])
    with pytest.raises(PrecisionError, match=r"^sample 1 has the value 70000\.0"):
        narrow(FORMS[form](parts), rows=ROWS)


def test_the_largest_value_that_rounds_down_is_no_overflow() -> None:
    """65519 becomes 65504; 65520 would be infinite."""
    column, rounding = narrow(column_of(torch.tensor([[65519.0]]), "x"))
    assert column.item(0).tolist() == [65504.0]
    assert rounding.largest == 15.0


def test_values_that_vanish_are_told_of() -> None:
    """Where they are more than one in a thousand of those that are not zero."""
    values = torch.full((2000,), 1e-9)
    values[:1000] = 0
    values[2:] = 1
    rounding = narrow(column_of(values[:, None], "x"))[1]
    assert rounding.vanished == 0
    values[1000:1002] = 1e-9
    rounding = narrow(column_of(values[:, None], "x"))[1]
    assert rounding.vanished == 2 / 1998
    assert str(rounding).endswith("; 0.1% of the values other than zero became zero")
    assert rounding.largest == values[1000].item()
    values[1000] = 1
    assert "became zero" not in str(narrow(column_of(values[:, None], "x"))[1])


def test_what_loses_nothing_is_said_so() -> None:
    """No error is given where there is none."""
    rounding = narrow(column_of(torch.arange(6.0).reshape(3, 2), "x"))[1]
    assert str(rounding) == (
        "kept as float16: no value of sample['x'] changed; 12 bytes instead of 24 bytes"
    )


def test_items_of_other_kinds_stay() -> None:
    """In a list, integers and text and what is narrow already."""
    leaves = [torch.tensor([1.1]), torch.tensor([3]), "text", torch.tensor([1.1]).half(), 1.1]
    column, rounding = narrow(listed(leaves))
    for row in (1, 2, 3):
        assert same_bits(column.item(row), leaves[row])
    assert column.item(0).tolist() == [np.float32(np.float16(1.1))]
    assert column.item(4) == float(np.float16(1.1))
    assert (rounding.nbytes, rounding.full_nbytes) == (4, 12)


@pytest.mark.parametrize("dtype", HALVES)
def test_batches_of_narrow_columns_are_cast_once(dtype: torch.dtype) -> None:
    """Gathered in the leaf's own dtype, or in another that is asked for."""
    values = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    column, _ = narrow(DenseColumn(describe(values[0]), values), dtype)
    rows = torch.tensor([4, 1])
    kept = values.to(dtype)[rows]
    assert same_bits(gather(column, rows), kept.float())
    for other in (torch.float16, torch.bfloat16, torch.float64):
        assert same_bits(gather(column, rows, other), kept.float().to(other))


def test_values_that_take_gradients_are_kept_without() -> None:
    """What is kept is data, not a part of a graph."""
    column, _ = narrow(column_of(torch.ones(2, 2, requires_grad=True), "x"))
    assert not column.data.requires_grad


def test_only_narrower_dtypes_are_taken() -> None:
    """The dtype of both is named; integers, and data that has the dtype, are nothing to act on."""
    for values in (torch.arange(3), torch.zeros(3).half(), "text"):
        assert not check_narrower(describe(values), torch.float16, "sample[0]")
    assert check_narrower(describe(torch.zeros(3)), torch.float16, "sample[0]")
    with pytest.raises(
        ConfigError,
        match=r"narrower than the data, but sample\[0\] is float16 and torch.float32 takes more "
        "bytes; leave it out",
    ):
        check_narrower(describe(torch.zeros(3).half()), torch.float32, "sample[0]")
    with pytest.raises(ConfigError, match=r"is bfloat16 and torch\.float16 takes as many bytes"):
        check_narrower(describe(torch.zeros(3).bfloat16()), torch.float16, "sample[0]")
