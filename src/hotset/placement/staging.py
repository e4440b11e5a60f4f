"""Requests on their way to a device: what stays there, and the ring that the rest passes through.

A request is looked up on the host ahead of its use. What is not on the device is gathered into a
buffer by a thread, and copied on the link's own queue; the consumer's work waits for the copy on
the device, not on the host.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hotset.placement.lanes import (
    DenseLane,
    Gather,
    Held,
    Lane,
    RaggedLane,
    View,
    chosen_on,
    is_passing,
)
from hotset.placement.link import Link, Transfer
from hotset.placement.policy import Lookup, Policy
from hotset.placement.ring import Ring
from hotset.placement.stage import Fetch, Fetched, Wanted, nothing
from hotset.placement.stats import Tally
from hotset.sample.column import DenseColumn, RaggedColumn
from hotset.sample.moving import to_device


@dataclass(eq=False)
class _Place:
    """One place of the ring.

    Attributes:
        number: which.
        buffer: pinned memory.
        transfer: the copies that last ran from it; None where none did.
        free: the point in the consumer's work from which the device's memory may be written to.
    """

    number: int
    buffer: Tensor
    transfer: Transfer | None = None
    free: Any = None


@dataclass(eq=False)
class _Ticket:
    """A request on its way."""

    wanted: Wanted
    rows: np.ndarray
    lookup: Lookup
    place: _Place | None = None
    job: Future[None] | None = None
    transfer: Transfer | None = None
    is_admitted: bool = False


class Staged:
    """Samples of which a device keeps some, and which pass to it otherwise.

    Args:
        held: all samples, on the host.
        link: to the device.
        ring: what requests pass through.
        policies: makes the policy that says which samples stay; told whether some are to be there
            from the start, or, where copies were lost, none.
        tally: counts.
        gather: copies rows.
        peek: the requests of an epoch to come, by its number; None where they cannot be known.

    Raises:
        DeviceMemoryError: if the device has no room.
    """

    is_passing = True

    def __init__(
        self,
        held: Held,
        link: Link,
        ring: Ring,
        policies: Callable[[bool], Policy],
        tally: Tally,
        *,
        gather: Gather,
        peek: Callable[[int], Iterator[np.ndarray]] | None = None,
    ) -> None:
        self._held, self._link, self._ring = held, link, ring
        self._policies, self._policy, self._tally = policies, policies(True), tally
        self._peek, self._is_busy, self._is_changed = peek, False, False
        kept = self._host_rows(self._policy.preload())
        held.touch(kept)
        self._slots = self._policy.capacity
        self._lanes = dict(self._lanes_for(kept, gather))
        self._is_dense = all(isinstance(lane, DenseLane) for lane in self._lanes.values())
        tally.bytes_placed += self._nbytes(kept)
        nbytes = sum(_aligned(lane.buffer_bytes) for lane in self._lanes.values())
        start = link.reached()  # memory may be some that work still queued has given back
        self._places = [_Place(n, link.buffer(nbytes), free=start) for n in range(ring.places)]
        self._turn = 0

    def _lanes_for(self, kept: np.ndarray, gather: Gather) -> Iterator[tuple[int, Lane]]:
        ring, link = self._ring, self._link
        for number, column in enumerate(self._held.columns):
            if isinstance(column, DenseColumn):
                room = (ring.places, ring.place_rows)
                host = partial(_column_of, self._held, number)
                yield number, DenseLane(host, kept, self._slots, room, link, gather)
            elif isinstance(column, RaggedColumn) and is_passing(column):
                yield number, RaggedLane(column, kept, (ring.places, ring.place_rows), link)

    def _nbytes(self, rows: np.ndarray) -> int:
        """Bytes that host rows take on the device."""
        return sum(lane.nbytes(rows) for lane in self._lanes.values())

    @property
    def capacity(self) -> int:
        """Samples that the device keeps."""
        return self._slots

    @property
    def device_bytes(self) -> int:
        """What it takes on the device."""
        return sum(lane.device_bytes for lane in self._lanes.values())

    def _host_rows(self, ids: np.ndarray) -> np.ndarray:
        rows = self._held.rows
        return ids if rows is None else rows.numpy()[ids]

    def fits(self, ids: np.ndarray) -> int:
        rows = self._host_rows(ids[: self._ring.place_rows])
        return max(1, min(lane.fits(rows) for lane in self._lanes.values()))

    def most(self, ids: np.ndarray) -> int:
        return max(1, self._ring.place_rows // max(1, len(ids))) if self._is_dense else 1

    @contextmanager
    def session(self) -> Iterator[Fetch]:
        if self._is_busy:  # the ring is another iterator's
            yield self._fetch_apart
            return
        self._is_busy = True
        waiting: deque[_Ticket] = deque()
        pool = ThreadPoolExecutor(1, thread_name_prefix="hotset-copy")
        try:
            yield lambda wants: self._fetch(wants, waiting, pool)
        finally:
            pool.shutdown(wait=True)
            self._settle(waiting)
            self._is_busy = False

    def _settle(self, waiting: deque[_Ticket]) -> None:
        """Ends requests that nobody came for: what was to stay does."""
        try:
            for ticket in waiting:
                self._arrive(ticket)
                self._admit(ticket)
        except Exception:  # whatever failed was wanted by nobody any more
            self._forget()

    def _forget(self) -> None:
        """Begins anew where it is not known any more which samples are on the device."""
        if self._is_changed:
            self._policy = self._policies(False)

    def _fetch(
        self, wants: Iterator[Wanted], waiting: deque[_Ticket], pool: ThreadPoolExecutor
    ) -> Generator[Fetched, None, None]:
        self._policy.begin()
        coming = self._announced(wants) if self._policy.window else wants
        failed: list[Exception] = []

        def submit(count: int) -> None:
            """Sends requests on their way, until there are so many."""
            try:
                while len(waiting) < count and not failed:
                    wanted = next(coming, None)
                    if wanted is None:
                        return
                    waiting.append(self._submit(wanted, pool))
            except Exception as error:  # of a later batch: it is raised in its turn
                failed.append(error)

        while True:
            submit(max(1, self._ring.ahead))
            if not waiting:
                break
            ticket = waiting.popleft()
            try:
                self._arrive(ticket)
            except BaseException:  # an interruption too leaves copies undone
                waiting.clear()
                self._forget()
                raise

            def release(ticket: _Ticket = ticket) -> None:
                self._admit(ticket)
                submit(self._ring.ahead)

            try:
                yield self._fetched(ticket, release)
            finally:
                self._admit(ticket)
        if failed:
            raise failed[0]

    def _announced(self, wants: Iterator[Wanted]) -> Iterator[Wanted]:
        """The same wants; the policy hears of them some time before."""
        waiting: deque[Wanted] = deque()
        ahead, epoch = 0, 0
        later: Iterator[np.ndarray] | None = None
        while True:
            while ahead < self._policy.window:
                wanted = next(wants, None) if later is None else None
                if wanted is not None:
                    waiting.append(wanted)
                    ids, epoch = wanted.ids, wanted.epoch
                else:
                    later = self._later(epoch) if later is None else later
                    found = next(later, None)
                    if found is None:
                        break
                    ids = found
                self._policy.announce(ids)
                ahead += len(ids)
            if not waiting:
                return
            ahead -= len(waiting[0].ids)
            yield waiting.popleft()

    def _later(self, epoch: int) -> Iterator[np.ndarray]:
        """The requests of the epochs to come, where they can be known."""
        is_known = self._peek is not None
        while self._peek is not None and is_known:
            epoch, is_known = epoch + 1, False  # one without requests says nothing of the next
            for ids in self._peek(epoch):
                is_known = True
                yield ids

    def _submit(self, wanted: Wanted, pool: ThreadPoolExecutor) -> _Ticket:
        rows, lookup = self._host_rows(wanted.ids), self._policy.look_up(wanted.ids)
        ticket = _Ticket(wanted, rows, lookup)
        self._tally.samples += len(rows)
        self._tally.hits += lookup.hits
        self._is_changed |= len(lookup.admitted) > 0
        if len(lookup.misses) == 0:
            return ticket
        found = self._places[self._turn]
        self._turn = (self._turn + 1) % len(self._places)
        if found.transfer is not None:
            self._link.join(found.transfer)  # its buffer is about to be written to
        ticket.place = found
        ticket.transfer = found.transfer = self._link.begin(found.free)
        ticket.job = pool.submit(self._load, found, ticket.transfer, rows[lookup.misses])
        return ticket

    def _load(self, found: _Place, transfer: Transfer, rows: np.ndarray) -> None:
        """Gathers and copies; in a thread of its own, which holds no lock of Python's meanwhile."""
        try:
            self._held.touch(rows)
            start = 0
            for lane in self._lanes.values():
                part = found.buffer[start : start + lane.buffer_bytes]
                lane.load(rows, part)
                lane.send(transfer, part, found.number, rows)
                start += _aligned(lane.buffer_bytes)
        finally:
            transfer.end()

    def _arrive(self, ticket: _Ticket) -> None:
        if ticket.job is not None:
            ticket.job.result()
            ticket.job = None
            missed = ticket.rows[ticket.lookup.misses]
            self._tally.bytes_copied += self._nbytes(missed)
            self._link.wait(ticket.transfer)

    def _fetched(self, ticket: _Ticket, release: Callable[[], None]) -> Fetched:
        lookup, number = ticket.lookup, 0 if ticket.place is None else ticket.place.number
        slots = lookup.slots.copy()
        missed = slots < 0
        slots[missed] = self._slots + number * self._ring.place_rows - 1 - slots[missed]
        on_device = self._on_device(slots)
        views: list[View] = []
        for leaf, column in enumerate(self._held.columns):
            lane = self._lanes.get(leaf)
            if lane is None:
                views.append((column, torch.from_numpy(ticket.rows)))
            else:
                views.append(lane.view(on_device, ticket.rows, lookup.misses, number))
        return Fetched(ticket.wanted.what, views, release)

    def _admit(self, ticket: _Ticket) -> None:
        """Keeps what is to stay, behind all work that is queued."""
        if ticket.is_admitted:
            return
        ticket.is_admitted = True
        lookup = ticket.lookup
        if ticket.place is None:
            return
        if len(lookup.admitted):
            start = self._slots + ticket.place.number * self._ring.place_rows
            sources, into = self._on_device(start + lookup.admitted), self._on_device(lookup.into)
            for lane in self._lanes.values():
                assert isinstance(lane, DenseLane)  # others have a policy that admits nothing
                lane.admit(sources, into)
        ticket.place.free = self._link.reached()

    def _on_device(self, numbers: np.ndarray) -> Tensor:
        return to_device(numbers, self._link.device)

    def _fetch_apart(self, wants: Iterator[Wanted]) -> Generator[Fetched, None, None]:
        """Samples copied one request at a time, beside the ring."""
        for wanted in wants:
            rows = self._host_rows(wanted.ids)
            self._held.touch(rows)
            every, near = torch.arange(len(rows)), torch.arange(len(rows), device=self._link.device)
            views = [
                (chosen_on(self._link, c, rows), near if isinstance(c, DenseColumn) else every)
                for c in self._held.columns
            ]
            self._tally.samples += len(rows)
            self._tally.bytes_copied += self._nbytes(rows)
            yield Fetched(wanted.what, views, nothing)


def _column_of(held: Held, number: int) -> DenseColumn:
    column = held.columns[number]
    assert isinstance(column, DenseColumn)
    return column


def _aligned(nbytes: int) -> int:
    """A whole number of cache lines, so that any dtype may begin behind it."""
    return -(-nbytes // 64) * 64
