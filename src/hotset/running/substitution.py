"""Loaders of a script, gone through by what hotset keeps of them where that is proven."""

from __future__ import annotations

import random
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _BaseDataLoaderIter

from hotset.chain.probe import own_generators, preserved_generators
from hotset.doctor.machine.cuda import is_used
from hotset.doctor.measure import Recording, Waited
from hotset.doctor.scripts.hooks import Kept, Stop
from hotset.errors import ConfigError, FaithfulnessError, HotsetError
from hotset.loader.again import again
from hotset.loader.loader import Loader
from hotset.planning.planner import plan
from hotset.progress import Told
from hotset.running.filling import filled
from hotset.running.job import Job, Settings
from hotset.running.proof import (
    doubt_about,
    doubt_in,
    doubt_of_batches,
    doubt_of_tensors,
    is_drawing,
    twin_of,
)
from hotset.running.snapshot import change, differing, snapshot_of
from hotset.running.summary import LoaderRun
from hotset.running.witness import quiet, witness_of

ANEW = "a dataset like it is made anew for every epoch: nothing that is kept would be used twice"
GONE = "what was kept of it was let go of, when a dataset like it was gone through"
SHARED = "what it keeps is that of another loader over the same dataset"
UNSTEADY = "two reads of the same samples in a row, with all generators seeded alike, differ"
DRAWS = (
    "without workers, its random steps drew from the script's own generator, and no longer do: the "
    "order of later epochs is another one, just as random"
)


class Batches(_BaseDataLoaderIter):
    """Stands for the iterator of a loader.

    Args:
        loader: the script's.
        inner: gives the batches.
    """

    def __init__(self, loader: DataLoader[Any], inner: Iterator[Any]) -> None:
        # What torch's own does here draws from generators; `inner` has done that.
        self.inner = inner
        self.put_back: Callable[[], None] | None = None
        self.plain: Callable[[], Iterator[Any]] | None = None
        self._sampler_iter = iter(())
        self._index_sampler = loader._index_sampler
        self._dataset_kind = loader._dataset_kind
        self._IterableDataset_len_called = None
        self._num_workers = loader.num_workers
        self._num_yielded = 0
        self._profile_name = "enumerate(hotset)"

    def _next_data(self) -> Any:
        return next(self.inner)


class Seat:
    """What one loader of the script is gone through by.

    Args:
        job: that it counts for.
        settings: of the loader when that was decided.
        epochs: gives the epochs; None leaves the loader alone.
    """

    def __init__(self, job: Job, settings: Settings, epochs: Loader | None) -> None:
        self.job, self.settings, self._epochs = job, settings, epochs
        self.is_new = True

    @property
    def epochs(self) -> Loader | None:
        """What gives the epochs; None once its job was left."""
        if self.job.fast is None:
            self._epochs = None
        return self._epochs


class Substitution:
    """Hooks that have loaders gone through by what hotset keeps of them; see `running.run`.

    Args:
        device: where batches come out; None is CUDA where the script has initialised it.
        is_dry: whether nothing is done but planning.
        told: as for `running.run`.
        clock: gives seconds.

    Attributes:
        unfaithful: what ended the script; None where nothing did.
    """

    def __init__(
        self,
        *,
        device: str | None = None,
        is_dry: bool = False,
        told: Told | bool | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._device, self._is_dry, self._told, self._clock = device, is_dry, told, clock
        self._jobs: list[Job] = []
        self._seats: Kept[Seat] = Kept()
        self._iterators: Kept[Seat] = Kept()
        self._made: list[weakref.ref[DataLoader[Any]]] = []
        self._waited = Waited()
        self._lock = threading.RLock()
        self._is_over = False
        self.unfaithful: FaithfulnessError | None = None

    def made(self, loader: DataLoader[Any]) -> None:
        """Remembers it, for a dry run."""
        if self._is_dry:
            self._made.append(weakref.ref(loader))

    def iterate(self, loader: DataLoader[Any], plain: Callable[[], Iterator[Any]]) -> Iterator[Any]:
        """The accelerated loader's batches, or the loader's own."""
        with self._lock:
            if self._is_dry and not self._is_over:
                self._look_at_all(loader)
                self._is_over = True
            if self._is_over:
                return Batches(loader, iter(()))
            seat = self._seats.get(loader)
            settings = Settings.of(loader, self._where() if seat is None else seat.settings.device)
            if seat is None or seat.settings != settings:
                seat = self._decided(loader, settings)
                self._seats[loader] = seat
        seat.job.recording.begin_epoch()
        iterator = self._begun(seat, loader, plain)
        self._iterators[iterator] = seat
        return iterator

    def take(self, iterator: Iterator[Any], plain: Callable[[], Any]) -> Any:
        """The next batch, timed.

        Raises:
            Stop: if a batch was not what the dataset itself gives, or the run is dry.
        """
        if self._is_over:
            raise Stop
        seat = self._iterators.get(iterator)
        if seat is None:
            return plain()
        recording = seat.job.recording
        recording.ask()
        try:
            batch = plain()
        except StopIteration:
            recording.end_epoch()
            raise
        except ConfigError as error:
            if not isinstance(iterator, Batches) or iterator.put_back is None:
                raise
            batch = self._instead(seat, iterator, error, plain)
        except FaithfulnessError as error:
            if not isinstance(iterator, Batches):
                raise
            # The script must not go on, even where it catches errors.
            self.unfaithful, self._is_over = error, True
            raise Stop from error
        if isinstance(iterator, Batches):
            iterator.put_back = None
        recording.come(batch)
        return batch

    def runs(self) -> tuple[LoaderRun, ...]:
        """What was done, loader by loader."""
        if self._is_dry and not self._is_over:
            self._look_at_all(None)
        return tuple(job.run() for job in self._jobs)

    def _begun(
        self, seat: Seat, loader: DataLoader[Any], plain: Callable[[], Iterator[Any]]
    ) -> Iterator[Any]:
        """The iterator of an epoch."""
        job, epochs = seat.job, seat.epochs
        if epochs is None:
            return plain()
        why = self._change(job, loader)
        if why:
            job.leave(why)
            if loader.persistent_workers and loader.num_workers:
                stand_again = _putting_back(loader)
                plain()  # workers that had stayed would draw no seed of theirs by now
                stand_again()
            return plain()
        # A sampler may give what is no index; before its first batch nothing is lost.
        put_back = _putting_back(loader) if seat.is_new else None
        try:
            iterator = Batches(loader, iter(epochs))
        except HotsetError as error:  # nothing of this epoch was handed out
            if put_back is not None:
                put_back()
            job.leave(str(error))
            return plain()
        iterator.put_back, iterator.plain, seat.is_new = put_back, plain, False
        job.accelerated_epochs += 1
        return iterator

    @staticmethod
    def _change(job: Job, loader: DataLoader[Any]) -> str:
        """What the plain loader would see of a change of the dataset, as far as that shows."""
        what = change(job.snapshot, snapshot_of(loader.dataset), but=job.ignored)
        # Workers that stay have the attributes as they were, and so has what is kept.
        is_staying = loader.persistent_workers and loader.num_workers > 0
        if what and not is_staying:
            return f"the dataset was changed ({what})"
        if job.witness is None or not job.accelerated_epochs:  # it was looked at just now
            return ""
        return job.witness.change(loader, is_read=not what)

    def _instead(
        self, seat: Seat, iterator: Batches, error: ConfigError, plain: Callable[[], Any]
    ) -> Any:
        """The first batch by the plain loader, where the sampler cannot be gone by."""
        assert iterator.put_back is not None
        assert iterator.plain is not None
        iterator.put_back()
        iterator.put_back = None
        seat.job.leave(str(error))
        seat.job.accelerated_epochs -= 1
        iterator.inner = iterator.plain()
        return plain()

    def _look_at_all(self, loader: DataLoader[Any] | None) -> None:
        """Plans every loader made so far."""
        loaders = [made for made in (ref() for ref in self._made) if made is not None]
        if loader is not None and not any(loader is made for made in loaders):
            loaders.append(loader)
        for each in loaders:
            self._decided(each, Settings.of(each, self._where()))

    def _decided(self, loader: DataLoader[Any], settings: Settings) -> Seat:
        """What becomes of a loader that was not seen before."""
        dataset, twin = loader.dataset, twin_of(loader)
        doubt = twin if isinstance(twin, str) else doubt_about(twin)
        for job in self._jobs:
            if job.settings == settings and job.is_over(dataset):
                job.loaders += 1
                if job.fast is None:
                    job.why = job.why or GONE
                return Seat(job, settings, self._once_more(job, twin, doubt))
        job = Job(settings, dataset, Recording(waited=self._waited))
        if not doubt and not self._is_dry and self._is_made_anew(dataset):
            doubt = ANEW
        fast = None
        if isinstance(twin, DataLoader) and not doubt:
            doubt, fast = self._accelerated(job, twin, settings.device)
        job.why = doubt
        if doubt and not self._is_dry:  # no need to say it again
            for other in self._jobs:
                if other.why == doubt and other.settings == settings and other.is_like(dataset):
                    other.loaders += 1
                    other.planned_s += job.planned_s
                    return Seat(other, settings, None)
        self._jobs.append(job)
        return Seat(job, settings, fast)

    def _once_more(self, job: Job, twin: DataLoader[Any] | str, doubt: str) -> Loader | None:
        """The same data in the order of a new loader."""
        if job.fast is None or doubt or isinstance(twin, str):
            return None
        fast = again(job.fast, twin)
        if fast is None:
            job.leave("a part of it is on the device, by the order of another loader")
        return fast

    def _accelerated(
        self, job: Job, loader: DataLoader[Any], device: str
    ) -> tuple[str, Loader | None]:
        """The loader that gives the same batches; or why there is none."""
        began = self._clock()
        try:
            # A dataset may hold generators of its own, and draw from any of them.
            with preserved_generators(own_generators(loader.dataset)):
                doubt, fast = self._proven(job, loader, device)
        except HotsetError as error:
            doubt, fast = str(error), None
        except Exception as error:  # whatever the user's classes do when they are looked at
            doubt, fast = f"it cannot be planned: {type(error).__name__}: {error}", None
        job.planned_s = self._clock() - began - job.filled_s
        self._waited.seconds += self._clock() - began  # belongs to no other loader's step
        return doubt, fast

    def _proven(self, job: Job, loader: DataLoader[Any], device: str) -> tuple[str, Loader | None]:
        dataset = loader.dataset
        before = snapshot_of(dataset)
        with quiet():
            doubt = doubt_of_batches(dataset)
            if doubt:
                return doubt, None
            job.plan = plan(loader, device=device)
        job.prediction = job.plan.prediction
        doubt = doubt_in(job.plan)
        if not doubt:
            witness = job.witness = witness_of(loader)
            is_steady = not witness.change(loader)
            doubt = doubt_of_tensors(witness.samples) if is_steady else UNSTEADY
        if doubt or self._is_dry:
            job.is_planned = not doubt
            return doubt, None
        for other in self._jobs:
            if other.fast is None or other.fast.dataset is not dataset or other.witness is None:
                continue
            if other.witness.change(loader):
                continue
            if other.settings.device == device and not change(
                other.snapshot, before, but=other.ignored
            ):
                fast = again(other.fast, loader)
                if fast is not None:
                    job.snapshot, job.ignored = other.snapshot, other.ignored
                    job.keep(fast, [SHARED, *_about_draws(loader, fast)])
                    return "", fast
        began = self._clock()
        fast = filled(loader, job.plan, name=job.name, told=self._told)
        job.filled_s = self._clock() - began
        doubt = doubt_in(fast.plan)
        if doubt:  # only reading all samples has shown it
            return doubt, None
        job.snapshot = snapshot_of(dataset)
        job.ignored = differing(before, job.snapshot)
        job.keep(fast, _about_draws(loader, fast))
        return "", again(fast, loader) or fast

    def _is_made_anew(self, dataset: Any) -> bool:
        """Whether datasets like this one come and go, each for no more than an epoch.

        What is kept of those that were gone through more often, and are no longer, is let go of.
        """
        seats = [self._seats.get(loader) for loader in self._seats.living()]
        in_use = {id(seat.job) for seat in seats if seat is not None}
        gone: set[int] = set()
        for job in self._jobs:
            if not job.is_like(dataset) or job.is_over(dataset):
                continue
            if job.why == ANEW:
                return True
            if job.fast is not None and id(job) not in in_use:
                if job.accelerated_epochs <= 1:
                    gone.add(id(job.fast.dataset))
                else:
                    job.fast = None
        return len(gone) > 1  # one may come again: training and validation in turn

    def _where(self) -> str:
        """The device that batches come out on."""
        if self._device is not None:
            return self._device
        if is_used():
            return f"cuda:{torch.cuda.current_device()}"
        return "cpu"


def _about_draws(loader: DataLoader[Any], fast: Loader) -> list[str]:
    return [DRAWS] if not loader.num_workers and is_drawing(fast.plan) else []


def _putting_back(loader: DataLoader[Any]) -> Callable[[], None]:
    """Puts back what samplers draw from, as far as that can be known."""
    owners: list[Any] = [loader, loader.sampler, loader.batch_sampler]
    owners += [getattr(loader.batch_sampler, "sampler", None)]
    own = [getattr(owner, "generator", None) for owner in owners]
    torches = {id(g): g for g in (*own, torch.default_generator) if isinstance(g, torch.Generator)}
    states = [(generator, generator.get_state()) for generator in torches.values()]
    python, numpy = random.getstate(), np.random.get_state()

    def put_back() -> None:
        for generator, state in states:
            generator.set_state(state)
        random.setstate(python)
        np.random.set_state(numpy)

    return put_back
