"""A store that the first epoch fills: the same batches, each sample read once, however it ends."""

from __future__ import annotations

import errno
import gc
import os
import subprocess
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from torch.utils.data import DataLoader, Dataset, RandomSampler, Subset
from torchvision import transforms as v1

import hotset
from hotset.building.finding import take_lock
from hotset.errors import FaithfulnessError, SampleError, SchemaError, StorageError
from hotset.loader.digest import samples_in
from tests import streams
from tests.cached import (
    CROPPED,
    DATASETS,
    JITTERED,
    PLAIN,
    RESIZED,
    Noted,
    Ragged,
    Reads,
    Texts,
    digest_of,
    digests,
    in_process,
    killed,
    listed,
    loader_of,
    padded,
    partials_in,
    picture_of,
    script,
    store_of,
    stores_in,
)
from tests.streams import Pictures, assert_same, plain_loader, stream

COUNT = 41
LOOKED_AT = {0, 13, 27, 40}
EARLY = 16
"""Samples that are read at once, since they are part of a state's fingerprint."""


def lazy(plain: DataLoader[Any], cache: Path, **options: Any) -> hotset.Loader:
    """A loader that fills a store in its first epoch."""
    options = {"check_every": 0, **options}
    return hotset.accelerate(plain, device="cpu", cache=cache, fill="lazy", **options)


def epoch_of(loader: hotset.Loader, seed: int) -> list[Any]:
    """The batches of one epoch."""
    return stream(loader, seed=seed)[0][0]


def in_memory(name: str, seed: int) -> list[Any]:
    """The batches that data in memory gives in the first epoch."""
    return epoch_of(hotset.accelerate(loader_of(name), device="cpu", check_every=0), seed)


def of_first(reads: list[int]) -> list[int]:
    """The reads of a run without those that only look at a few samples."""
    looks = dict.fromkeys(LOOKED_AT, 0)
    kept = []
    for index in reads:
        if index in looks and looks[index] < looks_at(index):
            looks[index] += 1
        else:
            kept.append(index)
    return kept


_LOOKS: dict[int, int] = {}


def looks_at(index: int) -> int:
    """How often a sample is looked at before anything is decided."""
    return _LOOKS[index]


@pytest.fixture(autouse=True)
def counted_looks(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Counts, once, the reads of a run whose store is there: it only looks."""
    if _LOOKS:
        return
    folder = tmp_path_factory.mktemp("looks")
    with pytest.MonkeyPatch.context() as patch:
        reads = Reads(folder, patch)
        hotset.accelerate(loader_of("resized"), device="cpu", cache=folder / "cache")
        reads.take()
        hotset.accelerate(loader_of("resized"), device="cpu", cache=folder / "cache")
        found = reads.take()
    assert set(found) == LOOKED_AT
    _LOOKS.update({index: found.count(index) for index in LOOKED_AT})


@settings(max_examples=40)
@given(
    name=st.sampled_from(sorted(DATASETS)),
    sampler=st.sampled_from(streams.SAMPLERS),
    batch_size=st.integers(1, 12),
    drop_last=st.booleans(),
)
def test_any_sampler_gives_the_same_batches(
    name: str,
    sampler: str,
    batch_size: int,
    drop_last: bool,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Bit for bit those of data in memory, over epochs; torch's generator is where it is there."""

    def plain() -> DataLoader[Any]:
        return plain_loader(DATASETS[name](), sampler, batch_size, drop_last)

    loaders = [plain(), plain()]
    samplers = [[p.sampler] if sampler == "distributed" else [] for p in loaders]
    memory = hotset.accelerate(loaders[0], device="cpu", check_every=0)
    wanted, state = stream(memory, epochs=3, seed=2, samplers=samplers[0])
    fast = lazy(loaders[1], tmp_path_factory.mktemp("cache"), check_every=3)
    found, found_state = stream(fast, epochs=3, seed=2, samplers=samplers[1])
    assert_same(found, wanted)
    assert torch.equal(found_state, state)


@pytest.mark.parametrize("workers", [0, 1, 2])
@pytest.mark.parametrize("name", DATASETS)
def test_every_sample_is_read_once(
    name: str, workers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the first epoch, or before it; then none, by this loader and by the next."""
    reads, cache = Reads(tmp_path, monkeypatch), tmp_path / "cache"
    wanted = stream(hotset.accelerate(loader_of(name), device="cpu"), epochs=2, seed=1)[0]
    reads.take()
    fast = lazy(loader_of(name, num_workers=workers), cache)
    early = of_first(reads.take())
    assert len(early) == EARLY
    assert f"the first epoch fills {cache}" in str(fast.plan)
    torch.manual_seed(1)
    assert_same(list(fast), wanted[0])
    first = reads.take()
    assert sorted(early + first) == list(range(COUNT))
    (store,) = stores_in(cache)
    assert partials_in(cache) == []
    assert_same(list(fast), wanted[1])
    assert reads.take() == []
    before = picture_of(store)
    again = lazy(loader_of(name, num_workers=workers), cache)
    assert of_first(reads.take()) == []
    assert_same(stream(again, epochs=2, seed=1)[0], wanted)
    assert reads.take() == []
    assert store_of(again).path == store
    assert picture_of(store) == before


def test_other_kinds_of_samples(tmp_path: Path) -> None:
    """Text with a collate_fn, dictionaries, and chains whose steps run per sample."""
    makes: dict[str, Any] = {
        "text": lambda: DataLoader(Texts(COUNT), 4, shuffle=True, collate_fn=padded),
        "dict": lambda: DataLoader(Pictures(COUNT, CROPPED, "dict"), 4, shuffle=True),
        "nested": lambda: DataLoader(Pictures(COUNT, PLAIN, "nested"), 4, shuffle=True),
        "per sample": lambda: DataLoader(Ragged(COUNT, JITTERED), 4, shuffle=True),
        "subset": lambda: DataLoader(Subset(Ragged(COUNT, RESIZED), range(3, 20)), 4),
    }
    for name, make in makes.items():
        wanted = stream(hotset.accelerate(make(), device="cpu"), epochs=2, seed=1)[0]
        fast = lazy(make(), tmp_path / name)
        is_eager = any("filled before the first epoch" in text for text in fast.plan.notes)
        assert is_eager == (name == "per sample")
        assert_same(stream(fast, epochs=2, seed=1)[0], wanted, name)
        assert len(stores_in(tmp_path / name)) == 1


def end_by_break(batches: Iterable[Any], count: int) -> None:
    """Leaves an epoch behind so many batches."""
    for number, _ in enumerate(batches, 1):
        if number == count:
            break


def end_by_error(batches: Iterable[Any], count: int) -> None:
    """An error of the training step."""
    with pytest.raises(ZeroDivisionError):  # noqa: PT012
        for number, _ in enumerate(batches, 1):
            if number == count:
                1 / 0  # noqa: B018


def end_by_close(batches: Iterable[Any], count: int) -> None:
    """The iterator is closed."""
    iterator: Any = iter(batches)
    for _ in islice(iterator, count):
        pass
    iterator.close()


@pytest.mark.parametrize("end", [end_by_break, end_by_error, end_by_close])
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("fill", ["eager", "lazy"])
def test_what_was_read_before_the_end_is_used(
    end: Any, workers: int, fill: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the next loader, in whatever way it fills the rest: no sample is read twice."""
    reads, cache = Reads(tmp_path, monkeypatch), tmp_path / "cache"
    wanted = in_memory("resized", 1)
    reads.take()
    torch.manual_seed(1)
    fast = lazy(loader_of("resized", num_workers=workers), cache)
    end(fast, 3)
    first = of_first(reads.take())
    if workers == 0:
        assert len(set(first)) == len(first)
        assert set(first) > set(samples_in(COUNT))
    assert stores_in(cache) == []
    del fast
    gc.collect()
    torch.manual_seed(1)
    plain = loader_of("resized", num_workers=workers)
    again = hotset.accelerate(plain, device="cpu", cache=cache, fill=fill, check_every=0)
    found = list(again)
    assert_same(found, wanted)
    second = of_first(reads.take())
    if workers == 0:  # else workers had read ahead
        assert sorted(first + second) == list(range(COUNT))
    assert len(second) < COUNT - 12
    assert len(stores_in(cache)) == 1
    assert partials_in(cache) == []


@pytest.mark.parametrize("fill", ["eager", "lazy"])
@pytest.mark.parametrize("is_open", [False, True])
def test_loaders_of_one_process_fill_one_store(
    fill: Any, is_open: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is left early, or is in the middle of its epoch, is no hindrance to the next."""
    reads, cache = Reads(tmp_path, monkeypatch), tmp_path / "cache"
    wanted = [in_memory("resized", seed) for seed in range(2)]
    reads.take()
    torch.manual_seed(0)
    fast = lazy(loader_of("resized"), cache)
    iterator = iter(fast)
    begun = [next(iterator) for _ in range(3)]
    if not is_open:
        del iterator
    torch.manual_seed(1)
    plain = loader_of("resized")
    again = hotset.accelerate(plain, device="cpu", cache=cache, fill=fill, check_every=0)
    assert_same(list(again), wanted[1])
    if is_open:
        assert_same(begun + list(iterator), wanted[0])
    assert sorted(of_first(of_first(reads.take()))) == list(range(COUNT))
    (store,) = stores_in(cache)
    assert partials_in(cache) == []
    assert len(list(fast)) == len(wanted[0])
    assert reads.take() == []
    assert hotset.Store(store).damaged() == []


@pytest.mark.parametrize("workers", [0, 2])
def test_two_iterators_of_one_loader_at_a_time(workers: int, tmp_path: Path) -> None:
    """Each gets its batches, though both ask for the same samples ahead."""
    plain = loader_of("resized", num_workers=workers, batch_size=3)
    memory = hotset.accelerate(plain, device="cpu")
    fast = lazy(loader_of("resized", num_workers=workers, batch_size=3), tmp_path)
    streams_of = []
    for loader in (memory, fast):
        torch.manual_seed(4)
        iterators = [iter(loader), iter(loader)]
        pairs = [pair for _ in range(3) for pair in zip(*iterators, strict=False)]
        streams_of.append([list(pair) for pair in pairs])
    assert_same(streams_of[1], streams_of[0])
    (store,) = stores_in(tmp_path)
    assert len(hotset.Store(store)) == COUNT
    assert hotset.Store(store).damaged() == []


TEXT = """
import torch
torch.manual_seed(5)
fast = hotset.accelerate(
    loader_of({name!r}, num_workers={workers}), device="cpu", cache={cache!r}, fill={fill!r},
    check_every=0
)
print("there", flush=True)
for batch in fast:
    print(digest_of(batch), flush=True)
"""


@pytest.mark.parametrize(
    ("workers", "after", "fill"),
    [
        (0, 1, "lazy"),
        (0, 2, "eager"),
        (0, 6, "lazy"),
        (0, 11, "eager"),
        (0, 11, "lazy"),
        (2, 5, "lazy"),
    ],
)
def test_a_killed_run_is_gone_on_with(
    workers: int, after: int, fill: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before its first batch, in the middle, before its last: what it wrote is not read again."""
    reads, cache = Reads(tmp_path, monkeypatch), tmp_path / "cache"
    settings = {"name": "resized", "workers": workers, "cache": str(cache)}
    killed(TEXT.format(fill="lazy", **settings), after)
    first = of_first(reads.take())
    assert len(partials_in(cache)) + len(stores_in(cache)) == 1
    wanted = in_memory("resized", 5)
    reads.take()
    torch.manual_seed(5)
    again = hotset.accelerate(
        loader_of("resized"), device="cpu", cache=cache, fill=fill, check_every=0
    )
    assert_same(list(again), wanted)
    second = of_first(reads.take())
    written = EARLY + max(0, after - 1)  # at least one new sample for each batch that came
    assert set(first) | set(second) == set(range(COUNT))
    assert len(second) <= COUNT - min(written, EARLY)
    if workers == 0:  # no more than what it read when it was killed is read again
        assert len(set(first) & set(second)) <= 4
    assert len(stores_in(cache)) == 1
    assert partials_in(cache) == []


@pytest.mark.parametrize("name", DATASETS)
def test_what_an_epoch_leaves_out_later_ones_complete(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A short last batch that is dropped, another part of the samples every time."""
    reads = Reads(tmp_path, monkeypatch)
    dataset = DATASETS[name]()
    samplers: dict[str, dict[str, Any]] = {
        "drop_last": {"drop_last": True, "shuffle": True},
        "part": {"sampler": RandomSampler(range(COUNT), num_samples=20)},
        "replacement": {"sampler": RandomSampler(range(COUNT), replacement=True)},
    }
    for kind, settings_ in samplers.items():
        cache = tmp_path / kind
        memory = hotset.accelerate(DataLoader(dataset, 7, **settings_), device="cpu", check_every=0)
        fast = lazy(DataLoader(dataset, 7, **settings_), cache)
        reads.take()
        torch.manual_seed(8)
        epochs = [list(memory)]
        torch.manual_seed(8)
        assert_same(list(fast), epochs[0], kind)
        assert stores_in(cache) == []
        assert len(partials_in(cache)) == 1
        for number in range(30):
            for loader in (memory, fast):
                torch.manual_seed(number)
                epochs.append(list(loader))
            assert_same(epochs[-1], epochs[-2], f"{kind}, epoch {number}")
            if stores_in(cache):
                break
        found = reads.take()
        assert len(set(found)) == len(found)
        assert len(found) == COUNT - EARLY
        assert partials_in(cache) == []


@pytest.mark.parametrize("stop", [1, 4, 10])
@pytest.mark.parametrize("name", DATASETS)
def test_a_state_of_the_first_epoch_resumes(name: str, stop: int, tmp_path: Path) -> None:
    """In whatever is kept where: memory, a store, or one that is being filled."""

    def made(kind: str) -> hotset.Loader:
        if kind == "memory":
            return hotset.accelerate(loader_of(name), device="cpu")
        cache = tmp_path / kind
        fill: Any = "lazy" if kind.startswith("lazy") else "eager"
        return hotset.accelerate(loader_of(name), device="cpu", cache=cache, fill=fill)

    torch.manual_seed(9)
    whole = [list(loader) for loader in [made("memory")] for _ in range(2)]
    for kind in ("lazy", "eager", "memory"):
        torch.manual_seed(9)
        fast = made(kind)
        begun = list(islice(fast, stop))
        state, generator = fast.state_dict(), torch.get_rng_state()
        for other in ("memory", "eager", "lazy", "lazy too"):
            torch.manual_seed(77)
            again = made(other)
            again.load_state_dict(state)
            torch.set_rng_state(generator)
            assert_same(begun + list(again), whole[0], f"{kind} to {other}")
            assert_same(list(again), whole[1], f"{kind} to {other}")


def test_a_state_resumes_in_a_new_process(tmp_path: Path) -> None:
    """The rest of a lazily filled first epoch, and the next."""
    text = """
import torch
torch.manual_seed(5)
fast = hotset.accelerate(loader_of("resized"), device="cpu", cache={cache!r}, fill="lazy")
batches = iter(fast)
begun = [digest_of(next(batches)) for _ in range({stop})]
state = fast.state_dict()
if {state!r}:
    fast.load_state_dict({state!r})
print(json.dumps([begun, state, digests(fast) if {state!r} else digests(batches)]))
"""
    whole = in_process(text.format(cache=str(tmp_path / "a"), stop=0, state=None))[2]
    cache = str(tmp_path / "b")
    begun, state, _ = in_process(text.format(cache=cache, stop=4, state=None))
    assert begun == whole[:4]
    rest = in_process(text.format(cache=str(tmp_path / "c"), stop=0, state=state))[2]
    assert begun + rest == whole
    assert in_process(text.format(cache=cache, stop=0, state=state))[2] == rest


@pytest.mark.parametrize("fills", [("lazy", "lazy"), ("lazy", "eager")])
@pytest.mark.parametrize("workers", [0, 2])
def test_two_processes_fill_at_a_time(fills: tuple[str, str], workers: int, tmp_path: Path) -> None:
    """Both get the right batches, one store comes of it, and nothing is left behind."""
    wanted = digests(in_memory("resized", 5))
    text = "import warnings\nwarnings.simplefilter('ignore')\n" + TEXT
    running = [
        subprocess.Popen(
            script(text.format(name="resized", workers=workers, cache=str(tmp_path), fill=fill)),
            stdout=subprocess.PIPE,
            text=True,
        )
        for fill in fills
    ]
    for process in running:
        out, _ = process.communicate(timeout=110)
        assert process.returncode == 0
        assert out.split() == ["there", *wanted]
    (store,) = stores_in(tmp_path)
    assert partials_in(tmp_path) == []
    assert len(hotset.Store(store)) == COUNT
    assert hotset.Store(store).damaged() == []


def test_another_process_fills_a_copy_of_its_own(tmp_path: Path) -> None:
    """While the store is being filled elsewhere; its batches are right, its copy is given up."""
    wanted = digests(in_memory("resized", 5))
    fast = lazy(loader_of("resized"), tmp_path)
    end_by_break(fast, 3)
    text = TEXT.replace("for batch in fast", "print(len(list(fast)))\nfor batch in []").format(
        name="resized", workers=0, cache=str(tmp_path), fill="lazy"
    )
    done = subprocess.run(script(text), capture_output=True, text=True, timeout=110, check=True)
    assert done.stdout.split() == ["there", str(len(wanted))]
    assert len(partials_in(tmp_path)) == 1
    assert stores_in(tmp_path) == []
    list(fast)
    assert partials_in(tmp_path) == []
    assert len(stores_in(tmp_path)) == 1


def test_a_full_disk_is_named_and_gone_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error says so; once there is room, what was written is not read again."""
    reads, cache = Reads(tmp_path, monkeypatch), tmp_path / "cache"
    fast = lazy(loader_of("resized"), cache)
    batches = iter(fast)
    next(batches)
    whole, room = os.pwrite, [2_000]

    def pwrite(file: int, content: Any, position: int) -> int:
        if room[0] < len(content):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        room[0] -= len(content)
        return whole(file, content, position)

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", pwrite)
        with pytest.raises(StorageError, match=r"no room left for .*make room and build again"):
            list(batches)
    first = of_first(reads.take())
    with pytest.raises(StorageError, match="not written to any more: a write failed before"):
        list(fast)
    reads.take()
    wanted = in_memory("resized", 1)
    reads.take()
    again = lazy(loader_of("resized"), cache)
    assert_same(epoch_of(again, 1), wanted)
    second = of_first(reads.take())
    assert set(first) | set(second) == set(range(COUNT))
    assert len(set(first) & set(second)) <= 4
    assert len(stores_in(cache)) == 1


def test_too_little_room_is_said_beforehand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the place is free for the next try."""
    with monkeypatch.context() as patch:
        patch.setattr("hotset.building.chunks.free_bytes_at", lambda path: 100)
        with pytest.raises(StorageError, match=r"no room for .*are needed, 100 bytes are free"):
            lazy(loader_of("resized"), tmp_path)
    assert len(list(lazy(loader_of("resized"), tmp_path))) == 11
    assert len(stores_in(tmp_path)) == 1


class Failing(Dataset[Any]):
    """Images from files, which torchvision's attribute names."""

    def __init__(self, paths: list[Path]) -> None:
        self.paths, self.transform = paths, RESIZED

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> Any:
        with Image.open(self.paths[index]) as image:
            return self.transform(image.convert("RGB")), index


@pytest.mark.parametrize("workers", [0, 2])
def test_a_sample_that_fails_is_named(workers: int, tmp_path: Path) -> None:
    """By its index and its file; what was read before it is kept."""
    paths = [tmp_path / f"{index}.png" for index in range(COUNT)]
    for index, path in enumerate(paths):
        streams.picture(index, (9, 9 + index % 2)).save(path)
    content = paths[30].read_bytes()
    paths[30].write_bytes(content[:40])
    fast = lazy(DataLoader(Failing(paths), 4, num_workers=workers), tmp_path / "cache")
    found = []
    with pytest.raises(SampleError, match=rf"Failing failed at index 30: .*\({paths[30]}\)"):
        found.extend(fast)  # type: ignore[arg-type]
    del fast
    (partial,) = partials_in(tmp_path / "cache")
    assert partial.is_dir()


class Odd(Noted):
    """Images of one size but for one, which is not looked at in time."""

    def __getitem__(self, index: int) -> Any:
        if index != 7:
            return super().__getitem__(index)
        return self.transform(streams.picture(index, (10, 9))), index


class OddChannels(Ragged):
    """Images of three channels but for one."""

    def image(self, index: int) -> Any:
        return super().image(index).convert("L" if index == 7 else "RGB")


@pytest.mark.parametrize(
    ("dataset", "match"),
    [
        (Odd(COUNT, CROPPED), r"RGB 8x8 at index 0 but a PIL image RGB 9x10 at index 7, and"),
        (OddChannels(COUNT, RESIZED), r"PIL image L 8x11 at index 7, and steps that run on whole"),
    ],
    ids=["size", "channels"],
)
def test_samples_that_turn_out_to_differ_are_named(
    dataset: Any, match: str, tmp_path: Path
) -> None:
    """The next run reads the rest beforehand, and runs these steps per sample."""

    def plain() -> DataLoader[Any]:
        return DataLoader(dataset, 4, collate_fn=listed)

    fast = lazy(plain(), tmp_path)
    with pytest.raises(SchemaError, match=match):
        list(fast)
    again = lazy(plain(), tmp_path, check_every=1)
    assert "filled before the first epoch: samples differ in shape" in again.plan.notes
    assert "runs per sample, since the samples differ in shape" in str(again.plan)
    memory = hotset.accelerate(plain(), device="cpu")
    assert_same(epoch_of(again, 1), epoch_of(memory, 1))
    assert len(stores_in(tmp_path)) == 1


class Retrying(Noted):
    """Draws for one sample, which no probe looks at."""

    def __getitem__(self, index: int) -> Any:
        return super().__getitem__(int(torch.randint(23, ())) if index == self.odd else index)

    odd = 7


class RetryingEarly(Retrying):
    """Draws for one that is read at once."""

    odd = 3


class Exempt(Noted):
    """One sample is not shown to the transform."""

    def __getitem__(self, index: int) -> Any:
        image, label = super().__getitem__(index)
        if index == 7:
            return v1.functional.to_tensor(streams.picture(index)), label
        return image, label


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    ("make", "match"),
    [
        (Retrying, "a random generator moved while samples of Retrying were read.*leave `cache`"),
        (Exempt, "transform is not applied once to every sample, as at index 7; leave `cache` out"),
    ],
)
def test_what_cannot_be_kept_is_refused_in_the_epoch(
    make: Any, match: str, workers: int, tmp_path: Path
) -> None:
    """With a word on what to do."""
    fast = lazy(DataLoader(make(COUNT, CROPPED), 4, num_workers=workers), tmp_path)
    with pytest.raises(FaithfulnessError, match=match):
        list(fast)
    assert stores_in(tmp_path) == []


def test_what_is_seen_at_once_is_left_alone(tmp_path: Path) -> None:
    """As without a cache."""
    fast = lazy(DataLoader(RetryingEarly(COUNT, CROPPED), 4), tmp_path)
    assert fast.plan.tier == "source"
    assert "a random generator moved while its samples were read" in str(fast.plan)
    assert len(list(fast)) == 11


def children() -> list[int]:
    """The processes that this one has started and that are running."""
    text = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text()
    return [int(child) for child in text.split()]


@pytest.mark.parametrize("end", [end_by_break, end_by_error, end_by_close])
def test_workers_and_locks_end_with_the_loader(end: Any, tmp_path: Path) -> None:
    """No process runs on behind an epoch, no lock and no file is held behind the loader."""
    before = children()
    fast = lazy(loader_of("resized", num_workers=2), tmp_path)
    end(fast, 2)
    gc.collect()
    assert children() == before
    (partial,) = partials_in(tmp_path)
    path = partial.with_suffix("")
    assert take_lock(path, is_waiting=False) is None
    del fast
    gc.collect()
    lock = take_lock(path, is_waiting=False)
    assert lock is not None
    lock.release()
    held = [os.readlink(f"/proc/self/fd/{n}") for n in os.listdir("/proc/self/fd") if is_open(n)]
    assert not any(str(tmp_path) in name for name in held)


def is_open(number: str) -> bool:
    """Whether a file is still open; the one that lists them is not."""
    return os.path.lexists(f"/proc/self/fd/{number}")


def test_a_digest_is_of_every_bit() -> None:
    """Lest the comparisons between processes compare nothing."""
    batch = [torch.zeros(2, 3), torch.arange(2)]
    other = [torch.zeros(2, 3), torch.arange(2)]
    assert digest_of(batch) == digest_of(other)
    other[0][1, 2] = -0.0
    assert digest_of(batch) != digest_of(other)


def test_a_store_that_another_process_finished_meanwhile_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was not there when it was looked for, and is when its lock is taken: nothing is begun."""
    wanted = in_memory("resized", 1)
    list(lazy(loader_of("resized"), tmp_path))
    (store,) = stores_in(tmp_path)
    monkeypatch.setattr("hotset.loader.keep.is_whole", lambda path: False)
    fast = lazy(loader_of("resized"), tmp_path)
    assert store_of(fast).path == store
    assert partials_in(tmp_path) == []
    assert_same(epoch_of(fast, 1), wanted)
    lock = take_lock(store, is_waiting=False)
    assert lock is not None
    lock.release()
