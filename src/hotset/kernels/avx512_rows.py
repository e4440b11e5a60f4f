"""Weighted sums along rows of bytes, sixteen output pixels at a time, on 64-byte vectors.

A window of the row is shuffled so that each lane holds the four bytes of its taps; one instruction
multiplies them by four signed bytes and adds them up. A weight of 24 bits is three such bytes.

Source: Intel 64 and IA-32 Architectures Software Developer's Manual, VPERMB and VPDPBUSD.
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
    LANES,
    LONG,
    SUMS,
    WORD,
    address_of,
    constants,
    declared,
    load,
    memory_of,
    store,
)

TAPS_A_LANE = 4
"""Bytes that one instruction weighs and adds to a lane."""
DIGITS = 3
"""Signed bytes that a weight is split into."""
MOST_GROUPS = 4
"""Groups of four taps that there is a loop for."""


def _narrow(groups: int) -> Any:
    """A loop for up to `groups` times four taps."""

    def narrow(
        typing_context: Any,
        source: Any,
        start: Any,
        stride: Any,
        rows: Any,
        out: Any,
        target: Any,
        step: Any,
        order: Any,
        digits: Any,
        masks: Any,
        at: Any,
    ) -> Any:
        """Sixteen neighbouring pixels of each of some rows, resampled along the row.

        Args:
            typing_context: Numba's.
            source: flat uint8, the first row's window beginning at `start`, the others each
                `stride` further on.
            start: int64.
            stride: int64.
            rows: int64, how many.
            out: flat uint8; sixteen bytes are written at `target`, and for each further row
                `step` further on.
            target: int64.
            step: int64.
            order: flat uint8; 64 from `64 * at` on: where in the window each lane's taps are.
            digits: flat uint8; `groups * DIGITS * 64` for each `at`: the weights, low digits first.
            masks: flat uint64; `groups` for each `at`: which bytes of the window may be read.
            at: int64, which sixteen pixels.
        """

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            kinds = signature.args
            data, into, orders, weights, allowed = (
                memory_of(context, builder, kinds[k], arguments[k]) for k in (0, 4, 7, 8, 9)
            )
            first, jump, count, place, hop, which = (arguments[k] for k in (1, 2, 3, 5, 6, 10))
            pointer = BYTES.as_pointer()
            mask_kind = ir.VectorType(ir.IntType(1), BLOCK)
            read = declared(
                builder,
                "llvm.masked.load.v64i8.p0",
                BYTES,
                [pointer, WORD, mask_kind, BYTES],
            )
            permute = declared(builder, "llvm.x86.avx512.permvar.qi.512", BYTES, [BYTES, BYTES])
            accumulate = declared(builder, "llvm.x86.avx512.vpdpbusd.512", SUMS, [SUMS, SUMS, SUMS])
            wanted = load(builder, orders, builder.mul(which, LONG(BLOCK)))
            size = groups * DIGITS * BLOCK
            begin = builder.mul(which, LONG(size))
            weight = [
                load(builder, weights, builder.add(begin, LONG(k * BLOCK)))
                for k in range(groups * DIGITS)
            ]
            begin = builder.mul(which, LONG(groups))
            mask = [
                builder.bitcast(
                    builder.load(builder.gep(allowed, [builder.add(begin, LONG(k))])), mask_kind
                )
                for k in range(groups)
            ]
            zero, rounding = constants(WORD, [0] * LANES), constants(WORD, [1 << 21] * LANES)
            with cgutils.for_range(builder, count, intp=LONG) as loop:
                row = builder.add(first, builder.mul(loop.index, jump))
                total = [rounding, zero, zero]
                for k in range(groups):
                    position = builder.add(row, LONG(k * TAPS_A_LANE))
                    address = address_of(builder, data, position, BYTES)
                    nothing = ir.Constant(BYTES, None)
                    window = builder.call(read, [address, WORD(1), mask[k], nothing])
                    taps = builder.call(permute, [window, wanted])
                    for d in range(DIGITS):
                        digit = weight[k * DIGITS + d]
                        total[d] = _dot(builder, accumulate, total[d], taps, digit)
                high = builder.shl(total[2], constants(WORD, [16] * LANES))
                middle = builder.shl(total[1], constants(WORD, [8] * LANES))
                value = builder.add(builder.add(high, middle), total[0])
                store(
                    builder,
                    _to_bytes(builder, value),
                    into,
                    builder.add(place, builder.mul(loop.index, hop)),
                )
            return context.get_dummy_value()

        return types.void(
            source, start, stride, rows, out, target, step, order, digits, masks, at
        ), generate

    return intrinsic(narrow)


def _dot(builder: Any, accumulate: Any, total: Any, taps: Any, digit: Any) -> Any:
    taps, digit = builder.bitcast(taps, SUMS), builder.bitcast(digit, SUMS)
    return builder.call(accumulate, [total, taps, digit])


def _to_bytes(builder: Any, value: Any) -> Any:
    """(16,) sums in units of 2**-22 -> bytes, clipped."""
    least, most = constants(WORD, [0] * LANES), constants(WORD, [255] * LANES)
    value = builder.ashr(value, constants(WORD, [22] * LANES))
    value = builder.select(builder.icmp_signed("<", value, least), least, value)
    value = builder.select(builder.icmp_signed(">", value, most), most, value)
    return builder.trunc(value, ir.VectorType(BYTE, LANES))


narrow_1, narrow_2, narrow_3, narrow_4 = (_narrow(groups) for groups in range(1, MOST_GROUPS + 1))
