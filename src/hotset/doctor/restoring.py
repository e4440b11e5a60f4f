"""A loader that is gone through, and then stands where it stood."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils.data import DataLoader

from hotset.chain.probe import own_generators, preserved_generators
from hotset.doctor.machine.cuda import is_used
from hotset.loader.epochs import Epochs

ROOTS = ("generator", "sampler", "batch_sampler", "dataset", "collate_fn")
"""What of a loader may hold generators."""


@contextmanager
def as_it_was(loader: Any) -> Iterator[None]:
    """Puts back generators, where a loader stands, and whether it has workers that stay."""
    own = own_generators([getattr(loader, name, None) for name in ROOTS])
    state = loader.state_dict() if isinstance(loader, Epochs) else None
    running = getattr(loader, "_iterator", None)
    on_gpus = torch.cuda.get_rng_state_all() if is_used() else []
    with preserved_generators(own):
        try:
            yield
        finally:
            if on_gpus:
                torch.cuda.set_rng_state_all(on_gpus)
            if isinstance(loader, Epochs) and state is not None:
                loader.load_state_dict(state)
            if isinstance(loader, DataLoader) and running is None and loader._iterator is not None:
                staying: Any = loader._iterator
                staying._shutdown_workers()
                loader._iterator = None
