"""The machine while a loop runs, as a psutil that only knows what it is told says."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from collections import namedtuple
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from hotset.doctor.machine.machine import EVERY_S, Machine
from hotset.doctor.machine.usage import Usage

Cpu = namedtuple("Cpu", "user nice system idle iowait irq softirq steal guest guest_nice")
Times = namedtuple("Times", "user system children_user children_system")
Read = namedtuple("Read", "read_bytes read_chars")
ME = os.getpid()


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class PsutilError(Exception):
    """As psutil.Error."""


class NoSuchProcess(PsutilError):  # noqa: N818  # as psutil names it
    """It has ended."""


class AccessDenied(PsutilError):  # noqa: N818  # likewise
    """It is somebody else's."""


class Process:
    """A process that used what a test says."""

    def __init__(self, psutil: Psutil, pid: int, cpu: float = 0.0, read: int = 0) -> None:
        self.psutil, self.pid = psutil, pid
        self.cpu, self.ended_cpu, self.read, self.asked = cpu, 0.0, read, 2 * read
        self.pss, self.private, self.rss = 1000, 700, 5000
        self.is_gone = self.is_denied = False

    def _check(self) -> None:
        if self.is_gone:
            raise NoSuchProcess(self.pid)

    def children(self, recursive: bool) -> list[Process]:
        assert recursive
        self.psutil.asked.append("children")
        if self.psutil.is_racing:
            raise NoSuchProcess(self.pid)
        return list(self.psutil.children)

    def cpu_times(self) -> Times:
        self._check()
        return Times(self.cpu / 2, self.cpu / 2, self.ended_cpu / 2, self.ended_cpu / 2)

    def io_counters(self) -> Read:
        self._check()
        if self.is_denied:
            raise AccessDenied(self.pid)
        if self.psutil.io is None:
            raise AttributeError("no io_counters here")
        return Read(self.read, self.asked) if self.psutil.io == "chars" else SimpleRead(self.read)

    def memory_full_info(self) -> Any:
        self._check()
        self.psutil.asked.append("memory")
        if self.is_denied:
            raise AccessDenied(self.pid)
        sizes = {"pss": self.pss, "uss": self.private, "rss": self.rss}
        return SimpleNamespace(**{name: sizes[name] for name in self.psutil.sizes})

    def memory_info(self) -> Any:
        self._check()
        return SimpleNamespace(rss=self.rss)


SimpleRead = namedtuple("SimpleRead", "read_bytes")


class Psutil:
    """In the place of the package."""

    Error, AccessDenied, NoSuchProcess = PsutilError, AccessDenied, NoSuchProcess

    def __init__(self, *, is_linux: bool = True) -> None:
        self.LINUX = is_linux
        self.me = Process(self, ME, cpu=10.0, read=1000)
        self.children: list[Process] = []
        self.machine = Cpu(50.0, 5.0, 5.0, 900.0, 30.0, 0.0, 0.0, 7.0, 3.0, 0.0)
        self.io: str | None = "chars"
        self.sizes = ("pss", "uss", "rss")
        self.asked: list[str] = []
        self.is_racing = False

    def Process(self, pid: int) -> Process:  # noqa: N802  # as psutil names it
        assert pid == ME
        return self.me

    def cpu_times(self) -> Cpu:
        return self.machine

    def start(self, pid: int, cpu: float = 0.0, read: int = 0) -> Process:
        """A child process begins."""
        self.children.append(Process(self, pid, cpu, read))
        return self.children[-1]

    def end(self, child: Process) -> None:
        """It ends; on Linux what it used is its parent's from then on."""
        self.children.remove(child)
        child.is_gone = True
        if self.LINUX:
            self.me.ended_cpu += child.cpu
            self.me.read += child.read
            self.me.asked += child.asked


def only(**packages: Any) -> Callable[[str], Any]:
    """Imports these packages; no other is installed."""

    def load(name: str) -> Any:
        if name not in packages:
            raise ImportError(name)
        return packages[name]

    return load


def begun(psutil: Psutil) -> tuple[Machine, Clock]:
    """A machine that is looked at, and its clock."""
    clock = Clock()
    machine = Machine(clock, wall=clock, load=only(psutil=psutil))
    machine.begin()
    return machine, clock


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch sees none."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


def test_what_a_process_uses() -> None:
    """Since the loop began, and not what it used before."""
    psutil = Psutil()
    machine, clock = begun(psutil)
    psutil.me.cpu += 6.0
    psutil.me.read += 300
    psutil.me.asked += 1000
    psutil.me.pss = 1234
    # Of the machine's time waiting and what was stolen are no work, and guests' is the users'.
    psutil.machine = Cpu(60.0, 6.0, 6.0, 999.0, 40.0, 0.5, 0.5, 17.0, 9.0, 0.0)
    clock.now += 4.0
    assert machine.end() == Usage(
        seconds=4.0,
        cores_busy=1.5,
        cores_busy_all=3.25,
        read_bytes=300,
        cached_bytes=700,
        memory_bytes=1234,
    )


@pytest.mark.parametrize("is_linux", [True, False])
def test_workers_that_come_and_go(is_linux: bool) -> None:
    """Each epoch's count once, whether or not they are there at the end."""
    psutil = Psutil(is_linux=is_linux)
    old = psutil.start(7, cpu=50.0, read=10_000)  # was there before
    machine, clock = begun(psutil)
    for epoch in range(3):
        workers = [psutil.start(100 + n) for n in range(2)]  # pids come again
        for worker in workers:
            worker.cpu, worker.read, worker.asked = 1.0, 100, 150
        clock.now += EVERY_S
        assert machine.look()
        if epoch == 0:
            old.cpu += 2.0
            clock.now += EVERY_S
            assert machine.look()
            psutil.end(old)
        if epoch < 2:
            for worker in workers:
                psutil.end(worker)
    clock.now += 4.0 - 4 * EVERY_S
    usage = machine.end()
    assert usage.cores_busy == (3 * 2 * 1.0 + 2.0) / 4.0
    assert (usage.read_bytes, usage.cached_bytes) == (600, 300)


def test_on_linux_workers_between_two_looks_count() -> None:
    """Their parent has it."""
    psutil = Psutil()
    machine, clock = begun(psutil)
    worker = psutil.start(7, cpu=3.0, read=90)
    psutil.end(worker)
    clock.now += 1.0
    usage = machine.end()
    assert (usage.cores_busy, usage.read_bytes, usage.cached_bytes) == (3.0, 90, 90)


def test_a_child_that_is_lost() -> None:
    """One that nobody waits for takes what it used along; nothing goes below nothing."""
    psutil = Psutil()
    lost = psutil.start(7, cpu=30.0, read=500)
    machine, clock = begun(psutil)
    psutil.children.remove(lost)
    clock.now += 1.0
    usage = machine.end()
    assert (usage.cores_busy, usage.read_bytes, usage.cached_bytes) == (0.0, 0, 0)


def test_a_child_that_ends_while_it_is_looked_at() -> None:
    """Is passed over."""
    psutil = Psutil()
    machine, clock = begun(psutil)
    psutil.start(7, cpu=3.0).is_gone = True
    psutil.me.cpu += 1.0
    clock.now += 1.0
    usage = machine.end()
    assert (usage.cores_busy, usage.memory_bytes) == (1.0, 1000)
    psutil = Psutil()
    machine, clock = begun(psutil)
    psutil.is_racing = True
    psutil.me.cpu += 1.0
    clock.now += 1.0
    assert machine.end().cores_busy == 1.0


def test_looks_are_far_between() -> None:
    """Between them nothing is asked; on Linux the processes are asked only for memory."""
    psutil = Psutil(is_linux=False)
    machine, clock = begun(psutil)
    asked = len(psutil.asked)
    clock.now += EVERY_S - 0.01
    assert not machine.look()
    assert len(psutil.asked) == asked
    clock.now += 0.01
    assert machine.look()
    assert psutil.asked[asked:] == ["children"]
    assert not machine.look()
    linux = Psutil()
    machine, clock = begun(linux)
    asked = len(linux.asked)
    clock.now += EVERY_S
    assert machine.look()
    assert linux.asked[asked:] == []


def test_memory_that_grows() -> None:
    """From when it has settled on, as last seen with as many processes."""
    psutil = Psutil()
    machine, clock = begun(psutil)
    workers = [psutil.start(n) for n in (7, 8)]
    psutil.me.pss = 1500
    machine.settle()
    workers[0].pss += 40
    clock.now += 1.0
    machine.look()
    workers[1].pss += 60
    clock.now += 0.6
    machine.look()  # not yet again
    for worker in workers:
        psutil.end(worker)
    clock.now += 1.0
    machine.look()
    usage = machine.end()
    assert (usage.memory_bytes, usage.growth_bytes) == (1500, 40)


def test_memory_is_looked_at_ever_more_seldom() -> None:
    """After one second, two, four …: the system goes through all pages for it."""
    psutil = Psutil()
    machine, clock = begun(psutil)
    machine.settle()
    psutil.asked.clear()
    seen = []
    for second in range(1, 41):
        clock.now += 1.0
        machine.look()
        seen += [second] * psutil.asked.count("memory")
        psutil.asked.clear()
    assert seen == [1, 2, 4, 8, 16, 32]


def test_memory_that_cannot_be_compared() -> None:
    """Where it never settled, or with other processes, nothing is said of growth."""
    machine, _ = begun(Psutil())
    assert machine.end().growth_bytes is None
    psutil = Psutil()
    machine, _ = begun(psutil)
    machine.settle()
    psutil.start(7)
    usage = machine.end()
    assert (usage.memory_bytes, usage.growth_bytes) == (2000, None)
    psutil = Psutil()
    machine, _ = begun(psutil)
    machine.settle()
    psutil.me.pss -= 300
    assert machine.end().growth_bytes == -300


def test_a_system_that_says_less() -> None:
    """None where nothing is known, a note for each."""
    psutil = Psutil(is_linux=False)
    psutil.io, psutil.sizes = None, ("uss", "rss")
    machine, clock = begun(psutil)
    clock.now += 1.0
    usage = machine.end()
    assert (usage.read_bytes, usage.cached_bytes, usage.memory_bytes) == (None, None, 700)
    assert usage.notes == (
        "what was read from storage was not seen: this system does not say",
        "memory that processes share is not counted: this system does not say",
    )
    psutil = Psutil(is_linux=False)
    psutil.io = "bytes"
    machine, clock = begun(psutil)
    psutil.me.read += 5
    usage = machine.end()
    assert (usage.read_bytes, usage.cached_bytes, usage.notes) == (5, None, ())


def test_a_process_that_may_not_be_asked() -> None:
    """Of it only its resident memory is known, of the others all."""
    psutil = Psutil()
    psutil.start(7).is_denied = True
    machine, clock = begun(psutil)
    psutil.me.read += 5
    clock.now += 1.0
    usage = machine.end()
    assert (usage.read_bytes, usage.memory_bytes) == (5, 6000)
    assert usage.notes == ("memory that processes share is counted for each of them",)


def test_without_psutil() -> None:
    """The seconds, and what to install."""
    clock = Clock()
    machine = Machine(clock, wall=clock, load=only())
    machine.begin()
    machine.settle()
    clock.now += 2.0
    assert machine.look()
    assert machine.end() == Usage(
        2.0,
        notes=("processor, memory and storage were not seen: pip install 'hotset[doctor]'",),
    )


def test_packages_are_imported_when_the_loop_begins() -> None:
    """And not before, since they are optional; NVML's torch may import by itself."""
    code = (
        "import sys\n"
        "from hotset.doctor.machine.machine import Machine\n"
        "machine = Machine()\n"
        "assert 'psutil' not in sys.modules\n"
        "machine.begin()\n"
        "assert 'psutil' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=100)


def _work(path: str) -> None:
    """Reads a file, and keeps the processor busy for a few ticks of its clock."""
    with open(path, "rb") as file:
        file.read()
    until = os.times().user + 0.05
    while os.times().user < until:
        pass


def test_the_real_machine(tmp_path: Any) -> None:
    """A child that ended is in all figures, once."""
    (tmp_path / "some").write_bytes(bytes(3_000_000))
    machine = Machine()
    machine.begin()
    child = multiprocessing.get_context("fork").Process(target=_work, args=(tmp_path / "some",))
    child.start()
    child.join()
    machine.settle()
    usage = machine.end()
    assert usage.seconds * usage.cores_busy >= 0.04
    assert usage.cores_busy_all >= 0
    asked = usage.read_bytes + usage.cached_bytes
    assert 3_000_000 <= asked < 6_000_000
    assert usage.memory_bytes > 10_000_000
    assert usage.growth_bytes is not None
