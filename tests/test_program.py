"""Lowering: which chains can be fused, and what their arrays hold."""

from __future__ import annotations

import pytest
import torch

from hotset.kernels.program import Field, Kind, NotFusable, Program, lower
from hotset.ops.erase import Cutout, RandomErase, aspect_table
from hotset.ops.geometry import FILL, Flip, Padding, Window
from hotset.ops.op import Gate
from hotset.ops.pointwise import Elementwise, Table
from hotset.rng import threshold
from tests.kernel_chains import every_case, table, twice_less_one

SHAPE = (3, 4, 5)


def _lower(*ops, dtype: torch.dtype = torch.uint8, out_dtype: torch.dtype | None = None) -> Program:
    program = lower(ops, SHAPE, dtype, out_dtype)
    assert isinstance(program, Program), program
    return program


@every_case
def test_arrays_have_their_types(case):
    """What the kernels are compiled for: int64 steps, int32 maps, values of the batch's dtype."""
    program = case.program()
    assert program.geometry.dtype == program.erasures.dtype == "int64"
    assert program.geometry.shape[1] == program.erasures.shape[1] == Field.FIELDS
    assert program.maps.dtype == "int32"
    assert program.scales.dtype == program.aspects.dtype == "float64"
    assert len(program.scales) == len(program.aspects) == len(program.erasures)
    assert program.values.dtype is program.out_dtype
    assert program.values.is_contiguous()
    assert program.base == (256 if program.in_dtype is torch.uint8 else 0)
    assert program.values.shape[0] == program.in_shape[0]


def test_window_is_lowered():
    """Its number, its positions, its size, its maps, and its fill behind the table."""
    window = Window(32, (4, 3), (Padding(1, 2, 0, 0),), None, (9,), Gate(40, 0.25))
    same_size = Window(32, (4, 5), (Padding(1, 2, 0, 0),), None, (9,), Gate(40, 0.25))
    assert isinstance(lower([window], SHAPE, torch.uint8), NotFusable)
    program = _lower(same_size)
    row = program.geometry[0]
    assert row[Field.KIND] == Kind.WINDOW
    assert row[Field.STEP] == 32
    assert row[Field.IS_DRAWN] == 1
    assert row[[Field.DOWN, Field.SIDEWAYS]].tolist() == [3, 2]
    assert row[[Field.HEIGHT, Field.WIDTH]].tolist() == [4, 5]
    assert row[[Field.GATE_STEP, Field.GATE_THRESHOLD]].tolist() == [40, threshold(0.25)]
    assert program.maps[row[Field.ROW_MAP] :][:6].tolist() == [FILL, FILL, 0, 1, 2, 3]
    assert program.maps[row[Field.COLUMN_MAP] :][:6].tolist() == [FILL, 0, 1, 2, 3, 4]
    assert program.values[:, 256 + row[Field.VALUE]].tolist() == [9, 9, 9]


def test_window_without_fill_has_no_value():
    """Reflected borders need no entry behind the table."""
    program = _lower(Window(0, (4, 5), (Padding(2, 2, 2, 2, "reflect"),), None, (9,)))
    assert program.values.shape == (3, 256)


def test_fixed_window_keeps_its_position():
    """A centre crop is drawn nowhere."""
    row = _lower(Window(0, (2, 2), (), (1, 2))).geometry[0]
    assert row[[Field.IS_DRAWN, Field.TOP, Field.LEFT, Field.GATE_STEP]].tolist() == [0, 1, 2, -1]


def test_flips_are_lowered():
    """Axis, probability, and whether it alternates; sizes are those the flip acts on."""
    program = _lower(Window(0, (3, 2)), Flip(1, "vertical", 0.3), Flip(2, is_alternating=True))
    rows = program.geometry[1:]
    assert rows[:, Field.KIND].tolist() == [Kind.VERTICAL_FLIP, Kind.HORIZONTAL_FLIP]
    assert rows[:, Field.IS_DRAWN].tolist() == [1, 2]
    assert rows[:, Field.THRESHOLD].tolist() == [threshold(0.3), 2**31]
    assert rows[:, [Field.HEIGHT, Field.WIDTH]].tolist() == [[3, 2], [3, 2]]
    assert program.out_shape == (3, 3, 2)


def test_erasures_are_lowered():
    """Scale, aspects and value; a cutout is cut to the image it acts on."""
    erase = RandomErase(1, 0.5, (0.1, 0.2), (0.5, 2.0), (1, 2, 3))
    program = _lower(erase, Cutout(2, 9, (4,)))
    assert program.erasures[:, Field.KIND].tolist() == [Kind.RANDOM_ERASE, Kind.CUTOUT]
    assert program.erasures[1, [Field.TOP, Field.LEFT]].tolist() == [4, 5]
    assert program.scales[0].tolist() == [0.1, 0.2]
    assert (program.aspects[0] == aspect_table((0.5, 2.0))).all()
    assert program.values[:, 256:].tolist() == [[1, 4], [2, 4], [3, 4]]


def test_values_follow_the_steps_behind_them():
    """A fill before the table is looked up with the pixels, one after it is not."""
    values = table(1)
    program = _lower(
        Window(0, (4, 5), (Padding(1, 1, 1, 1),), None, (7,)),
        values,
        Window(2, (4, 5), (Padding(1, 1, 1, 1),), None, (0.5,)),
        twice_less_one(3),
    )
    assert torch.equal(program.values[:, :256], values.values * 2 - 1)
    assert torch.equal(program.values[:, 256], values.values[:, 7] * 2 - 1)
    assert program.values[:, 257].tolist() == [0.0, 0.0, 0.0]


def test_values_are_rounded_once():
    """The table is computed in single precision and cast at the end, its fills too."""
    values = torch.full((3, 256), 0.1)
    erase = RandomErase(1, value=(1 / 3,))
    program = _lower(Table(0, values), twice_less_one(1), erase, out_dtype=torch.float16)
    assert program.values[:, 0].tolist() == [float((values[0, 0] * 2 - 1).half())] * 3
    assert program.values[:, 256].tolist() == [float(torch.tensor(1 / 3).half())] * 3


def test_constants_of_float64_keep_their_digits():
    """A fill in double precision is not rounded to single on the way."""
    program = _lower(Window(0, (6, 7), (Padding(1, 1, 1, 1),), (0, 0), (0.1,)), dtype=torch.float64)
    assert program.values.tolist() == [[0.1]] * 3


@pytest.mark.parametrize(
    ("ops", "dtype", "out_dtype", "reason"),
    [
        ((Cutout(0, 2), Flip(1)), torch.uint8, None, "a step moves pixels after erasing"),
        (
            (Window(0, (2, 2), gate=Gate(1, 0.5)),),
            torch.uint8,
            None,
            "a gated step changes the size of the image",
        ),
        ((Elementwise(0, abs),), torch.float32, None, "values are float32, too many for a table"),
        ((), torch.float32, torch.float16, "float32 values are cast to float16"),
    ],
)
def test_what_cannot_be_fused(ops, dtype, out_dtype, reason: str):
    """The reason is said, for the plan."""
    assert lower(ops, SHAPE, dtype, out_dtype) == NotFusable(reason)


def test_unknown_operations_cannot_be_fused():
    """An operation of a user's own runs as the reference does."""

    class Own:
        step, gate = 0, None

        def out_shape(self, shape):
            return shape

    assert lower([Own()], SHAPE, torch.uint8) == NotFusable("Own has no fused form")
