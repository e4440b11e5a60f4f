"""`hotset bench`: its arguments."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from hotset.cli.commands import Commands


def add_bench(commands: Commands, arguments: Sequence[str]) -> None:
    """Adds the command; what needs a heavy import only where `arguments` ask for it."""
    bench = commands.add_parser("bench", help="the published comparisons, as ratios in one run")
    bench.set_defaults(parser=bench)
    benches = bench.add_subparsers(title="comparisons", metavar="COMPARISON")
    cifar = benches.add_parser("cifar", help="loaders of CIFAR-10-sized images, side by side")
    if list(arguments[:2]) == ["bench", "cifar"]:
        from hotset.bench.cifar import add_arguments

        add_arguments(cifar)
        cifar.set_defaults(handler=_bench_cifar)


def _bench_cifar(args: argparse.Namespace) -> int:
    from hotset.bench.cifar import main as bench

    return int(bench(args))
