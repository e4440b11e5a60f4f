"""What a saved state must agree with: the data and the chain, as a few digits."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from hotset.chain.step import Step
from hotset.ops.pointwise import Table
from hotset.sample.column import Column, DenseColumn, ListColumn, describe, raw_bytes
from hotset.sources.analyse import Analysis
from hotset.sources.resident import Resident
from hotset.sources.source import spread

ROWS = 16
"""Samples whose bytes are part of a fingerprint."""


def fingerprint_of(
    analysis: Analysis, resident: Resident | None, made_from: str | None = None
) -> str:
    """16 hexadecimal digits over the schemas, the steps and a spread of what is kept.

    Two processes that load the same data with the same chain find the same digits, so a callable
    counts by its name where its `repr` shows an address.

    Args:
        analysis: of the source.
        resident: what is kept; None if nothing is.
        made_from: what stands for the bytes kept, where they may still be to come.
    """
    digest = hashlib.blake2b(digest_size=8)
    text = [len(analysis.source), *map(str, analysis.final), *analysis.spec.paths()]
    text += [_words_of(step) for step in analysis.split.steps]
    digest.update(repr(text).encode())
    for op in analysis.split.ops:
        if isinstance(op, Table):
            digest.update(_bytes_of(op.values))
    if made_from is not None:
        digest.update(made_from.encode())
        return digest.hexdigest()
    for column in resident.columns if resident is not None else ():
        for part in _parts(column, analysis, resident):
            digest.update(part)
    return digest.hexdigest()


def _words_of(step: Step) -> str:
    words = repr(step.call)
    return step.name if " at 0x" in words else f"{step.name} {words}"


def _parts(column: Column, analysis: Analysis, resident: Resident | None) -> Iterator[bytes]:
    """The bytes of a spread of a column's rows, of those that are samples."""
    assert resident is not None
    for index in spread(len(analysis.source), ROWS):
        row = index if resident.rows is None else int(resident.rows[index])
        if isinstance(column, DenseColumn):
            yield _bytes_of(column.data[row])
        elif isinstance(column, ListColumn):
            yield _item_bytes(column.items[row])
        else:
            leaf = column.item(row)
            yield raw_bytes(leaf, describe(leaf)).tobytes()


def _item_bytes(item: Any) -> bytes:
    if isinstance(item, tuple):  # a tensor and its schema
        return _bytes_of(item[0])
    return repr(item).encode() if isinstance(item, (str, bytes)) else b""


def _bytes_of(values: Tensor) -> bytes:
    # A clone: the stride of a single element may be anything, and `view` minds.
    flat = values.cpu().flatten().clone(memory_format=torch.contiguous_format)
    return flat.view(torch.uint8).numpy().tobytes()
