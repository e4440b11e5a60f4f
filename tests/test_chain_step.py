"""Steps, and chains opened into them."""

from __future__ import annotations

import pickle
from functools import partial

import torch
from torch import nn
from torchvision import transforms as v1
from torchvision.transforms import v2

from hotset.chain.step import OPS_PER_STEP, Chained, Step, flatten_chain


def _double(value: int) -> int:
    return value * 2


def test_nested_chains_are_opened():
    """Compose of v1 and v2, nn.Sequential, lists and tuples, in each other and in any depth."""
    crop, flip, tensor = v1.RandomCrop(2), v2.RandomHorizontalFlip(), v1.ToTensor()
    chain = v1.Compose([nn.Sequential(crop, v2.Compose([flip])), [(tensor, _double)], None])
    assert flatten_chain(chain) == [crop, flip, tensor, _double]
    assert flatten_chain(Chained([chain, _double])) == [crop, flip, tensor, _double, _double]


def test_nothing_is_an_empty_chain():
    """No transform is no step."""
    assert flatten_chain(None) == flatten_chain([]) == flatten_chain(v1.Compose([])) == []


def test_what_is_random_as_a_whole_stays_whole():
    """RandomApply, RandomChoice and a user's own Compose are one step each."""

    class Compose(v1.Compose):
        pass

    for step in (
        v1.RandomApply([v1.ToTensor()]),
        v1.RandomChoice([v1.ToTensor()]),
        Compose([v1.ToTensor()]),
        nn.ModuleList([nn.ReLU()]),
        nn.ReLU(),
    ):
        assert flatten_chain(step) == [step]


def test_chained_runs_in_order_and_pickles():
    """Several callables as one, also in a worker process."""
    chained = pickle.loads(pickle.dumps(Chained([_double, str])))
    assert chained(4) == "8"
    assert Chained([])(5) == 5


def test_names():
    """What a user would call a step."""

    def name(call) -> str:
        return Step(0, call, "unknown", "").name

    assert name(v1.ToTensor()) == "ToTensor"
    assert name(_double) == "_double"
    assert name(v1.Lambda(_double)) == name(v2.Lambda(_double)) == "Lambda(_double)"
    assert name(v1.Lambda(partial(_double))) == "Lambda(partial)"
    assert name(partial(_double)) == "partial"


def test_keys_leave_room_for_operations():
    """A step's draws are keyed from sixteen times its number."""
    assert [Step(number, abs, "random", "").key for number in range(3)] == [0, 16, 32]
    assert OPS_PER_STEP == 16


def test_decided_keeps_the_rest():
    """The same step with its nature found out; the first is left as it was."""
    step = Step(3, torch.neg, "unknown", "")
    found = step.decided("random", "it drew")
    assert (found.number, found.call, found.nature, found.reason) == (
        3,
        torch.neg,
        "random",
        "it drew",
    )
    assert step.nature == "unknown"
