"""Finding out whether an unknown callable is deterministic, by running it.

Each input is used twice, under different seeds of `random`, NumPy and torch. A callable is taken as
deterministic only if no generator moved, neither one of those nor one that it keeps for itself, no
input changed, and all bits agree. Doubt counts as random.
"""

from __future__ import annotations

import copy
import gc
import pickle
import random
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from types import FunctionType, ModuleType
from typing import Any

import numpy as np
import torch

from hotset.sample.collate import same_bits
from hotset.sample.tree import flatten

REACH = 20_000
"""Objects looked at in search of a callable's own generators."""
OWN_GENERATORS = (random.Random, np.random.Generator, np.random.RandomState, torch.Generator)


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
def preserved_generators(own: Sequence[Any] = ()) -> Iterator[None]:
    """Puts the states of Python's, NumPy's and torch's generators back at the end.

    Args:
        own: further generators, as `own_generators` finds them.
    """
    python, numpy, cpu = random.getstate(), np.random.get_state(), torch.get_rng_state()
    put_back = [_putting_back(generator) for generator in own]
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
        torch.set_rng_state(cpu)
        for put in put_back:
            put()


def _putting_back(generator: Any) -> Callable[[], object]:
    if isinstance(generator, torch.Generator):
        return partial(generator.set_state, generator.get_state().clone())
    if isinstance(generator, np.random.Generator):
        bits = generator.bit_generator
        return partial(setattr, bits, "state", bits.state)
    if isinstance(generator, np.random.RandomState):
        return partial(generator.set_state, generator.get_state())
    return partial(generator.setstate, generator.getstate())


def seed_generators(seed: int) -> None:
    """Seeds Python's, NumPy's and torch's CPU generator of this process.

    Args:
        seed: 64 bits; NumPy and torch take the lower 32.
    """
    random.seed(seed)
    np.random.seed(seed & 0xFFFFFFFF)
    torch.default_generator.manual_seed(seed)


def same_sample(a: Any, b: Any) -> bool:
    """Whether two samples agree in structure and in every bit."""
    leaves, spec = flatten(a)
    others, other_spec = flatten(b)
    return spec == other_spec and all(map(same_bits, leaves, others))


def copied(value: Any) -> Any:
    """A deep copy; the value itself where there can be none, as of a tensor within a graph."""
    try:
        return copy.deepcopy(value)
    except Exception:  # whatever a user's class does when it is copied
        return value


def probe(call: Callable[[Any], Any], inputs: Sequence[Any]) -> Verdict:
    """Whether `call` is deterministic on the inputs.

    Args:
        call: what to probe.
        inputs: values it takes; each is copied first.
    """
    own = own_generators(call)
    with preserved_generators():
        for number, value in enumerate(inputs):
            results = []
            for seed in (2 * number + 1, 2 * number + 1_000_001):
                argument = copied(value)
                seed_generators(seed)
                before = generator_states(own)
                result = call(argument)
                if any(getattr(leaf, "requires_grad", False) for leaf in flatten(result)[0]):
                    return Verdict(False, "probed: its result carries gradients")
                results.append(copied(result))
                if generator_states(own) != before:
                    return Verdict(False, "probed: it draws from a random generator")
                if not same_sample(argument, value):
                    return Verdict(False, "probed: it changes its input in place")
            if not same_sample(*results):
                return Verdict(False, "probed: two runs on the same input differ")
    return Verdict(True, f"probed: same bits twice on {len(inputs)} samples, no generator moved")


def own_generators(call: Any) -> list[Any]:
    """Generators within reach of a callable or an object: what it holds, what its functions name.

    One that is drawn from now and then would else be seen only if the few runs happened to differ.
    """
    found: list[Any] = []
    seen: set[int] = set()
    waiting = deque([call])
    while waiting and len(seen) < REACH:
        thing = waiting.popleft()
        kind = type(thing)
        if id(thing) in seen or issubclass(kind, (ModuleType, type)):
            continue
        seen.add(id(thing))
        if issubclass(kind, OWN_GENERATORS) and not issubclass(kind, random.SystemRandom):
            found.append(thing)
        elif isinstance(thing, FunctionType):
            names = (name for name in thing.__code__.co_names if name in thing.__globals__)
            waiting.extend((thing.__closure__, thing.__defaults__, thing.__kwdefaults__))
            waiting.extend(thing.__globals__[name] for name in names)
        else:
            waiting.extend(gc.get_referents(thing))
            waiting.extend(m for m in vars(kind).values() if isinstance(m, FunctionType))
    return found


def _state_of(generator: Any) -> bytes:
    if isinstance(generator, torch.Generator):
        return generator.get_state().numpy().tobytes()
    return pickle.dumps(generator)


def generator_states(own: Sequence[Any] = ()) -> tuple[Any, ...]:
    """The states of Python's, NumPy's and torch's generators, and of further ones; comparable."""
    numpy = np.random.get_state(legacy=True)
    assert isinstance(numpy, tuple)
    return (
        random.getstate(),
        (numpy[1].tobytes(), *numpy[2:]),
        torch.get_rng_state().numpy().tobytes(),
        *map(_state_of, own),
    )
