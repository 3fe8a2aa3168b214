"""Texts of like length in one padded batch, of few shapes: how every encoder here is fed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from jdistill.core.errors import UserError


def batches_by_length(
    ids: Sequence[Sequence[int]], pad_id: int, max_length: int, batch_size: int
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """(rows int64 [r], token ids, mask) of each batch, longest texts first; see pad. The batch may have more rows than r.

    Raises: UserError for a batch_size below 1.
    """
    if batch_size < 1:
        raise UserError("batch_size is below 1: at least one text is encoded at a time")
    order = np.argsort([-len(row) for row in ids], kind="stable")
    for start in range(0, len(ids), batch_size):
        rows = order[start : start + batch_size]
        yield rows, *pad([ids[i] for i in rows], pad_id, max_length, batch_size)


def pad(rows: Sequence[Sequence[int]], pad_id: int, max_length: int, batch_size: int) -> tuple[np.ndarray, np.ndarray]:
    """Token ids int32 [R, L] and mask bool [R, L]; L and R are rounded up so that few shapes are ever compiled.

    L is a multiple of 4 up to 32, of 8 up to 64, of 16 up to 128 and so on, which from 17 tokens on is less than a quarter over the longest
    row; R is batch_size or a power of two under it.
    """
    longest = max(1, max(map(len, rows)))
    step = max(4, 1 << max(0, (longest - 1).bit_length() - 3))
    width = min(max(-(-longest // step) * step, 4), max(max_length, longest))
    height = min(batch_size, 1 << (len(rows) - 1).bit_length())
    ids = np.full((height, width), pad_id, np.int32)
    mask = np.zeros((height, width), bool)
    for r, row in enumerate(rows):
        ids[r, : len(row)] = row
        mask[r, : len(row)] = True
    return ids, mask
