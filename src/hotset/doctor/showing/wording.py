"""A report in words, for the terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from hotset.doctor.findings import Advice, Trap
from hotset.doctor.phrases import sentence, shortened, shown
from hotset.doctor.showing.rows import (
    LOADER_COLUMNS,
    Rows,
    advice_in_words,
    batch_rows,
    bound_in_words,
    burst_rows,
    epoch_rows,
    foot_rows,
    is_only_left,
    loader_cells,
    loader_in_words,
    lowest_in_words,
    machine_rows,
    notes,
    sample_rows,
    stage_cells,
    summary_rows,
    traps_in_order,
    unit,
    worker_rows,
)
from hotset.placement.columns import aligned
from hotset.placement.plan import table_of_cuts

if TYPE_CHECKING:
    from hotset.doctor.report import Report

LABEL = 14
LEAST_NAME = 12
"""A name in a table has so many letters at least, however wide the other columns are."""


def as_text(report: Report, width: int = 100) -> str:
    """The report for a terminal: verdict first, then what to do, then all that it follows from.

    Args:
        report: what was found.
        width: of a line, in characters; code and paths are not broken, and may be longer.
    """
    sections = [
        _head(report, width),
        _lines(summary_rows(report), width),
        _stages(report, width),
        _lines(epoch_rows(report), width),
        [] if is_only_left(report) else _advice(report.advice, width),
        _traps(traps_in_order(report), width),
        _lines(
            [*batch_rows(report), *burst_rows(report), *sample_rows(report), *worker_rows(report)],
            width,
        ),
        _cuts(report, width),
        _loaders(report, width),
        _lines(
            [*machine_rows(report), *foot_rows(report), *(("note", n) for n in notes(report))],
            width,
        ),
    ]
    return "\n\n".join("\n".join(lines) for lines in sections if lines)


def _stages(report: Report, width: int) -> list[str]:
    if not report.stages:
        return []
    rows = [("", "a batch", "", "at once", unit(report), "")]
    rows += [
        (*stage_cells(stage), lowest_in_words(stage, report.stages) if stage.is_lowest else "")
        for stage in report.stages
    ]
    names = [f"{'>' if stage.is_lowest else ' '} {shown(stage.name)}" for stage in report.stages]
    left, right = str.ljust, str.rjust
    return _table(["stage", *names], rows, (left, right, left, right, right, left), width)


def _advice(advice: Sequence[Advice], width: int) -> list[str]:
    if not advice:
        return []
    lines = ["What would help"]
    for number, each in enumerate(advice, 1):
        start = f"{number}. "
        lines += _wrapped(advice_in_words(each), width, start, " " * len(start))
        lines += _wrapped(shown(each.why), width, "   ", "   ")
        lines += _code(each.code)
    return lines


def _traps(traps: Sequence[Trap], width: int) -> list[str]:
    if not traps:
        return []
    lines = ["Traps"]
    for trap in traps:
        start = "! WRONG RESULTS: " if trap.is_wrong else "- "
        words = " ".join(map(sentence, (trap.name, trap.what, trap.why, trap.fix)))
        lines += _wrapped(words, width, start, "  ")
        lines += _code(trap.code)
    return lines


def _cuts(report: Report, width: int) -> list[str]:
    found = report.examination
    if found.plan is None:
        if not found.plan_problem:
            return []
        return _lines([("hotset", f"can do nothing here: {shown(found.plan_problem)}")], width)
    if not found.plan.cuts:
        return []
    table = table_of_cuts(found.plan.cuts, width, has_losers=False)
    return ["What hotset could keep, each sample made once (*: where it would cut)", *table]


def _loaders(report: Report, width: int) -> list[str]:
    if not report.loaders:
        return []
    names = ["loader", *(shown(loader.name) for loader in report.loaders)]
    rows = [LOADER_COLUMNS, *map(loader_cells, report.loaders)]
    return _table(names, rows, (str.rjust, str.rjust, str.rjust, str.ljust), width)


def _head(report: Report, width: int) -> list[str]:
    title, loader = shown(report.title), loader_in_words(report)
    return [
        f"hotset doctor: {title}",
        *([] if loader == title else _wrapped(loader, width)),
        "",
        *_wrapped(f"{bound_in_words(report)}: {shown(report.verdict.sentence)}", width),
    ]


def _lines(rows: Rows, width: int) -> list[str]:
    return aligned([(f"{label:<{LABEL}}", words) for label, words in rows], width) if rows else []


def _table(
    names: Sequence[str],
    rows: Sequence[Sequence[str]],
    sides: Sequence[Callable[[str, int], str]],
    width: int,
) -> list[str]:
    """Lines, a row each: names as long as there is room, and every other column at its side."""
    columns = [
        [side(cell, max(map(len, column))) for cell in column]
        for side, column in zip(sides, zip(*rows, strict=True), strict=True)
        if any(column)
    ]
    room = max(LEAST_NAME, width - sum(2 + len(column[0]) for column in columns))
    names = [shortened(name, room) for name in names]
    longest = max(map(len, names))
    columns = [[name.ljust(longest) for name in names], *columns]
    return ["  ".join(row).rstrip() for row in zip(*columns, strict=True)]


def _wrapped(text: str, width: int, first: str = "", later: str = "") -> list[str]:
    return textwrap.wrap(
        text,
        width,
        initial_indent=first,
        subsequent_indent=later,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _code(code: str) -> list[str]:
    return [f"       {shown(line)}".rstrip() for line in code.splitlines()]
