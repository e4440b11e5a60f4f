"""hotset: the same batches, only sooner.

`hotset.accelerate(loader, device="cuda")` keeps the data where training runs, does the
deterministic part of the transforms once, draws the random part per sample for whole batches, and
proves that the batches are the same.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from hotset import datasets as datasets
    from hotset import errors as errors
    from hotset import testing as testing
    from hotset.building.build import build as build
    from hotset.chain.marks import deterministic as deterministic
    from hotset.chain.marks import random as random
    from hotset.doctor.diagnosis import diagnose as diagnose
    from hotset.doctor.report import Report as Report
    from hotset.doctor.watch import watch as watch
    from hotset.loader.cached import CachedDataset as CachedDataset
    from hotset.loader.loader import Loader as Loader
    from hotset.loader.loader import accelerate as accelerate
    from hotset.placement.budget import Budget as Budget
    from hotset.placement.plan import Plan as Plan
    from hotset.planning.planner import plan as plan
    from hotset.sample.padding import Padded as Padded
    from hotset.store.opening import open as open
    from hotset.store.store import Store as Store
    from hotset.transforms import AlternatingFlip as AlternatingFlip
    from hotset.transforms import Cutout as Cutout

_HOMES = {
    "AlternatingFlip": "hotset.transforms",
    "Budget": "hotset.placement.budget",
    "CachedDataset": "hotset.loader.cached",
    "Cutout": "hotset.transforms",
    "Loader": "hotset.loader.loader",
    "Padded": "hotset.sample.padding",
    "Plan": "hotset.placement.plan",
    "Report": "hotset.doctor.report",
    "Store": "hotset.store.store",
    "accelerate": "hotset.loader.loader",
    "build": "hotset.building.build",
    "deterministic": "hotset.chain.marks",
    "diagnose": "hotset.doctor.diagnosis",
    "open": "hotset.store.opening",
    "plan": "hotset.planning.planner",
    "random": "hotset.chain.marks",
    "watch": "hotset.doctor.watch",
}
"""Where each exported name lives: imported when first used, so that `import hotset` is quick."""

_MODULES = ("datasets", "errors", "testing")

__all__ = sorted((*_HOMES, *_MODULES, "__version__"))


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    if name in _MODULES:
        return import_module(f"hotset.{name}")
    raise AttributeError(f"module 'hotset' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
