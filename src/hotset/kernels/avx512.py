"""Shuffles of bytes and their weighted sums on 64-byte vectors, which Numba does not expose.

Each is a loop in LLVM's language, called from compiled code: `narrow_*` resamples rows, and
`look_up_*` replaces bytes by entries of a table. They need the AVX-512 extensions VBMI and VNNI
(Intel from Ice Lake on, AMD from Zen 4 on); elsewhere the plain loops beside their callers run.

Source: Intel 64 and IA-32 Architectures Software Developer's Manual, VPERMB, VPERMI2B, VPDPBUSD.
"""

from __future__ import annotations

import platform
from typing import Any

import llvmlite.binding
import numba
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

LANES = 16
"""32-bit sums in a vector."""
BLOCK = 64
"""Bytes in a vector."""
TAPS_A_LANE = 4
"""Bytes that one instruction weighs and adds to a lane."""
DIGITS = 3
"""Signed bytes that a weight is split into."""
MOST_GROUPS = 4
"""Groups of four taps that there is a loop for."""

OLDEST_LLVM = 20
"""Earlier ones spell the names of intrinsics with other pointer types."""

_NEEDED = ("avx512f", "avx512bw", "avx512vl", "avx512vbmi", "avx512vnni")
_BYTE, _HALF, _WORD, _LONG = (ir.IntType(bits) for bits in (8, 16, 32, 64))
_BYTES, _SUMS = ir.VectorType(_BYTE, BLOCK), ir.VectorType(_WORD, LANES)


def _is_available() -> bool:
    if platform.machine().lower() not in ("x86_64", "amd64"):
        return False
    if any(getattr(numba.config, name, None) for name in ("CPU_NAME", "CPU_FEATURES")):
        return False  # Numba is told to compile for another processor than this one
    if llvmlite.binding.llvm_version_info[0] < OLDEST_LLVM:
        return False
    features = llvmlite.binding.get_host_cpu_features()
    return all(features.get(name, False) for name in _NEEDED)


IS_AVAILABLE = _is_available()
"""Whether the processor has what the loops need."""


def _declared(builder: Any, name: str, result: Any, arguments: list[Any]) -> Any:
    found = builder.module.globals.get(name)
    return found or ir.Function(builder.module, ir.FunctionType(result, arguments), name)


def _address(builder: Any, data: Any, position: Any, kind: Any) -> Any:
    return builder.bitcast(builder.gep(data, [position]), kind.as_pointer())


def _load(builder: Any, data: Any, position: Any, kind: Any = _BYTES) -> Any:
    return builder.load(_address(builder, data, position, kind), align=1)


def _store(builder: Any, value: Any, data: Any, position: Any) -> None:
    builder.store(value, _address(builder, data, position, value.type), align=1)


def _array(context: Any, builder: Any, kind: Any, value: Any) -> Any:
    return context.make_array(kind)(context, builder, value).data


def _constants(kind: Any, values: Any) -> Any:
    return ir.Constant(ir.VectorType(kind, len(values)), [int(value) for value in values])


def _shuffled(builder: Any, one: Any, other: Any, order: Any) -> Any:
    return builder.shuffle_vector(one, other, _constants(_WORD, order))


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
                _array(context, builder, kinds[k], arguments[k]) for k in (0, 4, 7, 8, 9)
            )
            first, jump, count, place, hop, which = (arguments[k] for k in (1, 2, 3, 5, 6, 10))
            pointer = _BYTES.as_pointer()
            mask_kind = ir.VectorType(ir.IntType(1), BLOCK)
            read = _declared(
                builder,
                "llvm.masked.load.v64i8.p0",
                _BYTES,
                [pointer, _WORD, mask_kind, _BYTES],
            )
            permute = _declared(builder, "llvm.x86.avx512.permvar.qi.512", _BYTES, [_BYTES, _BYTES])
            accumulate = _declared(
                builder, "llvm.x86.avx512.vpdpbusd.512", _SUMS, [_SUMS, _SUMS, _SUMS]
            )
            wanted = _load(builder, orders, builder.mul(which, _LONG(BLOCK)))
            size = groups * DIGITS * BLOCK
            begin = builder.mul(which, _LONG(size))
            weight = [
                _load(builder, weights, builder.add(begin, _LONG(k * BLOCK)))
                for k in range(groups * DIGITS)
            ]
            begin = builder.mul(which, _LONG(groups))
            mask = [
                builder.bitcast(
                    builder.load(builder.gep(allowed, [builder.add(begin, _LONG(k))])), mask_kind
                )
                for k in range(groups)
            ]
            zero, rounding = _constants(_WORD, [0] * LANES), _constants(_WORD, [1 << 21] * LANES)
            with cgutils.for_range(builder, count, intp=_LONG) as loop:
                row = builder.add(first, builder.mul(loop.index, jump))
                total = [rounding, zero, zero]
                for k in range(groups):
                    position = builder.add(row, _LONG(k * TAPS_A_LANE))
                    address = _address(builder, data, position, _BYTES)
                    nothing = ir.Constant(_BYTES, None)
                    window = builder.call(read, [address, _WORD(1), mask[k], nothing])
                    taps = builder.call(permute, [window, wanted])
                    for d in range(DIGITS):
                        digit = weight[k * DIGITS + d]
                        total[d] = _dot(builder, accumulate, total[d], taps, digit)
                high = builder.shl(total[2], _constants(_WORD, [16] * LANES))
                middle = builder.shl(total[1], _constants(_WORD, [8] * LANES))
                value = builder.add(builder.add(high, middle), total[0])
                _store(
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
    taps, digit = builder.bitcast(taps, _SUMS), builder.bitcast(digit, _SUMS)
    return builder.call(accumulate, [total, taps, digit])


def _to_bytes(builder: Any, value: Any) -> Any:
    """(16,) sums in units of 2**-22 -> bytes, clipped."""
    least, most = _constants(_WORD, [0] * LANES), _constants(_WORD, [255] * LANES)
    value = builder.ashr(value, _constants(_WORD, [22] * LANES))
    value = builder.select(builder.icmp_signed("<", value, least), least, value)
    value = builder.select(builder.icmp_signed(">", value, most), most, value)
    return builder.trunc(value, ir.VectorType(_BYTE, LANES))


narrow_1, narrow_2, narrow_3, narrow_4 = (_narrow(groups) for groups in range(1, MOST_GROUPS + 1))


def _look_up(size: int) -> Any:
    """A loop for entries of `size` bytes."""

    def look_up(
        typing_context: Any,
        out: Any,
        target: Any,
        source: Any,
        start: Any,
        count: Any,
        is_mirrored: Any,
        planes: Any,
    ) -> Any:
        """Entries of a table of 256, for a run of at least 64 bytes.

        Args:
            typing_context: Numba's.
            out: flat, entries of `size` bytes; written from `target` on.
            target: int64.
            source: flat uint8, read from `start` on.
            start: int64.
            count: int64, at least 64.
            is_mirrored: boolean; reads from `start` backwards.
            planes: flat uint8, the entries' first bytes, then their second ones, and so on.
        """

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            kinds = signature.args
            into, data, table = (
                _array(context, builder, kinds[k], arguments[k]) for k in (0, 2, 6)
            )
            place, first, length, mirrored = (arguments[k] for k in (1, 3, 4, 5))
            pick = _declared(
                builder, "llvm.x86.avx512.vpermi2var.qi.512", _BYTES, [_BYTES, _BYTES, _BYTES]
            )
            permute = _declared(builder, "llvm.x86.avx512.permvar.qi.512", _BYTES, [_BYTES, _BYTES])
            parts = [
                [_load(builder, table, _LONG(k * 256 + quarter * BLOCK)) for quarter in range(4)]
                for k in range(size)
            ]
            order = _order(size)
            backwards = [BLOCK - 1 - position for position in order]
            arranged = builder.select(
                mirrored, _constants(_BYTE, backwards), _constants(_BYTE, order)
            )
            blocks = builder.udiv(builder.add(length, _LONG(BLOCK - 1)), _LONG(BLOCK))
            last = builder.sub(length, _LONG(BLOCK))
            with cgutils.for_range(builder, blocks, intp=_LONG) as loop:
                # The last block is moved back to end where the run ends.
                at = builder.mul(loop.index, _LONG(BLOCK))
                at = builder.select(builder.icmp_unsigned("<", at, last), at, last)
                end = builder.add(at, _LONG(BLOCK - 1))
                begin = builder.select(mirrored, builder.sub(first, end), builder.add(first, at))
                pixels = builder.call(permute, [_load(builder, data, begin), arranged])
                is_upper = builder.icmp_signed("<", pixels, ir.Constant(_BYTES, None))
                entries = [
                    builder.select(
                        is_upper,
                        builder.call(pick, [part[2], pixels, part[3]]),
                        builder.call(pick, [part[0], pixels, part[1]]),
                    )
                    for part in parts
                ]
                to = builder.add(place, at)
                for k, entry in enumerate(_interleaved(builder, entries)):
                    _store(builder, entry, into, builder.add(to, _LONG(k * BLOCK // size)))
            return context.get_dummy_value()

        return types.void(out, target, source, start, count, is_mirrored, planes), generate

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
