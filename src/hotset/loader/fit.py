"""Whether batches can be made of samples as they are kept: they may differ in shape after all."""

from __future__ import annotations

import numpy as np

from hotset.errors import SchemaError
from hotset.loader.options import Options
from hotset.ops.resample import makes_one_size
from hotset.sample.collate import can_batch, difference
from hotset.sample.column import DenseColumn, LeafSchema, RaggedColumn, describe
from hotset.sources.analyse import Analysis
from hotset.sources.resident import Resident


def fits_stages(analysis: Analysis, resident: Resident) -> bool:
    """Whether the operations can take all samples at once; they may differ in shape after all."""
    column = resident.columns[resident.leaf]
    if not analysis.split.stages or isinstance(column, DenseColumn):
        return True
    is_images = isinstance(column, RaggedColumn) and column.channels is not None
    return makes_one_size(analysis.split.ops) and is_images


def check_fit(analysis: Analysis, options: Options, resident: Resident) -> None:
    """Makes sure that batches can be made of what a first epoch has filled so far.

    Raises:
        SchemaError: if samples differ in shape where all were taken to be alike; names one.
    """
    check_stackable(analysis, options, resident)
    if fits_stages(analysis, resident):
        return
    unlike = _unlike(analysis, resident, resident.leaf)
    words = "they differ in kind" if unlike is None else _words(analysis, resident.leaf, *unlike)
    raise SchemaError(
        f"{analysis.source.name}: {words.partition('; ')[0]}, and steps that run on whole batches "
        "need them alike. What was read is kept: run it again, and the rest is read before the "
        "first epoch, and these steps run per sample"
    )


def is_per_sample(analysis: Analysis, options: Options) -> bool:
    """Whether samples are made, or asked for by a collate function, one by one."""
    return analysis.split.mode == "worker" or options.collate is not None


def check_stackable(analysis: Analysis, options: Options, resident: Resident) -> None:
    """Refuses leaves that differ in shape and that nothing makes one, before batches fail by them.

    Raises:
        SchemaError: names two samples and their shapes.
    """
    if is_per_sample(analysis, options):
        return
    for number in range(len(resident.columns)):
        unlike = _unlike(analysis, resident, number)
        is_acted_on = number == resident.leaf and bool(analysis.split.stages)
        if unlike is not None and not (is_acted_on and _become_alike(analysis, *unlike)):
            raise SchemaError(_words(analysis, number, *unlike))


Found = tuple[int, LeafSchema]
"""A sample, and the schema of a leaf of its."""


def _words(analysis: Analysis, number: int, first: Found, other: Found) -> str:
    return difference(analysis.spec.paths()[number], *first, *other)


def _become_alike(analysis: Analysis, first: Found, other: Found) -> bool:
    """Whether the operations make images of one shape of two that differ."""
    shapes = [first[1].shape, other[1].shape]
    for op in analysis.split.ops:
        shapes = [op.out_shape((shape[0], shape[1], shape[2])) for shape in shapes]
    return shapes[0] == shapes[1]


def _unlike(analysis: Analysis, resident: Resident, number: int) -> tuple[Found, Found] | None:
    """Two samples whose leaves cannot stand in one batch; None where all can.

    Images that are resized first may differ in all but their number of channels.
    """
    column = resident.columns[number]
    if isinstance(column, DenseColumn):
        return None
    if isinstance(column, RaggedColumn):
        if not column.schema.is_storable:
            return None
        is_resized = number == resident.leaf and makes_one_size(analysis.split.ops)
        axes = 1 if is_resized else len(column.schema.shape)
        shapes = column.index[:, 1 : 1 + axes]
        others = np.flatnonzero((shapes != shapes[:1]).any(axis=1))
        found = [(row, describe(column.item(row))) for row in (0, *others[:1].tolist())]
    else:
        found = [(row, i[1]) for row, i in enumerate(column.items) if isinstance(i, tuple)]
        found = found[:1] + [(row, s) for row, s in found if not can_batch(found[0][1], s)][:1]
    if len(found) < 2:
        return None
    first, other = ((_sample_at(resident, row), schema) for row, schema in found)
    return first, other


def _sample_at(resident: Resident, row: int) -> int:
    if resident.rows is None:
        return row
    return int((resident.rows == row).nonzero()[0, 0])
