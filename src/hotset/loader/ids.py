"""Sample ids of a batch: checked, and counted within an epoch."""

from __future__ import annotations

import numpy as np

from hotset.errors import ConfigError


class Occurrences:
    """Counts how often each sample has come in an epoch."""

    def __init__(self, length: int) -> None:
        self._counts = np.zeros(length, dtype=np.int64)

    def of(self, ids: np.ndarray) -> np.ndarray:
        """(B,) int64: how often each id came before it in this epoch, within the batch included."""
        counts = self._counts
        before: np.ndarray = counts[ids]
        np.add.at(counts, ids, 1)
        repeated = counts[ids] - before > 1
        if repeated.any():
            seen: dict[int, int] = {}
            for position in np.flatnonzero(repeated):
                number = int(ids[position])
                before[position] += seen.get(number, 0)
                seen[number] = seen.get(number, 0) + 1
        return before


def check_ids(ids: np.ndarray, length: int) -> np.ndarray:
    """Sample ids, those counted from the end made positive.

    Raises:
        ConfigError: if one lies outside the dataset, or the batch is not a list of numbers.
    """
    if ids.ndim != 1:
        raise ConfigError(f"a batch must be a list of indices, got an array of shape {ids.shape}")
    if len(ids) and (ids.min() < 0 or ids.max() >= length):
        ids = np.where(ids < 0, ids + length, ids)
        wrong = ids[(ids < 0) | (ids >= length)]
        if len(wrong):
            raise ConfigError(
                f"the sampler gave index {int(wrong[0])}, but the dataset has {length} samples"
            )
    return ids
