"""`hotset build`, `inspect` and `verify`: what is parsed, what is printed, and the exit codes."""

from __future__ import annotations

import builtins
import json
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest
from PIL import Image

import hotset
from hotset import cli
from hotset.errors import SampleError
from hotset.placement.size import human_bytes

MODULE = """
import os
import signal
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import Compose


class Numbers(Dataset[Any]):
    def __init__(self, length=40, transform=None, broken=()):
        self.length, self.transform, self.broken = length, transform, broken

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        if index in self.broken:
            raise OSError("image file is truncated")
        value = torch.full((3, 4, 4), index, dtype=torch.uint8)
        return value if self.transform is None else self.transform(value), "x" * (index % 3)


def noisy(x):
    return x + torch.rand(())


def half(x):
    return x.float() / 2


def flipped(x):
    return x.flip(-1)


train_set = Numbers()
transformed = Numbers(transform=Compose([flipped, noisy, half]))
tabled = Numbers(transform=Compose([flipped, half]))
broken = Numbers(broken=(7, 9))
loader = DataLoader(Numbers(), batch_size=4)
arrays = (torch.zeros(5, 2), np.arange(5))
nothing_like_it = 5


class Once(list):
    def __reduce__(self):  # what it holds is not part of what a store is made from
        return Once, ()


class Interrupted(Numbers):
    def __init__(self):
        super().__init__()
        self.signals = Once([signal.SIGINT])

    def __getitem__(self, index):
        if index == 20 and self.signals:
            os.kill(os.getpid(), self.signals.pop())
        return super().__getitem__(index)


interrupted = Interrupted()


def make():
    return Numbers(30)


def chunks():
    yield from range(5)


def of_a_root(root, *, split, seed=0):
    return Numbers()


def forgets():
    Numbers()


def fails():
    raise FileNotFoundError("no such root")
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A current directory with a module, which is forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "mydata.py").write_text(MODULE)
    (tmp_path / "pieces").mkdir()
    (tmp_path / "pieces" / "__init__.py").write_text("")
    (tmp_path / "pieces" / "needy.py").write_text("import no_such_package\n")
    (tmp_path / "pieces" / "script.py").write_text("import sys\nsys.exit(3)\n")
    (tmp_path / "pieces" / "wrong.py").write_text("1 / 0\n")
    before = set(sys.modules)
    # A shell starts what runs in the background with Ctrl-C ignored.
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield tmp_path
    signal.signal(signal.SIGINT, handler)
    for name in set(sys.modules) - before:
        if name.partition(".")[0] in ("mydata", "pieces"):
            del sys.modules[name]


def run(line: str, code: int, capsys: pytest.CaptureFixture[str]) -> tuple[str, str]:
    """Runs a command; gives what it printed, without the seconds."""
    assert cli.main(line.split()) == code
    out, err = capsys.readouterr()
    return re.sub(r"in \d+\.\d s(, [\d.,]+ samples/s)?", "in … s", out), err


def images(folder: Path, count: int = 3) -> None:
    """Two classes of small pictures."""
    for name in ("cats", "dogs"):
        (folder / name).mkdir(parents=True)
        for number in range(count):
            pixels = np.full((20 + number, 30, 3), 40 * number, np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{number}.png")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("train_set", "40 samples, "),
        ("loader", "40 samples, "),
        ("make", "30 samples, "),
        ("Numbers", "40 samples, "),
        ("arrays", "5 samples, "),
    ],
)
def test_build_takes_data_and_what_makes_it(
    name: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A dataset, a loader, arrays, a function and a class; from the current directory."""
    out, err = run(f"build mydata:{name} a.hotset --workers 0", 0, capsys)
    assert out.startswith(f"a.hotset: {said}")
    assert err == ""
    assert len(hotset.open("a.hotset")) == int(said.split()[0])


@pytest.mark.parametrize(
    ("name", "steps"),
    [
        (
            "transformed",
            "  once  flipped\n  left  noisy, half; give them to the loader, as `transform`\n",
        ),
        ("tabled", "  once      flipped\n  by table  half, when read\n"),
        ("train_set", "  steps  none\n"),
    ],
)
def test_build_says_what_was_done(
    name: str, steps: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where, how many, how quickly, and what became of each step."""
    out, _ = run(f"build mydata:{name} a.hotset", 0, capsys)
    size = human_bytes(hotset.open("a.hotset").nbytes)
    head, read, rest = out.split("\n", 2)
    assert (head, read.split()[1:], rest) == (
        f"a.hotset: 40 samples, {size}",
        ["40", "samples", "in", "…", "s"],
        steps,
    )
    assert read.startswith("  read  ")
    out, _ = run(f"build mydata:{name} a.hotset", 0, capsys)
    assert re.search(r"\n  read +nothing: the store was there already, made from the same\n", out)


def test_build_says_what_was_given_up(capsys: pytest.CaptureFixture[str]) -> None:
    """Each sample with its reason, or its stand-in; where it stops, how to go on."""
    _, err = run("build mydata:broken a.hotset", cli.EXIT_FAILED, capsys)
    assert err == (
        "hotset: Numbers failed at index 7: OSError: image file is truncated; `--on-error skip` "
        "leaves such samples out, `--on-error substitute` puts the next one in their place\n"
    )
    out, _ = run("build mydata:broken b.hotset --on-error skip", 0, capsys)
    assert out.splitlines()[3:] == [
        "  skipped, 2  Numbers failed at index 7: OSError: image file is truncated",
        "              Numbers failed at index 9: OSError: image file is truncated",
    ]
    out, _ = run("build mydata:broken c.hotset --on-error substitute", 0, capsys)
    assert out.splitlines()[3:] == ["  substituted, 2  7 by 8", "                  9 by 10"]


def test_a_stale_store_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """Not a warning with a line of source code."""
    run("build mydata:make a.hotset --version 1", 0, capsys)
    out, err = run("build mydata:make a.hotset --version 2", 0, capsys)
    told = r"hotset: .*a\.hotset was made from other data \(version: was 1, is 2\); [^\n]*\n"
    assert re.fullmatch(told, err)
    assert re.match(r"a-[0-9a-f]{12}\.hotset: 30 samples", out)


def test_options_of_build_reach_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each under its name, also between the two places."""
    seen: list[Any] = []

    def build(*args: Any, progress: Any, **options: Any) -> NoReturn:
        seen.append((args[1], options))
        raise SampleError("enough")

    monkeypatch.setattr(hotset, "build", build, raising=False)
    line = "build mydata:make --workers 3 --on-error skip --version v --source content out.hotset"
    run(line, cli.EXIT_FAILED, capsys)
    run("build mydata:make out.hotset", cli.EXIT_FAILED, capsys)
    names = ("workers", "on_error", "version", "source")
    assert seen == [
        (Path("out.hotset"), dict(zip(names, (3, "skip", "v", "content"), strict=True))),
        (Path("out.hotset"), dict(zip(names, (None, "raise", None, "stat"), strict=True))),
    ]


def test_ctrl_c_says_that_it_goes_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With how far it was, where anything was written."""
    told: list[tuple[int, int | None]] = []

    def build(*args: Any, progress: Any, **options: Any) -> NoReturn:
        for state in told:
            progress(*state)
        raise KeyboardInterrupt

    monkeypatch.setattr(hotset, "build", build, raising=False)
    _, err = run("build mydata:make a.hotset", 130, capsys)
    assert err == "hotset: interrupted before anything was written\n"
    told[:] = [(0, 30_000), (1200, 30_000)]
    _, err = run("build mydata:make a.hotset", 130, capsys)
    assert err == (
        "hotset: interrupted after 1,200 of 30,000 samples; the same command goes on from there\n"
    )
    told[:] = [(7, None)]
    _, err = run("build mydata:make a.hotset", 130, capsys)
    assert err == "hotset: interrupted after 7 samples; the same command goes on from there\n"


def test_building_goes_on_after_ctrl_c(capsys: pytest.CaptureFixture[str]) -> None:
    """With what was written; the rest is read."""
    _, err = run("build mydata:interrupted a.hotset --workers 0", 130, capsys)
    assert err == (
        "hotset: interrupted after 8 of 40 samples; the same command goes on from there\n"
    )
    out, err = run("build mydata:interrupted a.hotset --workers 0", 0, capsys)
    assert err == ""
    assert out.splitlines()[1:3] == [
        "  read   32 samples in … s",
        "         8 more were there from before",
    ]
    assert err == ""
    assert [int(x[0, 0, 0]) for x, _ in hotset.open("a.hotset")] == list(range(40))


def test_what_was_there_before_is_told_apart(capsys: pytest.CaptureFixture[str]) -> None:
    """A building that goes on says what it read itself."""
    run("build mydata:broken a.hotset --workers 0", cli.EXIT_FAILED, capsys)
    out, _ = run("build mydata:broken a.hotset --workers 0 --on-error skip", 0, capsys)
    assert out.splitlines()[1:3] == [
        "  read        33 samples in … s",
        "              7 more were there from before",
    ]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("mydata", "expected PKG.MOD:NAME, .*, got 'mydata'; write it as mydata:train_set"),
        ("a/mydata.py", "write it as a.mydata:train_set"),
        (":make", "write it as package.module:make"),
        ("mydata:mak", "mydata has no 'mak'; did you mean make"),
        ("mydata:zzz", "mydata has no 'zzz'; there is Numbers, train_set, .*, make, "),
        ("mydata:make.zzz", "mydata.make has no 'zzz'$"),
        ("pieces:zzz", "pieces has no 'zzz'; there is no dataset, nor a function that could make"),
        ("mydat:make", "there is no module 'mydat', .*; did you mean mydata"),
        ("pieces.neddy:x", "there is no module 'pieces.neddy', .*; did you mean pieces.needy"),
        ("mydata.py:make", "there is no module 'mydata.py', .*; name the module, not the file: my"),
        ("a/mydata.py:make", "no module 'a/mydata.py'; name the module, not the file: a.mydata$"),
        ("./mydata.py:make", "no module './mydata.py'; name the module, not the file: mydata$"),
        ("../../t7.py:DS", r"no module '../../t7.py'; go to ../.., and name the module, .*: t7$"),
        ("/data/t7.py:DS", "go to /data, and name the module, not the file: t7$"),
        ("pieces.needy:x", "pieces.needy cannot be imported: it needs no_such_package, which is"),
        (
            "pieces.script:x",
            'pieces.script cannot be imported: it ends the program; put what .* "__',
        ),
        ("pieces.wrong:x", "pieces.wrong cannot be imported: ZeroDivisionError: division by zero"),
        ("mydata:of_a_root", r"mydata:of_a_root needs arguments \(root, split\); name a dataset, "),
        ("mydata:forgets", r"mydata:forgets\(\) returned None; it must return a dataset"),
        ("mydata:fails", r"mydata:fails\(\) failed: FileNotFoundError: no such root"),
        ("mydata:nothing_like_it", "expected a dataset .*; got one of type int"),
        ("mydata:chunks", 'a generator .* cannot be keyed; pass version="…"'),
    ],
)
def test_a_wrong_name_is_told_what_is_there(
    name: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """In one line, with the exit code of what the user can mend."""
    out, err = run(f"build {name} a.hotset", cli.EXIT_USAGE, capsys)
    assert out == ""
    assert err.count("\n") == 1
    assert re.search(message, err), err


def test_long_lists_of_names_are_cut(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """After a dozen."""
    (here / "pieces" / "many.py").write_text("\n".join(f"set_{n} = [{n}]" for n in range(30)))
    _, err = run("build pieces.many:zzz a.hotset", cli.EXIT_USAGE, capsys)
    assert err.endswith("set_10, set_11 and 18 more\n")


def test_a_folder_of_images_is_built(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With the shorter side as long as wanted."""
    images(here / "photos")
    out, _ = run("build --image-folder photos a.hotset", 0, capsys)
    assert out.splitlines()[0].startswith("a.hotset: 6 samples")
    assert [(x.size, y) for x, y in hotset.open("a.hotset")] == [
        ((30, 20 + n), y) for y in range(2) for n in range(3)
    ]
    run("build --resize 10 b.hotset --image-folder=photos", 0, capsys)
    assert [x.size for x, _ in hotset.open("b.hotset")][:3] == [(15, 10), (14, 10), (13, 10)]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--image-folder nowhere a.hotset", "there is no folder nowhere"),
        ("--image-folder pieces a.hotset", "pieces must hold one folder of images for each class"),
        ("--image-folder pieces a.hotset --resize 0", "`--resize` must be 1 or more pixels, got 0"),
        ("mydata:make a.hotset --resize 9", "`--resize` is for `--image-folder`; a dataset has"),
    ],
)
def test_a_wrong_folder_is_refused(
    line: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """In one line."""
    _, err = run(f"build {line}", cli.EXIT_USAGE, capsys)
    assert err.startswith(f"hotset: {message}")
    assert err.count("\n") == 1


def test_images_need_torchvision(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The error names the extra."""
    usual = builtins.__import__

    def without(name: str, *args: Any, **options: Any) -> Any:
        if name.startswith("torchvision"):
            raise ImportError(name)
        return usual(name, *args, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    _, err = run("build --image-folder pieces a.hotset", cli.EXIT_USAGE, capsys)
    assert err == (
        "hotset: `--image-folder` reads images with torchvision: pip install 'hotset[vision]'\n"
    )


def test_build_needs_a_place(capsys: pytest.CaptureFixture[str]) -> None:
    """The usage shows both ways."""
    with pytest.raises(SystemExit) as stop:
        cli.main(["build", "mydata:make"])
    assert stop.value.code == cli.EXIT_USAGE
    err = capsys.readouterr().err
    assert "hotset build --image-folder DIR OUT" in err
    assert "the following arguments are required: OUT" in err


def test_inspect_shows_a_store(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Fields aligned; no column without content."""
    images(here / "photos")
    run("build --image-folder photos a.hotset", 0, capsys)
    out, err = run("inspect a.hotset", 0, capsys)
    lines = out.splitlines()
    assert lines[:5] == [
        "a.hotset: 6 samples, 12.0 KB",
        "",
        "  field    kind     dtype  shape           mean         size",
        "  image_0  PIL RGB  uint8  3 x 20-22 x 30  3 x 21 x 30  11.8 KB",
        "  int_1    int      int64  -                            176 bytes",
    ]
    assert lines[6:8] == ["made", "  dataset  ImageFolder"]
    assert re.fullmatch(r"  when     \d{4}-\d\d-\d\d .*, by hotset .*, in … s", lines[9])
    digest = hotset.open("a.hotset").manifest.fingerprint["digest"]
    assert lines[11:13] == ["fingerprint", f"  digest       {digest}"]
    assert err == ""
    assert all(line == line.rstrip() for line in lines)


def test_inspect_gives_json(capsys: pytest.CaptureFixture[str]) -> None:
    """With everything, and nothing else."""
    run("build mydata:arrays a.hotset", 0, capsys)
    out, _ = run("inspect a.hotset --json", 0, capsys)
    found = json.loads(out)
    assert set(found) == {
        "path", "samples", "bytes", "format", "fields", "files", "fingerprint", "made"
    }  # fmt: skip
    assert [field["shape"] for field in found["fields"]] == [[2], []]
    assert sum(found["files"].values()) == found["bytes"]


@pytest.mark.parametrize("command", ["inspect", "verify"])
def test_a_store_must_be_there(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """In one line."""
    _, err = run(f"{command} none.hotset", cli.EXIT_USAGE, capsys)
    assert err == "hotset: there is no store at none.hotset\n"


def damage(file: str) -> None:
    """Changes the last byte of a file."""
    values = bytearray(Path(file).read_bytes())
    values[-1] ^= 1
    Path(file).write_bytes(values)


def test_verify_names_damage_and_repairs_it(capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 1 is for damage."""
    run("build mydata:make a.hotset", 0, capsys)
    size = f"30 samples, {human_bytes(hotset.open('a.hotset').nbytes)}"
    whole = (f"a.hotset is whole: {size}\n", "")
    assert run("verify a.hotset", 0, capsys) == whole
    assert run("verify a.hotset --repair mydata:make", 0, capsys) == whole
    damage("a.hotset/tensor_0.npy")
    damage("a.hotset/str_1.index.npy")
    blocks = (
        "  tensor_0.npy, block 0: samples 0 to 29\n  str_1.index.npy, block 0: samples 0 to 29\n"
    )
    out, err = run("verify a.hotset", cli.EXIT_FAILED, capsys)
    assert out == (
        f"a.hotset is damaged: 2 blocks of {size}\n{blocks}`--repair PKG.MOD:NAME` or "
        "`--image-folder DIR` makes them again from what the store was built from\n"
    )
    assert err == ""
    _, err = run("verify a.hotset --repair mydata:train_set", cli.EXIT_USAGE, capsys)
    assert err.startswith("hotset: the store was built from other data (source: was Numbers: 30 ")
    out, _ = run("verify a.hotset --repair mydata:make", 0, capsys)
    assert out == f"a.hotset was damaged, and is whole again: 2 blocks of {size}\n{blocks}"
    assert run("verify a.hotset", 0, capsys) == whole


def test_verify_repairs_from_a_folder(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of the same images, made as large."""
    images(here / "photos")
    run("build --image-folder photos --resize 10 a.hotset", 0, capsys)
    damage("a.hotset/image_0.data.npy")
    _, err = run("verify a.hotset --image-folder photos", cli.EXIT_USAGE, capsys)
    assert "step 1 is gone: was Resize(size=10" in err
    out, _ = run("verify a.hotset --image-folder photos --resize 10", 0, capsys)
    assert out.startswith("a.hotset was damaged, and is whole again: 1 block of 6 samples")


def test_a_damaged_manifest_is_damage(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing can be said of the rest then."""
    run("build mydata:make a.hotset", 0, capsys)
    damage("a.hotset/manifest.json")
    _, err = run("verify a.hotset", cli.EXIT_FAILED, capsys)
    assert re.fullmatch(r"hotset: .*manifest.*; build the store again\n", err)
