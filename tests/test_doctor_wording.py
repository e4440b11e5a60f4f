"""A report in words: the verdict first, exact figures, and lines that fit."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from hotset.doctor.findings import Advice, Range, Stage
from hotset.doctor.machine.usage import GpuUse, Usage
from hotset.doctor.phrases import gain_in_words, percent, sentence, shown, times_as
from hotset.doctor.showing.rows import are_uneven
from tests import reports

DATA_BOUND_80 = """\
hotset doctor: train.py --epochs 3
DataLoader of ImageFolder, 50,000 samples, batches of 64, 4 workers

Data-bound (97 % sure): data is the limit: it is waited for in 73% of the time;
most of it for reading ImageFolder, 96 ms of the 137 ms a batch takes to make

waiting         74 % of the time: the loop waits for 11 ms of 15 ms a batch
largest gain    3.8× (3.7 to 3.8), if data took no time at all
do first        let hotset keep what ImageFolder gives each epoch anew: 3.2×
                (3.0 to 3.4)
WRONG RESULTS   workers that repeat NumPy's draws: see the traps below

stage                     a batch            at once  samples/s
> ImageFolder  read         96 ms                  4      2,667  the lowest
  Resize       transform    24 ms                  4     10,667
  RandomCrop   transform   3.0 ms  ± 0.9 ms        4     85,333
  ToTensor     transform    12 ms                  4     21,333
  collate                  2.0 ms                  4    128,000
  hand-over                0.8 ms  ± 0.1 ms        1     80,000
  pin                      0.3 ms                  1    213,333
  copy                     0.4 ms                  1    160,000
  step                     3.9 ms                  1     16,410

first epoch     879 ms for the first batch, then waiting 18 ms a batch
epoch start     381 ms in each epoch: 0.49 ms for each of its 782 batches
steady state    waiting 11 ms + step 3.9 ms a batch, over 66 batches
all in all      4,296 samples/s, epoch starts included

What would help
1. let hotset keep what ImageFolder gives each epoch anew: 3.2× (3.0 to 3.4)
   of the data's 34 ms a batch 0.6 ms would be left; it keeps 9.8 GB (host)
       loader = hotset.accelerate(loader, device="cuda")
2. keep the workers from one epoch to the next: 1.05×
   an epoch's start takes 390 ms, 5% of the epoch
       DataLoader(…, persistent_workers=True)
3. make reading ImageFolder cheaper, or do it once: at most 2.6× (2.5 to 2.8)
   it takes 96 ms of the 137 ms that a batch takes
       hotset.build(dataset, "train.hotset")  # the deterministic part, once, on disk

Traps
! WRONG RESULTS: Workers that repeat NumPy's draws. 2 workers drew the same
  numbers. Each is a copy of this process, NumPy's state included, so that
  samples are augmented alike in all of them. Seed NumPy in each worker from
  torch's seed.
       def seeded(worker):
           np.random.seed(torch.initial_seed() % 2**32)

       DataLoader(…, worker_init_fn=seeded)
- A worker start per epoch. 4 workers are started anew for each epoch, which
  takes 390 ms. They are ended with the epoch's iterator. Keep them.
       DataLoader(…, persistent_workers=True)

larger batch    no: a larger batch needs as much more data, and data is the
                limit
bursts          batches come in bursts of 4, one from each worker: the loop
                waits 35 ms for the first, finds the others ready (2.0 ms at the
                least), and waits again, since the workers together make batches
                more slowly than they are used up
one sample      p50 2.1 ms, p99 30 ms, of 256 in one process
                180 ms: index 17, data/train/n01440764/a very large one.JPEG
                95 ms: index 40312, data/train/n02979186/cassette.JPEG
                61 ms: index 9
workers         worker 2 takes 240 ms a batch, the others 137 ms to 141 ms
threads         a worker takes 164 ms a batch, held to one thread 82 ms

What hotset could keep, each sample made once (*: where it would cut)
  cut behind   takes   same twice?  bytes    saves  ms/MB  then   fits
  ImageFolder  6.0 ms  yes          30.0 GB  75 s   2.5    batch  host
* Resize       1.5 ms  yes          9.8 GB   93 s   9.5    batch  host
    the fewest bytes of those behind which all runs on whole batches
  RandomCrop   0.2 ms  no           -        -      -      -      -

loader                     batches  epochs  waited
DataLoader of ImageFolder      105       3   2.5 s  this report
DataLoader of Validation        12       1   80 ms

processor       3.6 of 4 cores busy; by all processes of the machine 3.9
reads           120.0 MB read from storage, 1.3 GB from what the system had in
                memory
memory          2.4 GB, grown by 310.0 MB while the loop ran
GPU             NVIDIA A100-SXM4-40GB, 31 % busy, 3.1 GB of 42.9 GB taken
doctor itself   1.7 µs a batch, 0.012 % of the loop; 6.5 s to examine the loader
versions        hotset 0.9.0, python 3.12.1, torch 2.14.1
hardware        A Processor @ 2.00GHz, 4 cores, 16.0 GB of memory, NVIDIA
                A100-SXM4-40GB
made            2030-01-02T03:04:05+00:00
note            the script's own exit code was 0
note            the collate_fn was timed on 8 batches
note            reads are those of Linux's /proc alone"""


def test_a_report_with_everything_in_80_columns() -> None:
    """Verdict, what to do and wrong results first; then all that they follow from."""
    assert reports.data_bound().text(80) == DATA_BOUND_80


def test_printing_is_100_columns_wide() -> None:
    """And all stays within the width, but for code."""
    report = reports.data_bound()
    assert str(report) == report.text() == report.text(100)
    assert max(map(len, report.text(100).splitlines())) <= 100
    assert [line for line in report.text(80).splitlines() if len(line) > 80] == [
        '       hotset.build(dataset, "train.hotset")  # the deterministic part, once, on disk'
    ]


def test_a_loop_that_is_left_alone() -> None:
    """The advice stands at the top, once; the device's own waiting is named as such."""
    assert reports.compute_bound().text(100) == (
        "hotset doctor: DataLoader of CIFAR10\n"
        "DataLoader of CIFAR10, 2,560 samples, batches of 64, 2 workers\n"
        "\n"
        "Compute-bound (over 99 % sure): the step is the limit: it takes 40 ms a batch, and data "
        "is waited\n"
        "for in 3% of the time\n"
        "\n"
        "waiting         2.8 % of the time: the device stands still for 1.2 ms of 41 ms a batch\n"
        "largest gain    1.03×, if data took no time at all\n"
        "to do           leave the data loading as it is: if data took no time at all, the loop "
        "would be 1.03\n"
        "                times as fast\n"
        "\n"
        "stage            a batch  at once  samples/s\n"
        "  CIFAR10  read   8.0 ms        2     16,000\n"
        "> step             40 ms        1      1,600  the lowest\n"
        "\n"
        "first epoch     7.8 ms for the first batch, then the device stands still 0.98 ms a batch\n"
        "epoch start     7.8 ms in each epoch: 0.2 ms for each of its 40 batches\n"
        "steady state    the device stands still 0.98 ms + step 40 ms a batch, over 39 batches\n"
        "all in all      1,553 samples/s, epoch starts included\n"
        "\n"
        "larger batch    yes, 1.30× the samples/s with twice the batch: half a batch takes the "
        "step 26 ms, a\n"
        "                whole one 40 ms: 12 ms do not depend on its size\n"
        "\n"
        "doctor itself   1.2 µs a batch, 0.003 % of the loop; 1.0 s to examine the loader\n"
        "made            2030-01-02T03:04:05+00:00"
    )


def test_advice_beside_leaving_it_is_listed() -> None:
    """With no figure for what changes nothing."""
    report = reports.compute_bound()
    more = Advice("workers", "read with 3", Range(1.2, 1.1, 1.3), False, "why", "code")
    lines = replace(report, advice=(*report.advice, more)).text(100).splitlines()
    at = lines.index("What would help")
    assert lines[at + 1] == "1. leave the data loading as it is"
    assert lines[at + 3] == "2. read with 3: 1.20× (1.10 to 1.30)"
    assert "do first        leave the data loading as it is" in lines


def test_a_loop_without_workers_in_one_epoch() -> None:
    """It says that it saw one epoch, why hotset can do nothing, and what is not installed."""
    lines = reports.single_process().text(80).splitlines()
    assert "DataLoader of Rows, 1,280 samples, batches of 64, no workers" in lines
    assert "> blurred  transform   9.0 ms        1      7,111  the lowest" in lines
    assert "hotset          can do nothing here: no step of the dataset is known" in lines
    assert "note            psutil is not installed: pip install 'hotset[doctor]'" in lines
    assert (
        "larger batch    cannot be told: the step was seen with batches of one size only" in lines
    )
    assert "                epoch, what is slow only the first time included" in lines
    assert not any(line.startswith(("bursts", "workers", "first epoch", "Traps")) for line in lines)


def test_a_report_of_hardly_anything() -> None:
    """What is infinite is put into words, and what is not known is left out."""
    assert reports.endless().text(100) == (
        "hotset doctor: generator\n"
        "\n"
        "Inconclusive: 1 batch in steady state is too few to tell\n"
        "\n"
        "waiting         100 % of the time: the loop waits for 0.98 ms of 0.98 ms a batch\n"
        "largest gain    without limit: beside the data, nothing took time that could be measured\n"
        "\n"
        "stage               a batch  at once  batches/s\n"
        "  generator  batch   0.0 ms        1   no limit\n"
        "\n"
        "steady state    waiting 0.98 ms + step 0.0 ms a batch, over 1 batch of a single epoch, "
        "what is slow\n"
        "                only the first time included\n"
        "all in all      1,024 batches/s, epoch starts included\n"
        "\n"
        "larger batch    cannot be told: that cannot be told from what was seen\n"
        "\n"
        "doctor itself   0 µs a batch, 0 % of the loop\n"
        "made            2030-01-02T03:04:05+00:00"
    )


def test_long_names_are_shortened_to_the_width() -> None:
    """The table keeps its columns, and the end of a name gives way."""
    report = reports.single_process()
    name = "a_step_with_a_name_that_says_all_that_it_does_and_then_some"
    stages = (Stage(name, "transform", 9.0, 5.0, 1, 7111.1, is_lowest=True), *report.stages)
    lines = replace(report, stages=stages).text(80).splitlines()
    row = next(line for line in lines if line.startswith("> "))
    assert row == (
        "> a_step_with_a_n…  transform   9.0 ms  ± 5.0 ms        1      7,111  the lowest"
    )
    assert len(row) == 80


def test_what_a_terminal_would_obey_is_not_printed() -> None:
    """Names keep their markup, which means nothing there, but no control character is left."""
    text = reports.marked().text(80)
    assert "\x1b" not in text
    assert "\udcff" not in text
    assert text.encode("utf-8")
    assert "/��[31m.png" in text
    assert "\n" + "       " + reports.NASTY + "\n" in text


def test_several_gpus_have_numbers() -> None:
    """And what is not known of one is left out."""
    gpus = (GpuUse("One", None, None, 1000), GpuUse("Two", 0.5, 500, 1000))
    report = replace(reports.compute_bound(), usage=Usage(1.0, gpus=gpus))
    lines = report.text(80).splitlines()
    assert "GPU 0           One" in lines
    assert "GPU 1           Two, 50 % busy, 500 bytes of 1.0 KB taken" in lines


def test_workers_that_differ() -> None:
    """Told of only where one clearly takes longer than the one in the middle."""
    report = reports.data_bound()
    even = tuple(replace(each, ms=100 + each.number) for each in report.examination.workers)
    assert are_uneven(report.examination.workers)
    assert not are_uneven(even)
    assert not are_uneven(())
    found = replace(report.examination, workers=even, limited=())
    text = replace(report, examination=found).text(80)
    assert "\nworkers " not in text
    assert "\nthreads " not in text


@pytest.mark.parametrize(
    ("gain", "is_most", "words"),
    [
        (Range(3.21, 3.02, 3.43), False, "3.2× (3.0 to 3.4)"),
        (Range(2.64, 2.5, 2.8), True, "at most 2.6× (2.5 to 2.8)"),
        (Range(1.5, 1.5, 1.5), False, "1.50×"),
        (Range(30.0, 25.0, math.inf), False, "30× (25 to any)"),
        (Range(math.inf, math.inf, math.inf), True, "without limit"),
    ],
)
def test_gains_in_words(gain: Range, is_most: bool, words: str) -> None:
    """With their error, where there is one, and without a figure where there is no limit."""
    assert gain_in_words(gain, is_most=is_most) == words


def test_small_phrases() -> None:
    """Figures keep two digits, and words of others become sentences on one line."""
    ratios = (1.99, 1.996, 19.94, 19.96, 1234.5)
    assert [times_as(ratio) for ratio in ratios] == ["1.99×", "2.0×", "19.9×", "20×", "1,234×"]
    assert [percent(share) for share in (1.0, 0.0994, 0.0996)] == ["100 %", "9.9 %", "10 %"]
    assert sentence("") == ""
    assert sentence("one. Two") == "One. Two."
    assert shown("a\tb\nc\x00") == "a b c�"
