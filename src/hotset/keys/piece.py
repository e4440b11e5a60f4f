"""One object taken apart for keying: what is known of it at once, and what it consists of."""

from __future__ import annotations

import hashlib
import marshal
from collections.abc import Iterable, Sequence
from itertools import chain
from types import EllipsisType, NoneType
from typing import Any, NamedTuple

DIGEST_BYTES = 16
SHORT_BYTES = 48
"""Plain values up to this many bytes stand for themselves; hashing them would take longer."""

ATOMS = frozenset((NoneType, bool, int, float, complex, str, bytes, EllipsisType))
SEQUENCES = frozenset((list, tuple))

Words = tuple[Any, ...]
"""A template and what fills it: where a link leads, put into words only for an error."""
Link = tuple[Words, Any]


class Piece(NamedTuple):
    """One object taken apart.

    Attributes:
        label: what is known of it at once.
        links: what it consists of.
        is_ordered: whether the order of the links counts.
        folders: where file names within it may be relative to.
    """

    label: bytes
    links: Sequence[Link] = ()
    is_ordered: bool = True
    folders: tuple[str, ...] = ()


class UnkeyableError(Exception):
    """What stands here cannot be keyed; the message says what it is, as in "an open file"."""


def label(*parts: Any) -> bytes:
    """Bytes that tell these atoms, and tuples and lists of them, from all others."""
    # Version 2 knows no references and no interning, so that equal values give equal bytes.
    return marshal.dumps(parts, 2)


def digest_of(parts: Iterable[bytes | bytearray | memoryview]) -> bytes:
    """The digest of parts of any length; where one ends and the next begins counts."""
    hasher = hashlib.blake2b(digest_size=DIGEST_BYTES)
    for part in parts:
        hasher.update(len(part).to_bytes(8, "little"))
        hasher.update(part)
    return hasher.digest()


def hex_of(*parts: Any) -> str:
    """The digest of atoms, in 32 hexadecimal digits."""
    return digest_of([label(*parts)]).hex()


def plain_bytes(value: Any) -> bytes | None:
    """The bytes of an atom, or of a container of atoms down to its second level; None if other.

    This is the fast path: millions of strings and tuples are looked at without a step of Python
    for each. The items of a set are put in order; those of a dictionary stay in theirs.
    """
    kind = type(value)
    if kind in ATOMS:
        return marshal.dumps(value, 2)
    if kind in SEQUENCES:
        kinds = set(map(type, value)) - ATOMS
        if kinds <= SEQUENCES:
            inner = (item for item in value if type(item) in SEQUENCES) if kinds else ()
            kinds = set(map(type, chain.from_iterable(inner)))
    elif kind is dict:
        kinds = set(map(type, value)) | set(map(type, value.values()))
    elif kind in (set, frozenset):
        kinds = set(map(type, value))
    else:
        return None
    if not kinds <= ATOMS:
        return None
    if kind in (set, frozenset):
        return label(kind.__name__, sorted(marshal.dumps(item, 2) for item in value))
    return marshal.dumps(value, 2)


def link_bytes(plain: bytes) -> bytes:
    """How a plain value appears in the digest of what holds it."""
    if len(plain) <= SHORT_BYTES:
        return b"=" + plain
    return b"#" + hashlib.blake2b(plain, digest_size=DIGEST_BYTES).digest()
