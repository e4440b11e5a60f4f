"""Budgets in bytes, with a unit, or as a share; devices that are there."""

from __future__ import annotations

import gc
import re
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader, StackDataset

import hotset
from hotset.errors import ConfigError, DeviceError
from hotset.placement.budget import MEMORIES, Budget, as_budget, budget_bytes
from hotset.placement.device import free_bytes, resolve_device


@pytest.mark.parametrize(
    ("budget", "expected"),
    [
        (None, 500),
        (0, 0),
        (123, 123),
        ("123", 123),
        ("7B", 7),
        ("8GB", 8 * 10**9),
        ("8gb", 8 * 10**9),
        (" 1.5 kB ", 1500),
        ("2MiB", 2 * 2**20),
        ("1GiB", 2**30),
        ("3TB", 3 * 10**12),
        ("60%", 600),
        ("0%", 0),
        ("100%", 1000),
        ("12.5 %", 125),
    ],
)
def test_budgets(budget: Any, expected: int) -> None:
    """What each spelling means, with 1000 bytes free."""
    assert budget_bytes(budget, 1000) == expected


@pytest.mark.parametrize(
    "budget",
    ["8 apples", "101%", "-5", "-1%", "", "GB", "1e9", "8GB/s", "%", -1, 1.5, True, [], b"8GB"],
)
def test_what_is_no_budget(budget: Any) -> None:
    """The value is shown with what was expected."""
    message = f"`budget` must be bytes, '8GB' or '60%', got {budget!r}"
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}$"):
        budget_bytes(budget, 1000)


@given(st.integers(0, 2**50), st.integers(0, 100))
def test_shares_are_of_what_is_free(free: int, percent: int) -> None:
    """Never more than there is."""
    found = budget_bytes(f"{percent}%", free)
    assert 0 <= found <= free
    assert abs(found - free * percent / 100) <= max(1.0, free * 1e-12)


def test_free_bytes_of_the_host() -> None:
    """Positive, and less than any machine has."""
    assert 0 < free_bytes(torch.device("cpu")) < 2**60


def test_free_bytes_without_proc(monkeypatch: pytest.MonkeyPatch) -> None:
    """Elsewhere than on Linux."""

    def missing(*args: Any, **options: Any) -> Any:
        raise FileNotFoundError

    monkeypatch.setattr("builtins.open", missing)
    assert 0 < free_bytes(torch.device("cpu")) < 2**60


@pytest.mark.parametrize("device", ["cpu", torch.device("cpu"), "cpu:0", None])
def test_the_cpu_is_always_there(device: Any) -> None:
    """Without a number, however it is asked for."""
    assert resolve_device(device) == torch.device("cpu")


def test_none_is_torchs_default_device() -> None:
    """As the user has set it."""
    with torch.device("meta"), pytest.raises(DeviceError, match="must be 'cpu' or 'cuda', got 'me"):
        resolve_device(None)


def pretend(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """Makes torch report so many CUDA devices."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: count - 1)


def test_cuda_gets_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """The current one where none is given."""
    pretend(monkeypatch, 2)
    assert resolve_device("cuda") == torch.device("cuda", 1)
    assert resolve_device("cuda:0") == torch.device("cuda", 0)
    with pytest.raises(
        DeviceError, match=r"device='cuda:2' was asked for, but there is 2 CUDA dev"
    ):
        resolve_device("cuda:2")


def test_cuda_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says what there is, and how torch was built."""
    pretend(monkeypatch, 0)
    version = torch.__version__.replace("+", r"\+")
    with pytest.raises(
        DeviceError,
        match=rf"no CUDA device, only the CPU \(PyTorch {version}, built with .*\); pass",
    ):
        resolve_device("cuda")


@pytest.mark.parametrize("device", ["tpu", "gpu", "", "cuda:x", 1.5, object])
def test_what_names_no_device(device: Any) -> None:
    """A ConfigError, whose cause is torch's own."""
    with pytest.raises(ConfigError, match="`device` must be like 'cpu' or 'cuda:0', got") as caught:
        resolve_device(device)
    assert caught.value.__cause__ is not None


@pytest.mark.parametrize("device", ["mps", "xpu", "meta"])
def test_devices_not_served(device: str) -> None:
    """Known to torch, not to hotset."""
    with pytest.raises(DeviceError, match=f"`device` must be 'cpu' or 'cuda', got '{device}'"):
        resolve_device(device)


def test_a_shared_budget() -> None:
    """What is taken is counted until its holder is gone; a share is of all there was."""
    shared, holder = Budget("50%", host=1000), Holder()
    assert shared.left("device", 600) == 300
    shared.take("device", 200, holder)
    assert (shared.held("device"), shared.held("host")) == (200, 0)
    assert shared.left("device", 400) == 100  # half of 600, less 200
    assert shared.left("host", 5000) == 1000
    assert shared.left("host", 700) == 700  # no more than there is
    del holder
    gc.collect()
    assert shared.held("device") == 0


class Holder:
    """Whatever holds memory."""


def test_what_is_reserved_comes_first() -> None:
    """It comes off before the share is taken, on the device only."""
    budget = Budget("50%", host="50%", reserve=200)
    assert budget.left("device", 1000) == 400
    assert budget.left("host", 1000) == 500
    assert Budget(900, reserve="30%").left("device", 1000) == 700
    assert Budget(reserve=2000).left("device", 1000) == 0
    assert budget.left("host", 1000, is_device=True) == 400  # where the CPU is the device


def test_on_the_cpu_the_model_lies_in_host_memory() -> None:
    """So that is where what is reserved is left free."""
    data = StackDataset(torch.zeros(100, 10))
    with pytest.raises(ConfigError, match=r"tier='device' cannot be had: 4\.0 KB exceed"):
        hotset.accelerate(DataLoader(data, 10), device="cpu", reserve="100TB", tier="device")


def test_disks_are_taken_whole() -> None:
    """Unless an amount is given."""
    assert Budget().left("disk", 1000) == 1000
    assert Budget(disk="10%").left("disk", 1000) == 100


@pytest.mark.parametrize(
    ("budget", "is_apart", "expected"),
    [
        (300, True, (300, 500, 1000)),
        (300, False, (500, 300, 1000)),
        ({"host": 300}, True, (500, 300, 1000)),
        ({"device": "10%", "disk": 7}, False, (100, 500, 7)),
        ({"disk": 0}, True, (500, 500, 0)),
        (None, True, (500, 500, 1000)),
        (Budget(300, disk=1), False, (300, 500, 1)),
    ],
)
def test_what_a_user_may_give(budget: Any, is_apart: bool, expected: tuple[int, ...]) -> None:
    """An amount, of the memory that samples lie in; a mapping; a budget."""
    found = as_budget(budget, is_apart=is_apart)
    assert tuple(found.left(memory, 1000) for memory in MEMORIES) == expected


@pytest.mark.parametrize(
    ("budget", "reserve", "problem"),
    [
        ("8 apples", 0, "`budget` must be bytes, '8GB' or '60%', got '8 apples'"),
        ({"device": "8 apples"}, 0, "`budget['device']` must be bytes, '8GB' or '60%', got"),
        ({"gpu": 1}, 0, "`budget` may name device, host, disk, got 'gpu'; what is to be left"),
        (None, "much", "`reserve` must be bytes, '8GB' or '60%', got 'much'"),
        (None, None, "`reserve` must be bytes, '8GB' or '60%', got None"),
        (Budget(), 5, "`reserve` is part of a hotset.Budget: give it there"),
        ([1], 0, "`budget` must be bytes, '8GB' or '60%', got [1]"),
    ],
)
def test_budgets_that_cannot_be_used(budget: Any, reserve: Any, problem: str) -> None:
    """Each is told by name."""
    with pytest.raises(ConfigError, match=f"^{re.escape(problem)}"):
        as_budget(budget, reserve)


def test_a_budget_says_what_it_allows() -> None:
    """In the words it was given in."""
    assert repr(Budget("8GB", host="50%", reserve=7)) == (
        "Budget(device='8GB', host='50%', reserve=7)"
    )


@pytest.mark.parametrize("budget", ["1KB", {"device": "1KB"}, {"host": "1KB"}, Budget("1KB")])
def test_every_spelling_bounds_memory_on_the_cpu(budget: Any) -> None:
    """There the device's memory is the host's."""
    data = StackDataset(torch.zeros(100, 10))
    plan = hotset.accelerate(DataLoader(data, 10), device="cpu", budget=budget).plan
    assert plan.tier == "source"
    assert "4.0 KB exceed the budget of 1.0 KB in host memory" in str(plan)


@pytest.mark.parametrize("call", ["left", "held", "take"])
def test_memories_have_names(call: str) -> None:
    """Others are refused."""
    arguments = {"left": ("gpu", 1), "held": ("gpu",), "take": ("gpu", 1, Holder())}[call]
    with pytest.raises(ConfigError, match="`memory` must be one of device, host, disk, got 'gpu'"):
        getattr(Budget(), call)(*arguments)
