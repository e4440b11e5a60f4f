"""What a saved state must agree with: the data and the chain, as a few digits."""

from __future__ import annotations

import hashlib
from typing import Any

import torch
from torch import Tensor

from hotset.chain.step import Chained, Step
from hotset.ops.pointwise import Table
from hotset.sample.column import describe, raw_bytes
from hotset.sources.analyse import Analysis
from hotset.sources.resident import Resident
from hotset.sources.source import spread

SAMPLES = 16
"""How many samples' bytes are part of a fingerprint."""


def fingerprint_of(analysis: Analysis, resident: Resident | None) -> str:
    """16 hexadecimal digits over the schemas, the steps and a spread of what is kept.

    Two processes that load the same data with the same chain find the same digits, wherever they
    keep it, so a callable counts by its name where its `repr` shows an address. Where the chain was
    cut earlier for want of room, what is kept counts as it would be at the preferred cut.

    Args:
        analysis: of the source.
        resident: what is kept, the samples of `samples_in` at least; None if nothing is.
    """
    digest = hashlib.blake2b(digest_size=8)
    text = [len(analysis.source), *map(str, analysis.final), *analysis.spec.paths()]
    text += [_words_of(step) for step in analysis.split.steps]
    digest.update(repr(text).encode())
    preferred = analysis.preferred or analysis.split
    between = Chained([step.call for step in preferred.steps[analysis.split.cut : preferred.cut]])
    for op in preferred.ops:
        if isinstance(op, Table):
            digest.update(_bytes_of(op.values))
    for index in () if resident is None else samples_in(len(analysis.source)):
        assert resident is not None
        leaves = resident.leaves(index)
        leaves[resident.leaf] = between(leaves[resident.leaf])
        for leaf in leaves:
            digest.update(_leaf_bytes(leaf))
    return digest.hexdigest()


def samples_in(length: int) -> list[int]:
    """The samples of a dataset whose bytes are part of its fingerprint."""
    return spread(length, SAMPLES)


def _words_of(step: Step) -> str:
    words = repr(step.call)
    return step.name if " at 0x" in words else f"{step.name} {words}"


def _leaf_bytes(leaf: Any) -> bytes:
    """A leaf as it lies in memory or in a file alike; nothing for objects that lie in neither."""
    schema = describe(leaf)
    is_plain = schema.is_storable or schema.kind in ("str", "bytes")
    return raw_bytes(leaf, schema).tobytes() if is_plain else b""


def _bytes_of(values: Tensor) -> bytes:
    # A clone: the stride of a single element may be anything, and `view` minds.
    flat = values.cpu().flatten().clone(memory_format=torch.contiguous_format)
    return flat.view(torch.uint8).numpy().tobytes()
