"""What a store is to be made of: how samples are read for it, and what it is known by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from hotset.chain.step import Chained, StepCall
from hotset.keys.fingerprint import Fingerprint, fingerprint
from hotset.keys.source import SourceIdentity
from hotset.sample.column import LeafSchema, describe, raw_bytes
from hotset.sample.tree import Spec, flatten
from hotset.sources.analyse import Analysis
from hotset.sources.opened import Opened
from hotset.sources.source import Reader, Source, read
from hotset.store.leaf import check_leaf
from hotset.store.writer import Content


@dataclass(frozen=True, eq=False)
class Recipe:
    """What a store is to be made of.

    Attributes:
        analysis: of the source.
        cut: steps before this position run once.
        table: (C, 256) that finishes the chain's leaf when it is read; None if it is kept as it is.
        schemas: per leaf, of the first sample as it is kept.
        bytes_per_sample: about what one sample takes.
        fingerprint: what it is made from.
    """

    analysis: Analysis
    cut: int
    table: Tensor | None
    schemas: tuple[LeafSchema, ...]
    bytes_per_sample: tuple[int, ...]
    fingerprint: Fingerprint

    @property
    def source(self) -> Source:
        """Where the samples come from."""
        return self.analysis.source

    @property
    def tabled_leaf(self) -> int | None:
        """The leaf that the table finishes."""
        return None if self.table is None else self.source.leaf

    def reader(self) -> Reader:
        """Reads a sample as it is kept."""
        steps = self.analysis.split.steps[: self.cut]
        return self.source.watched_reader(Chained([step.call for step in steps]))

    def content(self) -> Content:
        """What a writer is told."""
        samples = len(self.source)
        return Content(
            self.analysis.spec,
            self.source.leaf,
            self.schemas,
            self.fingerprint.as_dict(),
            self.table,
            tuple(count * samples for count in self.bytes_per_sample),
        )

    def made(self) -> dict[str, Any]:
        """How the store is made, for people to read."""
        steps = self.analysis.split.steps
        stop = self.analysis.split.leading if self.table is not None else self.cut
        return {
            "dataset": self.source.name,
            "once": [step.name for step in steps[: self.cut]],
            "by_table": [step.name for step in steps[self.cut : stop]],
            "left": [step.name for step in steps[stop:]],
        }


def recipe_for(
    dataset: Any,
    analysis: Analysis,
    *,
    is_whole: bool,
    version: str | None = None,
    is_by_content: bool = False,
    hidden: Sequence[StepCall] = (),
    identity: SourceIdentity | None = None,
    opened: Opened | None = None,
) -> Recipe:
    """The recipe for a store of an analysed source.

    Args:
        dataset: the user's dataset or arrays.
        analysis: of it.
        is_whole: whether samples are to be read from the store as they are before the first random
            step; else as they are at the cut.
        version: the user's word for what cannot be keyed.
        is_by_content: whether all of the files that the dataset names are hashed, and not their
            sizes and times alone.
        hidden: further steps behind the dataset's own that were not found in the samples.
        identity: of the dataset, taken before anything was read from it; None takes it now.
        opened: what was opened by reading samples so far; None if nobody listened.

    Raises:
        KeyingError: if something cannot be keyed, or samples are read from files that nothing
            names; and no version is given.
        SampleError: if a sample cannot be read.
        SchemaError: if a leaf cannot be stored.
    """
    split, source = analysis.split, analysis.source
    cut = split.cut
    table: Tensor | None = None
    if is_whole and split.finish is not None:
        # Its class is that of what it makes, as torchvision's tensors have their own.
        finished = {trace[split.leading].cls for trace in analysis.traced.values()}
        table = split.finish.as_subclass(finished.pop())
    elif is_whole:
        cut = split.leading
    schemas = list(analysis.stored)
    schemas[source.leaf] = next(iter(analysis.traced.values()))[cut]
    opened = Opened() if opened is None else opened
    with opened:
        samples = _samples(analysis, cut)
    sizes = [[len(raw_bytes(leaf, describe(leaf))) for leaf in leaves] for leaves in samples]
    stop = split.leading if table is not None else cut
    made_from = fingerprint(
        dataset,
        [*(step.call for step in split.steps[:stop]), *hidden],
        behind=[step.call for step in split.steps[stop:]],
        version=version,
        everything=is_by_content,
        samples=[
            raw_bytes(leaf, describe(leaf)).tobytes() for leaves in samples for leaf in leaves
        ],
        source=identity,
        # Steps behind are run whenever a sample is used: what they open changes no store.
        opened=opened.files(stop if split.steps else None),
    )
    mean = tuple(-(-sum(column) // len(column)) for column in zip(*sizes, strict=True))
    return Recipe(analysis, cut, table, tuple(schemas), mean, made_from)


def _samples(analysis: Analysis, cut: int) -> list[list[Any]]:
    """The leaves of the first and the last sample looked at, as they are to be kept."""
    source = analysis.source
    reader = source.reader(Chained([step.call for step in analysis.split.steps[:cut]]))
    samples = []
    for index in sorted({min(analysis.traced), max(analysis.traced)}):
        leaves = flatten(read(reader, index, source.name), analysis.spec)[0]
        _check_leaves(leaves, analysis.spec, index)
        samples.append(leaves)
    return samples


def check_first_leaves(analysis: Analysis) -> None:
    """Refuses what the dataset itself gives if it cannot be stored.

    Raises:
        SchemaError: names the leaf, and says what to do.
    """
    source, index = analysis.source, min(analysis.traced)
    leaves, spec = flatten(read(source.reader(None), index, source.name))
    changed = source.leaf if source.steps else None
    _check_leaves(leaves, spec, index, skipped=changed)


def _check_leaves(
    leaves: Sequence[Any], spec: Spec, index: int, *, skipped: int | None = None
) -> None:
    for number, (leaf, path) in enumerate(zip(leaves, spec.paths(), strict=True)):
        if number != skipped:
            where = f"sample{path} at index {index}"
            check_leaf(leaf, describe(leaf), where)
