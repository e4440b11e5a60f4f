"""The result of the comparison of image folders, as text and as plain values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hotset.bench.image_rows import (
    BUILDING,
    LAZY_EPOCH,
    MEMMAP,
    MEMORY,
    PLAIN,
    PLAIN_EPOCH,
    PLAIN_READING,
    STORE,
    STORE_READING,
    ImageRow,
    ImageSettings,
)
from hotset.bench.report import about, said
from hotset.bench.table import number, span, table
from hotset.bench.timing import Spread
from hotset.placement.size import human_bytes

SCHEMA, SCHEMA_VERSION = "hotset.bench.images", 1
FIGURES = (
    (STORE, PLAIN, "from a store, to the plain loader", "at least 8, goal 15"),
    (MEMORY, PLAIN, "from memory, to the plain loader", "no bound"),
    (PLAIN_EPOCH, LAZY_EPOCH, "time of a first epoch that fills, to a plain one", "at most 1.15"),
    (BUILDING, PLAIN_READING, "building, to reading alone", "at least 0.9"),
    (STORE_READING, MEMMAP, "random reads, to numpy.memmap", "at least 0.5"),
)
"""Row, baseline, what the ratio is, and what it should be."""


@dataclass(frozen=True, eq=False)
class ImageReport:
    """Everything that was measured.

    Attributes:
        settings: what was asked for.
        date: when it began, ISO 8601, UTC.
        hardware: what it was measured on.
        versions: what it was measured with.
        file_bytes: bytes of the JPEG files.
        rows: what was measured.
        rates: samples per second of each, by key.
    """

    settings: ImageSettings
    date: str
    hardware: dict[str, Any]
    versions: dict[str, str | None]
    file_bytes: int
    rows: Sequence[ImageRow]
    rates: dict[str, Spread]

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "schema": SCHEMA,
            "schema_version": SCHEMA_VERSION,
            "date": self.date,
            "versions": self.versions,
            "hardware": self.hardware,
            "parameters": self.settings.as_dict(),
            "file_bytes": self.file_bytes,
            "rows": [
                {
                    "key": row.key,
                    "name": row.name,
                    "samples_per_s": self.rates[row.key].as_dict(),
                    "transform_calls": row.calls,
                }
                for row in self.rows
            ],
            "ratios": [
                {"row": row, "to": to, **self.rates[row].over(self.rates[to]).as_dict()}
                for row, to, _, _ in FIGURES
            ],
        }

    def __str__(self) -> str:
        settings = self.settings
        head = (
            f"{settings.samples:,} JPEG files of about 500x375 ({human_bytes(self.file_bytes)}), "
            f"batches of {settings.batch_size} on the CPU"
        )
        rows = [
            [
                row.name,
                number(self.rates[row.key].median),
                span(self.rates[row.key]),
                "–" if row.calls is None else f"{row.calls:,}",
            ]
            for row in self.rows
        ]
        figures = [
            f"{what}: {said(self.rates[row].over(self.rates[to]))} ({bound})"
            for row, to, what, bound in FIGURES
        ]
        return "\n\n".join(
            (
                about(head, self.hardware, self.versions),
                table(["", "samples/s", "min – max", "calls"], rows),
                _method(settings),
                "\n".join(figures),
            )
        )


def _method(settings: ImageSettings) -> str:
    return f"""\
{settings.rounds} interleaved rounds; medians, and a ratio is taken within its round.
RandomResizedCrop(224), flip, ToTensor, Normalize. calls: of these steps, in one epoch.
plain: {settings.part_batches} batches from the middle of an epoch, the workers running already.
from a store, from memory: {settings.epochs} whole epochs after the first, their starts included.
first epochs: whole, with the start of the workers; a new store each time.
building, reading: all files once, decoded, without a transform; building ends when all is synced.
random reads: 3x64x64 bytes, in batches, from files that the system has in memory."""
