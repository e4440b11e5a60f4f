"""Files that hotset did not write: refused by an error of its own, or read as they were."""

from __future__ import annotations

import copy
import json
import os
import random
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hotset
from hotset.errors import FormatError, MissingDataError, StorageError
from hotset.store import blocks, files
from hotset.store.layout import seal_of
from hotset.store.store import Verify
from tests.stores import Pair, assert_holds, assert_identical, mixed_sample, stored
from tests.test_store_format import write_golden

PLAIN = (FormatError, MissingDataError, StorageError)


class Target:
    """A store whose files are exchanged, and put back.

    Args:
        path: of the store.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        store = hotset.open(path)
        self.samples = [store[index] for index in range(len(store))]
        self.files = {file.name: file.read_bytes() for file in sorted(path.iterdir())}
        self.manifest = json.loads(self.files["manifest.json"])
        self.reads: list[str] = []
        self.tried, self.refused = 0, 0

    def seal(self, body: Any) -> bytes:
        """A manifest's text, with the seal that fits it."""
        body = {**body, "seal": seal_of(json.loads(json.dumps(body)))}
        return json.dumps(body).encode()

    def attempt(self, name: str, content: bytes, *, is_sealed: bool = False) -> None:
        """Fails unless the store, with a file exchanged, is refused in plain words or the same.

        Args:
            name: of the file.
            content: of the file.
            is_sealed: whether the manifest may say something else than what was written: samples
                may then be others, but nothing else than samples.
        """
        file = self.path / name
        file.write_bytes(content)
        verify: Verify
        try:
            for verify in ("touch", "open", "never"):
                self.tried += 1
                words = ""
                try:
                    self.read(verify, is_same=not is_sealed and verify != "never")
                except PLAIN as error:
                    words = str(error)
                    self.refused += 1
                assert len(words) < 5000
                if words and is_sealed:
                    break  # what is said of a manifest is said in any case
        finally:
            file.write_bytes(self.files[name])

    def read(self, verify: Verify, *, is_same: bool) -> None:
        """Reads all samples, and what else a store tells."""
        store = hotset.open(self.path, verify=verify)
        assert repr(store).startswith("Store(")
        assert store.nbytes >= 0
        for index in range(min(len(store), 8)):
            sample = store[index]
            if is_same:
                assert_identical(sample, self.samples[index])
        if is_same:
            assert len(store) == len(self.samples)
        if len(store) < 10_000:
            for one in store.damaged():
                assert str(one)
            _ = store.rows


@pytest.fixture
def targets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Target]:
    """Two small stores: one of all kinds of leaves, one with a table and rows out of order."""
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 64)
    store = stored([mixed_sample(index) for index in range(6)], tmp_path / "a" / "a.hotset")
    (tmp_path / "b").mkdir()
    found = [Target(store.path), Target(write_golden(tmp_path / "b"))]
    watch_opens(monkeypatch, [target.path for target in found])
    return found


def watch_opens(monkeypatch: pytest.MonkeyPatch, allowed: list[Path]) -> None:
    """From now on, only files in the stores may be mapped or opened."""
    mapped = files._mapped

    def check(path: Any) -> None:
        assert Path(os.path.normpath(path)).parent in allowed, f"{path} is opened"

    def checked_map(path: Path, file: Any) -> Any:
        check(path)
        return mapped(path, file)

    def checked_open(path: Any, mode: str) -> Any:
        check(path)
        return open(path, mode)

    monkeypatch.setattr(files, "_mapped", checked_map)
    monkeypatch.setattr(files, "open", checked_open, raising=False)


def changed(content: bytes, draw: random.Random) -> bytes:
    """Bytes of which some were turned, left out, put in or moved."""
    place = draw.randrange(len(content))
    length = draw.choice((1, 1, 2, 8, 100))
    return {
        "flip": content[:place]
        + bytes([content[place] ^ 1 << draw.randrange(8)])
        + content[place + 1 :],
        "set": content[:place] + draw.randbytes(length) + content[place + length :],
        "cut": content[:place],
        "drop": content[:place] + content[place + length :],
        "insert": content[:place] + draw.randbytes(length) + content[place:],
        "repeat": content[:place] + content[place : place + length] * 2 + content[place + length :],
        "zeros": content[:place] + bytes(length) + content[place + length :],
        "empty": b"",
    }[draw.choice(("flip", "flip", "set", "cut", "drop", "insert", "repeat", "zeros", "empty"))]


@pytest.mark.parametrize("seed", range(4))
def test_bytes_that_changed(seed: int, targets: list[Target]) -> None:
    """In the manifest and in every array: flipped, cut off, left out, put in."""
    draw = random.Random(seed)
    for target in targets:
        for name, content in target.files.items():
            for _ in range(20 if name == "manifest.json" else 4):
                target.attempt(name, changed(content, draw))
    assert sum(target.tried for target in targets) > 500


ODD: list[Any] = [
    *(-1, 0, 1, 2, 3, 7, 8, 63, 64, 65, 255, 256, 2**31 - 1, 2**31, 2**32, 2**53 + 1),
    *(2**61, 2**62, 2**62 + 1, 2**63 - 1, 2**63, 2**64, 10**30, 10**4000, -(2**63)),
    *(0.0, 1.5, -1.0, 1e308, float("inf"), float("nan"), True, False, None),
    *("", "a", "../a", "/etc/passwd", "a/b", "a\x00b", "\ud800", "x" * 1000, ".", "..", "CON"),
    *("dense", "ragged", "image", "tensor", "array", "int", "str", "bytes", "scalar", "other"),
    *("uint8", "int64", "float32", "bfloat16", "bool", "uint4", "qint8", "complex128", "object"),
    *("RGB", "L", "F", "P", "I;16", "torch.Tensor", "PIL.Image.Image", "numpy.ndarray"),
    *("os.system", "builtins.eval", "numpy.load", "torch.load", "numpy.bool", "numpy.str_"),
    *("|u1", "<i8", "|O", "<u2", "manifest.json", "rows.npy", "table.npy", "image.index.npy"),
    *([], {}, [0], [-1], [2**62], [0, 2**62, 2**62], [1] * 40, [[]], {"a": 1}, ["RGB"] * 200),
    *({"tuple": [0]}, {"tuple": [0, 0]}, {"list": []}, {"dict": ["a", "a"], "children": [0, 1]}),
    *({"namedtuple": ["os", "stat_result", ["a"]], "children": [0]}, ["image.npy"], ["F"]),
    {"namedtuple": ["tests.stores", "Pair", ["left", "right"]], "children": [0, 1]},
    {"namedtuple": ["builtins", "eval", ["a"]], "children": [0]},
    {"class": "torch.Tensor", "dtype": "float32"},
    {"header_bytes": 128, "payload_bytes": 0, "block_bytes": 64, "crc32": []},
]


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in plain values; of long lists the first and the last."""
    yield path
    if isinstance(value, dict):
        for key in value:
            yield from places(value[key], (*path, key))
    elif isinstance(value, list):
        for position in sorted({*range(min(6, len(value))), len(value) - 1} - {-1}):
            yield from places(value[position], (*path, position))


def replaced(body: Any, path: tuple[Any, ...], change: Callable[[Any, Any], None]) -> Any:
    """A copy in which one place was changed."""
    found = copy.deepcopy(body)
    inner = found
    for key in path[:-1]:
        inner = inner[key]
    change(inner, path[-1])
    return found


def put(value: Any) -> Callable[[Any, Any], None]:
    """Puts a value in a place."""

    def change(inner: Any, key: Any) -> None:
        inner[key] = copy.deepcopy(value)

    return change


def remove(inner: Any, key: Any) -> None:
    """Takes a place away."""
    del inner[key]


def twice(inner: Any, key: Any) -> None:
    """Has what is in a place twice."""
    if isinstance(inner, list):
        inner.insert(key, copy.deepcopy(inner[key]))
    else:
        inner[f"{key}x"] = copy.deepcopy(inner[key])


def near(inner: Any, key: Any) -> None:
    """A number that is a bit off, a text that lacks its end, a list in another order."""
    value = inner[key]
    if isinstance(value, (int, float)):
        inner[key] = value + 1
    elif isinstance(value, str):
        inner[key] = value[:-1]
    elif isinstance(value, list):
        inner[key] = value[::-1]
    else:
        inner[key] = dict(reversed(value.items())) if isinstance(value, dict) else 0


def test_manifests_that_say_something_else(targets: list[Target]) -> None:
    """With a seal that fits: each place is left out, doubled, a bit off, or of another kind."""
    draw = random.Random(0)
    for target in targets:
        body = {key: value for key, value in target.manifest.items() if key != "seal"}
        for path in places(body):
            if not path or (target is targets[0] and draw.random() < 0.6):
                continue
            for change in (remove, twice, near, *(put(value) for value in draw.sample(ODD, 2))):
                changed_body = replaced(body, path, change)
                target.attempt("manifest.json", target.seal(changed_body), is_sealed=True)
    assert sum(target.tried for target in targets) > 1500
    assert sum(target.refused for target in targets) > 1000


def test_odd_values_in_every_kind_of_place(targets: list[Target]) -> None:
    """In the first field of either kind, the first file, and what stands above."""
    target, draw = targets[0], random.Random(0)
    body = {key: value for key, value in target.manifest.items() if key != "seal"}
    kinds = {
        *((key,) for key in body),
        *(("fields", 0, key) for key in body["fields"][0]),
        *(("fields", 1, "shape", 0), ("fields", 0, "modes", 0), ("structure", "children", 0)),
        *(("files", "image.index.npy", key) for key in body["files"]["image.index.npy"]),
        ("files", "image.index.npy", "crc32", 0),
        ("files", "image.index.npy"),
    }
    for path in sorted(kinds, key=str):
        for value in draw.sample(ODD, 25):
            content = target.seal(replaced(body, path, put(value)))
            target.attempt("manifest.json", content, is_sealed=True)


def test_swapped_parts_of_manifests(targets: list[Target]) -> None:
    """Two fields, two files, or two of their properties have changed places."""
    draw = random.Random(0)
    for target in targets:
        body = {key: value for key, value in target.manifest.items() if key != "seal"}
        for _ in range(60):
            found = copy.deepcopy(body)
            part = found[draw.choice(("fields", "files"))]
            keys = list(part) if isinstance(part, dict) else list(range(len(part)))
            one, other = draw.sample(keys, 2)
            if draw.random() < 0.5:
                part[one], part[other] = part[other], part[one]
            else:
                name = draw.choice(sorted(set(part[one]) & set(part[other])))
                part[one][name], part[other][name] = part[other][name], part[one][name]
            target.attempt("manifest.json", target.seal(found), is_sealed=True)


def test_manifests_that_are_odd_as_a_text(targets: list[Target]) -> None:
    """Nested without end, keys twice, numbers without end, other encodings, other values."""
    target = targets[0]
    text = target.files["manifest.json"].decode()
    deep = 100_000
    for odd in (
        "[" * deep + "]" * deep,
        '{"a":' * deep + "1" + "}" * deep,
        '{"format": "hotset store", "version": 1, "made": ' + "[" * deep + "]" * deep + "}",
        text.replace('"samples": 6', '"samples": 6, "samples": 7', 1),
        text.replace('"samples": 6', '"samples": 6, "samples": 6', 1),
        text.replace('"samples": 6', f'"samples": {"9" * 5000}', 1),
        text.replace('"version": 1', f'"version": {"9" * 4000}', 1),
        text.replace('"version": 1', '"version": true', 1),
        text.replace('"version": 1', '"version": 0', 1),
        text.replace('"version": 1', '"version": "1"', 1),
        text.replace('"version": 1', '"version": 1.0', 1),
        text.replace('"samples": 6', '"samples": NaN', 1),
        *("", " ", "null", "[]", "{}", "1", '"hotset store"', "\x00", "{" * 100),
    ):
        target.attempt("manifest.json", odd.encode())
    for odd_bytes in (text.encode("utf-16"), b"\xff" + text.encode(), text.encode() + b"\x80"):
        target.attempt("manifest.json", odd_bytes)
    for depth in (10, 63, 64, 65, 200, 300):
        nested: Any = 0
        for _ in range(depth):
            nested = {"tuple": [nested]}
        for part in ("structure", "made", "fingerprint", "fields"):
            body = {key: value for key, value in target.manifest.items() if key != "seal"}
            body[part] = nested
            target.attempt("manifest.json", target.seal(body), is_sealed=True)


def test_indices_that_lead_elsewhere(targets: list[Target]) -> None:
    """With checksums that fit: rows before, behind and across the end, huge and negative shapes."""
    import zlib

    target = targets[0]
    draw = random.Random(0)
    odd = [value for value in ODD if type(value) is int and -(2**63) <= value < 2**63]
    for name in [name for name in target.files if name.endswith(".index.npy")]:
        entry = target.manifest["files"][name]
        header, content = entry["header_bytes"], target.files[name]
        for _ in range(40):
            place = header + 8 * draw.randrange(entry["payload_bytes"] // 8)
            values = b"".join(
                draw.choice(odd).to_bytes(8, "little", signed=True)
                for _ in range(draw.choice((1, 1, 2, 3)))
            )
            found = content[:place] + values + content[place + len(values) :]
            found = found[: len(content)]
            body = {key: value for key, value in target.manifest.items() if key != "seal"}
            body = copy.deepcopy(body)
            size = entry["block_bytes"]
            body["files"][name]["crc32"] = [
                zlib.crc32(found[start : start + size]) for start in range(header, len(found), size)
            ]
            (target.path / name).write_bytes(found)
            target.attempt("manifest.json", target.seal(body), is_sealed=True)
            (target.path / name).write_bytes(content)


@pytest.mark.parametrize("name", ["../a.npy", "/etc/passwd", "a/b.npy", "..npy", "manifest.json"])
def test_names_that_lead_elsewhere(name: str, targets: list[Target]) -> None:
    """Of fields and of files: refused before anything is looked at."""
    target = targets[0]
    (target.path.parent / "a.npy").write_bytes(target.files["same.npy"])
    body = {key: value for key, value in target.manifest.items() if key != "seal"}
    found = copy.deepcopy(body)
    found["files"][name] = found["files"].pop("same.npy")
    found["fields"][1]["name"] = name.removesuffix(".npy")
    (target.path / "manifest.json").write_bytes(target.seal(found))
    with pytest.raises(FormatError, match=r"a field is called|a file is called"):
        hotset.open(target.path)


def test_other_files_in_the_directory_do_no_harm(targets: list[Target], tmp_path: Path) -> None:
    """They are neither read nor complained of."""
    target = targets[0]
    shutil.copy(target.path / "same.npy", target.path / "other.npy")
    (target.path / "notes").mkdir()
    (target.path / "link.npy").symlink_to("/dev/zero")
    assert_holds(hotset.open(target.path), target.samples)


def test_classes_that_a_manifest_names_do_not_run(targets: list[Target]) -> None:
    """A named tuple of a loaded module is found; its own code is not called to open a store."""

    class Loud(Pair):
        def __new__(cls, *values: Any) -> Any:
            raise AssertionError("code of a file's choosing ran")

    target = targets[0]
    sys.modules["tests.stores"].__dict__["Loud"] = Loud
    try:
        text = json.dumps(target.manifest).replace('"Pair"', '"Loud"')
        assert '"Loud"' in text
        body = {key: value for key, value in json.loads(text).items() if key != "seal"}
        (target.path / "manifest.json").write_bytes(target.seal(body))
        assert len(hotset.open(target.path)) == 6
    finally:
        del sys.modules["tests.stores"].__dict__["Loud"]


PLAIN_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)


def test_manifests_of_anything(targets: list[Target]) -> None:
    """Any plain values in any place."""
    target = targets[0]
    body = {key: value for key, value in target.manifest.items() if key != "seal"}
    anywhere = [path for path in places(body) if path]

    @settings(max_examples=150)
    @given(st.sampled_from(anywhere), PLAIN_VALUES)
    def attempt(path: tuple[Any, ...], value: Any) -> None:
        content = target.seal(replaced(body, path, put(value)))
        target.attempt("manifest.json", content, is_sealed=True)

    attempt()
