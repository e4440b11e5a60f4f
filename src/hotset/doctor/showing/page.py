"""A report as one page that needs nothing else: no script, no font, no network."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape
from importlib.util import find_spec
from typing import TYPE_CHECKING

from hotset.doctor.findings import Advice, Trap
from hotset.doctor.phrases import (
    counted,
    ended,
    gain_in_words,
    per_second,
    percent,
    sentence,
    shown,
    times_as,
)
from hotset.doctor.showing import plots, rows
from hotset.doctor.showing.markup import as_code, as_facts, as_key, as_table, as_text
from hotset.drawing import document
from hotset.errors import MissingExtraError
from hotset.placement.duration import human_ms
from hotset.placement.plan import CUT_COLUMNS, Plan, cells_of

if TYPE_CHECKING:
    from hotset.doctor.machine.usage import Usage
    from hotset.doctor.report import Report

STYLE = """
.hero { display: flex; flex-wrap: wrap; gap: .5rem 1.5rem; align-items: center;
  margin: 1.5rem 0 1rem; }
.hero strong { font-size: clamp(3rem, 11vw, 5rem); line-height: 1; white-space: nowrap; }
.hero p { flex: 1 1 18rem; font-size: 1.15rem; overflow-wrap: anywhere; }
.share { display: flex; height: 1.1rem; border-radius: .3rem; overflow: hidden; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 15rem), 1fr));
  gap: 1rem; margin-top: 1rem; }
.tiles b { display: block; font-size: 1.7rem; line-height: 1.2; }
.card { overflow-wrap: anywhere; }
.warn { border-left: .3rem solid var(--wait); }
.good { border-left: .3rem solid var(--hotset); }
.wide { grid-column: 1 / -1; }
.wide svg { max-width: none; }
.narrow { display: none; }
.card > .gain { float: right; margin-left: 1rem; font-weight: 600; color: var(--hotset); }
pre { margin: .6rem 0 0; padding: .6rem .75rem; overflow-x: auto; border-radius: .4rem;
  background: var(--paper); font-size: .95rem; line-height: 1.4; }
details { margin-top: .5rem; } summary { color: var(--soft); cursor: pointer; font-size: .9rem; }
.facts th { color: var(--soft); font-weight: 400; white-space: nowrap; }
.facts td { overflow-wrap: anywhere; }
.lowest th, .lowest td { color: var(--wait); }
.kept th { color: var(--hotset); }
.numbers .why td { text-align: left; white-space: normal; border: 0; padding-top: 0;
  color: var(--soft); }
.why div { position: sticky; left: 0; max-width: calc(100vw - 2.5rem); }
.numbers tbody th { overflow-wrap: anywhere; min-width: 7rem; }
h3 + .scroll { margin-top: .25rem; }
footer { margin-top: 2.5rem; overflow-wrap: anywhere; }
@media (max-width: 34rem) {
  .broad { display: none; } .narrow { display: block; }
  .card > .gain { float: none; margin: 0; }
  .numbers { font-size: .78rem; } .numbers th, .numbers td { padding-right: .45rem; }
  .numbers thead th { white-space: normal; } .numbers tbody th { min-width: 6.5rem; }
  .facts tr { display: block; padding: .3rem 0; border-top: 1px solid var(--faint); }
  .facts th, .facts td { display: block; border: 0; padding: 0; }
  .plan thead { display: none; } .plan tr { display: flex; flex-wrap: wrap; gap: 0 .75rem;
    padding: .4rem 0; border-top: 1px solid var(--faint); }
  .plan th, .plan td { border: 0; padding: 0; } .plan td:last-child { flex-basis: 100%; } }
"""
COLOURS = {
    "data-bound": "wait",
    "copy-bound": "wait",
    "compute-bound": "hotset",
    "balanced": "hotset",
    "inconclusive": "soft",
}
"""Of the figure at the top."""
MOST_EPOCHS = 12
"""More than so many are left out of the table, all but the first ones."""


def as_page(report: Report) -> str:
    """The report as an HTML page with its style and its plots inside.

    Raises:
        MissingExtraError: without matplotlib, which draws the plots.
    """
    if find_spec("matplotlib") is None:
        raise MissingExtraError(
            "the page needs matplotlib, which draws its plots: pip install 'hotset[doctor]'"
        )
    return document(
        f"hotset doctor: {shown(report.title)}",
        STYLE,
        [
            *_top(report),
            *_advice(report),
            *_traps(rows.traps_in_order(report)),
            *_pictures(report),
            *_plan(report),
            *_more(report),
            *_foot(report),
        ],
    )


def _top(report: Report) -> Iterator[str]:
    loop, verdict = report.loop, report.verdict
    yield f"<h1>hotset doctor: {as_text(report.title)}</h1>"
    yield f'<p class="soft">{as_text(rows.loader_in_words(report))}</p>'
    colour = COLOURS[verdict.bound]
    what = "the device stands still" if loop.is_device_seen else "is waiting for data"
    yield (
        f'<div class="hero"><strong style="color:var(--{colour})">{percent(loop.wait_share)}'
        f"</strong><p>of the time {what}. <b>{as_text(rows.bound_in_words(report))}:</b> "
        f"{as_text(ended(verdict.sentence))}</p></div>"
    )
    yield from _shares(report)
    yield '<div class="tiles">'
    if math.isfinite(report.gain.value):
        range_ = gain_in_words(report.gain).partition(" ")[2]
        words = f"is the most there is to gain, if data took no time at all {range_}"
        yield _tile(times_as(report.gain.value), words.strip())
    if report.advice and rows.gain_of(report.advice[0]):
        first = report.advice[0]
        most = "at most " if first.is_most else ""
        yield _tile(f"{most}{times_as(first.gain.value)}", f"is predicted for: {first.title}")
    elif rows.is_only_left(report):
        yield _tile("Leave it", "is the advice: there is too little to gain")
    ceiling = ""
    for stage in report.stages:
        if stage.is_lowest:
            which = rows.lowest_in_words(stage, report.stages)
            rate = per_second(stage.samples_per_s)
            ceiling = f"; {which} ceiling is that of {stage.name}, {rate}"
    words = f"{rows.unit(report)} all in all{ceiling}"
    yield _tile(per_second(loop.samples_per_s), words)
    yield "</div>"


def _tile(figure: str, words: str) -> str:
    return f'<div class="card"><b>{as_text(figure)}</b>{as_text(words)}</div>'


def _shares(report: Report) -> Iterator[str]:
    """A bar of where the time goes."""
    loop = report.loop
    parts = [
        ("wait", "waiting, steady", loop.wait_ms),
        ("fill", "epoch starts", loop.start_share_ms),
        ("step", "step", loop.step_ms),
    ]
    if loop.loop_ms <= 0:
        return
    yield '<div class="share">' + "".join(
        f'<i style="flex:{ms / loop.loop_ms:.5f};background:var(--{colour})"></i>'
        for colour, _, ms in parts
    )
    yield "</div>"
    yield as_key([(colour, f"{name} {human_ms(ms)} a batch") for colour, name, ms in parts])


def _advice(report: Report) -> Iterator[str]:
    if not report.advice:
        return
    yield '<h2>What to do</h2><div class="cards">'
    for number, each in enumerate(report.advice, 1):
        yield from _advised(number, each, is_alone=len(report.advice) == 1)
    yield "</div>"


def _advised(number: int, advice: Advice, *, is_alone: bool) -> Iterator[str]:
    gain = rows.gain_of(advice)
    title = sentence(advice.title).removesuffix(".")
    yield f'<div class="card{"" if gain else " good"}">'
    if gain:
        yield f'<span class="gain">{as_text(gain)}</span>'
    yield f"<h3>{'' if is_alone else f'{number}. '}{escape(title)}</h3>"
    yield f"<p>{escape(sentence(advice.why))}</p>{as_code(advice.code)}</div>"


def _traps(traps: Sequence[Trap]) -> Iterator[str]:
    if not traps:
        return
    yield '<h2>Traps</h2><div class="cards">'
    for trap in traps:
        name = escape(sentence(trap.name).removesuffix("."))
        yield f'<div class="card{" warn" if trap.is_wrong else ""}">'
        yield f"<h3>{'Wrong results: ' if trap.is_wrong else ''}{name}</h3>"
        yield f"<p>{escape(sentence(trap.what))} {escape(sentence(trap.why))}</p>"
        yield f"<p><b>{escape(sentence(trap.fix))}</b></p>{as_code(trap.code)}</div>"
    yield "</div>"


def _pictures(report: Report) -> Iterator[str]:
    cards = list(_plots(report))
    if cards:
        yield from ('<h2>Where the time goes</h2><div class="cards">', *cards, "</div>")


def _plots(report: Report) -> Iterator[str]:
    """A card for each plot that there is something to draw in."""
    found, loop = report.examination, report.loop
    if len(report.timeline) > 1:
        waiting = "device stands still" if loop.is_device_seen else "waiting"
        colours = [("step", "step"), ("wait", waiting), ("fill", "epoch start")]
        yield f'<div class="card wide"><h3>Batch by batch</h3>{as_key(colours)}'
        for kind, width in (("broad", plots.WIDE_INCHES), ("narrow", plots.NARROW_INCHES)):
            yield f'<div class="{kind}">{plots.run_plot(report, width)}</div>'
        yield from _epochs(report)
        yield "</div>"
    if any(stage.ms > 0 for stage in report.stages):
        yield '<div class="card"><h3>Each stage of a batch, by itself</h3>'
        lowest = [rows.lowest_in_words(s, report.stages) for s in report.stages if s.is_lowest]
        colours = [("wait", f"{word} ceiling") for word in lowest]
        colours += [("step", "step"), ("plain", "others")]
        yield (
            '<p class="soft">What a batch takes, divided by how many work on it at once; and the '
            "rate if nothing else took time.</p>"
        )
        yield f"{as_key(colours)}{plots.stages_plot(report)}"
        yield from _stages(report)
        yield "</div>"
    if loop.sawtooth is not None and loop.sawtooth.period > 1 and any(loop.sawtooth.wait_ms):
        bursts = rows.burst_rows(report)
        words = bursts[0][1] if bursts else "no worker's turn stands out"
        yield '<div class="card"><h3>Waiting, by whose turn it is</h3>'
        yield f'<p class="soft">{escape(sentence(words))}</p>{plots.bursts_plot(report)}</div>'
    if found.samples is not None:
        yield from _samples(report)
    if found.workers:
        yield from _workers(report)
    if report.usage is not None:
        yield from _gpus(report, report.usage)


def _workers(report: Report) -> Iterator[str]:
    yield '<div class="card"><h3>Each worker, while all work</h3>'
    for _, words in rows.worker_rows(report):
        yield f'<p class="soft">{escape(sentence(words))}</p>'
    if report.examination.limited:
        yield as_key([("plain", "as it is"), ("hotset", "held to one thread")])
    yield f"{plots.workers_plot(report)}</div>"


def _gpus(report: Report, usage: Usage) -> Iterator[str]:
    names = [f"{label}: {gpu.name}" for label, gpu in rows.labelled(usage.gpus) if gpu.samples]
    if not names:
        return
    palette = plots.GPU_COLOURS
    yield '<div class="card wide"><h3>GPU busy, over the run</h3>'
    yield as_key([(palette[n % len(palette)], name) for n, name in enumerate(names)])
    for kind, width in (("broad", plots.WIDE_INCHES), ("narrow", plots.NARROW_INCHES)):
        yield f'<div class="{kind}">{plots.gpus_plot(report, width)}</div>'
    yield "</div>"


def _samples(report: Report) -> Iterator[str]:
    found = report.examination.samples
    assert found is not None
    yield '<div class="card"><h3>Single samples</h3>'
    yield f'<p class="soft">{counted(found.count, "sample")}, in one process.</p>'
    yield plots.samples_plot(report)
    paths = [(f"index {each.index}", each.path) for each in found.worst[: plots.WORST] if each.path]
    if paths:
        yield f"<details><summary>Their files</summary>{as_facts(paths)}</details>"
    yield "</div>"


def _epochs(report: Report) -> Iterator[str]:
    epochs = report.loop.epochs[:MOST_EPOCHS]
    left = len(report.loop.epochs) - len(epochs)
    yield as_facts(rows.epoch_rows(report))
    yield "<details><summary>Every epoch</summary>"
    names = ("batches", "first batch", "then waiting", "step", "in all")
    cells = [
        (
            f"{each.batches:,}{'' if each.is_whole else ', left'}",
            human_ms(each.start_ms),
            human_ms(each.wait_ms),
            human_ms(each.step_ms),
            human_ms(1000 * each.seconds),
        )
        for each in epochs
    ]
    yield as_table(
        "epoch", names, [(f"{n.number + 1}", c) for n, c in zip(epochs, cells, strict=True)]
    )
    if left:
        yield f'<p class="soft">{counted(left, "further epoch")} in the JSON report.</p>'
    yield "</details>"


def _stages(report: Report) -> Iterator[str]:
    yield "<details><summary>In numbers</summary>"
    names = ("kind", "a batch", "noise", "at once", rows.unit(report))
    lines = []
    for stage in report.stages:
        kind, ms, _, lanes, rate = rows.stage_cells(stage)
        noise = f"± {human_ms(stage.noise_ms)}" if stage.noise_ms else ""
        lines.append((stage.name, (kind, ms, noise, lanes, rate)))
    lowest = [stage.is_lowest for stage in report.stages]
    yield as_table("stage", names, lines, marked=lowest, mark="lowest")
    yield "</details>"


def _plan(report: Report) -> Iterator[str]:
    plan, problem = report.examination.plan, report.examination.plan_problem
    if plan is None and not problem:
        return
    yield "<h2>What hotset would do</h2>"
    if plan is None:
        yield f"<p>Nothing: {as_text(problem)}</p>"
        return
    yield from _cuts(plan)
    if plan.decisions:
        yield '<details><summary>Each step</summary><div class="scroll"><table class="plan">'
        yield "<thead><tr><th>step</th><th>what</th><th>why</th></tr></thead><tbody>"
        for step in plan.decisions:
            yield (
                f"<tr><th>{as_text(step.step)}</th><td>{as_text(step.action)}</td>"
                f"<td>{as_text(step.reason)}</td></tr>"
            )
        yield "</tbody></table></div></details>"
    yield from (f'<p class="soft">{as_text(note)}</p>' for note in plan.notes)


def _cuts(plan: Plan) -> Iterator[str]:
    if not plan.cuts:
        return
    yield (
        '<p class="soft">Where samples could be kept, made once, and what that would save in an '
        "epoch:</p>"
    )
    lines = [(cut.behind, cells_of(cut)) for cut in plan.cuts]
    chosen = [cut.is_chosen for cut in plan.cuts]
    reasons = [cut.reason for cut in plan.cuts]
    yield as_table("cut behind", CUT_COLUMNS, lines, marked=chosen, mark="kept", reasons=reasons)


def _more(report: Report) -> Iterator[str]:
    yield "<h2>Besides</h2>"
    if report.loaders:
        lines = [(loader.name, rows.loader_cells(loader)) for loader in report.loaders]
        yield as_table("loader", rows.LOADER_COLUMNS, lines)
    yield as_facts([*rows.batch_rows(report), *rows.machine_rows(report)])
    found = rows.notes(report)
    if found:
        yield "<ul>" + "".join(f"<li>{escape(ended(note))}</li>" for note in found) + "</ul>"


def _foot(report: Report) -> Iterator[str]:
    yield "<footer>"
    yield from (
        f"<p>{as_text(label)}: {as_text(words)}</p>" for label, words in rows.foot_rows(report)
    )
    yield "</footer>"
