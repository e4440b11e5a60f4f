"""The loaders that a script goes through, batch by batch.

Nothing here imports torch or NumPy before the script does.
"""

from __future__ import annotations

import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any

from hotset.doctor.machine.usage import SETTLED
from hotset.doctor.scripts.hooks import Kept, Patch, Stop
from hotset.progress import Told

if TYPE_CHECKING:
    from torch.utils.data import DataLoader

    from hotset.doctor.machine.machine import Machine
    from hotset.doctor.machine.usage import Usage
    from hotset.doctor.measure import Recording, Waited
    from hotset.doctor.report import LoaderShare

RECENT = 8
"""Loaders that are held on to, besides the one that was waited for most."""
CALLS = 16
"""Calls that two loaders are told apart by, where each is over a dataset of its own."""
TRIALS = 2000
"""Batches of nothing that the hooks' own cost is measured on."""


@dataclass(frozen=True)
class Made:
    """The making of a loader.

    Attributes:
        number: of the event.
        lines: the calls that led there, the last ones first.
    """

    number: int = 0
    lines: tuple[tuple[CodeType, int], ...] = ()


class Track:
    """A loader of a script's, from epoch to epoch; the script may make it anew for each.

    Args:
        loader: as it is now.
        made: how it was made.
        waited: what all loaders of the script were waited for.
        clock: gives seconds.

    Attributes:
        name: its class, and its dataset's.
        recording: when its batches were asked for and came; None before the first.
        made: how it was made the first time.
        began: number of the last time that anybody began to go through it.
    """

    def __init__(
        self, loader: DataLoader[Any], made: Made, *, waited: Waited, clock: Callable[[], float]
    ) -> None:
        self.name = f"{type(loader).__name__} over {type(loader.dataset).__name__}"
        self._clock, self._lag_s = clock, 0.0
        self._waited = waited
        self.recording: Recording | None = None
        self.made = made
        self.began = 0
        self._taking: Callable[[], Taking | None] = lambda: None
        self.hold(loader)

    def hold(self, loader: DataLoader[Any]) -> None:
        """Keeps the loader, so that it can be examined when the script is over."""
        self._held: DataLoader[Any] | None = loader
        self._loader = weakref.ref(loader)

    def let_go(self) -> None:
        """Lets the loader go when the script does."""
        self._held = None

    @property
    def loader(self) -> DataLoader[Any] | None:
        """The latest one that it was; None once that is gone."""
        return self._loader()

    @property
    def has_lasting_workers(self) -> bool:
        """Whether it keeps processes for as long as it is there."""
        loader = self.loader
        return loader is not None and loader.persistent_workers

    @property
    def batches(self) -> int:
        """That came."""
        return 0 if self.recording is None else len(self.recording)

    @property
    def waited_s(self) -> float:
        """Seconds that it was waited for."""
        return 0.0 if self.recording is None else self.recording.waited_s

    def begin(self, taking: Taking) -> Recording:
        """An epoch begins: its first batch is asked for. Gives the recording that it goes to.

        A script may do anything between making the iterator and this, which is not waiting; making
        it is.
        """
        from hotset.doctor.machine.cuda import spans_if_used
        from hotset.doctor.measure import Recording

        self._taking = weakref.ref(taking)
        if self.recording is None:
            self.recording = Recording(clock=self._now, waited=self._waited, spans=spans_if_used())
        self._lag_s = taking.made_in_s
        self._waited.seconds -= taking.made_in_s  # it comes again, as a part of the first wait
        self.recording.begin_epoch()
        self._lag_s = 0.0
        return self.recording

    def is_continued_by(self, loader: DataLoader[Any], made: Made) -> bool:
        """Whether a new loader is this one made anew, after it and with it at rest.

        It is over the same dataset; or over another of its class, where it is made by the same
        lines of the script.
        """
        before, taking = self.loader, self._taking()
        if before is None or made.number < self.began or not (taking is None or taking.is_over):
            return False
        is_same = before.dataset is loader.dataset or (
            type(before.dataset) is type(loader.dataset) and self.made.lines == made.lines
        )
        return is_same and _likeness(before) == _likeness(loader)

    def _now(self) -> float:
        return self._clock() - self._lag_s


def _lines(frame: FrameType | None) -> tuple[tuple[CodeType, int], ...]:
    lines: list[tuple[CodeType, int]] = []
    while frame is not None and len(lines) < CALLS:
        lines.append((frame.f_code, frame.f_lineno))
        frame = frame.f_back
    return tuple(lines)


def _likeness(loader: DataLoader[Any]) -> tuple[Any, ...]:
    """What two loaders share if they are the same one, made twice."""
    sampler: Any = loader.sampler if loader.batch_sampler is None else loader.batch_sampler
    try:
        length = len(sampler)
    except (TypeError, NotImplementedError):  # a sampler need not know
        length = None
    return (type(loader), loader.batch_size, loader.num_workers, type(loader.sampler), length)


class Taking:
    """Going through a loader once.

    Attributes:
        track: of the loader.
        made_in_s: what making the iterator took.
        recording: that it goes to; None where no batch was asked for yet.
        is_over: whether there are no more.
    """

    def __init__(self, track: Track, made_in_s: float) -> None:
        self.track = track
        self.made_in_s = made_in_s
        self.recording: Recording | None = None
        self.is_over = False


class Tracks:
    """Hooks that record the loaders of a script, and stop it when enough is known.

    Args:
        steps: batches, of all loaders together, after which it is stopped; None for never.
        seconds: likewise, since the first batch was asked for.
        told: called with the batches so far, and those there will be.
        clock: gives seconds.

    Attributes:
        batches: so far, of all loaders together.
        made_count: loaders that were made.
        is_threaded: whether batches were taken in another thread than the main one.
    """

    def __init__(
        self,
        *,
        steps: int | None = None,
        seconds: float | None = None,
        told: Told | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._steps, self._seconds, self._told, self._clock = steps, seconds, told, clock
        self._tracks: list[Track] = []
        self._by_loader: Kept[Track] = Kept()
        self._made_at: Kept[Made] = Kept()
        self._takings: Kept[Taking] = Kept()
        self._events = 0
        self._began_s: float | None = None
        self._waited: Waited | None = None
        self._machine: Machine | None = None
        self._is_settled = False
        self.batches = 0
        self.made_count = 0
        self.is_threaded = False

    def made(self, loader: DataLoader[Any]) -> None:
        """Notes when it was made."""
        self.made_count += 1
        self._events += 1
        self._made_at[loader] = Made(self._events, _lines(sys._getframe(1)))

    def iterate(self, loader: DataLoader[Any], plain: Callable[[], Iterator[Any]]) -> Iterator[Any]:
        """The plain iterator, which is known from here on."""
        began = self._clock()
        iterator = plain()
        made_in_s = self._clock() - began
        track = self._track(loader)
        # Waited for now, whenever the first batch comes: no part of a step that goes on meanwhile.
        self._waited_in_all().seconds += made_in_s
        self._takings[iterator] = Taking(track, made_in_s)
        return iterator

    def take(self, iterator: Iterator[Any], plain: Callable[[], Any]) -> Any:
        """The plain batch, and when it was asked for and came.

        Raises:
            Stop: if there have been enough.
        """
        taking = self._takings.get(iterator)
        if taking is None or taking.is_over:
            return plain()
        recording = taking.recording
        if self._is_enough():
            if recording is not None:
                recording.ask()  # so that the last step has its time
            raise Stop
        if recording is None:
            recording = taking.recording = self._begin(taking)
        recording.ask()
        try:
            batch = plain()
        except StopIteration:
            taking.is_over = True
            recording.end_epoch()
            self._settle()
            raise
        recording.come(batch)
        if self._came():
            recording.excuse()
        return batch

    def _begin(self, taking: Taking) -> Recording:
        if self._began_s is None:
            self._began_s = self._clock()
            self._machine = _machine()
            self._machine.begin()
        if threading.current_thread() is not threading.main_thread():
            self.is_threaded = True
        return taking.track.begin(taking)

    def _came(self) -> bool:
        """Counts a batch, and looks at the machine; says whether that took time."""
        self.batches += 1
        has_looked = self._machine is not None and self._machine.look()
        if self.batches == SETTLED:
            has_looked |= self._settle()
        if self._told is not None:
            self._told(self.batches, self._steps)
        return has_looked

    def _settle(self) -> bool:
        if self._machine is None or self._is_settled:
            return False
        self._is_settled = True
        self._machine.settle()
        return True

    def _is_enough(self) -> bool:
        if self._steps is not None and self.batches >= self._steps:
            return True
        return (
            self._seconds is not None
            and self._began_s is not None
            and self._clock() - self._began_s >= self._seconds
        )

    def _track(self, loader: DataLoader[Any]) -> Track:
        """The loader's track: its own, that of the loader it stands for now, or a new one."""
        track = self._by_loader.get(loader)
        if track is None:
            made = self._made_at.get(loader) or Made()
            fitting = (each for each in self._tracks if each.is_continued_by(loader, made))
            track = next(fitting, None)
            if track is None:
                track = Track(loader, made, waited=self._waited_in_all(), clock=self._clock)
                self._tracks.append(track)
            self._by_loader[loader] = track
        track.hold(loader)
        self._events += 1
        track.began = self._events
        self._let_go(track)
        return track

    def _waited_in_all(self) -> Waited:
        if self._waited is None:
            from hotset.doctor.measure import Waited

            self._waited = Waited()
        return self._waited

    def _let_go(self, current: Track) -> None:
        """A script may make any number of loaders, and none is to outlive it for our sake."""
        if len(self._tracks) == 1:
            return
        kept = (self.examined, current)
        old = sorted(self._tracks, key=lambda track: track.began)[:-RECENT]
        for track in self._tracks:
            if track not in kept and (track in old or track.has_lasting_workers):
                track.let_go()

    @property
    def given(self) -> list[Track]:
        """The loaders that gave a batch, the most waited for first."""
        given = [track for track in self._tracks if track.batches]
        return sorted(given, key=lambda track: -track.waited_s)

    @property
    def examined(self) -> Track | None:
        """The most waited for of those that are still there; None where there is none."""
        return next((track for track in self.given if track.loader is not None), None)

    def shares(self) -> tuple[LoaderShare, ...]:
        """What each loader took, the most waited for first; empty where there is but one."""
        from hotset.doctor.report import LoaderShare

        given, examined = self.given, self.examined
        if len(given) < 2:
            return ()
        return tuple(
            LoaderShare(
                name=track.name,
                batches=track.batches,
                epochs=track.recording.epochs if track.recording is not None else 0,
                wait_s=track.waited_s,
                is_examined=track is examined,
            )
            for track in given
        )

    def finish(self) -> Usage | None:
        """What was used of the machine; ends workers that the script has left standing."""
        usage = None if self._machine is None else self._machine.end()
        for iterator in self._takings.living():
            end = getattr(iterator, "_shutdown_workers", None)
            if callable(end):
                end()
        for track in self._tracks:
            if track.loader is not None and getattr(track.loader, "_iterator", None) is not None:
                track.loader._iterator = None  # its workers are gone
        return usage


def _machine() -> Machine:
    from hotset.doctor.machine.machine import Machine

    return Machine()


def own_cost_us() -> float:
    """Microseconds that recording a batch costs through the hooks, on a batch of nothing."""
    import torch
    from torch.utils.data import DataLoader

    loader: DataLoader[Any] = DataLoader([0])  # type: ignore[arg-type]  # a list will do
    iterator, batch = iter(loader), (torch.zeros(1),)
    tracks = Tracks()
    tracks.iterate(loader, lambda: iterator)
    take = Patch(tracks).taking(lambda _: batch)
    take(iterator)
    began = time.perf_counter()
    for _ in range(TRIALS):
        take(iterator)
    seconds = time.perf_counter() - began
    tracks.finish()
    return 1e6 * seconds / TRIALS
