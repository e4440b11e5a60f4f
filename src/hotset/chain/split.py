"""What happens to each step: once, table, batch or worker, and where the chain is cut. Pure.

The cut is where the stored form is smallest, not after the last deterministic step: an image stays
in bytes, and the elementwise steps behind it become a table. No time has a say: it would not be the
same twice, and what a store holds must be.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from torch import Tensor

from hotset.chain import torchvision
from hotset.chain.step import BatchForm, HasBatchForm, Step, StepCall
from hotset.chain.table import build_table, is_bytes_image
from hotset.ops.op import Op, Params
from hotset.ops.pointwise import Table
from hotset.ops.resample import makes_one_size
from hotset.sample.column import describe

Action = Literal["once", "table", "batch", "worker"]
Rest = Literal["batch", "table", "worker", "nothing"]


@dataclass(frozen=True)
class Decision:
    """What happens to one step, and why."""

    step: str
    action: Action
    reason: str


@dataclass(frozen=True, eq=False)
class Stage:
    """One of the user's steps behind the cut, and the operations that stand for it.

    A run of steps that became one table has the table at its first step and nothing at the others.
    """

    step: Step
    ops: tuple[Op, ...]
    form: BatchForm | None

    def replay(self, params: Sequence[Params]) -> StepCall:
        """The user's own step with the parameters that one sample was given."""
        return self.step.call if self.form is None else self.form.replay(params)


@dataclass(frozen=True, eq=False)
class Split:
    """Where a chain is cut and what happens to each step.

    Attributes:
        steps: the whole chain.
        cut: steps before this position run once.
        mode: "batch" if all the rest runs on whole batches, "worker" if it runs per sample.
        decisions: one per step.
        stages: what the rest consists of; empty in mode "worker".
        leading: how many of the first steps are deterministic; the cut is not behind them.
        finish: (C, 256) table that does what the steps from the cut to there do; None where there
            is no such step, or no table.
        smaller: what else could be done, each with an earlier cut and fewer bytes, for where there
            is no room; in the order of preference.
    """

    steps: tuple[Step, ...]
    cut: int
    mode: Literal["batch", "worker"]
    decisions: tuple[Decision, ...]
    stages: tuple[Stage, ...] = ()
    leading: int = 0
    finish: Tensor | None = None
    smaller: tuple[Split, ...] = ()

    @property
    def ops(self) -> tuple[Op, ...]:
        """The operations behind the cut, in order."""
        return tuple(op for stage in self.stages for op in stage.ops)


@dataclass(frozen=True)
class Position:
    """A point of a chain that it could be cut at.

    Attributes:
        is_deterministic: whether all before it is.
        problem: why samples cannot be kept as they are there; empty where they can.
        rest: how what is behind it runs: on whole batches, by tables alone, per sample, or nothing
            is.
    """

    is_deterministic: bool
    problem: str
    rest: Rest


NOT_STORABLE = "no point of the chain gives values of one shape and dtype that can be stored"


def split_chain(
    steps: Sequence[Step], traces: Sequence[Sequence[Any]], *, least_cut: int = 0
) -> Split:
    """Cuts a chain.

    Args:
        steps: whose natures are known.
        traces: per probe sample, the value before each step and after the last: len(steps) + 1
            values.
        least_cut: where the rest runs per sample, so many steps run once in any case.
    """
    if not steps:
        return Split((), 0, "batch", ())
    leading = leading_steps(steps)
    dense, ragged = _cuts_by_size(traces, leading)
    found: Split | None = None
    problems: dict[int, str] = {}
    for cut in (*dense, *ragged):
        stages = _stages_behind(steps, traces, cut, is_ragged=cut in ragged)
        if not isinstance(stages, str):
            found = _in_batches(steps, cut, stages)
            break
        problems[cut] = stages
    if found is None:
        cut = _worker_cut(steps, traces, list(dense or ragged), least_cut)
        found = _per_sample(steps, cut, problems.get(cut, NOT_STORABLE))
    smaller = _smaller(found, traces, dense | ragged, ragged, least_cut, problems)
    found = replace(found, smaller=tuple(replace(each, leading=leading) for each in smaller))
    return _finished(found, traces, leading)


def leading_steps(steps: Sequence[Step]) -> int:
    """How many of the first steps are deterministic."""
    natures = [step.nature == "deterministic" for step in steps]
    return natures.index(False) if False in natures else len(natures)


def positions(steps: Sequence[Step], traces: Sequence[Sequence[Any]]) -> tuple[Position, ...]:
    """What could be done at every point, before the first step and behind each.

    Args:
        steps: as for `split_chain`.
        traces: as for `split_chain`.
    """
    if not steps:
        return (Position(True, "", "nothing"),)
    leading = leading_steps(steps)
    dense, ragged = _cuts_by_size(traces, len(steps))
    found = []
    for cut in range(len(steps) + 1):
        if cut > leading:
            problem = f"random from {steps[leading].name} on"
        elif cut in dense or cut in ragged:
            problem = ""
        else:
            problem = _why_not_stored([trace[cut] for trace in traces])
        stages = _stages_behind(steps, traces, cut, is_ragged=cut in ragged)
        found.append(Position(cut <= leading, problem, _rest(stages)))
    return tuple(found)


def _rest(stages: tuple[Stage, ...] | str) -> Rest:
    if isinstance(stages, str):
        return "worker"
    if not stages:
        return "nothing"
    return "table" if all(stage.form is None for stage in stages) else "batch"


def _why_not_stored(values: Sequence[Any]) -> str:
    schemas = list(dict.fromkeys(map(describe, values)))
    unfit = next((schema for schema in schemas if not schema.is_storable), None)
    if unfit is not None:
        return f"{unfit} is no tensor, array, image or number"
    return f"values differ in kind: {schemas[0]} and {schemas[1]}"


def _smaller(
    found: Split,
    traces: Sequence[Sequence[Any]],
    sizes: dict[int, int],
    ragged: Container[int],
    least_cut: int,
    problems: dict[int, str],
) -> Iterator[Split]:
    """What needs fewer bytes than a split does: on whole batches first, then what runs most once.

    Args:
        found: the split.
        traces: as for `split_chain`.
        sizes: bytes of the probe samples at each point where they can be stored.
        ragged: the points where they differ in shape.
        least_cut: as for `split_chain`.
        problems: why the rest does not run on whole batches, where that is known.
    """
    least = sizes.get(found.cut, 0)
    earlier = [cut for cut in sizes if cut < found.cut and sizes[cut] < least]
    if found.mode == "batch":
        for cut in earlier:  # the smallest first
            if cut in problems:
                continue
            stages = _stages_behind(found.steps, traces, cut, is_ragged=cut in ragged)
            if not isinstance(stages, str):
                yield _in_batches(found.steps, cut, stages)
                least = sizes[cut]
                break
            problems[cut] = stages
    for cut in sorted(earlier, reverse=True):
        if cut >= least_cut and sizes[cut] < least:
            yield _per_sample(found.steps, cut, problems.get(cut, ""))
            least = sizes[cut]


def _stages_behind(
    steps: Sequence[Step], traces: Sequence[Sequence[Any]], cut: int, *, is_ragged: bool
) -> tuple[Stage, ...] | str:
    """The steps behind a cut as operations on batches, or why they run per sample."""
    stages = _stages(steps, traces, cut)
    return stages if isinstance(stages, str) or not is_ragged else _opened(stages, traces, cut)


def _opened(
    stages: tuple[Stage, ...], traces: Sequence[Sequence[Any]], cut: int
) -> tuple[Stage, ...] | str:
    """The stages, if the first of them makes images of one size of images of differing sizes."""
    images = [describe(trace[cut]) for trace in traces]
    ops = [op for stage in stages for op in stage.ops]
    if not stages:
        return "values differ in shape"
    if not makes_one_size(ops):
        return f"images differ in size, and {stages[0].step.name} does not make them one"
    if len({schema.shape[0] for schema in images}) > 1:
        return "images differ in their number of channels"
    return stages


def _finished(split: Split, traces: Sequence[Sequence[Any]], leading: int) -> Split:
    """The split with what takes its cut to the last of the leading deterministic steps."""
    samples, between = [trace[split.cut] for trace in traces], split.steps[split.cut : leading]
    finish = None
    if between and all(map(is_bytes_image, samples)):
        table = build_table(between, samples)
        finish = None if isinstance(table, str) else table
    return replace(split, leading=leading, finish=finish)


def _cuts_by_size(
    traces: Sequence[Sequence[Any]], leading: int
) -> tuple[dict[int, int], dict[int, int]]:
    """Positions where values of one shape, and of differing shapes, can be stored; their bytes.

    The smallest come first; of equals, the latest.
    """
    dense: dict[int, int] = {}
    ragged: dict[int, int] = {}
    for cut in range(leading + 1):
        schemas = [describe(trace[cut]) for trace in traces]
        kinds = {(s.kind, s.cls, s.dtype, s.mode, len(s.shape)) for s in schemas}
        if len(kinds) == 1 and schemas[0].is_storable:
            sizes = dense if len(set(schemas)) == 1 else ragged
            sizes[cut] = sum(schema.nbytes for schema in schemas)
    by_size = [
        dict(sorted(sizes.items(), key=lambda item: (item[1], -item[0])))
        for sizes in (dense, ragged)
    ]
    return by_size[0], by_size[1]


def _worker_cut(
    steps: Sequence[Step], traces: Sequence[Sequence[Any]], cuts: Sequence[int], least_cut: int
) -> int:
    """Behind the last deterministic step; before it only where bytes are kept for want of a table.

    What lies between is then run for every sample again, which elementwise steps on bytes are cheap
    enough for; anything else is not.
    """
    if not cuts:
        return 0
    latest = max(cuts)
    for cut in cuts:
        samples = [trace[cut] for trace in traces]
        if cut == latest or (
            cut >= least_cut
            and all(map(is_bytes_image, samples))
            and not isinstance(build_table(steps[cut:latest], samples), str)
        ):
            return cut
    return latest


def _stages(
    steps: Sequence[Step], traces: Sequence[Sequence[Any]], cut: int
) -> tuple[Stage, ...] | str:
    """The steps from the cut on as operations on batches, or why one of them has none."""
    stages: list[Stage] = []
    position = cut
    while position < len(steps):
        step, leaf = steps[position], traces[0][position]
        form = _batch_form(step, leaf)
        if form is not None:
            stages.append(Stage(step, form.ops, form))
            position += 1
            continue
        tabled = _table_stages(steps, traces, position)
        if isinstance(tabled, str):
            return tabled
        stages.extend(tabled)
        position += len(tabled)
    return tuple(stages)


def _batch_form(step: Step, leaf: Any) -> BatchForm | None:
    own: HasBatchForm | None = step.call if hasattr(step.call, "batch_form") else None
    if own is not None:
        return own.batch_form(leaf, step.key)
    return torchvision.batch_form(step.call, leaf, step.key)


def _table_stages(
    steps: Sequence[Step], traces: Sequence[Sequence[Any]], start: int
) -> list[Stage] | str:
    """The longest run of deterministic steps from `start` that a table can stand for."""
    if steps[start].nature != "deterministic":
        return f"{steps[start].name} is random and has no batched form"
    samples = [trace[start] for trace in traces]
    if not all(map(is_bytes_image, samples)):
        return f"{steps[start].name} acts on {describe(samples[0])}, which is no image of bytes"
    end = start
    while end < len(steps) and steps[end].nature == "deterministic":
        end += 1
    problem = ""
    for stop in range(end, start, -1):
        table = build_table(steps[start:stop], samples)
        if not isinstance(table, str):
            first = Stage(steps[start], (Table(steps[start].key, table),), None)
            return [first, *(Stage(step, (), None) for step in steps[start + 1 : stop])]
        problem = table
    return problem


def _in_batches(steps: Sequence[Step], cut: int, stages: tuple[Stage, ...]) -> Split:
    decisions = [Decision(s.name, "once", s.reason) for s in steps[:cut]]
    for stage in stages:
        name = stage.step.name
        if stage.form is None:
            reason = "elementwise on bytes: an exact table of 256 entries per channel"
            decisions.append(Decision(name, "table", reason))
        elif stage.step.nature == "deterministic":
            decisions.append(Decision(name, "batch", "deterministic, cheaper after the cut"))
        else:
            decisions.append(Decision(name, "batch", "drawn per sample, for the whole batch"))
    return Split(tuple(steps), cut, "batch", tuple(decisions), stages)


def _per_sample(steps: Sequence[Step], cut: int, problem: str) -> Split:
    decisions = [Decision(s.name, "once", s.reason) for s in steps[:cut]]
    for step in steps[cut:]:
        decisions.append(Decision(step.name, "worker", f"per sample, since {problem}"))
    return Split(tuple(steps), cut, "worker", tuple(decisions))
