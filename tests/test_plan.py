"""The plan: frozen, plain, and readable."""

from __future__ import annotations

import dataclasses
import json

import pytest
import torch
from torch.utils.data import DataLoader
from torchvision import transforms as v1

import hotset
from hotset.chain.split import Decision
from hotset.placement.cut import Cut
from hotset.placement.plan import Plan
from hotset.placement.size import human_bytes
from tests.streams import MEAN, STD, Pictures

PLAN = Plan(
    decisions=(
        Decision("CIFAR10", "once", "already in memory"),
        Decision("RandomCrop", "batch", "drawn per sample"),
    ),
    device="cpu",
    tier="device",
    samples=50_000,
    bytes_held=154_000_000,
    kernel="Numba, fused in one pass",
    notes=("a note",),
)


def test_a_plan_is_printed_as_a_table() -> None:
    """One row per step, then the data, the kernel and the notes."""
    assert str(PLAN) == (
        "step        what   why\n"
        "CIFAR10     once   already in memory\n"
        "RandomCrop  batch  drawn per sample\n"
        "data: 50,000 samples, 154.0 MB, resident on cpu\n"
        "kernel: Numba, fused in one pass\n"
        "note: a note"
    )


@pytest.mark.parametrize(
    ("tier", "words"),
    [
        ("device", "resident on cuda:0"),
        ("host", "resident in host memory, batches copied to cuda:0"),
        ("source", "not kept: read through the dataset itself"),
    ],
)
def test_tiers_in_words(tier: str, words: str) -> None:
    """Where the data is."""
    plan = dataclasses.replace(PLAN, tier=tier, device="cuda:0")
    assert f", 154.0 MB, {words}\n" in str(plan)


def test_a_table_of_cuts_stays_within_its_width() -> None:
    """However long a name is, and whatever the numbers."""
    cut = Cut(
        position=1,
        behind="step_with_a_name_that_says_all_that_it_does_and_more",
        ms=123.0,
        noise_ms=0.0,
        is_deterministic=True,
        problem="",
        bytes_per_sample=1,
        is_one_shape=True,
        nbytes=999_900_000,
        saved_ms=-4000.0,
        tier=None,
        rest="nothing",
        reason="a reason of many words " * 6,
    )
    plan = dataclasses.replace(PLAN, cuts=(cut, dataclasses.replace(cut, nbytes=0)))
    lines = plan.text(100).splitlines()
    assert max(map(len, lines)) == 100
    row = next(line for line in lines if line.startswith("  step_with_a_name"))
    assert row == (
        "  step_with_a_name_that_says_all_th…  123 ms  yes          999.9 MB  -4.0 s  -4     "
        "nothing  nowhere"
    )
    assert plan.as_dict()["cuts"][1]["saved_ms_per_mb"] is None
    assert cut.behind in str(plan)


def test_a_plan_is_frozen_and_plain() -> None:
    """It cannot be changed, and JSON takes it."""
    with pytest.raises(dataclasses.FrozenInstanceError):
        PLAN.tier = "host"  # type: ignore[misc]
    loaded = json.loads(json.dumps(PLAN.as_dict()))
    assert loaded["decisions"][1] == {
        "step": "RandomCrop",
        "action": "batch",
        "reason": "drawn per sample",
    }
    assert loaded["bytes_held"] == 154_000_000


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 bytes"),
        (999, "999 bytes"),
        (1000, "1.0 KB"),
        (153_600_000, "153.6 MB"),
        (2.5e9, "2.5 GB"),
        (3e12, "3.0 TB"),
        (5e15, "5000.0 TB"),
    ],
)
def test_bytes_for_people(count: float, text: str) -> None:
    """Powers of ten, one decimal."""
    assert human_bytes(count) == text


def test_the_plan_of_the_usual_chain() -> None:
    """Every step with its place, in order, and the reason."""
    chain = v1.Compose(
        [
            v1.RandomCrop(32, padding=4),
            v1.RandomHorizontalFlip(),
            v1.ToTensor(),
            v1.Normalize(MEAN, STD),
        ]
    )
    loader = DataLoader(Pictures(6, chain, size=(32, 32)), 4)
    plan = hotset.accelerate(loader, device="cpu").plan
    assert [(d.step, d.action) for d in plan.decisions] == [
        ("Pictures", "once"),
        ("RandomCrop", "batch"),
        ("RandomHorizontalFlip", "batch"),
        ("ToTensor", "table"),
        ("Normalize", "table"),
    ]
    assert all(d.reason for d in plan.decisions)
    assert (plan.tier, plan.samples, plan.bytes_held) == ("device", 6, 6 * (3 * 32 * 32 + 8))
    assert plan.kernel == "Numba, fused in one pass"
    assert str(plan).count("256 entries per channel") == 2


def test_the_plan_of_plain_numbers() -> None:
    """Without a chain there is the dataset alone."""
    plan = hotset.Loader((torch.zeros(4, 2), torch.zeros(4)), 2, device="cpu").plan
    assert [d.action for d in plan.decisions] == ["once"]
    assert plan.decisions[0].reason == "already in memory"
    assert plan.kernel == "gather by index"
    assert plan.bytes_held == 4 * 3 * 4


def test_a_dtype_without_effect_is_said() -> None:
    """Where no leaf is an image or a floating-point number."""
    plan = hotset.Loader(torch.arange(4), 2, device="cpu", dtype=torch.float16).plan
    assert "dtype=torch.float16 has no floating-point or image leaf to act on" in plan.notes
