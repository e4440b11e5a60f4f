"""Parts of a page: whatever anybody's words are, they stay text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from hotset.doctor.phrases import shown


def as_text(text: str) -> str:
    """Text of anybody's, as text of the page."""
    return escape(shown(text))


def as_code(code: str) -> str:
    """Code with its lines as they are; nothing where there is none."""
    lines = "\n".join(as_text(line) for line in code.splitlines())
    return f"<pre><code>{lines}</code></pre>" if lines else ""


def as_key(colours: Sequence[tuple[str, str]]) -> str:
    """What each colour means."""
    swatches = "".join(
        f'<span><i style="background:var(--{colour})"></i>{as_text(meaning)}</span>'
        for colour, meaning in colours
    )
    return f'<div class="key">{swatches}</div>'


def as_facts(found: Iterable[tuple[str, str]]) -> str:
    """A table of what something is, and its figures."""
    lines = "".join(f"<tr><th>{as_text(a)}</th><td>{as_text(b)}</td></tr>" for a, b in found)
    return f'<table class="facts"><tbody>{lines}</tbody></table>'


def as_table(
    first: str,
    names: Sequence[str],
    lines: Sequence[tuple[str, Sequence[str]]],
    *,
    marked: Sequence[bool] = (),
    mark: str = "",
    reasons: Sequence[str] = (),
) -> str:
    """A table of figures.

    Args:
        first: what the first column holds.
        names: of the others.
        lines: the first cell, and the others.
        marked: lines that are set off; none where empty.
        mark: the class of those.
        reasons: what is said below each line; nothing where empty.
    """
    head = "".join(f"<th>{as_text(name)}</th>" for name in (first, *names))
    body = []
    for number, (name, cells) in enumerate(lines):
        kind = f' class="{mark}"' if marked and marked[number] else ""
        figures = "".join(f"<td>{as_text(cell)}</td>" for cell in cells)
        body.append(f"<tr{kind}><th>{as_text(name)}</th>{figures}</tr>")
        if reasons and reasons[number]:
            why = f'<td colspan="{len(names) + 1}"><div>{as_text(reasons[number])}</div></td>'
            body.append(f'<tr class="why">{why}</tr>')
    return (
        f'<div class="scroll"><table class="numbers"><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(body)}</tbody></table></div>"
    )
