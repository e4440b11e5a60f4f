"""Bad input gets a clear error: what was expected, what came, what to do; and nothing is lost."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, TensorDataset
from torchvision import transforms as v1

import hotset
from hotset.errors import (
    ConfigError,
    DeviceError,
    FaithfulnessError,
    HotsetError,
    SampleError,
    SchemaError,
    UnsupportedError,
)
from tests import streams
from tests.streams import OwnCode, Pictures, assert_same, stream

DATA = (torch.zeros(6, 3, 4, 4, dtype=torch.uint8), torch.arange(6))


class Numbers(IterableDataset[int]):
    """Samples without an index."""

    def __iter__(self) -> Iterator[int]:
        yield from range(3)


class NumbersWithLength(Numbers):
    """The same, of a known length."""

    def __len__(self) -> int:
        return 3


class Of(Dataset[Any]):
    """Samples by a function of their index."""

    def __init__(self, length: int, function: Any) -> None:
        self.length, self.function = length, function

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        return self.function(index)


@pytest.mark.parametrize(
    "make",
    [
        lambda: hotset.Loader(OwnCode(0), device="cpu"),
        lambda: hotset.Loader(torch.zeros(0, 3), device="cpu"),
        lambda: hotset.Loader({"x": np.zeros((0, 3))}, device="cpu"),
        lambda: hotset.Loader([], device="cpu"),
        lambda: hotset.CachedDataset(OwnCode(0), device="cpu"),
        lambda: hotset.CachedDataset((torch.zeros(0, 3),), device="cpu"),
        lambda: hotset.accelerate(DataLoader(OwnCode(0)), device="cpu"),
        lambda: hotset.accelerate(DataLoader(Subset(OwnCode(3), [])), device="cpu"),
        lambda: hotset.accelerate(DataLoader(TensorDataset(torch.zeros(0, 2))), device="cpu"),
    ],
)
def test_an_empty_dataset_is_refused(make: Any) -> None:
    """Whatever kind it is of."""
    with pytest.raises(ConfigError, match="is empty: there is nothing to load"):
        make()


@pytest.mark.parametrize("data", [(), {}, ((), [])])
def test_no_fields_are_refused(data: Any) -> None:
    """A tuple or dictionary without a tensor."""
    with pytest.raises(ConfigError, match="the data holds no field, got"):
        hotset.Loader(data, device="cpu")


@pytest.mark.parametrize("size", [0, -1, 2.0, 2.5, True, "4", None, np.float64(2)])
def test_a_batch_size_that_is_no_count_is_refused(size: Any) -> None:
    """Zero, negative, floats, booleans, text; the value is shown."""
    with pytest.raises(ConfigError, match=r"`batch_size` must be a whole number of at least 1, go"):
        hotset.Loader(DATA, size, device="cpu")


@pytest.mark.parametrize("every", [-1, 0.5, True, None])
def test_check_every_must_be_a_count(every: Any) -> None:
    """0 means none; anything but a count is refused by both ways to a loader."""
    message = "`check_every` must be a whole number, 0 for no comparison, got"
    with pytest.raises(ConfigError, match=message):
        hotset.Loader(DATA, 2, device="cpu", check_every=every)
    with pytest.raises(ConfigError, match=message):
        hotset.accelerate(DataLoader(OwnCode(3)), device="cpu", check_every=every)


@pytest.mark.parametrize("workers", [-1, 1.5, True, "2"])
def test_num_workers_must_be_a_count(workers: Any) -> None:
    """Said when the loader is made, not when a worker would be needed."""
    with pytest.raises(ConfigError, match="`num_workers` must be a whole number, 0 or more, got"):
        hotset.Loader(DATA, 2, device="cpu", num_workers=workers)


@pytest.mark.parametrize("seed", [1.0, "1", True])
def test_a_seed_must_be_a_whole_number(seed: Any) -> None:
    """Or None."""
    with pytest.raises(ConfigError, match="`seed` must be a whole number or None, got"):
        hotset.Loader(DATA, 2, device="cpu", seed=seed)


@pytest.mark.parametrize("shard", [(0, 0), (2, 2), (-1, 2), (0,), 3, "ab", (0, 1, 2), None])
def test_a_shard_must_be_rank_and_world_size(shard: Any) -> None:
    """The rank below the world size."""
    with pytest.raises(
        ConfigError, match=r"`shard` must be \(rank, world size\), as \(0, 4\), got"
    ):
        hotset.Loader(DATA, 2, device="cpu", seed=0, shard=shard)


def test_a_shard_needs_a_seed() -> None:
    """Ranks that draw their own order do not partition anything."""
    with pytest.raises(ConfigError, match="`shard` needs a `seed`, so that all ranks agree"):
        hotset.Loader(DATA, 2, device="cpu", shard=(0, 2))


@pytest.mark.parametrize("dtype", [torch.int32, "float16", float, np.float32])
def test_a_dtype_must_be_a_floating_one_of_torch(dtype: Any) -> None:
    """By every way in."""
    message = "`dtype` must be a floating torch dtype such as torch.float16, got"
    for make in (
        lambda: hotset.Loader(DATA, 2, device="cpu", dtype=dtype),
        lambda: hotset.CachedDataset(DATA, device="cpu", dtype=dtype),
        lambda: hotset.accelerate(DataLoader(OwnCode(3)), device="cpu", dtype=dtype),
    ):
        with pytest.raises(ConfigError, match=message):
            make()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device here")
@pytest.mark.parametrize("device", ["cuda", "cuda:1", torch.device("cuda")])
def test_cuda_without_cuda_says_what_is_there(device: Any) -> None:
    """By every way in: the device asked for, what there is, what to pass instead."""
    message = (
        r"device='cuda.*' was asked for, but there is no CUDA device, only the CPU "
        r"\(PyTorch .*, built with .*\); pass device='cpu'"
    )
    for make in (
        lambda: hotset.Loader(DATA, 2, device=device),
        lambda: hotset.CachedDataset(DATA, device=device),
        lambda: hotset.accelerate(DataLoader(OwnCode(3)), device=device),
    ):
        with pytest.raises(DeviceError, match=message):
            make()


@pytest.mark.parametrize(
    ("device", "error", "message"),
    [
        ("tpu", ConfigError, "`device` must be like 'cpu' or 'cuda:0', got 'tpu'"),
        ("cpu:x", ConfigError, "`device` must be like 'cpu' or 'cuda:0', got 'cpu:x'"),
        (1.5, ConfigError, "`device` must be like 'cpu' or 'cuda:0', got 1.5"),
        ("mps", DeviceError, "`device` must be 'cpu' or 'cuda', got 'mps'"),
        ("meta", DeviceError, "`device` must be 'cpu' or 'cuda', got 'meta'"),
    ],
)
def test_devices_that_hotset_does_not_serve(device: Any, error: Any, message: str) -> None:
    """No device's name at all, and names of others."""
    with pytest.raises(error, match=message):
        hotset.Loader(DATA, 2, device=device)


@pytest.mark.parametrize("odd", [0, 4, 5, 10])
@pytest.mark.parametrize("chain", [None, v1.ToTensor()])
def test_differing_shapes_name_the_index_and_both_shapes(odd: int, chain: Any) -> None:
    """Wherever the odd one stands: seen by the probes, or only when everything is read."""

    def sample(index: int) -> Tensor:
        return torch.zeros(3, 8 if index != odd else 9)

    def image(index: int) -> Any:
        return streams.picture(index, (8, 9 if index == odd else 8))

    dataset = Of(11, sample)
    other, shapes = (1 if odd == 0 else 0), [r"\(3, 8\)", r"\(3, 9\)"]
    if chain is not None:
        dataset, shapes = Of(11, image), [r"\(3, 8, 8\)", r"\(3, 8, 9\)"]
        dataset.transform = chain
        dataset.function = lambda index: dataset.transform(image(index))
    with pytest.raises(SchemaError, match=f"at index {odd}(;| but)") as caught:
        hotset.accelerate(DataLoader(dataset, 4), device="cpu")
    text = str(caught.value)
    assert "resize or pad to one shape in the transform, or give the DataLoader a collate" in text
    for shape in shapes:
        assert shape.replace("\\", "") in text
    assert f"at index {other}" in text or odd == 0


def test_differing_shapes_of_random_steps_are_named_when_they_come() -> None:
    """In the worker path the batch that cannot be stacked names both samples."""

    def cut(image: Any) -> Tensor:
        width = 4 + int(torch.randint(0, 4, ()))
        return v1.functional.to_tensor(image)[:, :, :width]

    loader = DataLoader(Pictures(40, cut), 20)
    with pytest.raises(SchemaError, match=r"sample\[0\] is a tensor \(3, 8, .\) float32 at index"):
        list(hotset.accelerate(loader, device="cpu"))


def test_differing_structures_are_named() -> None:
    """Another number of fields, or other keys."""
    with pytest.raises(SchemaError, match=r"the sample at index 3 has the leaves \['\[0\]', .*\]"):
        hotset.Loader(Of(4, lambda i: (i,) * (1 + i // 3)), 2, device="cpu")
    with pytest.raises(SchemaError, match=r"the sample at index 2 has the leaves \[\"\['b'\]\"\]"):
        hotset.Loader(Of(9, lambda i: {"b" if i == 2 else "a": i}), 2, device="cpu")


class Broken(Dataset[Any]):
    """Raises at some index."""

    def __init__(self, at: int, length: int = 30) -> None:
        self.at, self.length = at, length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        return self.open(index)

    def open(self, index: int) -> Any:
        """A sample."""
        if index == self.at:
            raise OSError(f"no file for {index}")
        return torch.tensor([float(index)])


@pytest.mark.parametrize("at", [0, 7, 29])
def test_a_dataset_that_raises_names_the_index_and_keeps_the_cause(at: int) -> None:
    """The dataset's own exception is the cause, with its own traceback."""
    for make in (
        lambda: hotset.accelerate(DataLoader(Broken(at), 4), device="cpu"),
        lambda: hotset.Loader(Broken(at), 4, device="cpu"),
        lambda: hotset.CachedDataset(Broken(at), device="cpu"),
    ):
        with pytest.raises(
            SampleError, match=f"Broken failed at index {at}: OSError: no file for {at}"
        ) as caught:
            make()
        assert isinstance(caught.value.__cause__, OSError)
        frames = traceback.extract_tb(caught.value.__cause__.__traceback__)
        assert frames[-1].name == "open"


def fails_at_five(image: Any) -> Any:
    """A random step that fails on one image."""
    torch.rand(())
    if np.array_equal(np.asarray(image), streams.pixels(5)):
        raise OSError("no such image")
    return v1.functional.to_tensor(image)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_step_that_raises_in_an_epoch_names_the_index(workers: int) -> None:
    """In worker processes too, where the original traceback comes as text."""
    loader = DataLoader(Pictures(12, hotset.random(fails_at_five)), 4, num_workers=workers)
    fast = hotset.accelerate(loader, device="cpu", check_every=0)
    with pytest.raises(
        SampleError, match="Pictures failed at index 5: OSError: no such image"
    ) as caught:
        list(fast)
    if workers:
        assert "Original Traceback" in str(caught.value)
        assert "in fails_at_five" in str(caught.value)
    else:
        assert isinstance(caught.value.__cause__, OSError)


class SlowlyBroken(Broken):
    """As slow as what worker processes are used for."""

    def open(self, index: int) -> Any:
        """A sample, later."""
        torch.arange(10).sum()
        return super().open(index)


def test_a_dataset_that_raises_in_a_filling_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading by workers keeps the index and the original traceback."""
    monkeypatch.setattr("hotset.sources.sweep.WORKERS_PAY_SECONDS", -1.0)
    loader = DataLoader(SlowlyBroken(150, 300), 4, num_workers=2)
    with pytest.raises(SampleError, match="failed at index 150: OSError: no file for 150") as info:
        hotset.accelerate(loader, device="cpu")
    text = "".join(traceback.format_exception(info.value))
    assert "in open" in text
    assert 'raise OSError(f"no file for {index}")' in text


def test_a_transform_that_raises_names_the_step() -> None:
    """While the chain is looked at, each step is known by number and name."""
    chain = v1.Compose([v1.ToTensor(), v1.Normalize((0.5, 0.5), (1.0, 1.0))])
    with pytest.raises(SampleError, match=r"failed at index 0: RuntimeError") as caught:
        hotset.accelerate(DataLoader(Pictures(5, chain), 2), device="cpu")
    assert isinstance(caught.value.__cause__, RuntimeError)


@hotset.deterministic
def not_so_deterministic(values: Tensor) -> Tensor:
    """Bears a marker that it contradicts."""
    return values + torch.rand(())


def test_a_probe_that_disagrees_with_the_marker() -> None:
    """Marked deterministic, but draws: said before anything is kept."""
    chain = v1.Compose([v1.ToTensor(), not_so_deterministic])
    with pytest.raises(
        ConfigError,
        match=r"not_so_deterministic is marked @hotset\.deterministic, but was probed: it draws "
        "from a random generator; take the marker off",
    ):
        hotset.accelerate(DataLoader(Pictures(5, chain), 2), device="cpu")


class Fickle:
    """Contradicts its marker without drawing from any generator."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, values: Tensor) -> Tensor:
        self.calls += 1
        return values + self.calls


def test_a_probe_that_finds_hidden_state() -> None:
    """A counter inside is found by its results."""
    chain = v1.Compose([v1.ToTensor(), hotset.deterministic(Fickle())])
    with pytest.raises(ConfigError, match="two runs on the same input differ"):
        hotset.accelerate(DataLoader(Pictures(5, chain), 2), device="cpu")


@pytest.mark.parametrize("kind", [Numbers, NumbersWithLength])
def test_iterable_datasets_are_refused_with_advice(kind: Any) -> None:
    """By every way in."""
    message = (
        f"{kind.__name__} is an IterableDataset: its samples have no index to keep them by; ma"
    )
    for make in (
        lambda: hotset.accelerate(DataLoader(kind()), device="cpu"),
        lambda: hotset.Loader(kind(), device="cpu"),
        lambda: hotset.CachedDataset(kind(), device="cpu"),
    ):
        with pytest.raises(UnsupportedError, match=message):
            make()


@pytest.mark.parametrize("thing", [7, object(), iter([1, 2]), {1, 2}])
def test_what_is_no_dataset_is_refused(thing: Any) -> None:
    """Neither indexed nor an array."""
    for make in (hotset.Loader, hotset.CachedDataset):
        with pytest.raises(
            UnsupportedError, match="expected a map-style dataset, with __getitem__ and __len__"
        ):
            make(thing, device="cpu")


@pytest.mark.parametrize("path", ["a.hotset", b"a.hotset", Path("a.hotset")])
def test_a_path_is_to_be_opened_first(path: Any) -> None:
    """Which the refusal says."""
    opened = re.escape(f"hotset.open({path!r})")
    for make in (hotset.Loader, hotset.CachedDataset):
        with pytest.raises(UnsupportedError, match=f"a store's path give {opened}$"):
            make(path, device="cpu")
    with pytest.raises(UnsupportedError, match=rf"use hotset.Loader\({opened}, batch_size="):
        hotset.accelerate(path)


class DataFrame:
    """As pandas' own: its index holds the names of columns."""

    __module__ = "pandas.core.frame"

    def __len__(self) -> int:
        return 3

    def __getitem__(self, name: str) -> Any:
        return {"a": [1, 2, 3]}[name]


class GeoDataFrame(DataFrame):
    """One of another package, made of pandas' own."""

    __module__ = "geopandas"


@pytest.mark.parametrize("kind", [DataFrame, GeoDataFrame])
def test_a_table_of_pandas_is_refused_with_advice(kind: Any, tmp_path: Path) -> None:
    """By every way in."""
    for make in (
        lambda: hotset.accelerate(DataLoader(kind()), device="cpu"),
        lambda: hotset.Loader(kind(), device="cpu"),
        lambda: hotset.CachedDataset(kind(), device="cpu"),
        lambda: hotset.build(kind(), tmp_path / "a.hotset"),
        lambda: hotset.build(kind(), tmp_path / "a.hotset", on_error="skip"),
    ):
        with pytest.raises(UnsupportedError, match=r"got a DataFrame: .* df\[name\]\.to_numpy"):
            make()


class OwnLoop(DataLoader[Any]):
    """A DataLoader that does as it likes."""

    def __iter__(self) -> Any:
        return iter([1, 2, 3])


def test_what_is_no_stock_loader_is_refused() -> None:
    """Datasets, hotset's own loaders, loaders with a loop of their own, loaders without batches."""
    with pytest.raises(
        UnsupportedError, match=r"accelerate takes a .*DataLoader, got a OwnCode; f"
    ):
        hotset.accelerate(OwnCode(3))  # type: ignore[arg-type]
    fast = hotset.accelerate(DataLoader(OwnCode(3)), device="cpu")
    with pytest.raises(UnsupportedError, match="this loader is hotset's own already"):
        hotset.accelerate(fast)  # type: ignore[arg-type]
    with pytest.raises(UnsupportedError, match="OwnLoop has an __iter__ of its own"):
        hotset.accelerate(OwnLoop(OwnCode(3)), device="cpu")
    with pytest.raises(ConfigError, match=r"the DataLoader has batch_size=None \(no batches\)"):
        hotset.accelerate(DataLoader(OwnCode(3), batch_size=None), device="cpu")
    with pytest.raises(UnsupportedError, match=r"use hotset\.accelerate\(loader\)"):
        hotset.Loader(DataLoader(OwnCode(3)), device="cpu")


@pytest.mark.parametrize(
    ("sample", "path"),
    [
        (lambda i: (torch.zeros(2), None), r"sample\[1\] is None"),
        (lambda i: {"a": 1, "b": {"c": None}}, r"sample\['b'\]\['c'\] is None"),
        (lambda i: None, r"sample is None"),
        (lambda i: (1, streams.picture(i)), r"sample\[1\] is a PIL image RGB 8x8, which cannot"),
        (lambda i: (1, object), r"sample\[1\] is of type type, which cannot be batched"),
    ],
)
def test_leaves_that_cannot_be_batched_are_named_by_path(sample: Any, path: str) -> None:
    """None first of all, then images that were never made tensors, and other objects."""
    with pytest.raises(SchemaError, match=path):
        hotset.accelerate(DataLoader(Of(5, sample), 2), device="cpu")


def test_none_that_comes_late_is_named() -> None:
    """At an index that no probe looks at."""
    dataset = Of(50, lambda i: (i, None if i == 13 else 1.0))
    with pytest.raises(
        SchemaError, match=r"sample\[1\] is a float at index 0 but a NoneType at in"
    ):
        hotset.accelerate(DataLoader(dataset, 2), device="cpu")


class SmoothedTail:
    """Looks at a pixel's neighbours: not elementwise."""

    def __call__(self, values: Tensor) -> Tensor:
        return values + values.roll(1, -1)


@pytest.mark.parametrize("step", [SmoothedTail(), streams.less_mean])
def test_a_tail_that_is_not_elementwise_falls_back(step: Any) -> None:
    """The plan says so, and the batches are the plain loader's."""
    chain = v1.Compose([v1.ToTensor(), step])
    loader = DataLoader(Pictures(9, chain), 4)
    fast = hotset.accelerate(loader, device="cpu", check_every=1)
    assert "table" not in [d.action for d in fast.plan.decisions]
    for batch, wanted in zip(fast, loader, strict=True):
        assert_same(batch, wanted)
    behind = v1.Compose([v1.RandomHorizontalFlip(p=1.0), v1.ToTensor(), step])
    loader = DataLoader(Pictures(9, behind), 4)
    fast = hotset.accelerate(loader, device="cpu", check_every=1)
    assert fast.plan.decisions[-1].action == "worker"
    name = getattr(step, "__name__", type(step).__name__)
    assert f"per sample, since {name} acts on tensor (3, 8, 8) float32" in str(fast.plan)
    for batch, wanted in zip(fast, loader, strict=True):
        assert_same(batch, wanted)


def test_a_step_on_bytes_that_is_not_elementwise_falls_back() -> None:
    """Where a table was tried, the plan says what it foundered on."""
    chain = v1.Compose([v1.PILToTensor(), v1.RandomHorizontalFlip(p=1.0), SmoothedTail()])
    loader = DataLoader(Pictures(9, chain), 4)
    fast = hotset.accelerate(loader, device="cpu", check_every=1)
    assert "since SmoothedTail does not act on each value by itself" in str(fast.plan)
    for batch, wanted in zip(fast, loader, strict=True):
        assert_same(batch, wanted)


def tail_that_minds_dark_images(values: Tensor) -> Tensor:
    """Elementwise, but for images of a kind that no probe shows."""
    return values * 2 if values.shape[-1] == 8 and values.mean() == 0.25 else values


def test_a_table_that_is_wrong_for_a_rare_image_is_found_by_the_spot_check() -> None:
    """What every probe missed is caught when such a sample is compared, and named."""

    class OneOdd(Pictures):
        def __getitem__(self, index: int) -> Any:
            image = np.full((8, 8, 3), 64 if index == 11 else index, np.uint8)
            if index == 11:
                image[:4] = 0
                image[:, :4] = 0
                image[4:, 4:] = 255
            return self.transform(image), index

    chain = v1.Compose([v1.ToTensor(), tail_that_minds_dark_images])
    loader = DataLoader(OneOdd(30, chain), 4)
    fast = hotset.accelerate(loader, device="cpu", check_every=1)
    if all(d.action == "once" for d in fast.plan.decisions):
        for batch, wanted in zip(fast, loader, strict=True):
            assert_same(batch, wanted)
        return
    with pytest.raises(FaithfulnessError, match="sample 11 of OneOdd differs"):
        list(fast)


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ([[0, 9]], r"the sampler gave index 9, but the dataset has 5 samples"),
        ([[0, -6]], r"the sampler gave index -1, but the dataset has 5 samples"),
        ([["a"]], r"the sampler must give batches of whole numbers, got \['a'\]"),
        ([[[0, 1], [2, 3]]], r"the sampler must give batches of whole numbers, got \[\[0, 1\], \["),
        ([np.zeros((2, 2), int)], r"the sampler must give batches of whole numbers, got array"),
        ([[1.0, 2.0]], r"the sampler must give batches of whole numbers, got \[1.0, 2.0\]"),
        ([3], r"the sampler must give batches of whole numbers, got 3"),
    ],
)
def test_samplers_that_give_nonsense(batch: Any, message: str) -> None:
    """Indices out of range would read other memory: they are refused before."""
    fast = hotset.accelerate(DataLoader(OwnCode(5), batch_sampler=batch), device="cpu")
    with pytest.raises(ConfigError, match=message):
        list(fast)


@pytest.mark.parametrize("index", [5, -6])
def test_a_subset_that_reaches_out_of_a_tensor_dataset(index: int) -> None:
    """Refused with the index; counted from the end it is the plain loader's sample."""
    tensors = streams.tensor_dataset(5)
    with pytest.raises(ConfigError, match=f"a Subset has the index {index}, but .* 5 samples"):
        hotset.accelerate(DataLoader(Subset(tensors, [0, index])), device="cpu")
    loader = DataLoader(Subset(Subset(tensors, [-1, 2, -5]), [-1, 0]), 2)
    assert_same(list(hotset.accelerate(loader, device="cpu")), list(loader))


@pytest.mark.parametrize(
    ("data", "options", "error", "message"),
    [
        (
            (torch.zeros(3), torch.zeros(4)),
            {},
            SchemaError,
            r"same number of samples, got \{'\[0\]",
        ),
        (torch.tensor(1), {}, SchemaError, "the data must be a tensor or a NumPy array"),
        ({"x": np.array(["a"])}, {}, SchemaError, r"data\['x'\] must be a tensor or a NumPy array"),
        (
            {"x": torch.zeros(3)},
            {"transform": abs},
            ConfigError,
            r"must be \{field: transform\} wi",
        ),
        ({"x": torch.zeros(3)}, {"transform": {"y": abs}}, ConfigError, "names the field 'y'; the"),
        (
            torch.zeros(3),
            {"transform": {"x": abs}},
            ConfigError,
            "names a field, but the data is n",
        ),
    ],
)
def test_arrays_that_do_not_fit(data: Any, options: Any, error: Any, message: str) -> None:
    """Lengths, kinds, and transforms for fields that are not there."""
    with pytest.raises(error, match=message):
        hotset.Loader(data, 2, device="cpu", **options)


@pytest.mark.parametrize("budget", ["8 apples", -1, 1.5, True, "150%", "", "GB"])
def test_budgets_that_are_none(budget: Any) -> None:
    """Said when the loader is made."""
    with pytest.raises(ConfigError, match="`budget` must be bytes, '8GB' or '60%', got"):
        hotset.Loader(OwnCode(3), 2, device="cpu", budget=budget)


def test_every_error_is_also_what_a_caller_would_expect() -> None:
    """A tree of one root, each also a builtin."""
    from hotset import errors

    expected = {
        "ConfigError": ValueError,
        "DeviceError": RuntimeError,
        "UnsupportedError": TypeError,
        "SampleError": RuntimeError,
        "SchemaError": ValueError,
        "FaithfulnessError": RuntimeError,
        "StateError": ValueError,
        "FormatError": ValueError,
        "MissingDataError": FileNotFoundError,
        "MissingExtraError": ImportError,
        "DownloadError": OSError,
    }
    for name, builtin in expected.items():
        kind = getattr(errors, name)
        assert issubclass(kind, HotsetError)
        assert issubclass(kind, builtin)
        assert name in (errors.__doc__ or "")


def test_nothing_is_lost_after_an_error() -> None:
    """A loader whose dataset failed once in an epoch goes on with the next."""
    chain = hotset.random(fails_at_five)
    fast = hotset.accelerate(DataLoader(Pictures(12, chain), 4), device="cpu", check_every=0)
    iterator = iter(fast)
    assert next(iterator)[1].tolist() == [0, 1, 2, 3]
    with pytest.raises(SampleError, match="failed at index 5"):
        next(iterator)
    assert next(iter(fast))[1].tolist() == [0, 1, 2, 3]
    assert len(stream(hotset.Loader(DATA, 4, device="cpu"))[0][0]) == 2
