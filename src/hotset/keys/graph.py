"""The digest of an object and of all that it refers to, each looked at once.

An object's digest depends on what can be reached from it, and on nothing else: not on where the
walk came from, nor on whether two equal parts are one object. Where objects refer to one another in
a circle, their digests are refined together until they tell the members of the circle apart, as in
the minimisation of automata; so the same holds for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from hotset.errors import KeyingError
from hotset.keys.code import ModuleUse
from hotset.keys.piece import (
    ATOMS,
    Piece,
    UnkeyableError,
    Words,
    digest_of,
    label,
    link_bytes,
    plain_bytes,
)
from hotset.keys.value import take_apart

ROUNDS = 100
"""Circles of equal objects longer than this are told apart by the order in which they are met."""
REMEMBERED = 64
"""Plain containers with more items than this are not looked at twice."""
NUMBERS = ATOMS - {str, bytes}
SHOWN_WORDS = 6
ADVICE = 'pass version="…", and change it whenever what this does changes'


def key_of(value: Any) -> str:
    """The key of any object: 32 hexadecimal digits.

    The same program, started again, gives the same key; whatever may change what a value does gives
    another. Values count by class and state, down to every bit: 1, True and 1.0 differ, and so do
    0.0 and -0.0. The order of a dictionary counts, that of a set does not. Functions count
    by their code and all that it names, the user's classes by their methods and bases, those of
    libraries by name and version.

    Raises:
        KeyingError: if something in it does not say what it consists of, as an open file.

    Example:
        >>> key_of({"size": 32}) == key_of({"size": 32}), key_of(1) == key_of(True)
        (True, False)
    """
    return Walk().digest(value).hex()


class _Node:
    """An object whose digest is being found.

    Attributes:
        value: kept alive, since its id stands for it.
        words: how it was reached.
        ahead: what it consists of and has not been looked at.
        links: what has: bytes where the digest is known, else the id of another node.
        number: its place among those not done; `low` is the least within reach.
    """

    __slots__ = ("ahead", "folders", "links", "low", "number", "piece", "value", "words")

    def __init__(
        self, value: Any, words: Words, piece: Piece, number: int, folders: tuple[str, ...]
    ) -> None:
        self.value, self.words, self.piece = value, words, piece
        self.ahead: Iterator[tuple[Words, Any]] = iter(piece.links)
        self.links: list[bytes | int] = []
        self.number = self.low = number
        self.folders = folders


class Walk:
    """Walks over objects, and knows the digests of those that it has been to.

    Args:
        take: takes an object apart.
        note: told of every text and plain container, with the folders that names in it may be
            relative to.
    """

    def __init__(
        self,
        take: Callable[[Any], Piece] = take_apart,
        note: Callable[[Any, tuple[str, ...]], None] | None = None,
    ) -> None:
        self._take, self._note = take, note
        self._digests: dict[int, bytes] = {}
        self._kept: list[Any] = []
        self._uses: dict[ModuleUse, ModuleUse] = {}
        self._met: dict[int, _Node] = {}
        self._open: list[int] = []
        self._path: list[_Node] = []

    def digest(self, value: Any, name: str = "the value") -> bytes:
        """The digest of an object.

        Args:
            value: any object.
            name: what messages call it.

        Raises:
            KeyingError: if something in it does not say what it consists of.
        """
        self._met.clear()
        self._open.clear()
        self._path.clear()
        found = self._link(value, ("{}", name), ())
        while self._path:
            node = self._path[-1]
            for words, child in node.ahead:
                link = self._link(child, words, node.folders)
                node.links.append(link)
                if self._path[-1] is not node:
                    break  # it is new, and comes first
                if isinstance(link, int):
                    node.low = min(node.low, self._met[link].number)
            else:
                self._leave(self._path.pop())
        return digest_of([found if isinstance(found, bytes) else self._digests[found]])

    def _link(self, value: Any, words: Words, folders: tuple[str, ...]) -> bytes | int:
        """The digest of an object, or its id if it has to be waited for."""
        if (
            type(value) is ModuleUse
        ):  # one object for each, or a module that names itself has no end
            value = self._uses.setdefault(value, value)
        known = self._digests.get(id(value))
        if known is not None:
            return known
        if id(value) in self._met:
            return id(value)
        plain = plain_bytes(value)
        if plain is not None:
            if self._note is not None and type(value) not in NUMBERS:
                self._note(value, folders)
            link = link_bytes(plain)
            if type(value) not in ATOMS and len(value) > REMEMBERED:
                self._remember(value, link)
            return link
        try:
            piece = self._take(value)
        except UnkeyableError as error:
            raise KeyingError(self._message(words, str(error))) from error
        if not piece.links:
            return self._remember(value, digest_of([piece.label]))
        if piece.folders:
            folders = tuple(dict.fromkeys((*piece.folders, *folders)))
        node = _Node(value, words, piece, len(self._met), folders)
        self._met[id(value)] = node
        self._open.append(id(value))
        self._path.append(node)
        return id(value)

    def _remember(self, value: Any, digest: bytes) -> bytes:
        self._kept.append(value)
        self._digests[id(value)] = digest
        return digest

    def _leave(self, node: _Node) -> None:
        if self._path:
            self._path[-1].low = min(self._path[-1].low, node.low)
        if node.low < node.number:
            return
        start = len(self._open) - 1
        while self._open[start] != id(node.value):
            start -= 1
        members = self._open[start:]
        del self._open[start:]
        is_circle = len(members) > 1 or id(node.value) in node.links
        digests = self._refined(members) if is_circle else self._colours(members, {})
        for member in members:
            self._remember(self._met.pop(member).value, digests[member])

    def _colours(self, members: list[int], colours: dict[int, bytes]) -> dict[int, bytes]:
        """The digests of objects, given those of what they refer to; unknown ones are left out."""
        found = {}
        for member in members:
            node = self._met[member]
            parts = [
                link
                if isinstance(link, bytes)
                else colours.get(link) or self._digests.get(link, b"")
                for link in node.links
            ]
            if not node.piece.is_ordered:
                parts.sort()
            found[member] = digest_of([node.piece.label, *parts])
        return found

    def _refined(self, members: list[int]) -> dict[int, bytes]:
        """The digests of the members of a circle: two are equal only if all within reach is."""
        old, colours = {}, self._colours(members, {})
        for _ in range(ROUNDS):
            old, colours = colours, self._colours(members, colours)
            if len(set(old.values())) == len(set(colours.values())):
                break
        else:
            place = {member: number for number, member in enumerate(members)}
            for member in members:
                inner = [place.get(link, -1) for link in self._met[member].links if link in place]
                colours[member] = digest_of([colours[member], label(place[member], inner)])
        pairs = sorted({old[member] + colours[member] for member in members})
        whole = digest_of(pairs)
        return {member: digest_of([colours[member], whole]) for member in members}

    def _message(self, words: Words, reason: str) -> str:
        steps = [node.words for node in self._path] + [words]
        shown = [str(step[0]).format(*step[1:]) for step in steps]
        first, rest = shown[0], shown[1:]
        if len(rest) > SHOWN_WORDS:
            rest = ["…", *rest[-SHOWN_WORDS:]]
        what = f"{first}: {', '.join(rest)}" if rest else first
        return f"{what} is {reason}, which cannot be keyed; {ADVICE}"
