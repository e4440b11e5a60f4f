"""The README's examples are run, and print what the README says they print."""

import contextlib
import io
import re
import sys
import types
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def _examples(name: str) -> list[tuple[str, str | None]]:
    """Each python block of a page, and the text block right behind it, which is its output."""
    page = (ROOT / name).read_text(encoding="utf-8")
    blocks = [(m[1], m[2], m.start(), m.end()) for m in BLOCK.finditer(page)]
    examples: list[tuple[str, str | None]] = []
    for number, (language, code, _, end) in enumerate(blocks):
        if language != "python":
            continue
        following = blocks[number + 1] if number + 1 < len(blocks) else None
        is_output = (
            following is not None
            and following[0] == "text"
            and not page[end : following[2]].strip()
        )
        examples.append((code, following[1] if is_output and following else None))
    return examples


@pytest.mark.parametrize("name", ["README.md", "README.zh-CN.md"])
def test_examples_print_what_the_readme_says(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every python block runs, one after the other, and prints the text block behind it."""
    monkeypatch.chdir(tmp_path)
    # Worker processes and pickling look names up in the module that runs.
    module = types.ModuleType("readme_examples")
    monkeypatch.setitem(sys.modules, "readme_examples", module)
    examples = _examples(name)
    assert len(examples) >= 3
    assert any(output for _, output in examples)
    for code, output in examples:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, name, "exec"), module.__dict__)
        if output is not None:
            assert printed.getvalue().strip() == output.strip()


def test_both_languages_show_the_same_code() -> None:
    """The Chinese page has the English page's code and output, to the letter."""
    assert _examples("README.md") == _examples("README.zh-CN.md")
