"""The examples: they run as a reader would run them, and show what they say."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from examples import mixed_precision
from examples.mixed_precision import Outcome

CPU = torch.device("cpu")
HALVES = (torch.bfloat16, torch.float16)


@pytest.fixture(scope="module", params=HALVES, ids=str)
def outcome(request: pytest.FixtureRequest) -> tuple[torch.dtype, Outcome]:
    """A training on the CPU, in each half precision; that in float16 with a scaler."""
    return request.param, mixed_precision.train(CPU, request.param, 3)


def test_mixed_precision_learns(outcome: tuple[torch.dtype, Outcome]) -> None:
    """The loss falls from epoch to epoch, from that of guessing to less than half of it."""
    half, found = outcome
    assert found.batch_dtype is half
    first, second, third = found.losses
    assert first > second > third
    assert third < 0.5 * torch.log(torch.tensor(float(mixed_precision.CLASSES))).item()


def test_mixed_precision_keeps_batch_norm_in_single_precision(
    outcome: tuple[torch.dtype, Outcome],
) -> None:
    """Both layers' parameters and running statistics."""
    assert outcome[1].batch_norm_dtypes == {
        f"{place}.{name}": torch.float32
        for place in (1, 5)
        for name in ("weight", "bias", "running_mean", "running_var")
    }


def test_mixed_precision_loses_no_gradient(outcome: tuple[torch.dtype, Outcome]) -> None:
    """None is infinite, and none is zero that is not zero in float32 as well."""
    assert outcome[1].are_finite
    assert outcome[1].vanished == 0


def test_mixed_precision_scales_in_float16_only(outcome: tuple[torch.dtype, Outcome]) -> None:
    """What the last backward pass of the training shows: a new scaler's 65,536, or none."""
    half, found = outcome
    expected = 2.0**16 if half is torch.float16 else 1.0
    assert found.scale == pytest.approx(expected, rel=0.01)


def test_gradients_that_float16_lacks_need_the_scaler() -> None:
    """Without one all are zero; with one they are float32's, to float16's precision."""
    lost = mixed_precision.tiny_loss_gradients(CPU, is_scaled=False)
    assert lost.dtype is torch.float32
    assert lost.count_nonzero() == 0
    kept = mixed_precision.tiny_loss_gradients(CPU, is_scaled=True)
    # The mean over 8 samples and 4 outputs: each gradient is TINY / 4 times an input.
    wanted = torch.linspace(0.5, 1, 64).repeat(4) * mixed_precision.TINY / 4
    assert float(wanted.max()) < torch.finfo(torch.float16).smallest_normal
    torch.testing.assert_close(kept, wanted, rtol=2e-3, atol=0)


def test_the_batches_of_mixed_precision_are_made_in_one_pass() -> None:
    """Bytes are kept, and the fused kernel gives half precision in channels last."""
    loader = mixed_precision.make_loader(CPU, torch.float16, 128)
    assert loader.plan.kernel == "Numba, fused in one pass"
    assert loader.plan.bytes_held == 128 * (3 * 16 * 16 + 8)
    images, labels = next(iter(loader))
    assert images.is_contiguous(memory_format=torch.channels_last)
    assert (images.dtype, labels.dtype) == (torch.float16, torch.int64)


def test_mixed_precision_as_a_script() -> None:
    """What it prints, from the command line on the CPU."""
    script = Path(mixed_precision.__file__)
    done = subprocess.run(
        [sys.executable, "-W", "error", str(script), "--device", "cpu", "--epochs", "2"],
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "batches: torch.bfloat16, channels last, on cpu"
    losses = [float(re.fullmatch(r"epoch \d: loss (\d\.\d{4})", line)[1]) for line in lines[1:3]]
    assert losses[1] < losses[0]
    assert lines[3:11] == [
        f"BatchNorm {place}.{name}: torch.float32"
        for place in (1, 5)
        for name in ("weight", "bias", "running_mean", "running_var")
    ]
    assert lines[11:] == [
        "the loss was scaled by: 1",
        "gradients finite: True",
        "gradients that vanished: 0.00%",
        "float16, a tiny loss, without one: 100% of the gradients are zero",
        "float16, a tiny loss, with a GradScaler: 0% of the gradients are zero",
    ]
