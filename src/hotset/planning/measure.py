"""Times of a chain on a few samples: reading, each step, putting a batch together."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from hotset.chain.probe import copied, seed_generators
from hotset.chain.step import Chained, StepCall
from hotset.errors import SampleError
from hotset.loader.loader import Loader, accelerate
from hotset.loader.moved import move
from hotset.loader.options import Options
from hotset.placement.link import Link
from hotset.placement.stats import Tally
from hotset.sample.column import LeafSchema, describe
from hotset.sample.tree import flatten, unflatten
from hotset.sources.source import Reader, Source, read, spread

Clock = Callable[[], float]
"""Gives seconds."""
ROUNDS = 5
"""How often each sample is made; a first call alone tells of loading, not of running."""
MOST_SECONDS = 5.0
"""Fewer samples are taken where measuring would take longer."""
LEAST_SAMPLES = 2
MOST_BYTES = 64 << 20
"""Batches that are measured are no larger; longer ones are counted by their samples."""
BATCHES = 4
"""Batches in a measured epoch."""


@dataclass(frozen=True)
class Timing:
    """What something takes.

    Attributes:
        ms: in the mean over the samples, of each the median of several runs.
        noise_ms: by how much the mean differs from run to run: half of the range that the inner
            half of them lies in.
    """

    ms: float
    noise_ms: float = 0.0


@dataclass(frozen=True)
class Row:
    """Reading the dataset, or one step.

    Attributes:
        name: the dataset's, or the step's.
        timing: of one sample.
        nbytes: of the chain's leaf after it, in the mean.
        is_one_shape: whether that was of one shape in all samples.
    """

    name: str
    timing: Timing
    nbytes: int
    is_one_shape: bool


@dataclass(frozen=True, eq=False)
class Measured:
    """What was measured.

    Attributes:
        rows: reading the dataset first, then each step.
        samples: some finished samples.
        busy: the share of the time that the processor worked for; the rest was waiting.
    """

    rows: tuple[Row, ...]
    samples: list[Any]
    busy: float = 1.0


def measure(
    source: Source,
    names: Sequence[str],
    *,
    samples: int,
    reader: Reader | None = None,
    clock: Clock = time.perf_counter,
    cpu_clock: Clock = time.process_time,
) -> Measured:
    """Reads a few samples spread over a source several times, and times each step.

    Generators are seeded and not put back. What the system keeps of files in memory counts as
    there: times are those of a second epoch, not of a first one from a cold disk.

    Args:
        source: not empty.
        names: of its steps.
        samples: how many samples to take at most.
        reader: reads a sample as the plain loader does, apart from the steps; None takes the
            source's own.
        clock: gives seconds.
        cpu_clock: gives seconds of the processor, all threads of the process together.

    Raises:
        SampleError: if a sample cannot be read, or a step fails.
    """
    reader, calls = reader or source.reader(None), source.steps
    seen: list[tuple[list[LeafSchema], Any]] = []

    def made(index: int, run: int) -> list[float]:
        """Seconds of reading and of each step; keeps what came out in `seen`."""
        seed_generators(index * ROUNDS + run)
        began = clock()
        sample = read(reader, index, source.name)
        times = [clock() - began]
        leaves, spec = flatten(sample)
        values = [leaves[source.leaf]]
        schemas = [describe(values[0])]
        for number, call in enumerate(calls):
            began = clock()
            values = [_called(call, values[0], names[number], number, index)]
            times.append(clock() - began)
            schemas.append(describe(values[0]))
        leaves[source.leaf] = values[0]
        seen.append((schemas, unflatten(spec, iter(leaves))))
        return times

    began = clock()
    made(0, 0)
    first = clock() - began
    fitting = MOST_SECONDS / (ROUNDS * first) if first > 0 else math.inf
    count = int(max(LEAST_SAMPLES, min(samples, fitting)))
    indices = spread(len(source), count)
    taken = []
    began, began_cpu = clock(), cpu_clock()
    for run in range(ROUNDS):
        seen.clear()
        taken.append([made(index, run) for index in indices])
    busy = min(1.0, _ratio(cpu_clock() - began_cpu, clock() - began, none=1.0))
    rows = []
    for number, name in enumerate((source.name, *names)):
        runs = [[times[number] for times in run] for run in taken]
        leaves_after = [schemas[number] for schemas, _ in seen]
        rows.append(
            Row(
                name,
                _timing(runs),
                -(-sum(schema.nbytes for schema in leaves_after) // len(leaves_after)),
                len({schema.shape for schema in leaves_after}) == 1,
            )
        )
    return Measured(tuple(rows), [sample for _, sample in seen], busy)


def _ratio(cpu: float, wall: float, *, none: float) -> float:
    """Cores kept busy, of processor time and time; `none` where no time passed."""
    return cpu / wall if wall > 0 else none


def _called(call: StepCall, value: Any, name: str, number: int, index: int) -> Any:
    try:
        return call(value)
    except Exception as error:
        raise SampleError(
            f"step {number} of the transform, {name}, failed at index {index}: "
            f"{type(error).__name__}: {error}"
        ) from error


def _timing(runs: Sequence[Sequence[float]]) -> Timing:
    """Of seconds per run and sample."""
    ms = 1000 * statistics.fmean(statistics.median(column) for column in zip(*runs, strict=True))
    means = sorted(1000 * statistics.fmean(run) for run in runs)
    return Timing(ms, (means[-2] - means[1]) / 2)


def time_of(work: Callable[[], object], clock: Clock) -> float:
    """Milliseconds of some work: the median of several runs, after one that is not timed."""
    work()
    times = []
    for _ in range(ROUNDS):
        began = clock()
        work()
        times.append(clock() - began)
    return 1000 * statistics.median(times)


def batch_of(samples: Sequence[Any], collate: Callable[[list[Any]], Any], size: int) -> Any:
    """A batch of so many samples, of which the few there are come again and again.

    Raises:
        SampleError: if a collate_fn of the user's own fails.
    """
    try:
        return collate([samples[place % len(samples)] for place in range(size)])
    except Exception as error:
        raise SampleError(f"the collate_fn failed: {type(error).__name__}: {error}") from error


def nbytes_of(value: Any) -> int:
    """Bytes of the tensors and arrays of a sample or batch."""
    return sum(describe(leaf).nbytes for leaf in flatten(value)[0])


def measured_size(batch_size: int, bytes_per_sample: int) -> int:
    """Samples of a batch that is measured."""
    return max(1, min(batch_size, MOST_BYTES // max(1, bytes_per_sample)))


def step_times(
    step: Callable[[Any], object], batch: Any, link: Link, *, clock: Clock, cpu_clock: Clock
) -> tuple[float, float]:
    """Milliseconds of a training step on a batch that lies on the device, and cores it keeps busy.

    Waiting for the device counts as time, and as no work of the processor.
    """
    there = move(batch, link, Tally())
    cpu: list[float] = []
    wall: list[float] = []

    def work() -> None:
        began, began_cpu = clock(), cpu_clock()
        step(there)
        cpu.append(cpu_clock() - began_cpu)
        transfer = link.begin(link.reached())
        transfer.end()
        link.join(transfer)  # the host waits until the device has come here
        wall.append(clock() - began)

    with _device_generator(link):
        ms = time_of(work, clock)
    return ms, _ratio(sum(cpu[1:]), sum(wall[1:]), none=0.0)


@contextmanager
def _device_generator(link: Link) -> Iterator[None]:
    """Puts the device's generator back."""
    if link.device.type != "cuda":
        yield
        return
    state = torch.cuda.get_rng_state(link.device)
    try:
        yield
    finally:
        torch.cuda.set_rng_state(state, link.device)


class _Few(Dataset[Any]):
    """A few samples that come again and again, kept as they are at a cut, with the steps behind."""

    def __init__(self, samples: Sequence[Any], leaf: int, steps: Sequence[StepCall], length: int):
        self._samples, self._leaf, self._length = samples, leaf, length
        self.transform = Chained(steps)

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> Any:
        leaves, spec = flatten(self._samples[index % len(self._samples)])
        leaves[self._leaf] = self.transform(copied(leaves[self._leaf]))
        return unflatten(spec, iter(leaves))


def batched_ms(
    source: Source,
    cut: int,
    *,
    samples: int,
    size: int,
    options: Options,
    clock: Clock,
) -> tuple[float, str]:
    """Milliseconds that a batch takes behind a cut whose rest runs on whole batches, on the CPU.

    It is made as a loader would make it; what does, in words, comes with it.

    Args:
        source: of the samples.
        cut: steps before it.
        samples: how many samples to take.
        size: of a batch.
        options: as for a loader.
        clock: gives seconds.
    """
    reader = source.reader(Chained(source.steps[:cut]))
    kept = [read(reader, index, source.name) for index in spread(len(source), samples)]
    few = _Few(kept, source.leaf, source.steps[cut:], size * BATCHES)
    how: dict[str, Any] = {"device": "cpu", "budget": "100%", "check_every": 0}
    how["storage_dtype"] = options.storage_dtype
    if options.ragged is not None:
        fast = Loader(few, size, ragged=options.ragged, **how)
    else:
        collate, generator = options.collate, torch.Generator()
        fast = accelerate(DataLoader(few, size, collate_fn=collate, generator=generator), **how)

    def epoch() -> None:
        for _ in fast:
            pass

    return time_of(epoch, clock) / BATCHES, fast.plan.kernel
