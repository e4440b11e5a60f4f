"""Random torchvision chains, and their batches made three ways: fused, by reference, one by one."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import hypothesis
import numpy as np
import torch
from hypothesis import strategies as st
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import default_collate
from torchvision import transforms as v1
from torchvision import tv_tensors
from torchvision.transforms import v2

from hotset.chain import torchvision
from hotset.chain.split import Split, split_chain
from hotset.chain.step import Step, flatten_chain
from hotset.kernels.dispatch import NumbaEngine, Reference, choose_engine
from hotset.kernels.program import Program, lower
from hotset.ops.op import Params, Shape, apply_gated, draw_gated
from hotset.rng import Draws, Key
from hotset.sample.collate import same_bits
from hotset.sample.column import describe, encode
from hotset.transforms import AlternatingFlip, Cutout

CPU = torch.device("cpu")
MODES = ("constant", "edge", "reflect", "symmetric")
CHANNELS = {"L": 1, "RGB": 3, "RGBA": 4}
FLOATS = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32}


def leaf_of(kind: str, shape: Shape, seed: int) -> Any:
    """An image of random content: a PIL mode, a dtype, or "Image" for a tv_tensor."""
    pixels = np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)
    if kind in CHANNELS:
        return Image.fromarray(pixels[0] if kind == "L" else pixels.transpose(1, 2, 0))
    tensor = torch.from_numpy(pixels)
    if kind == "Image":
        return tv_tensors.Image(tensor)
    return tensor if kind == "uint8" else (tensor / 255).to(getattr(torch, kind))


def steps_of(transform: Any) -> list[Step]:
    """The steps of a chain: torchvision's as its adapter has it, ours random, others not."""
    steps = []
    for number, call in enumerate(flatten_chain(transform)):
        is_own = hasattr(call, "batch_form")
        known = ("random", "ours") if is_own else ("deterministic", "the test says so")
        steps.append(Step(number, call, *(torchvision.nature_of(call) or known)))
    return steps


def split_of(transform: Any, leaves: Sequence[Any]) -> tuple[Split, list[list[Any]]]:
    """A chain cut, and the value of every leaf before each step and after the last."""
    steps = steps_of(transform)
    traces = []
    for leaf in leaves:
        trace = [leaf]
        for step in steps:
            trace.append(step.call(copy.deepcopy(trace[-1])))
        traces.append(trace)
    return split_chain(steps, traces), traces


@dataclass(frozen=True)
class Ways:
    """A batch made three ways.

    Attributes:
        fused: by the engine that is chosen for the chain.
        reference: operation by operation.
        own: sample by sample, by the user's own steps with the draws forced on them.
        is_fused: whether a kernel made `fused`.
        params: the parameters of each operation.
    """

    fused: Tensor
    reference: Tensor
    own: Tensor
    is_fused: bool
    params: list[Params]

    def check(self) -> None:
        """Fails unless the three agree in every bit."""
        assert same_bits(self.reference, self.own), "reference differs from the user's own steps"
        assert same_bits(self.fused, self.reference), "kernel differs from the reference"


def three_ways(
    transform: Any,
    leaves: Sequence[Any],
    draws: Draws,
    *,
    out_dtype: torch.dtype | None = None,
    is_channels_last: bool = False,
) -> Ways:
    """The batch of the samples `draws.ids`, each a leaf (counted round), made three ways."""
    split, traces = split_of(transform, leaves)
    assert split.mode == "batch", split.decisions
    stored = [trace[split.cut] for trace in traces]
    source = torch.stack([encode(leaf, describe(leaf)) for leaf in stored])
    rows = draws.ids % len(source)
    shape: Shape = (source.shape[1], source.shape[2], source.shape[3])

    engine = choose_engine(
        split.ops,
        shape,
        source.dtype,
        out_dtype=out_dtype,
        device=CPU,
        is_channels_last=is_channels_last,
        threads=1,
    )
    is_fused = isinstance(engine, NumbaEngine)
    assert is_fused == isinstance(lower(split.ops, shape, source.dtype, out_dtype), Program)
    with engine.session() as run:
        fused = run(source, rows, draws)
    reference = Reference(split.ops, out_dtype, is_channels_last).run(source, rows, draws)

    drawn: list[list[Params]] = []
    images = source[rows]
    for stage in split.stages:
        drawn.append([])
        for op in stage.ops:
            shape = (images.shape[1], images.shape[2], images.shape[3])
            drawn[-1].append(draw_gated(op, draws, shape))
            images = apply_gated(op, images, drawn[-1][-1])
    finished = []
    for place, row in enumerate(rows.tolist()):
        value = copy.deepcopy(stored[row])
        for stage, params in zip(split.stages, drawn, strict=True):
            own = stage.replay([{name: p[place] for name, p in one.items()} for one in params])
            value = own(copy.deepcopy(value))
        finished.append(encode(value, describe(value)))
    own_batch = default_collate(finished)
    own_batch = own_batch if out_dtype is None else own_batch.to(out_dtype)
    return Ways(fused, reference, own_batch, is_fused, [p for one in drawn for p in one])


def draws_for(ids: Sequence[int], *, seed: int = 1, epoch: int = 0, again: int = 0) -> Draws:
    """Random words of a batch."""
    rows = torch.tensor(ids, dtype=torch.int64)
    return Draws(Key(seed, epoch, seed + 1), rows, torch.full_like(rows, again))


@st.composite
def batches(draw: st.DrawFn) -> Draws:
    """Random words of a small batch of any samples, epoch, seed and occurrence."""
    ids = draw(st.lists(st.integers(0, 2**48 - 1), min_size=1, max_size=6))
    seed, epoch = draw(st.integers(0, 2**64 - 1)), draw(st.integers(0, 2**32 - 2))
    return draws_for(ids, seed=seed, epoch=epoch, again=draw(st.integers(0, 2**16 - 1)))


@dataclass
class Images:
    """What the steps of a chain that is being drawn have made of the images so far."""

    kind: str
    shape: Shape

    @property
    def is_pil(self) -> bool:
        """Whether they are PIL images."""
        return self.kind in CHANNELS

    @property
    def is_bytes(self) -> bool:
        """Whether their values are whole bytes."""
        return self.is_pil or self.kind in ("uint8", "Image")


Draw = Callable[[st.SearchStrategy[Any]], Any]


def _fill(draw: Draw, version: Any, images: Images, mode: str) -> Any:
    value = st.integers(0, 255) if images.is_bytes else st.floats(-2, 2, width=16)
    each = st.tuples(*[value] * images.shape[0])
    may_differ = images.is_pil or (version is v2 and mode == "constant")
    return draw(st.one_of(value, each) if may_differ and images.shape[0] > 1 else value)


def _padding(draw: Draw, images: Images, mode: str) -> Any:
    most = min(images.shape[1:]) - 1
    least = -1 if mode == "constant" and images.is_pil else 0
    side = st.integers(least, 5 if mode == "constant" else max(0, min(4, most)))
    return draw(st.one_of(side, st.tuples(side, side), st.tuples(side, side, side, side)))


def _padded(images: Images, padding: Any) -> tuple[int, int]:
    sides = [padding] if isinstance(padding, int) else list(padding)
    left, top, right, bottom = {1: sides * 4, 2: sides * 2, 4: sides}[len(sides)]
    return images.shape[1] + top + bottom, images.shape[2] + left + right


def random_crop(draw: Draw, version: Any, images: Images) -> Any:
    """A RandomCrop with any padding, fill and size that its images have room for."""
    mode = draw(st.sampled_from(MODES))
    padding = draw(st.none()) if draw(st.booleans()) else _padding(draw, images, mode)
    height, width = images.shape[1:] if padding is None else _padded(images, padding)
    hypothesis.assume(height > 0 and width > 0)
    beyond = 0
    is_needed = draw(st.booleans())
    if is_needed:
        # v2 pads what was asked for and what is missing in one step, torch less than there is.
        sides = [0] if padding is None else [padding] if isinstance(padding, int) else padding
        most = min(images.shape[1:]) - 1 - max(sides)
        beyond = 4 if mode == "constant" else max(0, min(3, most))
    size = (draw(st.integers(1, height + beyond)), draw(st.integers(1, width + beyond)))
    fill = _fill(draw, version, images, mode)
    images.shape = (images.shape[0], *size)
    return version.RandomCrop(size, padding, is_needed, fill, mode)


def pad(draw: Draw, version: Any, images: Images) -> Any:
    """A Pad of any mode and fill."""
    mode = draw(st.sampled_from(MODES))
    padding, fill = _padding(draw, images, mode), _fill(draw, version, images, mode)
    height, width = _padded(images, padding)
    hypothesis.assume(0 < height <= 24 and 0 < width <= 24)
    images.shape = (images.shape[0], height, width)
    return version.Pad(padding, fill, mode)


def center_crop(draw: Draw, version: Any, images: Images) -> Any:
    """A CenterCrop, smaller or larger than its images."""
    size = (draw(st.integers(1, 16)), draw(st.integers(1, 16)))
    images.shape = (images.shape[0], *size)
    return version.CenterCrop(size)


def flip(draw: Draw, version: Any, images: Images) -> Any:
    """A flip along either axis."""
    kind = draw(st.sampled_from((version.RandomHorizontalFlip, version.RandomVerticalFlip)))
    return kind(draw(st.sampled_from((0.0, 0.3, 0.5, 1.0))))


def random_erasing(draw: Draw, version: Any, images: Images) -> Any:
    """A RandomErasing with one value, or one per channel."""
    if images.is_pil:
        return flip(draw, version, images)
    value = st.integers(0, 255) if images.is_bytes else st.floats(-2, 2, width=32)
    values = draw(st.one_of(value, st.tuples(*[value] * images.shape[0])))
    scale = draw(st.sampled_from(((0.02, 0.33), (0.3, 0.9), (0.9, 1.0))))
    ratio = draw(st.sampled_from(((0.3, 3.3), (1.0, 1.0), (0.1, 0.2))))
    return version.RandomErasing(draw(st.sampled_from((0.5, 1.0))), scale, ratio, values)


def same_size_crop(draw: Draw, version: Any, images: Images) -> Any:
    """A RandomCrop that leaves the size as it is, so that RandomApply may guard it."""
    mode = draw(st.sampled_from(MODES))
    most = max(0, min(4, min(images.shape[1:]) - 1))
    fill = _fill(draw, version, images, mode)
    return version.RandomCrop(images.shape[1:], draw(st.integers(0, most)), False, fill, mode)


def random_apply(draw: Draw, version: Any, images: Images) -> Any:
    """A RandomApply over one to three steps that leave the size as it is."""
    kinds = st.lists(st.sampled_from((flip, same_size_crop, random_erasing)), min_size=1)
    inner = [kind(draw, version, images) for kind in draw(kinds)[:3]]
    if draw(st.booleans()):
        inner = [_nested(draw, version, inner)]
    return version.RandomApply(inner, draw(st.sampled_from((0.0, 0.4, 1.0))))


def own_step(draw: Draw, version: Any, images: Images) -> Any:
    """One of hotset's own augmentations."""
    if images.is_pil:
        return flip(draw, version, images)
    value = draw(st.integers(0, 255) if images.is_bytes else st.floats(-2, 2))
    return draw(st.sampled_from((AlternatingFlip(), Cutout(draw(st.integers(1, 20)), value))))


def to_values(draw: Draw, version: Any, images: Images) -> list[Any]:
    """Steps that make floats of bytes, and more on every value."""
    floats = st.sampled_from(sorted(FLOATS))
    kind = draw(floats)
    if images.is_pil and version is v1 and draw(st.booleans()):
        steps = [v1.PILToTensor(), v1.ConvertImageDtype(FLOATS[kind])]
    elif images.is_pil and version is v1:
        steps, kind = [v1.ToTensor()], "float32"
    else:
        head = v2.ToImage() if version is v2 and images.is_pil else None
        cast = v2.ToDtype(FLOATS[kind], scale=draw(st.booleans()))
        steps = [cast] if head is None else [head, cast]
    images.kind = kind
    if draw(st.booleans()):
        channels = images.shape[0]
        mean = draw(st.tuples(*[st.floats(0, 1)] * channels))
        std = draw(st.tuples(*[st.floats(0.125, 1)] * channels))
        steps.append(version.Normalize(mean, std))
    if draw(st.booleans()):
        kind = draw(floats)
        images.kind, cast = kind, v1.ConvertImageDtype(FLOATS[kind])
        steps.append(cast)
    return steps


def _nested(draw: Draw, version: Any, steps: list[Any]) -> Any:
    is_modules = all(isinstance(step, nn.Module) for step in steps)
    if is_modules and draw(st.booleans()):
        return nn.Sequential(*steps)
    return version.Compose(steps)


KINDS = (random_crop, pad, center_crop, flip, random_erasing, random_apply, own_step)


@st.composite
def chains(draw: st.DrawFn, version: Any, kind: str) -> tuple[Any, list[Any]]:
    """A random chain, nested or not, and four images that it takes."""
    channels = CHANNELS.get(kind) or draw(st.sampled_from((1, 3, 4)))
    shape = (channels, draw(st.integers(1, 12)), draw(st.integers(1, 12)))
    images = Images(kind, shape)
    before = draw(st.lists(st.sampled_from(KINDS), max_size=3))
    after = draw(st.lists(st.sampled_from(KINDS), max_size=3))
    steps = [make(draw, version, images) for make in before]
    if images.is_bytes:
        steps.extend(to_values(draw, version, images))
        steps.extend(make(draw, version, images) for make in after)
    if len(steps) > 1 and draw(st.booleans()):
        at = draw(st.integers(1, len(steps) - 1))
        steps = [_nested(draw, version, steps[:at]), *steps[at:]]
    leaves = [leaf_of(kind, shape, seed) for seed in range(4)]
    return version.Compose(steps) if steps else None, leaves
