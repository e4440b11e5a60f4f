"""What the tests of the store share: datasets, exact comparison, a store of every kind of leaf."""

from __future__ import annotations

import os
from collections import Counter, OrderedDict, namedtuple
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset

import hotset
from hotset.store.store import Store

Pair = namedtuple("Pair", ["left", "right"])


class Given(Dataset[Any]):
    """Samples that are given one by one."""

    def __init__(self, samples: Sequence[Any]) -> None:
        self.given = list(samples)

    def __len__(self) -> int:
        return len(self.given)

    def __getitem__(self, index: int) -> Any:
        return self.given[index]


class Made(Dataset[Any]):
    """Samples that a function makes of their index; `counted` tells which were read."""

    def __init__(self, make: Callable[[int], Any], length: int) -> None:
        self.make, self.length = make, length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        note(index)
        return self.make(index)


READS = "HOTSET_TEST_READS"


def note(index: int) -> None:
    """Notes that a sample is read, in a file that all processes know, if there is one.

    Its name is no part of a dataset: what a dataset is made of tells stores apart.
    """
    if READS in os.environ:
        with open(os.environ[READS], "ab") as file:
            file.write(index.to_bytes(4, "little"))


@contextmanager
def counted(folder: Path) -> Iterator[Counter[int]]:
    """Counts how often each sample is read meanwhile; known at the end."""
    log, reads = folder / "reads", Counter[int]()
    log.write_bytes(b"")
    os.environ[READS] = str(log)
    try:
        yield reads
    finally:
        del os.environ[READS]
        reads.update(np.frombuffer(log.read_bytes(), "<u4").tolist())
        log.unlink()


def stored(samples: Sequence[Any], path: Path, **options: Any) -> Store:
    """A store of some samples."""
    return hotset.build(Given(samples), path, **{"version": "1", "workers": 0, **options})


def picture(index: int, size: tuple[int, int], mode: str = "RGB") -> Image.Image:
    """A PIL image that an index tells."""
    bands = len(Image.new(mode, (1, 1)).getbands())
    itemsize = {"I": 4, "F": 4, "I;16": 2}.get(mode, bands)
    pixels = np.random.default_rng(index).integers(0, 256, size[0] * size[1] * itemsize, np.uint8)
    return Image.frombytes(mode, size, pixels.tobytes())


def mixed_sample(index: int) -> Any:
    """A leaf of every kind, dense and ragged."""
    return {
        "image": picture(index, (5 + index % 3, 4)),
        "same": picture(index, (3, 2), "L"),
        "numbers": (index, index / 3, index % 2 == 0, np.float32(index), np.uint64(index)),
        "text": ["x" * (index % 5), bytes([index % 256]) * (index % 4)],
        "tensors": Pair(
            torch.arange(index % 4).to(torch.bfloat16), torch.full((2, 3), index, dtype=torch.int16)
        ),
        "arrays": OrderedDict(
            b=np.arange(index % 3 * 2.0).reshape(2, -1), a=np.full((2, 2), index, np.int32)
        ),
        "empty": torch.zeros(0, 4),
    }


def assert_identical(found: Any, expected: Any) -> None:
    """Fails unless two samples agree in every type, shape, dtype, order and bit."""
    if isinstance(expected, Image.Image):
        assert isinstance(found, Image.Image)
        assert (found.mode, found.size) == (expected.mode, expected.size)
        assert found.tobytes() == expected.tobytes()
        return
    if not hasattr(expected, "_fields"):
        assert type(found) is type(expected)
    if isinstance(expected, Tensor):
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
        assert bits(found) == bits(expected)
    elif isinstance(expected, (np.ndarray, np.generic)):
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
        assert found.tobytes() == expected.tobytes()
    elif isinstance(expected, dict):
        assert list(found) == list(expected)
        for key in expected:
            assert_identical(found[key], expected[key])
    elif isinstance(expected, (list, tuple)):
        assert getattr(found, "_fields", ()) == getattr(expected, "_fields", ())
        assert type(found).__name__ == type(expected).__name__
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_identical(one, other)
    elif isinstance(expected, float):
        assert found.hex() == expected.hex()
    else:
        assert found == expected


def bits(tensor: Tensor) -> bytes:
    """A tensor's values as bytes, in the order of its axes."""
    flat = torch.empty(tensor.numel(), dtype=tensor.dtype)
    flat.copy_(tensor.as_subclass(Tensor).flatten())
    return flat.view(torch.uint8).numpy().tobytes()


def assert_holds(store: Store, samples: Sequence[Any]) -> None:
    """Fails unless a store has just these samples, and none of it is damaged."""
    assert len(store) == len(samples)
    for index, sample in enumerate(samples):
        assert_identical(store[index], sample)
    assert store.damaged() == []


def flip(path: Path, position: int, bit: int = 0) -> None:
    """Turns one bit of a file."""
    content = bytearray(path.read_bytes())
    content[position] ^= 1 << bit
    path.write_bytes(bytes(content))
