"""Images of differing sizes in batches: RandomResizedCrop in every form, and what has none."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, RandomSampler
from torchvision import transforms as v1
from torchvision import tv_tensors
from torchvision.transforms import InterpolationMode, v2

import hotset
from hotset.chain.probe import preserved_generators, seed_generators
from hotset.errors import FaithfulnessError
from hotset.loader.batch import Request, seeds_of
from hotset.loader.check import CheckedPipeline
from hotset.ops.resample import ResizedCrop
from hotset.rng import Key
from tests.streams import assert_same, stream

COUNT = 40
CHANNELS = {"L": 1, "RGB": 3, "CMYK": 4, "YCbCr": 3, "RGBA": 4}
VERSIONS = {"v1": v1, "v2": v2}


class Images(Dataset[Any]):
    """Images of differing sizes, or of one, of random content, as PIL or tensors."""

    def __init__(
        self, transform: Any, kind: str = "RGB", size: Any = None, odd: Any = None
    ) -> None:
        self.transform, self.kind, self.size, self.odd = transform, kind, size, odd

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> Any:
        return self.transform(self.image(index)), index

    def image(self, index: int) -> Any:
        """The image itself."""
        height, width = self.size or (8 + index % 9, 9 + index % 7)
        kind = self.kind if index != 7 or self.odd is None else self.odd
        shape = (height, width, CHANNELS.get(kind, 3))
        content = np.random.default_rng(index).integers(0, 256, shape, dtype=np.uint8)
        if kind in CHANNELS:
            return Image.frombytes(kind, (width, height), content.tobytes())
        tensor = torch.from_numpy(content).permute(2, 0, 1).contiguous()
        if kind == "float":
            return tensor / 255
        return tv_tensors.Image(tensor) if kind == "Image" else tensor


def tail(version: Any, kind: str, *, channels: int | None = None) -> list[Any]:
    """What makes floats of bytes."""
    channels = channels or CHANNELS.get(kind, 3)
    mean, std = [0.3, 0.4, 0.5, 0.6][:channels], [0.2, 0.25, 0.3, 0.35][:channels]
    if version is v1:
        head: list[Any] = [v1.ToTensor()] if kind in CHANNELS else []
        head += [] if kind in CHANNELS else [v1.ConvertImageDtype(torch.float32)]
    else:
        head = [v2.ToImage(), v2.ToDtype(torch.float32, scale=True)]
    return [*head, version.Normalize(mean, std)]


def compared(dataset: Dataset[Any], **options: Any) -> hotset.Loader:
    """A loader whose every sample of the first epoch was made again by the user's own chain."""
    fast = hotset.accelerate(DataLoader(dataset, 7), device="cpu", check_every=1, **options)
    assert sum(len(labels) for _, labels in fast) == COUNT
    pipeline: Any = fast._parts.pipeline
    while not isinstance(pipeline, CheckedPipeline):
        pipeline = pipeline._inner
    assert pipeline._check.checked == COUNT
    return fast


def actions(loader: hotset.Loader) -> list[str]:
    """What is done to each step, the dataset's own reading apart."""
    return [decision.action for decision in loader.plan.decisions[1:]]


@pytest.mark.parametrize("size", [None, (14, 13)], ids=["ragged", "dense"])
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("kind", "interpolation"),
    [
        *itertools.product(("L", "RGB", "CMYK", "YCbCr"), ("bilinear", "bicubic", "nearest")),
        ("RGB", "box"),
        ("RGB", "hamming"),
        ("RGB", "lanczos"),
        ("uint8", "bilinear"),
        ("Image", "bilinear"),
    ],
)
def test_every_sample_is_what_the_own_chain_gives(
    kind: str, interpolation: str, version: str, size: Any
) -> None:
    """PIL images bit for bit, tensors within torch's own rounding, whatever is behind the crop."""
    module = VERSIONS[version]
    crops = [
        module.RandomResizedCrop(8, interpolation=InterpolationMode(interpolation)),
        module.RandomResizedCrop((6, 11), (0.3, 0.3), (0.4, 2.5), InterpolationMode(interpolation)),
        module.RandomResizedCrop((20, 5), (0.9, 1.0), (4.0, 5.0), InterpolationMode(interpolation)),
        module.RandomResizedCrop(
            (9, 7), (0.001, 0.01), interpolation=InterpolationMode(interpolation)
        ),
    ]
    for number, crop in enumerate(crops if size is None else crops[:2]):
        steps = [crop, module.RandomHorizontalFlip(), *tail(module, kind)]
        if number % 2:
            steps.append(module.RandomErasing(0.5))
        fast = compared(Images(module.Compose(steps), kind, size))
        assert actions(fast)[:2] == ["batch", "batch"]
        assert set(actions(fast)) == {"batch", "table"}
        is_fused = interpolation in ("bilinear", "bicubic", "box")
        assert fast.plan.kernel.startswith("Numba" if is_fused else "PyTorch")


@pytest.mark.parametrize("interpolation", ["bilinear", 2, InterpolationMode.BILINEAR, "bicubic", 3])
def test_interpolations_by_name_and_number(interpolation: Any) -> None:
    """As v2 takes them; a name is its default."""
    chain = v2.Compose([v2.RandomResizedCrop(8, interpolation=interpolation), *tail(v2, "RGB")])
    assert actions(compared(Images(chain))) == ["batch", "table", "table", "table"]
    default = v2.Compose([v2.RandomResizedCrop(8), *tail(v2, "RGB")])
    assert actions(compared(Images(default))) == ["batch", "table", "table", "table"]


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("kind", ["RGB", "uint8", "Image"])
def test_half_precision_and_channels_last(
    kind: str, dtype: torch.dtype, channels_last: bool
) -> None:
    """Rounded once; a level of a tensor is as much as it is in that precision."""
    chain = v2.Compose([v2.RandomResizedCrop((16, 12)), *tail(v2, kind), v2.RandomErasing(0.5)])
    for seed in range(1 if kind == "RGB" else 4):  # few samples are a level off
        torch.manual_seed(seed)
        fast = compared(Images(chain, kind), dtype=dtype, channels_last=channels_last)
    assert set(actions(fast)) == {"batch", "table"}
    fresh = hotset.accelerate(
        DataLoader(Images(chain, kind), 7), device="cpu", dtype=dtype, channels_last=channels_last
    )
    again = hotset.accelerate(DataLoader(Images(chain, kind), 7), device="cpu")
    for (images, _), (wanted, _) in zip(
        stream(fresh, seed=1)[0][0], stream(again, seed=1)[0][0], strict=True
    ):
        assert images.is_contiguous(memory_format=torch.channels_last) == channels_last
        assert images.is_contiguous() != channels_last
        assert_same(images.contiguous(), wanted.to(dtype))


CHAINS: dict[str, tuple[list[Any], Any, list[str], str]] = {
    "twice": (
        [v2.RandomResizedCrop((16, 12)), v2.RandomResizedCrop(9)],
        None,
        ["batch", "batch"],
        "",
    ),
    "crop behind": (
        [v2.RandomResizedCrop(11), v2.RandomCrop(8, padding=2), v2.RandomVerticalFlip()],
        None,
        ["batch", "batch", "batch"],
        "",
    ),
    "guarded": (
        [v2.RandomApply([v2.RandomResizedCrop((14, 13)), v2.RandomHorizontalFlip(1.0)], 0.5)],
        (14, 13),
        ["batch"],
        "",
    ),
    "guarded behind": (
        [v2.RandomResizedCrop(9), v2.RandomApply([v2.RandomResizedCrop(9)], 0.5)],
        None,
        ["batch", "batch"],
        "",
    ),
    "guarded, of another size": (
        [v2.RandomApply([v2.RandomResizedCrop(9)], 1.0)],
        None,
        ["worker"],
        "RandomApply is random and has no batched form",
    ),
    "flip before, dense": (
        [v2.RandomHorizontalFlip(), v2.RandomResizedCrop(9)],
        (14, 13),
        ["batch", "batch"],
        "",
    ),
    "flip before, ragged": (
        [v2.RandomHorizontalFlip(), v2.RandomResizedCrop(9)],
        None,
        ["worker", "worker"],
        "images differ in size, and RandomHorizontalFlip does not make them one",
    ),
    "crop before, ragged": (
        [v2.RandomCrop(8), v2.RandomResizedCrop(9)],
        None,
        ["worker", "worker"],
        "images differ in size, and RandomCrop does not make them one",
    ),
}


@pytest.mark.parametrize("kind", ["RGB", "uint8"])
@pytest.mark.parametrize("name", CHAINS)
def test_crops_anywhere_in_a_chain(name: str, kind: str) -> None:
    """Guarded, twice, behind others: right in batches, or right per sample with a reason."""
    steps, size, expected, reason = CHAINS[name]
    fast = compared(Images(v2.Compose([*steps, *tail(v2, kind)]), kind, size))
    assert actions(fast)[: len(steps)] == expected
    assert reason in str(fast.plan)


class OneAlike(Images):
    """The first of the images has the size that a guarded crop gives, the others have not."""

    def image(self, index: int) -> Any:
        return super().image(index).resize((9, 8) if index == 0 else (10, 11))


def test_a_guarded_crop_of_the_first_image_s_size() -> None:
    """Where the others differ, it runs per sample."""
    chain = v2.Compose([v2.RandomApply([v2.RandomResizedCrop((8, 9))], 1.0), *tail(v2, "RGB")])
    fast = compared(OneAlike(chain))
    assert set(actions(fast)) == {"worker"}
    assert "images differ in size, and RandomApply does not make them one" in str(fast.plan)


@pytest.mark.parametrize("size", [None, (14, 13)], ids=["ragged", "dense"])
@pytest.mark.parametrize(
    ("kind", "crop"),
    [
        ("RGBA", v2.RandomResizedCrop(8)),
        ("RGBA", v1.RandomResizedCrop(8)),
        ("float", v2.RandomResizedCrop(8)),
        ("uint8", v2.RandomResizedCrop(8, interpolation="bicubic")),
        ("uint8", v2.RandomResizedCrop(8, interpolation="nearest")),
        ("uint8", v1.RandomResizedCrop(8, antialias=False)),
        ("Image", v2.RandomResizedCrop(8, antialias=False)),
    ],
)
def test_what_has_no_batched_form_runs_per_sample(kind: str, crop: Any, size: Any) -> None:
    """With a reason; every sample is the user's own step's, under seeds of its own."""
    chain = v2.Compose([crop, *tail(v2, kind)])
    fast = compared(Images(chain, kind, size))
    assert set(actions(fast)) == {"worker"}
    assert "RandomResizedCrop is random and has no batched form" in str(fast.plan)
    dataset = Images(chain, kind, size)
    loader = hotset.Loader(dataset, 7, seed=4, device="cpu")
    ids = np.arange(COUNT)
    for epoch in range(2):
        seeds = seeds_of(Request(ids, np.zeros_like(ids), Key(4, epoch, 4)))
        for image, index in zip(torch.cat([images for images, _ in loader]), ids, strict=True):
            with preserved_generators():
                seed_generators(seeds[index])
                assert_same(image, torch.as_tensor(dataset[index][0]).as_subclass(Tensor))


@pytest.mark.parametrize("cache", [False, True])
def test_one_image_of_other_channels(cache: bool, tmp_path: Path) -> None:
    """That no probe looks at: all run per sample, and a collate_fn gets each as it is."""

    def apart(samples: list[Any]) -> Any:
        return [image for image, _ in samples], torch.tensor([label for _, label in samples])

    chain = v1.Compose([v1.RandomResizedCrop(8), v1.ToTensor()])
    plain = DataLoader(Images(chain, odd="L"), 7, collate_fn=apart)
    options: dict[str, Any] = {"cache": tmp_path} if cache else {}
    fast = hotset.accelerate(plain, device="cpu", check_every=1, **options)
    assert actions(fast) == ["worker", "worker"]
    assert "runs per sample, since the samples differ in shape" in str(fast.plan)
    shapes = [tuple(image.shape) for images, _ in fast for image in images]
    assert shapes == [(1 if index == 7 else 3, 8, 8) for index in range(COUNT)]


class Doctored(ResizedCrop):
    """A crop whose every result is some levels off."""

    by = once = 0

    def apply_ragged(self, images: Any, params: Any) -> Tensor:
        found = super().apply_ragged(images, params).int()
        found += torch.where(found > 100, -self.by, self.by)
        found[:, 0, 0, 0] += self.once
        return found.to(torch.uint8)


@pytest.mark.parametrize("dtype", [None, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("kind", ["RGB", "uint8"])
def test_a_difference_of_two_levels_is_caught(
    kind: str, dtype: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For tensors, whose resizing rounds elsewhere, one level passes, and two of a single value."""
    chain = v2.Compose([v2.RandomResizedCrop(8), *tail(v2, kind)])
    image = np.full((30, 30, 3), 100, np.uint8)

    class Even(Images):
        def image(self, index: int) -> Any:
            found = Image.fromarray(image)
            return found if kind == "RGB" else v2.functional.pil_to_tensor(found)

    monkeypatch.setattr("hotset.kernels.dispatch.lower_crop", lambda op: "doctored")
    monkeypatch.setattr("hotset.chain.torchvision.ResizedCrop", Doctored)
    is_picture = kind == "RGB"
    ways = ((0, 0, False), (1, 0, is_picture), (1, 1, is_picture), (1, 4, True), (2, 0, True))
    for by, once, is_caught in ways:
        monkeypatch.setattr(Doctored, "by", by)
        monkeypatch.setattr(Doctored, "once", once)
        if not is_caught:
            compared(Even(chain), dtype=dtype)
            continue
        with pytest.raises(FaithfulnessError, match=r"sample 0 of Even .*step RandomResizedCrop"):
            compared(Even(chain), dtype=dtype)


RESIZED = v1.Compose(
    [v1.RandomResizedCrop(8), v1.RandomHorizontalFlip(), v1.ToTensor(), v1.Normalize(0.4, 0.3)]
)


@pytest.mark.parametrize("kind", ["RGB", "L", "uint8"])
def test_batches_depend_on_nothing_but_the_seed(kind: str, tmp_path: Path) -> None:
    """Neither on workers, nor on the batch size, nor on where the samples are kept."""
    chain = RESIZED if kind != "uint8" else v2.Compose([v2.RandomResizedCrop(8), *tail(v2, kind)])
    ways: list[dict[str, Any]] = [
        {},
        {"cache": tmp_path / "eager"},
        {"cache": tmp_path / "lazy", "fill": "lazy"},
    ]
    found = []
    for options, workers, size in itertools.product(ways, (0, 2), (7, 13)):
        if "cache" in options:
            options = {**options, "cache": options["cache"] / f"{workers} {size}"}
        plain = DataLoader(Images(chain, kind), size, shuffle=True, num_workers=workers)
        torch.manual_seed(3)
        fast = hotset.accelerate(plain, device="cpu", **options)
        found.append([torch.cat(parts) for _ in range(2) for parts in zip(*fast, strict=True)])
    for other in found[1:]:
        assert_same(other, found[0])
    seeded = [
        {int(y): x for xs, ys in loader for x, y in zip(xs, ys, strict=True)}
        for size in (5, 40)
        for loader in [hotset.Loader(Images(chain, kind), size, shuffle=True, seed=4, device="cpu")]
    ]
    assert_same([seeded[0][n] for n in range(COUNT)], [seeded[1][n] for n in range(COUNT)])


def test_a_sample_that_comes_again_is_drawn_anew() -> None:
    """Within an epoch, and in the next."""
    dataset = Images(RESIZED, size=(64, 57))
    sampler = RandomSampler(dataset, replacement=True, num_samples=300)
    fast = hotset.accelerate(DataLoader(dataset, 9, sampler=sampler), device="cpu", check_every=1)
    seen: dict[int, list[bytes]] = {}
    for _ in range(2):
        for images, labels in fast:
            for image, label in zip(images, labels, strict=True):
                seen.setdefault(int(label), []).append(image.numpy().tobytes())
    assert max(map(len, seen.values())) > 5
    assert all(len(set(images)) == len(images) for images in seen.values())


def test_both_ends_of_a_crop_are_reached() -> None:
    """The whole image, and every corner of it, as torchvision reaches them."""
    size = 6
    image = np.zeros((size, size, 3), np.uint8)
    image[..., 0] = np.arange(size)[:, None] * 40
    image[..., 1] = np.arange(size)[None, :] * 40

    class Ramp(Images):
        def image(self, index: int) -> Any:
            return Image.fromarray(image)

    def corners(make: Callable[[], list[Tensor]]) -> set[tuple[int, ...]]:
        found = set()
        for crop in make():
            rows, columns = crop[0, :, 0] // 40, crop[1, 0] // 40
            found.add((int(rows[0]), int(rows[-1]), int(columns[0]), int(columns[-1])))
        return found

    crop = v1.RandomResizedCrop(24, (0.1, 1.0), (1.0, 1.0), InterpolationMode.NEAREST)
    chain = v1.Compose([crop, v1.PILToTensor()])
    fast = hotset.Loader(Ramp(chain), COUNT, seed=1, device="cpu")

    def batched() -> list[Tensor]:
        return [image for _ in range(150) for images, _ in fast for image in images]

    def one_by_one() -> list[Tensor]:
        return [chain(Image.fromarray(image)) for _ in range(6000)]

    torch.manual_seed(0)
    found = corners(batched)
    assert found == corners(one_by_one)
    edges = range(2, size + 1)  # of the squares that have a tenth of the area to all of it
    assert found == {
        (top, top + edge - 1, left, left + edge - 1)
        for edge in edges
        for top in range(size - edge + 1)
        for left in range(size - edge + 1)
    }
