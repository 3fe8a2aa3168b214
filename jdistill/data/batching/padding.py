"""Texts of like length in one padded batch, of few shapes: how every encoder here is fed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from jdistill.core.errors import UserError

TOKENS_OF_A_TEXT = 512  # that a batch has room for, times its size: of longer texts it holds fewer


def batches_by_length(
    ids: Sequence[Sequence[int]], pad_id: int, max_length: int, batch_size: int, room: int = TOKENS_OF_A_TEXT
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """(rows int64 [r], token ids, mask) of each batch, longest texts first; see pad. The batch may have more rows than r.

    Args:
      room: tokens, with padding, that a batch may hold for each of batch_size texts: one of 8,192 tokens stands beside three others in the
        place of 63, which would all be padded to its length. A text of more than all of that stands alone.

    Raises: UserError for a batch_size below 1.
    """
    if batch_size < 1:
        raise UserError("batch_size is below 1: at least one text is encoded at a time")
    order = np.argsort([-len(row) for row in ids], kind="stable")
    start = 0
    while start < len(ids):
        width = _width(len(ids[order[start]]), max_length)
        fit = batch_size if width <= room else 1 << max(batch_size * room // width, 1).bit_length() - 1
        rows = order[start : start + fit]
        yield rows, *pad([ids[i] for i in rows], pad_id, max_length, fit)
        start += fit


def pad(rows: Sequence[Sequence[int]], pad_id: int, max_length: int, batch_size: int) -> tuple[np.ndarray, np.ndarray]:
    """Token ids int32 [R, L] and mask bool [R, L]; L and R are rounded up so that few shapes are ever compiled.

    L is a multiple of 4 up to 32, of 8 up to 64, of 16 up to 128 and so on, which from 17 tokens on is less than a quarter over the longest
    row; R is batch_size or a power of two under it.
    """
    width = _width(max(map(len, rows)), max_length)
    height = min(batch_size, 1 << (len(rows) - 1).bit_length())
    ids = np.full((height, width), pad_id, np.int32)
    mask = np.zeros((height, width), bool)
    for r, row in enumerate(rows):
        ids[r, : len(row)] = row
        mask[r, : len(row)] = True
    return ids, mask


def _width(longest: int, max_length: int) -> int:
    """L of a batch whose longest row has so many tokens."""
    longest = max(1, longest)
    step = max(4, 1 << max(0, (longest - 1).bit_length() - 3))
    return min(max(-(-longest // step) * step, 4), max(max_length, longest))
