"""A store on disk changes nothing but the time: batches, reads, what is reused and what is not."""

from __future__ import annotations

import importlib.util
import os
import shutil
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Subset
from torchvision import transforms as v1
from torchvision.datasets import ImageFolder

import hotset
from hotset.building.finding import common_path
from hotset.errors import ConfigError, SchemaError, StaleStoreWarning, StorageError
from tests import streams
from tests.cached import (
    CROPPED,
    JITTERED,
    PLAIN,
    RESIZED,
    Noted,
    Ragged,
    Reads,
    Texts,
    in_process,
    listed,
    padded,
    partials_in,
    picture_of,
    store_of,
    stores_in,
)
from tests.streams import Pictures, assert_same, nest, stream

DATASETS: dict[str, Callable[[], Dataset[Any]]] = {
    "dense, deterministic": lambda: Noted(23, PLAIN),
    "dense, batched": lambda: Noted(23, CROPPED),
    "dense, per sample": lambda: Noted(23, JITTERED),
    "ragged, deterministic": lambda: Ragged(23, PLAIN),
    "ragged, batched": lambda: Ragged(23, RESIZED),
    "ragged, per sample": lambda: Ragged(23, v1.Compose([v1.RandomCrop(8), v1.ToTensor()])),
    "no chain": lambda: streams.OwnCode(23),
    "named": lambda: Pictures(23, CROPPED, "named"),
    "dict": lambda: Pictures(23, CROPPED, "dict"),
    "nested": lambda: Pictures(23, CROPPED, "nested"),
    "scalars": lambda: Pictures(23, PLAIN, "scalars"),
    "label first": lambda: Pictures(23, JITTERED, "label first"),
    "subset": lambda: nest(Pictures(23, CROPPED), "nested subset", None),
    "split": lambda: nest(Pictures(23, JITTERED), "split", None),
    "concatenated": lambda: nest(Pictures(23, CROPPED), "concatenated", Pictures(4, CROPPED)),
    "two targets": lambda: streams.Folder(23, CROPPED, streams.one_hot),
}
COLLATED: dict[str, tuple[Callable[[], Dataset[Any]], Any]] = {
    "text": (lambda: Texts(23), padded),
    "images apart": (lambda: Ragged(23, v1.Compose([v1.Resize(6), v1.ToTensor()])), listed),
}
DETERMINISTIC = ("dense, deterministic", "ragged, deterministic", "no chain", "scalars")


def loader(name: str, **settings: Any) -> DataLoader[Any]:
    """A shuffled plain loader, over new objects."""
    settings = {"batch_size": 5, "shuffle": True, **settings}
    if name in COLLATED:
        make, collate = COLLATED[name]
        return DataLoader(make(), collate_fn=collate, **settings)
    return DataLoader(DATASETS[name](), **settings)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("name", [*DATASETS, *COLLATED])
def test_batches_are_those_without_a_cache(name: str, workers: int, tmp_path: Path) -> None:
    """Bit for bit, over epochs: of a store that was just built, and of one that was found."""
    memory = hotset.accelerate(loader(name, num_workers=workers), device="cpu")
    wanted = stream(memory, epochs=2, seed=3)
    for _ in range(2):
        fast = hotset.accelerate(
            loader(name, num_workers=workers), device="cpu", cache=tmp_path, check_every=2
        )
        found = stream(fast, epochs=2, seed=3)
        assert_same(found[0], wanted[0])
        assert torch.equal(found[1], wanted[1])
        assert fast.state_dict()["fingerprint"] == memory.state_dict()["fingerprint"]
        assert [d.action for d in fast.plan.decisions] == [d.action for d in memory.plan.decisions]
        assert fast.plan.kernel == memory.plan.kernel
    if name in DETERMINISTIC or name in COLLATED:
        assert_same(found[0], stream(loader(name, num_workers=workers), epochs=2, seed=3)[0])


@pytest.mark.parametrize("name", [*DATASETS, *COLLATED])
def test_the_plan_names_the_store(name: str, tmp_path: Path) -> None:
    """Its tier, its path and its bytes."""
    fast = hotset.accelerate(loader(name), device="cpu", cache=tmp_path)
    store = store_of(fast)
    assert stores_in(tmp_path) == [store.path]
    assert partials_in(tmp_path) == []
    assert len(store) == fast.plan.samples
    assert fast.plan.tier == "disk"
    assert "mapped from disk" in str(fast.plan)
    values = sum(np.load(path, mmap_mode="r").nbytes for path in store.path.glob("*.npy"))
    index = sum(np.load(path).nbytes for path in store.path.glob("*.index.npy"))
    assert fast.plan.bytes_held == values - index


@pytest.mark.parametrize("name", ["dense, batched", "ragged, batched", "dense, per sample", "text"])
def test_a_store_is_read_in_place_of_the_dataset(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond the samples that are looked at, each is read once, and none from the store on."""
    reads = Reads(tmp_path, monkeypatch)
    cache = tmp_path / "cache"
    list(hotset.accelerate(loader(name), device="cpu", check_every=0))
    memory = reads.take()
    counts = []
    for _ in range(3):
        fast = hotset.accelerate(loader(name), device="cpu", cache=cache, check_every=0)
        stream(fast, epochs=2)
        counts.append(reads.take())
    probes = len(memory) - 23
    assert set(range(23)) <= set(counts[0])
    assert len(counts[0]) == len(memory) + 2  # the key holds the bytes of two samples
    assert len(counts[1]) == len(counts[2]) == probes + 2
    assert set(counts[1]) == {0, 7, 15, 22}


def test_another_process_reads_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the same batches, and no read but of the samples that are looked at."""
    reads = Reads(tmp_path, monkeypatch)
    cache = tmp_path / "cache"
    text = f"""
import torch
torch.manual_seed(5)
fast = hotset.accelerate(loader_of("resized"), device="cpu", cache={str(cache)!r}, check_every=0)
print(json.dumps([digests(fast), digests(fast), fast.plan.tier, fast.state_dict()["fingerprint"]]))
"""
    first = in_process(text)
    built = reads.take()
    assert in_process(text) == first
    assert len(reads.take()) == len(built) - 41
    assert first[2] == "disk"


def aged(folder: Path) -> dict[str, Any]:
    """The state of the one store in a folder."""
    (path,) = stores_in(folder)
    return picture_of(path)


def test_another_augmentation_reuses_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is behind the cut is no part of the key: nothing is read, nothing is written."""
    chains = [
        v1.Compose([v1.Resize((9, 9)), v1.RandomCrop(8), v1.ToTensor()]),
        v1.Compose([v1.Resize((9, 9)), v1.RandomHorizontalFlip(0.3), v1.ToTensor()]),
        v1.Compose([v1.Resize((9, 9)), v1.ToTensor(), v1.Normalize(0.1, 0.3)]),
        v1.Compose([v1.Resize((9, 9)), v1.ColorJitter(0.4), v1.ToTensor()]),
        v1.Compose([v1.Resize((9, 9)), v1.RandomResizedCrop(5), v1.ToTensor()]),
    ]
    reads, cache = Reads(tmp_path, monkeypatch), tmp_path / "cache"
    states = []
    for number, chain in enumerate(chains):
        plain = DataLoader(Ragged(23, chain), 5)
        found = stream(hotset.accelerate(plain, device="cpu", cache=cache), seed=1)[0]
        assert len(set(reads.take())) == (23 if number == 0 else 4)
        assert_same(found, stream(hotset.accelerate(plain, device="cpu"), seed=1)[0])
        reads.take()
        states.append(aged(cache))
    assert all(state == states[0] for state in states)


def scaled(factor: float) -> Callable[[Image.Image], Image.Image]:
    """A step with a number in its closure."""

    def step(image: Image.Image) -> Image.Image:
        return image.point(lambda value: value * factor)

    return step


@contextmanager
def module(path: Path, text: str) -> Iterator[Any]:
    """A module of the user's own, from its source."""
    path.parent.mkdir()
    path.write_text(text)
    spec = importlib.util.spec_from_file_location("users_own", path)
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    yield found
    shutil.rmtree(path.parent / "__pycache__", ignore_errors=True)


def test_other_parameters_build_another_store_beside(tmp_path: Path) -> None:
    """A warning names the step and both values; the old store is as it was."""
    first = DataLoader(Ragged(12, v1.Compose([v1.Resize((9, 9)), v1.ToTensor()])), 5)
    other = DataLoader(Ragged(12, v1.Compose([v1.Resize((9, 8)), v1.ToTensor()])), 5)
    hotset.accelerate(first, device="cpu", cache=tmp_path)
    before = aged(tmp_path)
    (old,) = stores_in(tmp_path)
    with pytest.warns(StaleStoreWarning, match=r"step 1: was Resize\(size=\(9, 9\).*\(9, 8\)"):
        fast = hotset.accelerate(other, device="cpu", cache=tmp_path)
    assert_same(list(fast), list(other))
    assert picture_of(old) == before
    assert stores_in(tmp_path) == sorted([old, store_of(fast).path])
    for plain in (first, other):  # both are there, and no word is said
        assert_same(list(hotset.accelerate(plain, device="cpu", cache=tmp_path)), list(plain))
    assert picture_of(old) == before


def test_other_code_builds_another_store_beside(tmp_path: Path) -> None:
    """The body of a step, of a helper that it calls, and what it closes over."""
    text = (
        "def helper(image):\n    return image.rotate({})\n"
        "def step(image):\n    return helper(image)\n"
    )
    chains: list[Any] = []
    for number, angle in enumerate((90, 180)):
        with module(tmp_path / f"a{number}" / "own.py", text.format(angle)) as own:
            chains.append([own.step])
    chains += [[scaled(0.5)], [scaled(0.25)]]
    cache, found = tmp_path / "cache", []
    for number, chain in enumerate(chains):
        plain = DataLoader(Ragged(12, v1.Compose([*chain, v1.Resize((9, 9)), v1.ToTensor()])), 5)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            fast = hotset.accelerate(plain, device="cpu", cache=cache)
        texts = [str(w.message) for w in caught if w.category is StaleStoreWarning]
        assert len(texts) == (1 if number else 0)
        assert all("step 1" in text for text in texts)
        assert_same(list(fast), list(plain))
        found.append(store_of(fast).path)
    assert sorted(found) == stores_in(cache)
    assert len(set(found)) == 4


def folder_of(path: Path, count: int, seed: int = 0) -> Path:
    """A folder of images, as `ImageFolder` reads it."""
    for index in range(count):
        place = path / f"c{index % 2}" / f"{index}.png"
        place.parent.mkdir(parents=True, exist_ok=True)
        streams.picture(seed + index, (9 + index % 3, 10)).save(place)
    return path


def test_other_files_build_another_store_beside(tmp_path: Path) -> None:
    """One that was changed, one that is new."""
    root, cache = folder_of(tmp_path / "images", 8), tmp_path / "cache"

    def fast() -> tuple[hotset.Loader, DataLoader[Any]]:
        plain = DataLoader(ImageFolder(str(root), PLAIN), 5)
        return hotset.accelerate(plain, device="cpu", cache=cache), plain

    first, plain = fast()
    assert_same(list(first), list(plain))
    before = aged(cache)
    streams.picture(77, (9, 11)).save(root / "c0" / "0.png")
    with pytest.warns(StaleStoreWarning, match="source"):
        second, plain = fast()
    assert_same(list(second), list(plain))
    streams.picture(78, (9, 10)).save(root / "c1" / "99.png")
    with pytest.warns(StaleStoreWarning, match="source: was ImageFolder"):
        third, plain = fast()
    assert_same(list(third), list(plain))
    assert len(stores_in(cache)) == 3
    assert picture_of(store_of(first).path) == before


def test_training_and_validation_share_a_folder(tmp_path: Path) -> None:
    """Each finds its own store again, whatever else is there; neither is stale by the other."""
    roots = [folder_of(tmp_path / name, 8, seed) for seed, name in enumerate(("train", "val"))]
    cache = tmp_path / "cache"
    chains = [RESIZED, v1.Compose([v1.Resize(9), v1.CenterCrop(8), v1.ToTensor()])]
    plain = [DataLoader(ImageFolder(str(r), c), 5) for r, c in zip(roots, chains, strict=True)]
    stores = [store_of(hotset.accelerate(p, device="cpu", cache=cache)).path for p in plain]
    assert sorted(stores) == stores_in(cache)
    places = [hotset.open(store).manifest.made["place"] for store in stores]
    assert places == [str(root) for root in roots]
    for _ in range(2):
        for loader, store in zip(plain, stores, strict=True):
            fast = hotset.accelerate(loader, device="cpu", cache=cache)
            assert store_of(fast).path == store
            found = stream(fast, seed=1)[0]
            assert_same(found, stream(hotset.accelerate(loader, device="cpu"), seed=1)[0])


class Drawn(Pictures):
    """Pictures that a state tells, and no file."""

    first = 0

    def __init__(self, length: int, transform: Any, first: int) -> None:
        super().__init__(length, transform)
        self.first = first

    def __getitem__(self, index: int) -> Any:
        return self.transform(streams.picture(self.first + index, self.size)), index


@pytest.mark.parametrize(
    ("length", "chain"), [(12, PLAIN), (13, PLAIN), (13, v1.Compose([v1.Resize(8), v1.ToTensor()]))]
)
def test_unrelated_data_without_files_is_not_stale(length: int, chain: Any, tmp_path: Path) -> None:
    """Of one class, with other values; another length, and another chain with it."""
    for plain in (Drawn(12, PLAIN, 0), Drawn(length, chain, 50)):
        fast = hotset.accelerate(DataLoader(plain, 5), device="cpu", cache=tmp_path)
        assert_same(list(fast), list(DataLoader(plain, 5)))
        assert "place" not in store_of(fast).manifest.made
    assert len(stores_in(tmp_path)) == 2


@pytest.mark.parametrize("fill", ["eager", "lazy"])
def test_parts_of_one_dataset_are_not_stale(fill: Any, tmp_path: Path) -> None:
    """Their files are as they were; once one has changed, they are stale."""
    root, cache = folder_of(tmp_path / "images", 8), tmp_path / "cache"
    chain = v1.Compose([v1.Resize((6, 7)), v1.RandomHorizontalFlip(), v1.ToTensor()])

    def fast(indices: list[int]) -> hotset.Loader:
        part = Subset(ImageFolder(str(root), chain), indices)
        loader = hotset.accelerate(DataLoader(part, 2), device="cpu", cache=cache, fill=fill)
        list(loader)
        return loader

    for indices in ([0, 2, 4, 6], [1, 3, 5, 7]):
        fast(indices)
    assert len(stores_in(cache)) == 2
    for store in stores_in(cache):
        assert hotset.open(store).manifest.made["place"] == str(root)
    streams.picture(77, (30, 31)).save(root / "c0" / "0.png")
    with pytest.warns(StaleStoreWarning, match="source: was Subset of ImageFolder: 8 files"):
        fast([0, 2, 4, 6])
    assert len(stores_in(cache)) == 3


def test_another_version_is_stale_without_files(tmp_path: Path) -> None:
    """It is the one thing that differs."""
    plain = DataLoader(Drawn(12, PLAIN, 0), 5)
    hotset.accelerate(plain, device="cpu", cache=tmp_path, version="1")
    with pytest.warns(StaleStoreWarning, match=r"\(version: was 1, is 2\)"):
        hotset.accelerate(plain, device="cpu", cache=tmp_path, version="2")


@pytest.mark.parametrize(
    ("files", "common"),
    [
        ([], ""),
        (["/a/b/c.png"], "/a/b/c.png"),
        (["/a/b/c.png", "/a/bb/c.png", "/a/b/d/e.png"], "/a"),
        (["/a/b/c/d.png", "/a/b/c.png"], "/a/b"),
        (["x/1.png", "x/2.png"], "{here}/x"),
        (["x/../1.png"], "{here}/1.png"),
        (["s3://b/x/1.png", "s3://b/x/2/3.png", "/a/list.csv"], "s3://b/x"),
    ],
)
def test_the_common_path_of_files(
    files: list[str], common: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That of all; URLs go first."""
    monkeypatch.chdir(tmp_path)
    assert common_path(files) == common.format(here=tmp_path)


def test_data_in_memory_needs_no_cache(tmp_path: Path) -> None:
    """Which the plan says; nothing is written."""
    plain = DataLoader(streams.tensor_dataset(9), 4)
    fast = hotset.accelerate(plain, device="cpu", cache=tmp_path / "cache")
    assert "nothing to cache: the samples lie in memory or in a store already" in fast.plan.notes
    assert_same(list(fast), list(plain))
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"cache": "c", "fill": "later"}, "`fill` must be one of eager, lazy, got 'later'"),
        ({"fill": "lazy"}, "`fill` and `version` are for a store on disk: give a `cache` folder"),
        ({"version": "1"}, "`fill` and `version` are for a store on disk: give a `cache` folder"),
        ({"cache": "c", "version": ""}, "`version` must be a text"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(
    options: dict[str, Any], match: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With what was expected; nothing is written."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=match):
        hotset.accelerate(loader("dense, batched"), device="cpu", **options)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("fill", ["eager", "lazy"])
def test_a_file_is_no_folder(fill: Any, tmp_path: Path) -> None:
    """The path is named."""
    (tmp_path / "cache").write_text("mine")
    with pytest.raises(StorageError, match=r"cannot be built: File exists \(.*/cache\)"):
        hotset.accelerate(loader("dense, batched"), cache=tmp_path / "cache", fill=fill)
    assert (tmp_path / "cache").read_text() == "mine"


@contextmanager
def without_rights() -> Iterator[None]:
    """As a user who may write nowhere, where this one may write anywhere."""
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if is_root:
            os.seteuid(0)


@pytest.mark.parametrize("fill", ["eager", "lazy"])
def test_a_folder_that_may_not_be_written_to_is_named(fill: Any, tmp_path: Path) -> None:
    """Before anything is read."""
    plain = loader("dense, batched")
    for path in (tmp_path, *tmp_path.parents[:2]):
        path.chmod(0o555)
    with without_rights(), pytest.raises(StorageError, match="Permission denied"):
        hotset.accelerate(plain, device="cpu", cache=tmp_path / "cache", fill=fill)
    tmp_path.chmod(0o755)
    assert list(tmp_path.iterdir()) == []


class Odd(Pictures):
    """Pictures of one size but for one, which no probe looks at."""

    odd = 5

    def __getitem__(self, index: int) -> Any:
        size = (9, 8) if index == self.odd else self.size
        image = streams.picture(index, size)
        return self.transform(image), index


@pytest.mark.parametrize("cache", [False, True])
def test_one_image_of_another_size_makes_all_run_per_sample(cache: bool, tmp_path: Path) -> None:
    """A crop makes it one of them, as in the plain loader; the plan says why it is per sample."""
    plain = DataLoader(Odd(23, v1.Compose([v1.RandomCrop(6), v1.ToTensor()])), 5)
    options: dict[str, Any] = {"cache": tmp_path} if cache else {}
    fast = hotset.accelerate(plain, device="cpu", check_every=1, **options)
    images = torch.cat([x for x, _ in fast])
    assert "runs per sample, since the samples differ in shape" in str(fast.plan)
    for index, image in enumerate(images):
        size = (9, 8) if index == Odd.odd else (8, 8)
        windows = v1.functional.to_tensor(streams.picture(index, size)).unfold(1, 6, 1)
        windows = windows.unfold(2, 6, 1).permute(1, 2, 0, 3, 4).flatten(0, 1)
        assert any(torch.equal(image, window) for window in windows), index


@pytest.mark.parametrize("cache", [False, True])
def test_one_image_of_another_size_that_nothing_makes_alike_is_named(
    cache: bool, tmp_path: Path
) -> None:
    """Before the first batch, with its index and both shapes."""
    plain = DataLoader(Odd(23, v1.ToTensor()), 5)
    options: dict[str, Any] = {"cache": tmp_path} if cache else {}
    match = r"index 0 but a PIL image RGB 8x9 at index 5; they cannot stand in one batch"
    with pytest.raises(SchemaError, match=match):
        hotset.accelerate(plain, device="cpu", **options)


class OddLabel(Ragged):
    """Images of differing sizes, and one label of another length."""

    def __getitem__(self, index: int) -> Any:
        return self.transform(self.image(index)), torch.zeros(3 if index == 5 else 2)


@pytest.mark.parametrize("cache", [False, True])
def test_a_label_of_another_shape_is_named(cache: bool, tmp_path: Path) -> None:
    """Though the images beside it may differ."""
    plain = DataLoader(OddLabel(23, RESIZED), 5)
    options: dict[str, Any] = {"cache": tmp_path} if cache else {}
    match = r"sample\[1\] is a tensor \(2,\) float32 at index 0 but a tensor \(3,\) .* index 5"
    with pytest.raises(SchemaError, match=match):
        hotset.accelerate(plain, device="cpu", **options)


class Retrying(Pictures):
    """Gives another sample, drawn at random, in place of one that no probe looks at."""

    def __getitem__(self, index: int) -> Any:
        if index == 5:
            return super().__getitem__(int(torch.randint(23, ())))
        return super().__getitem__(index)


def test_rare_draws_are_seen_while_a_store_is_built(tmp_path: Path) -> None:
    """Nothing of it is kept then, in words; batches are the plain loader's but for that sample."""
    plain = DataLoader(Retrying(23, PLAIN), 23)
    fast = hotset.accelerate(plain, device="cpu", cache=tmp_path)
    assert fast.plan.tier == "source"
    assert "a random generator moved while its samples were read" in str(fast.plan)
    (found,), (wanted,) = list(fast), list(plain)
    keep = torch.arange(23) != 5
    assert_same(found[0][keep], wanted[0][keep])
    assert stores_in(tmp_path) == []


class Drawing(Pictures):
    """Draws for every sample."""

    def __getitem__(self, index: int) -> Any:
        image, label = super().__getitem__(index)
        return image + torch.rand(()), label


@pytest.mark.parametrize("fill", ["eager", "lazy"])
def test_a_dataset_that_draws_is_left_alone(fill: Any, tmp_path: Path) -> None:
    """The plan says so; the folder is not made."""
    plain = DataLoader(Drawing(23, PLAIN), 5)
    fast = hotset.accelerate(plain, device="cpu", cache=tmp_path / "cache", fill=fill)
    assert fast.plan.tier == "source"
    assert "left as it is: nothing of it could be kept" in fast.plan.notes
    assert not (tmp_path / "cache").exists()


def test_what_runs_once_runs_once(tmp_path: Path) -> None:
    """A resize to one short side leaves images of differing sizes; the rest runs per sample."""
    calls: list[int] = []

    class Counting(v1.Resize):
        def forward(self, image: Image.Image) -> Any:
            calls.append(1)
            return super().forward(image)

    def plain() -> DataLoader[Any]:
        chain = v1.Compose([Counting(12), v1.RandomCrop(9), v1.ToTensor()])
        return DataLoader(Ragged(23, chain), 5)

    counts = []
    for options in ({}, {"cache": tmp_path, "version": "1"}, {"cache": tmp_path, "version": "1"}):
        calls.clear()
        fast = hotset.accelerate(plain(), device="cpu", check_every=0, **options)
        counts.append(len(calls))
        images: Tensor = torch.cat([x for _ in range(3) for x, _ in fast])
        assert images.shape == (69, 3, 9, 9)
        assert len(calls) == counts[-1]
        assert [d.action for d in fast.plan.decisions] == ["once", "once", "worker", "worker"]
    assert counts[0] - 23 == counts[1] - 25 == counts[2] - 2
