"""The order of an epoch: a permutation of the rows, made whole for few and computed window by window for many.

Up to LARGE rows it is numpy's permutation of all, drawn by (seed, epoch), as it always was: runs that began before go on bit for bit. Beyond,
a Feistel network permutes the numbers of the rows (Black and Rogaway 2002, with cycle walking), so that nothing of the order is stored,
and the batches of an epoch are made of WINDOW rows at a time. Either way a batch is found by its number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

LARGE = 1_000_000  # rows whose permutation is made whole
WINDOW = 1 << 18  # rows that batches are made of at a time, beyond
FEISTEL_ROUNDS = 8
MIX = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))  # of splitmix64


class EpochRows(Protocol):
    """Which rows an epoch has, where that is not each once (data.batching.weights)."""

    @property
    def count(self) -> int:
        """Rows of an epoch."""

    def rows_at(self, numbers: np.ndarray, epoch: int) -> np.ndarray:
        """The rows that stand at some numbers of an epoch, int64 [n]."""

    def mean(self, lengths: np.ndarray) -> float:
        """The mean over an epoch of what is known of each row, int [N]."""


@dataclass(frozen=True)
class EpochOrder:
    """The rows of each epoch in their order, window by window.

    Args:
      count: N rows of an epoch.
      batch_size: rows of a batch.
      seed: of the order.
      whole: the permutation is made whole, however many rows there are.
      of_epoch: which rows they are; None: rows 0 to N - 1.
    """

    count: int
    batch_size: int
    seed: int
    whole: bool = False
    of_epoch: EpochRows | None = None

    @property
    def windowed(self) -> bool:
        """Whether an epoch has windows; else it is one, of all rows."""
        return self.count > LARGE and not self.whole

    @property
    def batches_per_window(self) -> int:
        """Batches of each window but the last."""
        return max(1, WINDOW // self.batch_size)

    def window_of(self, batch: int) -> tuple[int, int]:
        """The window of a batch of an epoch, and its number there."""
        return divmod(batch, self.batches_per_window) if self.windowed else (0, batch)

    def rows_of(self, epoch: int, window: int) -> tuple[np.ndarray, np.random.Generator]:
        """The rows of a window, int64, all N where it is the only one, and what draws what else is random in it."""
        numbers, rng = self._numbers_of(epoch, window)
        return (numbers if self.of_epoch is None else self.of_epoch.rows_at(numbers, epoch)), rng

    def _numbers_of(self, epoch: int, window: int) -> tuple[np.ndarray, np.random.Generator]:
        if not self.windowed:
            rng = np.random.default_rng([self.seed, epoch])
            return rng.permutation(self.count), rng
        per_window, batches = self.batches_per_window, self.count // self.batch_size
        start, stop = (min(number * per_window, batches) * self.batch_size for number in (window, window + 1))
        rows = permuted(np.arange(start, stop), self.count, self.seed, epoch)
        return rows, np.random.default_rng([self.seed, epoch, window])


def permuted(positions: np.ndarray, count: int, seed: int, epoch: int) -> np.ndarray:
    """Where a permutation of 0 … count - 1 puts these positions, int64 [n]: drawn by (seed, epoch), computed for each alone."""
    keys = np.random.default_rng([seed, epoch]).integers(0, 2**64, FEISTEL_ROUNDS, np.uint64)
    bits = max(2, (count - 1).bit_length())
    values = _feistel(positions.astype(np.uint64), keys, bits)
    while len(beyond := np.flatnonzero(values >= count)):  # fewer than half each time
        values[beyond] = _feistel(values[beyond], keys, bits)
    return values.astype(np.int64)


def _feistel(values: np.ndarray, keys: np.ndarray, bits: int) -> np.ndarray:
    """A permutation of the numbers below 2**bits: each round changes one half by a hash of the other."""
    low = bits // 2
    width, left_mask, right_mask = (np.uint64(each) for each in (low, (1 << (bits - low)) - 1, (1 << low) - 1))
    left, right = values >> width, values & right_mask
    for number, key in enumerate(keys):
        if number % 2:
            right = right ^ (_mixed(left, key) & right_mask)
        else:
            left = left ^ (_mixed(right, key) & left_mask)
    return (left << width) | right


def _mixed(values: np.ndarray, key: np.uint64) -> np.ndarray:
    """splitmix64's finaliser of values + key."""
    mixed = values + key
    for shift, factor in zip((30, 27), MIX, strict=True):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * factor
    return mixed ^ (mixed >> np.uint64(31))


def sample_rows(rng: np.random.Generator, count: int, most: int) -> np.ndarray:
    """At most `most` of `count` rows in random order, int64: the first of a permutation, which for many rows is not made."""
    return rng.permutation(count)[:most] if count <= LARGE else rng.choice(count, min(most, count), replace=False)
