"""Leaving early, two at once, exceptions, Ctrl-C, forks: no thread, process or memory stays."""

from __future__ import annotations

import copy
import gc
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader
from torchvision import transforms as v1

import hotset
from tests import streams
from tests.streams import Pictures, assert_same, snapshot, stream

BATCHED = v1.Compose(
    [v1.RandomCrop(8, padding=2), v1.RandomHorizontalFlip(), v1.ToTensor(), v1.Normalize(0.5, 0.5)]
)
WORKER = v1.Compose([v1.ColorJitter(0.4), v1.ToTensor()])


@pytest.fixture
def several_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels use three threads, whatever the machine has."""
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0, 1, 2}, raising=False)
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


def batched(length: int = 100, size: int = 50, **options: Any) -> hotset.Loader:
    """A loader whose kernel runs in threads."""
    dataset = Pictures(length, BATCHED)
    return hotset.Loader(dataset, size, shuffle=True, seed=1, device="cpu", **options)


def in_workers(workers: int = 2) -> hotset.Loader:
    """A loader that runs the user's own callables in worker processes."""
    return hotset.Loader(
        Pictures(24, WORKER), 4, shuffle=True, seed=1, device="cpu", num_workers=workers
    )


def running() -> set[int]:
    """This process's threads, by identifier, and its child processes, by process id."""
    threads = {thread.ident for thread in threading.enumerate()}
    return {n for n in threads | {c.pid for c in multiprocessing.active_children()} if n}


def left_since(before: set[int]) -> set[int]:
    """What runs that did not before, once what is about to end has ended.

    A queue's feeder thread ends by itself a moment after the queue is closed.
    """
    deadline = time.monotonic() + 10
    gc.collect()
    while running() - before and time.monotonic() < deadline:
        time.sleep(0.01)
    return running() - before


def hotset_threads() -> int:
    """How many threads of hotset's run."""
    return sum(thread.name.startswith("hotset") for thread in threading.enumerate())


@pytest.mark.usefixtures("several_threads")
def test_threads_live_as_long_as_the_iteration() -> None:
    """There are some within the loop, none before it, and none behind it."""
    loader = batched()
    assert hotset_threads() == 0
    for number, _ in enumerate(loader):
        if number == 0:
            assert 1 <= hotset_threads() <= 2  # an idle one is used again before another starts
    assert hotset_threads() == 0


@pytest.mark.usefixtures("several_threads")
@pytest.mark.parametrize("make", [batched, in_workers])
def test_leaving_the_loop_early_ends_everything(make: Callable[[], hotset.Loader]) -> None:
    """`break`, at any batch."""
    before, loader = running(), make()
    for stop in (0, 1):
        for number, _ in enumerate(loader):
            if number == stop:
                break
        assert not left_since(before)


@pytest.mark.usefixtures("several_threads")
@pytest.mark.parametrize("make", [batched, in_workers])
def test_an_iterator_thrown_away_ends_everything(make: Callable[[], hotset.Loader]) -> None:
    """Begun and dropped, not begun and dropped, or the loader dropped with it."""
    before, loader = running(), make()
    iterator = iter(loader)
    del iterator
    iterator = iter(loader)
    next(iterator)
    del loader
    del iterator
    assert not left_since(before)


@pytest.mark.usefixtures("several_threads")
@pytest.mark.parametrize("make", [batched, in_workers])
@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_an_exception_in_the_loop_ends_everything(
    make: Callable[[], hotset.Loader], error: type[BaseException]
) -> None:
    """It passes through unchanged, and the loader can be used again."""
    before, loader = running(), make()

    def train() -> None:
        for _ in loader:
            raise error("in the step")

    with pytest.raises(error, match="in the step"):
        train()
    assert not left_since(before)
    assert len(list(loader)) == len(loader)


@pytest.mark.usefixtures("several_threads")
@pytest.mark.parametrize("make", [batched, in_workers])
def test_an_interrupt_within_hotset_ends_everything(
    make: Callable[[], hotset.Loader], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C that arrives while a batch is made."""
    before, loader = running(), make()
    original = type(loader._parts.order)._batches

    def interrupted(self: Any, start: Any) -> Any:
        for number, batch in enumerate(original(self, start)):
            if number == 1:
                raise KeyboardInterrupt
            yield batch

    monkeypatch.setattr(type(loader._parts.order), "_batches", interrupted)
    with pytest.raises(KeyboardInterrupt):
        list(loader)
    assert not left_since(before)


@pytest.mark.usefixtures("several_threads")
@pytest.mark.parametrize("make", [batched, lambda: in_workers(0), lambda: in_workers(2)])
def test_two_iterators_at_once_are_both_right(make: Callable[[], hotset.Loader]) -> None:
    """Interleaved, they give what the epochs give one after the other."""
    wanted, _ = stream(make(), epochs=2)
    loader = make()
    first, second = iter(loader), iter(loader)
    found: list[list[Any]] = [[], []]
    for _ in range(len(loader)):
        found[1].append(snapshot(next(second)))
        found[0].append(snapshot(next(first)))
    assert next(first, None) is None
    assert next(second, None) is None
    assert_same(found, wanted)


@pytest.mark.usefixtures("several_threads")
def test_iterators_in_threads_are_both_right() -> None:
    """Two threads run an epoch each of one loader."""
    wanted, _ = stream(batched(400, 40), epochs=2)
    loader = batched(400, 40)
    iterators = [iter(loader), iter(loader)]
    found: list[Any] = [None, None]

    def run(number: int) -> None:
        found[number] = [snapshot(batch) for batch in iterators[number]]

    threads = [threading.Thread(target=run, args=(n,), name=f"test {n}") for n in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert_same(found, wanted)


def test_batches_that_are_kept_are_not_overwritten() -> None:
    """Memory is used again only when nobody holds the batch, or a view of it."""
    loader = batched()
    kept, copies = [], []
    for _ in range(3):
        for images, labels in loader:
            kept.append((images[3:, 1], labels))
            copies.append(snapshot((images[3:, 1], labels)))
    assert_same(kept, copies)


def live_tensor_bytes() -> int:
    """Bytes of all tensors that the garbage collector knows."""
    gc.collect()
    storages = {}
    for thing in gc.get_objects():
        if type(thing) is Tensor and thing.layout is torch.strided:
            storage = thing.untyped_storage()
            storages[storage.data_ptr()] = storage.nbytes()
    return sum(storages.values())


@pytest.mark.usefixtures("several_threads")
@pytest.mark.parametrize("make", [batched, lambda: in_workers(0)])
def test_memory_does_not_grow_with_epochs(make: Callable[[], hotset.Loader]) -> None:
    """Tensors, finalizers and objects are as many after thirty epochs as after three."""
    loader = make()
    counts = []
    for epochs in (3, 15, 15):
        for _ in range(epochs):
            for _ in loader:
                pass
        counts.append((live_tensor_bytes(), len(weakref.finalize._registry)))
    assert counts[1] == counts[2]
    assert counts[0][1] == counts[2][1]


def test_leaving_early_does_not_leak() -> None:
    """Also when no epoch is ever finished."""
    loader = batched()
    counts = []
    for _ in range(3):
        for _ in range(10):
            next(iter(loader))
        counts.append((live_tensor_bytes(), len(weakref.finalize._registry)))
    assert counts[1] == counts[2]


@pytest.mark.parametrize("make", [batched, lambda: in_workers(0)])
def test_a_loader_that_is_dropped_frees_the_data(make: Callable[[], hotset.Loader]) -> None:
    """Nothing global holds on to the resident columns."""
    loader = make()
    list(loader)
    inner: Any = loader._parts.pipeline
    while hasattr(inner, "_inner"):
        inner = inner._inner
    stage = getattr(inner, "_stage", None)
    resident = inner._dataset._reader._resident if stage is None else stage._held
    watched = weakref.ref(resident.columns[0].data)
    del loader, inner, stage, resident
    gc.collect()
    assert watched() is None


def test_the_arena_keeps_few_blocks() -> None:
    """However many batches were held at once, only three blocks wait to be used again."""
    from hotset.kernels.arena import KEPT, Arena

    arena = Arena((4, 3), torch.float32)
    held = [arena.take(4) for _ in range(20)]
    assert len({tensor.data_ptr() for tensor in held}) == 20
    del held
    gc.collect()
    assert len(arena._free) == KEPT


def test_forking_after_use() -> None:
    """A stock DataLoader forks with a loader and a CachedDataset that have run already."""
    loader = batched()
    list(loader)
    cached = hotset.CachedDataset(Pictures(9, v1.ToTensor()), device="cpu")
    wanted = cached[4]
    found = list(DataLoader(cached, 3, num_workers=2))
    assert_same(found[1][0][1], wanted[0])

    class Inside(torch.utils.data.Dataset[Any]):
        def __len__(self) -> int:
            return 2

        def __getitem__(self, index: int) -> Any:
            return sum(float(x.sum()) for x, _ in batched())

    sums = [batch.tolist() for batch in DataLoader(Inside(), 1, num_workers=2)]
    here = sum(float(x.sum()) for x, _ in batched())
    assert sums == [[here], [here]]


CHAINS = {
    "plain": v1.ToTensor(),
    "batched": BATCHED,
    "float": v1.Compose([v1.ToTensor(), v1.RandomCrop(8, padding=1), v1.Normalize(0.5, 0.5)]),
    "worker": WORKER,
    "gated": v1.Compose([v1.RandomApply([v1.RandomCrop(8, padding=2)]), v1.ToTensor()]),
}


@pytest.mark.parametrize("chain", CHAINS)
def test_a_cached_dataset_is_pickled_for_workers(chain: str) -> None:
    """Samples, plan and draws are the same on the other side."""
    cached = hotset.CachedDataset(Pictures(9, CHAINS[chain]), device="cpu", dtype=torch.float16)
    again = pickle.loads(pickle.dumps(cached))
    assert again.plan == cached.plan
    assert len(again) == 9
    for indices in ([0, 8, 3], [-1]):
        torch.manual_seed(3)
        wanted = cached.__getitems__(indices)
        torch.manual_seed(3)
        assert_same(again.__getitems__(indices), wanted)
    assert_same(copy.copy(cached)[2][1], cached[2][1])


@pytest.mark.parametrize("chain", ["plain", "batched"])
def test_a_cached_dataset_works_in_spawned_workers(chain: str) -> None:
    """As they are on platforms that do not fork."""
    cached = hotset.CachedDataset(Pictures(6, CHAINS[chain]), device="cpu")
    settings: dict[str, Any] = {"num_workers": 1, "multiprocessing_context": "spawn"}
    found, _ = stream(DataLoader(cached, 3, **settings), seed=1)
    assert [labels.tolist() for _, labels in found[0]] == [[0, 1, 2], [3, 4, 5]]
    if chain == "plain":
        assert_same(found, stream(DataLoader(cached, 3))[0])


def test_the_worker_path_works_in_spawned_workers() -> None:
    """The settings of the user's loader are taken over; the batches do not depend on them."""
    dataset = Pictures(6, WORKER)
    settings: dict[str, Any] = {"num_workers": 1, "multiprocessing_context": "spawn"}
    spawned = hotset.accelerate(DataLoader(dataset, 3, **settings), device="cpu")
    here = hotset.accelerate(DataLoader(dataset, 3), device="cpu")
    assert_same(stream(spawned, seed=1)[0], stream(here, seed=1)[0])


SCRIPT = """
    import signal, sys, time, torch, hotset
    from torch.utils.data import DataLoader
    from torchvision import transforms as v1
    from tests.streams import Pictures

    # A shell's background job inherits an ignored SIGINT, and Python then leaves it ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    torch.set_num_threads(2)
    if __name__ == "__main__":
        jitter = v1.ColorJitter(0.1) if {is_worker} else v1.RandomCrop(8, padding=1)
        chain = v1.Compose([jitter, v1.ToTensor()])
        loader = DataLoader(Pictures(64, chain), 32, num_workers={workers})
        fast = hotset.accelerate(loader, device="cpu", check_every=0)
        while True:
            for number, batch in enumerate(fast):
                if number == 0:
                    import multiprocessing
                    pids = [child.pid for child in multiprocessing.active_children()]
                    print("running", *pids, flush=True)
"""


@pytest.mark.parametrize(("is_worker", "workers"), [(False, 0), (True, 0), (True, 2)])
def test_ctrl_c_ends_the_process_and_its_workers(
    is_worker: bool, workers: int, tmp_path: Path
) -> None:
    """SIGINT to the main process: it exits with KeyboardInterrupt, and no worker survives it."""
    code = textwrap.dedent(SCRIPT).format(is_worker=is_worker, workers=workers)
    (tmp_path / "train.py").write_text(code)
    root = str(Path(__file__).parents[1])
    with subprocess.Popen(
        [sys.executable, str(tmp_path / "train.py")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": root},
    ) as process:
        assert process.stdout is not None
        words = process.stdout.readline().split()
        assert words[:1] == ["running"], process.stderr.read() if process.stderr else ""
        pids = [int(word) for word in words[1:]]
        assert len(pids) == workers
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode != 0
    assert "KeyboardInterrupt" in errors
    assert "Exception ignored" not in errors
    for pid in pids:
        assert not is_running(pid)


def is_running(pid: int) -> bool:
    """Whether a process is there and is no zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_a_worker_that_dies_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed for memory, say: the run stops with a word, and the others end."""
    before = running()
    loader = hotset.accelerate(
        DataLoader(Pictures(24, hotset.random(dies_on_nine)), 4, num_workers=2),
        device="cpu",
        check_every=0,
    )
    with pytest.raises(RuntimeError, match=r"DataLoader worker .* exited unexpectedly"):
        list(loader)
    assert not left_since(before)


def dies_on_nine(image: Any) -> Any:
    """A step that takes its worker process with it."""
    same = image.tobytes() == streams.picture(9).tobytes()
    if same and torch.utils.data.get_worker_info() is not None:
        os._exit(1)
    torch.rand(())
    return v1.functional.to_tensor(image)
