"""Fields whose length differs, from every kind of source: padded, jagged, or refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset, Subset, default_collate
from torchvision.transforms import v2

import hotset
from hotset.errors import ConfigError, FaithfulnessError, SchemaError
from hotset.kernels import padding as kernels
from hotset.loader.check import CheckedPipeline
from hotset.testing import SimulatedAccelerator
from tests.streams import assert_same

COUNT = 23
GENERATOR = np.random.default_rng(3)
LENGTHS = [*GENERATOR.integers(0, 9, COUNT - 1).tolist(), 9]
TOKENS = [torch.from_numpy(GENERATOR.integers(1, 99, n)) for n in LENGTHS]
MASK = [torch.ones(n, dtype=torch.bool) for n in LENGTHS]
AUDIO = [GENERATOR.random((2, 3 + 7 * n % 5), dtype=np.float32) for n in range(COUNT)]
POINTS = [torch.randn(n // 2, 3, generator=torch.manual_seed(n)) for n in LENGTHS]
BOXES = [torch.full((n % 3, 4 - n % 2), n, dtype=torch.float16) for n in LENGTHS]
LABEL = torch.arange(COUNT)
DATA: dict[str, Any] = {
    "tokens": TOKENS,
    "mask": MASK,
    "label": LABEL,
    "audio": AUDIO,
    "points": POINTS,
    "boxes": BOXES,
}
JAGGED_POINTS = dict.fromkeys(("tokens", "mask", "audio", "boxes"), "pad") | {"points": "jagged"}


def loader(data: Any = DATA, batch_size: int = 5, **options: Any) -> hotset.Loader:
    """A loader on the CPU whose every sample is compared with the data itself."""
    made = {"ragged": "pad", "device": "cpu", "check_every": 1, **options}
    return hotset.Loader(data, batch_size, **made)


def padded(leaves: list[Any], value: float = 0) -> Tensor:
    """Leaves of any shapes, every axis padded at its end."""
    tensors = [torch.as_tensor(leaf) for leaf in leaves]
    shape = [max(edges) for edges in zip(*(t.shape for t in tensors), strict=True)]
    out = torch.full((len(tensors), *shape), value, dtype=tensors[0].dtype)
    for row, tensor in enumerate(tensors):
        out[(row, *map(slice, tensor.shape))] = tensor
    return out


def wanted(ids: list[int]) -> dict[str, Any]:
    """The batch of some samples, every field padded."""
    return {
        name: values[ids] if isinstance(values, Tensor) else padded([values[i] for i in ids])
        for name, values in DATA.items()
    }


def assert_jagged(found: Any, leaves: list[Any]) -> None:
    """Fails unless a nested tensor is the one that torch makes of the leaves."""
    other: Any = torch.nested.nested_tensor(
        [torch.as_tensor(leaf) for leaf in leaves], layout=torch.jagged
    )
    assert found.is_nested
    assert found.layout is torch.jagged
    assert_same(found.offsets(), other.offsets())
    assert_same(found.values(), other.values())
    assert_same(found.to_padded_tensor(0), padded(leaves))
    for a, b in zip(found.unbind(), other.unbind(), strict=True):
        assert_same(a, b)


def checked(found: hotset.Loader) -> int:
    """How many samples were compared."""
    pipeline: Any = found._parts.pipeline
    while not isinstance(pipeline, CheckedPipeline):
        pipeline = pipeline._inner
    return int(pipeline._check.checked)


@given(
    lengths=st.lists(st.integers(0, 6), min_size=1, max_size=14),
    batch_size=st.integers(1, 6),
    dtype=st.sampled_from(
        [torch.int64, torch.int32, torch.uint8, torch.float32, torch.float16, torch.bool]
    ),
    side=st.sampled_from(["right", "left"]),
    form=st.sampled_from(["arrays", "tensors", "nested"]),
)
def test_as_torch_pads_and_nests(
    lengths: list[int], batch_size: int, dtype: torch.dtype, side: Any, form: str
) -> None:
    """In order, over every length and dtype, whatever form the field came in."""
    leaves = [(torch.arange(n) % 7 + 1).to(dtype) for n in lengths]
    field: Any = leaves
    if form == "arrays":
        field = [leaf.numpy() for leaf in leaves]
    elif form == "nested":
        field = torch.nested.nested_tensor(leaves, layout=torch.jagged)
    data = {"x": field, "n": torch.tensor(lengths), "y": np.arange(len(lengths))}
    rule = hotset.Padded(1, side=side)
    both = (
        loader(data, batch_size, ragged={"x": rule}),
        loader(data, batch_size, ragged={"x": "jagged"}),
    )
    for number, (pad, jag) in enumerate(zip(*both, strict=True)):
        part = leaves[number * batch_size : (number + 1) * batch_size]
        assert_same(
            pad["x"],
            pad_sequence(part, batch_first=True, padding_value=1, padding_side=side),
        )
        assert_jagged(jag["x"], part)
        assert pad["n"].tolist() == jag["n"].tolist() == list(map(len, part))
    assert checked(both[0]) == checked(both[1]) == len(lengths)


SIZES = {(0, 1): [5, 5, 5, 5, 3], (0, 2): [5, 5, 2], (1, 2): [5, 5, 1]}
"""Batches of each rank: of the last three samples the first rank has one more."""


@pytest.mark.parametrize("shard", SIZES)
def test_all_fields_by_one_index(shard: tuple[int, int]) -> None:
    """Shuffled and seeded, on each rank, for two epochs; the last batch is short."""
    fast = loader(shuffle=True, seed=4, shard=shard)
    plain = loader(LABEL, shuffle=True, seed=4, shard=shard)
    for _ in range(2):
        sizes = []
        for batch, ids in zip(fast, plain, strict=True):
            assert batch["label"].tolist() == ids.tolist()
            assert_same(batch, wanted(ids.tolist()))
            sizes.append(len(ids))
        assert sizes == SIZES[shard]
    assert checked(fast) == sum(sizes)
    assert "note: sample['audio'] is padded to the longest of its batch" in str(fast.plan)


def test_some_jagged_some_padded() -> None:
    """By field; what is not named must not differ."""
    fast = loader(shuffle=True, seed=1, ragged=JAGGED_POINTS)
    for batch in fast:
        ids = batch["label"].tolist()
        assert_jagged(batch["points"], [POINTS[i] for i in ids])
        assert_same({**batch, "points": 0}, {**wanted(ids), "points": 0})
    with pytest.raises(
        SchemaError, match=r"sample\['mask'\] is a tensor \(\d,\) bool at index 0 but"
    ):
        loader(ragged={"tokens": "pad"})


def test_resumed_in_mid_epoch() -> None:
    """The rest of the batches, with the same padding."""
    first = loader(shuffle=True, seed=9)
    iterator = iter(first)
    for _ in range(2):
        next(iterator)
    state = first.state_dict()
    rest = list(iterator)
    second = loader(shuffle=True, seed=9)
    second.load_state_dict(state)
    for found, expected in zip(second, rest, strict=True):
        assert_same(found, expected)


def test_a_batch_of_empty_samples() -> None:
    """Has no length, and is no error."""
    data = {"x": [torch.empty(0), torch.empty(0), torch.ones(2)]}
    assert [tuple(b["x"].shape) for b in loader(data, 2)] == [(2, 0), (1, 2)]
    first, _ = loader(data, 2, ragged="jagged")
    assert first["x"].offsets().tolist() == [0, 0, 0]
    assert first["x"].to_padded_tensor(0.0).shape == (2, 0)
    nothing = {"x": [torch.empty(0, 3), torch.empty(0, 2)]}
    assert [tuple(b["x"].shape) for b in loader(nothing, 2, ragged={"x": "pad"})] == [(2, 0, 3)]


def test_rounded_up_and_cut() -> None:
    """`max_length` cuts on the padded side; lengths are multiples."""
    data = {"x": [torch.arange(1, n) for n in (7, 3, 12)]}
    right = hotset.Padded(-1, multiple_of=4, max_length=8)
    (batch,) = loader(data, 3, ragged=right)
    assert batch["x"].tolist() == [
        [1, 2, 3, 4, 5, 6, -1, -1],
        [1, 2, -1, -1, -1, -1, -1, -1],
        [1, 2, 3, 4, 5, 6, 7, 8],
    ]
    left = hotset.Padded(-1, multiple_of=4, max_length=8, side="left")
    (batch,) = loader(data, 3, ragged={"x": left})
    assert batch["x"].tolist() == [
        [-1, -1, 1, 2, 3, 4, 5, 6],
        [-1, -1, -1, -1, -1, -1, 1, 2],
        [4, 5, 6, 7, 8, 9, 10, 11],
    ]


def test_the_length_is_the_axis_that_differs() -> None:
    """Channels of audio are not rounded up."""
    (batch,) = loader({"x": AUDIO}, COUNT, ragged={"x": hotset.Padded(multiple_of=16)})
    assert batch["x"].shape == (COUNT, 2, 16)


@pytest.mark.parametrize("rule", ["jagged", hotset.Padded(9, multiple_of=4)])
def test_a_named_field_comes_out_so_though_all_are_alike(rule: Any) -> None:
    """What a batch looks like must not depend on the data; without a name it does."""
    data = (torch.arange(6).reshape(3, 2), torch.arange(3))
    tokens, labels = next(iter(loader(data, 2, ragged={0: rule})))
    if rule == "jagged":
        assert_jagged(tokens, [torch.tensor([0, 1]), torch.tensor([2, 3])])
    else:
        assert tokens.tolist() == [[0, 1, 9, 9], [2, 3, 9, 9]]
    assert labels.tolist() == [0, 1]
    tokens, _ = next(iter(loader(data, 2, ragged=rule)))
    assert tokens.tolist() == [[0, 1], [2, 3]]


def test_a_named_image_field_is_padded_behind_its_steps() -> None:
    """Also what a kernel makes."""
    images = torch.arange(2 * 3 * 5 * 5, dtype=torch.uint8).reshape(2, 3, 5, 5)
    rule = hotset.Padded(0.5, multiple_of=4)
    steps = {"x": [v2.RandomHorizontalFlip(1.0), v2.ToDtype(torch.float32, scale=True)]}
    fast = loader({"x": images}, 2, ragged={"x": rule}, transform=steps)
    assert fast.plan.kernel.startswith("Numba")
    (batch,) = fast
    assert_same(batch["x"][:, :3], v2.functional.to_dtype(images.flip(3), scale=True))
    assert batch["x"].shape == (2, 4, 5, 5)
    assert (batch["x"][:, 3] == 0.5).all()


class Pair(NamedTuple):
    """A sample with names."""

    tokens: Any
    label: Any


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        ((TOKENS, LABEL), list),
        ([LABEL, TOKENS], list),
        (Pair(TOKENS, LABEL), Pair),
        ({"a": {"b": TOKENS}, "c": [LABEL, LABEL]}, dict),
    ],
)
@pytest.mark.parametrize("ragged", ["pad", "jagged"])
def test_containers_are_those_of_default_collate(data: Any, kind: type, ragged: str) -> None:
    """Whatever the fields are in."""
    batch = next(iter(loader(data, 3, ragged=ragged)))
    assert type(batch) is kind
    if kind is dict:
        assert type(batch["c"]) is list
        found = batch["a"]["b"]
    else:
        found = next(leaf for leaf in batch if leaf.ndim == 2)
    if ragged == "pad":
        assert_same(found, padded(TOKENS[:3]))
    else:
        assert_jagged(found, TOKENS[:3])


def test_a_name_may_be_a_path_or_a_container() -> None:
    """As paths stand in messages."""
    data = {"a": {"b": TOKENS, "c": POINTS}, "d": MASK}
    rules = {"a": "pad", "['a']['c']": "jagged", "d": None}
    with pytest.raises(SchemaError, match=r"sample\['d'\] is a tensor"):
        loader(data, ragged=rules)
    batch = next(iter(loader(data, ragged={**rules, "d": "pad"})))
    assert not batch["a"]["b"].is_nested
    assert batch["a"]["c"].is_nested


def test_a_table_of_columns() -> None:
    """Dense fields come out as ever, with and without a rule for others."""
    table = {"age": np.arange(9.0), "codes": torch.arange(18).reshape(9, 2), "y": torch.arange(9)}
    for ragged in (None, "pad", "jagged"):
        for number, batch in enumerate(loader(table, 4, ragged=ragged)):
            part = slice(number * 4, number * 4 + 4)
            assert_same(batch, {k: torch.as_tensor(v[part]) for k, v in table.items()})


class Sentences(Dataset[Any]):
    """Tokens and labels; `odd` is one more sample in place of one."""

    def __init__(self, transform: Any = None, odd: Any = None) -> None:
        self.transform, self.odd = transform, odd

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> Any:
        tokens = TOKENS[index] if self.odd is None or index != 7 else self.odd
        return {"tokens": self.transform(tokens) if self.transform else tokens, "label": index}


def doubled(tokens: Tensor) -> Tensor:
    """Deterministic: every token twice."""
    doubled.calls += 1
    return tokens.repeat_interleave(2)


def dropped(tokens: Tensor) -> Tensor:
    """Random and of no known kind: some tokens only."""
    return tokens[torch.rand(len(tokens)) < 0.5]


@pytest.mark.parametrize("subset", [False, True])
@pytest.mark.parametrize("ragged", ["pad", "jagged"])
def test_datasets(ragged: str, subset: bool) -> None:
    """Read once, and kept end to end."""
    rows = list(range(20, 2, -2)) if subset else list(range(COUNT))
    data: Any = Subset(Sentences(), rows) if subset else Sentences()
    fast = loader(data, 4, ragged=ragged)
    assert fast.plan.tier == "device"
    for number, batch in enumerate(fast):
        ids = rows[number * 4 : number * 4 + 4]
        assert batch["label"].tolist() == ids
        if ragged == "pad":
            assert_same(batch["tokens"], padded([TOKENS[i] for i in ids]))
        else:
            assert_jagged(batch["tokens"], [TOKENS[i] for i in ids])
    assert checked(fast) == len(rows)


@pytest.mark.parametrize("source", ["dataset", "arrays"])
@pytest.mark.parametrize("ragged", ["pad", "jagged"])
def test_a_deterministic_transform_runs_once(source: str, ragged: str) -> None:
    """On ragged fields too."""
    doubled.calls = 0
    if source == "dataset":
        fast = loader(Sentences(doubled), COUNT, ragged=ragged, check_every=0)
    else:
        fast = loader(
            {"tokens": TOKENS}, COUNT, ragged=ragged, transform={"tokens": doubled}, check_every=0
        )
    before = doubled.calls
    twice = [tokens.repeat_interleave(2) for tokens in TOKENS]
    for _ in range(3):
        (batch,) = fast
        if ragged == "pad":
            assert_same(batch["tokens"], padded(twice))
        else:
            assert_jagged(batch["tokens"], twice)
    assert doubled.calls == before
    assert fast.plan.decisions[-1].action == "once"


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("ragged", ["pad", "jagged"])
def test_a_random_transform_runs_per_sample(ragged: str, workers: int) -> None:
    """In workers or not: the same draws, padded or jagged on the way out."""
    data = {"tokens": TOKENS, "label": LABEL, "points": POINTS}
    made = {"transform": {"tokens": dropped}, "shuffle": True, "seed": 2}
    fast = loader(data, 6, ragged=ragged, num_workers=workers, **made)
    single = list(loader(data, 1, ragged="pad", **made))
    assert fast.plan.decisions[-1].action == "worker"
    kept = {int(b["label"]): b["tokens"][0] for b in single}
    assert any(len(kept[i]) < len(TOKENS[i]) for i in range(COUNT))
    for batch in fast:
        ids = batch["label"].tolist()
        if ragged == "pad":
            assert_same(batch["tokens"], padded([kept[i] for i in ids]))
            assert_same(batch["points"], padded([POINTS[i] for i in ids]))
        else:
            assert_jagged(batch["tokens"], [kept[i] for i in ids])
            assert_jagged(batch["points"], [POINTS[i] for i in ids])
    assert checked(fast) == COUNT


@pytest.mark.parametrize("workers", [0, 1])
def test_what_workers_nest_is_copied_to_a_device(workers: int) -> None:
    """Values and offsets, and nothing else, are what passes."""
    device = SimulatedAccelerator("1MB", bandwidth="1MB")
    made = {"transform": {"tokens": dropped}, "seed": 2, "ragged": "jagged"}
    data = {"tokens": TOKENS}
    fast = loader(data, 6, num_workers=workers, **{**made, "device": device})
    for found, expected in zip(fast, loader(data, 6, **made), strict=True):
        assert_jagged(found["tokens"], list(expected["tokens"].unbind()))
    values = sum(batch["tokens"].values().numel() for batch in loader(data, 6, **made))
    batches = -(-COUNT // 6)
    assert device.bytes_copied == 8 * (values + COUNT + batches)


class Drawn(Sentences):
    """Random in a way that nothing is kept."""

    def __getitem__(self, index: int) -> Any:
        return {"tokens": dropped(TOKENS[index]), "label": index}


@pytest.mark.parametrize("ragged", ["pad", "jagged"])
def test_nothing_kept(ragged: str) -> None:
    """Batches of a dataset that is random throughout."""
    fast = loader(Drawn(), 6, ragged={"tokens": ragged}, seed=1)
    assert fast.plan.tier == "source"
    singles = [b["tokens"][0] for b in loader(Drawn(), 1, ragged={"tokens": "pad"}, seed=1)]
    for number, batch in enumerate(fast):
        part = singles[number * 6 : number * 6 + 6]
        if ragged == "pad":
            assert_same(batch["tokens"], padded(part))
        else:
            assert_jagged(batch["tokens"], part)


@pytest.mark.parametrize("rows", [None, [3, 22, 1, 8]])
def test_stores(tmp_path: Path, rows: list[int] | None) -> None:
    """Ragged fields of a store, and of a part of it."""
    store: Any = hotset.build(DATA, tmp_path / "s.hotset")
    data = store if rows is None else Subset(store, rows)
    chosen = list(range(COUNT)) if rows is None else rows
    fast = loader(data, 5)
    for number, batch in enumerate(fast):
        assert_same(batch, wanted(chosen[number * 5 : number * 5 + 5]))
    assert checked(fast) == len(chosen)
    with pytest.raises(SchemaError, match=r"hotset\.Loader pads them by itself with ragged='pad'"):
        loader(data, ragged=None)


def test_a_part_that_is_alike_is_not_refused(tmp_path: Path) -> None:
    """Only samples that are loaded count."""
    store: Any = hotset.build({"x": [torch.ones(n) for n in (2, 3, 2)]}, tmp_path / "s.hotset")
    (batch,) = loader(Subset(store, [0, 2]), 2, ragged=None)
    assert batch["x"].shape == (2, 2)
    with pytest.raises(SchemaError, match=r"tensor \(3,\) float32 at index 0 .* at index 1"):
        loader(Subset(store, [1, 2]), 2, ragged=None)


TIERS: dict[str, dict[str, Any]] = {
    "device": {},
    "mixed": {"budget": 2000, "prefetch_batches": 1, "prefetch_bytes": 300},
    "host": {"tier": "host"},
    "in parts": {"tier": "host", "prefetch_bytes": 700},
}


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("ragged", ["pad", "left", JAGGED_POINTS], ids=["pad", "left", "jagged"])
def test_every_tier_gives_the_same_batches(tier: str, ragged: Any) -> None:
    """From values on a device, and passing to it, also when a batch comes in parts."""
    device = SimulatedAccelerator("1MB", bandwidth="1MB")
    rule = hotset.Padded(3, multiple_of=2, side="left") if ragged == "left" else ragged
    data = {**DATA, "mask": [m.to(torch.uint8) for m in MASK]}
    made = {"ragged": rule, "shuffle": True, "seed": 6}
    fast = loader(data, 8, **{**made, "device": device}, **TIERS[tier])
    assert fast.plan.tier == ("host" if tier == "in parts" else tier)
    plain = loader(data, 8, **made)
    for _ in range(2):
        for found, expected in zip(fast, plain, strict=True):
            if ragged is JAGGED_POINTS:
                leaves = [POINTS[i] for i in expected["label"].tolist()]
                assert_jagged(found.pop("points"), leaves)
                assert expected.pop("points").is_nested
            assert_same(found, expected)


def test_half_precision_of_a_ragged_field() -> None:
    """The first field is cast, and what it is padded with is too."""
    data = {"x": POINTS, "y": LABEL}
    for batch in loader(data, 6, dtype=torch.float16, ragged=hotset.Padded(0.1)):
        points = [POINTS[i] for i in batch["y"].tolist()]
        assert_same(batch["x"], padded(points, 0.1).half())
    for batch in loader(data, 6, dtype=torch.float16, ragged="jagged"):
        assert_jagged(batch["x"], [POINTS[i].half() for i in batch["y"].tolist()])


def test_the_spot_check_sees_values_and_padding(monkeypatch: pytest.MonkeyPatch) -> None:
    """A value that is not the sample's own, and a pad value that is another."""
    for place, message in (((0, 0), r"at sample\['x'\]: \d+, expected 1"), ((0, -1), "expected 0")):

        def wrong(*args: Any, place: Any = place, **options: Any) -> Tensor:
            found = kernels.pad_rows(*args, **options)
            found[place] = 77
            return found

        monkeypatch.setattr("hotset.loader.forms.pad_rows", wrong)
        fast = loader(
            {"x": [torch.ones(2, dtype=torch.int64), torch.ones(5, dtype=torch.int64)]}, 2
        )
        with pytest.raises(FaithfulnessError, match=message):
            list(fast)


def test_the_spot_check_sees_jagged_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """Values of the wrong sample."""

    def wrong(data: Tensor, index: np.ndarray) -> Any:
        return kernels.jagged_rows(data + 1, index)

    monkeypatch.setattr("hotset.loader.forms.jagged_rows", wrong)
    with pytest.raises(FaithfulnessError, match=r"sample 0 of .* at sample\['x'\]: 2, expected 1"):
        list(loader({"x": [torch.ones(n, dtype=torch.int64) for n in (2, 5)]}, 2, ragged="jagged"))


@pytest.mark.parametrize(
    ("ragged", "problem"),
    [
        (
            "padded",
            r"`ragged` must be 'pad', 'jagged' or hotset\.Padded\(\.\.\.\), by field for some",
        ),
        (hotset.Padded, r"got the class itself: write hotset\.Padded\(\)"),
        ({"tokens": 3}, r"`ragged` of 'tokens' must be 'pad'"),
        ({"words": "pad"}, r"`ragged` names the field 'words'; samples have \[\"\['tokens'\]\""),
        ({"label": "pad"}, r"`ragged` names sample\['label'\], which is a tensor \(\) int64: only"),
        (hotset.Padded(-1), r"sample\['mask'\]: the pad value -1 does not fit bool"),
    ],
)
def test_rules_that_cannot_be_used(ragged: Any, problem: str) -> None:
    """What was expected, what came, what to do."""
    rules = ragged
    if isinstance(ragged, dict) and "label" in ragged:
        rules = {**dict.fromkeys(DATA, "pad"), **ragged}
    with pytest.raises(ConfigError, match=problem):
        loader(ragged=rules)


def test_without_a_rule_the_error_proposes_one() -> None:
    """For arrays, for datasets; and for a random transform when it is met."""
    words = (
        r"they cannot stand in one batch: .*; hotset\.Loader pads them by itself with ragged='pad'"
    )
    for data in (DATA, Sentences()):
        with pytest.raises(SchemaError, match=words):
            loader(data, ragged=None)
    alike = {"tokens": torch.ones(30, 4)}
    fast = loader(alike, ragged=None, transform={"tokens": hotset.random(sometimes_cut)}, seed=1)
    with pytest.raises(SchemaError, match=words):
        list(fast)


def sometimes_cut(tokens: Tensor) -> Tensor:
    """One in a few samples is shorter."""
    return tokens[: 3 if torch.rand(()) < 0.1 else 4]


def test_jagged_needs_the_length_first() -> None:
    """Arrays, datasets, and transforms in workers."""
    match = (
        r"sample\['audio'\] has the shapes .* differ behind the first axis; ragged='jagged' needs"
    )
    with pytest.raises(SchemaError, match=match):
        loader({"audio": AUDIO}, ragged={"audio": "jagged"})


@pytest.mark.parametrize(
    "odd", [torch.ones(3, dtype=torch.int32), torch.ones(2, 2, dtype=torch.int64), [1, 2]]
)
def test_samples_of_another_kind_are_refused(odd: Any) -> None:
    """Another dtype, another number of axes, another structure; by name."""
    match = (
        r"samples must have one structure" if isinstance(odd, list) else r"sample\['tokens'\] is a"
    )
    with pytest.raises(SchemaError, match=match):
        loader(Sentences(odd=odd))


def test_lists_of_numbers_in_a_dataset() -> None:
    """Say that a tensor is wanted."""

    class Lists(Sentences):
        def __getitem__(self, index: int) -> Any:
            return {"tokens": TOKENS[index].tolist()}

    with pytest.raises(
        SchemaError, match="a list of numbers whose length differs is to be a tensor"
    ):
        loader(Lists())


def test_cached_datasets_refuse_them() -> None:
    """They give single samples of whole batches; the message names what can."""
    with pytest.raises(SchemaError, match=r"hotset\.Loader pads them by itself"):
        hotset.CachedDataset({"tokens": TOKENS}, device="cpu")


def pad_all(samples: list[Any]) -> Any:
    """A collate function of the user's own."""
    tokens = pad_sequence([sample["tokens"] for sample in samples], batch_first=True)
    return tokens, default_collate([sample["label"] for sample in samples])


def nest_all(samples: list[Any]) -> Any:
    """One that nests."""
    return torch.nested.nested_tensor([s["tokens"] for s in samples], layout=torch.jagged)


def test_a_collate_function_of_the_users_own() -> None:
    """`accelerate` gives the batches that the plain loader gives."""
    plain = DataLoader(Sentences(), 4, collate_fn=pad_all)
    fast = hotset.accelerate(plain, device="cpu", check_every=1)
    for found, expected in zip(fast, plain, strict=True):
        assert_same(found, expected)
    nested = DataLoader(Sentences(), 4, collate_fn=nest_all)
    for number, found in enumerate(hotset.accelerate(nested, device="cpu")):
        assert_jagged(found, TOKENS[number * 4 : number * 4 + 4])
