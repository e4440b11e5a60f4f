"""`hotset plan`: its arguments, and what is printed."""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path
from typing import Any

from hotset.cli.commands import Commands
from hotset.cli.stores import DATA
from hotset.errors import ConfigError, StorageError
from hotset.store.urls import path_or_url

WIDTH = 100
HERE = "-"
"""What `--json` without a file stands for: standard output."""


def add_plan(commands: Commands) -> None:
    """Adds the command."""
    plan = commands.add_parser(
        "plan",
        help="what would be done to a dataset or loader, without doing it",
        description=(
            "Reads and times a few samples, and says what hotset.accelerate would do with them, "
            "where else the chain could be cut, how long epochs would take, and whether that is "
            "worth it. Nothing is kept and no store is written."
        ),
    )
    plan.add_argument(
        "data", metavar="PKG.MOD:NAME", help=f"{DATA}; also from the current directory"
    )
    texts = (
        ("--device", "NAME", "where batches are to come out (default: torch's default device)"),
        (
            "--budget",
            "AMOUNT",
            "what kept samples may take: bytes, 8GB or 60%%; or device=8GB,host=50%%,disk=1TB "
            "(default: half of what is free)",
        ),
        ("--reserve", "AMOUNT", "what is to be left free on the device for the model"),
        ("--tier", "TIER", "auto (the default), device, mixed, host or disk"),
        ("--policy", "POLICY", "auto (the default), static, next-use, frequency or lru"),
    )
    for option, metavar, meaning in texts:
        plan.add_argument(option, metavar=metavar, help=meaning)
    plan.add_argument(
        "--cache", type=path_or_url, metavar="DIR", help="the folder that stores are to be kept in"
    )
    plan.add_argument(
        "--step-ms",
        type=float,
        metavar="MS",
        help="what training takes for a batch, in milliseconds (default: not known)",
    )
    numbers = (
        ("--workers", "processes of the plain loader (default: the DataLoader's)"),
        ("--batch-size", "samples per batch (default: the DataLoader's; 64 for a dataset)"),
        ("--samples", "samples to measure at most (default: 16)"),
    )
    for option, meaning in numbers:
        plan.add_argument(option, type=int, metavar="N", help=meaning)
    plan.add_argument(
        "--json",
        nargs="?",
        const=HERE,
        metavar="FILE",
        help="write plain values as JSON: to FILE beside the table, or without FILE in its place",
    )
    plan.set_defaults(handler=_plan)


def _plan(args: argparse.Namespace) -> int:
    import hotset
    from hotset.cli.data import named

    given = {
        "device": args.device,
        "budget": _budget(args.budget),
        "reserve": args.reserve,
        "tier": args.tier,
        "policy": args.policy,
        "cache": args.cache,
        "step": args.step_ms,
        "workers": args.workers,
        "batch_size": args.batch_size,
        "samples": args.samples,
    }
    found = hotset.plan(
        named(args.data), **{name: value for name, value in given.items() if value is not None}
    )
    if args.json is not None:
        text = json.dumps(found.as_dict(), indent=2, ensure_ascii=False)
        if args.json == HERE:
            print(text)
            return 0
        _write(Path(args.json), text)
    print(found.text(min(WIDTH, shutil.get_terminal_size((WIDTH, 24)).columns)))
    if args.json is not None:
        print(f"\nwritten: {args.json}")
    return 0


def _budget(text: str | None) -> Any:
    """One amount, or a mapping of memories to amounts.

    Raises:
        ConfigError: if it is neither.
    """
    if text is None or "=" not in text:
        return text
    pairs = [part.partition("=") for part in text.split(",")]
    if not all(name.strip() and equals and amount for name, equals, amount in pairs):
        raise ConfigError(
            f"`--budget` must be an amount, or amounts as in device=8GB,host=50%, got {text!r}"
        )
    return {name.strip(): amount for name, _, amount in pairs}


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise StorageError(f"{path} cannot be written: {error.strerror or error}") from error
