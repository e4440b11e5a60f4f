"""What the doctor found, as a whole: in words, as JSON, as a page, and as a trace."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hotset.doctor.examination import Examination
from hotset.doctor.findings import Advice, BatchCheck, Overhead, Range, Stage, Trap, Verdict
from hotset.doctor.judging.loop import LoopTimes
from hotset.doctor.machine.usage import Usage
from hotset.doctor.measure import Timeline
from hotset.errors import StorageError

SCHEMA = "hotset-doctor-report"
VERSION = 1


@dataclass(frozen=True)
class LoaderShare:
    """One of several loaders of a script.

    Attributes:
        name: its class and its dataset's.
        batches: that came.
        epochs: that began.
        wait_s: that it was waited for.
        is_examined: whether the report is about it.
    """

    name: str
    batches: int
    epochs: int
    wait_s: float
    is_examined: bool


@dataclass(frozen=True, eq=False)
class Report:
    """Whether data holds a loop back, where, and what would help. Printing it gives it in words.

    Attributes:
        title: the script or the loader that it is about.
        created: when, as ISO 8601 writes it.
        verdict: what the loop is limited by.
        gain: how many times faster the loop would be if data took no time at all.
        loop: the loop's times.
        stages: what is done for a batch, in order, the step included, each with its ceiling.
        advice: what would help, the most first.
        traps: known ones that the loader is in.
        batch_check: whether a larger batch would help.
        examination: what was found out outside of the loop.
        timeline: the loop's times, batch by batch.
        usage: the machine while the loop ran; None where it was not looked at.
        overhead: what the doctor itself took.
        loaders: all loaders of a script, the most waited for first; empty where there is but one.
        versions: of the packages; None for what is not installed.
        hardware: what it ran on.
        notes: what else is worth knowing.

    Example:
        >>> import torch, hotset
        >>> data = torch.utils.data.TensorDataset(torch.zeros(64, 4))
        >>> loader = torch.utils.data.DataLoader(data, batch_size=8)
        >>> report = hotset.diagnose(loader, step=lambda batch: None, steps=32)
        >>> report.verdict.bound, report.loop.batches, report.as_dict()["version"]
        ('data-bound', 32, 1)
    """

    title: str
    created: str
    verdict: Verdict
    gain: Range
    loop: LoopTimes
    stages: tuple[Stage, ...]
    advice: tuple[Advice, ...]
    traps: tuple[Trap, ...]
    batch_check: BatchCheck
    examination: Examination
    timeline: Timeline
    usage: Usage | None
    overhead: Overhead
    loaders: tuple[LoaderShare, ...] = ()
    versions: dict[str, str | None] = field(default_factory=dict)
    hardware: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.text()

    def text(self, width: int = 100) -> str:
        """The report in words.

        Args:
            width: of a line, in characters.
        """
        from hotset.doctor.showing.wording import as_text

        return as_text(self, width)

    def as_dict(self) -> dict[str, Any]:
        """The report as plain values, as `showing/report.schema.json` describes them."""
        from hotset.doctor.showing.plain import as_plain

        return as_plain(self)

    def to_json(self, path: str | os.PathLike[str]) -> None:
        """Writes `as_dict()` as JSON.

        Raises:
            StorageError: if that cannot be written.
        """
        from hotset.doctor.showing.plain import as_json

        _write(path, as_json(self))

    def to_html(self, path: str | os.PathLike[str]) -> None:
        """Writes one page that needs nothing else: no script, no font, no network.

        Raises:
            StorageError: if that cannot be written.
            MissingExtraError: without matplotlib, which draws the plots.
        """
        from hotset.doctor.showing.page import as_page

        _write(path, as_page(self))

    def to_trace(self, path: str | os.PathLike[str]) -> None:
        """Writes the loop for a trace viewer: Perfetto, or chrome://tracing.

        Raises:
            StorageError: if that cannot be written.
        """
        from hotset.doctor.showing.trace import as_trace

        _write(path, as_trace(self))


def _write(path: str | os.PathLike[str], text: str) -> None:
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise StorageError(f"{path} cannot be written: {error.strerror or error}") from error
