"""The doctor on a CUDA device."""

from __future__ import annotations

import pytest
import torch

from hotset.doctor.judging.loop import loop_times
from hotset.doctor.machine.cuda import AT_ONCE, MOST_PENDING, CudaSpans, spans_if_used
from hotset.doctor.machine.machine import Machine
from hotset.doctor.measure import Recording

pytestmark = pytest.mark.gpu


def test_spans_of_a_device() -> None:
    """One fewer than marks, none of them negative, and work takes longer than none."""
    there = torch.zeros(1 << 20, device="cuda")
    spans = spans_if_used()
    assert isinstance(spans, CudaSpans)
    spans.mark()
    torch.cuda._sleep(50_000_000)
    spans.mark()
    spans.mark()
    seconds = spans.seconds()
    assert len(seconds) == 2
    assert 0 <= seconds[1] < seconds[0]
    assert there.sum() == 0


def test_a_long_loop_on_a_device() -> None:
    """Marks beyond those that are kept are read as it goes on."""
    torch.zeros(1, device="cuda")
    spans = CudaSpans()
    count = MOST_PENDING + 50 * AT_ONCE
    for _ in range(count):
        spans.mark()
    seconds = spans.seconds()
    assert len(seconds) == count - 1
    assert min(seconds) >= 0


def test_a_device_that_is_behind_stands_still_for_less() -> None:
    """While it works, waiting for a batch costs nothing."""
    torch.zeros(1, device="cuda")
    recording = Recording(spans=CudaSpans())
    recording.begin_epoch()
    for _ in range(6):
        recording.ask()
        recording.come(torch.zeros(4))
        torch.cuda._sleep(20_000_000)
    recording.ask()
    timeline = recording.timeline()
    assert not torch.tensor(timeline.idle_s[1:]).isnan().any()
    assert loop_times(timeline).is_device_seen


def test_the_gpu_that_is_used() -> None:
    """NVML tells it by what torch calls it, and how much is taken of its memory."""
    pytest.importorskip("pynvml")
    held = torch.zeros(1 << 20, device="cuda")
    machine = Machine()
    machine.begin()
    usage = machine.end()
    assert [gpu.name for gpu in usage.gpus] == [torch.cuda.get_device_name()]
    assert usage.gpus[0].memory_bytes > held.nbytes
    assert usage.gpus[0].memory_total_bytes > usage.gpus[0].memory_bytes
