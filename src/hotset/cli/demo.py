"""`hotset demo`: its arguments, and what is printed."""

from __future__ import annotations

import argparse
import os
import shutil
from pathlib import Path

from hotset.cli.commands import Commands


def add_demo(commands: Commands) -> None:
    """Adds the command."""
    demo = commands.add_parser(
        "demo",
        help="train through a plain DataLoader and through hotset, and compare",
        description=(
            "Trains one small network several times over the same data, through a plain "
            "DataLoader and through hotset.accelerate. Prints the comparison, and writes it "
            "as report.json and report.html."
        ),
    )
    demo.add_argument(
        "--data",
        choices=("auto", "cifar10", "photographs", "mnist"),
        default="auto",
        help="auto (the default) is CIFAR-10 where it is found, and photographs otherwise",
    )
    demo.add_argument(
        "--root",
        type=Path,
        default=Path("data"),
        metavar="DIR",
        help="folder that holds CIFAR-10 (default: data)",
    )
    demo.add_argument("--download", action="store_true", help="fetch CIFAR-10 into --root")
    numbers = (
        ("--epochs", None, "epochs of each training (default: by the data)"),
        ("--seeds", 3, "trainings per pipeline (default: 3)"),
        ("--batch-size", 256, "samples per batch (default: 256)"),
        ("--workers", 2, "worker processes of the DataLoader (default: 2)"),
        ("--samples", None, "training samples (default: all)"),
    )
    for option, default, meaning in numbers:
        demo.add_argument(option, type=int, default=default, metavar="N", help=meaning)
    demo.add_argument(
        "--device",
        choices=("auto", "cpu", "cuda"),
        default="auto",
        help="where training runs; auto (the default) is CUDA where there is any",
    )
    demo.add_argument(
        "--out",
        type=Path,
        default=Path("hotset-demo"),
        metavar="DIR",
        help="folder that the report is written into (default: hotset-demo)",
    )
    demo.add_argument(
        "--no-page", action="store_true", help="write report.json only: needs no matplotlib"
    )
    demo.set_defaults(handler=_demo)


def _demo(args: argparse.Namespace) -> int:
    # The worker processes and the network's threads share the cores. A thread that spins while it
    # waits takes one from them: on two busy cores that made a step ten times as slow. Read when
    # torch is imported, so it has to be set before; a choice of the user's own is left alone.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    from hotset.demo.run import run_and_write
    from hotset.demo.settings import Settings
    from hotset.demo.wording import WIDTH, as_text

    report, files = run_and_write(
        Settings(
            data=args.data,
            root=args.root,
            is_download_allowed=args.download,
            epochs=args.epochs,
            seeds=args.seeds,
            batch_size=args.batch_size,
            workers=args.workers,
            device=args.device,
            samples=args.samples,
            out=args.out,
            has_page=not args.no_page,
        )
    )
    print("\n" + as_text(report, min(WIDTH, shutil.get_terminal_size().columns)))
    print("\nwritten: " + ", ".join(map(str, files)))
    return 0
