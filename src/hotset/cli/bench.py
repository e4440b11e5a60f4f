"""`hotset bench`: its arguments."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module

from hotset.cli.commands import Commands

COMPARISONS = {
    "cifar": "loaders of CIFAR-10-sized images, side by side",
    "images": "an image folder, read every epoch or from a store",
    "cache": "hit rates of a device cache, by policy and by the order of the samples",
    "tiers": "rows of a table, from where they are kept",
    "doctor": "what the doctor costs, and whether what it says of planted loops is so",
}


def add_bench(commands: Commands, arguments: Sequence[str]) -> None:
    """Adds the command; what needs a heavy import only where `arguments` ask for it."""
    bench = commands.add_parser("bench", help="the published comparisons, as ratios in one run")
    bench.set_defaults(parser=bench)
    benches = bench.add_subparsers(title="comparisons", metavar="COMPARISON")
    for name, meaning in COMPARISONS.items():
        parser = benches.add_parser(name, help=meaning)
        if list(arguments[:2]) == ["bench", name]:
            comparison = import_module(f"hotset.bench.{name}")
            comparison.add_arguments(parser)
            parser.set_defaults(handler=comparison.main)
