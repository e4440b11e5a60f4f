"""`hotset.datasets.ImageFolder`: torchvision's, on this machine and in object storage."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
import torch
import torchvision
from PIL import Image
from torch.utils.data import DataLoader
from torchvision.transforms import v2

import hotset
from hotset.errors import ConfigError, MissingDataError, SampleError, StaleStoreWarning
from hotset.keys.source import source_identity
from tests.buckets import Bucket, bucket, cache, object_server

__all__ = ["bucket", "cache", "object_server"]

FILES = {
    "zebra/b.png": ("RGB", 5),
    "zebra/a.PNG": ("L", 4),
    "zebra/deep/er/c.bmp": ("RGB", 6),
    "zebra/deep-er/c.bmp": ("RGB", 6),
    "zebra/deep.bmp": ("RGB", 3),
    "Ant/10.png": ("RGBA", 7),
    "Ant/9.png": ("P", 5),
    "Ant/.hidden.png": ("LA", 5),
    "ant eater/ä ö+%.webp": ("RGB", 8),
    "ant eater/x.tiff": ("1", 8),
}
"""Files of a tree; mode and width."""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A tree with images of all kinds, and files that are none."""
    root = tmp_path / "tree"
    generator = np.random.default_rng(0)
    for name, (mode, width) in FILES.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = generator.integers(0, 256, (4, width, 3), dtype=np.uint8)
        options = {"lossless": True} if name.endswith("webp") else {}
        Image.fromarray(pixels).convert(mode).save(path, **options)
    for name in ("notes.txt", "Ant/notes.txt", "zebra/image.png.bak"):
        (root / name).write_text("no image")
    return root


def uploaded(tree: Path, bucket: Bucket) -> str:
    """The tree in a bucket."""
    bucket.fs.put(f"{tree}/", f"{bucket.name}/tree/", recursive=True)
    return bucket.url("tree")


def assert_equal(found: Any, expected: Any) -> None:
    """Whether two datasets give the same, in the same order."""
    assert len(found) == len(expected)
    assert found.classes == expected.classes
    assert found.class_to_idx == expected.class_to_idx
    assert found.targets == expected.targets
    for (image, target), (wanted, number) in zip(found, expected, strict=True):
        assert (image.mode, image.size, target) == (wanted.mode, wanted.size, number)
        assert image.tobytes() == wanted.tobytes()


def test_tree_on_this_machine_is_torchvisions(tree: Path) -> None:
    """Paths too."""
    expected = torchvision.datasets.ImageFolder(tree)
    for root in (tree, str(tree), f"file://{tree}"):
        found = hotset.datasets.ImageFolder(root)
        assert_equal(found, expected)
        assert found.samples == expected.samples


def test_tree_in_a_bucket_is_torchvisions(tree: Path, bucket: Bucket) -> None:
    """Paths are URLs; the marks that consoles put where a folder is do not matter."""
    url = uploaded(tree, bucket)
    bucket.put("tree/Ant/", b"")
    found = hotset.datasets.ImageFolder(f"{url}/", storage_options=bucket.options)
    expected = torchvision.datasets.ImageFolder(tree)
    assert_equal(found, expected)
    assert found.samples == [
        (path.replace(str(tree), url), target) for path, target in expected.samples
    ]
    assert repr(found) == f"ImageFolder('{url}', 10 images, 3 classes)"


def test_transforms_are_applied(tree: Path, bucket: Bucket) -> None:
    """To the image, and to the number of its class."""
    found = hotset.datasets.ImageFolder(
        uploaded(tree, bucket),
        v2.PILToTensor(),
        target_transform=lambda number: number + 10,
        storage_options=bucket.options,
    )
    expected = torchvision.datasets.ImageFolder(tree, v2.PILToTensor())
    assert torch.equal(found[9][0], expected[9][0])
    assert found[9][1] == 12


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_workers_read_the_bucket(start: str, tree: Path, bucket: Bucket) -> None:
    """Exactly what torchvision gives of the tree; the parent has used the connection before."""
    transform = v2.Compose([v2.Resize((4, 4)), v2.PILToTensor()])
    found = hotset.datasets.ImageFolder(
        uploaded(tree, bucket), transform, storage_options=bucket.options
    )
    assert found[0][1] == 0
    expected = torchvision.datasets.ImageFolder(tree, transform)
    batches = [
        list(DataLoader(data, batch_size=3, num_workers=workers, multiprocessing_context=context))
        for data, workers, context in ((found, 2, start), (expected, 0, None))
    ]
    assert len(batches[0]) == 4
    for (images, targets), (wanted, numbers) in zip(*batches, strict=True):
        assert torch.equal(images, wanted)
        assert torch.equal(targets, numbers)
    assert found[9][1] == 2  # the parent's connection still works


def test_pickles_hold_no_connection(tree: Path, bucket: Bucket) -> None:
    """The copy opens its own."""
    found = hotset.datasets.ImageFolder(uploaded(tree, bucket), storage_options=bucket.options)
    assert_equal(pickle.loads(pickle.dumps(found)), found)


def test_store_is_built_from_a_bucket(tree: Path, bucket: Bucket, cache: Path) -> None:
    """From bucket to bucket; and once more from the store alone."""
    data = hotset.datasets.ImageFolder(uploaded(tree, bucket), storage_options=bucket.options)
    url = bucket.url("tree.hotset")
    store = hotset.build(data, url, workers=2, storage_options=bucket.options)
    for found, expected in zip(store, torchvision.datasets.ImageFolder(tree), strict=True):
        assert found[0].tobytes() == expected[0].tobytes()
        assert found[1] == expected[1]
    bucket.asked("GET")
    hotset.build(data, url, storage_options=bucket.options)
    assert {name for name, _ in bucket.asked("GET")} < {
        "tree.hotset/manifest.json",
        *(f"tree/{name}" for name in FILES),
    }


def rewrite(bucket: Bucket) -> None:
    """The same size, another content."""
    content = bucket.fs.cat_file(f"{bucket.name}/tree/zebra/deep.bmp")
    bucket.put("tree/zebra/deep.bmp", content[:-1] + bytes([content[-1] ^ 255]))


def append(bucket: Bucket) -> None:
    """A byte more."""
    content = bucket.fs.cat_file(f"{bucket.name}/tree/zebra/deep.bmp")
    bucket.put("tree/zebra/deep.bmp", content + b"\0")


def rename(bucket: Bucket) -> None:
    """Another name, in the same place of the order."""
    path = f"{bucket.name}/tree/zebra/deep.bmp"
    bucket.fs.mv(path, path.replace("deep.bmp", "deep0.bmp"))


@pytest.mark.parametrize("change", [rewrite, append, rename])
def test_changed_files_make_a_store_stale(
    change: Callable[[Bucket], None], tree: Path, bucket: Bucket, tmp_path: Path
) -> None:
    """By their size, ETag and name; without being read, and whatever the keys are."""
    url, path = uploaded(tree, bucket), tmp_path / "tree.hotset"
    data = hotset.datasets.ImageFolder(url, storage_options=bucket.options)
    hotset.build(data, path)
    more = {**bucket.options, "default_block_size": 1 << 20}
    same = hotset.datasets.ImageFolder(url, storage_options=more)
    assert hotset.build(same, path).path == path
    change(bucket)
    other = hotset.datasets.ImageFolder(url, storage_options=bucket.options)
    with pytest.warns(StaleStoreWarning, match=r"the code or state of source|source: was"):
        assert hotset.build(other, path).path != path


def test_identity_counts_files_and_no_keys(tree: Path, bucket: Bucket) -> None:
    """In words: how many files, and how large they are."""
    url = uploaded(tree, bucket)
    size = sum((tree / name).stat().st_size for name in FILES)
    parts = {
        source_identity(
            hotset.datasets.ImageFolder(url, storage_options={**bucket.options, **more}),
            everything=everything,
        )
        for more in ({}, {"default_block_size": 1 << 20})
        for everything in (False, True)
    }
    assert len(parts) == 1
    assert parts.pop().text == f"ImageFolder: 10 files, {size:,} bytes"


def test_tree_on_this_machine_counts_by_its_files(tree: Path) -> None:
    """As torchvision's does."""
    before = source_identity(hotset.datasets.ImageFolder(tree))
    assert source_identity(hotset.datasets.ImageFolder(tree)) == before
    os.utime(tree / "zebra/b.png", ns=(1, 1))
    assert source_identity(hotset.datasets.ImageFolder(tree)).digest != before.digest


def test_accelerated_batches_are_the_same(tree: Path, bucket: Bucket) -> None:
    """The data is read once, from the bucket."""
    transform = v2.Compose([v2.Resize((4, 4)), v2.PILToTensor()])
    data = hotset.datasets.ImageFolder(
        uploaded(tree, bucket), transform, storage_options=bucket.options
    )
    fast = hotset.accelerate(DataLoader(data, batch_size=5), device="cpu")
    plain = DataLoader(torchvision.datasets.ImageFolder(tree, transform), batch_size=5)
    for (images, targets), (wanted, numbers) in zip(fast, plain, strict=True):
        assert torch.equal(images, wanted)
        assert torch.equal(targets, numbers)


def test_what_is_not_there_is_said_in_a_sentence(tree: Path, bucket: Bucket) -> None:
    """No tree, no class, no image in a class; on this machine and elsewhere."""
    url = uploaded(tree, bucket)
    bucket.put("empty/none/notes.txt", b"no image")
    (tree / "none").mkdir()
    words = r"there is no image in .* for the classes none; images end in \.jpg, "
    for root, more in ((tree, {}), (bucket.url("empty"), {"storage_options": bucket.options})):
        with pytest.raises(MissingDataError, match=words):
            hotset.datasets.ImageFolder(root, **more)
    with pytest.raises(MissingDataError, match=r"^there is no class folder in "):
        hotset.datasets.ImageFolder(tree / "none")
    with pytest.raises(MissingDataError, match=f"^there is no folder at {tree}/nowhere$"):
        hotset.datasets.ImageFolder(tree / "nowhere")
    with pytest.raises(MissingDataError, match=f"^there is nothing at {url}/nowhere$"):
        hotset.datasets.ImageFolder(f"{url}/nowhere", storage_options=bucket.options)
    with pytest.raises(ConfigError, match=r"`storage_options` is for a URL such as s3://"):
        hotset.datasets.ImageFolder(tree, storage_options={})


def test_file_that_is_gone_is_named(tree: Path, bucket: Bucket, tmp_path: Path) -> None:
    """By its URL; and by the index of the sample where a store is built."""
    url = uploaded(tree, bucket)
    data = hotset.datasets.ImageFolder(url, storage_options=bucket.options)
    bucket.fs.rm(f"{bucket.name}/tree/zebra/deep.bmp")
    index = [path for path, _ in data.samples].index(f"{url}/zebra/deep.bmp")
    with pytest.raises(MissingDataError, match=f"^there is nothing at {url}/zebra/deep.bmp$"):
        data[index]
    with pytest.raises(SampleError, match=rf"index {index}.*{url}/zebra/deep.bmp"):
        hotset.build(data, tmp_path / "a.hotset")


def test_tree_in_memory_is_torchvisions(tree: Path) -> None:
    """Any file system will do."""
    fs: Any = fsspec.filesystem("memory")
    fs.put(f"{tree}/", "/some/tree/", recursive=True)
    found = hotset.datasets.ImageFolder("memory://some/tree")
    assert_equal(found, torchvision.datasets.ImageFolder(tree))
    fs.rm("/some", recursive=True)
