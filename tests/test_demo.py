"""The demo, end to end at a tiny size, and its parts with made-up numbers."""

from __future__ import annotations

import dataclasses
import io
import json
import re
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest
import torch

from hotset.demo import pipelines, wording
from hotset.demo import run as run_module
from hotset.demo.data import Arrays
from hotset.demo.measure import EpochTime, Run, time_epoch
from hotset.demo.network import Trainer, build_network
from hotset.demo.page import as_page
from hotset.demo.pipelines import Pipelines, channel_statistics, load_material
from hotset.demo.report import Report
from hotset.demo.run import run_and_write
from hotset.demo.settings import Settings
from hotset.demo.summary import Summary, agreement, ratios, typical
from hotset.errors import (
    ConfigError,
    DeviceError,
    DownloadError,
    HotsetError,
    MissingDataError,
    MissingExtraError,
)
from hotset.progress import Progress

for package in ("matplotlib", "mlxtend", "skimage", "torchvision"):
    pytest.importorskip(package, reason=f"{package} comes with the extra `demo`")

CPU = torch.device("cpu")
TINY = Settings(
    data="photographs", samples=256, epochs=2, seeds=2, batch_size=64, workers=0, device="cpu"
)


@dataclasses.dataclass(frozen=True)
class Done:
    """A finished demo, and what it left."""

    report: Report
    content: dict[str, Any]
    page: str
    said: str


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Done:
    """One tiny demo for all tests that look at its result."""
    out = tmp_path_factory.mktemp("demo") / "new" / "folder"
    stream = io.StringIO()
    report, files = run_and_write(dataclasses.replace(TINY, out=out), Progress(stream))
    assert files == (out / "report.json", out / "report.html")
    page = files[1].read_text(encoding="utf-8")
    return Done(report, json.loads(files[0].read_bytes()), page, stream.getvalue())


def _silent() -> Progress:
    return Progress(io.StringIO())


def _arrays(train: int = 40, test: int = 8) -> Arrays:
    rng = np.random.default_rng(0)
    return Arrays(
        train_images=rng.integers(256, size=(train, 32, 32, 3), dtype=np.uint8),
        train_labels=np.arange(train, dtype=np.int64) % 10,
        test_images=rng.integers(256, size=(test, 32, 32, 3), dtype=np.uint8),
        test_labels=np.arange(test, dtype=np.int64) % 10,
        class_names=tuple("abcdefghij"),
        description="noise",
    )


def _epoch(number: int, wait_s: float, step_s: float, fill_s: float = 0.0) -> EpochTime:
    return EpochTime(number, 100, fill_s, wait_s, step_s)


def _summary(*runs: Run) -> Summary:
    return Summary(runs, dataset_bytes=10, held_bytes=5, held_what="things")


# The whole


def test_report_holds_every_figure_and_they_fit_together(done: Done) -> None:
    """Each epoch is filling plus waiting plus step, and totals are sums of epochs."""
    content = done.content
    assert (content["schema"], content["schema_version"]) == ("hotset-demo", 1)
    assert content["versions"]["hotset"]
    assert content["versions"]["torch"]
    assert content["hardware"]["cores"] >= 1
    assert content["hardware"]["cpu"]
    assert content["plan"]["samples"] == 256
    assert content["data"]["train"] == 256
    for name in ("plain", "hotset"):
        pipeline = content["pipelines"][name]
        assert [run["seed"] for run in pipeline["runs"]] == [0, 1]
        for run in pipeline["runs"]:
            assert 0 <= run["accuracy"] <= 1
            assert [epoch["epoch"] for epoch in run["epochs"]] == [1, 2]
            assert run["total_s"] == pytest.approx(sum(e["epoch_s"] for e in run["epochs"]))
            for epoch in run["epochs"]:
                parts = epoch["fill_s"] + epoch["wait_s"] + epoch["step_s"]
                assert epoch["epoch_s"] == pytest.approx(parts)
                assert epoch["samples"] == 256
                assert epoch["samples_per_s"] == pytest.approx(256 / epoch["epoch_s"])
                assert min(epoch["wait_s"], epoch["step_s"]) > 0
        first, later = pipeline["first_epoch"], pipeline["later_epochs"]
        assert (first["epoch"], later["epoch"], first["count"], later["count"]) == (1, 2, 2, 2)
        assert later["fastest_s"] <= later["epoch_s"] <= later["slowest_s"]


def test_only_hotsets_first_epoch_is_charged_for_filling(done: Done) -> None:
    """Filling counts in every first epoch of hotset's, and nowhere else."""
    for name in ("plain", "hotset"):
        for run in done.content["pipelines"][name]["runs"]:
            fills = [epoch["fill_s"] > 0 for epoch in run["epochs"]]
            assert fills == [name == "hotset", False]


def test_ratios_are_the_quotients_of_the_reported_seconds(done: Done) -> None:
    """Whoever divides the figures in the JSON gets the ratios in it."""
    plain, fast = (done.content["pipelines"][name] for name in ("plain", "hotset"))
    found = done.content["ratio"]
    for ratio, part, what in (
        ("first_epoch", "first_epoch", "epoch_s"),
        ("later_epochs", "later_epochs", "epoch_s"),
        ("waiting", "later_epochs", "wait_s"),
    ):
        assert found[ratio] == pytest.approx(plain[part][what] / fast[part][what])
    assert found["training"] == pytest.approx(plain["total_s"] / fast["total_s"])


def test_memory_is_what_the_data_takes(done: Done) -> None:
    """hotset keeps bytes and labels; the plain loader's batches in use are floats."""
    dataset = 256 * (32 * 32 * 3 + 8)
    plain, fast = (done.content["pipelines"][name]["memory"] for name in ("plain", "hotset"))
    assert plain["dataset_bytes"] == fast["dataset_bytes"] == dataset
    assert fast["held_bytes"] == dataset
    assert plain["held_bytes"] == 64 * 32 * 32 * 3 * 4


def test_plan_keeps_bytes_and_draws_in_batches(done: Done) -> None:
    """The demo's chain is cut as the design says: nothing is left to worker processes."""
    actions = {step["step"]: step["action"] for step in done.content["plan"]["decisions"]}
    assert actions["RandomCrop"] == actions["RandomHorizontalFlip"] == "batch"
    assert actions["ToTensor"] == actions["Normalize"] == "table"
    assert "worker" not in actions.values()


def test_page_needs_nothing_but_itself(done: Done) -> None:
    """The page loads nothing: every reference in it is to a part of itself, and there is one."""
    ids: list[str] = []
    references: list[str] = []
    tags: set[str] = set()

    class Collect(HTMLParser):
        def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
            tags.add(tag)
            found = dict(attributes)
            ids.extend(filter(None, [found.get("id")]))
            names = ("src", "href", "xlink:href", "srcset", "data", "action")
            references.extend(filter(None, map(found.get, names)))

    Collect().feed(done.page)
    references += re.findall(r"url\(([^)]*)\)", done.page)
    assert not tags & {"script", "link", "iframe", "object", "embed", "base", "img"}
    assert {reference.removeprefix("#") for reference in references} <= set(ids)
    assert all(reference.startswith("#") for reference in references)
    assert len(ids) == len(set(ids))
    assert "@import" not in done.page
    assert "http:" not in done.page
    assert "https:" not in done.page


def test_page_shows_plots_plan_and_figures(done: Done) -> None:
    """The page has three plots in its own colours, the plan, the headline, and a dark mode."""
    assert done.page.count("<svg") == done.page.count("</svg>") == 3
    assert "#0102" not in done.page  # every stand-in was replaced
    assert "var(--wait)" in done.page
    assert "prefers-color-scheme: dark" in done.page
    assert "width=device-width" in done.page
    for text in (wording.headline(done.report), str(done.report.agreement), "RandomCrop"):
        assert text in done.page
    for row in wording.comparison(done.report):
        assert row.plain in done.page
        assert row.fast in done.page


def test_text_shows_plan_figures_and_verdict(done: Done) -> None:
    """The terminal gets the plan, every line of the comparison, and whether accuracies agree."""
    text = wording.as_text(done.report, width=10_000)
    for line in str(done.report.plan).splitlines():
        assert line in text
    for row in wording.comparison(done.report):
        assert row.label in text
    assert str(done.report.agreement) in text
    assert max(map(len, wording.notes(done.report))) > 80
    narrow = wording.as_text(done.report, width=60).split("ratio", 1)[1].splitlines()
    assert max(map(len, narrow)) <= 80  # tables are as wide as they are


def test_progress_says_what_is_trained_on_and_what_came_out(done: Done) -> None:
    """Where nobody watches, each training leaves one line, in turns that change with the seed."""
    lines = done.said.splitlines()
    assert lines[0].startswith("Data: 32x32 patches of ten photographs")
    order = [line.split(",")[0] for line in lines[1:]]
    assert order == ["plain loader", "hotset", "hotset", "plain loader"]
    assert "\r" not in done.said


def test_digits_are_not_mirrored(tmp_path: Path) -> None:
    """`--data mnist` crops only; with one epoch and one seed, later epochs and spread are open."""
    settings = dataclasses.replace(
        TINY, data="mnist", epochs=1, seeds=1, has_page=False, out=tmp_path
    )
    report, files = run_and_write(settings, _silent())
    assert [path.name for path in files] == ["report.json"]
    assert "RandomHorizontalFlip" not in {step.step for step in report.plan.decisions}
    content = json.loads(files[0].read_bytes())
    assert content["pipelines"]["plain"]["later_epochs"] is None
    assert content["ratio"]["later_epochs"] is None
    assert content["agreement"]["verdict"] == "unknown"
    assert "epoch 2" not in as_page(report)


def test_workers_feed_the_plain_loader_and_are_gone_afterwards(tmp_path: Path) -> None:
    """With worker processes the demo runs all the same, and none of them is left."""
    import multiprocessing

    settings = dataclasses.replace(
        TINY, samples=64, epochs=1, seeds=1, workers=1, has_page=False, out=tmp_path
    )
    report, _ = run_and_write(settings, _silent())
    assert report.plain.held_what == "batches that the workers make ahead"
    assert not multiprocessing.active_children()


@pytest.mark.gpu
def test_cuda_is_used_without_being_told(tmp_path: Path) -> None:
    """Where there is CUDA, the demo trains and keeps the data there."""
    settings = dataclasses.replace(TINY, device="auto", epochs=1, seeds=1, out=tmp_path)
    report, _ = run_and_write(settings, _silent())
    assert report.device.startswith("cuda")
    assert (report.plan.tier, report.plan.device) == ("device", report.device)


# Pipelines and data


@pytest.mark.parametrize(("workers", "epochs"), [(0, 1), (1, 2)])
def test_both_pipelines_see_the_same_samples_in_the_same_order(workers: int, epochs: int) -> None:
    """For one seed labels come in the same order; without workers, in the first epoch only."""
    both = Pipelines(_arrays(), dataclasses.replace(TINY, batch_size=16, workers=workers), CPU)
    orders = []
    for loader in (both.plain(), both.accelerated()):
        torch.manual_seed(5)
        orders.append([labels.tolist() for _ in range(epochs) for _, labels in loader])
    assert orders[0] == orders[1]
    assert epochs == 1 or orders[0][:3] != orders[0][3:]


def test_test_set_is_made_by_the_deterministic_part() -> None:
    """Test images are pixels over 255, minus the training set's mean, over its deviation."""
    arrays = _arrays()
    images, labels = Pipelines(arrays, TINY, CPU).test_set()
    means, deviations = (np.array(part) for part in channel_statistics(arrays.train_images))
    expected = (arrays.test_images / 255 - means) / deviations
    np.testing.assert_allclose(images.permute(0, 2, 3, 1).numpy(), expected, atol=1e-5)
    assert labels.tolist() == arrays.test_labels.tolist()


def test_channel_statistics_are_numpys() -> None:
    """Means and deviations from histograms are those of all values, to four digits."""
    images = _arrays().train_images
    means, deviations = channel_statistics(images)
    np.testing.assert_allclose(means, (images / 255).mean((0, 1, 2)), atol=1e-4)
    np.testing.assert_allclose(deviations, (images / 255).std((0, 1, 2)), atol=1e-4)
    assert channel_statistics(np.zeros((2, 3, 3), np.uint8)) == ([0.0], [1e-4])


def test_photographs_stand_in_and_that_is_said(tmp_path: Path) -> None:
    """Without CIFAR-10 the photographs are used, and a note says so and what to do."""
    settings = Settings(root=tmp_path, samples=100)
    material = load_material(settings, _silent())
    assert material.name == "photographs"
    assert len(material.arrays.train_labels) == 100
    assert len(material.arrays.test_labels) == 20
    assert f"No CIFAR-10 in the folder '{tmp_path}'" in material.note
    assert "--download" in material.note


def test_cifar_is_used_where_it_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`auto` takes the real CIFAR-10 where the folder holds it, cut to the samples asked for."""
    monkeypatch.setattr(pipelines, "real_cifar10", lambda root: _arrays())
    material = load_material(Settings(root=tmp_path, samples=30), _silent())
    assert (material.name, material.note) == ("cifar10", "")
    assert len(material.arrays.train_labels) == 30
    assert len(material.arrays.test_labels) == 6
    assert "the first 30" in material.arrays.description


def test_cifar_is_fetched_only_where_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--download` fetches what is missing, once; without it a CIFAR-10 asked for is an error."""
    fetched: list[Path] = []

    def read(root: Path) -> Arrays:
        if not fetched:
            raise MissingDataError(f"{root}: nothing there")
        return _arrays()

    def fetch(root: Path, *, progress: Any) -> None:
        progress(1, None)
        fetched.append(root)

    monkeypatch.setattr(pipelines, "real_cifar10", read)
    monkeypatch.setattr(pipelines, "download_cifar10", fetch)
    with pytest.raises(MissingDataError, match="nothing there; --root names another folder"):
        load_material(Settings(data="cifar10", root=tmp_path), _silent())
    assert not fetched
    for _ in range(2):
        settings = Settings(root=tmp_path, is_download_allowed=True)
        assert load_material(settings, _silent()).name == "cifar10"
    assert fetched == [tmp_path]


def test_failed_download_is_said_or_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where fetching fails, `auto` takes photographs and says why; by name it is an error."""

    def fetch(root: Path, *, progress: Any) -> NoReturn:
        raise DownloadError("no network")

    monkeypatch.setattr(pipelines, "download_cifar10", fetch)
    settings = Settings(root=tmp_path, is_download_allowed=True, samples=20)
    assert "could not be fetched" in load_material(settings, _silent()).note
    with pytest.raises(DownloadError, match="no network"):
        load_material(dataclasses.replace(settings, data="cifar10"), _silent())


# Bad input


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"epochs": 0}, "`--epochs` must be at least 1, got 0"),
        ({"seeds": 0}, "`--seeds` must be at least 1, got 0"),
        ({"batch_size": -1}, "`--batch-size` must be at least 1, got -1"),
        ({"workers": -1}, "`--workers` must be at least 0, got -1"),
        ({"samples": 0}, "`--samples` must be at least 1, got 0"),
        ({"data": "imagenet"}, "`data` must be one of auto, .*, got 'imagenet'"),
        ({"device": "tpu"}, "`device` must be one of auto, .*, got 'tpu'"),
        ({"data": "mnist", "is_download_allowed": True}, "`--download` fetches CIFAR-10"),
    ],
)
def test_settings_that_cannot_be_used_are_refused(changes: dict[str, Any], message: str) -> None:
    """A wrong setting is named before anything slow begins."""
    with pytest.raises(ConfigError, match=message):
        Settings(**changes)


def _assert_refused(settings: Settings, error: type[HotsetError], message: str) -> None:
    with pytest.raises(error, match=re.escape(message)):
        run_and_write(settings, _silent())


def test_demo_refuses_what_it_cannot_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No folder to write to, too many samples, no CUDA: each is said in hotset's own words."""
    tiny = dataclasses.replace(TINY, out=tmp_path / "out")
    (tmp_path / "file").touch()
    message = "`--out` must be a folder that can be written to"
    _assert_refused(dataclasses.replace(tiny, out=tmp_path / "file"), ConfigError, message)
    message = "`--samples` must be at most 4,000 with this data, got 4,001"
    _assert_refused(dataclasses.replace(tiny, data="mnist", samples=4_001), ConfigError, message)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    message = "no CUDA device, only the CPU"
    _assert_refused(dataclasses.replace(tiny, device="cuda"), DeviceError, message)
    assert not list((tmp_path / "out").iterdir())


def test_missing_packages_are_named_with_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without matplotlib or torchvision the error names the extra, before anything slow begins."""
    tiny = dataclasses.replace(TINY, out=tmp_path / "out")
    monkeypatch.setattr(run_module, "find_spec", lambda name: None)
    message = "the page needs matplotlib: pip install 'hotset[demo]', or give --no-page"
    _assert_refused(tiny, MissingExtraError, message)
    monkeypatch.setitem(sys.modules, "torchvision", None)
    message = "the demo needs torchvision: pip install 'hotset[demo]'"
    _assert_refused(dataclasses.replace(tiny, has_page=False), MissingExtraError, message)
    assert not (tmp_path / "out").exists()


# Measuring, and what is made of it


def test_waiting_and_step_are_told_apart() -> None:
    """With a clock that only loader and step advance, each gets exactly its own seconds."""
    now = 0.0
    synchronised: list[float] = []
    samples: list[int] = []

    class Loader:
        def __iter__(self) -> Iterator[int]:
            nonlocal now
            now += 5.0  # workers start

            def batches() -> Iterator[int]:
                nonlocal now
                for size in (4, 4, 2):
                    now += 1.0
                    yield size
                now += 0.5  # workers end

            return batches()

    def learn(size: int) -> int:
        nonlocal now
        now += 0.25
        return size

    def synchronise() -> None:
        nonlocal now
        now += 2.0
        synchronised.append(now)

    found = time_epoch(
        Loader(),
        learn,
        epoch=1,
        fill_s=3.0,
        synchronise=synchronise,
        on_samples=samples.append,
        clock=lambda: now,
    )
    assert found == EpochTime(epoch=1, samples=10, fill_s=3.0, wait_s=8.5, step_s=2.75)
    assert found.epoch_s == 14.25
    assert samples == [4, 8, 10]
    assert len(synchronised) == 1


def test_typical_epoch_is_one_that_was() -> None:
    """The median is a whole epoch, so that its parts add up to it; even numbers take the faster."""
    epochs = [_epoch(1, 9, 1), _epoch(1, 1, 2), _epoch(1, 2, 3), _epoch(1, 0, 4)]
    found = typical(epochs)
    assert found.median == _epoch(1, 0, 4)
    assert (found.fastest_s, found.slowest_s, found.count) == (3, 10, 4)


def test_ratios_of_made_up_runs() -> None:
    """Ratios are plain over hotset, filling counts in the first epoch and in the whole."""
    plain = _summary(Run(0, (_epoch(1, 6, 2), _epoch(2, 5, 1)), 0.8))
    fast = _summary(Run(0, (_epoch(1, 1, 1, fill_s=2), _epoch(2, 0.5, 1)), 0.8))
    found = ratios(plain, fast)
    assert found.first_epoch == 8 / 4
    assert found.later_epochs == 6 / 1.5
    assert found.waiting == 5 / 0.5
    assert found.training == 14 / 5.5


@pytest.mark.parametrize(
    ("plain", "fast", "verdict", "words"),
    [
        ([0.80, 0.82, 0.81], [0.81, 0.83, 0.82], "agree", "The test accuracies agree"),
        ([0.80, 0.80, 0.80], [0.80, 0.80, 0.80], "agree", "The test accuracies agree"),
        ([0.80, 0.81, 0.80], [0.70, 0.71, 0.70], "differ", "DO NOT AGREE"),
        ([0.70, 0.71, 0.70], [0.80, 0.81, 0.80], "differ", "by 10.00 points"),
        ([0.80], [0.80], "unknown", "a single seed has no spread"),
    ],
)
def test_agreement_is_judged_by_the_spread_of_seeds(
    plain: list[float], fast: list[float], verdict: str, words: str
) -> None:
    """Means may differ by the wider range of seeds, in either direction, and the words say so."""
    found = agreement(plain, fast)
    assert found.verdict == verdict
    assert words in str(found)
    assert found.difference == pytest.approx(np.mean(fast) - np.mean(plain))


def test_disagreement_and_slowness_are_said_plainly(done: Done) -> None:
    """Where hotset gains nothing or learns worse, headline, text and page say that."""
    slow = _summary(*(Run(seed, (_epoch(1, 1, 2, 1), _epoch(2, 1, 3)), 0.5) for seed in range(2)))
    plain = _summary(*(Run(seed, (_epoch(1, 1, 2), _epoch(2, 1, 3)), 0.9) for seed in range(2)))
    report = dataclasses.replace(done.report, plain=plain, fast=slow)
    assert "no faster here" in wording.headline(report)
    page = as_page(report)
    for text in (wording.as_text(report), page):
        assert "DO NOT AGREE" in text
    assert "<strong>" not in page
    assert 'class="card warn"' in page


def test_figures_are_escaped_in_the_page(done: Done) -> None:
    """What comes from outside stands in the page as text."""
    data = dataclasses.replace(done.report.data, description="<script>alert(1)</script>")
    page = as_page(dataclasses.replace(done.report, data=data))
    assert "<script>" not in page
    assert "&lt;script&gt;" in page


# Network


def test_network_learns_and_starts_alike() -> None:
    """One seed gives one set of weights, and a few steps tell black from white."""
    networks = []
    for _ in range(2):
        torch.manual_seed(3)
        networks.append(build_network(1, 2))
    for ours, theirs in zip(networks[0].parameters(), networks[1].parameters(), strict=True):
        assert torch.equal(ours, theirs)
    labels = torch.arange(32) % 2
    images = labels.float().reshape(32, 1, 1, 1).expand(32, 1, 28, 28) * 2 - 1
    trainer = Trainer(networks[0], 20, CPU)
    assert [trainer.learn((images, labels)) for _ in range(20)] == [32] * 20
    assert trainer.accuracy(images, labels) == 1.0
    assert networks[0].training
