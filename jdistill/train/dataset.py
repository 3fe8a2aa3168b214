"""The training data of a stage, as the loop takes them: a batch for each step number."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from jdistill.core import sharding
from jdistill.data.batching.batches import Batches


@dataclass(frozen=True)
class Data:
    """The training data of a stage: the order of its batches, and the arrays of the rows of one.

    Args:
      batches: the order.
      rows_of: (step, width in tokens, rows int64 [n]) -> arrays by name, [n, ...].
      fingerprint: of the content and its order.
      unit: what a row is, for the log: "texts" or "triplets".
      texts_per_row: how many texts a row has.
    """

    batches: Batches
    rows_of: Callable[[int, int, np.ndarray], dict[str, np.ndarray]]  # (step, width, rows int64 [n]) -> arrays [n, ...]
    fingerprint: str  # of the content and its order
    unit: str  # what a row is, for the log: "texts" or "triplets"
    texts_per_row: int = 1

    def __len__(self) -> int:
        return len(self.batches.lengths)

    def batch(self, step: int) -> dict[str, np.ndarray]:
        """This process's rows of the global batch of a step, counted from 0: arrays by name, [batch_size / processes, ...]."""
        width, rows = self.batches.at(step)
        share = len(rows) // sharding.process_count()
        return self.rows_of(step, width, rows[sharding.process_index() * share :][:share])
