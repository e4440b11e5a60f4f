"""The examples of fields whose length differs run, and give what they say."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest
import torch
from torch import nn

EXAMPLE = Path(__file__).parent.parent / "examples" / "tokens.py"


def test_it_runs(capsys: pytest.CaptureFixture[str]) -> None:
    """As a script."""
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    assert capsys.readouterr().out == "padded: 16 batches; jagged: 16 batches\n"


def test_padded_and_jagged_agree_where_nothing_is_cut() -> None:
    """The same sequences in the same order, with and without padding."""
    found = runpy.run_path(str(EXAMPLE))
    data = found["sentences"](300)
    is_short = data["length"] <= 32
    data["tokens"] = [tokens[:32] for tokens in data["tokens"]]
    embedding = nn.Embedding(found["VOCABULARY"], 4)
    assert 0 < int(is_short.sum()) < 300
    padded = found["padded_means"](embedding, data, "cpu")
    jagged = found["jagged_means"](embedding, data, "cpu")
    for a, b in zip(padded, jagged, strict=True):
        torch.testing.assert_close(a, b)
