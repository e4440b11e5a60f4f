"""Looks at a source: which of its steps are deterministic, what its samples are, where to cut."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hotset.chain import torchvision
from hotset.chain.marks import mark_of
from hotset.chain.probe import (
    Verdict,
    copied,
    preserved_generators,
    probe,
    seed_generators,
)
from hotset.chain.split import Decision, Split, split_chain
from hotset.chain.step import Nature, Step
from hotset.errors import ConfigError, HotsetError, SampleError, SchemaError
from hotset.sample.column import LeafSchema, describe
from hotset.sample.tree import Spec, flatten, strip
from hotset.sources.opened import note_sample, within_step
from hotset.sources.source import Reader, Source, read, spread

PROBES = 4
"""Samples looked at before anything is decided."""
Look = Callable[[Sequence[Step], Sequence[Sequence[Any]]], None]


@dataclass(frozen=True, eq=False)
class Analysis:
    """What is known of a source before any of it is read in full.

    Attributes:
        source: what was looked at.
        split: what happens to each step of its chain.
        dataset: whether reading, apart from the chain, is deterministic, and why.
        spec: the structure of a sample.
        stored: schema of each leaf as it would be stored, after the steps that run once.
        finals: per sample looked at, the schema of each leaf as the whole chain gives it.
        traced: per sample looked at, the schema of the chain's leaf before each step and after the
            last.
        preferred: what would happen to each step if there were room for it; None where this is it.
    """

    source: Source
    split: Split
    dataset: Verdict
    spec: Spec
    stored: tuple[LeafSchema, ...]
    finals: dict[int, tuple[LeafSchema, ...]]
    traced: dict[int, tuple[LeafSchema, ...]]
    preferred: Split | None = None

    @property
    def final(self) -> tuple[LeafSchema, ...]:
        """The schemas of the first sample as the whole chain gives it."""
        return next(iter(self.finals.values()))

    @property
    def bytes_per_sample(self) -> int:
        """About what one sample takes when stored; text and objects count nothing."""
        return self.bytes_at(self.split.cut)

    def bytes_at(self, cut: int) -> int:
        """About what one sample takes when stored as it is behind so many steps."""
        total = 0
        for leaves, trace in zip(self.finals.values(), self.traced.values(), strict=True):
            others = sum(schema.nbytes for schema in leaves) - leaves[self.source.leaf].nbytes
            total += others + trace[cut].nbytes
        return -(-total // len(self.traced))

    @property
    def smaller(self) -> tuple[Analysis, ...]:
        """The same with the cuts that need fewer bytes, in the order of preference."""
        return tuple(self.with_split(split) for split in self.split.smaller)

    def with_split(self, split: Split) -> Analysis:
        """The same with another split, where there is no room for its own."""
        stored = list(self.stored)
        stored[self.source.leaf] = next(iter(self.traced.values()))[split.cut]
        return replace(self, split=split, stored=tuple(stored), preferred=self.split)

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """One per step, with the dataset itself first."""
        action = "once" if self.dataset.is_deterministic else "worker"
        name = self.source.name
        return (Decision(name, action, self.dataset.reason), *self.split.decisions)  # type: ignore[arg-type]


def analyse(
    source: Source, probes: Sequence[int] | None = None, *, look: Look | None = None
) -> Analysis:
    """Probes a source on a few samples spread over it; leaves all generators as they were.

    Args:
        source: not empty.
        probes: the samples to look at; None chooses them.
        look: shown the steps and the samples' values before each and after the last, which are
            let go of afterwards.

    Raises:
        SampleError: if a sample or a step fails.
        ConfigError: if a callable contradicts the marker it bears.
    """
    indices = spread(len(source), PROBES) if probes is None else probes
    reader = source.reader(None)
    dataset = _probe_reading(source, reader, indices)
    with preserved_generators():
        samples = [read(reader, index, source.name) for index in indices]
        leaves, spec = flatten(samples[0])
        if not leaves:
            raise SchemaError(f"{source.name}: samples hold no value, such as {samples[0]!r}")
        _refuse_other_structures(source, spec, samples, indices)
        inputs = [flatten(sample, spec)[0][source.leaf] for sample in samples]
        steps, traces = _classify(source, inputs, indices)
        split = split_chain(steps, traces, least_cut=source.once)
        if look is not None:
            look(steps, traces)
    stored = [describe(leaf) for leaf in leaves]
    stored[source.leaf] = describe(traces[0][split.cut])
    finals, traced = {}, {}
    for index, sample, trace in zip(indices, samples, traces, strict=True):
        traced[index] = tuple(map(describe, trace))
        schemas = [describe(leaf) for leaf in flatten(sample, spec)[0]]
        schemas[source.leaf] = traced[index][-1]
        finals[index] = tuple(schemas)
    return Analysis(source, split, dataset, strip(spec), tuple(stored), finals, traced)


def _probe_reading(source: Source, reader: Reader, indices: Sequence[int]) -> Verdict:
    if source.resident() is not None:
        return Verdict(True, "already in memory")
    for call in source.unseen:
        nature = torchvision.nature_of(call)
        if mark_of(call) == "random" or (nature is not None and nature[0] == "random"):
            name = Step(0, call, "random", "").name
            return Verdict(False, f"{name} is random, and is not applied once to every sample")
    return probe(lambda index: read(reader, index, source.name), indices)


def _refuse_other_structures(
    source: Source, spec: Spec, samples: Sequence[Any], indices: Sequence[int]
) -> None:
    for index, sample in zip(indices, samples, strict=True):
        found = flatten(sample, spec)[1]
        if found != spec:
            paths = found.paths()
            raise SchemaError(
                f"{source.name}: the sample at index {index} has the leaves {paths}, that at index "
                f"{indices[0]} has {spec.paths()}; samples must have one structure, so a list of "
                "numbers whose length differs is to be a tensor or an array"
            )


def _classify(
    source: Source, inputs: Sequence[Any], indices: Sequence[int]
) -> tuple[list[Step], list[list[Any]]]:
    """The steps with their natures, and per sample the value before each and after the last."""
    traces = [[value] for value in inputs]
    steps = []
    for number, call in enumerate(source.steps):
        step = Step(number, call, "unknown", "")
        values = [trace[-1] for trace in traces]
        note_sample(indices[0])
        try:
            with within_step(number):
                steps.append(_find_nature(step, values))
        except HotsetError:
            raise
        except Exception as error:
            raise SampleError(
                f"step {number} of the transform, {step.name}, failed on one of the samples "
                f"{list(indices)}: {type(error).__name__}: {error}"
            ) from error
        for trace, index in zip(traces, indices, strict=True):
            seed_generators(index)
            note_sample(index)
            try:
                with within_step(number):
                    trace.append(call(copied(trace[-1])))
            except Exception as error:
                raise SampleError(
                    f"step {number} of the transform, {step.name}, failed at index {index}: "
                    f"{type(error).__name__}: {error}"
                ) from error
    return steps, traces


def _find_nature(step: Step, values: Sequence[Any]) -> Step:
    known = torchvision.nature_of(step.call)
    if known is not None:
        return step.decided(*known)
    mark: Nature | None = mark_of(step.call)
    if mark == "random":
        return step.decided("random", "marked @hotset.random")
    verdict = probe(step.call, values)
    if mark == "deterministic":
        if not verdict.is_deterministic:
            raise ConfigError(
                f"{step.name} is marked @hotset.deterministic, but was {verdict.reason}; take the "
                "marker off, or make it depend on its input alone"
            )
        return step.decided("deterministic", "marked @hotset.deterministic, and probed")
    return step.decided("deterministic" if verdict.is_deterministic else "random", verdict.reason)
