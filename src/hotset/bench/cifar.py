"""`hotset bench cifar`: the comparison this field argues about, measured side by side."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from hotset.bench.command import run
from hotset.bench.settings import QUICK_ROUNDS, QUICK_SAMPLES, ROUNDS, SAMPLES, Settings
from hotset.errors import MissingExtraError

if TYPE_CHECKING:
    from hotset.bench.report import Report
    from hotset.bench.timing import Say


def add_arguments(parser: ArgumentParser) -> None:
    """Adds the command's options to a parser."""
    parser.add_argument(
        "--device", default="cpu", help="where batches are wanted: cpu or cuda (default: cpu)"
    )
    parser.add_argument("--json", metavar="FILE", type=Path, help="also write everything to FILE")
    parser.add_argument("--batch-size", type=int, default=256, metavar="N", help="default: 256")
    parser.add_argument(
        "--workers",
        type=int,
        default=2,
        metavar="N",
        help="worker processes of the plain loaders that have any (default: 2)",
    )
    parser.add_argument(
        "--samples",
        type=int,
        metavar="N",
        help=f"images in the data set (default: {SAMPLES:,}, or {QUICK_SAMPLES:,} with --quick)",
    )
    parser.add_argument(
        "--rounds",
        type=int,
        metavar="N",
        help=f"timed runs of each row (default: {ROUNDS}, or {QUICK_ROUNDS} with --quick)",
    )
    parser.add_argument(
        "--quick", action="store_true", help="less data and fewer rounds: a first impression"
    )


def main(args: Namespace) -> int:
    """Measures, prints the tables, writes the file that was asked for; returns the exit status."""

    def measured(say: Say) -> Report:
        settings = Settings.chosen(
            args.device,
            batch_size=args.batch_size,
            workers=args.workers,
            samples=args.samples,
            rounds=args.rounds,
            is_quick=args.quick,
        )
        return measure(settings, say)

    return run("cifar", measured, args.json)


def measure(settings: Settings, say: Say) -> Report:
    """Runs the whole comparison.

    Args:
        settings: sizes and rounds.
        say: told what is being done.

    Raises:
        DeviceError: if the device is not there.
        MissingExtraError: if torchvision is not installed.
    """
    if find_spec("torchvision") is None:
        raise MissingExtraError(
            "the comparison is with torchvision's transforms, and torchvision is not installed: "
            "pip install 'hotset[vision]'"
        )
    say("importing torch and torchvision")
    from datetime import UTC, datetime

    import torch

    from hotset.bench.copies import measure_copies
    from hotset.bench.data import synthetic
    from hotset.bench.imports import measure_imports
    from hotset.bench.overhead import measure_overhead
    from hotset.bench.report import Report
    from hotset.bench.rows import build_rows
    from hotset.bench.timing import Stopwatch, interleaved
    from hotset.hardware import hardware, versions
    from hotset.placement.device import resolve_device

    device = resolve_device(settings.device)
    settings = replace(settings, device=str(device))
    is_cpu = device.type == "cpu"
    watch = Stopwatch() if is_cpu else Stopwatch(finish=torch.cuda.synchronize)
    date, machine = datetime.now(UTC).isoformat(timespec="seconds"), hardware()
    say("making images")
    images = synthetic(settings.samples)
    rows = build_rows(settings, images, watch, say)
    found = interleaved({row.name: row.rate for row in rows}, settings.rounds, say)
    rates = {row.key: found[row.name] for row in rows}
    overhead = measure_overhead(settings, images, watch, say) if is_cpu else None
    copies = measure_copies(device, settings.sizes, settings.rounds, watch, say)
    imports = measure_imports(settings.import_rounds, say) if settings.import_rounds else None
    return Report(settings, date, machine, versions(), rows, rates, copies, overhead, imports)
