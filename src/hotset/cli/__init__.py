"""The command line: parses arguments, calls what was asked for, and prints errors as one line."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import hotset
from hotset.cli.bench import add_bench
from hotset.cli.commands import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_USAGE
from hotset.cli.demo import add_demo
from hotset.cli.doctor import add_doctor
from hotset.cli.plan import add_plan
from hotset.cli.run import add_run
from hotset.cli.stores import add_stores
from hotset.errors import FaithfulnessError, HotsetError, SampleError

__all__ = ["EXIT_FAILED", "EXIT_INTERRUPTED", "EXIT_USAGE", "main"]


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
    add_demo(commands)
    add_doctor(commands)
    add_run(commands)
    add_plan(commands)
    add_stores(commands, arguments)
    add_bench(commands, arguments)
    return parser
