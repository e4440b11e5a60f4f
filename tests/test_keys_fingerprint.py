"""Fingerprints: their parts, as plain values, and what differs between two."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hotset.errors import ConfigError, FormatError, KeyingError
from hotset.keys import fingerprint as module
from hotset.keys.fingerprint import Fingerprint, differences, fingerprint
from hotset.keys.part import Part

ONE, OTHER, THIRD = ("0" * 32, "1" * 32, "2" * 32)


class Scale:
    """A step of the user's."""

    def __init__(self, factor: float) -> None:
        self.factor = factor

    def __call__(self, value: Any) -> Any:
        return value * self.factor

    def __repr__(self) -> str:
        return f"Scale({self.factor})"


class Images:
    """A dataset with a transform."""

    def __init__(self, *transform: Any) -> None:
        self.data = [1, 2, 3]
        self.transform = list(transform)

    def __len__(self) -> int:
        return len(self.data)


def _parts(found: Fingerprint) -> dict[str, Part]:
    return {part.name: part for part in found.parts}


def test_parts_are_named_and_readable() -> None:
    """Further parts first, then the source, each step, and what they run on."""
    found = fingerprint(Images(), [Scale(2.0), [abs, torch.nn.ReLU()]], extra={"format": "1"})
    texts = {part.name: part.text for part in found.parts}
    assert texts == {
        "format": "1",
        "source": "Images: 3 samples",
        "step 1": "Scale(2.0)",
        "step 2": "abs",
        "step 3": "ReLU()",
        "settings": "torch.float32 on cpu, images by PIL",
        "python": f"{sys.version_info.major}.{sys.version_info.minor}",
        "torch": torch.__version__,
        "numpy": np.__version__,
        "torchvision": metadata.version("torchvision"),
        "pillow": metadata.version("pillow"),
    }
    assert all(len(part.digest) == 32 for part in found.parts)
    assert found == fingerprint(Images(), [Scale(2.0), abs, torch.nn.ReLU()], extra={"format": "1"})


def test_digest_is_over_all_parts_but_not_their_texts() -> None:
    """Names, digests and order."""
    a, b = Part("a", ONE, "x"), Part("b", OTHER, "y")
    digest = Fingerprint((a, b)).digest
    assert len(digest) == 32
    assert Fingerprint((Part("a", ONE, "z"), b)).digest == digest
    for parts in ((b, a), (a,), (a, Part("c", OTHER, "y")), (a, Part("b", ONE, "y"))):
        assert Fingerprint(parts).digest != digest


def test_plain_values_give_the_fingerprint_back() -> None:
    """Through JSON."""
    found = fingerprint(Images(), [abs])
    values = json.loads(json.dumps(found.as_dict()))
    assert Fingerprint.from_dict(values) == found
    assert values["digest"] == found.digest


ROW = {"name": "a", "digest": ONE, "text": "x"}


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (None, "must be a dictionary with 'digest' and 'parts', got None"),
        ([], "must be a dictionary"),
        ({"parts": []}, "must be a dictionary"),
        ({"digest": ONE, "parts": [], "more": 1}, "must be a dictionary"),
        ({"digest": ONE, "parts": 3}, "parts must be a list, got int"),
        ({"digest": ONE, "parts": [3]}, "a part must have name, digest, text, got 3"),
        ({"digest": ONE, "parts": [{"name": "a"}]}, "a part must have"),
        ({"digest": ONE, "parts": [{**ROW, "text": 3}]}, "values must be strings"),
        ({"digest": ONE, "parts": [{**ROW, "digest": "xyz"}]}, "'a' must be 32 hexadecimal digits"),
        ({"digest": ONE, "parts": [ROW, ROW]}, "must have different names"),
        ({"digest": ONE, "parts": [ROW]}, "damaged, or was changed by hand"),
        ({"digest": 3, "parts": [ROW]}, "damaged, or was changed by hand"),
    ],
)
def test_other_values_are_refused(values: Any, words: str) -> None:
    """With what was expected and what came."""
    with pytest.raises(FormatError, match=words):
        Fingerprint.from_dict(values)


def test_differences_are_told_part_by_part() -> None:
    """With both texts, or with digits where the texts agree."""
    old = Fingerprint(
        (
            Part("source", ONE, "a"),
            Part("step 1", ONE, "Resize(size=256)"),
            Part("step 2", "9f3a" + ONE[4:], "my_transform"),
            Part("step 3", ONE, "Pad(1)"),
            Part("torch", ONE, "2.9.0"),
        )
    )
    new = Fingerprint(
        (
            Part("source", ONE, "another text for the same"),
            Part("step 1", OTHER, "Resize(size=224)"),
            Part("step 2", "81bc" + ONE[4:], "my_transform"),
            Part("torch", OTHER, "2.14.1"),
            Part("version", ONE, "3"),
        )
    )
    assert differences(old, new) == [
        "step 1: was Resize(size=256), is Resize(size=224)",
        "the code or state of step 2 (my_transform) changed (9f3a… -> 81bc…)",
        "step 3 is gone: was Pad(1)",
        "torch: was 2.9.0, is 2.14.1",
        "version is new: is 3",
    ]
    assert differences(old, old) == []


def test_parts_in_another_order_are_a_difference() -> None:
    """Else two fingerprints could differ without a word."""
    a, b = Part("a", ONE, "x"), Part("b", OTHER, "y")
    assert differences(Fingerprint((a, b)), Fingerprint((b, a))) == [
        "the order of the parts: was a, b, is b, a"
    ]


def test_a_changed_step_changes_its_part_alone() -> None:
    """By its state, or by its code under the same text."""
    first = fingerprint(Images(), [Scale(1.0), lambda x: x + 1])
    state = fingerprint(Images(), [Scale(2.0), lambda x: x + 1])
    code = fingerprint(Images(), [Scale(1.0), lambda x: x + 2])
    assert differences(first, state) == ["step 1: was Scale(1.0), is Scale(2.0)"]
    (told,) = differences(first, code)
    assert told.startswith("the code or state of step 2 (<lambda>) changed (")


def test_steps_are_shown_without_addresses_and_shortened() -> None:
    """Whatever their repr is."""

    class Plain:
        def __call__(self, value: Any) -> Any:
            return value

    class Long(Plain):
        def __repr__(self) -> str:
            return "Long(\n" + "x" * 500 + ")"

    class Broken(Plain):
        def __repr__(self) -> str:
            raise RuntimeError

    steps = [Plain(), Long(), Broken(), Plain().__call__, Plain]
    texts = [part.text for part in fingerprint([1], steps).parts if part.name.startswith("step")]
    assert texts[0].endswith("Plain object>")
    assert texts[1].startswith("Long( xxx")
    assert len(texts[1]) == 200
    assert texts[2:] == ["Broken", "Plain.__call__", "Plain"]
    assert not any("0x" in text for text in texts)


def test_torchvisions_lambda_is_shown_by_its_function() -> None:
    """And its chain is opened."""
    transforms = pytest.importorskip("torchvision.transforms")

    def halve(value: Any) -> Any:
        return value / 2

    chain = transforms.Compose([transforms.Lambda(halve), transforms.Resize(3)])
    parts = _parts(fingerprint([1], [chain]))
    assert parts["step 1"].text == "Lambda(halve)"
    assert parts["step 2"].text.startswith("Resize(size=3, ")


def test_transforms_that_are_no_steps_count() -> None:
    """A dataset's transform is left out of the source only because the steps hold it."""
    scale, other = Scale(1.0), Scale(2.0)
    assert "transforms" not in _parts(fingerprint(Images(scale), [scale]))
    found = fingerprint(Images(scale, other), [scale])
    assert _parts(found)["transforms"].text == "Scale(2.0)"
    changed = fingerprint(Images(scale, Scale(3.0)), [scale])
    assert differences(found, changed) == ["transforms: was Scale(2.0), is Scale(3.0)"]


def test_version_stands_for_what_cannot_be_keyed() -> None:
    """The rest still counts in full."""

    def numbers() -> Any:
        yield 1

    with open(__file__, encoding="utf-8") as handle:

        def read(value: Any) -> Any:
            return handle.read()

        with pytest.raises(KeyingError, match="the dataset is a generator"):
            fingerprint(numbers(), [])
        words = r"step 2 \(read\): closure variable 'handle' of read at test_keys_fingerprint.py:"
        with pytest.raises(KeyingError, match=words):
            fingerprint([1], [abs, read])
        found = fingerprint(numbers(), [Scale(1.0), read], version="1")
        assert found == fingerprint(numbers(), [Scale(1.0), read], version="1")
        assert _parts(found)["version"].text == "1"
        assert _parts(found)["source"].text == "generator, by its version"
        assert _parts(found)["step 2"].text == "read, by its version"
        scaled = fingerprint(numbers(), [Scale(2.0), read], version="1")
        assert differences(found, scaled) == ["step 1: was Scale(1.0), is Scale(2.0)"]
        newer = fingerprint(numbers(), [Scale(1.0), read], version="2")
        assert "version: was 1, is 2" in differences(found, newer)
        sampled = fingerprint(numbers(), [Scale(1.0), read], version="1", samples=[b"a"])
        assert sampled.digest != found.digest
        with pytest.raises(KeyingError, match="the dataset is a generator"):
            fingerprint(numbers(), [], extra={"format": "1"})


def test_version_counts_beside_what_can_be_keyed() -> None:
    """It is a part of its own."""
    plain, versioned = fingerprint([1], [abs]), fingerprint([1], [abs], version="7")
    assert differences(plain, versioned) == ["version is new: is 7"]


@pytest.mark.parametrize("version", ["", 3, ("1",)])
def test_version_must_be_a_text(version: Any) -> None:
    """And not an empty one."""
    with pytest.raises(ConfigError, match='`version` must be a text such as "1", got'):
        fingerprint([1], [], version=version)


def test_further_parts_must_have_names_of_their_own() -> None:
    """One that is taken would hide the other."""
    with pytest.raises(ConfigError, match="`extra` must not take the name of another part"):
        fingerprint([1], [], extra={"torch": "1"})


def test_everything_and_samples_are_handed_on(tmp_path: Path) -> None:
    """To the source, and to files that steps name."""
    table = tmp_path / "table.bin"
    table.write_bytes(b"1")
    os.utime(table, ns=(0, 10**18))
    step = Scale(1.0)
    step.table = str(table)  # type: ignore[attr-defined]
    by_time, whole = fingerprint([1], [step]), fingerprint([1], [step], everything=True)
    os.utime(table, ns=(0, 10**18 + 1))
    assert fingerprint([1], [step]).digest != by_time.digest
    assert fingerprint([1], [step], everything=True) == whole
    table.write_bytes(b"2")
    assert fingerprint([1], [step], everything=True).digest != whole.digest
    assert fingerprint([1], [], samples=[b"a"]) != fingerprint([1], [], samples=[b"b"])


def test_settings_that_change_transforms_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch's default dtype, torchvision's image backend, PIL's way with truncated files."""
    torchvision = pytest.importorskip("torchvision")
    from PIL import ImageFile

    first = fingerprint([1], [])
    torch.set_default_dtype(torch.float64)
    try:
        second = fingerprint([1], [])
    finally:
        torch.set_default_dtype(torch.float32)
    monkeypatch.setattr(torchvision, "_image_backend", "accimage")
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)
    assert differences(first, second) == [
        "settings: was torch.float32 on cpu, images by PIL, is torch.float64 on cpu, images by PIL"
    ]
    assert _parts(fingerprint([1], []))["settings"].text == (
        "torch.float32 on cpu, images by accimage, truncated ones too"
    )


def test_libraries_that_are_not_installed_have_no_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether one is imported does not matter."""

    def version(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(module.metadata, "version", version)
    assert not {"torchvision", "pillow"} & _parts(fingerprint([1], [])).keys()


FRESH = """
import sys, torch
if sys.argv[1] == "first":
    import torchvision.datasets, PIL.ImageFile
from hotset.keys.fingerprint import fingerprint
print(fingerprint([1], [abs]).digest)
assert ("torchvision" in sys.modules) == (sys.argv[1] == "first")
"""


def test_fingerprint_does_not_depend_on_what_is_imported() -> None:
    """And imports no torchvision itself."""
    digests = {
        subprocess.run(
            [sys.executable, "-c", FRESH, order],
            capture_output=True,
            text=True,
            check=True,
            timeout=100,
        ).stdout
        for order in ("first", "never")
    }
    assert len(digests) == 1


def test_samples_behind_another_step_are_no_difference_of_the_source() -> None:
    """The step's is told; the samples that it made count, and need no words of their own."""
    old = fingerprint([1, 2], [abs], samples=[b"1"])
    new = fingerprint([1, 2], [bool], samples=[b"True"])
    assert old.parts[0].digest != new.parts[0].digest
    assert [words.partition(":")[0] for words in differences(old, new)] == ["step 1"]
    changed = fingerprint([1, 2], [abs], samples=[b"7"])
    assert "source" in differences(old, changed)[0]
