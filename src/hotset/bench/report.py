"""The result of the CIFAR comparison, as text and as plain values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hotset.bench.copies import MOST_BATCH, MOST_BATCH_BYTES, Copy, copies_table
from hotset.bench.imports import ImportCost
from hotset.bench.overhead import Overhead
from hotset.bench.rows import AUGMENTED, COPY_FRESH, COPY_REUSED, PLAIN, PLAIN_0, Row
from hotset.bench.settings import Settings
from hotset.bench.table import number, span, table
from hotset.bench.timing import Spread
from hotset.placement.size import human_bytes

SCHEMA, SCHEMA_VERSION = "hotset.bench.cifar", 1


@dataclass(frozen=True, eq=False)
class Report:
    """Everything that was measured.

    Attributes:
        settings: what was asked for.
        date: when it began, ISO 8601, UTC.
        hardware: what it was measured on.
        versions: what it was measured with.
        rows: the ways to the batches.
        rates: samples per second of each, by key.
        copies: what copying a batch costs.
        overhead: Python per batch; None where the device is not the CPU.
        imports: what importing costs; None if it was left out.
    """

    settings: Settings
    date: str
    hardware: dict[str, Any]
    versions: dict[str, str | None]
    rows: Sequence[Row]
    rates: dict[str, Spread]
    copies: Sequence[Copy]
    overhead: Overhead | None
    imports: ImportCost | None

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
                    "ratio_to_plain": self.ratio(row.key, PLAIN).as_dict(),
                    "ratio_to_plain_0_workers": self.ratio(row.key, PLAIN_0).as_dict(),
                    "per_epoch": None if row.counts is None else row.counts.as_dict(),
                }
                for row in self.rows
            ],
            "share_of_copy": {
                COPY_FRESH: self.ratio(AUGMENTED, COPY_FRESH).as_dict(),
                COPY_REUSED: self.ratio(AUGMENTED, COPY_REUSED).as_dict(),
            },
            "copies": [copy.as_dict() for copy in self.copies],
            "overhead": None if self.overhead is None else self.overhead.as_dict(),
            "imports": None if self.imports is None else self.imports.as_dict(),
        }

    def __str__(self) -> str:
        parts = (self._head(), self._rows(), self._figures(), self._copies())
        return "\n\n".join(parts)

    def _head(self) -> str:
        settings = self.settings
        head = (
            f"{settings.samples:,} synthetic images of 32x32x3 random bytes, batches of "
            f"{settings.batch_size} on {settings.device}"
        )
        return about(head, self.hardware, self.versions)

    def _rows(self) -> str:
        workers = f"{self.settings.workers}w"
        header = ["", "samples/s", "min – max", f"× plain {workers}", "min – max", "× plain 0w"]
        header += ["calls", "to device", "held"]
        lines = []
        for row in self.rows:
            rate, ratio = self.rates[row.key], self.ratio(row.key, PLAIN)
            cells = [row.name, number(rate.median), span(rate), number(ratio.median), span(ratio)]
            cells.append(number(self.ratio(row.key, PLAIN_0).median))
            counts = row.counts
            if counts is None:
                cells += ["–"] * 3
            else:
                sizes = (counts.link_bytes, counts.bytes_held)
                cells += [f"{counts.transform_calls:,}", *map(human_bytes, sizes)]
            lines.append(cells)
        return f"{table(header, lines)}\n\n{self._method()}"

    def _method(self) -> str:
        settings = self.settings
        part = settings.part_batches * settings.batch_size
        written = next(row.counts.batch_bytes for row in self.rows if row.counts is not None)
        if settings.device == "cpu":
            link = "nothing, the device is the CPU"
        else:
            link = "all that PyTorch copies from the host, indices included"
        return f"""\
{settings.rounds} interleaved rounds; medians, and a ratio is taken within its round.
Not timed: compiling, filling, the spot check, one counted epoch of each row.
plain: {part:,} samples from the middle of an epoch, the workers running already.
once, then plain: float32 tensors kept, as by hand; its crop pads with 0 behind the normalisation,
  which gives other batches than the first rows.
resident, copy_: {settings.epochs} whole epochs, their starts included.
calls: of the transform's steps, in all processes, in one epoch. to device: bytes in one epoch;
  {link}. The batches of an epoch are {human_bytes(written)}.
held: the samples as they are served; what resident rows were made from stays in memory as well."""

    def _figures(self) -> str:
        ratio = self.ratio(AUGMENTED, PLAIN)
        lines = [
            f"resident with augmentation: {said(ratio)} times the plain loader with "
            f"{self.settings.workers} workers (at least 50, goal 100)"
        ]
        for key, name in ((COPY_FRESH, "new tensors"), (COPY_REUSED, "one reused tensor")):
            share = self.ratio(AUGMENTED, key)
            lines.append(
                f"of the rate of copy_ into {name}: {said(share)} (at least 0.25, goal 0.5)"
            )
        if self.overhead is not None:
            lines.append(
                f"Python per batch beyond the kernel: {said(self.overhead.beyond_us)} µs "
                f"(goal under 100), the kernel {number(self.overhead.engine_us.median)} µs"
            )
        if self.imports is not None:
            lines.append(
                f"import hotset after import torch: {said(self.imports.hotset_ms)} ms (goal under "
                f"60), with the first use of its loaders {number(self.imports.use_ms.median)} ms; "
                f"import torch {number(self.imports.torch_ms.median)} ms"
            )
        return "\n".join(lines)

    def _copies(self) -> str:
        where = (
            "This machine's CPU is the device: these are copies within host memory, no transfers."
            if self.settings.device == "cpu"
            else "From pinned host memory to the device."
        )
        return (
            "Copying a batch to the device, by image size and dtype\n"
            f"{where}\nAt most {MOST_BATCH} images and {human_bytes(MOST_BATCH_BYTES)} as float32, "
            "read from more memory than the caches hold, into one reused tensor.\n\n"
            f"{copies_table(self.copies)}"
        )


def about(head: str, machine: dict[str, Any], found: dict[str, str | None]) -> str:
    """What was measured, on what hardware, with which versions, and whether others were at work."""
    memory = machine["memory_bytes"]
    parts = [f"{machine['cpu']}, {machine['cores']} cores"]
    parts += [human_bytes(memory)] if memory is not None else []
    parts += [gpu["name"] for gpu in machine["gpus"]]
    packages = ("hotset", "torch", "torchvision", "numba", "python")
    lines = [
        head,
        ", ".join(parts),
        ", ".join(f"{name} {found[name]}" for name in packages if found[name]),
    ]
    load, cores = machine["load_average"], machine["cores"]
    if load is not None and load > cores / 2:
        lines.append(
            f"note: the machine was busy when this began (load {load:.1f} on {cores} cores); "
            "the ratios suffer less than the rates, but they do"
        )
    return "\n".join(lines)


def said(spread: Spread) -> str:
    """The median, and the least and the most."""
    return f"{number(spread.median)} ({span(spread)})"
