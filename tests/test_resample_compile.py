"""Triton's resampling kernels compile for the GPUs they are meant for, on machines without any."""

from __future__ import annotations

import inspect
import os
import re
from pathlib import Path
from typing import Any

import pytest

triton = pytest.importorskip("triton")
backends = pytest.importorskip("triton.backends.compiler")
crops_cuda = pytest.importorskip("hotset.kernels.crops_cuda")
resample_cuda = pytest.importorskip("hotset.kernels.resample_cuda")

pytestmark = pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") == "1", reason="the interpreter does not compile"
)

TYPES = {
    **dict.fromkeys(("rows", "ids", "occurrence", "heights", "widths", "offsets"), "*i64"),
    **dict.fromkeys(("boxes", "bounds", "fixed"), "*i32"),
    **{"numbers": "*i64", "reals": "*fp64", "data": "*u8", "out": "*u8"},
}
SIZES = {"HEIGHT": 224, "WIDTH": 224, "ROOM": 256}


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes Triton compile, rather than find what an earlier run compiled."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))


def _compile(kernel: Any, capability: int, **constants: int) -> dict[str, Any]:
    """What Triton makes of a kernel, by kind ("ptx", "cubin", …)."""
    constants |= SIZES
    names = list(inspect.signature(kernel.fn).parameters)
    types = {name: "constexpr" if name in constants else TYPES.get(name, "i32") for name in names}
    source = triton.compiler.ASTSource(kernel, types, constants)
    target = backends.GPUTarget("cuda", capability, 32)
    return dict(triton.compile(source, target=target, options=resample_cuda.OPTIONS).asm)


def _is_for(made: dict[str, Any], capability: int) -> bool:
    named = re.search(rf"^\.target sm_{capability}a?\b", made["ptx"], re.MULTILINE)
    return named is not None and made["cubin"].startswith(b"\x7fELF")


@pytest.mark.parametrize("capability", [80, 90])
@pytest.mark.parametrize("number", range(len(crops_cuda.FUSED_FILTERS)))
def test_crops_compile(capability: int, number: int):
    """Weights and rectangles are computed as on the CPU: no product and sum are contracted."""
    made = _compile(crops_cuda.prepare_crops, capability, FILTER=number)
    assert _is_for(made, capability)
    assert "sqrt.rn.f64" in made["ptx"]
    assert "div.rn.f64" in made["ptx"]
    assert not re.search(r"\bfma\S*\.f64", made["ptx"])


@pytest.mark.parametrize("capability", [80, 90])
@pytest.mark.parametrize("channels", [1, 3])
def test_resampling_compiles(capability: int, channels: int):
    """PTX and a binary for the wanted GPU come out, with offsets of 64 bits into the images."""
    made = _compile(resample_cuda.resample, capability, CHANNELS=channels, PIXELS=256)
    assert _is_for(made, capability)
    assert re.search(r"ld\.global\S*\.b?[bu]?8", made["ptx"])
