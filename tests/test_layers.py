"""The shape of the package: what an import loads, how modules are named and how long they are."""

import statistics
import subprocess
import sys
from pathlib import Path

import hotset

PACKAGE = Path(hotset.__file__).parent
MODULES = sorted(PACKAGE.rglob("*.py"))

LOADED_LATE = {"matplotlib", "mlxtend", "numba", "PIL", "skimage", "torchvision", "triton"}
NAMES_THAT_SAY_NOTHING = {"base", "common", "helpers", "manager", "misc", "utils"}
MOST_LINES = 500
MEDIAN_LINES = 200


def _in_fresh_python(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=100
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def _lines(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def test_import_loads_no_optional_library() -> None:
    """`import hotset` loads none of the heavy libraries, unless `import torch` has done so."""
    code = """
        import sys, torch
        before = set(sys.modules)
        import hotset
        print(*{name.partition(".")[0] for name in set(sys.modules) - before})
    """
    loaded = set(_in_fresh_python("\n".join(map(str.strip, code.splitlines()))).split())
    assert not loaded & LOADED_LATE


def test_import_starts_nothing() -> None:
    """`import hotset` starts no thread and no CUDA context, and leaves torch's generator alone."""
    code = """
        import threading, torch
        threads, state = threading.active_count(), torch.random.get_rng_state()
        import hotset
        assert threading.active_count() == threads, threading.enumerate()
        assert torch.equal(torch.random.get_rng_state(), state)
        assert not torch.cuda.is_initialized()
    """
    _in_fresh_python("\n".join(map(str.strip, code.splitlines())))


def test_package_is_marked_as_typed() -> None:
    """A checker reads hotset's annotations only if the package carries `py.typed`."""
    assert (PACKAGE / "py.typed").is_file()


def test_module_names_say_what_is_inside() -> None:
    """No module bears a name that anything could be filed under."""
    named = {part for path in MODULES for part in path.relative_to(PACKAGE).with_suffix("").parts}
    assert not named & NAMES_THAT_SAY_NOTHING


def test_modules_stay_short() -> None:
    """No module is longer than 500 lines, and half of them are shorter than 200."""
    lengths = {str(path.relative_to(PACKAGE)): _lines(path) for path in MODULES}
    too_long = {name: length for name, length in lengths.items() if length > MOST_LINES}
    assert not too_long
    assert statistics.median(lengths.values()) <= MEDIAN_LINES
