"""Times of single samples, on a clock that datasets move."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import (
    BatchSampler,
    ConcatDataset,
    DataLoader,
    Dataset,
    IterableDataset,
    SequentialSampler,
    Subset,
)

from hotset.doctor.examining.singles import Singles, singles_of
from hotset.doctor.facts import fetch_of
from hotset.doctor.findings import SlowSample
from tests.planned import TICK, Clock


class Slow(Dataset[int]):
    """Numbers that take some ticks each, and more the first time."""

    def __init__(self, clock: Clock, ticks: list[int], first: int = 0) -> None:
        self.clock, self.ticks, self.first = clock, ticks, first
        self.asked: list[Any] = []

    def __len__(self) -> int:
        return len(self.ticks)

    def __getitem__(self, index: int) -> int:
        self.clock.ticks += self.ticks[index] + (0 if index in self.asked else self.first)
        self.asked.append(index)
        return index


class Files(Slow):
    """Each opens a file of its own, and one that all share afterwards."""

    def __init__(self, clock: Clock, ticks: list[int], folder: Path) -> None:
        super().__init__(clock, ticks)
        self.folder = folder
        for index in range(len(ticks)):
            (folder / f"{index}.bin").write_bytes(b"x")
        (folder / "all.bin").write_bytes(b"x")

    def __getitem__(self, index: int) -> int:
        with open(self.folder / f"{index}.bin"), open(self.folder / "all.bin"):
            return super().__getitem__(index)


def singles(dataset: Any, clock: Clock, *, cpu: Clock | None = None, **how: Any) -> Singles:
    """Of a loader's samples, on the clock; the processor's stands still unless there is another."""
    options = {name: how.pop(name) for name in ("seconds", "most") if name in how}
    fetch = fetch_of(DataLoader(dataset, **how))
    return singles_of(fetch, clock=clock, cpu_clock=cpu or Clock(), **options)


def test_half_and_nearly_all_and_the_worst(tmp_path: Path) -> None:
    """Of 150 samples: the 75th, the 149th and the five longest, each with its file."""
    clock = Clock()
    ticks = [1 + index % 2 for index in range(150)]
    for index, more in ((7, 90), (8, 80), (20, 80), (100, 70), (149, 60), (3, 50)):
        ticks[index] = more
    found = singles(Files(clock, ticks, tmp_path), clock)
    assert found.times is not None
    assert (found.times.count, found.times.p50_ms, found.times.p99_ms) == (150, 2 * TICK, 80 * TICK)
    assert found.times.worst == tuple(
        SlowSample(index, ms * TICK, str(tmp_path / f"{index}.bin"))
        for index, ms in ((7, 90), (8, 80), (20, 80), (100, 70), (149, 60))
    )
    assert found.ms == sum(ticks) * TICK / 150
    assert found.notes == ()


def test_first_times_are_apart_from_later_ones() -> None:
    """A sample takes 3 ticks more the first time; the very first of all does not count there."""
    clock = Clock()
    dataset = Slow(clock, [2] * 10, first=3)
    found = singles(dataset, clock)
    assert found.times is not None
    assert (found.times.p50_ms, found.times.worst[0]) == (2 * TICK, SlowSample(0, 2 * TICK))
    assert (found.first_ms, found.ms, found.noise_ms) == (5 * TICK, 2 * TICK, 0)
    assert sorted(dataset.asked) == sorted(2 * list(range(10)))
    assert sorted(found.items) == list(range(10))


def test_the_error_of_the_mean() -> None:
    """Of times that are 1 and 3 ticks."""
    clock = Clock()
    found = singles(Slow(clock, [1, 3]), clock)
    assert found.noise_ms == pytest.approx(TICK)  # sqrt(2) / sqrt(2)
    assert found.first_ms in (TICK, 3 * TICK)


def test_time_bounds_how_many() -> None:
    """A second each: within 3 there are two at first, far from each other, and the same again."""
    clock = Clock()
    dataset = Slow(clock, [1024] * 40)
    found = singles(dataset, clock, seconds=3)
    assert dataset.asked == [0, 32, 0, 32]
    assert found.times is not None
    assert found.times.count == 2
    only = singles(Slow(clock, [5000] * 40), clock, seconds=3)
    assert only.times is not None
    assert (only.times.count, only.first_ms, only.noise_ms) == (1, None, 0)


def test_a_thousand_are_enough() -> None:
    """They are spread over the whole dataset."""
    clock = Clock()
    dataset = Slow(clock, [0] * 1000)
    found = singles(dataset, clock)
    assert found.times is not None
    assert found.times.count == 1000
    assert {min(dataset.asked), max(dataset.asked)} == {0, 999}
    assert len(found.items) == 16


@pytest.mark.parametrize(("share", "cores"), [(0.5, 0.5), (1, 1), (3, 3)])
def test_cores(share: float, cores: float) -> None:
    """Processor time by time, of the second reading; 1 where no time passes."""
    clock, cpu = Clock(), Clock()

    class Threaded(Slow):
        def __getitem__(self, index: int) -> int:
            cpu.ticks += share * self.ticks[index]
            return super().__getitem__(index)

    assert singles(Threaded(clock, [4] * 10, first=9), clock, cpu=cpu).cores == cores
    assert singles(Threaded(clock, [0] * 10), clock, cpu=cpu).cores == 1


def test_samples_that_fail_are_noted() -> None:
    """With index and error, three of them at most; the others are timed."""
    clock = Clock()

    class Damaged(Slow):
        def __getitem__(self, index: int) -> int:
            if index in (1, 4, 5, 6, 7):
                raise ValueError("torn")
            return super().__getitem__(index)

    found = singles(Damaged(clock, [2] * 10), clock)
    assert found.times is not None
    assert (found.times.count, found.ms) == (5, 2 * TICK)
    assert len(found.notes) == 4
    assert found.notes[0] == "Damaged failed at index 4: ValueError: torn"
    assert found.notes[3] == "Damaged failed at 2 more indices"
    none = singles(Subset(Damaged(clock, [2] * 10), [4, 5]), clock)
    assert none.times is None
    assert none.items == []
    assert none.notes == tuple(f"Damaged failed at index {n}: ValueError: torn" for n in (0, 1))


@pytest.mark.parametrize("name", ["samples", "imgs", "files"])
def test_paths_from_attributes(name: str) -> None:
    """Where no file is seen being opened, through ConcatDataset and Subset."""
    clock = Clock()
    dataset = Slow(clock, [1, 5, 2])
    setattr(dataset, name, [(f"{index}.jpg", 0) for index in range(3)])
    both = ConcatDataset([Slow(clock, [0, 0]), dataset])
    found = singles(Subset(both, [4, 3]), clock)
    assert found.times is not None
    assert found.times.worst == (SlowSample(1, 5 * TICK, "1.jpg"), SlowSample(0, 2 * TICK, "2.jpg"))


class Stream(IterableDataset[int]):
    """Numbers that take some ticks each; it may fail at one of them."""

    def __init__(self, clock: Clock, count: int, fails_at: int = -1) -> None:
        self.clock, self.count, self.fails_at = clock, count, fails_at
        self.closed = 0

    def __iter__(self) -> Iterator[int]:
        try:
            for number in range(self.count):
                self.clock.ticks += number
                if number == self.fails_at:
                    raise OSError("gone")
                yield number
        finally:
            self.closed += 1


def test_a_stream() -> None:
    """Its first samples, by their place, read twice; and it is closed again."""
    clock = Clock()
    stream = Stream(clock, 1000)
    found = singles(stream, clock, most=21)
    assert found.times is not None
    assert (found.times.count, found.times.p50_ms) == (21, 10 * TICK)
    assert found.times.worst[0] == SlowSample(20, 20 * TICK)
    assert found.ms == pytest.approx(10 * TICK)
    assert stream.closed == 2


def test_a_stream_that_ends_or_fails() -> None:
    """What came before counts."""
    clock = Clock()
    short = singles(Stream(clock, 3), clock)
    assert short.times is not None
    assert (short.times.count, short.notes) == (3, ())
    torn = singles(Stream(clock, 9, fails_at=4), clock)
    assert torn.times is not None
    assert torn.times.count == 4
    assert torn.notes == ("Stream failed at index 4: OSError: gone",)


def test_a_stream_that_cannot_be_read_twice_is_left_alone() -> None:
    """What would be taken from it would be missing in the loop."""

    class Once(IterableDataset[int]):
        def __init__(self) -> None:
            self.numbers = iter(range(5))

        def __iter__(self) -> Iterator[int]:
            return self.numbers

    dataset = Once()
    found = singles(dataset, Clock())
    assert found.times is None
    assert found.notes == (
        "Once gives the same iterator every time: samples taken from it would be missing in the "
        "loop, so none were timed",
    )
    assert list(dataset) == [0, 1, 2, 3, 4]


def test_what_cannot_be_read() -> None:
    """No length, or no samples, or no iterator."""

    class Broken(IterableDataset[int]):
        def __iter__(self) -> Iterator[int]:
            raise OSError("no such bucket")

    class Lengthless(Dataset[int]):
        def __getitem__(self, index: int) -> int:
            return index

    clock = Clock()
    assert singles(Broken(), clock).notes == ("Broken gives no samples: OSError: no such bucket",)
    assert singles(Slow(clock, []), clock, sampler=[]).notes == ("Slow is empty",)
    assert singles(Lengthless(), clock, sampler=range(3)).notes == (
        "Lengthless has no length, so nobody knows its indices: no samples were timed",
    )


def test_datasets_that_make_whole_batches() -> None:
    """By a list of indices: there are no single samples. By index: each batch is one."""
    clock = Clock()

    class Batched(Slow):
        def __getitem__(self, indices: Any) -> Any:
            self.clock.ticks += 2
            self.asked.append(indices)
            return indices

    dataset = Batched(clock, [0] * 12)
    lists = BatchSampler(SequentialSampler(dataset), 4, False)
    keyed = singles(dataset, clock, batch_size=None, sampler=lists, most=3)
    assert dataset.asked == 2 * [[0, 1, 2, 3], [8, 9, 10, 11], [4, 5, 6, 7]]
    assert (keyed.times, keyed.ms, keyed.first_ms) == (None, 2 * TICK, 2 * TICK)
    items = singles(dataset, clock, batch_size=None, most=3)
    assert items.times is not None
    assert (items.times.count, items.ms) == (3, 2 * TICK)
