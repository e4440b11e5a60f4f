"""`hotset.running.filling`: a long read is announced."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

import hotset
from hotset.running.filling import filled


@pytest.mark.parametrize(
    ("seconds", "told", "said"),
    [
        (1020.0, None, "hotset: reading 6 samples once, about 17 min\n"),
        (1020.0, True, "hotset: reading 6 samples once, about 17 min\n"),
        (1020.0, False, ""),
        (5.0, None, ""),
    ],
)
def test_reading_that_takes_long_is_announced(
    capsys: pytest.CaptureFixture[str], seconds: float, told: Any, said: str
) -> None:
    """On standard error, also where that is no terminal; silence is silence."""
    loader = DataLoader([torch.arange(4.0)] * 6, batch_size=3)
    plan = hotset.plan(loader, device="cpu")
    assert plan.prediction is not None
    long = replace(plan, prediction=replace(plan.prediction, first_s=seconds, steady_s=0.0))
    assert len(filled(loader, long, name="list", told=told)) == 2
    output = capsys.readouterr()
    assert (output.out, output.err) == ("", said)
