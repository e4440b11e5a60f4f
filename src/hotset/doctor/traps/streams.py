"""What workers begin with that go through a stream."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.data import DataLoader, get_worker_info

from hotset.chain.probe import same_sample
from hotset.doctor.facts import Fetch

READ = 4
"""Samples of each worker that are looked at."""
WORKERS = 2
"""As many tell as much as all of them would."""


def are_whole(loader: DataLoader[Any], fetch: Fetch) -> int:
    """How many samples of a stream two workers both began with; 0 where they have each their own.

    Samples that are all alike tell nothing.

    Args:
        loader: over an `IterableDataset`, with two workers at least.
        fetch: how it comes by its batches.
    """
    firsts: list[list[Any]] = [[] for _ in range(WORKERS)]
    made: DataLoader[Any] = DataLoader(
        fetch.dataset,
        batch_size=None,
        num_workers=WORKERS,
        collate_fn=_whose,
        timeout=loader.timeout,
        worker_init_fn=loader.worker_init_fn,
        multiprocessing_context=loader.multiprocessing_context,
        prefetch_factor=1,
        generator=torch.Generator(),  # the user's own stays as it is
    )
    items = iter(made)
    try:
        for number, item in items:
            firsts[number].append(item)
            if min(map(len, firsts)) >= READ or max(map(len, firsts)) > READ:
                break
    finally:
        items._shutdown_workers()  # type: ignore[attr-defined]  # it has workers
    one, other = (each[:READ] for each in firsts)
    is_same = len(one) == len(other) and all(map(same_sample, one, other))
    is_telling = any(not same_sample(one[0], each) for each in one[1:])
    return len(one) if is_same and is_telling else 0


def _whose(item: Any) -> tuple[int, Any]:
    """An item, and the worker that it comes from."""
    info = get_worker_info()
    return (0 if info is None else info.id), item
