"""A store as the source of loaders: its samples, its table, its rows, its checksums, its memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Subset, default_collate
from torchvision import transforms as v1
from torchvision.transforms import v2

import hotset
from hotset.errors import FormatError
from tests.cached import Ragged, in_process, loader_of, stores_in
from tests.stores import Given, assert_identical, flip
from tests.streams import MEAN, STD, Pictures, assert_same, stream

COUNT = 23
FLOATS = v1.Compose([v1.Resize((9, 8)), v1.ToTensor(), v1.Normalize(MEAN, STD)])
V2_FLOATS = v2.Compose(
    [
        v2.Resize((9, 8)),
        v2.ToImage(),
        v2.ToDtype(torch.float32, scale=True),
        v2.Normalize(MEAN, STD),
    ]
)
AUGMENT = v2.Compose([v2.RandomCrop(8, padding=2), v2.RandomHorizontalFlip()])
NOISY = v2.Compose([v2.RandomHorizontalFlip(), v2.GaussianNoise()])


def tabled(path: Path, chain: Any = FLOATS) -> tuple[hotset.Store, Dataset[Any]]:
    """A store that keeps bytes and a table, and the dataset that it is made of."""
    dataset = Pictures(COUNT, chain, size=(11, 10))
    return hotset.build(dataset, path / "floats.hotset", workers=0), dataset


def shuffled(folder: Path) -> tuple[hotset.Store, Dataset[Any]]:
    """Images of differing sizes, in a store in the order of a first epoch, and as they are."""
    list(hotset.accelerate(loader_of("resized"), device="cpu", cache=folder, fill="lazy"))
    (path,) = stores_in(folder)
    assert (path / "rows.npy").exists()
    return hotset.Store(path), Ragged(41)


def untabled(folder: Path) -> tuple[hotset.Store, Dataset[Any]]:
    """A store of tensors as they are, and the same."""
    dataset = Pictures(COUNT, v1.PILToTensor(), size=(9, 8))
    return hotset.build(dataset, folder / "bytes.hotset", workers=0), dataset


@pytest.mark.parametrize("chain", [FLOATS, V2_FLOATS], ids=["v1", "v2"])
def test_a_tabled_store_keeps_bytes_and_gives_floats(chain: Any, tmp_path: Path) -> None:
    """By index, through a loader in batches, and through one sample at a time: the same bits."""
    store, dataset = tabled(tmp_path, chain)
    values = np.load(store.path / store.fields[0].data_file, mmap_mode="r")
    assert values.dtype == np.uint8
    wanted = [dataset[index] for index in range(COUNT)]
    for index in range(COUNT):
        assert_identical(store[index], wanted[index])
    fast = hotset.Loader(store, 5, device="cpu", check_every=1)
    assert_same(list(fast), [default_collate(wanted[a : a + 5]) for a in range(0, COUNT, 5)])
    assert fast.plan.tier == "disk"
    assert fast.plan.bytes_held == values.nbytes + COUNT * 8  # labels are int64
    assert fast.plan.kernel.startswith("Numba")
    half = hotset.Loader(store, COUNT, device="cpu", dtype=torch.float16)
    assert_same(next(iter(half))[0], default_collate(wanted)[0].half())


LOADERS: dict[str, Callable[[Any], Any]] = {
    "Loader": lambda data: hotset.Loader(data, 5, device="cpu", check_every=1),
    "shuffled Loader": lambda data: hotset.Loader(data, 5, shuffle=True, seed=3, device="cpu"),
    "accelerate": lambda data: hotset.accelerate(
        DataLoader(data, 5, shuffle=True), device="cpu", check_every=1
    ),
    "accelerated Subset": lambda data: hotset.accelerate(
        DataLoader(Subset(data, [3, 1, 20, 1, 0]), 2), device="cpu", check_every=1
    ),
    "accelerated nested Subset": lambda data: hotset.accelerate(
        DataLoader(Subset(Subset(data, range(5, 20)), [3, -1, 0]), 2), device="cpu"
    ),
    "plain": lambda data: DataLoader(data, 5, shuffle=True),
    "plain Subset": lambda data: DataLoader(Subset(data, [3, 1, 20, 1, 0]), 2),
    "CachedDataset": lambda data: DataLoader(hotset.CachedDataset(data, device="cpu"), 5),
    "CachedDataset, workers": lambda data: DataLoader(
        hotset.CachedDataset(data, device="cpu"), 5, num_workers=1
    ),
    "Loader of a CachedDataset": lambda data: hotset.Loader(
        hotset.CachedDataset(data, device="cpu"), 5, device="cpu"
    ),
}


@pytest.mark.parametrize("way", LOADERS)
@pytest.mark.parametrize("make", [tabled, untabled])
def test_ways_to_batches_of_a_store(make: Any, way: str, tmp_path: Path) -> None:
    """Those of its samples in a list, over two epochs."""
    store, dataset = make(tmp_path)
    samples = Given([dataset[index] for index in range(COUNT)])
    found = stream(LOADERS[way](store), epochs=2, seed=1)
    wanted = stream(LOADERS[way](samples), epochs=2, seed=1)
    assert_same(found[0], wanted[0])
    assert torch.equal(found[1], wanted[1])


TENSORS = v2.Compose([v2.RandomResizedCrop(8), v2.RandomHorizontalFlip(), v2.PILToTensor()])
RAGGED_LOADERS: dict[str, Callable[[Any], Any]] = {
    "Loader": lambda data: hotset.Loader(
        data, 5, transform=TENSORS, shuffle=True, seed=3, device="cpu", check_every=1
    ),
    "Loader without a seed": lambda data: hotset.Loader(
        data, 5, transform=TENSORS, shuffle=True, device="cpu"
    ),
    "Loader of a Subset": lambda data: hotset.Loader(
        Subset(data, [3, 1, 20, 1, 0]), 2, transform=TENSORS, seed=3, device="cpu", check_every=1
    ),
    "CachedDataset": lambda data: DataLoader(
        hotset.CachedDataset(data, transform=TENSORS, device="cpu"), 5
    ),
    "Loader of a CachedDataset": lambda data: hotset.Loader(
        hotset.CachedDataset(data, transform=TENSORS, device="cpu"), 5, seed=3, device="cpu"
    ),
    "per sample": lambda data: hotset.Loader(
        data,
        5,
        transform=[v2.Resize((8, 8)), v2.ColorJitter(0.4), v2.PILToTensor()],
        seed=3,
        num_workers=2,
        device="cpu",
        check_every=1,
    ),
}


@pytest.mark.parametrize("way", RAGGED_LOADERS)
def test_ways_to_batches_of_a_store_with_rows(way: str, tmp_path: Path) -> None:
    """Of images of differing sizes, in the order of a shuffled first epoch."""
    store, dataset = shuffled(tmp_path)
    samples = Given([dataset[index] for index in range(41)])
    found = stream(RAGGED_LOADERS[way](store), epochs=2, seed=1)
    wanted = stream(RAGGED_LOADERS[way](samples), epochs=2, seed=1)
    assert_same(found[0], wanted[0])
    assert torch.equal(found[1], wanted[1])


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("augment", [AUGMENT, NOISY], ids=["batched", "per sample"])
def test_further_transforms_of_a_tabled_store(augment: Any, workers: int, tmp_path: Path) -> None:
    """Behind the table, drawn anew in every epoch, the same at any batch size."""
    store, dataset = tabled(tmp_path, V2_FLOATS)

    def fast(size: int) -> hotset.Loader:
        return hotset.Loader(
            store,
            size,
            shuffle=True,
            transform=augment,
            seed=2,
            num_workers=workers,
            device="cpu",
            check_every=1,
        )

    loaders = [fast(5), fast(7)]
    epochs = []
    for _ in range(2):
        images: list[dict[int, Tensor]] = [
            {int(y): x for xs, ys in loader for x, y in zip(xs, ys, strict=True)}
            for loader in loaders
        ]
        assert_same([images[0][n] for n in range(COUNT)], [images[1][n] for n in range(COUNT)])
        epochs.append(images[0])
    assert sum(torch.equal(epochs[0][n], epochs[1][n]) for n in range(COUNT)) < COUNT // 2
    actions = [d.action for d in loaders[0].plan.decisions]
    assert actions[-1] == ("batch" if augment is AUGMENT else "worker")
    if augment is AUGMENT:
        for index in range(COUNT):
            padded = torch.nn.functional.pad(dataset[index][0].as_subclass(Tensor), (2, 2, 2, 2))
            windows = padded.unfold(1, 8, 1).unfold(2, 8, 1).permute(1, 2, 0, 3, 4).flatten(0, 1)
            image = epochs[0][index]
            assert any(
                torch.equal(image, window) or torch.equal(image.flip(2), window)
                for window in windows
            )


def damaged(path: Path) -> hotset.Store:
    """A store of 100 tensors in 5 blocks, of which the one with samples 64 to 85 is damaged."""
    samples = [(torch.full((3, 64, 64), n, dtype=torch.uint8), n) for n in range(100)]
    store = hotset.build(Given(samples), path / "images.hotset", version="1", workers=0)
    flip(store.path / store.fields[0].data_file, 900_000)
    return hotset.Store(store.path)


@pytest.mark.parametrize(
    ("transform", "workers"),
    [(None, 0), (v2.RandomHorizontalFlip(), 0), (v2.GaussianBlur(3), 0), (v2.GaussianBlur(3), 2)],
    ids=["none", "batched", "per sample", "workers"],
)
def test_a_damaged_block_is_named_when_it_is_touched(
    transform: Any, workers: int, tmp_path: Path
) -> None:
    """By file, block and samples; what comes before it comes."""
    options: dict[str, Any] = {
        "transform": transform,
        "device": "cpu",
        "num_workers": workers,
        "check_every": 0,
    }
    store = damaged(tmp_path)
    fast = hotset.Loader(Subset(store, range(0, 63)), 9, **options)
    assert len(list(fast)) == 7
    fast = hotset.Loader(Subset(store, [*range(41), 70, *range(9)]), 9, **options)
    found: list[Any] = []  # of the samples that are looked at beforehand none lies in the block
    match = r"images\.hotset/.*\.npy is damaged: block 3 .*\(samples 64 to 85\)"
    with pytest.raises(FormatError, match=match):
        found.extend(fast)
    assert len(found) in (3, 4)  # batches may be made two at a time
    trusted = hotset.Loader(hotset.Store(store.path, verify="never"), 9, **options)
    assert sum(len(labels) for _, labels in trusted) == 100


def test_damage_that_is_looked_at_beforehand(tmp_path: Path) -> None:
    """Is told at once: the samples that decide what is done."""
    store = damaged(tmp_path)
    with pytest.raises(FormatError, match="block 3"):
        hotset.Loader(store, 9, transform=v2.RandomHorizontalFlip(), device="cpu")


MEMORY = """
import numpy as np, torch
from torchvision.transforms import v2
from tests.stores import Given

def anonymous(process="self"):
    text = open(f"/proc/{{process}}/status").read()
    return int(text.split("RssAnon:")[1].split()[0]) // 1024

class Made(Dataset):
    def __len__(self): return 4800
    def __getitem__(self, index):
        return torch.full((1, 256, 256), index % 251, dtype=torch.uint8), index

store = hotset.build(Made(), {path!r}, version="1", workers=0)
assert store.nbytes > 300_000_000
fast = hotset.Loader(
    hotset.Store({path!r}), 64, shuffle=True, transform={transform}, seed=0, num_workers={workers},
    device="cpu", check_every=0
)
warm = hotset.Loader(
    torch.zeros(8, 1, 64, 64, dtype=torch.uint8), 4, transform={transform}, seed=0, device="cpu"
)
list(warm)
before, most, in_workers, count = anonymous(), 0, 0, 0
for images, labels in fast:
    assert (images.flatten(1).amax(1) == labels % 251).all()
    count += len(labels)
    most = max(most, anonymous())
    for child in open(f"/proc/self/task/{{os.getpid()}}/children").read().split():
        in_workers = max(in_workers, anonymous(child))
print(json.dumps([count, most - before, in_workers and in_workers - before]))
"""


@pytest.mark.parametrize(
    ("transform", "workers"),
    [("None", 0), ("v2.RandomHorizontalFlip()", 0), ("[torch.clone, v2.RandomRotation(0)]", 2)],
    ids=["none", "batched", "workers"],
)
def test_an_epoch_takes_no_memory_but_for_its_batches(
    transform: str, workers: int, tmp_path: Path
) -> None:
    """Of a store of 300 MB, in the main process and in those of its workers."""
    text = MEMORY.format(path=str(tmp_path / "m.hotset"), transform=transform, workers=workers)
    count, main, in_workers = in_process(text)
    assert count == 4800
    assert main < 60
    assert in_workers < 60
