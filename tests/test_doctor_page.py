"""A report as a page: one file, nothing loaded, nothing of anybody's taken for markup."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from hotset.doctor.report import Report
from hotset.doctor.showing.page import as_page
from hotset.errors import MissingExtraError, StorageError
from tests import reports

pytest.importorskip("matplotlib")

VOID = {"meta", "br", "hr", "img", "input", "link"}
MAKERS = [
    reports.data_bound,
    reports.compute_bound,
    reports.single_process,
    reports.endless,
    reports.marked,
]


class Read(HTMLParser):
    """Reads a page: its tags must match, and its ids, references and text are kept."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.references: list[str] = []
        self.attributes: set[str] = set()
        self.text = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attrs}
        self.ids += [value or "" for name, value in attrs if name == "id"]
        self.references += [
            value or "" for name, value in attrs if name in ("href", "src", "xlink:href", "data")
        ]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.mark.parametrize("make", MAKERS)
def test_pages_are_whole_and_alone(make: Callable[[], Report]) -> None:
    """Every tag is closed, no id is there twice, and all references are to the page itself."""
    page = as_page(make())
    read = Read(page)
    assert read.open == []
    assert page.endswith("</html>\n")
    assert len(read.ids) == len(set(read.ids))
    references = [*read.references, *re.findall(r"url\(([^)]*)\)", page)]
    assert all(reference.startswith("#") for reference in references)
    assert {reference[1:] for reference in references} <= set(read.ids)
    assert not {"script", "link", "iframe", "img", "object", "embed", "base"} & set(read.tags)
    assert not any(name.startswith("on") for name in read.attributes)
    for word in ("http:", "https:", "@import", "@font-face", "#0102"):
        assert word not in page
    assert "prefers-color-scheme: dark" in page
    assert "width=device-width" in page


def test_the_page_begins_with_the_verdict() -> None:
    """The share of waiting, the verdict, what there is to gain, and then what to do."""
    text = " ".join(Read(as_page(reports.data_bound())).text.split())
    told = [
        "hotset doctor: train.py --epochs 3",
        "DataLoader of ImageFolder, 50,000 samples, batches of 64, 4 workers",
        "74 % of the time is waiting for data. Data-bound (97 % sure): data is the limit",
        "waiting, steady 11 ms a batch",
        "3.8× is the most there is to gain, if data took no time at all (3.7 to 3.8)",
        "3.2× is predicted for: let hotset keep what ImageFolder gives each epoch anew",
        "4,296 samples/s all in all; the lowest ceiling is that of ImageFolder, 2,667",
        "What to do",
        "3.2× (3.0 to 3.4) 1. Let hotset keep",
        'loader = hotset.accelerate(loader, device="cuda")',
        "at most 2.6× (2.5 to 2.8) 3. Make reading",
        "Wrong results: Workers that repeat NumPy's draws",
        "A worker start per epoch",
        "Batch by batch",
        "879 ms for the first batch, then waiting 18 ms a batch",
        "Each stage of a batch",
        "RandomCrop transform 3.0 ms ± 0.9 ms 4 85,333",
        "Batches come in bursts of 4",
        "index 17 data/train/n01440764/a very large one.JPEG",
        "Worker 2 takes 240 ms a batch, the others 137 ms to 141 ms.",
        "GPU: NVIDIA A100-SXM4-40GB",
        "Resize 1.5 ms yes 9.8 GB 93 s 9.5 batch host the fewest bytes",
        "DataLoader of Validation 12 1 80 ms",
        "3.6 of 4 cores busy",
        "the collate_fn was timed on 8 batches.",
        "doctor itself: 1.7 µs a batch, 0.012 % of the loop",
        "made: 2030-01-02T03:04:05+00:00",
    ]
    text = re.sub(r"(?<=[×%\d])(?=[a-z])", " ", text)
    places = [re.sub(r"\s+", "", text).find(re.sub(r"\s+", "", words)) for words in told]
    assert -1 not in places, told[places.index(-1)]
    assert places == sorted(places)


def test_the_page_has_a_plot_for_each_thing_that_is_known() -> None:
    """Two of the run and of the GPU, for a wide page and a narrow one; no empty ones."""
    assert as_page(reports.data_bound()).count("<svg") == 2 + 1 + 1 + 1 + 1 + 2
    assert as_page(reports.compute_bound()).count("<svg") == 2 + 1 + 1
    assert as_page(reports.single_process()).count("<svg") == 2 + 1 + 1
    page = as_page(reports.endless())
    assert "<svg" not in page
    assert "Where the time goes" not in page
    assert "What hotset would do" not in page
    assert "What to do" not in page


def test_a_loop_that_is_left_alone_says_so() -> None:
    """And promises nothing."""
    page = as_page(reports.compute_bound())
    assert "<b>Leave it</b>is the advice: there is too little to gain" in page
    assert 'class="gain"' not in page
    assert "of the time the device stands still." in page
    assert "1.03×" in page


def test_why_nothing_can_be_done() -> None:
    """Hotset's own reason."""
    assert "<p>Nothing: no step of the dataset is known</p>" in as_page(reports.single_process())


def test_anybody_s_words_are_text() -> None:
    """Names, paths, code and sentences with markup in them, everywhere a report has some."""
    page = as_page(reports.marked())
    read = Read(page)
    assert "<b onload" not in page
    assert "&amp;</b>" not in page.replace("&amp;amp;", "")
    assert "onload" not in read.attributes
    assert read.text.count(reports.NASTY) > 40
    assert "\x1b" not in page
    page.encode("utf-8")


def test_code_keeps_its_lines() -> None:
    """As it is to be written."""
    page = as_page(reports.data_bound())
    assert (
        "<pre><code>def seeded(worker):\n    np.random.seed(torch.initial_seed() % 2**32)\n\n"
        "DataLoader(…, worker_init_fn=seeded)</code></pre>"
    ) in page


def test_many_epochs_are_not_all_listed() -> None:
    """The rest is in the JSON report."""
    report = reports.data_bound()
    loop = replace(report.loop, epochs=report.loop.epochs * 10)
    page = as_page(replace(report, loop=loop))
    assert "18 further epochs in the JSON report." in page


def test_a_page_is_written(tmp_path: Path) -> None:
    """As UTF-8, or it is said why not."""
    report = reports.marked()
    report.to_html(tmp_path / "report.html")
    assert (tmp_path / "report.html").read_text(encoding="utf-8") == as_page(report)
    with pytest.raises(StorageError, match=r"cannot be written: Is a directory"):
        report.to_html(tmp_path)


def test_without_matplotlib_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is drawn."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    message = r"the page needs matplotlib, .*: pip install 'hotset\[doctor\]'"
    with pytest.raises(MissingExtraError, match=message):
        as_page(reports.endless())


def test_nothing_is_loaded_before_it_is_drawn() -> None:
    """Importing the page does not import matplotlib, nor does a report in words."""
    code = (
        "import sys, hotset.doctor.showing.page, hotset.doctor.showing.trace\n"
        "from tests import reports\n"
        "reports.data_bound().text(), reports.data_bound().as_dict()\n"
        "print({'matplotlib', 'psutil', 'torchvision'} & set(sys.modules))"
    )
    root = str(Path(__file__).parents[1])
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=root)
    assert (done.stdout, done.stderr, done.returncode) == ("set()\n", "", 0)
