"""Samples on their way from the process that reads them to the one that writes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hotset.sample.column import LeafSchema, describe, raw_bytes
from hotset.store.leaf import check_leaf, is_turned

CHUNK_BYTES = 8 << 20
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
        trace: where the last of those that failed did, as text.
        turned: samples with an image whose EXIF says that it is to be turned.
        in_room: bytes of the payload where it was put into memory that the other process has too;
            None where it is here.
    """

    ids: tuple[int, ...]
    schemas: tuple[tuple[LeafSchema, ...], ...]
    payload: Tensor
    lengths: np.ndarray
    failed: tuple[tuple[int, str], ...] = ()
    replaced: tuple[tuple[int, int], ...] = ()
    has_drawn: bool = False
    trace: str = ""
    turned: tuple[int, ...] = ()
    in_room: int | None = None

    def values(self, field: int) -> np.ndarray:
        """(bytes,) uint8 of one field."""
        ends = self.lengths.sum(axis=1).cumsum()
        start = ends[field - 1] if field else 0
        return self.payload.numpy()[start : ends[field]]


Taken = list[tuple[LeafSchema, np.ndarray]]
"""Per leaf of a sample, its schema and its bytes."""


class Packer:
    """Packs samples; made once per process, so that equal schemas are one object.

    Args:
        paths: how each leaf is reached from a sample, for messages.
        tabled: the leaf that a table finishes; None for none.

    Attributes:
        schemas: those seen.
    """

    def __init__(self, paths: Sequence[str] = (), tabled: int | None = None) -> None:
        self.schemas: dict[LeafSchema, LeafSchema] = {}
        self._paths, self._tabled = paths, tabled
        self._turned: list[int] = []

    def taken(self, leaves: Sequence[Any], sample: int | None = None) -> Taken:
        """One sample's leaves, copied: a dataset may use its memory again for the next.

        Args:
            leaves: the leaves.
            sample: which sample they are of, for messages.

        Raises:
            SchemaError: if a leaf cannot be stored; names it, and says what to do.
        """
        taken = []
        for number, leaf in enumerate(leaves):
            schema = self._known(describe(leaf))
            path = self._paths[number] if self._paths else f", leaf {number},"
            where = f"sample{path}" + ("" if sample is None else f" at index {sample}")
            check_leaf(leaf, schema, where)
            if sample is not None and number != self._tabled and is_turned(leaf):
                self._turned.append(sample)
            values = raw_bytes(leaf, schema)
            is_shared = schema.kind in ("tensor", "array")
            taken.append((schema, values.copy() if is_shared else values))
        return taken

    def pack(
        self,
        ids: Sequence[int],
        samples: Sequence[Taken],
        failed: Sequence[tuple[int, str]] = (),
        replaced: Sequence[tuple[int, int]] = (),
        has_drawn: bool = False,
        room: np.ndarray | None = None,
    ) -> Chunk:
        """A chunk of samples, each as it was taken; put into `room` where there is enough."""
        turned, self._turned = tuple(self._turned), []
        fields = list(zip(*samples, strict=True))
        parts = [values for taken in fields for _, values in taken]
        lengths = np.array([len(part) for part in parts], np.int64)
        total, in_room = int(lengths.sum()), None
        if room is not None and total <= len(room):
            payload, in_room = torch.empty(0, dtype=torch.uint8), total
        else:
            payload = torch.empty(total, dtype=torch.uint8)
            room = payload.numpy()
        if parts:
            np.concatenate(parts, out=room[:total])
        return Chunk(
            tuple(ids),
            tuple(tuple(schema for schema, _ in taken) for taken in fields),
            payload,
            lengths.reshape(len(fields), len(samples)),
            tuple(failed),
            tuple(replaced),
            has_drawn,
            turned=turned,
            in_room=in_room,
        )

    def _known(self, schema: LeafSchema) -> LeafSchema:
        return self.schemas.setdefault(schema, schema)


def samples_per_chunk(bytes_per_sample: int) -> int:
    """How many samples a chunk takes."""
    return max(1, min(CHUNK_SAMPLES, CHUNK_BYTES // max(1, bytes_per_sample)))
