"""Look-ups in a table of 256 entries, 64 bytes at a time, on 64-byte vectors.

The table is kept in registers, cut into planes: the lowest bytes of all entries, the next ones, and
so on. Two shuffles look 64 bytes up in one plane, and the planes are interleaved at the end.

Source: Intel 64 and IA-32 Architectures Software Developer's Manual, VPERMI2B.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from hotset.kernels.avx512 import (
    BLOCK,
    BYTE,
    BYTES,
    LONG,
    WORD,
    constants,
    declared,
    load,
    memory_of,
    store,
)


def _shuffled(builder: Any, one: Any, other: Any, order: Any) -> Any:
    return builder.shuffle_vector(one, other, constants(WORD, order))


def _look_up(size: int) -> Any:
    """A loop for entries of `size` bytes."""

    def look_up(
        typing_context: Any,
        out: Any,
        target: Any,
        width: Any,
        source: Any,
        start: Any,
        in_width: Any,
        rows: Any,
        top: Any,
        number: Any,
        count: Any,
        is_mirrored: Any,
        planes: Any,
    ) -> Any:
        """Entries of a table of 256, for a run of at least 64 bytes of each of some rows.

        Args:
            typing_context: Numba's.
            out: flat, entries of `size` bytes; row i is written from `target + i * width` on.
            target: int64.
            width: int64.
            source: flat uint8; row i is read from `start + rows[i] * in_width` on.
            start: int64.
            in_width: int64.
            rows: (H,) int64; those below 0 are left out.
            top: int64, the first row.
            number: int64, how many rows.
            count: int64, at least 64.
            is_mirrored: boolean; reads backwards.
            planes: flat uint8, the entries' first bytes, then their second ones, and so on.
        """

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            kinds = signature.args
            into, data, numbers, table = (
                memory_of(context, builder, kinds[k], arguments[k]) for k in (0, 3, 6, 11)
            )
            place, step, first, jump = (arguments[k] for k in (1, 2, 4, 5))
            begin_row, row_count, length, mirrored = (arguments[k] for k in (7, 8, 9, 10))
            pick = declared(
                builder, "llvm.x86.avx512.vpermi2var.qi.512", BYTES, [BYTES, BYTES, BYTES]
            )
            permute = declared(builder, "llvm.x86.avx512.permvar.qi.512", BYTES, [BYTES, BYTES])
            parts = [
                [load(builder, table, LONG(k * 256 + quarter * BLOCK)) for quarter in range(4)]
                for k in range(size)
            ]
            order = _order(size)
            backwards = [BLOCK - 1 - position for position in order]
            arranged = builder.select(mirrored, constants(BYTE, backwards), constants(BYTE, order))
            blocks = builder.udiv(builder.add(length, LONG(BLOCK - 1)), LONG(BLOCK))
            last = builder.sub(length, LONG(BLOCK))
            with cgutils.for_range(builder, row_count, intp=LONG) as each:
                i = builder.add(begin_row, each.index)
                row = builder.load(builder.gep(numbers, [i]))
                line = builder.add(first, builder.mul(row, jump))
                out_line = builder.add(place, builder.mul(i, step))
                is_row = builder.icmp_signed(">=", row, LONG(0))
                with builder.if_then(is_row), cgutils.for_range(builder, blocks, intp=LONG) as loop:
                    # The last block is moved back to end where the run ends.
                    at = builder.mul(loop.index, LONG(BLOCK))
                    at = builder.select(builder.icmp_unsigned("<", at, last), at, last)
                    end = builder.add(at, LONG(BLOCK - 1))
                    begin = builder.select(mirrored, builder.sub(line, end), builder.add(line, at))
                    pixels = builder.call(permute, [load(builder, data, begin), arranged])
                    is_upper = builder.icmp_signed("<", pixels, ir.Constant(BYTES, None))
                    entries = [
                        builder.select(
                            is_upper,
                            builder.call(pick, [part[2], pixels, part[3]]),
                            builder.call(pick, [part[0], pixels, part[1]]),
                        )
                        for part in parts
                    ]
                    to = builder.add(out_line, at)
                    for k, entry in enumerate(_interleaved(builder, entries)):
                        store(builder, entry, into, builder.add(to, LONG(k * BLOCK // size)))
            return context.get_dummy_value()

        return types.void(
            out,
            target,
            width,
            source,
            start,
            in_width,
            rows,
            top,
            number,
            count,
            is_mirrored,
            planes,
        ), generate

    return intrinsic(look_up)


def _order(size: int) -> list[int]:
    """Which pixel each byte stands for, so that interleaving leaves the entries in order.

    Interleaving works within each 16 bytes: vector m then holds, of each 16, the m-th share.
    """
    share = 16 // size
    return [
        m * (BLOCK // size) + quarter * share + k
        for quarter in range(4)
        for m in range(size)
        for k in range(share)
    ]


def _interleaved(builder: Any, planes: list[Any]) -> list[Any]:
    """Vectors of entries from one vector for each of their bytes, the lowest first."""
    if len(planes) == 1:
        return planes
    lanes, bits = planes[0].type.count, planes[0].type.element.width
    wide = ir.VectorType(ir.IntType(2 * bits), lanes // 2)
    inside = lanes // 8  # half of what 16 bytes hold
    found = []
    for half in (0, 1):
        order = [
            (2 * quarter + half) * inside + k + other
            for quarter in range(4)
            for k in range(inside)
            for other in (0, lanes)
        ]
        pairs = zip(planes[::2], planes[1::2], strict=True)
        joined = [_shuffled(builder, low, high, order) for low, high in pairs]
        found += _interleaved(builder, [builder.bitcast(vector, wide) for vector in joined])
    return found


look_up_1, look_up_2, look_up_4 = (_look_up(size) for size in (1, 2, 4))
