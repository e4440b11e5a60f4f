"""Whether batches can be made of samples as they are kept: they may differ in shape after all."""

from __future__ import annotations

import numpy as np

from hotset.errors import SchemaError
from hotset.loader.forms import Form, Forms, asked_of, form_of
from hotset.loader.options import Options
from hotset.ops.resample import makes_one_size
from hotset.sample.collate import can_batch, check_collatable, difference
from hotset.sample.column import Column, DenseColumn, LeafSchema, RaggedColumn, describe
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
    asked = asked_of(options.ragged, analysis.spec)
    for number, column in enumerate(resident.columns):
        is_acted_on = number == resident.leaf and bool(analysis.split.stages)
        if asked[number] is not None and not is_acted_on and is_ragged(column):
            continue
        unlike = _unlike(analysis, resident, number)
        if unlike is not None and not (is_acted_on and _become_alike(analysis, *unlike)):
            raise SchemaError(_words(analysis, number, *unlike))


def is_ragged(column: Column) -> bool:
    """Whether a column holds tensors or arrays of differing shapes."""
    return isinstance(column, RaggedColumn) and column.schema.kind in ("tensor", "array")


def forms_of(analysis: Analysis, options: Options, resident: Resident | None) -> Forms:
    """How leaves come out whose shape differs, and those that the user named.

    Args:
        analysis: of the source.
        options: what was asked for.
        resident: what is kept; None if nothing is.

    Raises:
        ConfigError: if a field is named that cannot be padded, or a pad value does not fit.
        SchemaError: if a field cannot be jagged.
    """
    spec, split = analysis.spec, analysis.split
    found: dict[int, Form] = {}
    for number, (path, asked) in enumerate(
        zip(spec.paths(), asked_of(options.ragged, spec), strict=True)
    ):
        is_made_alike = number == analysis.source.leaf and bool(split.stages)
        if asked is None or (is_made_alike and not asked.is_named):
            continue
        schemas = [schemas[number] for schemas in analysis.finals.values()]
        is_kept = resident is not None and not is_made_alike
        shapes = _ragged_shapes(resident, number) if is_kept and resident is not None else None
        form = form_of(asked, path, schemas, shapes)
        if form is not None:
            found[number] = form
    return Forms(spec, found)


def _ragged_shapes(resident: Resident, number: int) -> np.ndarray | None:
    """(N, axes) int64 shapes of the samples, where a leaf is kept as ragged."""
    column = resident.columns[number]
    if not is_ragged(column):
        return None
    assert isinstance(column, RaggedColumn)
    shapes = column.index[:, 1 : 1 + len(column.schema.shape)]
    return shapes if resident.rows is None else shapes[resident.rows.cpu().numpy()]


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
        samples, rows = _samples_and_rows(resident)
        shapes = column.index[rows, 1 : 1 + axes]
        others = np.flatnonzero((shapes != shapes[:1]).any(axis=1))
        places = (0, *others[:1].tolist())
        found = [(int(samples[n]), describe(column.item(int(rows[n])))) for n in places]
    else:
        pairs = zip(*(numbers.tolist() for numbers in _samples_and_rows(resident)), strict=True)
        items = [(sample, column.items[row]) for sample, row in pairs]
        found = [(sample, item[1]) for sample, item in items if isinstance(item, tuple)]
        found = found[:1] + [(n, s) for n, s in found if not can_batch(found[0][1], s)][:1]
    return (found[0], found[1]) if len(found) > 1 else None


def _samples_and_rows(resident: Resident) -> tuple[np.ndarray, np.ndarray]:
    """(M,) int64 twice: the samples that are there, and the row of each."""
    if resident.rows is None:
        every = np.arange(len(resident.columns[0]))
        return every, every
    rows: np.ndarray = resident.rows.cpu().numpy()
    there = np.flatnonzero(rows >= 0)  # while a store is filled, some have none yet
    return there, rows[there]


def check_batches(analysis: Analysis, options: Options) -> None:
    """Refuses samples, of those looked at, that torch's own collate function would refuse.

    Raises:
        SchemaError: names the leaf, and the samples that differ.
    """
    check_collatable(list(analysis.final), analysis.spec)
    first_index, first = next(iter(analysis.finals.items()))
    paths, asked = analysis.spec.paths(), asked_of(options.ragged, analysis.spec)
    for index, schemas in analysis.finals.items():
        for path, was, now, wanted in zip(paths, first, schemas, asked, strict=True):
            if not can_batch(was, now, is_ragged=wanted is not None):
                raise SchemaError(difference(path, first_index, was, index, now))
