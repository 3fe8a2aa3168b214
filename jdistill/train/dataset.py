"""The training data of a stage, as the loop takes them: a batch for each step number."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from jdistill.core import sharding
from jdistill.core.errors import UserError
from jdistill.data.batching.order import EpochRows


class BatchOrder(Protocol):
    """Which rows make which batch, and in what shape: of each epoch anew, by the step number alone."""

    @property
    def lengths(self) -> np.ndarray:
        """Tokens of each row, padding of its own included, int [N]."""

    @property
    def groups(self) -> np.ndarray | None:
        """Which rows may share a batch, int [N]; None: all."""

    @property
    def of_epoch(self) -> EpochRows | None:
        """Which rows an epoch has; None: each once."""

    @property
    def steps_per_epoch(self) -> int:
        """Full batches of an epoch."""

    @property
    def padding(self) -> float:
        """The share of a batch's places that hold padding, over an epoch."""

    @property
    def real_tokens(self) -> np.ndarray:
        """Tokens of each row, int [N]."""

    @property
    def widths(self) -> tuple[int, ...]:
        """Tokens of the rows of a batch, of all that there are."""

    def at(self, step: int) -> tuple[Any, np.ndarray]:
        """The batch of step 0, 1, …: its shape and its rows, int64 [batch_size]."""

    def members(self, step: int) -> np.ndarray:
        """The rows of the batch, int64 [batch_size], in whatever order: without looking for its shape."""

    def capacity(self, shape: Any) -> int:
        """Tokens of a batch of this shape, padding included."""

    def shapes_used(self) -> Sequence[Any]:
        """The shapes that a stage compiles for, the commonest first."""


@dataclass(frozen=True)
class Data:
    """The training data of a stage: the order of its batches, and the arrays of the rows of one.

    Args:
      batches: the order.
      rows_of: (step, shape as the order has it, rows int64 [n]) -> arrays by name, [n, ...].
      fingerprint: of the content and its order.
      unit: what a row is, for the log: "texts" or "triplets".
      texts_per_row: how many texts a row has.
      made_up: as rows_of, with arrays of the same shapes for which nobody is asked; None: rows_of asks nobody.
      origins: of what else decides the run, such as its teacher: a fingerprint by its name.
      asked: how many training texts a teacher is asked for, at most.
    """

    batches: BatchOrder
    rows_of: Callable[[int, Any, np.ndarray], dict[str, np.ndarray]]
    fingerprint: str
    unit: str
    texts_per_row: int = 1
    made_up: Callable[[int, Any, np.ndarray], dict[str, np.ndarray]] | None = None
    origins: Mapping[str, str] = field(default_factory=dict)
    asked: int = 0

    def __len__(self) -> int:
        return len(self.batches.lengths)

    def step_with(self, shape: Any) -> int:
        """The first step of an epoch whose batch has this shape; 0 where none has."""
        steps = range(self.batches.steps_per_epoch)
        return next((step for step in steps if self.batches.at(step)[0] == shape), 0)

    def batch(self, step: int) -> dict[str, np.ndarray]:
        """This process's rows of the global batch of a step, counted from 0: arrays by name, [batch_size / processes, ...]."""
        shape, rows = self.batches.at(step)
        share = len(rows) // sharding.process_count()
        return self.rows_of(step, shape, rows[sharding.process_index() * share :][:share])


def check_divides(batch_size: int, devices: int, key: str = "batch_size") -> None:
    """Raises UserError, which names the config's key, for a batch whose rows cannot be split evenly over the devices."""
    if batch_size % devices:
        raise UserError(f"--config.{key}={batch_size} does not divide by the {devices} devices")
