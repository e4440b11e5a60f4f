"""The probe: what it takes for deterministic, and that it leaves no trace."""

from __future__ import annotations

import itertools
import random
from functools import partial

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision import transforms as v1

from hotset.chain.probe import preserved_generators, probe, same_sample, seed_generators

INPUTS = [torch.arange(6.0) + number for number in range(4)]
DRAWS = "probed: it draws from a random generator"
CHANGES = "probed: it changes its input in place"
DIFFERS = "probed: two runs on the same input differ"


def _states() -> tuple:
    numpy = np.random.get_state()
    return (random.getstate(), numpy[1].tobytes(), numpy[2:], torch.get_rng_state().tolist())


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (lambda x: x + random.random(), DRAWS),
        (lambda x: x + np.random.rand(), DRAWS),
        (lambda x: x + torch.rand(()), DRAWS),
        (lambda x: (torch.rand(3), x)[1], DRAWS),
        (lambda x: x if random.random() < 2 else -x, DRAWS),
        (v1.RandomApply([torch.neg], p=0.0), DRAWS),
        (lambda x: x.add_(1), CHANGES),
        (lambda x: (x.zero_(), 3)[1], CHANGES),
        (partial(lambda count, x: x + next(count), itertools.count()), DIFFERS),
        (lambda x: x + np.random.default_rng().random(), DIFFERS),
        (partial(lambda rng, x: x + rng.random(), np.random.default_rng(0)), DRAWS),
        (partial(lambda rng, x: x + rng.random(), random.Random(0)), DRAWS),
        (partial(lambda g, x: x + torch.rand((), generator=g), torch.Generator()), DRAWS),
        (lambda x: object(), DIFFERS),
        (partial(lambda kinds, x: next(kinds)(x.sum()), itertools.cycle((int, float))), DIFFERS),
        (partial(lambda sizes, x: x.repeat(next(sizes)), itertools.cycle((1, 2))), DIFFERS),
    ],
)
def test_what_counts_as_random(call, reason: str):
    """A draw, a change of the input, or two results that differ: never run once."""
    verdict = probe(call, INPUTS)
    assert not verdict.is_deterministic
    assert verdict.reason == reason


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x * 2,
        lambda x: x,
        lambda x: x.numpy(),
        lambda x: {"a": (x, 1), "b": "text"},
        lambda x: float("nan"),
        lambda x: x / 0,
        lambda x: Image.fromarray(x.numpy().astype(np.uint8)[None]),
        lambda x: x + np.random.default_rng(0).random(),
        lambda x: x + torch.rand((), generator=torch.Generator().manual_seed(1)),
        torch.nn.Linear(6, 2).requires_grad_(False),
    ],
)
def test_what_counts_as_deterministic(call):
    """The same bits twice, NaN and all, and no generator moved."""
    verdict = probe(call, INPUTS)
    assert verdict.is_deterministic
    assert verdict.reason == "probed: same bits twice on 4 samples, no generator moved"


RARE = np.random.default_rng(0)


def _rarely(x: torch.Tensor) -> torch.Tensor:
    return -x if RARE.random() < 1e-9 else x


class _Rare:
    def __init__(self, generator) -> None:
        self.held = {"deep": [generator]}

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        generator = self.held["deep"][0]
        if isinstance(generator, torch.Generator):
            return -x if torch.rand((), generator=generator) < 1e-9 else x
        return -x if generator.random() < 1e-9 else x


class _Names:
    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return _rarely(x)


@pytest.mark.parametrize(
    "call",
    [
        _Rare(np.random.default_rng(0)),
        _Rare(np.random.Generator(np.random.MT19937(0))),
        _Rare(random.Random(0)),
        _Rare(torch.Generator()),
        _Rare(np.random.RandomState(0)),
        _rarely,
        lambda x: _rarely(x),
        partial(_rarely),
        _Names(),
        _Names().__call__,
        v1.Lambda(_rarely),
        v1.Compose([v1.Lambda(_rarely)]),
        (lambda rare: lambda x: rare(x))(_Rare(random.Random(0))),
    ],
)
def test_generators_of_its_own_are_watched(call):
    """A draw that hardly ever shows is seen by the generator it moves, wherever that is kept."""
    assert probe(call, INPUTS).reason == DRAWS


def test_a_difference_on_one_input_is_enough():
    """All inputs are tried."""
    count = itertools.count()
    verdict = probe(lambda x: x if x[0] < 3 else x + next(count), INPUTS)
    assert not verdict.is_deterministic


def test_a_result_that_changes_later_is_seen():
    """A callable that returns one buffer again and again is compared by what it held."""
    buffer, count = torch.zeros(1), itertools.count()
    assert probe(lambda x: buffer.fill_(next(count)), INPUTS).reason == DIFFERS


def test_inputs_and_generators_are_left_alone():
    """After a probe nothing has changed: not the inputs, not what will be drawn next."""
    copies, before = [value.clone() for value in INPUTS], _states()
    probe(lambda x: x.add_(torch.rand(()) + random.random() + np.random.rand()), INPUTS)
    probe(lambda x: x * 2, INPUTS)
    assert all(map(torch.equal, INPUTS, copies))
    assert _states() == before


def test_generators_are_restored_after_an_error():
    """An error in the callable is raised, and leaves the generators as they were."""

    def fail(value):
        torch.rand(1), random.random(), np.random.rand()
        raise KeyError("no such sample")

    before = _states()
    with pytest.raises(KeyError, match="no such sample"):
        probe(fail, INPUTS)
    assert _states() == before


def test_seeded_generators_repeat():
    """One number seeds all three; NumPy and torch take the lower half of it."""
    with preserved_generators():
        drawn = []
        for _ in range(2):
            seed_generators(2**63 + 5)
            drawn.append((random.random(), np.random.rand(), float(torch.rand(()))))
        assert drawn[0] == drawn[1]
        seed_generators(2**62 + 5)
        assert random.random() != drawn[0][0]
        assert (np.random.rand(), float(torch.rand(()))) == drawn[0][1:]


def test_same_sample_compares_all_of_it():
    """Structure, types, dtypes, shapes and bits."""
    sample = {"x": torch.tensor([0.0]), "y": (1, "a")}
    assert same_sample(sample, {"x": torch.tensor([0.0]), "y": (1, "a")})
    for other in (
        {"x": torch.tensor([-0.0]), "y": (1, "a")},
        {"x": torch.tensor([0.0]), "y": [1, "a"]},
        {"x": torch.tensor([0.0]), "y": (1.0, "a")},
        {"x": torch.tensor([0.0]), "y": (True, "a")},
        {"x": torch.tensor([0.0], dtype=torch.float64), "y": (1, "a")},
        {"x": torch.tensor([[0.0]]), "y": (1, "a")},
        {"x": torch.tensor([0.0]), "y": (1, "b")},
        {"x": torch.tensor([0.0])},
    ):
        assert not same_sample(sample, other)
