"""Several rankings as one, by reciprocal ranks: what scores of different scales, such as cosines and BM25's, can be joined by.

Paper: Reciprocal Rank Fusion outperforms Condorcet and individual rank learning methods, Cormack, Clarke and Büttcher, SIGIR 2009.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

RANK_OFFSET = 60  # the paper's k: how little the first places count above the next


def fuse(rankings: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """The documents that any of several rankings of one query holds, best first.

    Args:
      rankings: rows of documents, best first, int64 [k] each; a row of -1 is none.

    Returns: the sum over the rankings of 1 / (60 + place), places from 1, float64 [n], and the rows, int64 [n]. Of equal sums the one that an
      earlier ranking has first comes first.
    """
    sums: dict[int, float] = {}
    for rows in rankings:
        for place, row in enumerate(rows[rows >= 0].tolist(), 1):
            sums[row] = sums.get(row, 0.0) + 1 / (RANK_OFFSET + place)
    best = sorted(sums, key=lambda row: -sums[row])  # which keeps the order of equals
    return np.array([sums[row] for row in best]), np.array(best, np.int64)
