"""The result of a demo, and its plain values for JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from hotset.demo import wording
from hotset.demo.settings import Settings
from hotset.demo.summary import Agreement, Ratios, Summary, agreement, ratios
from hotset.placement.plan import Plan

SCHEMA = "hotset-demo"
SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Origin:
    """What was trained on.

    Attributes:
        name: "cifar10", "photographs" or "mnist".
        description: where the pixels come from.
        note: why it is not what one might expect; "" if it is.
        train: training samples.
        test: test samples.
        classes: their names.
    """

    name: str
    description: str
    note: str
    train: int
    test: int
    classes: tuple[str, ...]


@dataclass(frozen=True)
class Report:
    """The result of a demo.

    Attributes:
        created: when, ISO 8601.
        versions: of hotset, Python and libraries.
        hardware: what it ran on.
        settings: what was asked for.
        epochs: of each training.
        device: where training ran.
        data: what was trained on.
        parameters: of the network.
        plan: what hotset did.
        kernel_s: what getting hotset's kernel ready took, before all trainings and counted in none.
        check_every: hotset compared one sample in so many of each first epoch; 0 for none.
        plain: the plain loader's runs.
        fast: hotset's runs.
        elapsed_s: of the whole demo.
    """

    created: str
    versions: dict[str, str | None]
    hardware: dict[str, Any]
    settings: Settings
    epochs: int
    device: str
    data: Origin
    parameters: int
    plan: Plan
    kernel_s: float
    check_every: int
    plain: Summary
    fast: Summary
    elapsed_s: float

    @property
    def ratios(self) -> Ratios:
        """The plain loader's seconds over hotset's."""
        return ratios(self.plain, self.fast)

    @property
    def agreement(self) -> Agreement:
        """Whether the test accuracies agree."""
        return agreement(self.plain.accuracies, self.fast.accuracies)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "schema": SCHEMA,
            "schema_version": SCHEMA_VERSION,
            "created": self.created,
            "versions": self.versions,
            "hardware": self.hardware,
            "settings": {**self.settings.as_dict(), "epochs": self.epochs, "device": self.device},
            "data": asdict(self.data),
            "network": {"parameters": self.parameters},
            "plan": {**self.plan.as_dict(), "text": str(self.plan)},
            "kernel_s": self.kernel_s,
            "check_every": self.check_every,
            "pipelines": {"plain": self.plain.as_dict(), "hotset": self.fast.as_dict()},
            "ratio": self.ratios.as_dict(),
            "agreement": self.agreement.as_dict(),
            "headline": wording.headline(self),
            "notes": list(wording.notes(self)),
            "elapsed_s": self.elapsed_s,
        }
