"""The command line: parses arguments, calls what was asked for, and prints errors as one line."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import hotset
from hotset.errors import FaithfulnessError, HotsetError, SampleError

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130
"""What shells report for a process that Ctrl-C ended: 128 plus the signal's number."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs `hotset` and returns its exit code.

    Args:
        argv: arguments behind the program's name; None takes the process's own.

    Returns:
        0 if what was asked for succeeded; 1 if it failed; 2 if it was asked for wrongly, or if
        something it needs is not there; 130 if it was interrupted.
    """
    arguments = sys.argv[1:] if argv is None else list(argv)
    try:
        parser = _parser(arguments)
        args = parser.parse_args(arguments)
        if args.handler is None:
            args.parser.print_help()
            return EXIT_USAGE
        code: int = args.handler(args)
        return code
    except KeyboardInterrupt:
        print("hotset: interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
    except HotsetError as error:
        print(f"hotset: {error}", file=sys.stderr)
        return EXIT_FAILED if isinstance(error, FaithfulnessError | SampleError) else EXIT_USAGE


def _parser(arguments: Sequence[str]) -> argparse.ArgumentParser:
    """The parser. What needs a heavy import is added only where `arguments` ask for it."""
    parser = argparse.ArgumentParser(
        prog="hotset",
        description="hotset: the same batches, only sooner.",
        epilog="`hotset COMMAND --help` says more.",
    )
    parser.add_argument("--version", action="version", version=f"hotset {hotset.__version__}")
    parser.set_defaults(handler=None, parser=parser)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    _add_demo(
        commands.add_parser(
            "demo",
            help="train through a plain DataLoader and through hotset, and compare",
            description=(
                "Trains one small network several times over the same data, through a plain "
                "DataLoader and through hotset.accelerate. Prints the comparison, and writes it "
                "as report.json and report.html."
            ),
        )
    )
    bench = commands.add_parser("bench", help="the published comparisons, as ratios in one run")
    bench.set_defaults(parser=bench)
    benches = bench.add_subparsers(title="comparisons", metavar="COMPARISON")
    cifar = benches.add_parser("cifar", help="loaders of CIFAR-10-sized images, side by side")
    if list(arguments[:2]) == ["bench", "cifar"]:
        from hotset.bench.cifar import add_arguments

        add_arguments(cifar)
        cifar.set_defaults(handler=_bench_cifar)
    return parser


def _add_demo(demo: argparse.ArgumentParser) -> None:
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


def _bench_cifar(args: argparse.Namespace) -> int:
    from hotset.bench.cifar import main as bench

    return int(bench(args))
