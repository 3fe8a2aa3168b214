"""Weights of sources: which rows an epoch has where some come several times and of others a part."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from jdistill.data.batching.order import permuted

SALT = 0x5A17  # the draw of a part is another than that of the order


@dataclass(frozen=True)
class SourceWeights:
    """An epoch's rows by their numbers 0 … count - 1: of each source its rows as often as its weight says whole, and then a part of them, drawn
    anew in each epoch.

    Args:
      sizes: rows of each source, which follow one another.
      weights: of each source, above 0.
      seed: of the draws.
    """

    sizes: tuple[int, ...]
    weights: tuple[float, ...]
    seed: int

    @cached_property
    def starts(self) -> np.ndarray:
        """The number in an epoch at which each source begins, and the end, int64 [sources + 1]."""
        return np.concatenate([[0], np.cumsum([self._rows(k) for k in range(len(self.sizes))])]).astype(np.int64)

    @property
    def count(self) -> int:
        """Rows of an epoch."""
        return int(self.starts[-1])

    def rows_at(self, numbers: np.ndarray, epoch: int) -> np.ndarray:
        """The rows that stand at some numbers of an epoch, int64 [n]."""
        source = np.searchsorted(self.starts, numbers, side="right") - 1
        rows = np.empty(len(numbers), np.int64)
        first_row = np.concatenate([[0], np.cumsum(self.sizes)])
        for k in np.unique(source).tolist():
            here, size = np.flatnonzero(source == k), self.sizes[k]
            within = numbers[here] - self.starts[k]
            drawn = within >= int(self.weights[k]) * size
            within = within % size
            within[drawn] = permuted(within[drawn], size, self.seed + SALT + k, epoch)
            rows[here] = first_row[k] + within
        return rows

    def mean(self, lengths: np.ndarray) -> float:
        """The mean over an epoch of what is known of each row, int [N]."""
        parts = np.split(lengths, np.cumsum(self.sizes)[:-1])
        total = sum(self._rows(k) * float(part.mean()) for k, part in enumerate(parts) if len(part))
        return total / max(self.count, 1)

    def _rows(self, k: int) -> int:
        """Rows of a source in an epoch: at least one, where it has any."""
        return min(self.sizes[k], 1) and max(1, round(self.weights[k] * self.sizes[k]))
