"""The result of the comparison of tiers, as text and as plain values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hotset.bench.report import about, said
from hotset.bench.table import number, span, table
from hotset.bench.tier_rows import BY_HAND, HOST, PLAIN, PLAIN_0, TierRow, TierSettings
from hotset.bench.timing import Spread
from hotset.placement.size import human_bytes

SCHEMA, SCHEMA_VERSION = "hotset.bench.tiers", 1
FIGURES = (
    (HOST, PLAIN_0, "hotset.Loader on the CPU, to the plain loader", "at least 30, goal 80"),
    (HOST, PLAIN, "hotset.Loader on the CPU, to the plain loader with workers", "no bound"),
    (HOST, BY_HAND, "hotset.Loader on the CPU, to indexing by hand", "no bound"),
    (BY_HAND, PLAIN_0, "indexing by hand, to the plain loader", "about 40"),
)
"""Row, baseline, what the ratio is, and what it should be."""


@dataclass(frozen=True, eq=False)
class TierReport:
    """Everything that was measured.

    Attributes:
        settings: what was asked for.
        date: when it began, ISO 8601, UTC.
        hardware: what it was measured on.
        versions: what it was measured with.
        rows: the ways to the batches.
        rates: samples per second of each, by key.
    """

    settings: TierSettings
    date: str
    hardware: dict[str, Any]
    versions: dict[str, str | None]
    rows: Sequence[TierRow]
    rates: dict[str, Spread]

    def ratio(self, key: str, to: str) -> Spread:
        """Samples per second of one row over those of another, round by round."""
        return self.rates[key].over(self.rates[to])

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "schema": SCHEMA,
            "schema_version": SCHEMA_VERSION,
            "date": self.date,
            "versions": self.versions,
            "hardware": self.hardware,
            "parameters": self.settings.as_dict(),
            "rows": [
                {
                    "key": row.key,
                    "name": row.name,
                    "samples_per_s": self.rates[row.key].as_dict(),
                    "ratio_to_plain_0_workers": self.ratio(row.key, PLAIN_0).as_dict(),
                    "per_epoch": row.counts.as_dict(),
                }
                for row in self.rows
            ],
            "ratios": [
                {"row": row, "to": to, **self.ratio(row, to).as_dict()} for row, to, _, _ in FIGURES
            ],
        }

    def __str__(self) -> str:
        settings = self.settings
        head = (
            f"{settings.rows:,} rows of {settings.columns} float32 and a label, shuffled, batches "
            f"of {settings.batch_size:,}"
        )
        header = ["", "samples/s", "min – max", "× DataLoader 0w", "min – max", "copied"]
        rows = []
        for row in self.rows:
            rate, ratio = self.rates[row.key], self.ratio(row.key, PLAIN_0)
            cells = [row.name, number(rate.median), span(rate), number(ratio.median), span(ratio)]
            rows.append([*cells, human_bytes(row.counts.link_bytes)])
        figures = [
            f"{what}: {said(self.ratio(row, to))} ({bound})" for row, to, what, bound in FIGURES
        ]
        return "\n\n".join(
            (
                about(head, self.hardware, self.versions),
                table(header, rows),
                _method(settings),
                "\n".join(figures),
            )
        )


def _method(settings: TierSettings) -> str:
    return f"""\
{settings.rounds} interleaved rounds; medians, and a ratio is taken within its round.
Not timed: compiling, the spot check, one counted epoch of each row.
DataLoader: over a TensorDataset, {settings.part_batches} batches of an epoch at most, the workers \
running already.
all others: {settings.epochs} whole epochs, their starts and the drawing of their orders included.
simulated device: copies are made in host memory, so that only their bytes are those of a device.
copied: bytes from the host to a device in one epoch."""
