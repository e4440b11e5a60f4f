"""Resumed is uninterrupted, in the middle of an epoch too; foreign states are refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils.data import DataLoader, DistributedSampler
from torchvision import transforms as v1

import hotset
from hotset.errors import StateError
from tests import streams
from tests.streams import Pictures, assert_same, plain_loader

BATCHED = v1.Compose([v1.RandomCrop(8, padding=2), v1.RandomHorizontalFlip(), v1.ToTensor()])
WORKER = v1.Compose([v1.ColorJitter(0.4), v1.ToTensor()])
EPOCHS = 3


def saved(loader: hotset.Loader) -> tuple[Any, Tensor]:
    """The state, through JSON, and torch's generator, as a checkpoint holds both."""
    return json.loads(json.dumps(loader.state_dict())), torch.get_rng_state()


def take(loader: hotset.Loader, count: int) -> list[Any]:
    """So many batches, over the ends of epochs."""
    batches: list[Any] = []
    while len(batches) < count:
        for batch in loader:
            batches.append(batch)
            if len(batches) == count:
                break
    return batches


def assert_resumes(make: Callable[[], hotset.Loader], stop: int) -> None:
    """Fails unless a run stopped after `stop` batches goes on as if it had not been.

    Args:
        make: gives a new loader, with samplers of its own.
        stop: number of batches before the state is taken.
    """
    torch.manual_seed(11)
    whole = make()
    total = EPOCHS * len(whole)
    wanted = take(whole, total)
    torch.manual_seed(11)
    first = make()
    found = take(first, stop)
    state, generator = saved(first)
    torch.manual_seed(999)
    second = make()
    second.load_state_dict(state)
    torch.set_rng_state(generator)
    assert json.loads(json.dumps(second.state_dict())) == state
    found += take(second, total - stop)
    assert_same(found, wanted)


@settings(max_examples=30)
@given(
    length=st.integers(3, 17),
    batch_size=st.integers(1, 6),
    drop_last=st.booleans(),
    shuffle=st.booleans(),
    chain=st.sampled_from((None, BATCHED, WORKER)),
    stop=st.integers(0, 100),
)
def test_seeded_loaders_resume(
    length: int, batch_size: int, drop_last: bool, shuffle: bool, chain: Any, stop: int
) -> None:
    """At any batch of any epoch, before the first and behind the last."""
    batch_size = min(batch_size, length)

    def make() -> hotset.Loader:
        return hotset.Loader(
            Pictures(length, chain or v1.ToTensor()),
            batch_size,
            shuffle=shuffle,
            drop_last=drop_last,
            seed=5,
            device="cpu",
        )

    assert_resumes(make, stop % (EPOCHS * len(make()) + 1))


@settings(max_examples=50)
@example("own generator", 8, 2, None, 4)
@example("own generator, replacement", 8, 2, None, 9)
@given(
    sampler=st.sampled_from(streams.SAMPLERS),
    length=st.integers(8, 17),
    batch_size=st.integers(1, 6),
    chain=st.sampled_from((None, BATCHED, WORKER)),
    stop=st.integers(0, 100),
)
def test_sampler_orders_resume(
    sampler: str, length: int, batch_size: int, chain: Any, stop: int
) -> None:
    """With the loader's own samplers and generators, replacement and augmentation included."""

    def make() -> hotset.Loader:
        dataset = Pictures(length, chain or v1.ToTensor())
        return hotset.accelerate(plain_loader(dataset, sampler, batch_size, False), device="cpu")

    assert_resumes(make, stop % (EPOCHS * len(make()) + 1))


@pytest.mark.parametrize("stop", [0, 1, 4, 5, 7, 10, 12])
@pytest.mark.parametrize("workers", [(0, 2), (2, 0), (2, 2)])
@pytest.mark.parametrize("persistent", [False, True])
def test_resuming_with_other_workers(stop: int, workers: tuple[int, int], persistent: bool) -> None:
    """The rest of a begun epoch is the same, whatever number of workers there is now."""

    def make(count: int) -> hotset.Loader:
        loader = plain_loader(
            Pictures(17, v1.Compose([v1.RandomHorizontalFlip(), v1.ToTensor()])),
            "shuffled",
            4,
            False,
            num_workers=count,
            persistent_workers=persistent and count > 0,
        )
        return hotset.accelerate(loader, device="cpu", check_every=0)

    torch.manual_seed(2)
    first = make(workers[0])
    take(first, stop)
    state, generator = saved(first)
    # What is left of the epoch; a whole one where the state was taken between two.
    rest = 5 - stop % 5
    wanted = take_rest(first, state, rest)
    second = make(workers[1])
    second.load_state_dict(state)
    torch.set_rng_state(generator)
    if stop % 5:
        assert_same(take(second, rest), wanted)
    else:
        assert len(take(second, rest)) == len(wanted)


def take_rest(loader: hotset.Loader, state: Any, count: int) -> list[Any]:
    """What the same loader gives after its own state."""
    loader.load_state_dict(state)
    return take(loader, count)


def test_a_run_keeps_its_seed_between_epochs() -> None:
    """Alternating flips hold over a resumption at the end of an epoch: every image, both ways."""
    images = torch.arange(2 * 3 * 4, dtype=torch.uint8).reshape(1, 2, 3, 4).repeat(16, 1, 1, 1)
    data = (images, torch.arange(16))

    def make() -> hotset.Loader:
        return hotset.Loader(data, 4, transform=hotset.AlternatingFlip(), device="cpu")

    torch.manual_seed(0)
    first = make()
    before = torch.cat([x for x, _ in first])
    state, _ = saved(first)
    torch.manual_seed(12345)
    second = make()
    second.load_state_dict(state)
    after = torch.cat([x for x, _ in second])
    assert torch.equal(after, before.flip(-1))


def test_a_loaded_state_replaces_what_the_loader_was_doing() -> None:
    """Also in a loader that has run already, on another run's seed."""
    data = (torch.zeros(16, 1, 2, 2, dtype=torch.uint8), torch.arange(16))

    def make() -> hotset.Loader:
        return hotset.Loader(
            data, 4, shuffle=True, transform=[hotset.AlternatingFlip()], device="cpu"
        )

    torch.manual_seed(0)
    first = make()
    take(first, 2)
    state, generator = saved(first)
    torch.manual_seed(1)
    second = make()
    take(second, 5)
    second.load_state_dict(state)
    torch.set_rng_state(generator)
    found = take(second, 2)
    first.load_state_dict(state)
    torch.set_rng_state(generator)
    assert_same(found, take(first, 2))
    assert second.state_dict()["run_seed"] == state["run_seed"]


@pytest.mark.parametrize(("old_world", "new_world"), [(1, 2), (2, 4), (4, 1), (3, 2)])
@pytest.mark.parametrize("stop", [1, 2, 3])
def test_resuming_on_another_number_of_ranks(old_world: int, new_world: int, stop: int) -> None:
    """With the same global batch the ranks together go on with the very samples left."""
    length, batch = 40, 12
    chain = v1.Compose([v1.RandomCrop(8, padding=2), v1.ToTensor()])

    def make(rank: int, world: int) -> hotset.Loader:
        return hotset.Loader(
            Pictures(length, chain),
            batch // world,
            shuffle=True,
            seed=9,
            shard=(rank, world),
            device="cpu",
            check_every=0,
        )

    old = make(0, old_world)
    take(old, stop)
    state, _ = saved(old)
    single = hotset.Loader(
        Pictures(length, chain), batch, shuffle=True, seed=9, device="cpu", check_every=0
    )
    wanted = list(single)[stop:]
    ranks = [make(rank, new_world) for rank in range(new_world)]
    for rank in ranks:
        rank.load_state_dict(state)
    found = [list(rank) for rank in ranks]
    for number, (images, labels) in enumerate(wanted):
        parts = [batches[number] for batches in found]
        for rank, (x, y) in enumerate(parts):
            assert_same(y, labels[rank::new_world])
            assert_same(x, images[rank::new_world])


def test_a_state_is_plain_and_small() -> None:
    """JSON takes it, and hands back one that is loaded alike."""
    loader = hotset.Loader(Pictures(9, v1.ToTensor()), 4, shuffle=True, seed=1, device="cpu")
    take(loader, 1)
    text = json.dumps(loader.state_dict())
    assert len(text) < 500
    assert json.loads(text) == loader.state_dict()
    assert loader.state_dict()["started"]["batches"] == 1


def test_an_abandoned_epoch_does_not_linger() -> None:
    """Two epochs begun: the state is that of the latest; a finished one leaves nothing started."""
    loader = hotset.Loader(Pictures(9, v1.ToTensor()), 4, shuffle=True, seed=1, device="cpu")
    take(loader, 1)
    assert loader.state_dict()["epoch"] == 1
    list(loader)
    assert loader.state_dict()["started"] is None
    assert loader.state_dict()["epoch"] == 2
    take(loader, 2)
    assert loader.state_dict()["started"]["start"]["epoch"] == 2


def basic(**changes: Any) -> hotset.Loader:
    """A loader, with some of its arguments changed."""
    settings: dict[str, Any] = {
        "length": 12,
        "transform": v1.Compose([v1.RandomCrop(8, padding=2), v1.ToTensor()]),
        "batch_size": 4,
        "seed": 1,
        "shuffle": True,
        "drop_last": False,
        "form": "pair",
        **changes,
    }
    dataset = Pictures(settings.pop("length"), settings.pop("transform"), settings.pop("form"))
    return hotset.Loader(dataset, settings.pop("batch_size"), device="cpu", **settings)


CROP_3 = v1.Compose([v1.RandomCrop(8, padding=3), v1.ToTensor()])
NORMALISED = [v1.RandomCrop(8, padding=2), v1.ToTensor()]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"length": 13}, "another dataset or transform: it was saved with 12 samples .* has 13"),
        ({"form": "list"}, "another dataset or transform"),
        ({"transform": CROP_3}, "another dataset or transform"),
        ({"transform": v1.ToTensor()}, "another dataset or transform"),
        ({"transform": v1.Compose([*NORMALISED, v1.Normalize(0.5, 0.5)])}, "another dataset or tr"),
        ({"transform": v1.Compose([*NORMALISED, streams.Scale(2.0)])}, "another dataset or transf"),
        ({"batch_size": 3}, "another order .*global batch 4.*global batch 3"),
        ({"seed": 2}, "another order .*seed 1.*seed 2"),
        ({"shuffle": False}, "another order .*shuffled.*in order"),
        ({"drop_last": True}, "another order .*kept.*dropped"),
        ({"seed": None}, "another order .*seed 1.*the loader's samplers"),
    ],
)
@pytest.mark.parametrize("stop", [0, 2])
def test_a_foreign_state_is_refused(changes: dict[str, Any], message: str, stop: int) -> None:
    """Another dataset, transform, batch size, seed or order: the error says which."""
    loader = basic()
    take(loader, stop)
    with pytest.raises(StateError, match=message):
        basic(**changes).load_state_dict(loader.state_dict())


def test_transforms_that_differ_in_a_parameter_are_told_apart() -> None:
    """Tables by their entries, torchvision's steps by their parameters, in any process alike."""
    chains = [
        [v1.ToTensor()],
        [v1.ToTensor(), v1.Normalize(0.5, 0.5)],
        [v1.ToTensor(), v1.Normalize(0.5, 0.25)],
        [v1.ToTensor(), streams.Scale(2.0)],
        [v1.ToTensor(), streams.Scale(3.0)],
        [v1.RandomErasing(), v1.ToTensor()][::-1],
        [v1.ToTensor(), v1.RandomErasing(p=0.4)],
        [v1.ColorJitter(0.2), v1.ToTensor()],
        [v1.ColorJitter(0.3), v1.ToTensor()],
    ]
    prints = [basic(transform=v1.Compose(c)).state_dict()["fingerprint"] for c in chains]
    assert len(set(prints)) == len(chains)
    again = [basic(transform=v1.Compose(c)).state_dict()["fingerprint"] for c in chains]
    assert again == prints


class Words(torch.utils.data.Dataset[Any]):
    """Text."""

    def __init__(self, words: list[str]) -> None:
        self.words = words

    def __len__(self) -> int:
        return len(self.words)

    def __getitem__(self, index: int) -> Any:
        return self.words[index]


def test_text_is_part_of_the_fingerprint() -> None:
    """Two lists of words of one length are two datasets."""
    a, b = (
        hotset.Loader(Words(words), 2, seed=0, device="cpu")
        for words in (["a", "b", "c"], ["a", "b", "d"])
    )
    with pytest.raises(StateError, match="another dataset"):
        b.load_state_dict(a.state_dict())


@pytest.mark.parametrize("sampler", ["shuffled", "own generator", "weighted", "replacement"])
def test_another_batch_size_of_a_sampler_order_is_refused(sampler: str) -> None:
    """The samples that were seen must be the first ones again."""
    chain = v1.ToTensor()
    first, second = (
        hotset.accelerate(plain_loader(Pictures(12, chain), sampler, size, False), device="cpu")
        for size in (4, 3)
    )
    take(first, 2)
    second.load_state_dict(first.state_dict())
    for _ in range(2):  # the state is not lost by the error
        with pytest.raises(StateError, match="another order than when the state was saved"):
            next(iter(second))


def test_set_epoch_forgotten_is_found_out() -> None:
    """A DistributedSampler in another epoch gives another order."""
    dataset = Pictures(12, v1.ToTensor())

    def make(epoch: int) -> hotset.Loader:
        sampler = DistributedSampler(dataset, num_replicas=2, rank=0)
        sampler.set_epoch(epoch)
        return hotset.accelerate(DataLoader(dataset, 2, sampler=sampler), device="cpu")

    first = make(3)
    take(first, 1)
    forgotten, right = make(0), make(3)
    forgotten.load_state_dict(first.state_dict())
    with pytest.raises(StateError, match="`set_epoch` not called"):
        next(iter(forgotten))
    state = first.state_dict()
    right.load_state_dict(state)
    assert_same(list(right), take_rest(first, state, 2))


def test_generators_between_epochs_are_part_of_the_state() -> None:
    """Saved behind a finished epoch: a new loader's own generator goes on where it was."""
    chain = v1.ToTensor()
    make = lambda: hotset.accelerate(  # noqa: E731
        plain_loader(Pictures(12, chain), "own generator", 4, False), device="cpu"
    )
    first = make()
    list(first)
    state, _ = saved(first)
    assert state["started"] is None
    second = make()
    second.load_state_dict(state)
    assert_same(list(second), list(first))
    other = hotset.accelerate(plain_loader(Pictures(12, chain), "shuffled", 4, False), device="cpu")
    with pytest.raises(StateError, match=r"has the generators \['loader'\], this loader has \[\]"):
        other.load_state_dict(state)


def test_a_generator_that_is_missing_is_named() -> None:
    """Saved with a generator of the loader's own, resumed without."""
    dataset = Pictures(12, v1.ToTensor())
    first, second = (
        hotset.accelerate(plain_loader(dataset, kind, 4, False), device="cpu")
        for kind in ("own generator", "shuffled")
    )
    take(first, 1)
    second.load_state_dict(first.state_dict())
    with pytest.raises(StateError, match=r"has the generators \['default', 'loader'\], this loade"):
        next(iter(second))


GOOD = {
    "version": 1,
    "fingerprint": "",
    "samples": 1,
    "order": "",
    "epoch": 0,
    "run_seed": None,
    "generators": {},
}


@pytest.mark.parametrize(
    "garbage",
    [
        None,
        "state",
        7,
        [],
        {},
        {"version": 1},
        {**GOOD},
        {**GOOD, "started": []},
        {**GOOD, "started": "abc"},
        {**GOOD, "started": {"start": None, "batches": 1, "checksum": 0}},
        {**GOOD, "started": {"start": {}, "batches": 1, "checksum": 0}},
        {**GOOD, "epoch": "one", "started": None},
        {**GOOD, "run_seed": "x", "started": None},
        {**GOOD, "generators": None, "started": None},
    ],
)
def test_garbage_is_refused(garbage: Any) -> None:
    """Anything but what `state_dict` returned, and the loader goes on as it was."""
    loader = basic()
    with pytest.raises(StateError, match=r"this is no state of a hotset loader .* pass what state"):
        loader.load_state_dict(garbage)
    assert_same(list(loader), list(basic()))


@pytest.mark.parametrize(
    "damage",
    [
        {"generators": {"default": "%%%"}},
        {"generators": {"default": "AAAA"}},
        {"generators": []},
        {"epoch": "x"},
        {"seed": None},
    ],
)
def test_a_damaged_start_is_refused(damage: dict[str, Any]) -> None:
    """Also where only the start of the epoch is damaged."""
    loader = hotset.accelerate(plain_loader(Pictures(9, v1.ToTensor()), "shuffled", 2, False))
    take(loader, 2)
    state = loader.state_dict()
    state["started"]["start"].update(damage)
    before = torch.get_rng_state()

    def resume() -> None:
        loader.load_state_dict(state)
        next(iter(loader))

    with pytest.raises(StateError, match=r"this is no state|generator 'default' is damaged"):
        resume()
    assert torch.equal(torch.get_rng_state(), before)


def test_another_version_is_refused() -> None:
    """A later hotset may save otherwise."""
    loader = basic()
    state = {**loader.state_dict(), "version": 99}
    with pytest.raises(StateError, match="the state has version 99, this hotset reads 1"):
        loader.load_state_dict(state)


def test_resuming_does_not_disturb_torchs_generator() -> None:
    """Replaying the sampler draws from a copy of the state; the user's own stands still."""
    make = lambda: hotset.accelerate(  # noqa: E731
        plain_loader(Pictures(9, v1.ToTensor()), "shuffled", 2, False), device="cpu"
    )
    loader = make()
    take(loader, 2)
    second = make()
    second.load_state_dict(loader.state_dict())
    torch.manual_seed(77)
    before = torch.get_rng_state()
    list(second)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_batch_sampler_without_a_length_can_be_saved() -> None:
    """As a plain loader can be run with it."""

    class Endless:
        def __iter__(self) -> Any:
            position = 0
            while True:
                yield [position % 9, (position + 1) % 9]
                position += 1

    make = lambda: hotset.accelerate(  # noqa: E731
        DataLoader(Pictures(9, v1.ToTensor()), batch_sampler=Endless()), device="cpu"
    )
    first = make()
    iterator = iter(first)
    for _ in range(3):
        next(iterator)
    second = make()
    second.load_state_dict(first.state_dict())
    assert_same(next(iter(second)), next(iterator))
