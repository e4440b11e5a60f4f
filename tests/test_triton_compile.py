"""The Triton kernel compiles for the GPUs it is meant for, on machines that have none."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from hotset.rng import Draws, Key
from tests.kernel_chains import CASES, Case, images_of

triton = pytest.importorskip("triton")
backends = pytest.importorskip("triton.backends.compiler")
jit = pytest.importorskip("triton.runtime.jit")
triton_cuda = pytest.importorskip("hotset.kernels.triton_cuda")

pytestmark = pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") == "1", reason="the interpreter does not compile"
)

BY_NAME = {case.name: case for case in CASES}
PIXELS = {1: "*u8", 2: "*i16", 4: "*i32", 8: "*i64"}


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes Triton compile, rather than find what an earlier run compiled."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))


def _compile(case: Case, capability: int, *, channels_last: bool = False) -> dict[str, Any]:
    """What Triton makes of a case's kernel, by kind ("ptx", "cubin", …)."""
    program = case.program()
    constants = triton_cuda.constants(program, channels_last=channels_last)
    pixel, value = PIXELS[program.in_dtype.itemsize], PIXELS[program.out_dtype.itemsize]
    types = {
        **dict.fromkeys(("rows", "ids", "occurrence", "numbers"), "*i64"),
        **{"source": pixel, "out": value, "values": value, "maps": "*i32", "reals": "*fp64"},
        **dict.fromkeys(constants, "constexpr"),
    }
    names = list(inspect.signature(triton_cuda.prepare.fn).parameters)
    aligned = {(names.index("out"),): [["tt.divisibility", 16]]}
    source = triton.compiler.ASTSource(
        triton_cuda.prepare, {name: types.get(name, "i32") for name in names}, constants, aligned
    )
    target = backends.GPUTarget("cuda", capability, 32)
    compiled = triton.compile(source, target=target, options=triton_cuda.OPTIONS)
    return dict(compiled.asm)


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("name", ["crop-flip", "copy-bytes", "two-erasures-then-table"])
@pytest.mark.parametrize("capability", [80, 90])
def test_compiles(capability: int, name: str, channels_last: bool):
    """PTX and a binary for the wanted GPU come out."""
    made = _compile(BY_NAME[name], capability, channels_last=channels_last)
    assert re.search(rf"^\.target sm_{capability}a?\b", made["ptx"], re.MULTILINE)
    assert made["cubin"].startswith(b"\x7fELF")


def test_pixels_are_stored_as_vectors():
    """A thread writes the four neighbouring pixels that it makes in one store."""
    case = BY_NAME["flip-horizontal"]
    assert re.search(r"st\.global\.v4", _compile(Case("", case.ops, (3, 32, 32)), 80)["ptx"])


def test_rectangles_are_computed_as_on_the_cpu():
    """Square root and quotient are rounded correctly, and no product and sum are contracted."""
    ptx = _compile(BY_NAME["random-erase"], 90)["ptx"]
    assert "sqrt.rn.f64" in ptx
    assert "div.rn.f64" in ptx
    assert not re.search(r"\bfma\S*\.f64", ptx)


class _Driver:
    """As much of a GPU as Triton needs to choose what to compile."""

    number = 1234  # not a device's, so that no device is ever given what is compiled here

    def get_current_device(self) -> int:
        return self.number

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_current_target(self) -> Any:
        return backends.GPUTarget("cuda", 90, 32)


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The kernels that were compiled for a device that is not there; launches only compile."""
    kernel = triton_cuda.prepare

    class Launcher:
        def __getitem__(self, grid: tuple[int, ...]) -> Any:
            return lambda *arguments, **options: kernel.run(
                *arguments, grid=grid, warmup=True, **options
            )

    monkeypatch.setattr(jit, "driver", SimpleNamespace(active=_Driver()))
    monkeypatch.setattr(triton_cuda, "prepare", Launcher())
    yield kernel.device_caches[_Driver.number][0]
    del kernel.device_caches[_Driver.number]


def test_batches_share_a_compiled_kernel(compiled: dict[Any, Any]):
    """Batch size, seed, epoch, probabilities and where a batch begins in memory compile nothing."""
    case = BY_NAME["crop-flip"]
    source, ids = images_of(case.shape, case.dtype), torch.arange(11)
    kernel = triton_cuda.TritonKernel(case.program(), torch.device("cpu"))
    for key in (Key(0, 0, 0), Key(1, 1, 1), Key(16, 2**31, 2**63), Key(2**64 - 1, 17, 2**40)):
        for part in (ids, ids[:1], ids[1:], ids[5:10]):
            kernel.run(source, part, Draws(key, part, torch.zeros_like(part)))
    first, flip, last = case.ops
    other = Case("", (first, type(flip)(7, p=0.9), last))
    again = triton_cuda.TritonKernel(other.program(), torch.device("cpu"))
    again.run(source, ids, Draws(Key(3, 4, 5), ids, torch.zeros_like(ids)))
    assert len(compiled) == 1
