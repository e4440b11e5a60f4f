"""Finding out whether an unknown callable is deterministic, by running it.

Each input is used twice, under different seeds of `random`, NumPy and torch. A callable is taken as
deterministic only if no generator moved, no input changed, and all bits agree. Doubt counts as
random.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from hotset.sample.collate import same_bits
from hotset.sample.tree import flatten


@dataclass(frozen=True)
class Verdict:
    """What a probe found.

    Attributes:
        is_deterministic: whether nothing spoke against it.
        reason: what was seen.
    """

    is_deterministic: bool
    reason: str


@contextmanager
def preserved_generators() -> Iterator[None]:
    """Puts the states of Python's, NumPy's and torch's generators back at the end."""
    python, numpy, cpu = random.getstate(), np.random.get_state(), torch.get_rng_state()
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
        torch.set_rng_state(cpu)


def seed_generators(seed: int) -> None:
    """Seeds Python's, NumPy's and torch's CPU generator of this process.

    Args:
        seed: 64 bits; NumPy takes the lower 32.
    """
    random.seed(seed)
    np.random.seed(seed & 0xFFFFFFFF)
    torch.default_generator.manual_seed(seed)


def same_sample(a: Any, b: Any) -> bool:
    """Whether two samples agree in structure and in every bit."""
    leaves, spec = flatten(a)
    others, other_spec = flatten(b)
    return spec == other_spec and all(map(same_bits, leaves, others))


def probe(call: Callable[[Any], Any], inputs: Sequence[Any]) -> Verdict:
    """Whether `call` is deterministic on the inputs.

    Args:
        call: what to probe.
        inputs: values it takes; each is copied first.
    """
    with preserved_generators():
        for number, value in enumerate(inputs):
            results = []
            for seed in (2 * number + 1, 2 * number + 1_000_001):
                argument = copy.deepcopy(value)
                seed_generators(seed)
                before = _generator_states()
                results.append(copy.deepcopy(call(argument)))
                if _generator_states() != before:
                    return Verdict(False, "probed: it draws from a random generator")
                if not same_sample(argument, value):
                    return Verdict(False, "probed: it changes its input in place")
            if not same_sample(*results):
                return Verdict(False, "probed: two runs on the same input differ")
    return Verdict(True, f"probed: same bits twice on {len(inputs)} samples, no generator moved")


def _generator_states() -> tuple[Any, ...]:
    numpy = np.random.get_state(legacy=True)
    assert isinstance(numpy, tuple)
    return (
        random.getstate(),
        (numpy[1].tobytes(), *numpy[2:]),
        torch.get_rng_state().numpy().tobytes(),
    )
