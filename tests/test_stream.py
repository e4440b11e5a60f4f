"""Iterables as stores: order, resuming, failures, and what is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset

import hotset
from hotset.building.stream import Stream
from hotset.errors import ConfigError, KeyingError, SampleError, SchemaError, UnsupportedError


class Counted(IterableDataset[Any]):
    """Pairs of a tensor and a number; says how many were read."""

    def __init__(self, length: int, *, fails_after: int | None = None) -> None:
        self.length = length
        self._behaviour = Behaviour(fails_after)

    def __iter__(self) -> Iterator[Any]:
        for number in range(self.length):
            if number == self._behaviour.fails_after:
                raise OSError("the connection was lost")
            yield torch.full((2, 3), float(number)), number


class Behaviour:
    """What differs between two runs over the same data; it does not count into the key."""

    def __init__(self, fails_after: int | None) -> None:
        self.fails_after = fails_after

    def __reduce__(self) -> Any:
        return Behaviour, (None,)


def numbers(length: int) -> Iterator[Tensor]:
    """A generator of tensors that all lie in the same memory."""
    memory = torch.zeros(2)
    for number in range(length):
        memory.fill_(number)
        yield memory


def double(x: Tensor) -> Tensor:
    """A deterministic step."""
    return x * 2


def no_sevens(x: Tensor) -> Tensor:
    """A step that fails on every tenth sample."""
    if int(x[0, 0]) % 10 == 7:
        raise ValueError("a seven")
    return x


def labels(store: hotset.Store) -> list[int]:
    """Which samples a store has."""
    return [sample[1] for sample in store]


@pytest.mark.parametrize("wrap", [lambda d: d, lambda d: DataLoader(d, 4, num_workers=2)])
def test_samples_are_kept_in_the_order_they_come(
    wrap: Callable[[Any], Any], tmp_path: Path
) -> None:
    """From the dataset itself, and from a loader, whose workers do not count."""
    calls: list[tuple[int, int | None]] = []
    store = hotset.build(
        wrap(Counted(600)), tmp_path / "a.hotset", double, progress=lambda *n: calls.append(n)
    )
    assert labels(store) == list(range(600))
    assert all(torch.equal(x, torch.full((2, 3), 2.0 * n)) for n, (x, _) in enumerate(store))
    assert store.manifest.made["once"] == ["double"]
    assert (calls[0], calls[-1]) == ((0, None), (600, None))


def test_an_iterable_may_use_its_memory_again(tmp_path: Path) -> None:
    """Samples that a generator gives in one and the same tensor are kept apart."""
    store = hotset.build(numbers(9), tmp_path / "a.hotset", version="1")
    assert [x.tolist() for x in store] == [[n, n] for n in range(9)]


def test_any_iterable_will_do(tmp_path: Path) -> None:
    """Also one of fewer samples than are looked at beforehand."""
    words = map("{}!".format, ["one", "two"])
    store = hotset.build(words, tmp_path / "a.hotset", version="1")
    assert list(store) == ["one!", "two!"]


def test_random_steps_are_left(tmp_path: Path) -> None:
    """The transform runs up to the first step that draws."""

    def noisy(x: Tensor) -> Tensor:
        return x + torch.rand(())

    store = hotset.build(Counted(5), tmp_path / "a.hotset", [double, noisy, double])
    made = store.manifest.made
    assert (made["once"], made["left"]) == (["double"], ["noisy", "double"])
    assert torch.equal(store[3][0], torch.full((2, 3), 6.0))


def test_a_transform_is_applied_where_it_cannot_be_told_apart(tmp_path: Path) -> None:
    """A sample that has one object twice hides which of the two the transform gave."""

    def pairs() -> Iterator[Any]:
        for number in range(5):
            value = torch.full((2,), float(number))
            yield value, value

    def same(x: Tensor) -> Tensor:
        return x.add_(0)

    first = hotset.build(pairs(), tmp_path / "a.hotset", same, version="1")
    assert [a.tolist() for a, _ in first] == [[float(n)] * 2 for n in range(5)]


def test_building_goes_on_where_it_was(tmp_path: Path) -> None:
    """What was written is passed by."""
    path = tmp_path / "a.hotset"
    with pytest.raises(
        SampleError, match=r"Counted failed after 300 samples: OSError: the connection was lost; `o"
    ) as caught:
        hotset.build(Counted(600, fails_after=300), path, double)
    assert isinstance(caught.value.__cause__, OSError)
    calls: list[tuple[int, int | None]] = []
    store = hotset.build(Counted(600), path, double, progress=lambda *n: calls.append(n))
    assert labels(store) == list(range(600))
    assert calls[0] == (300, None)


def test_a_whole_store_is_opened(tmp_path: Path) -> None:
    """Nothing is read but the few samples that are looked at."""
    path = tmp_path / "a.hotset"
    hotset.build(Counted(50), path)
    store = hotset.build(Counted(50, fails_after=10), path)
    assert (store.path, len(store)) == (path, 50)


def test_less_than_was_written_is_refused() -> None:
    """An iterable that is gone on with must give the same samples again."""
    stream = Stream(Counted(200))
    with pytest.raises(ConfigError, match="ended after 200 samples, but 300 were written from it"):
        stream.skip(300)


@pytest.mark.parametrize(
    ("on_error", "kept", "made"),
    [
        ("skip", [*range(7), *range(8, 17), 18, 19], "skipped"),
        ("substitute", [*range(7), 8, *range(8, 17), 18, 18, 19], "substituted"),
    ],
)
def test_failures_of_the_transform(
    on_error: Any, kept: list[int], made: str, tmp_path: Path
) -> None:
    """They are left out, or the next sample stands in; which, is noted."""
    store = hotset.build(Counted(20), tmp_path / "a.hotset", no_sevens, on_error=on_error)
    assert labels(store) == kept
    assert [index for index, _ in store.manifest.made[made]] == [7, 17]


def test_a_failure_of_the_transform_stops(tmp_path: Path) -> None:
    """Unless it is given up; what came before is kept."""
    path = tmp_path / "a.hotset"
    with pytest.raises(SampleError, match="Counted failed at index 7: ValueError: a seven"):
        hotset.build(Counted(20), path, no_sevens)
    calls: list[tuple[int, int | None]] = []
    hotset.build(Counted(20), path, no_sevens, on_error="skip", progress=lambda *n: calls.append(n))
    assert calls[0] == (7, None)


def test_the_first_samples_may_fail(tmp_path: Path) -> None:
    """The chain is then looked at on those behind them."""

    def late(x: Tensor) -> Tensor:
        if x[0, 0] < 6:
            raise ValueError("too early")
        return x

    with pytest.raises(SampleError, match="too early"):
        hotset.build(Counted(9), tmp_path / "raise.hotset", late)
    store = hotset.build(Counted(9), tmp_path / "skip.hotset", late, on_error="skip")
    assert labels(store) == [6, 7, 8]


def test_the_last_sample_has_no_substitute(tmp_path: Path) -> None:
    """None comes behind it."""
    with pytest.raises(SampleError, match="Counted failed at index 17: ValueError: a seven"):
        hotset.build(Counted(18), tmp_path / "a.hotset", no_sevens, on_error="substitute")


@pytest.mark.parametrize("empty", [Counted(0), [].__iter__(), DataLoader(Counted(0))])
def test_empty_is_refused(empty: Any, tmp_path: Path) -> None:
    """There is nothing to store."""
    with pytest.raises(ConfigError, match="is empty: there is nothing to store"):
        hotset.build(empty, tmp_path / "a.hotset", version="1")


def test_a_generator_needs_a_version(tmp_path: Path) -> None:
    """It does not say what it consists of."""
    with pytest.raises(KeyingError, match=r'a generator .* cannot be keyed; pass version="…"'):
        hotset.build(numbers(3), tmp_path / "a.hotset")


@pytest.mark.parametrize("quiet", [0, 3, 500])
def test_a_stream_that_draws_is_refused(quiet: int, tmp_path: Path) -> None:
    """Its samples would be others the next time; the user's generator stays as it was."""

    def drawn() -> Iterator[Tensor]:
        yield from torch.zeros(quiet, 2)
        yield torch.rand(2)

    before = torch.get_rng_state()
    with pytest.raises(ConfigError, match="generator cannot be stored: a random generator moved"):
        hotset.build(drawn(), tmp_path / "a.hotset", version="1")
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("wrong", [5, "text", None, Counted])
def test_what_is_no_data_is_refused(wrong: Any, tmp_path: Path) -> None:
    """Text could be iterated over, but is no dataset."""
    with pytest.raises(UnsupportedError, match=r"expected a dataset .* an iterable, .*; got "):
        hotset.build(wrong, tmp_path / "a.hotset")


def test_samples_of_another_structure_are_refused(tmp_path: Path) -> None:
    """With the index of the first."""

    def mixed() -> Iterator[Any]:
        yield from [(1, 2)] * 9
        yield (1, 2, 3)

    with pytest.raises(SchemaError, match="the sample at index 9 has the leaves"):
        hotset.build(mixed(), tmp_path / "a.hotset", version="1")


def test_a_stream_may_fail_at_once(tmp_path: Path) -> None:
    """In `iter`, or before the first sample."""

    class Broken(IterableDataset[Any]):
        def __iter__(self) -> Iterator[Any]:
            raise OSError("no such host")

    with pytest.raises(SampleError, match="Broken failed after 0 samples: OSError: no such host"):
        hotset.build(Broken(), tmp_path / "a.hotset")


def test_length_is_used_where_it_is_said(tmp_path: Path) -> None:
    """For the progress alone."""

    class Sized(Counted):
        def __len__(self) -> int:
            return 30

    calls: list[tuple[int, int | None]] = []
    hotset.build(Sized(20), tmp_path / "a.hotset", progress=lambda *n: calls.append(n))
    assert calls == [(0, 30), (20, 30)]
