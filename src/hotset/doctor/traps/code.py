"""Code to write in place of somebody's own: it takes `loader` or `dataset` as they are there."""

from __future__ import annotations

from typing import Any

from torch.utils.data import (
    DataLoader,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    default_collate,
)

IMPORT = "from torch.utils.data import DataLoader"
PACKED = '''import pickle

import numpy as np


class Packed:
    """Rows as bytes, end to end."""

    def __init__(self, rows):
        parts = [pickle.dumps(row) for row in rows]
        self.ends = np.cumsum([0, *map(len, parts)])
        self.data = np.frombuffer(b"".join(parts), np.uint8)

    def __len__(self):
        return len(self.ends) - 1

    def __getitem__(self, index):
        index = range(len(self))[index]
        return pickle.loads(self.data[self.ends[index] : self.ends[index + 1]])


'''
"""A class that keeps any rows in two arrays."""


def accelerated(device: str = "") -> str:
    """The loader, as hotset makes it faster.

    Args:
        device: that batches are to come out on; empty for where they come out now.
    """
    more = f', device="{device}"' if device else ""
    return f"import hotset\n\nloader = hotset.accelerate(loader{more})"


def remade(loader: DataLoader[Any], **changed: Any) -> str:
    """The same loader with some settings changed.

    Args:
        loader: the user's own.
        changed: settings and their values; None leaves one out.
    """
    return f"{IMPORT}\n\n{_call(loader, changed)}"


def _call(loader: DataLoader[Any], changed: dict[str, Any]) -> str:
    settings = {**_settings(loader), **{name: repr(value) for name, value in changed.items()}}
    if settings.get("num_workers") == "0":
        for name in ("prefetch_factor", "persistent_workers", "multiprocessing_context", "timeout"):
            settings.pop(name, None)
    given = [f"{name}={value}" for name, value in settings.items() if value != "None"]
    # A batch_size of None says something else than none at all.
    if loader.batch_sampler is None:
        given.insert(0, "batch_size=None")
    return f"loader = DataLoader(\n    loader.dataset,\n    {_listed(given)}\n)"


def _listed(given: list[str]) -> str:
    return "\n    ".join(f"{each}," for each in given)


def _settings(loader: DataLoader[Any]) -> dict[str, str]:
    """What is not as it is where nothing is said, as Python would write it."""
    found: dict[str, str] = {}
    if loader.batch_sampler is not None and loader.batch_size is None:
        found["batch_sampler"] = "loader.batch_sampler"
    else:
        if loader.batch_size is not None:
            found["batch_size"] = repr(loader.batch_size)
        found |= _order(loader)
        found |= {"drop_last": "True"} if loader.drop_last else {}
    if loader.num_workers:
        found["num_workers"] = repr(loader.num_workers)
        for name, usual in (("prefetch_factor", 2), ("persistent_workers", False), ("timeout", 0)):
            if getattr(loader, name) != usual:
                found[name] = repr(getattr(loader, name))
    if not loader.in_order:
        found["in_order"] = "False"
    if loader.pin_memory:
        found["pin_memory"] = "True"
    for name in ("worker_init_fn", "multiprocessing_context", "generator"):
        if getattr(loader, name) is not None:
            found[name] = f"loader.{name}"
    if loader.collate_fn is not default_collate and loader.batch_sampler is not None:
        found["collate_fn"] = "loader.collate_fn"
    return found


def _order(loader: DataLoader[Any]) -> dict[str, str]:
    sampler: Any = loader.sampler
    if type(sampler) is SequentialSampler or isinstance(loader.dataset, IterableDataset):
        return {}
    is_whole = type(sampler) is RandomSampler and not sampler.replacement
    if is_whole and sampler._num_samples is None and sampler.generator is loader.generator:
        return {"shuffle": "True"}
    return {"sampler": "loader.sampler"}


def seeded(loader: DataLoader[Any], kind: str, path: str) -> str:
    """The same loader, with a generator that its dataset holds seeded in each worker.

    Args:
        loader: the user's own.
        kind: the generator's class: "numpy.random.Generator", "numpy.random.RandomState",
            "random.Random" or "torch.Generator".
        path: how it is reached from the dataset, or "module:name".
    """
    home, _, word = path.rpartition(":")
    where = f"sys.modules[{home!r}].{word}" if home else f"info.dataset{path}"
    act = {
        "random.Random": f"{where}.seed(info.seed)",
        "torch.Generator": f"{where}.manual_seed(info.seed)",
        "numpy.random.RandomState": f"{where}.seed(info.seed % 2**32)",
        "numpy.random.Generator": f"bits = {where}.bit_generator\n"
        "    bits.state = type(bits)(info.seed).state",
    }[kind]
    first = "import sys\n\n" if home else ""
    own = "" if loader.worker_init_fn is None else "    begin(worker)\n"
    kept = "begin = loader.worker_init_fn\n\n\n" if own else "\n"
    settings = {"worker_init_fn": _Name("seeded")}
    return (
        f"{first}{IMPORT}, get_worker_info\n\n{kept}def seeded(worker):\n{own}"
        f"    info = get_worker_info()\n    {act}\n\n\n{_call(loader, settings)}"
    )


class _Name:
    """Is written as it is, and not as a string."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return self._name


def packed(path: str, *, is_numbers: bool) -> str:
    """A list of the dataset's as arrays.

    Args:
        path: how it is reached from the dataset.
        is_numbers: whether there are numbers in it, and nothing else.
    """
    if is_numbers:
        return f"import numpy as np\n\ndataset{path} = np.array(dataset{path})"
    return f"{PACKED}dataset{path} = Packed(dataset{path})"
