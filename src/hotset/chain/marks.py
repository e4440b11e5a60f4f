"""Markers with which users say what their own callables are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from hotset.chain.step import Nature
from hotset.errors import ConfigError

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
    return _marked(call, "deterministic")


def random(call: C) -> C:
    """Marks a callable or class as random: it is run anew for every sample of every epoch.

    Example:
        >>> @random
        ... def jitter(x):
        ...     return x
        >>> jitter(4)
        4
    """
    return _marked(call, "random")


def _marked(call: C, nature: Nature) -> C:
    try:
        setattr(call, _ATTRIBUTE, nature)
    except (AttributeError, TypeError) as error:
        raise ConfigError(
            f"{call!r} cannot be marked {nature}; mark a function of your own that calls it"
        ) from error
    return call


def mark_of(call: Any) -> Nature | None:
    """What a callable, or the function inside a torchvision Lambda, was marked as."""
    for candidate in (call, getattr(call, "lambd", None)):
        mark: Nature | None = getattr(candidate, _ATTRIBUTE, None)
        if mark is not None:
            return mark
    return None
