"""Samples on their way from the process that reads them to the one that writes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hotset.sample.column import LeafSchema, describe, raw_bytes

CHUNK_BYTES = 4 << 20
"""About what one chunk holds: several at a time must fit into a container's small shared memory."""
CHUNK_SAMPLES = 256
"""Most samples of a chunk."""


@dataclass(frozen=True, eq=False)
class Chunk:
    """A few samples, packed.

    Attributes:
        ids: which samples.
        schemas: per field, the schema of each sample's leaf.
        payload: (bytes,) uint8, the first field of all samples, then the second, and so on.
        lengths: (fields, samples) bytes of each leaf.
        failed: (sample, why) of those that could not be read and are given up.
        replaced: (sample, the one that stands in for it).
        has_drawn: whether reading them drew random numbers.
    """

    ids: tuple[int, ...]
    schemas: tuple[tuple[LeafSchema, ...], ...]
    payload: Tensor
    lengths: np.ndarray
    failed: tuple[tuple[int, str], ...] = ()
    replaced: tuple[tuple[int, int], ...] = ()
    has_drawn: bool = False

    def values(self, field: int) -> np.ndarray:
        """(bytes,) uint8 of one field."""
        ends = self.lengths.sum(axis=1).cumsum()
        start = ends[field - 1] if field else 0
        return self.payload.numpy()[start : ends[field]]


class Packer:
    """Packs samples; made once per process, so that equal schemas are one object.

    Attributes:
        schemas: those seen.
    """

    def __init__(self) -> None:
        self.schemas: dict[LeafSchema, LeafSchema] = {}

    def pack(
        self,
        ids: Sequence[int],
        samples: Sequence[Sequence[Any]],
        failed: Sequence[tuple[int, str]] = (),
        replaced: Sequence[tuple[int, int]] = (),
    ) -> Chunk:
        """A chunk of samples, each given by its leaves."""
        schemas: list[tuple[LeafSchema, ...]] = []
        parts: list[np.ndarray] = []
        for leaves in zip(*samples, strict=True):
            found = [self._known(describe(leaf)) for leaf in leaves]
            values = [raw_bytes(leaf, schema) for leaf, schema in zip(leaves, found, strict=True)]
            schemas.append(tuple(found))
            parts.extend(values)
        lengths = np.array([len(part) for part in parts], np.int64)
        payload = torch.empty(int(lengths.sum()), dtype=torch.uint8)
        if parts:
            np.concatenate(parts, out=payload.numpy())
        shape = (len(schemas), -1) if schemas else (0, 0)
        return Chunk(
            tuple(ids),
            tuple(schemas),
            payload,
            lengths.reshape(shape),
            tuple(failed),
            tuple(replaced),
        )

    def _known(self, schema: LeafSchema) -> LeafSchema:
        return self.schemas.setdefault(schema, schema)


def samples_per_chunk(bytes_per_sample: int) -> int:
    """How many samples a chunk takes."""
    return max(1, min(CHUNK_SAMPLES, CHUNK_BYTES // max(1, bytes_per_sample)))
