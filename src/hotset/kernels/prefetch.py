"""Asks the processor to fetch memory before it is read; an instruction that Numba does not expose.

Shuffled samples lie anywhere in memory, so the first read of each waits for it. Asking for the next
sample's image while this one is written takes a tenth off the whole kernel.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

CACHE_LINE_BYTES = 64
_READ, _KEEP, _SECOND_LEVEL, _DATA = 0, 3, 2, 1


def _request(builder: Any, address: Any, locality: int) -> None:
    byte_pointer, number = ir.IntType(8).as_pointer(), ir.IntType(32)
    kind = ir.FunctionType(ir.VoidType(), [byte_pointer, number, number, number])
    call = builder.module.globals.get("llvm.prefetch.p0")
    if call is None:
        call = ir.Function(builder.module, kind, "llvm.prefetch.p0")
    builder.call(call, [address, number(_READ), number(locality), number(_DATA)])


def _prefetching(locality: int) -> Any:
    def prefetch(typing_context: Any, array: Any, position: Any) -> Any:
        """Starts fetching the cache line that holds `array[position]`; changes nothing.

        Source: LLVM Language Reference, the `llvm.prefetch` intrinsic.
        """

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
            address = builder.bitcast(builder.gep(data, [arguments[1]]), ir.IntType(8).as_pointer())
            _request(builder, address, locality)
            return context.get_dummy_value()

        return types.void(array, position), generate

    return intrinsic(prefetch)


def _prefetching_address(typing_context: Any, address: Any) -> Any:
    """Starts fetching the cache line at an address, an int64; changes nothing."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = builder.inttoptr(arguments[0], ir.IntType(8).as_pointer())
        _request(builder, pointer, _KEEP)
        return context.get_dummy_value()

    return types.void(types.int64), generate


prefetch: Any = _prefetching(_KEEP)
"""prefetch(array, position): for compiled code; starts fetching what stands there."""
prefetch_far: Any = _prefetching(_SECOND_LEVEL)
"""prefetch_far(array, position): likewise, but past the first cache, which is small."""
prefetch_address: Any = intrinsic(_prefetching_address)
"""prefetch_address(address): likewise, for memory that no array stands for."""
