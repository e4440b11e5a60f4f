"""What a plan says: its cuts, its costs and its words, of what was found out and measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.util import find_spec
from typing import Any

import torch
from torch.utils.data import default_collate

from hotset.chain.split import Decision, Position
from hotset.errors import ConfigError
from hotset.kernels.dispatch import NumbaEngine, Reference, TritonEngine
from hotset.kernels.program import NotFusable, lower
from hotset.kernels.threads import usable_cores
from hotset.loader.cut import candidate_of
from hotset.loader.forms import Forms
from hotset.loader.narrowing import narrowing_of
from hotset.loader.options import Options
from hotset.loader.place import rooms_for
from hotset.ops.resample import makes_one_size
from hotset.placement.cut import Cut, choose_cut
from hotset.placement.lanes import is_passing
from hotset.placement.link import Link
from hotset.placement.plan import Plan
from hotset.placement.policy import choose_policy, ragged_policy
from hotset.placement.tiers import Choice
from hotset.planning.cuts import Epoch, Fact, cuts_of
from hotset.planning.handing import Handing, handing_of
from hotset.planning.measure import (
    ROUNDS,
    Clock,
    Measured,
    batch_of,
    batched_ms,
    measured_size,
    nbytes_of,
    step_times,
    time_of,
)
from hotset.planning.predict import Costs, predict
from hotset.planning.request import Asked
from hotset.sample.column import RaggedColumn
from hotset.sources.analyse import Analysis


@dataclass(frozen=True, eq=False)
class Estimate:
    """What a plan says, of what was found out; what is still to be timed is when it is wanted.

    Attributes:
        asked: what is asked for.
        wanted: the analysis with its preferred cut.
        analysis: the analysis with the cut that there is room for.
        choice: the tier.
        positions: what could be done at each position of the chain.
        measured: times of each step.
        unkept: why nothing is kept; empty where something is.
        forms: how leaves come out that differ in shape.
        clock: gives seconds.
        cpu_clock: gives seconds of the processor.
    """

    asked: Asked
    wanted: Analysis
    analysis: Analysis
    choice: Choice
    positions: Sequence[Position]
    measured: Measured
    unkept: str
    forms: Forms
    clock: Clock
    cpu_clock: Clock

    @property
    def options(self) -> Options:
        """What was asked for."""
        return self.asked.options

    @property
    def is_apart(self) -> bool:
        """Whether the device has memory of its own."""
        return self.options.link.is_apart

    def is_near(self, position: Position) -> bool:
        """Whether batches are made on the device, if it has memory of its own."""
        return position.rest != "worker" and self.options.collate is None

    @cached_property
    def final_bytes(self) -> int:
        """Bytes of a finished sample, in the mean."""
        sizes = list(map(nbytes_of, self.measured.samples))
        return -(-sum(sizes) // len(sizes))

    def collate(self, samples: list[Any]) -> Any:
        """A batch of single samples, as the user gets it."""
        if self.options.collate is not None:
            return self.options.collate(samples)
        if self.forms:
            return self.forms.finish(self.forms.collate(samples))
        return default_collate(samples)

    def bytes_per_sample(self, analysis: Analysis) -> int:
        """About what a sample takes at the cut of an analysis, as it is kept."""
        return narrowing_of(analysis, self.options.storage_dtype).bytes_per_sample(analysis)

    @cached_property
    def collate_ms(self) -> float:
        """Putting a batch together, a sample's share."""
        size = measured_size(self.asked.batch_size, self.final_bytes)
        samples = self.measured.samples
        return time_of(lambda: batch_of(samples, self.collate, size), self.clock) / size

    @cached_property
    def batched(self) -> tuple[float, str]:
        """What runs on whole batches at the cut, a sample's share, and what executes it."""
        if self.unkept or self.analysis.split.mode == "worker":
            return 0.0, _in_workers(self.options.workers)
        if self.is_apart and self.options.collate is None:
            return 0.0, _on_device(self.analysis, self.options.link)
        size = measured_size(self.asked.batch_size, self.final_bytes)
        ms, kernel = batched_ms(
            self.analysis.source,
            self.analysis.split.cut,
            samples=len(self.measured.samples),
            size=size,
            options=self.options,
            clock=self.clock,
        )
        return ms / size, kernel

    @cached_property
    def step_times(self) -> tuple[float | None, float]:
        """What training takes for a batch, and cores that it keeps busy; see `Prediction`."""
        step, cores = self.asked.step, usable_cores()
        if not callable(step):
            if self.asked.step_cores is not None:
                return step, min(self.asked.step_cores, cores)
            is_here = self.options.device.type == "cpu" and not self.is_apart
            return step, float(min(_threads(), cores)) if is_here else 0.0
        batch = batch_of(self.measured.samples, self.collate, self.asked.batch_size)
        ms, busy = step_times(
            step, batch, self.options.link, clock=self.clock, cpu_clock=self.cpu_clock
        )
        return ms, min(busy, cores)

    @cached_property
    def handing(self) -> Handing:
        """What the plain loader's worker processes cost beside their work."""
        collate = self.options.collate or (self.forms.collate if self.forms else default_collate)
        size = measured_size(self.asked.batch_size, self.final_bytes)
        found = handing_of(
            self.measured.samples,
            collate,
            batch_size=size,
            workers=self.options.workers,
            cores=usable_cores(),
            settings=self.options.settings,
            clock=self.clock,
        )
        return replace(found, batch_ms=found.batch_ms * self.asked.batch_size / size)

    def copied(self, choice: Choice, bytes_per_sample: int, position: Position) -> float:
        """Bytes that are copied to the device for a sample, in the mean."""
        if not self.is_apart:
            return 0
        if choice.tier == "source" or not self.is_near(position):
            return self.final_bytes
        return bytes_per_sample * (1 - choice.cached / len(self.wanted.source))

    def fact(self, cut: int) -> Fact:
        """What is known of a position of the chain."""
        position, analysis = self.positions[cut], self.wanted
        if cut != self.wanted.split.cut:
            split = replace(
                self.wanted.split, cut=cut, mode="worker" if position.rest == "worker" else "batch"
            )
            analysis = self.wanted.with_split(split)
        elif position.problem:  # what cannot be stored is kept as a list of objects
            position = replace(position, problem="")
        choice, unfit, size = Choice("source", None), "", analysis.bytes_per_sample
        try:
            size = self.bytes_per_sample(analysis)
            candidate = candidate_of(analysis, self.options)
            choice = choose_cut([candidate], self.options.placing.tier)[1]
            unfit = candidate if isinstance(candidate, str) else ""
        except ConfigError as error:
            unfit = str(error)
        return Fact(
            position=position,
            row=self.measured.rows[cut],
            bytes_per_sample=size,
            copied=self.copied(choice, size, position) * self.asked.drawn,
            rooms=rooms_for(analysis, self.options, None),
            tier=None if choice.tier == "source" else choice.tier,
            unfit=unfit,
        )

    def cuts(self, costs: Costs) -> tuple[Cut, ...]:
        """Every cut, with its reason."""
        epoch = Epoch(
            samples=self.asked.drawn,
            kept=len(self.wanted.source),
            parallel=costs.parallel,
            collate_ms=self.collate_ms,
            batched_ms=self.batched[0],
            copied=(self.final_bytes if self.is_apart else 0) * self.asked.drawn,
            bandwidth=self.options.link.bandwidth(),
            unkeepable="" if self.wanted.dataset.is_deterministic else self.unkept,
        )
        facts = [self.fact(cut) for cut in range(len(self.positions))]
        return cuts_of(facts, epoch, None if self.unkept else self.analysis.split.cut)

    def costs(self) -> Costs:
        """What things take."""
        asked, cut = self.asked, self.analysis.split.cut
        ms = [row.timing.ms for row in self.measured.rows]
        position = self.positions[cut]
        is_there = cut == 0 and self.wanted.source.resident() is not None
        rest_ms = sum(ms[cut + 1 :]) + self.collate_ms
        if position.rest != "worker":
            rest_ms = self.batched[0]
        rate = self.options.link.bandwidth()
        final = self.final_bytes if self.is_apart else 0
        copied = self.copied(self.choice, self.bytes_per_sample(self.analysis), position)
        step_ms, step_cores = self.step_times
        return Costs(
            samples=asked.drawn,
            kept=len(self.wanted.source),
            batch_size=asked.batch_size,
            workers=self.options.workers,
            cores=usable_cores(),
            sample_ms=sum(ms) + self.collate_ms,
            once_ms=0.0 if is_there else sum(ms[: cut + 1]),
            rest_ms=rest_ms * asked.batch_size,
            is_rest_in_workers=position.rest == "worker",
            plain_copy_ms=1000 * final * asked.batch_size / rate if rate else 0.0,
            copy_ms=1000 * copied * asked.batch_size / rate if rate else 0.0,
            is_copied_ahead=self.is_near(position),
            step_ms=step_ms,
            step_cores=step_cores,
            busy=self.measured.busy,
            unkept=self.unkept,
            start_ms=0.0 if asked.is_persistent else self.handing.start_ms,
            hand_ms=self.handing.batch_ms,
        )

    def plan(self, notes: Sequence[str]) -> Plan:
        """The plan itself."""
        costs, choice, source = self.costs(), self.choice, self.wanted.source
        decisions = self.analysis.decisions
        if self.unkept:
            decisions = tuple(Decision(d.step, "worker", self.unkept) for d in decisions)
        kernel = self.batched[1]
        return Plan(
            decisions=decisions,
            device=self.options.link.name,
            tier=choice.tier,
            samples=len(source),
            bytes_held=0 if self.unkept else self.bytes_per_sample(self.analysis) * len(source),
            kernel=kernel,
            notes=(
                *notes,
                *self._about_tiers(),
                *self.forms.notes,
                *self._about_sizes(),
                *self._about_times(costs),
            ),
            cached=choice.cached,
            rest=choice.rest or "",
            policy=self._policy(),
            cuts=self.cuts(costs),
            prediction=predict(costs),
        )

    def _policy(self) -> str:
        """Which samples the device would keep, and why so."""
        if self.choice.tier != "mixed":
            return ""
        name, outlook = self.options.placing.policy, self.options.outlook
        if is_ragged(self.analysis):
            return ragged_policy(name)
        return choose_policy(
            name,
            outlook.reuse,
            len(self.wanted.source),
            self.choice.cached,
            weights=outlook.weights,
            may_read_ahead=outlook.may_read_ahead,
            is_future_known=outlook.is_future_known,
        )[1]

    def _about_tiers(self) -> list[str]:
        """Why no nearer tier, each reason once."""
        if self.unkept:
            return ["left as it is: nothing of it could be kept"]
        return list(dict.fromkeys(self.choice.reasons))

    def _about_sizes(self) -> list[str]:
        """What of the bytes is not exact, and what is not done to them."""
        if self.unkept:
            is_asked = self.options.storage_dtype is not None
            return ["storage_dtype has nothing to act on: nothing is kept"] * is_asked
        notes = list(narrowing_of(self.analysis, self.options.storage_dtype).notes)
        if is_ragged(self.analysis):
            said = f"samples differ in size: bytes are about those of {len(self.analysis.traced)}"
            some = f", and about {self.choice.cached:,} will have room on {self.options.link.name}"
            notes.append(said + some * (self.choice.tier == "mixed"))
        return notes

    def _about_times(self, costs: Costs) -> list[str]:
        count = len(self.measured.samples)
        notes = [
            f"times are of {count} samples, made {ROUNDS} times each; of files, as they are read "
            "when the system has them in memory"
        ]
        if self.is_apart and not self.unkept and self.is_near(self._position):
            notes.append(f"steps that run on whole batches on {self.options.link.name} count as 0")
        if costs.workers and costs.step_cores + costs.busy * costs.parallel > costs.cores:
            is_seen = callable(self.asked.step) or self.asked.step_cores is not None
            how = "was seen" if is_seen else "is taken"
            busy, cores = f"{costs.step_cores:.2g}", costs.cores
            notes.append(
                f"the step {how} to keep {busy} of {cores} cores busy, which the workers need too"
            )
        return notes

    @property
    def _position(self) -> Position:
        return self.positions[self.analysis.split.cut]


def is_ragged(analysis: Analysis) -> bool:
    """Whether samples differ in size as they are kept, so far as the few looked at tell."""
    source, cut = analysis.source, analysis.split.cut
    resident = source.resident() if cut == 0 else None
    if resident is not None:
        return any(isinstance(c, RaggedColumn) and is_passing(c) for c in resident.columns)
    kept = []
    for leaves, trace in zip(analysis.finals.values(), analysis.traced.values(), strict=True):
        kept.append([*leaves[: source.leaf], trace[cut], *leaves[source.leaf + 1 :]])
    return any(
        len({schema.shape for schema in leaf}) > 1
        for leaf in zip(*kept, strict=True)
        if all(schema.is_storable and schema.kind not in ("str", "bytes") for schema in leaf)
    )


def _threads() -> int:
    """Threads that torch computes with."""
    return torch.get_num_threads()


def _in_workers(workers: int) -> str:
    where = f"{workers} worker processes" if workers else "the main process"
    return f"none: your own callables, sample by sample, in {where}"


def _on_device(analysis: Analysis, link: Link) -> str:
    """What would execute the operations on a device; nothing is compiled."""
    schema, ops = analysis.stored[analysis.source.leaf], analysis.split.ops
    if not ops or len(schema.shape) != 3 or schema.dtype is None:
        return "gather by index"
    if link.device.type == "cuda" and find_spec("triton") is None:
        return Reference(ops, reason="triton is not installed").description
    fused = TritonEngine if link.device.type == "cuda" else NumbaEngine
    behind = ops[1:] if makes_one_size(ops) else ops
    shape = (schema.shape[0], schema.shape[1], schema.shape[2])
    program = lower(behind, ops[0].out_shape(shape) if behind != ops else shape, schema.dtype)
    if isinstance(program, NotFusable):
        return Reference(ops, reason=program.reason).description
    return fused.description
