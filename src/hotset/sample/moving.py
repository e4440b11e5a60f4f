"""Small things on their way to a device, which the host does not wait for."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


def to_device(numbers: np.ndarray | Tensor, device: torch.device) -> Tensor:
    """Host numbers on a device; on the CPU the same memory.

    Args:
        numbers: on the host.
        device: where they are wanted. From pageable memory the host would wait for the copy.
    """
    found = numbers
    if isinstance(found, np.ndarray):
        found = torch.from_numpy(np.ascontiguousarray(found))
    if device.type == "cuda":
        found = found.pin_memory()
    return found.to(device, non_blocking=True)
