"""The Triton kernel on a CUDA device, against the reference on the CPU and on the device."""

from __future__ import annotations

import math

import pytest
import torch

from hotset.rng import Draws, Key
from tests.kernel_chains import (
    CASES,
    Case,
    draws_of,
    every_case,
    images_of,
    is_same_bits,
    reference,
)

pytest.importorskip("triton")
triton_cuda = pytest.importorskip("hotset.kernels.triton_cuda")

pytestmark = pytest.mark.gpu

BY_NAME = {case.name: case for case in CASES}


def _on(draws: Draws, device: torch.device) -> Draws:
    return Draws(draws.key, draws.ids.to(device), draws.occurrence.to(device))


@every_case
@pytest.mark.parametrize("channels_last", [False, True])
def test_kernel_is_reference(case: Case, channels_last: bool):
    """Every kind of step, dtype and shape comes out with the reference's bits, in both layouts."""
    device = torch.device("cuda", torch.cuda.current_device())
    source = images_of(case.shape, case.dtype)
    kernel = triton_cuda.TritonKernel(case.program(), device, channels_last=channels_last)
    for epoch, ids in ((0, range(700)), (1, [5, 0, 10, 2**40 + 1])):
        draws = draws_of(list(ids), epoch)
        rows, there = draws.ids % len(source), _on(draws, device)
        batch = kernel.run(source.to(device), rows.to(device), there)
        memory_format = torch.channels_last if channels_last else torch.contiguous_format
        assert batch.is_contiguous(memory_format=memory_format)
        expected = reference(case, source, rows, draws)
        assert is_same_bits(batch, expected)
        assert is_same_bits(reference(case, source.to(device), rows.to(device), there), expected)


def test_rectangles_are_the_cpus():
    """Of many thousand rectangles, drawn in float64, not one differs from the CPU's."""
    device = torch.device("cuda", torch.cuda.current_device())
    case = BY_NAME["random-erase-rarely-fits"]
    source, draws = images_of(case.shape, case.dtype), draws_of(list(range(100_000)))
    rows = draws.ids % len(source)
    kernel = triton_cuda.TritonKernel(case.program(), device)
    batch = kernel.run(source.to(device), rows.to(device), _on(draws, device))
    assert is_same_bits(batch, reference(case, source, rows, draws))


def test_batches_end_to_end_are_the_batches():
    """Several batches prepared in one launch are, cut apart, the batches prepared one by one."""
    device = torch.device("cuda", torch.cuda.current_device())
    case = BY_NAME["two-erasures-then-table"]
    source, ids = images_of(case.shape, case.dtype).to(device), torch.arange(11, device=device)
    kernel, key = triton_cuda.TritonKernel(case.program(), device), Key(5, 6, 7)
    none = torch.zeros_like(ids)
    together = kernel.run(source, ids, Draws(key, ids, none))
    apart = [
        kernel.run(source, part, Draws(key, part, none[: len(part)]))
        for part in (ids[:4], ids[4:7], ids[7:])
    ]
    assert is_same_bits(together, torch.cat(apart))


def test_reads_behind_2_to_the_31_bytes():
    """Images at the far end of a resident set larger than 32-bit offsets reach are read rightly."""
    device = torch.device("cuda", torch.cuda.current_device())
    shape = (3, 64, 64)
    count = 2**31 // math.prod(shape) + 3
    if torch.cuda.mem_get_info(device)[0] < 3 * 2**30:
        pytest.skip("needs 3 GiB of free device memory")
    source = torch.zeros((count, *shape), dtype=torch.uint8, device=device)
    source[-2:] = images_of(shape, torch.uint8, 2).to(device)
    ids = torch.tensor([count - 1, count - 2], device=device)
    draws = Draws(Key(1, 2, 3), ids, torch.zeros_like(ids))
    case = Case("", BY_NAME["crop-flip"].ops, shape)
    batch = triton_cuda.TritonKernel(case.program(), device).run(source, ids, draws)
    near = torch.tensor([1, 0], device=device)
    assert is_same_bits(batch, reference(case, source[-2:], near, draws))


def test_side_stream():
    """A batch made on a side stream is that stream's work and comes out the same."""
    device = torch.device("cuda", torch.cuda.current_device())
    case = BY_NAME["crop-flip"]
    source, draws = images_of(case.shape, case.dtype), draws_of(list(range(11)))
    kernel, there = triton_cuda.TritonKernel(case.program(), device), _on(draws, device)
    images, side = source.to(device), torch.cuda.Stream(device)
    side.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(side):
        batch = kernel.run(images, there.ids, there)
    side.synchronize()
    assert is_same_bits(batch, reference(case, source, draws.ids, draws))


def test_device_that_is_not_current():
    """The kernel runs where its data is, whichever device is current."""
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two CUDA devices")
    device = torch.device("cuda", (torch.cuda.current_device() + 1) % torch.cuda.device_count())
    case = BY_NAME["crop-flip"]
    source, draws = images_of(case.shape, case.dtype), draws_of([3, 1, 4])
    there = _on(draws, device)
    batch = triton_cuda.TritonKernel(case.program(), device).run(
        source.to(device), there.ids, there
    )
    assert batch.device == device
    assert is_same_bits(batch, reference(case, source, draws.ids, draws))
