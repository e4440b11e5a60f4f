"""What a step is: one callable of the user's, whether it is deterministic, and its batched form."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

from hotset.errors import ConfigError
from hotset.ops.op import Op, Params

Nature = Literal["deterministic", "random", "unknown"]
StepCall = Callable[[Any], Any]

OPS_PER_STEP = 16
"""Numbers set aside for the operations of one step; a step's number times this keys its first."""


@dataclass(frozen=True, eq=False)
class BatchForm:
    """How a step acts on a whole batch, each sample by its own parameters.

    Attributes:
        ops: the operations, in order.
        replay: given one sample's parameters, one dictionary per operation, the user's own step
            with its draws replaced by them.
        levels: by how many levels of a byte the result may differ from that of the user's step; 0
            where it is equal bit for bit.
    """

    ops: tuple[Op, ...]
    replay: Callable[[Sequence[Params]], StepCall]
    levels: int = 0


class HasBatchForm(Protocol):
    """A transform that brings its own batched form; how users add one."""

    def batch_form(self, leaf: Any, number: int) -> BatchForm | None:
        """The batched form for leaves like `leaf`, its draws keyed from `number`; or None."""
        ...


@dataclass(frozen=True, eq=False)
class Step:
    """One callable of a user's chain.

    Attributes:
        number: position in the chain, from 0.
        call: the user's callable.
        nature: whether it is deterministic.
        reason: how that is known.
    """

    number: int
    call: StepCall
    nature: Nature
    reason: str

    @property
    def name(self) -> str:
        """What the user would call it."""
        call = self.call
        inner = getattr(call, "lambd", None)
        if inner is not None:
            return f"Lambda({getattr(inner, '__name__', type(inner).__name__)})"
        return getattr(call, "__name__", type(call).__name__)

    @property
    def key(self) -> int:
        """Number that the draws of its first operation are keyed by."""
        return self.number * OPS_PER_STEP

    def decided(self, nature: Nature, reason: str) -> Step:
        """The same step with its nature found out."""
        return replace(self, nature=nature, reason=reason)


class Chained:
    """Several callables as one; picklable where they are.

    Attributes:
        calls: run one after the other.
    """

    def __init__(self, calls: Sequence[StepCall]) -> None:
        self.calls = tuple(calls)

    def __call__(self, value: Any) -> Any:
        """The value after all of them."""
        for call in self.calls:
            value = call(value)
        return value


def checked_chain(transform: Any, argument: str) -> list[StepCall]:
    """A transform as a flat list of callables, each of which can be called with a sample's leaf.

    Raises:
        ConfigError: if one is no callable, or is a transform's class and not a transform.
    """
    calls = flatten_chain(transform)
    for call in calls:
        if not callable(call):
            raise ConfigError(f"`{argument}` must be callable or a list of callables, got {call!r}")
        home = getattr(call, "__module__", None) or ""
        if isinstance(call, type) and home.startswith(("torchvision.transforms", "hotset.")):
            name = call.__name__
            raise ConfigError(
                f"`{argument}` has the class {name}; make a transform of it: {name}()"
            )
    return calls


def flatten_chain(transform: Any) -> list[StepCall]:
    """A transform as a flat list of callables: nested Compose, nn.Sequential and lists are opened.

    Example:
        >>> flatten_chain([abs, [str]])
        [<built-in function abs>, <class 'str'>]
    """
    if transform is None:
        return []
    if isinstance(transform, Chained):
        transform = transform.calls
    if isinstance(transform, (list, tuple)):
        return [call for part in transform for call in flatten_chain(part)]
    kind = type(transform)
    home = kind.__module__
    if kind.__name__ == "Compose" and home.startswith("torchvision.transforms"):
        return flatten_chain(list(transform.transforms))
    if kind.__name__ == "Sequential" and home.startswith("torch.nn"):
        return flatten_chain(list(transform))
    return [transform]
