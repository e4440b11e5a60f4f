"""What a code object does, apart from where it stands in its file, and the names it goes by."""

from __future__ import annotations

import dis
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import CodeType
from typing import Any

HAS_DOCSTRING = 0x4000000
"""A flag of code objects from Python 3.13 on."""
ABOUT_THE_TEXT = frozenset(("__doc__", "__firstlineno__", "__static_attributes__"))
"""What the body of a class stores about its own text."""
GLOBAL_OPS = frozenset(
    ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS", "STORE_GLOBAL", "DELETE_GLOBAL")
)


@dataclass(frozen=True)
class Import:
    """An import statement inside a function.

    Attributes:
        name: the module, as written after the dots.
        level: how many dots.
        members: what is imported from it; empty for `import name`.
    """

    name: str
    level: int
    members: tuple[str, ...]


@dataclass
class Names:
    """The names that a code object, and all code inside it, goes by.

    Attributes:
        looked_up: names of globals or builtins, in order of appearance.
        all: these and the names of attributes and modules.
        texts: the strings among its constants.
        imports: its import statements.
    """

    looked_up: dict[str, None] = field(default_factory=dict)
    all: set[str] = field(default_factory=set)
    texts: dict[str, None] = field(default_factory=dict)
    imports: dict[Import, None] = field(default_factory=dict)


def instructions_of(code: CodeType) -> tuple[list[tuple[int, Any]], list[Any]]:
    """The instructions, names and constants in place of their numbers; and the constants in order.

    A docstring takes up a constant, and with it the numbers of all others.
    """
    rows: list[tuple[int, Any]] = []
    constants: list[Any] = []
    for step in _steps(code):
        if step.opcode in dis.hasconst:
            rows.append((step.opcode, None))
            constants.append(step.argval)
        elif step.opcode in dis.hasname:
            # argrepr tells the forms of one instruction apart, as in "NULL + print".
            rows.append((step.opcode, step.argrepr))
        else:
            rows.append((step.opcode, step.arg))
    return rows, constants


def names_of(code: CodeType) -> Names:
    """The names that a code object and the code inside it go by."""
    names = Names()
    waiting = [code]
    while waiting:
        steps = list(_steps(waiting.pop()))
        for position, step in enumerate(steps):
            if step.opname == "IMPORT_NAME":
                level, members = (before.argval for before in steps[position - 2 : position])
                names.imports[Import(step.argval, level, tuple(members or ()))] = None
            elif step.opname in GLOBAL_OPS:
                names.looked_up[step.argval] = None
            if step.opcode in dis.hasname:
                names.all.update(str(step.argval).split("."))
            if step.opcode in dis.hasconst:
                waiting.extend(_codes_in(step.argval))
                names.texts.update(dict.fromkeys(_texts_in(step.argval)))
    return names


def _steps(code: CodeType) -> Iterator[dis.Instruction]:
    """The instructions, without what the body of a class stores about its own text."""
    held: dis.Instruction | None = None
    for step in dis.get_instructions(code):
        if step.opname == "EXTENDED_ARG":
            continue
        if step.opname == "STORE_NAME" and step.argval in ABOUT_THE_TEXT:
            held = None
            continue
        if held is not None:
            yield held
        held = step
    if held is not None:
        yield held


def _codes_in(constant: Any) -> Iterator[CodeType]:
    if isinstance(constant, CodeType):
        yield constant


def _texts_in(constant: Any) -> Iterator[str]:
    if isinstance(constant, str):
        yield constant
    elif isinstance(constant, (tuple, frozenset)):
        for item in constant:
            yield from _texts_in(item)
