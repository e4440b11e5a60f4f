"""Chooses what executes a chain: Numba on the CPU, Triton on CUDA, or the reference."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from hotset.errors import ConfigError
from hotset.kernels.batches import Batches, bits, chain_of, keys_of
from hotset.kernels.cropping import lower_crop
from hotset.kernels.program import NotFusable, Program, lower
from hotset.kernels.ragged import RaggedNumbaEngine, RaggedReference, RaggedTritonEngine
from hotset.kernels.threads import Threads
from hotset.ops.op import Op, Shape, apply_gated, draw_gated
from hotset.ops.pointwise import Elementwise
from hotset.ops.resample import ResizedCrop, makes_one_size
from hotset.rng import Draws


@dataclass(frozen=True)
class Run:
    """Makes batches of images.

    Attributes:
        batches: (images (N, C, H, W), rows (B,) int64, draws, sizes that add up to B) -> one batch
            (size, C', H', W') for each size.
    """

    batches: Callable[[Tensor, Tensor, Draws, Sequence[int]], Sequence[Tensor]]

    def __call__(self, images: Tensor, rows: Tensor, draws: Draws) -> Tensor:
        """One batch, (B, C', H', W')."""
        return self.batches(images, rows, draws, (len(rows),))[0]


LAUNCH_BATCHES = 64
"""Most batches in one launch; their bytes are bounded elsewhere."""


class Engine(Protocol):
    """Executes a chain on batches."""

    @property
    def description(self) -> str:
        """What it is, for the plan."""
        ...

    @property
    def side_by_side(self) -> int:
        """How many batches it makes in one go at best."""
        ...

    def session(self) -> Any:
        """A context manager that gives a `Run` and releases what it used at the end."""
        ...


def choose_engine(
    ops: Sequence[Op],
    shape: Shape,
    dtype: torch.dtype,
    *,
    out_dtype: torch.dtype | None,
    device: torch.device,
    wide: torch.dtype | None = None,
    is_channels_last: bool = False,
    threads: int | None = None,
) -> Engine:
    """The fastest engine that can execute a chain.

    Args:
        ops: the operations, in order.
        shape: (C, H, W) of a stored image.
        dtype: stored dtype.
        out_dtype: dtype of the batch, None to leave it as the chain makes it.
        device: where the images lie.
        wide: dtype that the operations are for, where images are stored in a narrower one; None for
            the stored dtype.
        is_channels_last: memory format of the batch.
        threads: CPU threads, None for torch's number.
    """
    if wide is not None and wide is not dtype:
        if _moves_alone(ops, shape, dtype, wide):
            inner = choose_engine(
                ops,
                shape,
                dtype,
                out_dtype=None,
                device=device,
                is_channels_last=is_channels_last,
                threads=threads,
            )
            out_dtype = out_dtype or wide
            return inner if out_dtype is dtype else Widening(inner, out_dtype)
        ops = (Elementwise(WIDENING_STEP, partial(torch.Tensor.to, dtype=wide)), *ops)
    program = lower(ops, shape, dtype, out_dtype)
    if isinstance(program, NotFusable):
        return Reference(ops, out_dtype, is_channels_last, program.reason)
    needed = "numba" if device.type == "cpu" else "triton"
    if find_spec(needed) is None:
        return Reference(ops, out_dtype, is_channels_last, f"{needed} is not installed")
    if device.type == "cpu":
        return NumbaEngine(program, is_channels_last, threads)
    return TritonEngine(program, device, is_channels_last)


WIDENING_STEP = -1
"""Number of the step that widens stored values; it draws nothing."""


def _moves_alone(ops: Sequence[Op], shape: Shape, dtype: torch.dtype, wide: torch.dtype) -> bool:
    """Whether operations only move values, and fill in none that the narrower dtype lacks."""
    narrow, whole = lower(ops, shape, dtype), lower(ops, shape, wide)
    if isinstance(narrow, NotFusable) or isinstance(whole, NotFusable):
        return False
    return torch.equal(narrow.values.to(wide), whole.values)


def choose_ragged_engine(
    ops: Sequence[Op],
    channels: int,
    *,
    out_dtype: torch.dtype | None,
    device: torch.device,
    is_channels_last: bool = False,
    threads: int | None = None,
) -> RaggedNumbaEngine | RaggedTritonEngine | RaggedReference:
    """The fastest engine for a chain on uint8 images of differing sizes.

    Args:
        ops: the operations, in order; the first is a `ResizedCrop`, which gives them one size.
        channels: of every image.
        out_dtype: dtype of the batch, None to leave it as the chain makes it.
        device: where the images lie.
        is_channels_last: memory format of the batch.
        threads: CPU threads, None for torch's number.

    Raises:
        ConfigError: the chain does not begin with a `ResizedCrop`, or only some samples pass it.
    """
    crop, rest = (ops[0] if ops else None), ops[1:]
    if not makes_one_size(ops):
        raise ConfigError(
            "images of differing sizes must first be cropped and resized to one size, all of them, "
            f"by a `ResizedCrop`, got {type(crop).__name__ if ops else 'no step'}; or store them "
            "at one size"
        )
    assert isinstance(crop, ResizedCrop)

    def reference(reason: str) -> RaggedReference:
        return RaggedReference(crop, rest, out_dtype, is_channels_last, reason)

    arrays = lower_crop(crop)
    if isinstance(arrays, str):
        return reference(arrays)
    program = lower(rest, (channels, *crop.size), torch.uint8, out_dtype)
    if isinstance(program, NotFusable):
        return reference(program.reason)
    needed = "numba" if device.type == "cpu" else "triton"
    if find_spec(needed) is None:
        return reference(f"{needed} is not installed")
    if device.type == "cpu":
        return RaggedNumbaEngine(arrays, program, is_channels_last, threads)
    return RaggedTritonEngine(arrays, program, device, is_channels_last)


class Reference:
    """Executes a chain operation by operation in PyTorch, on any device."""

    def __init__(
        self,
        ops: Sequence[Op],
        out_dtype: torch.dtype | None = None,
        is_channels_last: bool = False,
        reason: str = "asked for",
    ) -> None:
        self._ops = tuple(ops)
        self._out_dtype = out_dtype
        self._format = torch.channels_last if is_channels_last else torch.contiguous_format
        self.description = f"PyTorch, operation by operation ({reason})"

    side_by_side = 1

    @contextmanager
    def session(self) -> Iterator[Run]:
        yield Run(
            lambda images, rows, draws, sizes: torch.split(
                self.run(images, rows, draws), list(sizes)
            )
        )

    def run(self, source: Tensor, rows: Tensor, draws: Draws) -> Tensor:
        """(B, C', H', W') batch."""
        images = source.index_select(0, rows)
        for op in self._ops:
            shape = (images.shape[1], images.shape[2], images.shape[3])
            images = apply_gated(op, images, draw_gated(op, draws, shape))
        return images.to(self._out_dtype or images.dtype).contiguous(memory_format=self._format)


class Widening:
    """Batches of another engine in the dtype of the values before they were narrowed, or of choice.

    Exact, since what it made are stored values, each of which the wider dtype has.

    Args:
        inner: makes them in the stored dtype.
        dtype: of the batches.
    """

    def __init__(self, inner: Engine, dtype: torch.dtype) -> None:
        self._inner, self._dtype = inner, dtype
        name = str(dtype).removeprefix("torch.")
        self.description = f"{inner.description}, then widened to {name}"
        self.side_by_side = inner.side_by_side

    @contextmanager
    def session(self) -> Iterator[Run]:
        with self._inner.session() as run:
            yield Run(
                lambda images, rows, draws, sizes: [
                    batch.to(self._dtype) for batch in run.batches(images, rows, draws, sizes)
                ]
            )


class NumbaEngine:
    """Executes a program with Numba, on a few threads.

    One batch is shared among the threads; of several, each thread takes whole ones, which saves
    handing over and reading the arguments anew for every share.
    """

    description = "Numba, fused in one pass"

    def __init__(
        self, program: Program, is_channels_last: bool = False, threads: int | None = None
    ) -> None:
        self._program = program
        self._is_channels_last = is_channels_last
        self._threads = threads
        self.side_by_side = Threads(threads).count
        self._chain = chain_of(program)
        self._out = Batches(program, is_channels_last)
        self._seen: tuple[Tensor, np.ndarray] | None = None

    @contextmanager
    def session(self) -> Iterator[Run]:
        with Threads(self._threads) as threads:
            yield Run(partial(self._batches, threads))

    def _batches(
        self, threads: Threads, source: Tensor, rows: Tensor, draws: Draws, sizes: Sequence[int]
    ) -> list[Tensor]:
        from hotset.kernels import numba_cpu

        images, shapes = self._images(source), (self._program.in_shape, self._program.out_shape)
        row, ids, occurrence = rows.numpy(), draws.ids.numpy(), draws.occurrence.numpy()
        keys, epoch = keys_of(draws)

        def fill(part: slice, out: np.ndarray) -> None:
            numba_cpu.run(
                images,
                row[part],
                ids[part],
                occurrence[part],
                keys,
                epoch,
                self._chain,
                shapes,
                self._is_channels_last,
                out,
            )

        return self._out.fill(threads, sizes, fill)

    def _images(self, source: Tensor) -> np.ndarray:
        """(N, C*H*W) the images' memory; the same source comes with every batch."""
        if self._seen is None or self._seen[0] is not source:
            self._seen = source, bits(source).reshape(len(source), math.prod(source.shape[1:]))
        return self._seen[1]


class TritonEngine:
    """Executes a program with Triton, in one launch."""

    description = "Triton, fused in one launch"

    def __init__(self, program: Program, device: torch.device, is_channels_last: bool) -> None:
        from hotset.kernels.triton_cuda import TritonKernel

        self._kernel = TritonKernel(program, device, channels_last=is_channels_last)
        self.side_by_side = LAUNCH_BATCHES

    @contextmanager
    def session(self) -> Iterator[Run]:
        run = self._kernel.run
        yield Run(
            lambda images, rows, draws, sizes: torch.split(run(images, rows, draws), list(sizes))
        )
