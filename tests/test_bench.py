"""The benchmark: exact counts, right statistics, complete output. No time decides."""

from __future__ import annotations

import argparse
import io
import itertools
import json
import multiprocessing
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader

import hotset

pytest.importorskip("torchvision")

from hotset.bench import cifar, command, rows
from hotset.bench.copies import MOST_BATCH_BYTES, batch_of, copies_table, measure_copies
from hotset.bench.counter import CallCounter, LinkBytes
from hotset.bench.data import augmenting, composed, normalising, run_once, synthetic
from hotset.bench.imports import measure_imports
from hotset.bench.report import Report
from hotset.bench.settings import QUICK_ROUNDS, QUICK_SAMPLES, ROUNDS, SAMPLES, Settings
from hotset.bench.table import number, span, table
from hotset.bench.timing import Run, Spread, Stopwatch, interleaved, rotated
from hotset.errors import ConfigError
from hotset.hardware import hardware, versions

TINY = Settings(
    batch_size=16,
    workers=1,
    samples=72,
    rounds=2,
    part_batches=2,
    epochs=1,
    import_rounds=0,
    sizes=(8, 16),
)
IMAGE_BYTES = 32 * 32 * 3
LABEL_BYTES = 8


class Said:
    """Remembers what it is told."""

    def __init__(self) -> None:
        self.texts: list[tuple[str, str]] = []

    def __call__(self, text: str, detail: str = "") -> None:
        self.texts.append((text, detail))


class Ticks:
    """A clock that moves one second whenever it is read."""

    def __init__(self) -> None:
        self._times = itertools.count()

    def __call__(self) -> float:
        return float(next(self._times))


@pytest.fixture(scope="module")
def report() -> Report:
    """A whole comparison on a few images."""
    return cifar.measure(TINY, Said())


def _parsed(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    cifar.add_arguments(parser)
    return parser.parse_args(arguments)


def test_command_is_light_to_import() -> None:
    """The command line imports the module for its options alone, and torch does not come along."""
    code = "import sys, hotset.bench.cifar; print(*{n.partition('.')[0] for n in sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"torch", "torchvision", "numba", "numpy", "PIL"} & set(done.stdout.split())


def test_spread_is_of_all_rounds() -> None:
    """Median, ends and values; of an even number, the mean of the middle two."""
    spread = Spread((4.0, 1.0, 10.0, 2.0))
    assert (spread.median, spread.least, spread.most) == (3.0, 1.0, 10.0)
    assert spread.as_dict() == {
        "median": 3.0,
        "least": 1.0,
        "most": 10.0,
        "values": [4.0, 1.0, 10.0, 2.0],
    }


def test_ratios_are_taken_within_a_round() -> None:
    """A round that was slow for both rows leaves their ratio as it is."""
    fast, slow = Spread((100.0, 10.0, 50.0)), Spread((10.0, 1.0, 10.0))
    assert fast.over(slow).values == (10.0, 10.0, 5.0)
    assert fast.minus(slow).values == (90.0, 9.0, 40.0)


def test_rounds_are_interleaved() -> None:
    """Every task runs once in every round, and every round begins with another."""
    order: list[str] = []

    def task(name: str, value: float) -> float:
        order.append(name)
        return value * len(order)

    said = Said()
    tasks = {"a": lambda: task("a", 1.0), "b": lambda: task("b", 100.0)}
    found = interleaved(tasks, 3, said, what="x, ")
    assert order == ["a", "b", "b", "a", "a", "b"]
    assert found["a"].values == (1.0, 4.0, 5.0)
    assert found["b"].values == (200.0, 300.0, 600.0)
    assert said.texts[2] == ("x, round 2 of 3", "b")
    assert rotated(["a", "b", "c"], 5) == ["c", "a", "b"]


def test_steady_run_leaves_out_the_beginning_and_the_rest() -> None:
    """The clock runs over `take` batches behind the skipped ones; no further batch is made."""
    asked: list[int] = []

    def batches() -> Iterator[tuple[None, range]]:
        for size in range(1, 10):
            asked.append(size)
            yield None, range(size)

    waited: list[int] = []
    watch = Stopwatch(finish=lambda: waited.append(len(asked)), clock=Ticks())
    assert watch.steady(batches(), skip=3, take=2) == Run(4 + 5, 1.0)
    assert asked == [1, 2, 3, 4, 5]
    assert waited == [3, 5]


def test_whole_run_is_of_every_sample() -> None:
    """Whole epochs, each begun anew, over the time that all of them took."""
    epoch = [(None, range(3)), (None, range(2))]
    run = Stopwatch(clock=Ticks()).whole(epoch, epochs=4)
    assert run == Run(20, 1.0)
    assert run.rate == 20.0


def test_table_is_aligned() -> None:
    """Names to the left, numbers to the right, no space at the end of a line."""
    text = table(("", "n"), [("a", "1,000"), ("long", "2")])
    assert text.splitlines() == ["          n", "----  -----", "a     1,000", "long      2"]
    assert [number(v) for v in (0, 0.0123, 1.234, 12.34, 123.4, 1e6)] == [
        "0",
        "0.0123",
        "1.23",
        "12.3",
        "123",
        "1,000,000",
    ]
    assert span(Spread((2.0, 1.0, 3.0))) == "1.00 – 3.00"


def test_images_are_as_torchvision_gives_them() -> None:
    """CIFAR's shape, from the seed alone, a PIL image for each; a transform is applied to it."""
    images, again, other = synthetic(5), synthetic(5), synthetic(5, seed=1)
    assert images.data.shape == (5, 32, 32, 3)
    assert (images.data == again.data).all()
    assert images.targets == again.targets
    assert (images.data != other.data).any()
    image, label = images[3]
    assert (image.size, image.mode, label) == ((32, 32), "RGB", images.targets[3])
    assert image.tobytes() == images.data[3].tobytes()
    assert images.nbytes == 5 * (IMAGE_BYTES + LABEL_BYTES)
    kept = run_once(images, composed(*normalising()))
    expected = composed(*normalising())(image)
    assert torch.equal(kept[3], expected)


@pytest.mark.parametrize("method", [None, "forkserver"])
def test_calls_are_counted_in_workers(method: str | None) -> None:
    """Every call of every step counts, whichever way the worker process was started."""
    if method not in (None, *multiprocessing.get_all_start_methods()):
        pytest.skip(f"this system starts no processes by {method}")
    steps = [*augmenting(), *normalising()]
    dataset = synthetic(6).with_transform(composed(*steps))
    counter = CallCounter(type(step) for step in steps)
    loader = DataLoader(
        dataset,
        batch_size=4,
        num_workers=1,
        worker_init_fn=counter,
        multiprocessing_context=method,
    )
    with counter.counting():
        for _ in loader:
            pass
        dataset[0]
    dataset[0]
    assert counter.calls == 4 * 6 + 4


def test_counting_leaves_classes_as_they_were() -> None:
    """A class's own call comes back, and an inherited one is inherited again."""
    crop, to_tensor = (type(step) for step in (augmenting()[0], normalising()[0]))
    own = to_tensor.__call__
    with CallCounter([crop, to_tensor, crop]).counting():
        assert to_tensor.__call__ is not own
    assert to_tensor.__call__ is own
    assert "__call__" not in vars(crop)


def test_bytes_over_the_link_are_counted() -> None:
    """Copies from the host to a device count with their bytes; copies on either side do not."""
    there = torch.empty(6, device="meta")
    with LinkBytes() as link:
        torch.ones(4, dtype=torch.float16).to("meta")
        there.copy_(torch.ones(6))
        there.clone().to(torch.float64)
        torch.ones(9).clone().to(torch.float16)
    assert link.total == 4 * 2 + 6 * 4


def test_counts_are_exact(report: Report) -> None:
    """Calls are steps times samples without hotset, none with it; bytes follow from the shapes."""
    counts = {row.key: row.counts for row in report.rows}
    n = TINY.samples
    image, as_float = IMAGE_BYTES + LABEL_BYTES, 4 * IMAGE_BYTES + LABEL_BYTES
    expected = {
        rows.PLAIN_0: (4 * n, n * image),
        rows.PLAIN: (4 * n, n * image),
        rows.ONCE: (2 * n, n * as_float),
        rows.RESIDENT: (0, n * image),
        rows.AUGMENTED: (0, n * image),
    }
    for key, (calls, held) in expected.items():
        assert counts[key] == rows.Counts(
            samples=n,
            transform_calls=calls,
            link_bytes=0,
            batch_bytes=n * as_float,
            bytes_held=held,
        ), key
    assert counts[rows.COPY_FRESH] is None
    assert counts[rows.COPY_REUSED] is None


def test_report_reads_as_two_tables(report: Report) -> None:
    """Every row, every column and every figure is printed, with what was left out of the times."""
    text = str(report)
    for words in (
        "72 synthetic images",
        "plain, 0 workers ",
        "plain, 1 worker ",
        "once, then plain, 1 worker ",
        "resident, deterministic only ",
        "resident, batched augmentation ",
        "copy_ into new tensors ",
        "copy_ into one reused tensor ",
        "× plain 1w",
        "288",
        "Not timed: compiling, filling, the spot check",
        "goal 100",
        "goal 0.5",
        "µs (goal under 100)",
        "copies within host memory, no transfers",
        "float16 ms",
    ):
        assert words in text, words
    assert "import hotset" not in text


def test_report_as_json_is_complete(report: Report) -> None:
    """Versions, hardware, parameters and every value of every round, as plain JSON."""
    found = json.loads(json.dumps(report.as_dict(), allow_nan=False))
    assert (found["schema"], found["schema_version"]) == ("hotset.bench.cifar", 1)
    assert found["versions"]["hotset"] == hotset.__version__
    assert found["versions"]["torch"].partition("+")[0] == torch.__version__.partition("+")[0]
    assert {"numpy", "numba", "torchvision", "python"} <= set(found["versions"])
    assert {"cpu", "cores", "memory_bytes", "gpus"} <= set(found["hardware"])
    assert found["parameters"] == {**TINY.as_dict(), "sizes": [8, 16]}
    assert found["date"].endswith("+00:00")
    by_key = {row["key"]: row for row in found["rows"]}
    assert list(by_key) == [
        rows.PLAIN_0,
        rows.PLAIN,
        rows.ONCE,
        rows.RESIDENT,
        rows.AUGMENTED,
        rows.COPY_FRESH,
        rows.COPY_REUSED,
    ]
    for row in by_key.values():
        rates = row["samples_per_s"]["values"]
        plain = by_key[rows.PLAIN]["samples_per_s"]["values"]
        assert len(rates) == TINY.rounds
        assert row["ratio_to_plain"]["values"] == [a / b for a, b in zip(rates, plain, strict=True)]
    assert by_key[rows.PLAIN]["ratio_to_plain"]["values"] == [1.0, 1.0]
    assert by_key[rows.AUGMENTED]["per_epoch"]["transform_calls"] == 0
    assert set(found["share_of_copy"]) == {rows.COPY_FRESH, rows.COPY_REUSED}
    assert [(c["size"], c["dtype"], c["bytes"]) for c in found["copies"][:3]] == [
        (8, "uint8", 256 * 3 * 64),
        (8, "float16", 256 * 3 * 64 * 2),
        (8, "float32", 256 * 3 * 64 * 4),
    ]
    assert len(found["overhead"]["beyond_us_per_batch"]["values"]) == TINY.rounds
    assert found["imports"] is None


def test_copies_fit_in_memory() -> None:
    """No batch takes more than is said, and small images fill a batch."""
    for size in (32, 64, 128, 224, 512, 1024):
        assert batch_of(size) * 3 * size * size * 4 <= MOST_BATCH_BYTES
    assert [batch_of(size) for size in (32, 128, 224, 512, 1024)] == [256, 256, 256, 64, 16]


def test_copies_are_of_the_bytes_they_say() -> None:
    """One entry per size and dtype; with a clock that ticks, GB/s follow from the bytes."""
    watch = Stopwatch(clock=Ticks())
    copies = measure_copies(torch.device("cpu"), (224,), 1, watch, Said())
    assert [copy.dtype for copy in copies] == ["uint8", "float16", "float32"]
    for copy, per_pass in zip(copies, (4, 2, 1), strict=True):
        item_bytes: int = getattr(torch, copy.dtype).itemsize
        assert copy.nbytes == 256 * 3 * 224 * 224 * item_bytes
        assert copy.ms.values == (1000 / per_pass,)
        assert copy.gb_per_s == pytest.approx(copy.nbytes * per_pass / 1e9)
        assert copy.to_uint8.values == (4 / per_pass,)
    line = copies_table(copies).splitlines()[-1].split()
    assert line[:3] == ["224", "256", "250"]
    assert line[-1] == "4.00"


def test_imports_are_timed_in_pairs() -> None:
    """Each import is timed in a fresh interpreter; torch alone, and with hotset behind it."""
    cost = measure_imports(1, Said())
    assert set(cost.as_dict()) == {
        "torch_ms",
        "torch_and_hotset_ms",
        "added_ms",
        "hotset_after_torch_ms",
        "hotset_and_first_use_after_torch_ms",
    }
    for spread in (cost.torch_ms, cost.both_ms, cost.hotset_ms, cost.use_ms):
        assert len(spread.values) == 1
        assert spread.least > 0
    assert cost.added_ms.values[0] == cost.both_ms.values[0] - cost.torch_ms.values[0]


def test_settings_depend_on_what_is_left_open() -> None:
    """--quick changes what was not asked for, and nothing else."""
    usual = Settings.chosen("cpu", batch_size=256, workers=2)
    assert usual == Settings()
    assert (usual.samples, usual.rounds) == (SAMPLES, ROUNDS)
    quick = Settings.chosen("cpu", batch_size=256, workers=2, is_quick=True)
    assert (quick.samples, quick.rounds) == (QUICK_SAMPLES, QUICK_ROUNDS)
    asked = Settings.chosen("cpu", batch_size=8, workers=3, samples=100, rounds=1, is_quick=True)
    assert (asked.batch_size, asked.workers, asked.samples, asked.rounds) == (8, 3, 100, 1)
    assert asked.ahead == 6


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"rounds": 0}, "`--rounds` must be at least 1, got 0"),
        ({"workers": 0}, "`--workers` must be at least 1, got 0"),
        ({"batch_size": -1}, "`--batch-size` must be at least 1, got -1"),
        ({"samples": 511}, "expected 512 or more, got 511"),
    ],
)
def test_numbers_too_small_are_refused(option: dict[str, int], message: str) -> None:
    """The message names the option, what was expected and what came."""
    with pytest.raises(ConfigError, match=message):
        Settings(**option)


def test_hardware_and_versions_are_plain() -> None:
    """They can be written as JSON, and name what a reader needs to compare."""
    found = json.loads(json.dumps({**hardware(), **versions()}))
    assert found["cpu"]
    assert found["cores"] >= 1
    assert found["hotset"] == hotset.__version__


def test_command_prints_and_writes(
    report: Report,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The options reach the measurement, its result is printed, and the file holds it."""
    asked: list[Settings] = []

    def measure(settings: Settings, say: command.Progress) -> Report:
        asked.append(settings)
        say("round 1 of 2", "a")
        say("round 1 of 2", "b")
        return report

    monkeypatch.setattr(cifar, "measure", measure)
    path = tmp_path / "result.json"
    options = ("--batch-size", "16", "--workers", "1", "--samples", "72", "--rounds", "2")
    assert cifar.main(_parsed(*options, "--quick", "--json", str(path))) == 0
    assert (asked[0].batch_size, asked[0].workers, asked[0].samples) == (16, 1, 72)
    out, err = capsys.readouterr()
    assert out == f"{report}\n\nwritten: {path}\n"
    assert err == "round 1 of 2\n"
    assert json.loads(path.read_text(encoding="utf-8")) == json.loads(json.dumps(report.as_dict()))


def test_progress_uses_one_line_of_a_terminal() -> None:
    """On a terminal the line changes and goes away at the end."""

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    stream = Terminal()
    progress = command.Progress(stream)
    progress("round 1 of 2", "a")
    progress.clear()
    assert stream.getvalue() == "\r\x1b[Kround 1 of 2: a\r\x1b[K"


def test_unusable_file_is_refused_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file that cannot be written is found before anything is measured."""
    assert cifar.main(_parsed("--json", str(tmp_path / "missing" / "x.json"))) == command.FAILED
    assert "`--json` must name a file in a folder that is there" in capsys.readouterr().err


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_missing_device_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    """Without CUDA the command says what is there, and measures nothing."""
    assert cifar.main(_parsed("--device", "cuda")) == command.FAILED
    out, err = capsys.readouterr()
    assert out == ""
    assert "device='cuda' was asked for, but there is no CUDA device, only the CPU" in err
