"""The command line: what is parsed, what is printed, and the exit codes."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

import pytest

import hotset
from hotset import cli
from hotset.demo import run
from hotset.demo.settings import Settings
from hotset.errors import ConfigError, FaithfulnessError, HotsetError, MissingExtraError


@pytest.fixture(autouse=True)
def environment_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    """Takes back what the demo sets for the threads of the process."""
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")


def _raises(error: BaseException) -> Any:
    def run_and_write(settings: Settings) -> NoReturn:
        raise error

    return run_and_write


def test_version_is_the_packages(capsys: pytest.CaptureFixture[str]) -> None:
    """`hotset --version` prints the version and succeeds."""
    with pytest.raises(SystemExit) as stop:
        cli.main(["--version"])
    assert stop.value.code == 0
    assert capsys.readouterr().out == f"hotset {hotset.__version__}\n"


@pytest.mark.parametrize("arguments", [[], ["bench"]])
def test_no_command_prints_the_help(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a command the help is printed, and the exit code says that nothing was done."""
    assert cli.main(arguments) == cli.EXIT_USAGE
    assert "usage: hotset" in capsys.readouterr().out


def test_help_loads_nothing_heavy() -> None:
    """`python -m hotset --help` imports neither torch nor any module of the demo or the benches."""
    code = (
        "import sys; from hotset.cli import main\n"
        "try: main(['demo', '--help'])\n"
        "except SystemExit: pass\n"
        "print([m for m in sys.modules if m.startswith(('torch', 'hotset.demo', 'hotset.bench'))])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=100
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_module_is_the_command() -> None:
    """`python -m hotset` does what `hotset` does."""
    done = subprocess.run(
        [sys.executable, "-m", "hotset", "--version"],
        capture_output=True,
        text=True,
        check=True,
        timeout=100,
    )
    assert done.stdout == f"hotset {hotset.__version__}\n"


def test_options_of_the_demo_reach_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every option of `hotset demo` ends in the setting of its name."""
    seen: list[Settings] = []

    def run_and_write(settings: Settings) -> NoReturn:
        seen.append(settings)
        raise ConfigError("enough")

    monkeypatch.setattr(run, "run_and_write", run_and_write)
    line = (
        "demo --data cifar10 --root a --download --epochs 4 --seeds 5 --batch-size 6 --workers 7 "
        "--device cpu --samples 8 --out b --no-page"
    )
    cli.main(line.split())
    cli.main(["demo"])
    assert seen == [
        Settings(
            data="cifar10",
            root=Path("a"),
            is_download_allowed=True,
            epochs=4,
            seeds=5,
            batch_size=6,
            workers=7,
            device="cpu",
            samples=8,
            out=Path("b"),
            has_page=False,
        ),
        Settings(),
    ]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigError("this is wrong"), 2),
        (MissingExtraError("this is missing"), 2),
        (FaithfulnessError("this differs"), 1),
    ],
)
def test_errors_are_one_line(
    error: HotsetError,
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """An error of hotset's is printed as one line; 2 says that the user can mend it, 1 not."""
    monkeypatch.setattr(run, "run_and_write", _raises(error))
    assert cli.main(["demo"]) == code
    assert capsys.readouterr().err == f"hotset: {error}\n"


def test_ctrl_c_ends_with_a_word(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An interrupt gives no traceback and the exit code that shells know."""
    monkeypatch.setattr(run, "run_and_write", _raises(KeyboardInterrupt()))
    assert cli.main(["demo"]) == 130
    assert capsys.readouterr().err == "hotset: interrupted\n"


@pytest.mark.parametrize(("chosen", "kept"), [(None, "PASSIVE"), ("ACTIVE", "ACTIVE")])
def test_threads_do_not_spin_unless_asked_to(
    chosen: str | None, kept: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The demo lets waiting threads sleep, and leaves a choice of the user's alone."""
    if chosen is None:
        monkeypatch.delenv("OMP_WAIT_POLICY")
    monkeypatch.setattr(run, "run_and_write", _raises(ConfigError("enough")))
    cli.main(["demo"])
    assert os.environ["OMP_WAIT_POLICY"] == kept


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["demo", "--seeds", "three"], "invalid int value: 'three'"),
        (["demo", "--data", "imagenet"], "invalid choice: 'imagenet'"),
        (["train"], "invalid choice: 'train'"),
    ],
)
def test_what_cannot_be_parsed_is_refused(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """An argument that cannot be parsed is named, with exit code 2."""
    with pytest.raises(SystemExit) as stop:
        cli.main(arguments)
    assert stop.value.code == cli.EXIT_USAGE
    assert message in capsys.readouterr().err


def test_bench_cifar_is_handed_its_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    """`hotset bench cifar` takes the benchmark's own options and returns its exit code."""
    seen: list[argparse.Namespace] = []

    def main(args: argparse.Namespace) -> int:
        seen.append(args)
        return 7

    bench: Any = ModuleType("hotset.bench.cifar")
    bench.main = main
    bench.add_arguments = lambda parser: parser.add_argument("--rounds", type=int)
    monkeypatch.setitem(sys.modules, "hotset.bench.cifar", bench)
    assert cli.main(["bench", "cifar", "--rounds", "3"]) == 7
    assert seen[0].rounds == 3
