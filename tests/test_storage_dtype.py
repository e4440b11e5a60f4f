"""`storage_dtype`: loaders whose floating-point samples are kept in a narrower dtype."""

from __future__ import annotations

import itertools
import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Subset, TensorDataset
from torchvision import transforms as v1
from torchvision.transforms import v2

import hotset
from hotset.errors import ConfigError, FaithfulnessError, PrecisionError, StateError
from hotset.kernels.dispatch import choose_engine
from hotset.ops.pointwise import Table
from hotset.placement.precision import rounded
from hotset.sample.column import DenseColumn
from hotset.sources import fill
from hotset.testing import SimulatedAccelerator
from tests.cached import Texts, padded, store_of
from tests.kernel_chains import Case, draws_of, every_case, images_of, is_same_bits, reference
from tests.streams import MEAN, STD, Pictures, assert_same, less_mean

COUNT = 13
LABELS = torch.arange(COUNT)
HALVES = (torch.float16, torch.bfloat16)
CPU = torch.device("cpu")


def floats(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Numbers that no half precision has."""
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(COUNT, *shape, generator=generator, dtype=dtype)


def shifted(values: Tensor) -> Tensor:
    """A step of the user's own, whose result depends on every bit."""
    return values * 1.1 + 0.3


def unchanged(values: Tensor) -> Tensor:
    """A step that does nothing."""
    return values


@hotset.random
def shaken(values: Tensor) -> Tensor:
    """A step that is random and has no batched form."""
    return values + torch.rand(())


CHAINS: dict[str, Any] = {
    "none": None,
    "once": [shifted],
    "once, then random": [shifted, v2.RandomHorizontalFlip()],
    "moved": [v2.RandomCrop(8, padding=2), v2.RandomHorizontalFlip()],
    "filled exactly": [v2.RandomCrop(8, padding=2, fill=0.5), v2.RandomHorizontalFlip()],
    "filled": [v2.RandomCrop(8, padding=2, fill=0.1), v2.RandomHorizontalFlip()],
    "elementwise behind": [v2.RandomHorizontalFlip(), v2.Normalize([0.3] * 3, [0.7] * 3)],
    "erased": [v2.RandomErasing(1.0, value=0.1)],
    "worker": [shaken],
    "worker behind": [shifted, v2.RandomHorizontalFlip(), shaken],
}


def prefix(chain: Any) -> Any:
    """The steps that run once, and the others."""
    steps = chain or []
    return (steps[:1], steps[1:]) if steps[:1] == [shifted] else ([], steps)


@settings(max_examples=60)
@given(
    name=st.sampled_from(sorted(CHAINS)),
    wide=st.sampled_from((torch.float32, torch.float64)),
    storage=st.sampled_from((torch.float16, torch.bfloat16, torch.float32)),
    dtype=st.sampled_from((None, torch.float16, torch.bfloat16)),
    is_channels_last=st.booleans(),
    batch_size=st.integers(1, 7),
)
def test_batches_are_those_of_rounded_samples(
    name: str,
    wide: torch.dtype,
    storage: torch.dtype,
    dtype: torch.dtype | None,
    is_channels_last: bool,
    batch_size: int,
) -> None:
    """Bit for bit those of a loader over samples that were rounded beforehand, at the cut."""
    if storage.itemsize >= wide.itemsize:
        storage = torch.float16
    images = floats(3, 8, 8, dtype=wide)
    options: dict[str, Any] = {
        "batch_size": batch_size,
        "shuffle": True,
        "seed": 3,
        "device": "cpu",
        "dtype": dtype,
        "channels_last": is_channels_last,
        "check_every": 1,
    }
    loader = hotset.Loader(
        (images, LABELS), transform=CHAINS[name], storage_dtype=storage, **options
    )
    once, rest = prefix(CHAINS[name])
    cut = shifted(images) if once else images
    # A step that changes nothing in place of each that runs once: draws are keyed by their number.
    steps = [*(unchanged for _ in once), *rest]
    given_so = (rounded(cut, storage).to(wide), LABELS)
    plain = hotset.Loader(given_so, transform=steps, **options)
    found, wanted = list(loader), list(plain)
    assert_same(found, wanted)
    assert found[0][0].dtype is (dtype or wide)
    held = images.numel() * storage.itemsize + LABELS.numel() * 8
    assert loader.plan.bytes_held == held
    assert f"kept as {str(storage).removeprefix('torch.')}: largest error" in str(loader.plan)


@pytest.mark.parametrize("storage", HALVES)
@every_case
def test_engines_widen_exactly(case: Case, storage: torch.dtype) -> None:
    """Whatever executes a chain on narrow images, the operations see the wide values."""
    ops = tuple(op for op in case.ops if not isinstance(op, Table))
    narrow = images_of(case.shape, storage).nan_to_num(0.25, 2.0, -2.0)
    rows, draws = torch.tensor([3, 0, 10, 3]), draws_of([5, 1, 2, 9])
    for dtype, is_channels_last in itertools.product((None, *HALVES), (False, True)):
        engine = choose_engine(
            ops,
            case.shape,
            storage,
            wide=torch.float32,
            out_dtype=dtype,
            device=CPU,
            is_channels_last=is_channels_last,
        )
        with engine.session() as run:
            found = run(narrow, rows, draws).clone()
        as_wide = Case("", ops, case.shape, out_dtype=dtype)
        wanted = reference(as_wide, narrow.float(), rows, draws)
        assert found.dtype is (dtype or torch.float32)
        assert is_same_bits(found.contiguous(), wanted)
        layout = torch.channels_last if is_channels_last else torch.contiguous_format
        assert found.is_contiguous(memory_format=layout)


def test_chains_that_only_move_values_stay_fused() -> None:
    """Also with a fill that the narrow dtype has; one that it lacks is filled in behind."""
    images = floats(3, 8, 8)
    kernels = {
        name: hotset.Loader(
            images,
            4,
            transform=CHAINS[name],
            device="cpu",
            storage_dtype=torch.float16,
            dtype=dtype,
        ).plan.kernel
        for name, dtype in (
            ("moved", None),
            ("filled exactly", torch.float16),
            ("filled", None),
            ("elementwise behind", None),
        )
    }
    assert kernels == {
        "moved": "Numba, fused in one pass, then widened to float32",
        "filled exactly": "Numba, fused in one pass",
        "filled": "PyTorch, operation by operation (values are float16, too many for a table)",
        "elementwise behind": (
            "PyTorch, operation by operation (values are float16, too many for a table)"
        ),
    }


class Floats(Dataset[Any]):
    """Samples of floating-point values with a label, made by a chain of the user's."""

    changed: int | None = None

    def __init__(self, length: int = COUNT, transform: Any = None) -> None:
        self.length, self.transform = length, transform

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        generator = torch.Generator().manual_seed(index + (index == self.changed))
        values = torch.randn(3, 8, 8, generator=generator)
        return values if self.transform is None else self.transform(values), index


def rounded_at(values: Tensor) -> Tensor:
    """What stands at the cut of the chain in its place: rounded, and wide again."""
    return values.half().float()


@pytest.mark.parametrize(("workers", "chunk"), [(0, 1), (0, 1000), (0, 1 << 20), (2, 1000)])
@pytest.mark.parametrize(
    "chain", [None, v1.Compose([shifted]), v1.Compose([v2.CenterCrop(4), less_mean])]
)
def test_a_deterministic_loader_gives_its_samples_rounded(
    chain: Any, workers: int, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Equal to the plain loader's, rounded once and widened, however many are rounded at once."""
    monkeypatch.setattr(fill, "CHUNK_VALUES", chunk)
    loader = DataLoader(Floats(70, chain), 16, num_workers=workers)
    fast = hotset.accelerate(loader, device="cpu", storage_dtype=torch.float16, check_every=1)
    for (x, y), (a, b) in zip(fast, loader, strict=True):
        assert_same(x, rounded_at(a))
        assert_same(y, b)


def test_the_plan_gives_the_error_that_batches_have() -> None:
    """Largest, where it is, and mean, as they come out of a difference of all batches."""
    plain = torch.cat([x for x, _ in DataLoader(Floats(), 4)]).double()
    fast = hotset.accelerate(DataLoader(Floats(), 4), device="cpu", storage_dtype=torch.bfloat16)
    error = (torch.cat([x for x, _ in fast]).double() - plain).abs()
    sample = int(error.flatten(1).max(dim=1).values.argmax())
    assert fast.plan.notes == (
        f"kept as bfloat16: largest error {error.max():.2g} (sample {sample}, sample[0]), mean "
        f"{error.mean():.2g}; 5.0 KB instead of 10.0 KB",
    )


@pytest.mark.parametrize(
    ("chain", "where"),
    [
        (None, r" in what was kept of it \(the dataset itself\): "),
        (v1.Compose([v2.RandomHorizontalFlip()]), r" in what was kept of it \(the dataset itself"),
        (v1.Compose([shifted, v2.RandomHorizontalFlip()]), r" in what was kept of it \(shifted\)"),
        (v1.Compose([shaken]), " in what was kept of it: "),
    ],
)
def test_a_dataset_that_changes_is_still_caught(chain: Any, where: str) -> None:
    """The spot check allows for the rounding, and for nothing else."""
    dataset = Floats(transform=chain)
    fast = hotset.accelerate(
        DataLoader(dataset, 4), device="cpu", storage_dtype=torch.float16, check_every=1
    )
    dataset.changed = 6
    with pytest.raises(FaithfulnessError, match=f"sample 6 of Floats differs from .*{where}"):
        list(fast)


def test_one_bit_is_caught() -> None:
    """Of the narrow values that are kept: the smallest difference that there can be."""
    fast = hotset.accelerate(
        DataLoader(Floats(), 4), device="cpu", storage_dtype=torch.float16, check_every=1
    )
    column = fast._parts.pipeline._inner._stage._held.columns[0]
    assert isinstance(column, DenseColumn)
    column.data.view(torch.int16)[9, 2, 1, 0] ^= 1
    with pytest.raises(FaithfulnessError, match="sample 9 of Floats differs from"):
        list(fast)


def test_fields_of_a_dictionary() -> None:
    """Each with a dtype of its own; those that are not named keep theirs."""
    data = {
        "x": floats(5, dtype=torch.float64),
        "y": floats(2).numpy(),
        "weight": floats().double().numpy(),
        "target": floats(3),
        "id": LABELS,
    }
    loader = hotset.Loader(
        data,
        4,
        device="cpu",
        check_every=1,
        storage_dtype={
            "x": torch.float32,
            "y": torch.bfloat16,
            "weight": torch.float16,
            "id": torch.float16,
        },
    )
    found = {name: torch.cat([batch[name] for batch in loader]) for name in data}
    assert_same(found["x"], data["x"].float().double())
    assert_same(found["y"], torch.from_numpy(data["y"]).bfloat16().float())
    weights = data["weight"].astype(np.float16).astype(np.float64)
    assert_same(found["weight"], torch.from_numpy(weights))
    assert_same(found["target"], data["target"])
    assert_same(found["id"], LABELS)
    notes = loader.plan.notes
    assert notes[0] == (
        "storage_dtype=torch.float16 has nothing to act on: sample['id'] is kept as int64"
    )
    assert [re.split(r" \(sample \d+, |\)", note)[1] for note in notes[1:]] == [
        "sample['x']",
        "sample['y']",
        "sample['weight']",
    ]


class Records(Dataset[Any]):
    """Dictionaries, one of whose fields is a Python number."""

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> Any:
        return {"x": torch.full((2,), index / 7), "y": index / 3}


def test_fields_of_a_dataset() -> None:
    """Of any map-style dataset of dictionaries, Python numbers too, where they are named."""
    loader = DataLoader(Records(), 4)
    fast = hotset.accelerate(
        loader,
        device="cpu",
        check_every=1,
        storage_dtype={"x": torch.bfloat16, "y": torch.float16},
    )
    for batch, plain in zip(fast, loader, strict=True):
        assert_same(batch["x"], plain["x"].bfloat16().float())
        assert_same(batch["y"], rounded(plain["y"], torch.float16).double())


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (torch.zeros(4, 3, 2, 2, dtype=torch.uint8), "sample is kept as uint8"),
        (Pictures(5, v1.Compose([v1.ToTensor(), v1.Normalize(MEAN, STD)])), "sample[0] is kept as"),
        ((LABELS, floats(2)), "sample[0] is kept as int64"),
        (floats(2).half(), "sample is kept as float16"),
        (Records(), "sample['x'] is kept as float32"),
    ],
)
def test_where_there_is_nothing_to_act_on_the_plan_says_so(source: Any, words: str) -> None:
    """Images that are kept as bytes, integers, and what has the dtype already."""
    storage = torch.float32 if isinstance(source, Records) else torch.float16
    options: dict[str, Any] = {"batch_size": 4, "device": "cpu"}
    loader = hotset.Loader(source, storage_dtype=storage, **options)
    note = f"storage_dtype={storage} has nothing to act on: {words}"
    assert any(text.startswith(note) for text in loader.plan.notes), loader.plan.notes
    assert_same(list(loader), list(hotset.Loader(source, **options)))


def test_numbers_are_not_narrowed_unless_they_are_named() -> None:
    """A Python number as the first leaf is a label more often than not."""

    class Numbers(Records):
        def __getitem__(self, index: int) -> Any:
            return index / 3, torch.full((2,), index / 7)

    loader = DataLoader(Numbers(), 4)
    fast = hotset.accelerate(loader, device="cpu", storage_dtype=torch.float16)
    assert fast.plan.notes == (
        "storage_dtype=torch.float16 has nothing to act on: sample[0] is kept as float",
    )
    assert_same(list(fast), list(loader))


def test_what_is_not_kept_is_not_narrowed() -> None:
    """The plan says so, and batches are the dataset's own."""
    loader = DataLoader(Floats(), 4)
    fast = hotset.accelerate(loader, device="cpu", budget=100, storage_dtype=torch.float16)
    assert fast.plan.tier == "source"
    assert "storage_dtype has nothing to act on: nothing is kept" in fast.plan.notes
    assert_same(list(fast), list(loader))


def test_a_budget_counts_what_is_kept() -> None:
    """Samples that fit in half precision only are kept."""
    full = COUNT * 3 * 8 * 8 * 4
    loader = DataLoader(Floats(), 4)
    budget = full // 2 + COUNT * 8
    fast = hotset.accelerate(loader, device="cpu", budget=budget, storage_dtype=torch.float16)
    assert fast.plan.bytes_held == budget
    assert hotset.accelerate(loader, device="cpu", budget=budget).plan.tier == "source"
    less = hotset.accelerate(loader, device="cpu", budget=budget - 1, storage_dtype=torch.float16)
    assert less.plan.tier == "source"


def test_arrays_without_room_for_a_copy_keep_every_bit() -> None:
    """They lie in memory already; a narrower copy would be one more."""
    images = floats(3)
    loader = hotset.Loader(images, 4, device="cpu", budget=10, storage_dtype=torch.float16)
    assert loader.plan.notes == (
        "not kept as float16, but with every bit: 78 bytes exceed the budget of 10 bytes in host "
        "memory",
    )
    assert_same(torch.cat(list(loader)), images)


def test_a_subset_is_measured_by_its_samples() -> None:
    """A value of another sample neither counts nor is refused."""
    images = floats(3)
    images[4] = 1e9
    data = TensorDataset(images, LABELS)
    chosen = [7, 2, 11]
    fast = hotset.accelerate(
        DataLoader(Subset(data, chosen), 2),
        device="cpu",
        storage_dtype=torch.float16,
        check_every=1,
    )
    assert_same(torch.cat([x for x, _ in fast]), images[chosen].half().float())
    with pytest.raises(
        PrecisionError,
        match=r"sample 1 has the value 1000000000\.0 at sample\[0\].*torch\.bfloat16",
    ):
        hotset.accelerate(
            DataLoader(Subset(data, [7, 4]), 2), device="cpu", storage_dtype=torch.float16
        )


@pytest.mark.parametrize("is_read", [False, True])
def test_an_overflow_names_the_sample(is_read: bool) -> None:
    """In samples that lie in memory and in those that are read."""
    images = floats(3)
    images[9, 1] = -7e4
    source = [(image, 0) for image in images] if is_read else (images, LABELS)
    with pytest.raises(
        PrecisionError, match=r"^sample 9 has the value -70000\.0 at sample\[0\], but float16 ends"
    ):
        hotset.Loader(source, 4, device="cpu", storage_dtype=torch.float16)
    loader = hotset.Loader(source, COUNT, device="cpu", storage_dtype=torch.bfloat16)
    assert_same(next(iter(loader))[0], images.bfloat16().float())


class Uneven(Dataset[Any]):
    """Vectors of differing lengths, and leaves whose dtype differs."""

    def __init__(self, length: int = 9) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        dtype = torch.float64 if index % 3 == 2 else torch.float32
        return {
            "vector": torch.arange(index % 5) / 7,
            "mixed": torch.full((2,), index / 7, dtype=dtype),
        }


def side_by_side(samples: list[Any]) -> Any:
    """A collate_fn of the user's own."""
    return [sample["vector"] for sample in samples], [sample["mixed"] for sample in samples]


@pytest.mark.parametrize(("workers", "chunk"), [(0, 1), (0, 5), (0, 1 << 20), (2, 5)])
def test_leaves_that_differ(workers: int, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of differing lengths and of differing dtypes, as the user's own collate_fn gets them."""
    monkeypatch.setattr(fill, "CHUNK_VALUES", chunk)
    loader = DataLoader(Uneven(150), 4, collate_fn=side_by_side, num_workers=workers)
    fast = hotset.accelerate(
        loader,
        device="cpu",
        check_every=1,
        storage_dtype={"vector": torch.float16, "mixed": torch.bfloat16},
    )
    vectors = sum(index % 5 for index in range(150))
    assert fast.plan.bytes_held == 2 * vectors + 150 * 2 * 2
    for (vectors_found, mixed_found), (vectors_own, mixed_own) in zip(fast, loader, strict=True):
        assert_same(vectors_found, [vector.half().float() for vector in vectors_own])
        for found, own in zip(mixed_found, mixed_own, strict=True):
            assert_same(found, rounded(own, torch.bfloat16).to(own.dtype))


def test_samples_of_a_store_are_narrowed_in_memory(tmp_path: Path) -> None:
    """The store keeps every bit: another loader, or another dtype, finds it as it was made."""

    def loader() -> DataLoader[Any]:
        return DataLoader(Floats(transform=v1.Compose([shifted])), 4)

    options: dict[str, Any] = {"device": "cpu", "cache": tmp_path, "check_every": 1}
    for storage in (torch.float16, torch.bfloat16):
        fast = hotset.accelerate(loader(), storage_dtype=storage, fill="lazy", **options)
        store = store_of(fast)
        assert len(list(tmp_path.glob("*/manifest.json"))) == 1
        assert fast.plan.tier == "device"
        assert fast.plan.bytes_held == COUNT * (3 * 8 * 8 * 2 + 8)
        is_first = storage is torch.float16
        note = "filled before the first epoch: storage_dtype looks at every value first"
        assert (note in fast.plan.notes) is is_first
        for (x, _), (a, _) in zip(fast, loader(), strict=True):
            assert_same(x, a.to(storage).float())
        assert_same([store[n] for n in range(COUNT)], [loader().dataset[n] for n in range(COUNT)])
    plain = hotset.accelerate(loader(), **options)
    assert plain.plan.tier == "disk"
    assert_same(list(plain), list(loader()))


def test_a_store_without_room_in_memory_keeps_every_bit(tmp_path: Path) -> None:
    """It stays mapped, and the plan says why."""
    loader = DataLoader(Floats(), 4)
    fast = hotset.accelerate(
        loader, device="cpu", cache=tmp_path, budget=100, storage_dtype=torch.float16
    )
    assert fast.plan.tier == "disk"
    assert fast.plan.notes[-1].startswith("not kept as float16, but with every bit: ")
    assert_same(list(fast), list(loader))
    found = hotset.Loader(store_of(fast), 4, device="cpu", storage_dtype=torch.float16)
    assert found.plan.tier == "device"
    for (x, _), (a, _) in zip(found, loader, strict=True):
        assert_same(x, a.half().float())


def test_states_are_those_of_the_same_values(tmp_path: Path) -> None:
    """Wherever samples are kept; one of other values is refused."""

    def made(**options: Any) -> hotset.Loader:
        dataset = Floats(transform=v1.Compose([v2.RandomHorizontalFlip()]))
        loader = DataLoader(dataset, 2, shuffle=True)
        return hotset.accelerate(loader, device="cpu", **options)

    torch.manual_seed(0)
    first = made(storage_dtype=torch.float16)
    iterator = iter(first)
    next(iterator)
    state = first.state_dict()
    rest = list(iterator)
    second = made(storage_dtype=torch.float16, cache=tmp_path)
    second.load_state_dict(state)
    assert_same(list(second), rest)
    for options in ({}, {"storage_dtype": torch.bfloat16}):
        with pytest.raises(StateError, match="another dataset or transform"):
            made(**options).load_state_dict(state)


def test_narrow_samples_travel_to_workers() -> None:
    """Steps that run per sample get the wide values, in processes of their own as well."""
    chain = v1.Compose([shifted, shaken])
    results = []
    for workers in (0, 2):
        torch.manual_seed(5)
        loader = DataLoader(Floats(transform=chain), 4, num_workers=workers)
        fast = hotset.accelerate(loader, device="cpu", storage_dtype=torch.float16, check_every=1)
        assert [d.action for d in fast.plan.decisions] == ["once", "once", "worker"]
        results.append(list(fast))
    assert_same(results[0], results[1])
    resident = fast._parts.pipeline._inner._dataset._reader._resident
    again = pickle.loads(pickle.dumps(resident))
    assert again.columns[0].data.dtype is torch.float16
    assert_same(again.leaves(3)[0], shifted(Floats()[3][0]).half().float())


def test_text_beside_stays() -> None:
    """A field of another kind is not looked at."""
    loader = DataLoader(Texts(9), 4, collate_fn=padded)
    fast = hotset.accelerate(loader, device="cpu", storage_dtype=torch.float16)
    assert fast.plan.notes[0].endswith("nothing to act on: sample[0] is kept as str")
    assert_same(list(fast), list(loader))


@pytest.mark.parametrize(
    ("storage", "options", "words"),
    [
        (torch.int8, {}, r"`storage_dtype` must be torch\.float16, torch\.bfloat16 or torch\.floa"),
        (torch.float64, {}, r"must be .* got torch\.float64; integers and labels keep their own"),
        ("float16", {}, r"must be .* got 'float16'"),
        (
            torch.float32,
            {},
            r"must be narrower than the data, but sample\['h'\] is float16",
        ),
        ({"x": torch.int8}, {}, r"must be .* got torch\.int8"),
        ({}, {}, "`storage_dtype` names no field"),
        (
            {"z": torch.float16},
            {},
            r"names the field 'z'; the data has \[\"\['h'\]\", \"\['x'\]\"\]",
        ),
        ({"h": torch.float32}, {}, r"sample\['h'\] is float16 and torch\.float32 takes more bytes"),
        ({"h": torch.bfloat16}, {}, r"is float16 and torch\.bfloat16 takes as many bytes"),
        (torch.float16, {"tier": "disk"}, 'tier="disk" leaves them in a store, which keeps every'),
    ],
)
def test_what_cannot_be_is_refused(storage: Any, options: dict[str, Any], words: str) -> None:
    """With the field, or with what the argument may be."""
    data = {"h": floats(2).half(), "x": floats(2)}
    with pytest.raises(ConfigError, match=words):
        hotset.Loader(data, 4, device="cpu", storage_dtype=storage, **options)


def test_fields_are_for_dictionaries() -> None:
    """A tuple has none."""
    with pytest.raises(ConfigError, match="names the field 'x', but samples are no dictionaries"):
        hotset.Loader((floats(2),), 4, device="cpu", storage_dtype={"x": torch.float16})
    with pytest.raises(ConfigError, match="names the field 'x', but samples are no dictionaries"):
        hotset.accelerate(DataLoader(Floats(), 4), device="cpu", storage_dtype={"x": torch.float16})


TIERS: dict[str, dict[str, Any]] = {
    "device": {},
    "mixed": {"budget": 40_000},
    "lru": {"budget": 40_000, "policy": "lru"},
    "host": {"tier": "host"},
}


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("name", ["none", "once", "moved", "filled", "elementwise behind"])
@pytest.mark.parametrize("is_read", [False, True])
def test_every_tier_passes_narrow_values(tier: str, name: str, is_read: bool) -> None:
    """The link carries them as they are stored, and the batches are the CPU's, bit for bit."""
    count, row = 200, 3 * 8 * 8 * 2 + 8
    images = torch.randn(count, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(count)
    source: Any = list(zip(images, labels, strict=True)) if is_read else (images, labels)

    def loader(device: Any, **options: Any) -> hotset.Loader:
        return hotset.Loader(
            source,
            16,
            shuffle=True,
            seed=1,
            transform=CHAINS[name],
            device=device,
            storage_dtype=torch.float16,
            **options,
        )

    near = SimulatedAccelerator("10MB", bandwidth="1MB")
    plain, fast = loader("cpu", check_every=0), loader(near, check_every=1, **TIERS[tier])
    for _ in range(2):
        wanted = [tuple(leaf.clone() for leaf in batch) for batch in plain]
        found = [tuple(leaf.clone() for leaf in batch) for batch in fast]
        assert_same(found, wanted)
    assert fast.plan.tier == ("mixed" if tier == "lru" else tier)
    stats, held = fast.stats(), fast.plan.cached
    assert fast.plan.bytes_held == count * row
    assert stats.bytes_placed == (0 if tier in ("host", "lru") else held * row)
    if tier != "lru":
        assert stats.bytes_copied == 2 * (count - held) * row
    assert fast._parts.fingerprint == plain._parts.fingerprint


def test_of_a_subset_only_its_samples_are_copied() -> None:
    """Narrow or not, of whatever kind; the plan counts what is there now."""
    data = {
        "x": floats(3),
        "y": LABELS,
        "z": floats(2),
    }
    whole = hotset.CachedDataset(data, device="cpu")
    chosen = [7, 2, 11]
    loader = hotset.Loader(
        Subset(whole, chosen),
        2,
        device="cpu",
        check_every=1,
        storage_dtype={"x": torch.float16},
    )
    assert loader.plan.bytes_held == 3 * (3 * 2 + 8 + 2 * 4)
    found = {name: torch.cat([batch[name] for batch in loader]) for name in data}
    assert_same(found["x"], data["x"][chosen].half().float())
    assert_same(found["y"], LABELS[chosen])
    assert_same(found["z"], data["z"][chosen])


def test_samples_that_come_twice_are_kept_once() -> None:
    """A subset with repetitions is larger than what it is of."""
    images = floats(3)
    chosen = [n % COUNT for n in range(3 * COUNT)]
    loader = DataLoader(Subset(TensorDataset(images), chosen), 5)
    fast = hotset.accelerate(loader, device="cpu", check_every=1, storage_dtype=torch.float16)
    assert fast.plan.bytes_held == COUNT * 3 * 2
    assert_same(torch.cat([x for (x,) in fast]), images[chosen].half().float())


@pytest.mark.parametrize("ragged", ["pad", "jagged"])
@pytest.mark.parametrize("tier", ["device", "mixed", "host"])
def test_fields_of_differing_length(ragged: str, tier: str) -> None:
    """Widened before they are padded or put end to end, wherever they lie."""
    lengths = torch.randint(0, 9, (40,), generator=torch.manual_seed(3)).tolist()
    sounds = [torch.randn(2, length, generator=torch.manual_seed(length)) for length in lengths]
    if ragged == "jagged":
        sounds = [sound.t().contiguous() for sound in sounds]
    rounded = [sound.half().float() for sound in sounds]
    made: dict[str, Any] = {"shuffle": True, "seed": 4}
    rule: Any = hotset.Padded(0.1) if ragged == "pad" else ragged
    place = torch.arange(40)
    plain = hotset.Loader({"x": rounded, "y": place}, 7, ragged=rule, device="cpu", **made)
    fast = hotset.Loader(
        {"x": sounds, "y": place},
        7,
        ragged=rule,
        storage_dtype=torch.float16,
        tier=tier,
        budget=1200 if tier == "mixed" else None,
        device=SimulatedAccelerator("1MB", bandwidth="1MB"),
        **made,
    )
    assert fast.plan.tier == tier
    for expected, found in zip(plain, fast, strict=True):
        assert found["x"].dtype is torch.float32
        pairs = [(expected["x"], found["x"])]
        if ragged == "jagged":
            pairs = list(zip(expected["x"].unbind(), found["x"].unbind(), strict=True))
        assert all(torch.equal(wanted, value) for wanted, value in pairs)
