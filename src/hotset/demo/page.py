"""The result of a demo as one page that needs nothing else: no script, no font, no network."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

from hotset.demo import plots, wording
from hotset.demo.wording import NOTICEABLE, comparison, seconds
from hotset.drawing import document
from hotset.placement.size import human_bytes

if TYPE_CHECKING:
    from hotset.demo.report import Report

STYLE = """
.hero { display: flex; flex-wrap: wrap; gap: .5rem 1.5rem; align-items: center;
  margin: 1.5rem 0 1rem; }
.hero strong { font-size: clamp(3.5rem, 12vw, 5.5rem); line-height: 1; color: var(--hotset); }
.hero p { flex: 1 1 16rem; font-size: 1.2rem; }
.warn { border-left: .3rem solid var(--wait); }
.good { border-left: .3rem solid var(--hotset); }
.wide .key span:first-child i { border-radius: 50%; }
.wide .key span:last-child i { transform: rotate(45deg) scale(.85); }
.wide { grid-column: 1 / -1; display: flex; flex-wrap: wrap; gap: .5rem 2rem; }
.wide > * { flex: 1 1 18rem; min-width: 0; }
.part th { font-weight: 400; padding-left: 1.25rem; color: var(--soft); }
.numbers { max-width: 46rem; }
.numbers .part th, .numbers .part td { border: 0; padding-top: 0; }
@media (max-width: 34rem) {
  .numbers { font-size: .85rem; } .numbers th, .numbers td { padding-right: .4rem; }
  .part th { padding-left: .6rem; }
  .plan thead { display: none; } .plan tr { display: flex; flex-wrap: wrap; gap: 0 .75rem;
    padding: .4rem 0; border-top: 1px solid var(--faint); }
  .plan th, .plan td { border: 0; padding: 0; } .plan td:last-child { flex-basis: 100%; } }
"""


def as_page(report: Report) -> str:
    """The report as an HTML page with its style and its plots inside."""
    return document(
        "hotset demo",
        STYLE,
        [
            *_top(report),
            *_plots(report),
            "<h2>In numbers</h2>",
            *_numbers(report),
            "<h2>What hotset did</h2>",
            *_plan(report),
            "<h2>How it was measured</h2>",
            "<ul>",
            *(f"<li>{escape(note)}</li>" for note in wording.notes(report)),
            "</ul>",
            *_foot(report),
        ],
    )


def _top(report: Report) -> Iterable[str]:
    data, agreement = report.data, report.agreement
    ratio = report.plain.steady.median.epoch_s / report.fast.steady.median.epoch_s
    figure = f"<strong>{wording.times_as(ratio)}</strong>" if ratio >= NOTICEABLE else ""
    yield "<h1>hotset demo: one training, through a plain DataLoader and through hotset</h1>"
    yield (
        f'<p class="soft">{data.train:,} training and {data.test:,} test samples: '
        f"{escape(data.description)}. {escape(data.note)}</p>"
    )
    yield f'<div class="hero">{figure}<p>{escape(wording.headline(report))}</p></div>'
    kind = "good" if agreement.verdict == "agree" else "warn"
    yield f'<p class="card {kind}">{escape(str(agreement))}</p>'


def _plots(report: Report) -> Iterable[str]:
    parts = (("fill", "reading all data once"), ("wait", "waiting for data"), ("step", "step"))
    pipelines = (("plain", "plain loader"), ("hotset", "hotset"))
    seeds = report.settings.seeds
    yield '<h2>In pictures</h2><div class="cards">'
    yield '<div class="card">'
    shown = min(report.epochs, plots.MOST_EPOCHS)
    which = f" (the first {shown} of {report.epochs})" if shown < report.epochs else ""
    yield f"<h3>Where an epoch goes{which}</h3>{_key(parts)}{plots.epochs_plot(report)}"
    if wording.SHARED_CORES in wording.notes(report):
        yield f'<p class="soft">{escape(wording.SHARED_CORES)}</p>'
    yield "</div>"
    yield '<div class="card">'
    yield f"<h3>Samples per second</h3>{_key(pipelines)}{plots.rates_plot(report)}</div>"
    yield '<div class="card wide"><div>'
    yield f"<h3>Test accuracy, {seeds} seed{'s' if seeds > 1 else ''}</h3>{_key(pipelines)}"
    yield f'<p class="soft">{escape(wording.same_start(report))}</p></div>'
    yield f"{plots.accuracy_plot(report)}</div></div>"


def _key(colours: Sequence[tuple[str, str]]) -> str:
    """What each colour of a plot means."""
    swatches = "".join(
        f'<span><i style="background:var(--{colour})"></i>{escape(meaning)}</span>'
        for colour, meaning in colours
    )
    return f'<div class="key">{swatches}</div>'


def _numbers(report: Report) -> Iterable[str]:
    yield '<div class="scroll"><table class="numbers"><thead><tr><th></th>'
    yield "<th>plain loader</th><th>hotset</th><th>ratio</th></tr></thead><tbody>"
    for row in comparison(report):
        kind = ' class="part"' if row.is_part else ""
        cells = "".join(f"<td>{escape(cell)}</td>" for cell in (row.plain, row.fast, row.ratio))
        yield f"<tr{kind}><th>{escape(row.label)}</th>{cells}</tr>"
    yield "</tbody></table></div>"
    plain, fast = report.plain.steady, report.fast.steady
    which = "The later epochs" if report.epochs > 1 else "The epochs"
    yield (
        f'<p class="soft">Kept besides the dataset: {escape(report.plain.held_what)} (plain), '
        f"{escape(report.fast.held_what)} (hotset). {which} took "
        f"{_range(plain.fastest_s, plain.slowest_s)} (plain) and "
        f"{_range(fast.fastest_s, fast.slowest_s)} (hotset), over all seeds.</p>"
    )


def _range(low: float, high: float) -> str:
    return f"{seconds(low)} to {seconds(high)}"


def _plan(report: Report) -> Iterable[str]:
    plan = report.plan
    yield '<div class="scroll"><table class="plan"><thead><tr>'
    yield "<th>step</th><th>what</th><th>why</th></tr></thead><tbody>"
    for step in plan.decisions:
        yield (
            f"<tr><th>{escape(step.step)}</th><td>{escape(step.action)}</td>"
            f"<td>{escape(step.reason)}</td></tr>"
        )
    yield "</tbody></table></div>"
    kept = {"device": f"on {plan.device}", "host": "in host memory", "source": "nowhere"}
    yield (
        f'<p class="soft">Kept: {plan.samples:,} samples, {human_bytes(plan.bytes_held)}, '
        f"{escape(kept[plan.tier])}. Kernel: {escape(plan.kernel)}.</p>"
    )
    yield from (f'<p class="soft">{escape(note)}</p>' for note in plan.notes)


def _foot(report: Report) -> Iterable[str]:
    machine, versions = report.hardware, report.versions
    memory = machine["memory_bytes"]
    parts = [
        f"{machine['cpu']}, {machine['cores']} cores",
        f"{human_bytes(memory)} of memory" if memory else "",
        ", ".join(gpu["name"] for gpu in machine["gpus"]) or "no GPU",
        *(f"{name} {version}" for name, version in versions.items() if version),
    ]
    settings = report.settings
    run = [
        f"{report.epochs} epochs",
        f"{settings.seeds} seeds",
        f"batches of {settings.batch_size}",
        f"{settings.workers} workers",
        f"a network of {report.parameters:,} parameters",
        f"{seconds(report.elapsed_s)} in all",
    ]
    yield f"<footer><p>{escape(', '.join(run))}.</p>"
    yield f"<p>{escape(', '.join(part for part in parts if part))}.</p>"
    yield f"<p>{escape(report.created)}. The same figures are in <code>report.json</code>.</p>"
    yield "</footer>"
