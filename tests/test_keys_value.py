"""Values as part of a key: equal bits, equal key; any other bit, another key."""

from __future__ import annotations

import asyncio
import ctypes
import datetime
import decimal
import enum
import functools
import io
import itertools
import mmap
import pathlib
import random
import re
import socket
import sqlite3
import struct
import subprocess
import sys
import threading
import types
import weakref
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hotset.errors import HotsetError, KeyingError
from hotset.keys.graph import key_of
from hotset.keys.piece import plain_bytes

ATOMS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.complex_numbers()
    | st.text(max_size=3)
    | st.binary(max_size=3)
    | st.sampled_from([0, 1, True, False, 1.0, 0.0, -0.0, "", b"", "1", b"1", 2**31, -(2**31)])
)
HASHABLE = st.recursive(ATOMS, lambda inner: st.tuples(inner) | st.tuples(inner, inner))
VALUES = st.recursive(
    ATOMS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(HASHABLE, inner, max_size=3)
        | st.sets(HASHABLE, max_size=3)
        | st.frozensets(HASHABLE, max_size=3)
    ),
    max_leaves=8,
)


def canonical(value: Any) -> Any:
    """What tells values apart: types, bits, and the order of all but sets."""
    name = type(value).__name__
    if isinstance(value, float):
        return name, struct.pack("d", value)
    if isinstance(value, complex):
        return name, struct.pack("dd", value.real, value.imag)
    if isinstance(value, (list, tuple)):
        return name, [canonical(item) for item in value]
    if isinstance(value, dict):
        return name, [(canonical(key), canonical(item)) for key, item in value.items()]
    if isinstance(value, (set, frozenset)):
        return name, sorted((canonical(item) for item in value), key=repr)
    return name, repr(value)


@given(VALUES, VALUES)
def test_keys_are_equal_exactly_where_values_are(a: Any, b: Any) -> None:
    """In every bit, and in the order of dictionaries."""
    assert (key_of(a) == key_of(b)) == (canonical(a) == canonical(b))


@given(VALUES)
def test_keys_do_not_depend_on_identity(value: Any) -> None:
    """Nor on whether equal parts are one object, nor on what surrounds them."""

    def copied(part: Any) -> Any:
        if isinstance(part, (list, tuple, set, frozenset)):
            return type(part)(copied(item) for item in part)
        if isinstance(part, dict):
            return {copied(key): copied(item) for key, item in part.items()}
        return part

    assert key_of(value) == key_of(copied(value))
    assert key_of([value, value]) == key_of([value, copied(value)])


@given(st.lists(HASHABLE, unique_by=lambda item: repr(canonical(item)), max_size=6), st.randoms())
def test_order_of_sets_does_not_count(items: list[Any], shuffle: random.Random) -> None:
    """In whatever order they were filled."""
    shuffled = list(items)
    shuffle.shuffle(shuffled)
    assume_same = set(items)
    assert key_of(assume_same) == key_of({item for item in assume_same for _ in shuffled} or set())
    if len(set(items)) == len(items):
        assert key_of(set(items)) == key_of(set(shuffled))


@given(VALUES)
def test_fast_path_takes_what_it_can_tell_apart(value: Any) -> None:
    """A plain value's bytes are the same for a copy, and differ from those of its neighbours."""
    plain = plain_bytes(value)
    if plain is not None:
        assert plain == plain_bytes(value)
        assert plain != plain_bytes([value, 0])


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


class Plain:
    def __init__(self, **state: Any) -> None:
        self.__dict__.update(state)


class Slotted:
    __slots__ = ("a", "b")

    def __init__(self, a: Any) -> None:
        self.a = a


class WithState:
    def __init__(self, size: int, handle: Any = None) -> None:
        self.size, self.handle = size, handle

    def __getstate__(self) -> dict[str, int]:
        return {"size": self.size}


class Listed(list):  # type: ignore[type-arg]
    pass


def _image(pixel: int, mode: str = "L") -> Any:
    return pytest.importorskip("PIL.Image").new(mode, (2, 2), pixel)


def _palette(first: int) -> Any:
    image = _image(0, "P")
    image.putpalette([first, 2, 3] * 256)
    return image


def _hooked(*hooks: Any) -> torch.nn.Module:
    module = torch.nn.Identity()
    for hook in hooks:
        module.register_forward_hook(hook)
    return module


def _normed(weight: float) -> torch.nn.Module:
    module = torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(1, 1, bias=False))
    for parameter in module.parameters():
        torch.nn.init.constant_(parameter, weight)
    return module


def _module(weight: float) -> torch.nn.Module:
    module = torch.nn.BatchNorm2d(2)
    module.running_mean.fill_(weight)
    return module


DIFFERENT: list[tuple[Callable[[], Any], Callable[[], Any]]] = [
    (lambda: 1, lambda: True),
    (lambda: 1, lambda: 1.0),
    (lambda: 0.0, lambda: -0.0),
    (lambda: "a", lambda: b"a"),
    (lambda: b"a", lambda: bytearray(b"a")),
    (lambda: [1], lambda: (1,)),
    (lambda: [[1], 2], lambda: [1, [2]]),
    (lambda: [object], lambda: (object,)),
    (lambda: {"a": object}, lambda: {"b": object}),
    (lambda: {1}, lambda: frozenset({1})),
    (lambda: ..., lambda: NotImplemented),
    (lambda: range(3), lambda: range(0, 3, 2)),
    (lambda: slice(3), lambda: slice(4)),
    (lambda: re.compile("a"), lambda: re.compile("b")),
    (lambda: re.compile("a"), lambda: re.compile("a", re.IGNORECASE)),
    (lambda: datetime.date(2026, 1, 1), lambda: datetime.date(2026, 1, 2)),
    (lambda: decimal.Decimal("1.0"), lambda: decimal.Decimal("1.00")),
    (lambda: Fraction(1, 3), lambda: Fraction(1, 4)),
    (lambda: pathlib.PurePosixPath("a"), lambda: pathlib.PurePosixPath("b")),
    (lambda: pathlib.PurePosixPath("a"), lambda: "a"),
    (lambda: Colour.RED, lambda: Colour.BLUE),
    (lambda: functools.partial(int, base=2), lambda: functools.partial(int, base=3)),
    (lambda: functools.partial(max, 2), lambda: functools.partial(max, 3)),
    (lambda: functools.partial(max, 2), lambda: functools.partial(min, 2)),
    (lambda: OrderedDict(a=1), lambda: {"a": 1}),
    (lambda: OrderedDict(a=1), lambda: OrderedDict(a=2)),
    (lambda: defaultdict(list), lambda: defaultdict(dict)),
    (lambda: Counter("a"), lambda: Counter("ab")),
    (lambda: deque([1]), lambda: deque([1], maxlen=2)),
    (lambda: Listed([1]), lambda: Listed([2])),
    (lambda: Listed([1]), lambda: [1]),
    (lambda: Plain(a=1), lambda: Plain(a=2)),
    (lambda: Plain(a=1), lambda: Plain(b=1)),
    (lambda: Slotted(1), lambda: Slotted(2)),
    (lambda: WithState(1), lambda: WithState(2)),
    (lambda: types.SimpleNamespace(a=1), lambda: types.SimpleNamespace(a=2)),
    (lambda: types.MappingProxyType({1: 2}), lambda: types.MappingProxyType({1: 3})),
    (lambda: io.BytesIO(b"a"), lambda: io.BytesIO(b"b")),
    (lambda: iter([1, 2]), lambda: iter([1, 3])),
    (lambda: itertools.chain, lambda: itertools.count),
    (lambda: random.Random(1), lambda: random.Random(2)),
    (lambda: np.random.default_rng(1), lambda: np.random.default_rng(2)),
    (lambda: torch.Generator().manual_seed(1), lambda: torch.Generator().manual_seed(2)),
    (lambda: torch.float16, lambda: torch.bfloat16),
    (lambda: torch.device("cpu"), lambda: torch.device("cuda")),
    (lambda: torch.Size((1, 2)), lambda: (1, 2)),
    (lambda: np.float32, lambda: np.float64),
    (lambda: np.dtype("f4"), lambda: np.dtype(">f4")),
    (lambda: np.float32(1), lambda: np.float64(1)),
    (lambda: np.zeros(3), lambda: np.zeros((3, 1))),
    (lambda: np.zeros(3), lambda: np.zeros(3, np.float32)),
    (lambda: np.zeros(0), lambda: np.zeros((0, 2))),
    (lambda: np.array(["a"]), lambda: np.array(["b"])),
    (lambda: np.array([1, None]), lambda: np.array([2, None])),
    (lambda: np.array([(1, 2)], "i4,i4"), lambda: np.array([(1, 3)], "i4,i4")),
    (lambda: np.array(["2026-01-01"], "M8[D]"), lambda: np.array(["2026-01-02"], "M8[D]")),
    (lambda: np.ma.array([1], mask=[False]), lambda: np.ma.array([1], mask=[True])),
    (lambda: np.add, lambda: np.subtract),
    (lambda: np.mean, lambda: np.median),
    (lambda: torch.add, lambda: torch.sub),
    (lambda: torch.nn.functional.relu, lambda: torch.nn.functional.gelu),
    (lambda: torch.ops.aten.add, lambda: torch.ops.aten.sub),
    (lambda: str.upper, lambda: str.lower),
    (lambda: torch.zeros(3), lambda: torch.zeros(3, 1)),
    (lambda: torch.zeros(3), lambda: torch.zeros(3).half()),
    (lambda: torch.zeros(3), lambda: torch.tensor([0.0, 0, -0.0])),
    (lambda: torch.zeros(3), lambda: torch.nn.Parameter(torch.zeros(3))),
    (lambda: torch.zeros(()), lambda: torch.zeros(1)),
    (lambda: torch.eye(2).bfloat16(), lambda: torch.ones(2, 2).bfloat16()),
    (lambda: torch.eye(2).to_sparse(), lambda: torch.eye(2)),
    (lambda: torch.eye(2).to_sparse(), lambda: (2 * torch.eye(2)).to_sparse()),
    (lambda: torch.tensor([1j]), lambda: torch.tensor([1j]).conj()),
    (lambda: _image(1), lambda: _image(2)),
    (lambda: _image(1), lambda: _image(1, "P")),
    (lambda: _palette(1), lambda: _palette(2)),
    (lambda: _module(1), lambda: _module(2)),
    (lambda: _module(1), lambda: _module(1).eval()),
    (lambda: _normed(1), lambda: _normed(2)),
    (lambda: _hooked(abs), lambda: _hooked(len)),
    (lambda: _hooked(abs, len), lambda: _hooked(len, abs)),
    (lambda: torch.finfo(torch.float16), lambda: torch.finfo(torch.bfloat16)),
    (lambda: list[int], lambda: list[str]),
    (lambda: int | None, lambda: str | None),
    (lambda: weakref.ref(Colour), lambda: weakref.ref(Plain)),
    (lambda: property(abs), lambda: property(len)),
    (lambda: staticmethod(abs), lambda: classmethod(abs)),
    (lambda: functools.lru_cache(8)(abs), lambda: functools.lru_cache(9)(abs)),
    (lambda: {1: 2}.items(), lambda: {1: 3}.items()),
    (lambda: (ctypes.c_int * 2)(1, 2), lambda: (ctypes.c_int * 2)(1, 3)),
]


@pytest.mark.parametrize("number", range(len(DIFFERENT)))
def test_different_values_have_different_keys(number: int) -> None:
    """And each, made anew, has its own key again."""
    one, other = DIFFERENT[number]
    assert key_of(one()) == key_of(one())
    assert key_of(other()) == key_of(other())
    assert key_of(one()) != key_of(other())


def test_key_is_32_hexadecimal_digits() -> None:
    """16 bytes of blake2b."""
    assert re.fullmatch("[0-9a-f]{32}", key_of(None))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (lambda: torch.arange(6).reshape(2, 3).T, lambda: torch.arange(6).reshape(2, 3).T.clone()),
        (lambda: torch.arange(6)[::2], lambda: torch.tensor([0, 2, 4])),
        (lambda: torch.ones(1).expand(4), lambda: torch.ones(4)),
        (lambda: np.arange(6).reshape(2, 3).T, lambda: np.arange(6).reshape(2, 3).T.copy()),
        (lambda: np.arange(6)[::-2], lambda: np.array([5, 3, 1])),
        (lambda: torch.zeros(2, requires_grad=True), lambda: torch.zeros(2)),
        (lambda: float("nan"), lambda: float("nan")),
        (lambda: WithState(1, threading.Lock()), lambda: WithState(1)),
        (lambda: Plain(a=1, b=2), lambda: Plain(b=2, a=1)),
        (lambda: torch.tensor([1 + 1j]).conj(), lambda: torch.tensor([1 - 1j])),
        (lambda: random.random, lambda: (random.random(), random.random)[1]),
        (lambda: np.random.rand, lambda: (np.random.rand(), np.random.rand)[1]),
    ],
)
def test_what_does_not_count(one: Callable[[], Any], other: Callable[[], Any]) -> None:
    """Strides, gradients, the order of attributes, what pickle drops, the process's generators."""
    assert key_of(one()) == key_of(other())


def test_value_of_cached_property_does_not_count() -> None:
    """It is derived from the rest."""

    class Lazy:
        def __init__(self) -> None:
            self.size = 3

        @functools.cached_property
        def area(self) -> int:
            return self.size**2

    lazy = Lazy()
    key = key_of(lazy)
    assert lazy.area == 9
    assert key_of(lazy) == key


def test_subclass_of_tensor_counts_with_its_attributes() -> None:
    """As torchvision's boxes with their format."""
    tv = pytest.importorskip("torchvision.tv_tensors")
    data = torch.zeros(1, 4)
    boxes = tv.BoundingBoxes(data, format="XYXY", canvas_size=(4, 4))
    other = tv.BoundingBoxes(data, format="XYWH", canvas_size=(4, 4))
    assert len({key_of(value) for value in (boxes, other, data, tv.Image(data))}) == 4


def test_transforms_count_by_all_their_parameters() -> None:
    """Of v1 and v2, nested."""
    v1 = pytest.importorskip("torchvision.transforms")
    v2 = pytest.importorskip("torchvision.transforms.v2")
    chains = [
        v1.Compose([v1.Resize(8), v1.ToTensor()]),
        v1.Compose([v1.Resize(9), v1.ToTensor()]),
        v1.Compose([v1.Resize(8, v1.InterpolationMode.NEAREST), v1.ToTensor()]),
        v2.Compose([v2.Resize(8), v2.ToImage()]),
        v2.RandomApply([v2.ColorJitter(0.1)], p=0.5),
        v2.RandomApply([v2.ColorJitter(0.2)], p=0.5),
        v2.Lambda(lambda x: x + 1),
        v2.Lambda(lambda x: x + 2),
        v1.Normalize((0.5,), (0.5,)),
        v2.ToDtype(torch.float32, scale=True),
        v2.ToDtype(torch.float32, scale=False),
    ]
    assert len({key_of(chain) for chain in chains}) == len(chains)


def _generator() -> Iterator[int]:
    yield 1


def _traceback() -> Any:
    try:
        raise ValueError("for its traceback")
    except ValueError as error:
        return error.__traceback__


async def _coroutine() -> None:
    pass


class Stateless:
    def __reduce_ex__(self, protocol: Any) -> Any:
        raise RuntimeError("no state")


HERE = pathlib.Path(__file__)
UNKEYABLE: dict[str, tuple[Callable[[ExitStack], Any], str]] = {
    "text file": (lambda s: s.enter_context(HERE.open(encoding="utf-8")), "an open file"),
    "binary file": (lambda s: s.enter_context(HERE.open("rb")), "an open file"),
    "socket": (lambda s: s.enter_context(socket.socket()), "a socket"),
    "generator": (lambda s: _generator(), "a generator"),
    "coroutine": (lambda s: s.enter_context(_Closed(_coroutine())), "a coroutine"),
    "map over a generator": (lambda s: map(str, _generator()), "argument 1 of map is a generator"),
    "iterator of a file": (lambda s: enumerate(s.enter_context(HERE.open())), "an open file"),
    "lock": (lambda s: threading.Lock(), "a lock"),
    "lock that may be taken again": (lambda s: threading.RLock(), "a lock"),
    "condition": (lambda s: threading.Condition(), "is a lock"),
    "thread": (lambda s: threading.Thread(), "a thread"),
    "event loop": (lambda s: s.enter_context(_Closed(asyncio.new_event_loop())), "which cannot"),
    "database": (lambda s: s.enter_context(_Closed(sqlite3.connect(":memory:"))), "open database"),
    "memory map": (lambda s: s.enter_context(mmap.mmap(-1, 8)), "a memory map"),
    "pointer": (lambda s: ctypes.pointer(ctypes.c_int(3)), "a pointer of ctypes"),
    "library of ctypes": (lambda s: ctypes.CDLL(None), "a library opened by ctypes"),
    "frame": (lambda s: sys._getframe(), "a running frame"),
    "traceback": (lambda s: _traceback(), "a traceback"),
    "match": (lambda s: re.match("a", "a"), "does not give its state"),
    "tensor without data": (lambda s: torch.empty(2, device="meta"), "the device 'meta'"),
    "state that fails": (lambda s: Stateless(), "Stateless"),
    "process": (
        lambda s: s.enter_context(subprocess.Popen([sys.executable, "-c", ""])),
        "a process",
    ),
}


class _Closed:
    """Closes at the end."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def __enter__(self) -> Any:
        return self._value

    def __exit__(self, *error: Any) -> None:
        self._value.close()


@pytest.mark.parametrize("what", UNKEYABLE)
def test_what_cannot_be_keyed_is_refused(what: str) -> None:
    """At any depth, with the way there and what to do."""
    make, words = UNKEYABLE[what]
    with ExitStack() as stack:
        value = make(stack)
        with pytest.raises(KeyingError, match=words):
            key_of(value)
        with pytest.raises(KeyingError, match="attribute 'held' of Plain, item 'a', item 1") as e:
            key_of(Plain(held={"a": (0, value)}))
    assert 'which cannot be keyed; pass version="…"' in str(e.value)
    assert isinstance(e.value, HotsetError)
    assert isinstance(e.value, TypeError)


def _ufunc_of(code: str, name: str = "h") -> Any:
    space: dict[str, Any] = {"np": np}
    exec(f"def {name}(x, y=0):\n    return {code}\n", space)
    return np.frompyfunc(space[name], 1, 1)


def test_ufuncs_of_the_users_count_by_their_function() -> None:
    """Two of one name differ where their code does; the other way round they agree."""
    first, again, other = _ufunc_of("x + 1"), _ufunc_of("x + 1"), _ufunc_of("x + 2")
    assert key_of(first) == key_of(again)
    assert key_of(first) != key_of(other)
    assert key_of(_ufunc_of("x + 1", "absolute")) != key_of(np.absolute)
    wider = np.frompyfunc(lambda x, y=0: x + y, 2, 1)
    narrow = np.frompyfunc(lambda x, y=0: x + y, 1, 1)
    assert key_of(wider) != key_of(narrow)


def test_ufuncs_of_libraries_count_by_name() -> None:
    """NumPy's own, those of its parts, and those of another library that has it in a module."""
    parts: Any = np.linalg
    names = [np.add, np.abs, np.multiply, parts._umath_linalg.det, np.strings.isalpha]
    assert len({key_of(ufunc) for ufunc in names}) == len(names)
    assert key_of(np.abs) == key_of(np.absolute)


def test_ufunc_that_is_nowhere_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """One made by C code, which no library has under its name."""
    kept = np.hypot
    for module in list(sys.modules.values()):
        if getattr(module, "__dict__", {}).get("hypot") is kept:
            monkeypatch.delitem(vars(module), "hypot")
    with pytest.raises(KeyingError, match=r"a ufunc that no library has under its name \(hypot\)"):
        key_of(kept)
