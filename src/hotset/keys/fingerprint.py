"""What a cache on disk was made from, part by part, and how two of them differ."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import asdict, dataclass
from importlib import metadata
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

import numpy as np
import torch

from hotset.chain.step import Step, flatten_chain
from hotset.errors import ConfigError, FormatError, KeyingError
from hotset.keys.files import not_named
from hotset.keys.graph import ADVICE
from hotset.keys.origin import library_of_module
from hotset.keys.part import Part
from hotset.keys.piece import digest_of, hex_of
from hotset.keys.source import SourceIdentity, digest_with_files, identity_of, transforms_of

TEXT_LENGTH = 200
SHOWN_DIGITS = 4
DIGEST = re.compile("[0-9a-f]{32}")
FIELDS = ("name", "digest", "text")


@dataclass(frozen=True)
class Fingerprint:
    """What a cache was made from.

    Attributes:
        parts: each with a name of its own.
    """

    parts: tuple[Part, ...]

    @property
    def digest(self) -> str:
        """32 hexadecimal digits over all parts; their texts do not count."""
        return hex_of([(part.name, part.digest) for part in self.parts])

    def as_dict(self) -> dict[str, Any]:
        """The fingerprint in plain values, as for JSON."""
        return {"digest": self.digest, "parts": [asdict(part) for part in self.parts]}

    @classmethod
    def from_dict(cls, values: Any) -> Fingerprint:
        """The fingerprint that `as_dict` gave.

        Raises:
            FormatError: if the values are not such, or do not agree with their digest.
        """
        if not isinstance(values, Mapping) or set(values) != {"digest", "parts"}:
            raise FormatError(
                "a fingerprint must be a dictionary with 'digest' and 'parts', got "
                f"{_shortened(repr(values))}; the file is damaged, or of another version of hotset"
            )
        rows = values["parts"]
        if not isinstance(rows, (list, tuple)):
            raise FormatError(f"a fingerprint's parts must be a list, got {type(rows).__name__}")
        found = cls(tuple(_part_of(row) for row in rows))
        names = [part.name for part in found.parts]
        if len(set(names)) < len(names):
            raise FormatError(f"a fingerprint's parts must have different names, got {names}")
        if values["digest"] != found.digest:
            raise FormatError(
                f"the fingerprint's digest is {values['digest']!r}, that of its parts is "
                f"{found.digest}; the file is damaged, or was changed by hand"
            )
        return found


def _part_of(row: Any) -> Part:
    if not isinstance(row, Mapping) or set(row) != set(FIELDS):
        raise FormatError(f"a part must have {', '.join(FIELDS)}, got {_shortened(repr(row))}")
    if not all(isinstance(value, str) for value in row.values()):
        raise FormatError(f"a part's values must be strings, got {_shortened(repr(row))}")
    if DIGEST.fullmatch(row["digest"]) is None:
        raise FormatError(
            f"the digest of {row['name']!r} must be 32 hexadecimal digits, got {row['digest']!r}"
        )
    return Part(row["name"], row["digest"], row["text"])


def fingerprint(
    dataset: Any,
    steps: Sequence[Callable[..., Any]],
    *,
    behind: Sequence[Callable[..., Any]] = (),
    version: str | None = None,
    everything: bool = False,
    samples: Sequence[bytes] = (),
    extra: Mapping[str, str] | None = None,
    source: SourceIdentity | None = None,
    opened: Mapping[str, int] | None = None,
) -> Fingerprint:
    """The fingerprint of a dataset and the steps that run once on its samples.

    Parts: those of `extra`; "source"; "step 1" and so on; "transforms" for transforms of the
    dataset that are in neither list of steps; "version"; "settings" of torch, torchvision and PIL
    that change what transforms do; and the versions of Python and of libraries that are installed.

    Args:
        dataset: as in `source_identity`.
        steps: nested chains are opened. A file that a step names counts like one of the dataset's.
        behind: steps that are left to run whenever a sample is used; they do not count.
        version: the user's word for what the dataset and the steps do. What can be keyed still
            counts in full; what cannot counts by the name of its class and this version.
        everything: read every file whole; its content counts in place of the time.
        samples: bytes of a few samples, which count too.
        extra: further parts, name to text; "format" for one.
        source: the dataset's identity, where it was taken before anything was read; else it is
            taken now.
        opened: files that reading samples opened, by absolute path, each with the sample.

    Raises:
        KeyingError: if something does not say what it consists of, or a file was opened that
            nothing names; and no version is given.
        ConfigError: if `version` is empty, or the name of a further part is taken.

    Example:
        >>> [part.text for part in fingerprint([1, 2], [abs]).parts[:2]]
        ['list: 2 samples', 'abs']
    """
    if version is not None and (type(version) is not str or not version):
        raise ConfigError(f'`version` must be a text such as "1", got {version!r}')
    parts = [Part(name, hex_of(text), text) for name, text in (extra or {}).items()]
    if source is None:
        source = identity_of(dataset, everything=everything)
    if source.error is None or version is None:
        parts.append(source.part(samples))
    else:
        digest = digest_of([bytes.fromhex(_named(dataset, version)), *samples]).hex()
        parts.append(Part("source", digest, f"{type(dataset).__name__}, by its version"))
    keys = _StepKeys(version, everything)
    for number, call in enumerate(flatten_chain(list(steps)), 1):
        parts.append(keys.part(f"step {number}", call))
    known = {part.digest for part in parts}
    parts += _unlisted(dataset, known, behind, keys)
    if opened and version is None:
        _refuse_unnamed(opened, source.files | keys.files, type(dataset).__name__)
    if version is not None:
        parts.append(Part("version", hex_of(version), version))
    parts += _surroundings()
    names = [part.name for part in parts]
    if len(set(names)) < len(names):
        raise ConfigError(f"`extra` must not take the name of another part; parts are {names}")
    return Fingerprint(tuple(parts))


def differences(old: Fingerprint, new: Fingerprint) -> list[str]:
    """Sentences that say in which parts two fingerprints differ; none where they agree."""
    before = {part.name: part for part in old.parts}
    after = {part.name: part for part in new.parts}
    found = []
    has_other_steps = _steps_of(before) != _steps_of(after)
    for name, part in before.items():
        other = after.get(name)
        if other is None:
            found.append(f"{name} is gone: was {part.text}")
        elif name == "source" and other.text == part.text and has_other_steps:
            pass  # the samples that count in it are taken behind the steps
        elif other.digest != part.digest:
            found.append(_difference(part, other))
    found += [f"{n} is new: is {part.text}" for n, part in after.items() if n not in before]
    if not found and list(before) != list(after):
        found.append(f"the order of the parts: was {', '.join(before)}, is {', '.join(after)}")
    return found


def _steps_of(parts: Mapping[str, Part]) -> list[tuple[str, str]]:
    return [(name, part.digest) for name, part in parts.items() if name.startswith("step ")]


def _difference(old: Part, new: Part) -> str:
    if old.text != new.text:
        return f"{old.name}: was {old.text}, is {new.text}"
    digits = f"({old.digest[:SHOWN_DIGITS]}… -> {new.digest[:SHOWN_DIGITS]}…)"
    return f"the code or state of {old.name} ({old.text}) changed {digits}"


class _StepKeys:
    """Keys steps one after the other.

    Attributes:
        files: those that they name.
    """

    def __init__(self, version: str | None, everything: bool) -> None:
        self._version, self._everything = version, everything
        self.files: set[str] = set()

    def part(self, name: str, call: Any) -> Part:
        """The part of a step."""
        text = _text_of(call)
        where = f"{name} ({Step(0, call, 'unknown', '').name})"
        try:
            digest, files = digest_with_files(call, where, everything=self._everything)
        except KeyingError:
            if self._version is None:
                raise
            return Part(name, _named(call, self._version), f"{text}, by its version")
        self.files.update(files)
        return Part(name, digest.hex(), text)


def _refuse_unnamed(opened: Mapping[str, int], named: Set[str], dataset: str) -> None:
    for path in not_named(opened, named):
        raise KeyingError(
            f"{path} is opened by reading sample {opened[path]} of {dataset}, but not named by the "
            "dataset or its transform, so that a change of such files could not be noticed; keep "
            f"the list of files as an attribute (as torchvision's `samples`), or {ADVICE}"
        )


def _unlisted(
    dataset: Any,
    known: set[str],
    behind: Sequence[Callable[..., Any]],
    keys: _StepKeys,
) -> Iterator[Part]:
    """Transforms of the dataset's that are no steps; leaving them out would hide their changes."""
    left, found = {id(call) for call in behind}, {}
    for call in transforms_of(dataset):
        if id(call) in left:
            continue
        part = keys.part("transforms", call)
        if part.digest not in known:
            found[part.digest] = part.text
    for call in behind if found else ():  # another dataset inside may have an object of its own
        found.pop(keys.part("transforms", call).digest, None)
    if found:
        yield Part("transforms", hex_of(list(found)), _shortened(", ".join(found.values())))


def _surroundings() -> Iterator[Part]:
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    image = getattr(sys.modules.get("torchvision"), "_image_backend", "PIL")
    truncated = getattr(sys.modules.get("PIL.ImageFile"), "LOAD_TRUNCATED_IMAGES", False)
    texts = {
        "settings": f"{torch.get_default_dtype()} on {torch.get_default_device()}, images by "
        f"{image}{', truncated ones too' if truncated else ''}",
        "python": python,
        "torch": str(torch.__version__),
        "numpy": np.__version__,
    }
    for name in ("torchvision", "pillow"):
        try:
            texts[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    for name, text in texts.items():
        yield Part(name, hex_of(text), text)


def _named(value: Any, version: str) -> str:
    """The digest of what cannot be keyed: the name of its class, or its own, and the version."""
    named = value if isinstance(value, (type, FunctionType)) else type(value)
    # A script is `__main__` here and `__mp_main__` in a worker: the user's modules have no say.
    return hex_of(library_of_module(named.__module__), named.__qualname__, version)


def _text_of(call: Any) -> str:
    """A step for a reader, without addresses."""
    if isinstance(call, (FunctionType, BuiltinFunctionType, MethodType, type)):
        return call.__qualname__.rpartition("<locals>.")[2]
    try:
        text = re.sub(r" at 0x[0-9a-fA-F]+", "", repr(call))
    except Exception:  # whatever a user's class does when it is to be shown
        text = type(call).__name__
    if type(call).__name__ == "Lambda":
        return Step(0, call, "unknown", "").name
    return _shortened(" ".join(text.split()))


def _shortened(text: str) -> str:
    return text if len(text) <= TEXT_LENGTH else f"{text[: TEXT_LENGTH - 1]}…"
