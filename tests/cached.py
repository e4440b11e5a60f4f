"""What the tests of caches share: datasets whose every read is noted, and runs in a new process."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms as v1

import hotset
from hotset.store.store import Store
from tests.streams import Pictures, picture

LOG = "HOTSET_TEST_LOG"
"""The file that reads are noted in: no state of the dataset's, whose files count for its key."""

RESIZED = v1.Compose([v1.RandomResizedCrop(8), v1.RandomHorizontalFlip(), v1.ToTensor()])
CROPPED = v1.Compose([v1.RandomCrop(8, padding=2), v1.RandomHorizontalFlip(), v1.ToTensor()])
PLAIN = v1.Compose([v1.Resize((6, 7)), v1.ToTensor(), v1.Normalize(0.5, 0.25)])
JITTERED = v1.Compose([v1.Resize((6, 6)), v1.ColorJitter(0.4, 0.4), v1.ToTensor()])


def size_of(index: int) -> tuple[int, int]:
    """(height, width) of a ragged picture."""
    return 9 + index % 5, 8 + index % 7


def note(index: int) -> None:
    """Notes that a sample is read, in whatever process."""
    path = os.environ.get(LOG)
    if path is not None:
        with open(path, "ab") as file:
            file.write(index.to_bytes(4, "little"))


class Reads:
    """What is read from now on.

    Args:
        folder: for the file that reads are noted in.
        monkeypatch: makes processes note there.
    """

    def __init__(self, folder: Path, monkeypatch: Any) -> None:
        self._log, self._seen = folder / "reads", 0
        self._log.touch()
        monkeypatch.setenv(LOG, str(self._log))

    def take(self) -> list[int]:
        """The samples read since this was asked for the last time, in order."""
        content = self._log.read_bytes()
        new, self._seen = content[self._seen :], len(content)
        return np.frombuffer(new, "<u4").tolist()


class Noted(Pictures):
    """Pictures of one size, whose every read is noted."""

    def __getitem__(self, index: int) -> Any:
        note(int(index))
        return super().__getitem__(index)


class Ragged(Dataset[Any]):
    """Pictures of differing sizes with a label, whose every read is noted."""

    def __init__(self, length: int, transform: Any = None, mode: str = "RGB") -> None:
        self.length, self.transform, self.mode = length, transform, mode

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        note(int(index))
        image = self.image(index)
        return image if self.transform is None else self.transform(image), index % 3

    def image(self, index: int) -> Any:
        """The picture itself."""
        return picture(index, size_of(index), self.mode)


class Texts(Dataset[Any]):
    """Words of differing length with a label."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        note(int(index))
        return "word " * (index % 4), torch.arange(index % 5), index


def padded(samples: list[Any]) -> dict[str, Any]:
    """A collate_fn of the user's own."""
    texts, numbers, labels = zip(*samples, strict=True)
    rows = torch.nn.utils.rnn.pad_sequence(list(numbers), batch_first=True, padding_value=-1)
    return {"text": list(texts), "rows": rows, "label": torch.tensor(labels)}


def listed(samples: list[Any]) -> Any:
    """A collate_fn that keeps images of differing sizes apart."""
    return [image for image, _ in samples], torch.tensor([label for _, label in samples])


DATASETS: dict[str, Callable[[], Dataset[Any]]] = {
    "cropped": lambda: Noted(41, CROPPED),
    "resized": lambda: Ragged(41, RESIZED),
}


def loader_of(name: str, **settings: Any) -> DataLoader[Any]:
    """A shuffled plain loader over one of `DATASETS`."""
    return DataLoader(DATASETS[name](), **{"batch_size": 4, "shuffle": True, **settings})


def digest_of(batch: Any) -> str:
    """A few digits over every bit of a batch of tensors."""
    digest = hashlib.sha256()
    for leaf in batch:
        digest.update(np.ascontiguousarray(leaf.numpy()).tobytes())
    return digest.hexdigest()[:16]


def digests(batches: Iterable[Any]) -> list[str]:
    """One per batch."""
    return [digest_of(batch) for batch in batches]


def store_of(loader: hotset.Loader) -> Store:
    """The store that a loader's plan names."""
    notes = [text for text in loader.plan.notes if text.startswith("store: ")]
    return Store(notes[0].removeprefix("store: "))


def stores_in(folder: Path) -> list[Path]:
    """Every store that is whole."""
    return sorted(path.parent for path in folder.glob("*/manifest.json"))


def partials_in(folder: Path) -> list[Path]:
    """Every store that is not."""
    return sorted(path for path in folder.iterdir() if ".partial" in path.name)


def picture_of(path: Path) -> dict[str, tuple[int, bytes]]:
    """When each file of a store was written last, and its bytes."""
    return {p.name: (p.stat().st_mtime_ns, p.read_bytes()) for p in sorted(path.iterdir())}


def script(text: str) -> list[str]:
    """The command that runs a text in a new process, with this module's names."""
    return [sys.executable, "-W", "error", "-c", f"from tests.cached import *\n{text}"]


def in_process(text: str) -> Any:
    """What a text in a new process prints, as JSON."""
    done = subprocess.run(script(text), capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def killed(text: str, after: int) -> None:
    """Runs a text in a new process, and kills it when it has printed so many lines."""
    process = subprocess.Popen(script(text), stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    for _ in range(after):
        assert process.stdout.readline(), "it ended before"
    process.kill()
    process.stdout.read()  # until its workers, which have the pipe as well, have ended
    process.wait()
    process.stdout.close()


def images_of(batches: Iterable[Any]) -> dict[int, Tensor]:
    """Images by label, where labels are indices."""
    return {int(y): x for images, labels in batches for x, y in zip(images, labels, strict=True)}
