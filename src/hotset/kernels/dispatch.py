"""Chooses what executes a chain: Numba on the CPU, Triton on CUDA, or the reference."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from hotset.kernels.arena import Arena
from hotset.kernels.program import NotFusable, Program, lower
from hotset.kernels.threads import Threads
from hotset.ops.op import Op, Shape, apply_gated, draw_gated
from hotset.rng import MASK_32, Draws

Run = Callable[[Tensor, Tensor, Draws], Tensor]
"""(images (N, C, H, W), rows (B,) int64, draws) -> batch (B, C', H', W')."""

UNSIGNED = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
SIGNED = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class Engine(Protocol):
    """Executes a chain on batches."""

    @property
    def description(self) -> str:
        """What it is, for the plan."""
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
        is_channels_last: memory format of the batch.
        threads: CPU threads, None for torch's number.
    """
    program = lower(ops, shape, dtype, out_dtype)
    if isinstance(program, NotFusable):
        return Reference(ops, out_dtype, is_channels_last, program.reason)
    needed = "numba" if device.type == "cpu" else "triton"
    if find_spec(needed) is None:
        return Reference(ops, out_dtype, is_channels_last, f"{needed} is not installed")
    if device.type == "cpu":
        return NumbaEngine(program, is_channels_last, threads)
    return TritonEngine(program, device, is_channels_last)


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

    @contextmanager
    def session(self) -> Iterator[Run]:
        yield self.run

    def run(self, source: Tensor, rows: Tensor, draws: Draws) -> Tensor:
        """(B, C', H', W') batch."""
        images = source.index_select(0, rows)
        for op in self._ops:
            shape = (images.shape[1], images.shape[2], images.shape[3])
            images = apply_gated(op, images, draw_gated(op, draws, shape))
        return images.to(self._out_dtype or images.dtype).contiguous(memory_format=self._format)


class NumbaEngine:
    """Executes a program with Numba, its batch shared among threads."""

    description = "Numba, fused in one pass"

    def __init__(
        self, program: Program, is_channels_last: bool = False, threads: int | None = None
    ) -> None:
        self._program = program
        self._is_channels_last = is_channels_last
        self._threads = threads
        self._out_bits = UNSIGNED[program.out_dtype.itemsize]
        self._chain = (
            program.geometry,
            program.maps,
            program.erasures,
            program.scales,
            program.aspects,
            _bits(program.values),
            program.base,
        )
        self._arena: Arena | None = None
        self._seen: tuple[Tensor, np.ndarray] | None = None

    @contextmanager
    def session(self) -> Iterator[Run]:
        with Threads(self._threads) as threads:
            yield lambda source, rows, draws: self._run(source, rows, draws, threads)

    def _run(self, source: Tensor, rows: Tensor, draws: Draws, threads: Threads) -> Tensor:
        from hotset.kernels import numba_cpu

        program = self._program
        count = len(rows)
        channels, height, width = program.out_shape
        shape = (height, width, channels) if self._is_channels_last else program.out_shape
        if self._arena is None or self._arena.capacity < count:
            self._arena = Arena((count, *shape), program.out_dtype)
        out = self._arena.take(count)
        images = self._images(source)
        target = _bits(out).reshape(count, math.prod(shape))
        row, ids, occurrence = rows.numpy(), draws.ids.numpy(), draws.occurrence.numpy()
        key = draws.key
        keys = np.array([key.seed & (2**64 - 1), key.run_seed & (2**64 - 1)], dtype=np.uint64)
        epoch, shapes = key.epoch & MASK_32, (program.in_shape, program.out_shape)

        def work(start: int, stop: int) -> None:
            part = slice(start, stop)
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
                target[part],
            )

        threads.run(work, count)
        return out.permute(0, 3, 1, 2) if self._is_channels_last else out

    def _images(self, source: Tensor) -> np.ndarray:
        """(N, C*H*W) the images' memory; the same source comes with every batch."""
        if self._seen is None or self._seen[0] is not source:
            self._seen = source, _bits(source).reshape(len(source), math.prod(source.shape[1:]))
        return self._seen[1]


class TritonEngine:
    """Executes a program with Triton, in one launch."""

    description = "Triton, fused in one launch"

    def __init__(self, program: Program, device: torch.device, is_channels_last: bool) -> None:
        from hotset.kernels.triton_cuda import TritonKernel

        self._kernel = TritonKernel(program, device, channels_last=is_channels_last)

    @contextmanager
    def session(self) -> Iterator[Run]:
        yield self._kernel.run


def _bits(tensor: Tensor) -> np.ndarray:
    """A CPU tensor's memory as unsigned integers of its elements' size; nothing is copied."""
    size = tensor.element_size()
    return tensor.contiguous().view(SIGNED[size]).numpy().view(UNSIGNED[size])
