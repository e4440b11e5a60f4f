"""What loops on 64-byte vectors are built of, in LLVM's language: Numba does not expose them.

The loops (`avx512_rows`, `avx512_tables`) need the AVX-512 extensions VBMI and VNNI (Intel from Ice
Lake on, AMD from Zen 4 on); elsewhere the plain loops beside their callers run.

Source: Intel 64 and IA-32 Architectures Software Developer's Manual, VPERMB, VPERMI2B, VPDPBUSD.
"""

from __future__ import annotations

import platform
from typing import Any

import llvmlite.binding
import numba
from llvmlite import ir

LANES = 16
"""32-bit sums in a vector."""
BLOCK = 64
"""Bytes in a vector."""

OLDEST_LLVM = 20
"""Earlier ones spell the names of intrinsics with other pointer types."""

_NEEDED = ("avx512f", "avx512bw", "avx512vl", "avx512vbmi", "avx512vnni")
BYTE, WORD, LONG = (ir.IntType(bits) for bits in (8, 32, 64))
BYTES, SUMS = ir.VectorType(BYTE, BLOCK), ir.VectorType(WORD, LANES)


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


def declared(builder: Any, name: str, result: Any, arguments: list[Any]) -> Any:
    """The LLVM function of a name, declared once a module."""
    found = builder.module.globals.get(name)
    return found or ir.Function(builder.module, ir.FunctionType(result, arguments), name)


def address_of(builder: Any, data: Any, position: Any, kind: Any) -> Any:
    """A pointer to a `kind` at a position in an array's memory."""
    return builder.bitcast(builder.gep(data, [position]), kind.as_pointer())


def load(builder: Any, data: Any, position: Any, kind: Any = BYTES) -> Any:
    """A `kind` from a position in an array's memory, however aligned."""
    return builder.load(address_of(builder, data, position, kind), align=1)


def store(builder: Any, value: Any, data: Any, position: Any) -> None:
    """Writes a value at a position in an array's memory, however aligned."""
    builder.store(value, address_of(builder, data, position, value.type), align=1)


def memory_of(context: Any, builder: Any, kind: Any, value: Any) -> Any:
    """A pointer to an array's first element."""
    return context.make_array(kind)(context, builder, value).data


def constants(kind: Any, values: Any) -> Any:
    """A vector of whole numbers."""
    return ir.Constant(ir.VectorType(kind, len(values)), [int(value) for value in values])
