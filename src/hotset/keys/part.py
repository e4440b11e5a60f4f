"""One part of a fingerprint."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Part:
    """One part of what a cache was made from.

    Attributes:
        name: as in "source" or "step 1".
        digest: 32 hexadecimal digits.
        text: what it is, for a reader; does not count when fingerprints are compared.
    """

    name: str
    digest: str
    text: str
