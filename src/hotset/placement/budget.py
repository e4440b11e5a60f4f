"""Budgets: how many bytes a tier may take, of one loader or of several together."""

from __future__ import annotations

import re
import weakref
from collections.abc import Collection, Mapping
from typing import Any, Literal

from hotset.errors import ConfigError

UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
UNITS |= {"KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}
DEFAULT_SHARE = 0.5
"""Share of the free memory taken when no budget is given: the model comes first."""
Amount = int | str | None
Memory = Literal["device", "host", "disk"]
MEMORIES: tuple[Memory, ...] = ("device", "host", "disk")


def budget_bytes(budget: Amount, free_bytes: int, name: str = "budget") -> int:
    """A budget in bytes.

    Args:
        budget: bytes, "8GB", "60%" of what is free, or None for half of what is free.
        free_bytes: what is free.
        name: of the argument, for errors.

    Raises:
        ConfigError: if it is none of these.

    Example:
        >>> budget_bytes("8GB", 0), budget_bytes("60%", 1000), budget_bytes(None, 1000)
        (8000000000, 600, 500)
    """
    if budget is None:
        return int(free_bytes * DEFAULT_SHARE)
    if isinstance(budget, int) and not isinstance(budget, bool) and budget >= 0:
        return budget
    if isinstance(budget, str):
        match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*(%|[a-zA-Z]*)\s*", budget)
        if match and match[2] == "%" and float(match[1]) <= 100:
            return int(free_bytes * float(match[1]) / 100)
        if match and match[2].upper() in UNITS:
            return int(float(match[1]) * UNITS[match[2].upper()])
    raise ConfigError(f"`{name}` must be bytes, '8GB' or '60%', got {budget!r}")


class Budget:
    """What loaders may hold; several that are given the same one share it.

    A loader gives back what it held when it is deleted.

    Args:
        device: on the device: bytes, "8GB", "60%" of what is free there, or None for half of it.
            Where the CPU is the device, that is host memory.
        host: in host memory, likewise.
        disk: in stores that are made, likewise; None for all that is free.
        reserve: what is to be left free for the model, on the device or, where that is the CPU, in
            host memory, in the same spellings; it comes off before any share is taken.

    Raises:
        ConfigError: if an amount is none of these.

    Example:
        >>> import hotset
        >>> shared = hotset.Budget("8GB", host="50%", reserve="2GB")  # for `budget=` of loaders
        >>> shared.left("device", 9_000_000_000)
        7000000000
    """

    def __init__(
        self,
        device: Amount = None,
        *,
        host: Amount = None,
        disk: Amount = None,
        reserve: int | str = 0,
    ) -> None:
        self._amounts: dict[Memory, Amount] = {"device": device, "host": host, "disk": disk}
        self._reserve = reserve
        for name, amount in self._amounts.items():
            budget_bytes(amount, 0, f"budget[{name!r}]")
        if reserve is None:
            raise ConfigError("`reserve` must be bytes, '8GB' or '60%', got None")
        budget_bytes(reserve, 0, "reserve")
        self._held: dict[Memory, int] = {"device": 0, "host": 0, "disk": 0}

    def __repr__(self) -> str:
        given: dict[str, Amount] = {str(name): amount for name, amount in self._amounts.items()}
        given["reserve"] = self._reserve or None
        return f"Budget({', '.join(f'{n}={a!r}' for n, a in given.items() if a is not None)})"

    def held(self, memory: Memory) -> int:
        """Bytes that loaders hold of it now.

        Args:
            memory: "device", "host" or "disk".
        """
        _check_memory(memory)
        return self._held[memory]

    def left(self, memory: Memory, free_bytes: int, *, is_device: bool | None = None) -> int:
        """Bytes that may still be taken.

        Args:
            memory: "device", "host" or "disk".
            free_bytes: what is free there now.
            is_device: whether batches come out in it, so that what was given for the device, and
                what is reserved, counts as well; None where it is "device".
        """
        _check_memory(memory)
        is_device = memory == "device" if is_device is None else is_device
        held = self._held[memory]
        there = free_bytes + held
        usable = max(0, there - budget_bytes(self._reserve, there)) if is_device else there
        given = {self._amounts[memory], self._amounts["device"] if is_device else None} - {None}
        amounts: Collection[Amount] = given or ("100%" if memory == "disk" else None,)
        total = min(budget_bytes(amount, usable) for amount in amounts)
        return max(0, min(total, usable) - held)

    def take(self, memory: Memory, nbytes: int, holder: Any) -> None:
        """Counts bytes as held until their holder is deleted."""
        _check_memory(memory)
        self._held[memory] += nbytes
        weakref.finalize(holder, self._give_back, memory, nbytes)

    def _give_back(self, memory: Memory, nbytes: int) -> None:
        self._held[memory] -= nbytes


def _check_memory(memory: Any) -> None:
    if memory not in MEMORIES:
        raise ConfigError(f"`memory` must be one of {', '.join(MEMORIES)}, got {memory!r}")


def as_budget(budget: Any, reserve: int | str = 0, *, is_apart: bool = True) -> Budget:
    """A budget from what a user gave.

    Args:
        budget: a `Budget`; or an amount, of the memory that samples are to lie in; or a mapping of
            "device", "host" and "disk" to amounts.
        reserve: what is to be left free on the device.
        is_apart: whether the device has memory of its own; an amount alone is for that then.

    Raises:
        ConfigError: if it is none of these.
    """
    if isinstance(budget, Budget):
        if reserve:
            raise ConfigError(
                "`reserve` is part of a hotset.Budget: give it there, as Budget(reserve=...)"
            )
        return budget
    if not isinstance(budget, Mapping):
        budget_bytes(budget, 0)
        return Budget(reserve=reserve, **{"device" if is_apart else "host": budget})
    unknown = [name for name in budget if name not in MEMORIES]
    if unknown:
        raise ConfigError(
            f"`budget` may name {', '.join(MEMORIES)}, got {unknown[0]!r}; what is to be left for "
            "the model is `reserve`"
        )
    return Budget(reserve=reserve, **budget)
