"""The simulated accelerator: its memory, its link, its queues and its faults, to the number."""

from __future__ import annotations

import gc
from typing import Any

import pytest
import torch

from hotset.errors import ConfigError, DeviceError, DeviceMemoryError
from hotset.placement.link import Link, link_to, place
from hotset.testing import SimulatedAccelerator

HALF = torch.zeros(500, dtype=torch.uint8)


def accelerator(**options: Any) -> SimulatedAccelerator:
    """One that copies 1,000 bytes a second, and has room for 2,000."""
    return SimulatedAccelerator(2000, bandwidth=1000, **options)


def begun(device: SimulatedAccelerator, *sizes: int, after: Any = None) -> Any:
    """A transfer of several copies."""
    transfer = device.begin(after)
    for size in sizes:
        transfer.copy(device.empty((size,), torch.uint8), torch.zeros(size, dtype=torch.uint8))
    transfer.end()
    return transfer


def test_it_is_a_link() -> None:
    """Any `device=` takes it."""
    device = accelerator()
    assert isinstance(device, Link)
    assert link_to(device) is device
    assert device.bandwidth() == 1000.0


def test_memory_is_counted_until_it_is_given_back() -> None:
    """Used now, used at most, free."""
    device = accelerator()
    kept = device.empty((10, 10), torch.float32)
    assert kept.shape == (10, 10)
    assert kept.dtype is torch.float32
    other = device.empty((100,), torch.bfloat16)
    view = other[3:]
    assert (device.used_bytes, device.free_bytes()) == (600, 1400)
    del other
    gc.collect()
    assert device.used_bytes == 600  # the view holds it
    del view
    gc.collect()
    assert (device.used_bytes, device.peak_bytes, device.allocations) == (400, 600, 2)


def test_memory_has_an_end() -> None:
    """What there is is said."""
    device = accelerator()
    kept = device.empty((1500,), torch.uint8)
    match = "the simulated accelerator has no room for 501 bytes: 500 bytes are free"
    with pytest.raises(DeviceMemoryError, match=match):
        device.empty((501,), torch.uint8)
    assert len(kept) == 1500
    assert isinstance(DeviceMemoryError(""), MemoryError)
    assert len(device.empty((500,), torch.uint8)) == 500


def test_copies_run_one_behind_the_other() -> None:
    """Beside the work of the consumer, who waits for one only as long as it takes."""
    device = accelerator()
    first, second = begun(device, 300, 200), begun(device, 500)
    device.run(0.2)
    device.wait(first)  # over at 0.5
    device.run(0.7)
    device.wait(second)  # over at 1.0, long before 1.2
    assert device.waits == pytest.approx([0.3, 0.0])
    assert device.time == pytest.approx(1.2)
    assert (device.copies, device.bytes_copied) == (3, 1000)


def test_a_copy_starts_behind_what_it_must_not_overtake() -> None:
    """Work that reads the memory it writes to."""
    device = accelerator()
    device.run(3.0)
    transfer = begun(device, 500, after=device.reached())
    device.wait(transfer)
    assert device.time == pytest.approx(3.5)


def test_the_host_waits_where_it_must() -> None:
    """For a copy, or for all work; copies that are begun later start later."""
    device = accelerator()
    device.join(begun(device, 500))
    assert device.time == pytest.approx(0.5)
    device.run(2.0)
    device.synchronize()
    device.wait(begun(device, 500))
    assert device.time == pytest.approx(3.0)


def test_placing_and_sending_copy_values() -> None:
    """Counted, and waited for."""
    device, source = accelerator(), torch.arange(100.0).reshape(20, 5)
    placed = place(device, source)
    assert torch.equal(placed, source)
    assert placed.data_ptr() != source.data_ptr()
    sent = device.send(torch.tensor(7.0))
    assert sent.item() == 7.0
    assert device.bytes_copied == 404
    assert device.time == pytest.approx(0.404)


def test_faults() -> None:
    """The n-th allocation finds no memory; the n-th copy fails; the next ones do not."""
    device = accelerator(fail_allocation=2, fail_copy=2)
    target = device.empty((500,), torch.uint8)
    with pytest.raises(DeviceMemoryError, match=r"has no room for 1 bytes: 1\.5 KB are free"):
        device.empty((1,), torch.uint8)
    transfer = device.begin()
    transfer.copy(target, HALF)
    with pytest.raises(DeviceError, match=r"^copy 2 to the simulated accelerator failed$"):
        transfer.copy(target, HALF)
    transfer.copy(target, HALF)
    assert device.bytes_copied == 1000
    assert device.allocations == 2


@pytest.mark.parametrize(
    ("capacity", "bandwidth", "problem"),
    [
        ("much", 1, "`capacity` must be bytes, '8GB' or '60%', got 'much'"),
        (1, "fast", "`bandwidth` must be bytes, '8GB' or '60%', got 'fast'"),
        (1, 0, "`bandwidth` must be more than nothing a second, got 0"),
    ],
)
def test_amounts_that_cannot_be_used(capacity: Any, bandwidth: Any, problem: str) -> None:
    """Are refused."""
    with pytest.raises(ConfigError, match=problem):
        SimulatedAccelerator(capacity, bandwidth=bandwidth)


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf"), "a"])
def test_times_that_are_none(seconds: Any) -> None:
    """Work takes no less than no time, and ends."""
    with pytest.raises(ConfigError, match="`seconds` must be 0 or more, got "):
        accelerator().run(seconds)


@pytest.mark.parametrize("name", ["fail_copy", "fail_allocation"])
@pytest.mark.parametrize("number", [0, -1, "a"])
def test_faults_are_numbered_from_one(name: str, number: Any) -> None:
    """Others would never happen."""
    with pytest.raises(ConfigError, match=f"`{name}` must be a whole number from 1, or None, got "):
        accelerator(**{name: number})


def strict() -> SimulatedAccelerator:
    """One that looks for races."""
    return accelerator(is_strict=True)


def test_copies_of_a_strict_one_take_effect_when_they_are_waited_for() -> None:
    """And those queued before them; not those behind."""
    device = strict()
    memory, point = device.empty((3,), torch.uint8), device.reached()
    transfers = []
    for number in range(3):
        transfers.append(device.begin(point))
        transfers[-1].copy(memory[number : number + 1], torch.tensor([7], dtype=torch.uint8))
        transfers[-1].end()
    assert memory.tolist() == [0, 0, 0]
    device.wait(transfers[1])
    assert memory.tolist() == [7, 7, 0]
    device.join(transfers[2])
    assert memory.tolist() == [7, 7, 7]


def test_a_strict_one_minds_a_buffer_that_is_written_to_too_soon() -> None:
    """Waiting on the device is not enough: the host must have joined the copies."""
    device = strict()
    buffer, memory = device.buffer(10), device.empty((20,), torch.uint8)
    for number in (1, 2):
        buffer.fill_(number)
        transfer = device.begin(device.reached())
        transfer.copy(memory[:10], buffer)
        transfer.end()
        device.wait(transfer)
        device.join(transfer)
        assert memory.tolist() == [number] * 10 + [0] * 10
    transfer = device.begin(device.reached())
    transfer.copy(memory[10:], buffer)
    transfer.end()
    device.wait(transfer)
    buffer.fill_(3)
    with pytest.raises(
        DeviceError, match=r"^a buffer was written to before copies from it were joined$"
    ):
        device.join(transfer)


def test_a_strict_one_minds_a_copy_that_overtakes() -> None:
    """What was reached before the memory was there, was waited for, or was read, is too early."""
    device, source = strict(), torch.ones(10, dtype=torch.uint8)
    early = device.reached()
    memory = device.empty((20,), torch.uint8)

    def copy(after: Any) -> None:
        transfer = device.begin(after)
        transfer.copy(memory[:10], source)
        transfer.end()
        device.wait(transfer)

    copy(given := device.reached())
    seen = device.reached()
    device.reads(memory[9:11])
    for point in (None, early, given, seen):
        with pytest.raises(DeviceError, match=r"^a copy overtakes work that may still read"):
            copy(point)
    transfer = device.begin(seen)
    transfer.copy(memory[11:], source[:9])  # which nobody read
    copy(device.reached())


def test_a_strict_one_minds_what_comes_before_its_copy() -> None:
    """A read of memory, and a wait for a transfer that has not ended."""
    device = strict()
    memory = device.empty((20,), torch.uint8)
    transfer = device.begin(device.reached())
    transfer.copy(memory[:10], torch.ones(10, dtype=torch.uint8))
    with pytest.raises(DeviceError, match=r"^a transfer is waited for before its end$"):
        device.wait(transfer)
    device.reads(memory[10:])
    with pytest.raises(DeviceError, match=r"^memory is read before a copy to it was waited for$"):
        device.reads(memory[9:11])
    transfer.end()
    device.wait(transfer)
    device.reads(memory)


def test_a_strict_one_lets_read_what_was_sent() -> None:
    """A tensor that was sent is there at once, and nothing else is ever copied to it."""
    device = strict()
    sent = device.send(torch.tensor([3, 4]))
    device.reads(sent)
    assert sent.tolist() == [3, 4]
