"""Markers with which users say what their own callables are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from hotset.chain.step import Nature

C = TypeVar("C", bound=Callable[..., Any])

_ATTRIBUTE = "_hotset_nature"


def deterministic(call: C) -> C:
    """Marks a callable or class as deterministic: the same input always gives the same output.

    It is then run once per sample. A marked callable is still probed: one that contradicts its
    mark is an error.

    Example:
        >>> @deterministic
        ... def halve(x):
        ...     return x / 2
        >>> halve(4)
        2.0
    """
    setattr(call, _ATTRIBUTE, "deterministic")
    return call


def random(call: C) -> C:
    """Marks a callable or class as random: it is run anew for every sample of every epoch.

    Example:
        >>> @random
        ... def jitter(x):
        ...     return x
        >>> jitter(4)
        4
    """
    setattr(call, _ATTRIBUTE, "random")
    return call


def mark_of(call: Any) -> Nature | None:
    """What a callable, or the function inside a torchvision Lambda, was marked as."""
    for candidate in (call, getattr(call, "lambd", None)):
        mark: Nature | None = getattr(candidate, _ATTRIBUTE, None)
        if mark is not None:
            return mark
    return None
