"""Stores in words, for the terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hotset.placement.size import human_bytes
from hotset.progress import Bar, in_few_digits

if TYPE_CHECKING:
    from hotset.store.layout import Manifest
    from hotset.store.store import Store

SHOWN = 10
"""Samples given up that are named."""
WIDTH = 100
Rows = list[tuple[str, str]]


def as_built(store: Store, bar: Bar) -> str:
    """What was built.

    Args:
        store: the store.
        bar: was told of the progress.
    """
    made = store.manifest.made
    path = getattr(store, "url", store.path)
    if path is store.path and path.is_relative_to(Path.cwd()):
        path = path.relative_to(Path.cwd())
    lines = [f"{path}: {whole(store.manifest)}"]
    rows: Rows = []
    if bar.done is None:
        rows.append(("read", "nothing: the store was there already, made from the same"))
    else:
        rate = "" if bar.rate is None else f", {in_few_digits(bar.rate)} samples/s"
        rows.append(("read", f"{bar.read:,} samples in {bar.seconds:.1f} s{rate}"))
        before = bar.done - bar.read
        if before:
            rows.append(("", f"{before:,} more were there from before"))
    return "\n".join([*lines, *_aligned([*rows, *_steps(made), *_given_up(made)])])


def whole(manifest: Manifest) -> str:
    """How much there is in a store."""
    return f"{manifest.samples:,} samples, {human_bytes(manifest.nbytes)}"


def _steps(made: dict[str, Any]) -> Rows:
    """Which steps ran once, stand in the table, and were left."""
    words = (("once", "once", ""), ("by table", "by_table", ", when read"), ("left", "left", ""))
    rows = []
    for label, key, rest in words:
        names = made.get(key, [])
        if names:
            rows.append((label, ", ".join(map(str, names)) + rest))
    if not rows:
        return [("steps", "none")]
    if made.get("left"):
        rows[-1] = ("left", rows[-1][1] + "; give them to the loader, as `transform`")
    return rows


def _given_up(made: dict[str, Any]) -> Rows:
    """Samples that were skipped or substituted, each on a line."""
    rows: Rows = []
    for label, key in (("skipped", "skipped"), ("substituted", "substituted")):
        entries = made.get(key, [])
        for number, (index, other) in enumerate(entries[:SHOWN]):
            words = str(other) if key == "skipped" else f"{index} by {other}"
            rows.append((f"{label}, {len(entries):,}" if number == 0 else "", words))
        if len(entries) > SHOWN:
            rows.append(("", f"and {len(entries) - SHOWN:,} more"))
    return rows


def as_inspected(facts: dict[str, Any]) -> str:
    """What a store holds, and what it was made from, as `hotset.store.facts` gives it."""
    made = facts["made"]
    head = f"{facts['path']}: {facts['samples']:,} samples, {human_bytes(facts['bytes'])}"
    table: list[tuple[str, ...]] = [("field", "kind", "dtype", "shape", "mean", "size")]
    table += [_field(field) for field in facts["fields"]]
    others = [name for name in facts["files"] if name in ("rows.npy", "table.npy")]
    table += [(name, "", "", "", "", human_bytes(facts["files"][name])) for name in others]
    parts = facts["fingerprint"].get("parts", [])
    rows: Rows = [("dataset", str(made.get("dataset", "")))]
    rows += _steps(made)
    rows.append(("when", _when(made)))
    rows += _given_up(made)
    from_rows = [("digest", facts["fingerprint"].get("digest", ""))]
    from_rows += [(part["name"], part["text"]) for part in parts]
    return "\n".join(
        [
            head,
            "",
            *_table(table),
            "",
            "made",
            *_aligned(rows),
            "",
            "fingerprint",
            *_aligned(from_rows),
        ]
    )


def _when(made: dict[str, Any]) -> str:
    date, _, rest = str(made.get("when", "")).partition("T")
    return f"{date} {rest}, by hotset {made.get('hotset', '?')}, in {made.get('seconds', '?')} s"


def _field(field: dict[str, Any]) -> tuple[str, ...]:
    kind, modes = field["kind"], "/".join(field["modes"])
    kind = f"PIL {modes}" if modes else kind
    is_text = kind in ("str", "bytes")
    shape, mean = "", ""
    if field["layout"] == "dense":
        shape = " x ".join(map(str, field["shape"]))
    elif field["min"] is None:
        shape = "(index damaged)"
    else:
        pairs = zip(field["min"], field["max"], strict=True)
        shape = " x ".join(str(a) if a == b else f"{a}-{b}" for a, b in pairs)
        mean = " x ".join(f"{edge:.4g}" for edge in field["mean"])
        shape, mean = (f"{text} bytes" if is_text else text for text in (shape, mean))
    dtype = "" if is_text else field["dtype"]
    return field["name"], kind, dtype, shape or "-", mean, human_bytes(field["bytes"])


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows with their columns aligned; what is in none of them takes no place."""
    columns = [column for column in zip(*rows, strict=True) if any(column[1:])]
    widths = [max(map(len, column)) for column in columns]
    lines = zip(*columns, strict=True)
    return [
        "  " + "  ".join(f"{cell:<{w}}" for cell, w in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]


def _aligned(rows: Rows) -> list[str]:
    """Labels and texts; long texts are broken."""
    width = max((len(label) for label, _ in rows), default=0)
    lines = []
    for label, text in rows:
        start = f"  {label:<{width}}  "
        lines += textwrap.wrap(
            text or "-",
            WIDTH,
            initial_indent=start,
            subsequent_indent=" " * len(start),
            break_long_words=False,
            break_on_hyphens=False,
        )
    return lines
