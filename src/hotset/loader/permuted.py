"""torch's own permuting samplers, read as arrays.

They give one Python integer at a time, which takes 25 microseconds for a batch of 256; a slice
of the same permutation takes one.

Source: torch.utils.data.RandomSampler and BatchSampler; the tests compare draws and order.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import RandomSampler, SequentialSampler


def is_permutation(sampler: Any) -> bool:
    """Whether it is torch's own sampler that gives every index once, in order or shuffled."""
    if type(sampler) is RandomSampler:
        return not sampler.replacement and sampler.num_samples == len(sampler.data_source)
    return type(sampler) is SequentialSampler


def permuted(sampler: Any, batch_size: int, drop_last: bool) -> Iterator[np.ndarray]:
    """The batches of a `BatchSampler` over such a sampler, each (B,) int64; draws when it draws."""
    length = len(sampler.data_source)
    whole = length - length % batch_size
    generator = _generator(sampler)
    order = _order(length, generator)
    for start in range(0, whole, batch_size):
        yield order[start : start + batch_size]
    if generator is not None and generator is sampler.generator:
        torch.randperm(length, generator=generator)  # drawn in vain when it is found exhausted
    if whole < length and not drop_last:
        yield order[whole:]


def _generator(sampler: Any) -> torch.Generator | None:
    if type(sampler) is SequentialSampler:
        return None
    if sampler.generator is not None:
        return sampler.generator  # type: ignore[no-any-return]
    seed = int(torch.empty((), dtype=torch.int64).random_().item())
    return torch.Generator().manual_seed(seed)


def _order(length: int, generator: torch.Generator | None) -> np.ndarray:
    if generator is None:
        return np.arange(length, dtype=np.int64)
    return torch.randperm(length, generator=generator).numpy()
