"""`hotset doctor`: what belongs to it and what to the script, what is printed where, its files."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import hotset.doctor
from hotset import cli
from hotset.cli.doctor import UPDATE_EVERY_S, _Shown
from hotset.progress import Progress
from tests.launched import command, python

SCRIPT = """
    import os, sys
    import torch
    from torch.utils.data import DataLoader, Dataset

    class Numbers(Dataset):
        def __len__(self):
            return 40
        def __getitem__(self, index):
            return torch.full((8,), float(index)), index

    if __name__ == "__main__":
        print(sys.argv)
        os.makedirs("elsewhere", exist_ok=True)
        os.chdir("elsewhere")
        net, numbers = torch.nn.Linear(8, 1), Numbers()
        for epoch in range(2):
            for images, labels in DataLoader(numbers, batch_size=4):
                net(images).sum().backward()
        print("trained")
        sys.exit(4)
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """The folder that the script is in."""
    (tmp_path / "train.py").write_text(inspect.cleandoc(SCRIPT))
    return tmp_path


def test_what_stands_behind_the_target_is_the_scripts(script: Path) -> None:
    """Also what looks like ours; what stands before it is ours."""
    mine = ["--steps=1", "-m", "--json", "x.json", "-h", "--", "--version", "-", ""]
    ran = command("doctor", "--steps", "3", "train.py", *mine, here=script)
    assert (ran.code, ran.out.decode()) == (0, f"{['train.py', *mine]}\n")
    assert (ran.facts["batches"], ran.facts["title"]) == (3, "train.py")
    ran = command("doctor", "--steps", "2", "-m", "train", *mine, here=script)
    assert ran.out.decode() == f"{[str(script / 'train.py'), *mine]}\n"
    assert (ran.facts["batches"], ran.facts["title"]) == (2, "-m train")


def test_files_are_written_where_asked(script: Path) -> None:
    """Though the script has left the folder; nothing else is."""
    options = ("--json", "a.json", "--html", "b.html", "--trace", "c.json")
    ran = command("doctor", *options, "train.py", here=script)
    assert (ran.code, ran.out.splitlines()[1:]) == (4, [b"trained"])
    names = [str(script / name) for name in ("a.json", "b.html", "c.json")]
    assert ran.err.splitlines()[-1] == "written: " + ", ".join(names)
    assert json.loads((script / "a.json").read_text()) == ran.facts
    assert (script / "b.html").read_text().startswith("<p>")
    assert (script / "c.json").read_text() == "[]"
    assert sorted(path.name for path in script.iterdir() if path.name != "__pycache__") == [
        "a.json",
        "b.html",
        "c.json",
        "elsewhere",
        "train.py",
    ]
    assert not any((script / "elsewhere").iterdir())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--json none/a.json", "none/a.json cannot be written: there is no folder "),
        ("--html .", ". cannot be written: it is a folder"),
        ("--steps 0", "`steps` must be above zero, got 0"),
        ("--seconds -1", "`seconds` must be above zero, got -1.0"),
    ],
)
def test_wrong_arguments_are_told_before_the_script_runs(
    options: str, words: str, script: Path
) -> None:
    """In a line, with the exit code of wrong usage."""
    ran = command("doctor", *options.split(), "train.py", here=script)
    assert (ran.code, ran.out) == (2, b"")
    assert ran.err.startswith(f"hotset: {words}")
    assert len(ran.err.splitlines()) == 1


def test_a_page_needs_matplotlib(
    script: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Said before the script runs."""
    monkeypatch.setattr("hotset.cli.doctor.find_spec", lambda name: None)
    for options in (["--html", str(script / "a.html")], ["--open"]):
        assert cli.main(["doctor", *options, str(script / "train.py")]) == cli.EXIT_USAGE
        out, error = capfd.readouterr()
        assert out == ""
        assert error.startswith("hotset: the page needs matplotlib, which draws its plots; install")


def test_a_target_is_needed(capsys: pytest.CaptureFixture[str]) -> None:
    """And help says how."""
    with pytest.raises(SystemExit, match=r"^2$"):
        cli.main(["doctor", "--steps", "3"])
    assert "usage: hotset doctor [options] [-m] TARGET [ARGUMENTS ...]" in capsys.readouterr().err
    with pytest.raises(SystemExit, match=r"^0$"):
        cli.main(["doctor", "--help"])
    words = " ".join(capsys.readouterr().out.split())
    assert "stop the script after N batches, of all loaders together (default: let it end)" in words


def test_the_page_is_opened(script: Path, tmp_path: Path) -> None:
    """In the browser that the environment names; the file is a temporary one."""
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {tmp_path}/opened\n')
    browser.chmod(0o755)
    places = {"TMPDIR": str(tmp_path), "BROWSER": f"{browser} %s"}
    ran = command("doctor", "--steps", "2", "--open", "train.py", here=script, **places)
    (page,) = tmp_path.glob("hotset-doctor-*.html")
    assert ran.err.splitlines()[-1] == f"written: {page}"
    assert (tmp_path / "opened").read_text() == f"{page.as_uri()}\n"
    assert page.read_text().startswith("<p>")


class Terminal:
    """Takes in what a terminal would."""

    def __init__(self) -> None:
        self.text = ""

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> None:
        self.text += text

    def flush(self) -> None:
        pass


def test_progress_is_seldom_and_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line that changes, so far as anybody watches; lines that stay come in its place."""
    now = [0.0]
    terminal = Terminal()
    monkeypatch.setattr("hotset.cli.doctor.time.monotonic", lambda: now[0])
    monkeypatch.setattr(
        "hotset.cli.doctor.Progress", lambda: Progress(terminal, clock=lambda: now[0])
    )
    shown = _Shown()
    assert shown.is_live
    shown.batches(1, 1000)
    shown.batches(2, 1000)
    assert terminal.text == "\rhotset: 1 of 1,000 batches\x1b[K"
    now[0] += UPDATE_EVERY_S
    shown.batches(1234, None)
    assert terminal.text.endswith("\rhotset: 1,234 batches\x1b[K")
    shown.say("over")
    assert terminal.text.endswith("\r\x1b[Khotset: over\n")
    shown.phase("looking")
    assert terminal.text.endswith("\rhotset: looking …\x1b[K")
    shown.clear()
    assert terminal.text.endswith("\r\x1b[K")


def test_a_script_is_examined_from_end_to_end(script: Path) -> None:
    """By what really measures and examines: the report is of the loop that ran."""
    options = ["--json", "a.json", "--html", "b.html", "--trace", "c.json"]
    ran = python("-m", "hotset", "doctor", *options, "train.py", here=script)
    assert (ran.code, ran.out.splitlines()[1:]) == (4, [b"trained"])
    found: dict[str, Any] = json.loads((script / "a.json").read_text())
    schema = Path(hotset.doctor.__file__).with_name("showing") / "report.schema.json"
    jsonschema.validate(found, json.loads(schema.read_text()))
    assert (found["title"], found["loop"]["batches"]) == ("train.py", 20)
    assert [epoch["batches"] for epoch in found["loop"]["epochs"]] == [10, 10]
    assert found["examination"]["facts"]["dataset"] == "Numbers"
    assert found["verdict"]["sentence"] in " ".join(ran.err.split())
    assert "Numbers" in (script / "b.html").read_text()
    json.loads((script / "c.json").read_text())
    assert "Traceback" not in ran.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--json", "train.py", "train.py"], "train.py would be the script itself: name another"),
        (["--json", "a", "--html", "a", "train.py"], "a would be two things at once: name another"),
        (["--device", "nowhere", "train.py"], "nowhere"),
    ],
)
def test_what_would_be_regretted_is_refused_before_the_script_runs(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: Any, capsys: Any
) -> None:
    """Files that overwrite something, devices that are not there."""
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("print('ran')")
    assert cli.main(["doctor", *arguments]) == cli.EXIT_USAGE
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err
    assert Path("train.py").read_text() == "print('ran')"
