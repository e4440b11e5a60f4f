"""Images of differing sizes, and chains on them, that the resampling kernels are held to."""

from __future__ import annotations

from collections.abc import Sequence

import PIL
import torch
from hypothesis import strategies as st

from hotset.kernels.ragged import RaggedReference
from hotset.ops.erase import Cutout, RandomErase
from hotset.ops.geometry import Flip, Padding, Window
from hotset.ops.op import Op
from hotset.ops.resample import ResizedCrop, pillow_order
from hotset.rng import Draws, Key
from hotset.sample.ragged import Ragged
from tests.kernel_chains import table

PILLOW_ORDER = pillow_order(PIL.__version__)
"""Which axis the Pillow that is installed resizes first."""


def ragged_of(sizes: Sequence[tuple[int, int]], channels: int = 3, seed: int = 0) -> Ragged:
    """Images of the given heights and widths, of random bytes, with a gap between each two."""
    generator = torch.Generator().manual_seed(seed)
    counts = [channels * height * width for height, width in sizes]
    offsets, end = [], 0
    for count in counts:
        offsets.append(end)
        end += count + 5
    # The last image ends where the memory does: nothing may be read beyond it.
    data = torch.randint(0, 256, (end - 5,), dtype=torch.uint8, generator=generator)
    heights, widths = torch.tensor(sizes, dtype=torch.int64).reshape(-1, 2).unbind(1)
    return Ragged(data, torch.tensor(offsets), heights.clone(), widths.clone(), channels)


def rest_of_chain(size: tuple[int, int], channels: int, dtype: torch.dtype) -> list[Op]:
    """Steps behind a crop: a flip, a window over the border, a table, and both erasures."""
    return [
        Flip(1),
        Window(2, size, (Padding(1, 2, 3, 1),), fill=(7,)),
        table(3, dtype, channels),
        RandomErase(4, 0.7, value=(2.0,)),
        Cutout(5, 2, (-1.0,)),
    ]


def draws_for(count: int, seed: int = 2**63 + 12345, epoch: int = 0, again: int = 0) -> Draws:
    """Random words of `count` samples with large ids, each coming for the time `again`."""
    ids = torch.arange(count) * 7919 + 2**33
    return Draws(Key(seed, epoch, seed // 3), ids, torch.full_like(ids, again))


def expected(ops: Sequence[Op], source: Ragged, rows: torch.Tensor, draws: Draws) -> torch.Tensor:
    """The batch, made operation by operation."""
    crop = ops[0]
    assert isinstance(crop, ResizedCrop)
    return RaggedReference(crop, ops[1:]).run(source, rows, draws)


edges = st.one_of(st.integers(1, 6), st.integers(1, 40), st.integers(60, 150))
"""Heights and widths of images, single pixels and extreme ratios among them."""


@st.composite
def crops(draw: st.DrawFn, most: int) -> ResizedCrop:
    """A crop that puts out at most `most` pixels along an edge."""
    sizes = st.one_of(st.integers(1, 8), st.integers(1, most))
    return ResizedCrop(
        step=draw(st.integers(0, 2**16 - 1)),
        size=(draw(sizes), draw(sizes)),
        scale=draw(st.sampled_from(((0.08, 1.0), (0.9, 1.0), (0.001, 0.01), (1.2, 2.0)))),
        ratio=draw(st.sampled_from(((0.75, 4 / 3), (0.1, 10.0), (3.0, 4.0)))),
        filter=draw(st.sampled_from(("bilinear", "bilinear", "bicubic", "box"))),
        order=draw(st.sampled_from(("cheaper first", "width first"))),
    )
