"""The spot check: a few samples of the first epoch, made again by the user's chain.

For random steps the user's own transform is run with its draws replaced by the ones that the batch
used, so that the bits must agree.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import default_collate

from hotset.chain.probe import preserved_generators, seed_generators
from hotset.chain.split import Split
from hotset.chain.step import Chained, StepCall
from hotset.errors import FaithfulnessError
from hotset.loader.batch import Make, Pipeline, Request, remembered
from hotset.loader.forms import Form
from hotset.ops.op import Params, Shape, apply_gated, draw_gated
from hotset.ops.pointwise import Elementwise, Table
from hotset.placement.precision import kept_as
from hotset.rng import Draws
from hotset.sample.collate import same_bits
from hotset.sample.column import describe, encode
from hotset.sample.tree import Spec, batch_leaves, flatten, unflatten
from hotset.sources.source import Source, read

RARE_VALUES = 4
"""So many values of a resized image may differ by two levels, where the others may by one.

torch's weights have 16 bits, Pillow's 22, and both round behind each of two passes: where both
roundings fall to the other side the difference is two. Of 12 million values 4 did.
"""


class SpotCheck:
    """Compares samples of batches with what the user's own chain makes of them.

    Args:
        source: where the samples come from.
        spec: the structure of a sample.
        split: what was done to its chain.
        stored: gives the leaves of a sample id as they are kept.
        cast: what was done to a finished sample (a dtype).
        every: one sample in so many is compared; 0 compares none.
        narrowed: per leaf that is kept in a narrower dtype, the dtype: what the user's chain gives
            is rounded likewise where it is cut.
        is_stacking: whether batches are as `default_collate` makes them; else leaves that cannot be
            stacked are lists.
        forms: how leaves whose shape differs come out.
    """

    def __init__(
        self,
        source: Source,
        spec: Spec,
        split: Split,
        stored: Callable[[int], list[Any]],
        cast: Callable[[Any], Any],
        *,
        every: int,
        narrowed: Mapping[int, torch.dtype] | None = None,
        is_stacking: bool = True,
        forms: Mapping[int, Form] | None = None,
    ) -> None:
        self._narrowed = dict(narrowed or {})
        self._source, self._spec, self._split = source, spec, split
        self._stored, self._cast, self._every = stored, cast, every
        self._is_stacking, self._forms = is_stacking, forms or {}
        self.checked = 0

    def compare(self, request: Request, batch: Any) -> None:
        """Compares those samples of a batch whose turn it is, in the first epoch.

        Args:
            request: what the batch was made for.
            batch: as `default_collate` would make it.

        Raises:
            FaithfulnessError: if a sample differs; names it and the step.
        """
        if self._every == 0 or request.key.epoch > 0:
            return
        for place in range(-request.position % self._every, len(request.ids), self._every):
            if self._split.mode == "worker":
                self._compare_stored(int(request.ids[place]))
            else:
                self._compare_batched(request, batch, place)
            self.checked += 1

    def _compare_stored(self, index: int) -> None:
        """What is kept of a sample, where the user's own callables do the rest."""
        calls = [step.call for step in self._split.steps[: self._split.cut]]
        with preserved_generators():
            values = self._as_kept(index, calls)
        for leaf, (found, value) in enumerate(zip(self._stored(index), values, strict=True)):
            if not same_bits(found, value):
                is_chain = leaf == self._source.leaf
                self._refuse(
                    index, " in what was kept of it" if is_chain else self._at(leaf), found, value
                )

    def _compare_batched(self, request: Request, batch: Any, place: int) -> None:
        index = int(request.ids[place])
        calls, drawn, images = self._replay(request, place)
        with preserved_generators():
            seed_generators(index)
            sample = self._cast(self._made_again(index, calls))
        expected = self._as_in_batch(sample)
        leaves = [leaf[place] for leaf in batch_leaves(batch, self._spec)]
        for leaf, (found, wanted) in enumerate(zip(leaves, expected, strict=True)):
            if isinstance(found, Tensor) and not isinstance(wanted, Tensor):
                wanted = encode(wanted, describe(wanted))
            if not (leaf == self._source.leaf and self._split.stages):
                wanted = _promoted(wanted, found)
            if leaf in self._forms and isinstance(wanted, Tensor):
                wanted = self._forms[leaf].alone(wanted, found)
            is_chain = leaf == self._source.leaf and leaf not in self._forms
            if not same_bits(found, wanted) and not (is_chain and self._is_near(found, wanted)):
                where = self._culprit(index, calls, drawn, images) if is_chain else self._at(leaf)
                self._refuse(index, where, found, wanted)

    def _is_near(self, found: Any, wanted: Any) -> bool:
        """Whether values differ by no more than resizing may make them differ."""
        levels = sum(stage.form.levels for stage in self._split.stages if stage.form is not None)
        if levels == 0 or found.shape != wanted.shape or found.dtype != wanted.dtype:
            return False
        # A level of a byte is as much as the steps behind make of it, at most.
        channels = self._encoded(0).shape[0]
        values = torch.arange(256, dtype=torch.uint8).repeat(channels, 1)[None, :, None, :]
        for op in self._split.ops:
            if isinstance(op, (Table, Elementwise)):
                values = op.apply(values, {})
        # Rounded as the batch is: in half precision a level may be more than in single precision.
        steps = values[0].to(found.dtype).double().diff(dim=2).abs()
        most = steps.amax(dim=2, keepdim=True) * (levels * 1.001)  # (C, 1, 1)
        differing = (found.cpu().double() - wanted.cpu().double()).abs()
        rare = max(RARE_VALUES, found.numel() // 1000)
        return bool((differing <= 2 * most).all() and (differing > most).sum() <= rare)

    def _made_again(self, index: int, calls: list[StepCall]) -> Any:
        """A sample by the user's own chain, rounded at the cut where it is kept so."""
        source, cut, narrowed = self._source, self._split.cut, dict(self._narrowed)
        if source.steps and source.leaf in narrowed:
            dtype = narrowed.pop(source.leaf)
            calls = [*calls[:cut], partial(kept_as, dtype=dtype), *calls[cut:]]
        sample = read(source.reader(Chained(calls) if source.steps else None), index, source.name)
        if not narrowed:
            return sample
        leaves = _rounded(flatten(sample, self._spec)[0], narrowed)
        return unflatten(self._spec, iter(leaves))

    def _as_kept(self, index: int, calls: list[StepCall]) -> list[Any]:
        """The leaves of a sample up to the cut, by the user's own chain."""
        sample = read(self._source.reader(Chained(calls)), index, self._source.name)
        return _rounded(flatten(sample)[0], self._narrowed)

    def _as_in_batch(self, sample: Any) -> list[Any]:
        """The leaves of a sample as they stand in a batch."""
        if not self._is_stacking:
            return flatten(sample, self._spec)[0]
        return [leaf[0] for leaf in batch_leaves(default_collate([sample]), self._spec)]

    def _refuse(self, index: int, where: str, found: Any, wanted: Any) -> None:
        raise FaithfulnessError(
            f"sample {index} of {self._source.name} differs from what your own chain gives{where}: "
            f"{_difference(found, wanted)}. If a step of yours is random, mark it with "
            "@hotset.random; if the dataset changes over time, it cannot be kept"
        )

    def _replay(
        self, request: Request, place: int
    ) -> tuple[list[StepCall], list[tuple[Any, Params]], Tensor | None]:
        """The user's steps with a sample's draws; operations with theirs; the stored image."""
        split = self._split
        calls = [step.call for step in split.steps[: split.cut]]
        if not split.stages:
            return calls, [], None
        draws = Draws(
            request.key,
            torch.from_numpy(request.ids[place : place + 1]),
            torch.from_numpy(request.occurrence[place : place + 1]),
        )
        images = self._encoded(int(request.ids[place]))[None]
        shape: Shape = (images.shape[1], images.shape[2], images.shape[3])
        drawn: list[tuple[Any, Params]] = []
        for stage in split.stages:
            first = len(drawn)
            for op in stage.ops:
                drawn.append((op, draw_gated(op, draws, shape)))
                shape = op.out_shape(shape)
            calls.append(stage.replay([params for _, params in drawn[first:]]))
        return calls, drawn, images

    def _at(self, leaf: int) -> str:
        return f" at sample{self._spec.paths()[leaf]}"

    def _kept(self, index: int) -> Any:
        return self._stored(index)[self._source.leaf]

    def _encoded(self, index: int) -> Tensor:
        leaf = self._kept(index)
        return encode(leaf, describe(leaf))

    def _culprit(
        self,
        index: int,
        calls: list[StepCall],
        drawn: list[tuple[Any, Params]],
        images: Tensor | None,
    ) -> str:
        """Which step's result differs first."""
        split = self._split
        with preserved_generators():
            value = self._as_kept(index, calls[: split.cut])[self._source.leaf]
            if not same_bits(value, self._kept(index)):
                names = " + ".join(step.name for step in split.steps[: split.cut])
                return f" in what was kept of it ({names or 'the dataset itself'})"
            position = 0
            for number, stage in enumerate(split.stages):
                value = calls[split.cut + number](value)
                for op, params in drawn[position : position + len(stage.ops)]:
                    assert images is not None
                    images = apply_gated(op, images, params)
                position += len(stage.ops)
                following = split.stages[number + 1 : number + 2]
                if following and not following[0].ops:
                    continue  # a table stands for this step and the next
                if images is not None and not same_bits(encode(value, describe(value)), images[0]):
                    return f" at the step {stage.step.name}"
        return " in the fused kernel"


class CheckedPipeline:
    """Batches of another pipeline, a few of their samples compared on the way.

    Args:
        inner: makes the batches.
        check: compares them.
    """

    def __init__(self, inner: Pipeline, check: SpotCheck) -> None:
        self._inner, self._check = inner, check

    @contextmanager
    def session(self) -> Iterator[Make]:
        with self._inner.session() as make:
            yield lambda requests: self._batches(requests, make)

    def _batches(self, requests: Iterator[Request], make: Make) -> Iterator[Any]:
        taken: deque[Request] = deque()
        for batch in make(remembered(requests, taken)):
            self._check.compare(taken.popleft(), batch)
            yield batch


def _rounded(leaves: list[Any], narrowed: Mapping[int, torch.dtype]) -> list[Any]:
    return [
        kept_as(leaf, narrowed[number]) if number in narrowed else leaf
        for number, leaf in enumerate(leaves)
    ]


def _promoted(wanted: Any, found: Any) -> Any:
    """A leaf in its batch's dtype: mixed numbers get one, which a number alone cannot tell."""
    if not isinstance(wanted, Tensor) or not isinstance(found, Tensor):
        return wanted
    is_wider = torch.promote_types(wanted.dtype, found.dtype) == found.dtype
    return wanted.to(found.dtype) if is_wider or found.ndim == 0 else wanted


def _difference(found: Any, wanted: Any) -> str:
    if not isinstance(found, Tensor) or not isinstance(wanted, Tensor):
        return f"{found!r}, expected {wanted!r}"
    if found.shape != wanted.shape or found.dtype != wanted.dtype:
        return f"{tuple(found.shape)} {found.dtype}, expected {tuple(wanted.shape)} {wanted.dtype}"
    place = np.argwhere((found.cpu() != wanted.cpu()).numpy())
    where = tuple(int(i) for i in place[0]) if len(place) else ()
    return f"{found[where].item()!r}, expected {wanted[where].item()!r}, at {where}"
