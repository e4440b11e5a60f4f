"""Tables of elementwise tails: exact where there is one, and a reason where there is none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torchvision import transforms as v1
from torchvision.transforms import v2

from hotset.chain.probe import probe
from hotset.chain.table import build_table, is_bytes_image
from hotset.sample.collate import same_bits
from hotset.sample.column import decode, describe
from tests.vision_chains import CHANNELS, leaf_of, steps_of

MEAN, STD = (0.491, 0.482, 0.447, 0.5), (0.247, 0.243, 0.262, 0.25)


def _table(transform: Any, kind: str = "uint8", shape: tuple[int, int, int] = (3, 20, 20)) -> Any:
    return build_table(steps_of(transform), [leaf_of(kind, shape, seed) for seed in range(4)])


def _all_values(kind: str, channels: int) -> Any:
    pixels = torch.arange(256, dtype=torch.uint8).reshape(1, 16, 16).repeat(channels, 1, 1)
    return decode(pixels, describe(leaf_of(kind, (channels, 16, 16), 0)))


def _tails(kind: str, channels: int) -> list[tuple[str, Any]]:
    is_pil = kind in CHANNELS
    mean, std = MEAN[:channels], STD[:channels]
    first = v1.ToTensor() if is_pil else v1.ConvertImageDtype(torch.float32)
    head = v2.ToImage() if is_pil else v2.Identity()
    return [
        ("scale", [first]),
        ("normalise", [first, v1.Normalize(mean, std)]),
        ("in place", [first, v1.Normalize(mean, std, inplace=True)]),
        ("v2", [head, v2.ToDtype(torch.float32, scale=True), v2.Normalize(mean, std)]),
        ("half", [first, v1.Normalize(mean, std), v1.ConvertImageDtype(torch.float16)]),
        ("bfloat16", [head, v2.ToDtype(torch.bfloat16, scale=True)]),
        ("integers", [head, v2.ToDtype(torch.int32)]),
        ("lambda", [first, lambda x: x * 2 - 1]),
        ("gamma", [first, lambda x: x.clamp(0.1, 0.9).sqrt()]),
        ("binary", [first, lambda x: x > 0.5]),
        ("one value", [first, lambda x: x * 0 + 3]),
        ("per channel", [first, lambda x: x * torch.arange(1.0, channels + 1)[:, None, None]]),
    ]


TAILS = [
    pytest.param(kind, channels, tail, id=f"{kind}{channels}-{name}")
    for kind, channels in (("L", 1), ("RGB", 3), ("RGBA", 4), ("uint8", 1), ("uint8", 3))
    for name, tail in _tails(kind, channels)
]


@pytest.mark.parametrize(("kind", "channels", "tail"), TAILS)
def test_table_is_the_users_steps_on_every_value(kind: str, channels: int, tail: list[Any]):
    """256 entries per channel, each what the user's own steps make of that value."""
    table = _table(tail, kind, (channels, 9, 11))
    assert isinstance(table, Tensor), table
    assert table.shape == (channels, 256)
    value = _all_values(kind, channels)
    for call in tail:
        value = call(value)
    expected = value.as_subclass(Tensor).reshape(channels, 256)
    assert same_bits(table, expected)


@settings(max_examples=30)
@given(
    st.integers(1, 17), st.integers(1, 17), st.sampled_from(("L", "RGB", "RGBA", "uint8", "Image"))
)
def test_images_of_any_size(height: int, width: int, kind: str):
    """Images of fewer than 256 pixels take several runs; those of one pixel, 256."""
    channels = CHANNELS.get(kind, 3)
    tail = [v2.ToImage(), v2.ToDtype(torch.float32, scale=True), lambda x: x * 3 - 1]
    table = _table(tail, kind, (channels, height, width))
    assert isinstance(table, Tensor), table
    values = torch.arange(256, dtype=torch.uint8)[None, None]
    expected = v2.ToDtype(torch.float32, scale=True)(values) * 3 - 1
    assert torch.equal(table, expected[0, 0].expand(channels, 256))


def _standardise(image: Tensor) -> Tensor:
    image = image.float()
    return (image - image.mean()) / image.std().clamp(min=1)


def _vignette(image: Tensor) -> Tensor:
    return image.float() * torch.linspace(0.5, 1, image.shape[-1])


def _blur(image: Tensor) -> Tensor:
    return (image.float() + image.float().roll(1, -1)) / 2


def _stretch(image: Tensor) -> Tensor:
    return image.float() / image.float().amax().clamp(min=1)


@pytest.mark.parametrize(
    "call",
    [
        _standardise,
        _vignette,
        _blur,
        _stretch,
        lambda x: x.flip(0).float(),
        lambda x: x.flip(-1).float(),
        lambda x: x.transpose(-1, -2).float(),
        lambda x: x.float().mean(0, keepdim=True).expand(3, -1, -1),
        lambda x: x.float() * (x.float().mean() > 100),
        lambda x: x if x.max() > 250 else x // 2,
        lambda x: x.float().cumsum(-1),
        lambda x: x.float().sort(-1).values,
        lambda x: torch.nn.functional.dropout(x.float(), 0.5),
    ],
    ids=lambda call: getattr(call, "__name__", ""),
)
def test_what_is_not_elementwise_has_no_table(call: Callable[[Tensor], Tensor]):
    """Steps that look at neighbours, position, channels or the image's statistics."""
    reason = _table(call)
    assert reason == f"{call.__name__} does not act on each value by itself"


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (lambda x: x.repeat(3, 1, 1), "makes shape (9, 20, 20) of (3, 20, 20)"),
        (lambda x: x.view(-1), "makes shape (1200,) of (3, 20, 20)"),
        (lambda x: x[:, :10], "makes shape (3, 10, 20) of (3, 20, 20)"),
        (lambda x: x.permute(1, 2, 0), "makes shape (20, 20, 3) of (3, 20, 20)"),
        (lambda x: x.numpy(), "gives a ndarray, not a tensor"),
        (lambda x: (x, 1), "gives a tuple, not a tensor"),
    ],
)
def test_what_changes_the_shape_has_no_table(call: Callable[[Tensor], Any], reason: str):
    """The reason names what the step made."""
    assert _table(call) == f"<lambda>: {reason}"


def test_steps_that_fail_have_no_table():
    """An error on made-up content is the reason, with the steps' names before it."""

    def refuse(image: Tensor) -> Tensor:
        raise ValueError("too dark")

    assert _table([v1.ConvertImageDtype(torch.float32), refuse]) == (
        "ConvertImageDtype + refuse cannot be tabulated (ValueError: too dark)"
    )


def test_steps_that_change_their_input_are_random_to_the_probe():
    """A step in place never comes to be tabulated: the probe finds it out."""
    leaves = [leaf_of("uint8", (3, 5, 5), seed) for seed in range(4)]
    verdict = probe(lambda x: x.mul_(2), leaves)
    assert verdict.reason == "probed: it changes its input in place"


def test_a_step_that_changes_a_copy_is_tabulated():
    """The images a table is built on are the builder's own, so that none is spoilt."""
    table = _table(lambda x: x.clone().mul_(2))
    assert torch.equal(table[0], (torch.arange(256) * 2 % 256).to(torch.uint8))


@pytest.mark.parametrize(
    ("kind", "shape", "expected"),
    [
        ("L", (1, 2, 2), True),
        ("RGBA", (4, 2, 2), True),
        ("uint8", (7, 2, 2), True),
        ("Image", (3, 2, 2), True),
        ("float32", (3, 2, 2), False),
    ],
)
def test_images_of_bytes(kind: str, shape: tuple[int, int, int], expected: bool):
    """PIL images and (C, H, W) uint8 tensors, and nothing else."""
    assert is_bytes_image(leaf_of(kind, shape, 0)) is expected


def test_what_is_no_image_of_bytes():
    """Other axes, other leaves, no pixels."""
    for leaf in (torch.zeros(2, 2, dtype=torch.uint8), torch.zeros(3, 0, 2, dtype=torch.uint8), 5):
        assert not is_bytes_image(leaf)
