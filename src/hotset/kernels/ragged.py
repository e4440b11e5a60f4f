"""Engines for chains that begin with a random crop with a resize, on images of differing sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from hotset.kernels.batches import Batches, chain_of, keys_of
from hotset.kernels.cropping import Crop
from hotset.kernels.program import Program
from hotset.kernels.threads import Threads
from hotset.ops.op import Op, apply_gated, draw_gated
from hotset.ops.resample import ResizedCrop
from hotset.rng import Draws
from hotset.sample.ragged import Ragged

LAUNCH_BATCHES = 4
"""Most batches in one launch: resized bytes lie between two kernels."""


@dataclass(frozen=True)
class RaggedRun:
    """Makes batches of images of differing sizes.

    Attributes:
        batches: (images, rows (B,) int64, draws, sizes that add up to B) -> one batch
            (size, C, H', W') for each size.
    """

    batches: Callable[[Ragged, Tensor, Draws, Sequence[int]], Sequence[Tensor]]

    def __call__(self, images: Ragged, rows: Tensor, draws: Draws) -> Tensor:
        """One batch, (B, C, H', W')."""
        return self.batches(images, rows, draws, (len(rows),))[0]


class RaggedReference:
    """Executes a chain operation by operation in PyTorch, on any device.

    Args:
        crop: the first operation.
        rest: the others.
        out_dtype: dtype of the batch, None to leave it as the chain makes it.
        is_channels_last: memory format of the batch.
        reason: why nothing faster does it.
    """

    side_by_side = 1

    def __init__(
        self,
        crop: ResizedCrop,
        rest: Sequence[Op],
        out_dtype: torch.dtype | None = None,
        is_channels_last: bool = False,
        reason: str = "asked for",
    ) -> None:
        self._crop, self._rest = crop, tuple(rest)
        self._out_dtype = out_dtype
        self._format = torch.channels_last if is_channels_last else torch.contiguous_format
        self.description = f"PyTorch, operation by operation ({reason})"

    @contextmanager
    def session(self) -> Iterator[RaggedRun]:
        yield RaggedRun(
            lambda images, rows, draws, sizes: torch.split(
                self.run(images, rows, draws), list(sizes)
            )
        )

    def run(self, source: Ragged, rows: Tensor, draws: Draws) -> Tensor:
        """(B, C', H', W') batch."""
        params = self._crop.draw_for(draws, source.heights[rows], source.widths[rows])
        chosen = [source.image(row) for row in rows.tolist()]
        if chosen:
            images = self._crop.apply_ragged(chosen, params)
        else:
            images = source.data.new_empty((0, source.channels, *self._crop.size))
        for op in self._rest:
            shape = (images.shape[1], images.shape[2], images.shape[3])
            images = apply_gated(op, images, draw_gated(op, draws, shape))
        return images.to(self._out_dtype or images.dtype).contiguous(memory_format=self._format)


class RaggedNumbaEngine:
    """Crops, resizes and executes the rest of a chain with Numba, on a few threads.

    Args:
        crop: the first operation, lowered.
        program: the rest.
        is_channels_last: memory format of the batch.
        threads: CPU threads, None for torch's number.
    """

    description = "Numba, fused in one pass"

    def __init__(
        self,
        crop: Crop,
        program: Program,
        is_channels_last: bool = False,
        threads: int | None = None,
    ) -> None:
        self._crop = (crop.numbers, crop.reals, crop.aspects)
        self._chain = chain_of(program)
        self._shapes = (program.in_shape, program.out_shape)
        self._is_channels_last = is_channels_last
        self._threads = threads
        self.side_by_side = Threads(threads).count
        self._out = Batches(program, is_channels_last)
        self._seen: tuple[Ragged, tuple[np.ndarray, ...]] | None = None

    @contextmanager
    def session(self) -> Iterator[RaggedRun]:
        with Threads(self._threads) as threads:
            yield RaggedRun(partial(self._batches, threads))

    def _batches(
        self, threads: Threads, source: Ragged, rows: Tensor, draws: Draws, sizes: Sequence[int]
    ) -> list[Tensor]:
        from hotset.kernels import resample_cpu

        data, offsets, heights, widths = self._images(source)
        row, ids, occurrence = rows.numpy(), draws.ids.numpy(), draws.occurrence.numpy()
        keys, epoch = keys_of(draws)

        def fill(part: slice, out: np.ndarray) -> None:
            resample_cpu.run(
                data,
                offsets,
                heights,
                widths,
                row[part],
                ids[part],
                occurrence[part],
                keys,
                epoch,
                self._crop,
                self._chain,
                self._shapes,
                self._is_channels_last,
                out,
            )

        return self._out.fill(threads, sizes, fill)

    def _images(self, source: Ragged) -> tuple[np.ndarray, ...]:
        """The images' memory, offsets and sizes; the same source comes with every batch."""
        if self._seen is None or self._seen[0] is not source:
            parts = (source.data, source.offsets, source.heights, source.widths)
            self._seen = source, tuple(part.contiguous().numpy() for part in parts)
        return self._seen[1]


class RaggedTritonEngine:
    """Crops and resizes in one launch of Triton, and executes the rest of a chain in another.

    Args:
        crop: the first operation, lowered.
        program: the rest.
        device: where the images lie and the batches are made.
        is_channels_last: memory format of the batch.
    """

    description = "Triton, fused in two launches"
    side_by_side = LAUNCH_BATCHES

    def __init__(
        self, crop: Crop, program: Program, device: torch.device, is_channels_last: bool = False
    ) -> None:
        from hotset.kernels.resample_cuda import ResampleKernel
        from hotset.kernels.triton_cuda import TritonKernel

        self._resample = ResampleKernel(crop, program.in_shape, device)
        self._rest = TritonKernel(program, device, channels_last=is_channels_last)

    @contextmanager
    def session(self) -> Iterator[RaggedRun]:
        yield RaggedRun(
            lambda images, rows, draws, sizes: torch.split(
                self.run(images, rows, draws), list(sizes)
            )
        )

    def run(self, source: Ragged, rows: Tensor, draws: Draws) -> Tensor:
        """(B, C', H', W') batch."""
        resized = self._resample.run(source, rows, draws)
        return self._rest.run(resized, torch.arange(len(rows), device=rows.device), draws)
