"""Scripts that are run as Python runs them, and the hooks in torch's loaders."""

from __future__ import annotations

import inspect
import os
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset
from torch.utils.data.dataloader import _BaseDataLoaderIter, _SingleProcessDataLoaderIter

import hotset
from hotset.doctor.scripts.script import Stop, hooked
from tests.launched import command, python


class Counting:
    """Hooks that keep what they are called with, and stop after some batches."""

    def __init__(self, most: int = 1000) -> None:
        self.most = most
        self.loaders: list[Any] = []
        self.iterated: list[Any] = []
        self.taken = 0
        self.ends = 0

    def made(self, loader: Any) -> None:
        self.loaders.append(loader)

    def iterate(self, loader: Any, plain: Any) -> Any:
        self.iterated.append(loader)
        return plain()

    def take(self, iterator: Any, plain: Any) -> Any:
        if self.taken >= self.most:
            raise Stop
        try:
            batch = plain()
        except StopIteration:
            self.ends += 1
            raise
        self.taken += 1
        return batch


class Alike(DataLoader):
    """A loader that equals any other, has no hash, and gives more than it inherits."""

    __hash__ = None

    def __eq__(self, other: object) -> bool:
        return True

    def __iter__(self) -> Iterator[Any]:
        yield "first"
        yield from super().__iter__()


class Through(IterableDataset):
    """Samples that come through another loader."""

    def __init__(self, loader: Any) -> None:
        self.loader = loader

    def __iter__(self) -> Iterator[Any]:
        return iter(self.loader)


class Inner(Dataset):
    """Samples that say how often a worker's hooks were called for a loader of its own."""

    def __init__(self, hooks: Counting) -> None:
        self.hooks = hooks

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> int:
        list(DataLoader(numbers(2)))
        return self.hooks.taken + len(self.hooks.loaders)


def numbers(count: int) -> TensorDataset:
    """Samples that are their own index."""
    return TensorDataset(torch.arange(count))


def test_hooks_see_loaders_iterators_and_batches() -> None:
    """Each end is seen too; the types are what they were, and all is put back."""
    before = DataLoader.__init__, DataLoader.__iter__, _BaseDataLoaderIter.__next__
    signature = inspect.signature(DataLoader)
    hooks = Counting()
    with hooked(hooks):
        loader = DataLoader(numbers(6), batch_size=2)
        iterator = iter(loader)
        assert type(iterator) is _SingleProcessDataLoaderIter
        assert [batch[0].tolist() for batch in iterator] == [[0, 1], [2, 3], [4, 5]]
        assert inspect.signature(DataLoader) == signature
    assert (hooks.loaders, hooks.iterated) == ([loader], [loader])
    assert (hooks.taken, hooks.ends) == (3, 1)
    assert before == (DataLoader.__init__, DataLoader.__iter__, _BaseDataLoaderIter.__next__)
    assert len(list(loader)) == 3
    assert hooks.taken == 3


def test_subclasses_are_seen() -> None:
    """Where they call what they inherit; whatever they say they equal."""
    hooks = Counting()
    with hooked(hooks):
        loader = Alike(numbers(6), batch_size=2)
        assert len(list(loader)) == 4
    assert [type(each) for each in hooks.iterated] == [Alike]
    assert hooks.taken == 3


def test_what_a_batch_is_made_with_does_not_count() -> None:
    """A loader that another one reads from, in this process."""
    hooks = Counting()
    with hooked(hooks):
        inner = DataLoader(numbers(6), batch_size=2)
        outer = DataLoader(Through(inner), batch_size=None)
        assert len(list(outer)) == 3
        assert (hooks.iterated, hooks.taken, hooks.ends) == ([outer], 3, 1)
        assert len(list(inner)) == 3
    assert (hooks.iterated, hooks.taken) == ([outer, inner], 6)


def test_worker_processes_do_not_count() -> None:
    """Their own loaders are plain, though they have inherited the hooks."""
    hooks = Counting()
    with hooked(hooks):
        loader = DataLoader(Inner(hooks), num_workers=1, multiprocessing_context="fork")
        # One loader was made before the fork, and no batch taken.
        assert [batch.tolist() for batch in loader] == [[1]] * 4
    assert hooks.taken == 4


def test_loaders_of_hotset_do_not_count() -> None:
    """Those that it makes for itself."""
    hooks = Counting()
    with hooked(hooks):
        loader = DataLoader(numbers(6), batch_size=2)
        fast = hotset.accelerate(loader, device="cpu")
        assert len(list(fast)) == 3
    assert (hooks.loaders, hooks.iterated, hooks.taken) == ([loader], [], 0)


def test_a_stop_comes_out_of_the_loop() -> None:
    """And again, whenever a batch is asked for."""
    hooks = Counting(most=2)
    with hooked(hooks):
        iterator = iter(DataLoader(numbers(6), batch_size=2))
        next(iterator)
        next(iterator)
        for _ in range(2):
            with pytest.raises(Stop, match=r"^$"):
                next(iterator)


def test_torch_is_left_for_the_script_to_import(tmp_path: Path) -> None:
    """What it sets in the environment before that counts, and its loaders are seen nevertheless."""
    (tmp_path / "late.py").write_text(
        "import sys\nprint([name for name in ('torch', 'numpy', 'psutil') if name in sys.modules])"
        "\nimport torch\nfrom torch.utils.data import DataLoader\n"
        "list(DataLoader(torch.zeros(5)))\n"
    )
    ran = command("doctor", "late.py", here=tmp_path)
    assert (ran.code, ran.out) == (0, b"[]\n")
    assert ran.facts["batches"] == 5


SCRIPTS = {
    "names": """
        import sys, os
        print(sys.argv, __name__, __file__, __spec__, __package__, __doc__, __cached__, sys.path[0])
        print(sys.modules["__main__"].__dict__ is globals(), __builtins__, type(__loader__))
        class Kept: pass
        import pickle
        print(type(pickle.loads(pickle.dumps(Kept()))) is Kept)
    """,
    "exit": "import sys; print('before'); sys.exit()",
    "exit 3": "import sys; print('before'); sys.exit(3)",
    "exit true": "import sys; sys.exit(True)",
    "exit 259": "import sys; sys.exit(259)",
    "exit text": "import sys; sys.exit('no such data: \\u00e9')",
    "exit object": "raise SystemExit(['a', 1])",
    "syntax": "x = 1\ndef f(:\n    pass\n",
    "encoding": "# -*- coding: latin-1 -*-\nprint('\\u00e9'.encode('latin-1'))\n",
    "error": """
        def f(depth):
            if depth:
                f(depth - 1)
            else:
                raise ValueError("deep")
        try:
            f(2)
        except ValueError as error:
            raise KeyError("outer") from error
    """,
    "group": "raise ExceptionGroup('both', [ValueError(1), TypeError(2)])",
    "hook": """
        import sys
        sys.excepthook = lambda kind, error, trace: print("mine", kind, trace.tb_lineno)
        raise ValueError("seen by the hook")
    """,
    "broken hook": """
        import sys
        def hook(kind, error, trace):
            raise TypeError("in the hook")
        sys.excepthook = hook
        raise ValueError("in the script")
    """,
    "leaving hook": """
        import sys
        sys.excepthook = lambda *_: sys.exit(5)
        raise ValueError("in the script")
    """,
    "threads": """
        import atexit, threading, time
        from concurrent.futures import ThreadPoolExecutor
        def later():
            time.sleep(0.2)
            print("thread")
        pool = ThreadPoolExecutor(1)
        pool.submit(print, "pool").result()
        atexit.register(print, "at exit")
        threading.Thread(target=later).start()
        print("main")
    """,
    "failing thread": """
        import threading
        def fail():
            raise ValueError("in a thread")
        thread = threading.Thread(target=fail)
        thread.start()
        thread.join()
        print("on")
    """,
    "bytes": "import sys; sys.stdout.buffer.write(bytes(range(256))); sys.stdout.write('\\r\\n')",
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_scripts_run_as_python_runs_them(name: str, tmp_path: Path) -> None:
    """Output byte for byte, tracebacks word for word, exit codes; ours is one line at the end."""
    text = inspect.cleandoc(SCRIPTS[name]).encode("latin-1" if name == "encoding" else "utf-8")
    (tmp_path / "script.py").write_bytes(text)
    arguments = ("./script.py", "--steps", "3", "-m", "-h", "--", "--json=x", "")
    plain = python(*arguments, here=tmp_path)
    ran = command("doctor", *arguments, here=tmp_path)
    assert (ran.code, ran.out) == (plain.code, plain.out)
    lines = ran.err.splitlines()
    ours = [line for line in lines if line.startswith("hotset: ")]
    assert [line for line in lines if line not in ours] == plain.err.splitlines()
    assert len(ours) == 1
    assert ours[0].startswith("hotset: no report: the script made no torch DataLoader")
    assert sorted(os.listdir(tmp_path)) == ["script.py"]


def test_a_deep_traceback_is_shown(tmp_path: Path) -> None:
    """A few calls of ours less deep than Python's."""
    (tmp_path / "script.py").write_text("def f(): f()\nf()\n")
    plain = python("script.py", here=tmp_path)
    ran = command("doctor", "script.py", here=tmp_path)
    assert ran.code == plain.code == 1
    shown = [line for line in ran.err.splitlines() if "repeated" not in line]
    assert shown[:-1] == [line for line in plain.err.splitlines() if "repeated" not in line]


def test_an_interrupt_is_passed_on(tmp_path: Path) -> None:
    """As the code that shells give it."""
    (tmp_path / "script.py").write_text("print('on')\nraise KeyboardInterrupt\n")
    plain = python("script.py", here=tmp_path)
    ran = command("doctor", "script.py", here=tmp_path)
    assert (ran.code, ran.out) == (130, b"on\n")
    assert ran.err.startswith(plain.err)


def test_modules_packages_folders_and_zip_files_run(tmp_path: Path) -> None:
    """With the names that Python gives them, and their packages imported first."""
    text = (
        "import sys\nprint(sys.argv, __name__, __file__, __package__, sys.path[0], __cached__)\n"
        "print(__spec__.name, type(__loader__).__name__)\n"
    )
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("import sys\nprint('package', sys.argv)\n")
    (package / "__main__.py").write_text(text + "from . import part\n")
    (package / "part.py").write_text(text)
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as file:
        file.writestr("__main__.py", text)
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "__main__.py").write_text(text)
    for arguments in (
        ("-m", "package", "a"),
        ("-m", "package.part", "-m"),
        ("folder", "--x"),
        ("all.zip",),
    ):
        plain = python(*arguments, here=tmp_path)
        ran = command("doctor", *arguments, here=tmp_path)
        assert (plain.code, ran.code) == (0, 0)
        assert ran.out == plain.out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("none.py", "there is no script 'none.py'; `-m` in front of it runs a module"),
        ("empty", "there is no __main__.py in 'empty', so there is nothing to run"),
        ("-m none.at.all", "there is no module 'none.at.all' here, nor where Python looks"),
        ("-m empty", "'empty' is a package and has no __main__ that could be run"),
        ("-m .part", "expected a module's name like package.module, got '.part'"),
        ("-m sys", "'sys' has no Python code that could be run"),
    ],
)
def test_what_is_not_there_is_told_in_a_line(arguments: str, words: str, tmp_path: Path) -> None:
    """With the exit code of wrong usage."""
    (tmp_path / "empty").mkdir()
    ran = command("doctor", *arguments.split(), here=tmp_path)
    assert (ran.code, ran.out) == (2, b"")
    assert ran.err.startswith(f"hotset: {words}")
    assert len(ran.err.splitlines()) == 1


def test_what_a_module_lacks_is_its_own_error(tmp_path: Path) -> None:
    """A package that imports what is not there was found itself."""
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("import not_there_at_all\n")
    (tmp_path / "package" / "__main__.py").write_text("")
    ran = command("doctor", "-m", "package", here=tmp_path)
    assert ran.code == 1
    assert "ModuleNotFoundError: No module named 'not_there_at_all'" in ran.err
    assert "hotset" + os.sep + "doctor" not in ran.err
