"""What a demo is asked to do, checked before anything slow begins."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hotset.errors import ConfigError

DATA = ("auto", "cifar10", "photographs", "mnist")
DEVICES = ("auto", "cpu", "cuda")


@dataclass(frozen=True)
class Settings:
    """What a demo is asked to do.

    Attributes:
        data: "auto", "cifar10", "photographs" or "mnist".
        root: folder that may hold CIFAR-10.
        is_download_allowed: whether CIFAR-10 may be fetched into `root`.
        epochs: of each training; None for a number that suits the data.
        seeds: trainings per pipeline.
        batch_size: samples per batch.
        workers: worker processes of the DataLoader.
        device: "auto", "cpu" or "cuda".
        samples: training samples; None for all.
        out: folder that the report is written into.
        has_page: whether the report is written as a page too.

    Raises:
        ConfigError: if one of them cannot be used; says which.
    """

    data: str = "auto"
    root: Path = Path("data")
    is_download_allowed: bool = False
    epochs: int | None = None
    seeds: int = 3
    batch_size: int = 256
    workers: int = 2
    device: str = "auto"
    samples: int | None = None
    out: Path = Path("hotset-demo")
    has_page: bool = True

    def __post_init__(self) -> None:
        for name, known in (("data", DATA), ("device", DEVICES)):
            if getattr(self, name) not in known:
                raise ConfigError(
                    f"`{name}` must be one of {', '.join(known)}, got {getattr(self, name)!r}"
                )
        least = {"epochs": 1, "seeds": 1, "batch_size": 1, "workers": 0, "samples": 1}
        for name, bound in least.items():
            value = getattr(self, name)
            if value is not None and value < bound:
                option = "--" + name.replace("_", "-")
                raise ConfigError(f"`{option}` must be at least {bound}, got {value}")
        if self.is_download_allowed and self.data in ("photographs", "mnist"):
            raise ConfigError(
                f"`--download` fetches CIFAR-10, but --data {self.data} was given with it"
            )

    def as_dict(self) -> dict[str, Any]:
        """The settings as plain values, for JSON."""
        return {
            name: str(value) if isinstance(value, Path) else value
            for name, value in asdict(self).items()
        }
