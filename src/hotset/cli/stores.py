"""`hotset build`, `inspect` and `verify`: their arguments, and what is printed."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from hotset.cli.commands import EXIT_FAILED, EXIT_INTERRUPTED, Commands
from hotset.errors import (
    ConfigError,
    FormatError,
    OrientationWarning,
    SampleError,
    StaleStoreWarning,
)
from hotset.progress import Bar, Progress
from hotset.store.urls import is_remote, path_or_url

if TYPE_CHECKING:
    from hotset.store.blocks import Damage

DATA = "a dataset, DataLoader, array, or a function without arguments that returns one"


def add_stores(commands: Commands, arguments: Sequence[str]) -> None:
    """Adds the commands."""
    _add_build(commands, arguments)
    inspect = commands.add_parser(
        "inspect",
        help="what a store holds, and what it was made from",
        description="Says what a store holds, how large it is, what it was made from, and how.",
    )
    inspect.add_argument("store", type=path_or_url, metavar="STORE")
    inspect.add_argument("--json", action="store_true", help="print plain values as JSON")
    inspect.set_defaults(handler=_inspect)
    verify = commands.add_parser(
        "verify",
        help="whether a store is whole; makes damaged blocks again",
        description=(
            "Reads all of a store and names every damaged block. Exits with 0 if it is whole, with "
            "1 if it is damaged. With --repair or --image-folder, samples that have bytes in "
            "damaged blocks are read again from what the store was built from, and those blocks "
            "alone are written."
        ),
    )
    verify.add_argument("store", type=path_or_url, metavar="STORE")
    source = verify.add_mutually_exclusive_group()
    source.add_argument("--repair", metavar="PKG.MOD:NAME", help=f"repair from {DATA}")
    source.add_argument(
        "--image-folder", type=path_or_url, metavar="DIR", help="repair from a folder of images"
    )
    _add_resize(verify)
    verify.set_defaults(handler=_verify)


def _add_build(commands: Commands, arguments: Sequence[str]) -> None:
    build = commands.add_parser(
        "build",
        usage=(
            "hotset build PKG.MOD:NAME OUT [options]\n"
            "       hotset build --image-folder DIR OUT [--resize N] [options]"
        ),
        help="the deterministic part of a dataset, run once and written to disk",
        description=(
            "Runs a dataset's transforms up to the first random one, once for every sample, and "
            "writes the result to OUT. What was interrupted goes on where it was."
        ),
    )
    # With a folder of images there is one place less. That is settled here, since argparse does
    # not find a place that may be left out among options.
    if not any(word.partition("=")[0] == "--image-folder" for word in arguments):
        build.add_argument(
            "data", metavar="PKG.MOD:NAME", help=f"{DATA}; also from the current directory"
        )
    build.add_argument(
        "out",
        type=path_or_url,
        metavar="OUT",
        help="the directory to make, or a URL such as s3://bucket/train.hotset",
    )
    build.add_argument(
        "--image-folder",
        type=path_or_url,
        metavar="DIR",
        help="read JPEG, PNG and the like, one folder for each class, as torchvision does; also "
        "from a URL",
    )
    _add_resize(build)
    build.add_argument(
        "--workers", type=int, metavar="N", help="processes that read (default: the DataLoader's)"
    )
    build.add_argument(
        "--on-error",
        choices=("raise", "skip", "substitute"),
        default="raise",
        help="what becomes of a sample that cannot be read: raise stops there (the default), skip "
        "leaves it out, substitute puts the next one in its place",
    )
    build.add_argument(
        "--version",
        metavar="TEXT",
        help="your word for what cannot be told apart by itself; change it when that changes",
    )
    build.add_argument(
        "--source",
        choices=("stat", "content"),
        default="stat",
        help="tell the dataset's files apart by size and time (the default), or by all their bytes",
    )
    build.set_defaults(handler=_build, data=None)


def _add_resize(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--resize", type=int, metavar="N", help="make the shorter side of the images N pixels long"
    )


def _data_of(name: str | None, args: argparse.Namespace) -> Any:
    from hotset.cli.data import image_folder, named

    if args.image_folder is not None:
        return image_folder(args.image_folder, args.resize)
    if args.resize is not None:
        raise ConfigError("`--resize` is for `--image-folder`; a dataset has its own transforms")
    return None if name is None else named(name)


def _build(args: argparse.Namespace) -> int:
    import hotset
    from hotset.cli.wording import as_built

    bar = Bar(f"building {args.out.name}")
    try:
        with _readable_warnings(bar):
            store = hotset.build(
                _data_of(args.data, args),
                args.out,
                workers=args.workers,
                on_error=args.on_error,
                version=args.version,
                source=args.source,
                progress=bar,
            )
    except KeyboardInterrupt:
        bar.clear()
        print(f"hotset: interrupted{_how_far(bar)}", file=sys.stderr)
        return EXIT_INTERRUPTED
    except SampleError as error:
        if args.on_error != "raise":
            raise
        bar.clear()
        print(
            f"hotset: {error}; `--on-error skip` leaves such samples out, `--on-error substitute` "
            "puts the next one in their place",
            file=sys.stderr,
        )
        return EXIT_FAILED
    finally:
        bar.clear()
    print(as_built(store, bar))
    return 0


def _how_far(bar: Bar) -> str:
    if bar.done is None:
        return " before anything was written"
    of = "" if bar.total is None else f" of {bar.total:,}"
    return f" after {bar.done:,}{of} samples; the same command goes on from there"


@contextmanager
def _readable_warnings(bar: Bar) -> Iterator[None]:
    """Prints a warning of hotset's as one line, without the line of code that it came from."""
    with warnings.catch_warnings():
        usual = warnings.showwarning

        def show(
            message: Warning | str,
            category: type[Warning],
            filename: str,
            lineno: int,
            file: TextIO | None = None,
            line: str | None = None,
        ) -> None:
            bar.clear()
            if issubclass(category, (StaleStoreWarning, OrientationWarning)) or filename.startswith(
                PACKAGE
            ):
                print(f"hotset: {message}", file=sys.stderr)
            else:
                usual(message, category, filename, lineno, file, line)

        for kind in (StaleStoreWarning, OrientationWarning):
            warnings.simplefilter("always", kind)
        warnings.showwarning = show
        yield


PACKAGE = str(Path(__file__).parents[1])


def _inspect(args: argparse.Namespace) -> int:
    import hotset
    from hotset.cli.wording import as_inspected
    from hotset.store.facts import facts

    store = args.store
    found = facts(hotset.open(store).path if is_remote(store) else store) | {"path": str(store)}
    if args.json:
        print(json.dumps(found, indent=2, ensure_ascii=False))
    else:
        print(as_inspected(found))
    return 0


def _verify(args: argparse.Namespace) -> int:
    from hotset.building.repair import repair
    from hotset.cli.wording import whole
    from hotset.store.damage import Contents

    if is_remote(args.store):
        return _verify_remote(args)
    data = _data_of(args.repair, args)
    progress = Progress()
    try:
        contents = Contents(args.store)
        if data is not None:
            damaged = repair(args.store, data)
        else:
            damaged = contents.look(
                lambda done, total: progress.update(f"verifying {args.store.name}", done, total)
            )
    except FormatError as error:
        print(f"hotset: {error}; build the store again", file=sys.stderr)
        return EXIT_FAILED
    finally:
        progress.clear()
    found = whole(contents.manifest)
    if not damaged:
        print(f"{args.store} is whole: {found}")
        return 0
    state = "is damaged" if data is None else "was damaged, and is whole again"
    print(f"{args.store} {state}: {_counted(damaged)} of {found}")
    print("\n".join(f"  {damage}" for damage in damaged))
    if data is not None:
        return 0
    print(
        "`--repair PKG.MOD:NAME` or `--image-folder DIR` makes them again from what the store was "
        "built from"
    )
    return EXIT_FAILED


def _verify_remote(args: argparse.Namespace) -> int:
    """Whether a store at a URL is whole: all of it is read, whatever copy there may be."""
    import hotset
    from hotset.cli.wording import whole

    if args.repair is not None or args.image_folder is not None:
        raise ConfigError(
            f"{args.store} cannot be repaired where it is: remove it, and build it again"
        )
    with tempfile.TemporaryDirectory(prefix="hotset-") as folder:
        try:
            store = hotset.open(args.store, local=folder)
        except FormatError as error:
            print(f"hotset: {error}", file=sys.stderr)
            return EXIT_FAILED
        print(f"{args.store} is whole: {whole(store.manifest)}")
        del store
    return 0


def _counted(damaged: Sequence[Damage]) -> str:
    return "1 block" if len(damaged) == 1 else f"{len(damaged):,} blocks"
