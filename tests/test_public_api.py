"""What is exported: pinned names, each with a docstring and, where it makes sense, an example."""

from __future__ import annotations

import doctest
import importlib
import inspect
import pkgutil
from typing import Any

import pytest

import hotset

EXPORTED = [
    "AlternatingFlip",
    "Budget",
    "CachedDataset",
    "Cutout",
    "Loader",
    "Padded",
    "Plan",
    "Report",
    "Store",
    "__version__",
    "accelerate",
    "build",
    "datasets",
    "deterministic",
    "diagnose",
    "errors",
    "open",
    "plan",
    "random",
    "testing",
    "watch",
]
DATASETS = ["CIFAR10", "CIFAR100", "FashionMNIST", "ImageFolder", "MNIST"]
ERRORS = [
    "ConfigError",
    "DeviceError",
    "DeviceMemoryError",
    "DownloadError",
    "FaithfulnessError",
    "FormatError",
    "HotsetError",
    "KeyingError",
    "MissingDataError",
    "MissingExtraError",
    "OrientationWarning",
    "PrecisionError",
    "SampleError",
    "SchemaError",
    "StaleStoreWarning",
    "StateError",
    "StorageError",
    "UnsupportedError",
]
WITHOUT_EXAMPLE = {"Plan", "__version__", "datasets", "errors", "testing"}
"""A plan comes from a loader; the others are not called."""

SIGNATURES = {
    "accelerate": "loader, device, dtype, channels_last, budget, check_every, progress, "
    "cache, fill, version, tier, reserve, policy, prefetch_batches, prefetch_bytes, storage_dtype",
    "build": "data, path, transform, workers, on_error, version, source, progress, storage_options",
    "diagnose": "loader, step, steps, device, seconds, progress",
    "watch": "loader",
    "plan": "data, device, budget, reserve, tier, cache, policy, step, workers, batch_size, "
    "samples, storage_dtype, ragged, transform",
    "open": "path, verify, local, budget, storage_options",
    "Loader": "source, batch_size, shuffle, transform, device, dtype, seed, drop_last, shard, "
    "num_workers, channels_last, budget, check_every, progress, tier, reserve, policy, "
    "prefetch_batches, prefetch_bytes, storage_dtype, ragged",
    "CachedDataset": "data, pre_transform, transform, device, dtype, num_workers, progress",
}

LOADER_MEMBERS = [
    "batch_sampler",
    "batch_size",
    "dataset",
    "drop_last",
    "load_state_dict",
    "num_workers",
    "plan",
    "sampler",
    "set_epoch",
    "state_dict",
    "stats",
]


def test_exported_names_are_pinned() -> None:
    """A name added or lost is a decision."""
    assert sorted(hotset.__all__) == sorted(EXPORTED)
    assert dir(hotset) == hotset.__all__
    for name in EXPORTED:
        assert getattr(hotset, name) is not None


def test_names_of_the_parts_are_pinned() -> None:
    """Datasets and errors."""
    public = [n for n in vars(hotset.datasets) if n[0] != "_" and n[0].isupper()]
    assert sorted(public) == DATASETS
    found = [n for n, kind in vars(hotset.errors).items() if isinstance(kind, type)]
    assert sorted(found) == ERRORS


@pytest.mark.parametrize("name", SIGNATURES)
def test_parameters_are_pinned(name: str) -> None:
    """Names and order; those behind the second are for keywords only, with two exceptions."""
    parameters = list(inspect.signature(getattr(hotset, name)).parameters.values())
    assert ", ".join(p.name for p in parameters) == SIGNATURES[name]
    positional = {"build": 3, "diagnose": 3, "plan": 1}.get(name, 2)
    assert all(p.kind is p.KEYWORD_ONLY for p in parameters[positional:])


def test_members_of_a_loader_are_pinned() -> None:
    """What training code may use."""
    loader = hotset.Loader([__import__("torch").zeros(2)], device="cpu")
    assert sorted(name for name in dir(loader) if not name.startswith("_")) == LOADER_MEMBERS


@pytest.mark.parametrize("name", sorted(set(EXPORTED) - {"__version__"}))
def test_every_exported_name_is_described(name: str) -> None:
    """With an example that runs, where there is something to call."""
    text = inspect.getdoc(getattr(hotset, name))
    assert text
    assert text.splitlines()[0].endswith((".", ":"))
    assert ("Example:" in text and ">>>" in text) or name in WITHOUT_EXAMPLE


@pytest.mark.parametrize("name", DATASETS)
def test_every_dataset_is_described(name: str) -> None:
    """What it reads, and what it raises."""
    text = inspect.getdoc(getattr(hotset.datasets, name)) or ""
    assert "Source:" in text or "Raises:" in text


def test_unknown_names_are_refused() -> None:
    """As any module refuses them."""
    with pytest.raises(AttributeError, match="module 'hotset' has no attribute 'speedup'"):
        _ = hotset.speedup


def modules() -> list[str]:
    """Every module of the package that can be imported here."""
    names = [m.name for m in pkgutil.walk_packages(hotset.__path__, "hotset.")]
    return ["hotset", *(name for name in names if not name.endswith(("triton_cuda", "__main__")))]


@pytest.mark.parametrize("name", modules())
def test_examples_in_docstrings_run(name: str) -> None:
    """Every doctest of every module."""
    module: Any = importlib.import_module(name)
    failed, _ = doctest.testmod(module, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert failed == 0
