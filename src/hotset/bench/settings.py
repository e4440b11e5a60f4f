"""What is asked of a benchmark."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from hotset.errors import ConfigError

SAMPLES, QUICK_SAMPLES = 50_000, 10_000
ROUNDS, QUICK_ROUNDS = 7, 3


@dataclass(frozen=True)
class Settings:
    """Parameters of the CIFAR comparison.

    Attributes:
        device: "cpu" or "cuda", where batches are wanted.
        batch_size: samples per batch.
        workers: worker processes of the plain loaders that have any.
        samples: images in the data set.
        rounds: timed runs of every row.
        part_batches: batches in a timed run of a row that is made sample by sample.
        epochs: epochs in a timed run of a row that is made batch by batch.
        import_rounds: how often the imports are timed; 0 leaves them out.
        sizes: heights and widths of the images whose copying is timed.

    Raises:
        ConfigError: if a number is too small.
    """

    device: str = "cpu"
    batch_size: int = 256
    workers: int = 2
    samples: int = SAMPLES
    rounds: int = ROUNDS
    part_batches: int = 32
    epochs: int = 5
    import_rounds: int = 5
    sizes: tuple[int, ...] = (32, 64, 128, 224, 512, 1024)

    def __post_init__(self) -> None:
        for name in ("batch_size", "workers", "rounds"):
            if getattr(self, name) < 1:
                option = f"--{name.replace('_', '-')}"
                raise ConfigError(f"`{option}` must be at least 1, got {getattr(self, name)}")
        if self.samples < 2 * self.batch_size:
            raise ConfigError(
                "`--samples` must be at least two batches, since the clock starts when the first "
                f"one has come: expected {2 * self.batch_size} or more, got {self.samples}"
            )

    @classmethod
    def chosen(
        cls,
        device: str,
        *,
        batch_size: int,
        workers: int,
        samples: int | None = None,
        rounds: int | None = None,
        is_quick: bool = False,
    ) -> Settings:
        """The settings for what was asked for; what was left open depends on `is_quick`."""
        usual = cls(
            device=device,
            batch_size=batch_size,
            workers=workers,
            samples=samples if samples is not None else QUICK_SAMPLES if is_quick else SAMPLES,
            rounds=rounds if rounds is not None else QUICK_ROUNDS if is_quick else ROUNDS,
        )
        if not is_quick:
            return usual
        return cls(**{**asdict(usual), "part_batches": 12, "import_rounds": 3})

    @property
    def ahead(self) -> int:
        """Batches that a plain loader's workers make ahead."""
        return 2 * self.workers

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)
