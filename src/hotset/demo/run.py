"""Runs the demo: trains through both pipelines in turns, measures, and writes the report."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from hotset.demo.measure import Run, time_epoch
from hotset.demo.network import Trainer, build_network
from hotset.demo.pipelines import (
    DEFAULT_EPOCHS,
    Material,
    Pipelines,
    load_material,
    require_torchvision,
)
from hotset.demo.report import Origin, Report
from hotset.demo.settings import Settings
from hotset.demo.summary import Summary
from hotset.demo.wording import seconds
from hotset.errors import ConfigError, MissingExtraError
from hotset.hardware import hardware, versions
from hotset.loader.options import CHECK_EVERY
from hotset.placement.device import resolve_device
from hotset.placement.plan import Plan
from hotset.progress import Progress

Name = Literal["plain", "hotset"]
TITLES: dict[Name, str] = {"plain": "plain loader", "hotset": "hotset"}


def run_and_write(
    settings: Settings, progress: Progress | None = None
) -> tuple[Report, tuple[Path, ...]]:
    """Runs the demo and writes ``report.json``, and ``report.html`` if the settings say so.

    Args:
        settings: what to do.
        progress: says how far it is; None uses standard error.

    Returns:
        The report, and the files written.

    Raises:
        HotsetError: if something that it needs is missing, or a file cannot be written.
    """
    progress = Progress() if progress is None else progress
    try:
        _check_packages(settings)
        _make_folder(settings.out)
        report = run_demo(settings, progress)
        return report, _write(report, settings)
    finally:
        progress.clear()


def run_demo(settings: Settings, progress: Progress) -> Report:
    """Trains through both pipelines, seed by seed, and returns what was measured.

    Raises:
        HotsetError: if data, a device or a package is missing, or a batch turns out different.
    """
    began = time.perf_counter()
    device = choose_device(settings.device)
    progress.update("reading the data", 0, 1)
    material = load_material(settings, progress)
    arrays = material.arrays
    epochs = settings.epochs or DEFAULT_EPOCHS[material.name]
    if material.note:
        progress.say(material.note)
    progress.say(f"Data: {arrays.description}. Device: {device}.")
    pipelines = Pipelines(arrays, settings, device)
    progress.update("getting the kernel ready", 0, 1)
    kernel_s = _warm_up(pipelines)
    bench = _Bench(pipelines, epochs, settings.seeds, pipelines.test_set(), progress)
    runs: dict[Name, list[Run]] = {"plain": [], "hotset": []}
    for seed in range(settings.seeds):
        # In turns, and each first in turn: whatever the machine does besides strikes both alike.
        order: tuple[Name, Name] = ("plain", "hotset") if seed % 2 == 0 else ("hotset", "plain")
        for name in order:
            runs[name].append(bench.train(name, seed))
    assert bench.plan is not None
    ahead = "batches that the workers make ahead" if settings.workers else "the batch in use"
    return Report(
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        versions=versions(),
        hardware=hardware(),
        settings=settings,
        epochs=epochs,
        device=str(device),
        data=_facts(material),
        parameters=bench.parameters,
        plan=bench.plan,
        kernel_s=kernel_s,
        check_every=CHECK_EVERY,
        plain=Summary(tuple(runs["plain"]), pipelines.dataset_bytes, pipelines.ahead_bytes, ahead),
        fast=Summary(
            tuple(runs["hotset"]),
            pipelines.dataset_bytes,
            bench.plan.bytes_held,
            f"samples kept on {device}",
        ),
        elapsed_s=time.perf_counter() - began,
    )


def choose_device(name: str) -> torch.device:
    """The device called "cpu" or "cuda"; for "auto" CUDA where there is one.

    Raises:
        DeviceError: if it is not there.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    return resolve_device(name)


@dataclass
class _Bench:
    """Trains networks, one after the other."""

    pipelines: Pipelines
    epochs: int
    seeds: int
    test_set: tuple[Tensor, Tensor]
    progress: Progress
    plan: Plan | None = None
    parameters: int = 0

    def train(self, name: Name, seed: int) -> Run:
        """One training from scratch; hotset reads the data anew for it."""
        title = f"{TITLES[name]}, seed {seed + 1} of {self.seeds}"
        arrays, device = self.pipelines.arrays, self.pipelines.device
        loader, fill_s = self._loader(name, title)
        torch.manual_seed(seed)
        channels = 3 if arrays.train_images.ndim == 4 else 1
        network = build_network(channels, len(arrays.class_names))
        self.parameters = sum(weights.numel() for weights in network.parameters())
        trainer = Trainer(network, self.epochs * len(loader), device)
        torch.manual_seed(seed)  # so that both draw the same order
        times = []
        for epoch in range(1, self.epochs + 1):
            times.append(
                time_epoch(
                    loader,
                    trainer.learn,
                    epoch=epoch,
                    fill_s=fill_s if epoch == 1 else 0.0,
                    synchronise=lambda: _synchronise(device),
                    on_samples=self._on_samples(f"{title}, epoch {epoch} of {self.epochs}"),
                )
            )
        run = Run(seed, tuple(times), trainer.accuracy(*self.test_set))
        self.progress.say(
            f"{title}: {self.epochs} epoch{'s' if self.epochs > 1 else ''} in "
            f"{seconds(run.total_s)}, test accuracy {run.accuracy:.1%}"
        )
        return run

    def _loader(self, name: Name, title: str) -> tuple[Any, float]:
        """A loader made anew, and the seconds that took where it read the data."""
        if name == "plain":
            return self.pipelines.plain(), 0.0
        text = f"{title}, reading all data once"
        began = time.perf_counter()
        loader = self.pipelines.accelerated(
            lambda done, total: self.progress.update(text, done, total)
        )
        _synchronise(self.pipelines.device)
        self.plan = loader.plan
        return loader, time.perf_counter() - began

    def _on_samples(self, text: str) -> Any:
        total = len(self.pipelines.arrays.train_labels)
        return lambda samples: self.progress.update(text, samples, total)


def _warm_up(pipelines: Pipelines) -> float:
    """Makes one batch through hotset; the seconds that took: mostly compiling, or loading what was.

    Done apart, since it comes once in a process and would fall into the first run alone.
    """
    began = time.perf_counter()
    _exhaust(pipelines.accelerated(samples=pipelines.settings.batch_size))
    _synchronise(pipelines.device)
    return time.perf_counter() - began


def _exhaust(batches: Iterable[Any]) -> None:
    for _ in batches:
        pass


def _synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _facts(material: Material) -> Origin:
    arrays = material.arrays
    return Origin(
        name=material.name,
        description=arrays.description,
        note=material.note,
        train=len(arrays.train_labels),
        test=len(arrays.test_labels),
        classes=arrays.class_names,
    )


def _check_packages(settings: Settings) -> None:
    require_torchvision()
    if settings.has_page and find_spec("matplotlib") is None:
        raise MissingExtraError(
            "the page needs matplotlib: pip install 'hotset[demo]', or give --no-page"
        )


def _make_folder(folder: Path) -> None:
    """Makes the report's folder before minutes are spent on what is to go there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"`--out` must be a folder that can be written to, got {folder}: {error.strerror}"
        ) from error


def _write(report: Report, settings: Settings) -> tuple[Path, ...]:
    content = json.dumps(report.as_dict(), indent=2, ensure_ascii=False, allow_nan=False)
    texts = {"report.json": content + "\n"}
    if settings.has_page:
        from hotset.demo.page import as_page

        texts["report.html"] = as_page(report)
    for name, text in texts.items():
        try:
            (settings.out / name).write_text(text, encoding="utf-8")
        except OSError as error:
            raise ConfigError(
                f"`--out` must be a folder that can be written to, got {settings.out}: "
                f"{error.strerror}"
            ) from error
    return tuple(settings.out / name for name in texts)
