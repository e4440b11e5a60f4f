"""Code as part of a key: what counts, what does not, and that another process finds the same."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hotset.errors import KeyingError
from hotset.keys.bytecode import instructions_of, names_of
from hotset.keys.graph import key_of

STEPS = '''
import abc
import contextlib
import dataclasses
import enum
import functools
import os
import sys
import types
import typing
from functools import lru_cache, singledispatch, wraps

import numpy as np
import torch

import near
from near import clip
from near import Mixin as Mixed

OFFSET = 100
TABLE = {"a": 101, "b": [102, {"c": 103}]}


def traced(function):
    @wraps(function)
    def wrapper(*args):
        return function(*args) + 104
    return wrapper


def outer(captured):
    def inner(x, by=105, *, bias=106):
        """The docstring."""
        import late
        from pack.deep import dig

        import pack.side as side
        # The comment.
        values = clip(x) + OFFSET + captured + by + bias
        return values + late.shift(x) + dig(x) + TABLE["a"] + near.stretch(x) + side.step(x)
    return inner


@traced
def decorated(x):
    return x + 107


@lru_cache(maxsize=108)
def cached(x):
    return x + 109


@singledispatch
def dispatched(x):
    return x + 110


@dispatched.register
def _(x: int):
    return x + 111


@torch.no_grad()
def without_gradients(x):
    return x + 131


@contextlib.contextmanager
def within(x):
    yield x + 132


class Rows(typing.NamedTuple):
    size: int = 133


@dataclasses.dataclass
class Record:
    size: int = 134
    many: list = dataclasses.field(default_factory=lambda: [135])


class Kind(enum.Enum):
    LARGE = 136


def generates(x):
    yield from (x + 137 for _ in range(2))


def cases(x):
    match x:
        case 138:
            return 139
    return lambda y: f"{x:140}{y}"


class Slotted:
    __slots__ = ("size",)

    def __init__(self):
        self.size = 141


class Described:
    def __get__(self, instance, owner):
        return 142


class Guarded:
    described = Described()

    def __init_subclass__(cls, **more):
        cls.extra = 143

    def __getattr__(self, name):
        return 144


class Guard(Guarded):
    pass


namespace = types.SimpleNamespace(size=145)


def uses_namespace(x):
    global COUNT
    COUNT = x
    return x + namespace.size + helper_of_namespace.run(x)


helper_of_namespace = types.SimpleNamespace(run=lambda x: x + 146)


def dynamic(x):
    import importlib

    return importlib.import_module("pack.side").step(x) + globals()["FOUND_BY_TEXT"]


FOUND_BY_TEXT = 147


def evaluated(x):
    exec("x = IN_CODE")
    return sys.modules["near"].found_in_modules(x)


IN_CODE = 148


def names_its_own_module(x):
    import steps

    return steps.names_its_own_module, steps.IN_MODULE + x


IN_MODULE = 154


class Methods:
    @functools.partialmethod
    def half(self, x=149):
        return x

    @functools.singledispatchmethod
    def dispatch(self, x):
        return x + 150

    @dispatch.register
    def _(self, x: int):
        return x + 151

    @abc.abstractmethod
    def todo(self):
        return 152


compiled = torch.compile(lambda x: x + 153)


def by_name(x):
    return getattr(near, "found_by_name")(x)


def from_environment(x):
    return x + int(os.environ.get("HOTSET_TEST_SIZE", "0"))


def even(n):
    return n == 0 or odd(n - 1)


def odd(n):
    return n == 112 or even(n - 1)


def caught(x):
    try:
        return x / 0
    except ZeroDivisionError:
        return 113


def makes_class():
    class Local:
        """Of a local class."""

        size = 114
    return Local


def default_of_keyword(x, *, size=115):
    return x + size


class Root:
    def prepare(self, x):
        return x + 116


class Base(Root):
    shared = 117


class Meta(type):
    def __call__(cls, *args):
        return super().__call__(*args)


class Step(Base, Mixed, metaclass=Meta):
    """The class."""

    factor: int = 118

    def __init__(self, size):
        super().__init__()
        self.size = size
        self.call = outer(119)
        self.nested = lambda x: (lambda y: y + 120)(x)
        self.part = functools.partial(clip, 121, limit=122)
        self.buffer = torch.tensor([1.0, 123.0])
        self.array = np.array([1, 124])
        self.more = [decorated, cached, dispatched, by_name, from_environment, even, caught]
        self.classes = [makes_class, default_of_keyword, Rows(), Record, Record(), Kind.LARGE]
        self.further = [without_gradients, within, generates, cases, Slotted(), Guard()]
        self.last = [uses_namespace, dynamic, evaluated, Methods, compiled]
        self.own = [names_its_own_module]
        self.text = "text125"

    @staticmethod
    def helped(x):
        return x + 126

    @classmethod
    def classed(cls, x):
        return x + 127

    @property
    def proper(self):
        return self.size + 128

    @functools.cached_property
    def kept(self):
        return self.size + 129

    def __call__(self, x):
        return self.prepare(x) * self.factor


step = Step(130)
'''
PROGRAM = {
    "steps.py": STEPS,
    "near.py": """
from far import scale

LIMIT = 200


def clip(x, limit=201):
    return min(scale(x), LIMIT, limit)


def stretch(x):
    return x * 202


def found_by_name(x):
    return x * 203


def unused(x):
    return x * 204


def found_in_modules(x):
    return x * 206


class Mixin:
    def mixed(self):
        return 205
""",
    "far.py": '''
FACTOR = 300


def scale(x):
    """Scales."""
    return x * FACTOR + 301
''',
    "late.py": """
def shift(x):
    return x + 400
""",
    "pack/__init__.py": "",
    "pack/deep.py": """
def dig(x):
    from . import side
    from .deeper import most
    return most(x) + 500
""",
    "pack/deeper.py": """
def most(x):
    return x + 501
""",
    "pack/side.py": """
SIDE = 502


def step(x):
    return x + SIDE
""",
}
NUMBERS = [
    *((f"steps.py {number}", "steps.py", str(number)) for number in range(100, 155)),
    *((f"near.py {number}", "near.py", str(number)) for number in (200, 201, 202, 203, 205, 206)),
    *((f"{name} {n}", name, str(n)) for name, n in (("far.py", 300), ("far.py", 301))),
    ("late.py 400", "late.py", "400"),
    ("pack/deep.py 500", "pack/deep.py", "500"),
    ("pack/deeper.py 501", "pack/deeper.py", "501"),
    ("pack/side.py 502", "pack/side.py", "502"),
]
UNCHANGED = {
    "comment": ("steps.py", "# The comment.", "# Another one,\n        # on two lines."),
    "comment at the top": ("steps.py", "import abc", "# A first line.\nimport abc"),
    "docstring of a function": ("steps.py", "The docstring.", "Another text."),
    "docstring gone": ("steps.py", '"""The docstring."""', ""),
    "docstring new": ("late.py", "    return", '    """New."""\n    return'),
    "docstring of a class": ("steps.py", '"""The class."""', '"""Changed.\n\n    More."""'),
    "docstring of a class gone": ("steps.py", '    """The class."""\n', ""),
    "docstring of a local class": ("steps.py", '"""Of a local class."""', ""),
    "docstring elsewhere": ("far.py", '"""Scales."""', '"""Scales it.\n    """'),
    "annotation": ("steps.py", "factor: int", "factor: object"),
    "annotation of an argument": ("late.py", "(x)", "(x: float)"),
    "unused function of a helper": ("near.py", "204", "999"),
    "blank lines": ("pack/side.py", "\ndef step", "\n\n\n\ndef step"),
}
CHANGED = {
    "base class": ("steps.py", "class Base(Root)", "class Base"),
    "order of bases": ("steps.py", "Step(Base, Mixed,", "Step(Mixed, Base,"),
    "metaclass": ("steps.py", ", metaclass=Meta", ""),
    "body of a metaclass": ("steps.py", "super().__call__(*args)", "super().__call__(*args[:1])"),
    "operator": ("late.py", "x + 400", "x - 400"),
    "1 and True": ("steps.py", "n == 0", "n == False"),
    "1 and 1.0": ("late.py", "400", "400.0"),
    "exception": ("steps.py", "except ZeroDivisionError", "except ArithmeticError"),
    "library function": ("near.py", "min(", "max("),
    "text": ("steps.py", "text125", "text126"),
    "key of a table": ("steps.py", '"b": [102', '"z": [102'),
    "new method": ("near.py", "    def mixed", "    def extra(self): pass\n\n    def mixed"),
    "decorator gone": ("steps.py", "@traced\n", ""),
    "static and class method": (
        "steps.py",
        "@staticmethod\n    def helped(x",
        "@classmethod\n    def helped(x",
    ),
    "attribute's name": ("steps.py", "self.text", "self.word"),
    "dtype of a buffer": ("steps.py", "tensor([1.0, 123.0])", "tensor([1.0, 123.0]).double()"),
    "keyword of a partial": ("steps.py", "121, limit=122", "121, 122"),
    "imported name": ("pack/deep.py", "import most", "import most as most, most as dig"),
}


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Writes a program's modules, imports `steps` and gives an object of it; each time anew."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    before = set(sys.modules)

    def forget() -> None:
        for name in set(sys.modules) - before:
            if name.partition(".")[0] in {"steps", "near", "far", "late", "pack"}:
                del sys.modules[name]

    def load(file: str = "", old: str = "", new: str = "", name: str = "step") -> Any:
        forget()
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        _write(folder, file, old, new)
        with monkeypatch.context() as patch:
            patch.syspath_prepend(str(folder))
            found = getattr(importlib.import_module("steps"), name)
            return key_of(found)

    yield load
    forget()


def _write(folder: Path, file: str = "", old: str = "", new: str = "") -> None:
    for path, text in PROGRAM.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        if path == file:
            assert old in text, f"{old!r} is not in {file}"
            text = text.replace(old, new)
        target.write_text(text, encoding="utf-8")


@pytest.mark.parametrize(("file", "number"), [n[1:] for n in NUMBERS], ids=[n[0] for n in NUMBERS])
def test_every_constant_counts(program: Any, file: str, number: str) -> None:
    """Of defaults, closures, globals, helpers at any distance, methods, bases, buffers."""
    assert program(file, number, f"9{number}") != program()


@pytest.mark.parametrize("change", CHANGED)
def test_changes_of_behaviour_count(program: Any, change: str) -> None:
    """Also those that leave every constant as it is."""
    assert program(*CHANGED[change]) != program()


@pytest.mark.parametrize("change", UNCHANGED)
def test_text_does_not_count(program: Any, change: str) -> None:
    """Comments, docstrings, annotations, places in the file, and the folder."""
    assert program(*UNCHANGED[change]) == program()


def test_environment_variable_counts(program: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable that the code names changes the key, another does not."""
    key = program()
    monkeypatch.setenv("HOTSET_TEST_SIZE", "5")
    with_variable = program()
    monkeypatch.setenv("HOTSET_TEST_OTHER", "5")
    assert with_variable not in (key,)
    assert program() == with_variable


def test_a_call_does_not_change_the_key(program: Any) -> None:
    """What is imported or cached by a call was known before."""
    program()
    step = sys.modules["steps"].step
    key = key_of(step)
    assert step(1) == (1 + 116) * 118
    assert step.kept == 130 + 129
    assert sys.modules["steps"].cached(1) == 110
    assert sys.modules["steps"].dispatched(1) == 112
    assert key_of(step) == key


RERUN = """
import json, sys
sys.path.insert(0, sys.argv[1])
import torch
junk = [object() for _ in range(int(sys.argv[2]))]
from hotset.keys.graph import key_of
import steps
from torchvision.transforms import v2
from torchvision import transforms
chain = transforms.Compose([transforms.Resize(8), transforms.ToTensor(), steps.step])
module = torch.nn.Sequential(torch.nn.Linear(2, 2))
torch.nn.init.constant_(module[0].weight, 0.5)
torch.nn.init.constant_(module[0].bias, 0.5)
def here(x, names={"a", "b", "c", steps.outer, steps.Step, steps.even}):
    return x in {"p", "q", "r"} or x in names
print(json.dumps([
    key_of(steps.step), key_of(steps.Step), key_of(steps.outer(1)), key_of(chain), key_of(module),
    key_of(here), key_of({"a", "b", "c", 1, 2.0, None, ("x", "y")}), key_of(v2.RandAugment()),
    key_of({steps.outer, steps.Step, steps.even, steps.Root, steps.Meta}),
    key_of([steps, frozenset({frozenset({"a", "b"}), frozenset({"c", "d"})})]),
]))
"""


def test_another_process_finds_the_same_keys(tmp_path: Path) -> None:
    """With another seed of hashing, in another folder, with other addresses."""
    found = []
    for number, seed in enumerate(("0", "1", "4242")):
        folder = tmp_path / f"copy{number}"
        _write(folder)
        done = subprocess.run(
            [sys.executable, "-c", RERUN, str(folder), str(number * 10_007)],
            capture_output=True,
            text=True,
            check=False,
            timeout=100,
            env={**os.environ, "PYTHONHASHSEED": seed},
        )
        assert done.returncode == 0, done.stderr
        found.append(json.loads(done.stdout))
    assert found[0] == found[1] == found[2]
    assert len(set(found[0])) == len(found[0])


def test_functions_without_a_file_are_keyed() -> None:
    """As those of a notebook, by their code."""

    def made(text: str) -> Any:
        space: dict[str, Any] = {}
        exec(text, space)
        return space["f"]

    assert key_of(made("def f(x): return x + 1")) == key_of(made("\n\ndef f(x): return x + 1"))
    assert key_of(made("def f(x): return x + 1")) != key_of(made("def f(x): return x + 2"))
    assert key_of(made("C = 1\ndef f(x): return C")) != key_of(made("C = 2\ndef f(x): return C"))


def test_bound_methods_count_by_their_object() -> None:
    """And by their function."""
    assert key_of([1, 2].append) == key_of([1, 2].append)
    assert key_of([1, 2].append) != key_of([1, 3].append)
    assert key_of("a".join) != key_of("a".split)
    assert key_of(Holder(1).call) == key_of(Holder(1).call)
    assert key_of(Holder(1).call) != key_of(Holder(2).call)
    assert key_of(Holder(1).call) != key_of(Holder(1).other)


class Holder:
    """Has methods."""

    def __init__(self, size: int) -> None:
        self.size = size

    def call(self) -> int:
        return self.size

    def other(self) -> int:
        return -self.size


def test_a_method_put_into_a_librarys_class_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a user's function stands in for the library's own."""
    torchvision = pytest.importorskip("torchvision.transforms")
    transform = torchvision.ToTensor()
    key = key_of(transform)
    monkeypatch.setattr(torchvision.ToTensor, "__call__", lambda self, image: image)
    assert key_of(transform) != key


def test_a_function_replaced_on_an_instance_counts() -> None:
    """Though its class is the same."""
    plain, patched = Holder(1), Holder(1)
    patched.call = lambda: 3  # type: ignore[method-assign]
    assert key_of(plain) != key_of(patched)


def test_a_missing_global_is_not_an_error() -> None:
    """It is found out about when the function runs; here it counts as missing."""
    space: dict[str, Any] = {}
    exec("def f(x): return not_there(x)", space)
    key = key_of(space["f"])
    space["not_there"] = abs
    assert key_of(space["f"]) != key


def test_a_failing_import_is_not_an_error() -> None:
    """An optional library may be absent."""
    space: dict[str, Any] = {"__name__": "some_script"}
    exec("def f(x):\n import hotset_not_there as h\n return h.run(x)", space)
    assert key_of(space["f"]) == key_of(space["f"])


def test_names_in_messages_are_the_users() -> None:
    """The message leads from the value to the culprit."""
    with open(__file__, encoding="utf-8") as handle:

        def read(x: Any) -> Any:
            return handle.read()

        with pytest.raises(
            KeyingError, match=r"item 1, closure variable 'handle' of read at "
        ) as e:
            key_of([1, read])
    assert "test_keys_code.py:" in str(e.value)
    assert "is an open file (_io.TextIOWrapper of" in str(e.value)
    assert 'pass version="…"' in str(e.value)


def test_instructions_hold_no_line_and_no_docstring() -> None:
    """Two functions that differ in these alone have the same instructions."""

    def bare(x: int) -> int:
        return x + 1

    def told(x: int) -> int:
        """Says so."""
        return x + 1

    assert instructions_of(bare.__code__) == instructions_of(told.__code__)


def test_names_of_code_include_those_of_nested_code() -> None:
    """Of lambdas and comprehensions inside, with imports."""

    def function(x: Any) -> Any:
        from os.path import join

        return [(lambda y: len(join(y, STEPS)))(z) for z in x]

    names = names_of(function.__code__)
    assert set(names.looked_up) == {"len", "STEPS"}
    assert [(i.name, i.level, i.members) for i in names.imports] == [("os.path", 0, ("join",))]
