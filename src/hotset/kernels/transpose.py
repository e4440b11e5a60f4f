"""Transposes blocks of 16 by 16 bytes in registers, on any processor; Numba would move each byte.

Source: the perfect shuffle; four rounds of interleaving row i with row i + 8 transpose 16 rows.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

EDGE = 16
_NUMBER = ir.IntType(32)
_ROW = ir.VectorType(ir.IntType(8), EDGE)


def _order(first: int) -> ir.Constant:
    """Elements from `first` on of two rows, in turn."""
    elements = [first + k + other for k in range(EDGE // 2) for other in (0, EDGE)]
    return ir.Constant(ir.VectorType(_NUMBER, EDGE), elements)


def _transpose(
    typing_context: Any, data: Any, start: Any, stride: Any, out: Any, target: Any, step: Any
) -> Any:
    """Makes columns of rows, (16, 16) uint8.

    Args:
        typing_context: Numba's.
        data: flat uint8; the rows begin at `start`, `stride` apart.
        start: int64.
        stride: int64.
        out: flat uint8; the columns are written from `target` on, `step` apart.
        target: int64.
        step: int64.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kinds = signature.args
        source = context.make_array(kinds[0])(context, builder, arguments[0]).data
        into = context.make_array(kinds[3])(context, builder, arguments[3]).data

        def pointers(memory: Any, position: Any, apart: Any) -> list[Any]:
            found = []
            for _ in range(EDGE):
                found.append(builder.bitcast(builder.gep(memory, [position]), _ROW.as_pointer()))
                position = builder.add(position, apart)
            return found

        lines = [builder.load(p, align=1) for p in pointers(source, arguments[1], arguments[2])]
        for _ in range(4):
            lines = [
                builder.shuffle_vector(lines[i], lines[i + EDGE // 2], _order(first))
                for i in range(EDGE // 2)
                for first in (0, EDGE // 2)
            ]
        for line, pointer in zip(lines, pointers(into, arguments[4], arguments[5]), strict=True):
            builder.store(line, pointer, align=1)
        return context.get_dummy_value()

    return types.void(data, start, stride, out, target, step), generate


transpose: Any = intrinsic(_transpose)
"""transpose(data, start, stride, out, target, step): for compiled code."""
