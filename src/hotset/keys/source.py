"""What a dataset reads: its class and state, and the files that it names."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from torch.utils.data import ConcatDataset, Subset

from hotset.chain.step import StepCall, flatten_chain
from hotset.errors import KeyingError
from hotset.keys.files import FileLedger, FileState, digest_of_files, is_folder, words_for
from hotset.keys.graph import Walk
from hotset.keys.part import Part
from hotset.keys.piece import Link, Piece, digest_of, label
from hotset.keys.value import take_apart

STEPS = ("transform", "transforms")
"""Attributes of a dataset that are keyed step by step."""
WAYS = "storage_options"
"""What fsspec calls the keys and endpoints with which files are reached: how, and not what."""


@dataclass(frozen=True, eq=False)
class SourceIdentity:
    """What a source reads, as it was when this was taken: reading may change its state.

    Attributes:
        digest: of all that counts; empty where it cannot be keyed.
        text: the same for a reader.
        files: the files that it names, by the names under which they were found.
        error: why it cannot be keyed; None where it can.
    """

    digest: bytes
    text: str
    files: frozenset[str] = frozenset()
    error: KeyingError | None = None

    def part(self, samples: Sequence[bytes] = ()) -> Part:
        """The part "source".

        Args:
            samples: bytes of a few samples, which count too.

        Raises:
            KeyingError: if it cannot be keyed.
        """
        if self.error is not None:
            raise self.error
        return Part("source", digest_of([self.digest, *samples]).hex(), self.text)


def identity_of(dataset: Any, *, everything: bool = False) -> SourceIdentity:
    """The identity of a source, to be taken before anything is read from it.

    An iterator counts by what is left in it, and a dataset may open its files when it is read
    first. What cannot be keyed raises no error yet, since a version may stand in for it.

    Args:
        dataset: as in `source_identity`; or an iterable.
        everything: read every file whole; its content counts in place of the time.
    """
    bare = frozenset(id(base) for base in _bases(dataset))
    try:
        digest, files = digest_with_files(dataset, "the dataset", everything=everything, bare=bare)
    except KeyingError as error:
        return SourceIdentity(b"", _name(dataset), error=error)
    text = f"{_name(dataset)}: {words_for(files)}" if files else _counted(dataset)
    return SourceIdentity(digest, text, frozenset(files))


def source_identity(
    dataset: Any, *, everything: bool = False, samples: Sequence[bytes] = ()
) -> Part:
    """What a map-style dataset reads, apart from its transform, as the part "source".

    Its class and state count as in `key_of`. State that names files (a string or path, or lists
    and tuples of them; also relative to a folder that the same object names) counts by the size of
    each file and when it was written last. The attributes `transform` and `transforms` of the
    dataset do not count, nor do those of datasets inside `Subset` and `ConcatDataset`.

    An object that reads files elsewhere says so with a method `source_files()`: for each name the
    size in bytes, and a text that tells whether the file has changed. Its `storage_options` then do
    not count.

    Args:
        dataset: its samples are read by index.
        everything: read every file whole; its content counts in place of the time.
        samples: bytes of a few samples, which count too.

    Raises:
        KeyingError: if something in the dataset does not say what it consists of.
    """
    return identity_of(dataset, everything=everything).part(samples)


def digest_with_files(
    value: Any, name: str, *, everything: bool = False, bare: frozenset[int] = frozenset()
) -> tuple[bytes, dict[str, FileState]]:
    """The digest of an object together with the files that it names; and these.

    Args:
        value: any object.
        name: what messages call it.
        everything: read the files whole.
        bare: ids of the objects whose attributes for transforms do not count.

    Raises:
        KeyingError: if something in it does not say what it consists of.
    """
    ledger = FileLedger()
    digest = Walk(partial(_take, ledger, bare), ledger.note).digest(value, name)
    files = ledger.files(everything=everything)
    return digest_of([digest, digest_of_files(files)]), files


def transforms_of(dataset: Any) -> list[StepCall]:
    """The transforms of a dataset that `source_identity` leaves out, as flat lists of callables."""
    found = []
    for base in _bases(dataset):
        for name in STEPS:
            transform: Any = getattr(base, name, None)
            if type(transform).__name__ == "StandardTransform":  # torchvision keeps it twice
                transform = transform.transform
            if callable(transform) or isinstance(transform, (list, tuple)):
                found += flatten_chain(transform)
    return found


def _bases(dataset: Any) -> list[Any]:
    """The datasets inside nested `Subset` and `ConcatDataset`."""
    if type(dataset) is Subset:
        return _bases(dataset.dataset)
    if type(dataset) is ConcatDataset:
        return [base for part in dataset.datasets for base in _bases(part)]
    return [dataset]


def _take(ledger: FileLedger, bare: frozenset[int], value: Any) -> Piece:
    """Takes an object apart with an eye on files; a memory map counts by its file."""
    if type(value) is np.memmap:
        piece = _map_piece(value)
        return take_apart(value) if piece is None else piece
    piece = take_apart(value)
    links = piece.links
    if id(value) in bare:
        links = [link for link in links if not _is_attribute(link, STEPS)]
    if callable(getattr(type(value), "source_files", None)):
        files = value.source_files()
        ledger.add(files)
        links = [x for x in links if x[1] is not files and not _is_attribute(x, (WAYS,))]
    folders = tuple(os.fspath(child) for words, child in links if _is_state(words, child))
    return piece._replace(links=links, folders=(*piece.folders, *folders))


def _is_state(words: Sequence[Any], child: Any) -> bool:
    return str(words[0]).startswith("attribute") and is_folder(child)


def _is_attribute(link: Link, names: Sequence[str]) -> bool:
    words = link[0]
    return str(words[0]).startswith("attribute") and words[1] in names


def _map_piece(array: Any) -> Piece | None:
    """A memory map by its file and the part of it that is seen; None if it need not be alike."""
    if array.filename is None or array.mode == "c":
        return None
    start = np.lib.array_utils.byte_bounds(array)[0]
    whole = np.frombuffer(array._mmap, np.uint8).ctypes.data
    head = label("memory map", array.dtype.str, array.shape, array.strides, start - whole)
    words: tuple[Any, ...] = ("the file of a memory map",)
    return Piece(head, [(words, os.fspath(array.filename)), (words, array.offset)])


def _name(dataset: Any) -> str:
    if type(dataset) is Subset:
        return f"Subset of {_name(dataset.dataset)}"
    if type(dataset) is ConcatDataset:
        return f"ConcatDataset of {', '.join(dict.fromkeys(map(_name, dataset.datasets)))}"
    return type(dataset).__name__


def _counted(dataset: Any) -> str:
    try:
        return f"{_name(dataset)}: {len(dataset):,} samples"
    except Exception:  # it has no length, or does not know it
        return _name(dataset)
