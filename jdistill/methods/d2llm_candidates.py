"""What a query of D2LLM's batch is compared with: its own candidates, by their kind, and the passages of the batch's other queries."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from jdistill.core.types import Array, Tree
from jdistill.losses.embedding import over_row_blocks
from jdistill.models.interaction import score_matrix


class Kinds(NamedTuple):
    """What each of a query's C candidates is: bool [n, C] each. One that is none of them is padding."""

    positive: Array
    hard: Array
    easy: Array


def kinds_of(cfg: ConfigDict, real_nxC: Array) -> Kinds:
    """Candidates stand in this order: P positives, K hard negatives, I easy ones. real: false for those that a query lacks."""
    kind_C = np.repeat([0, 1, 2], (cfg.positives, cfg.hard_negatives, cfg.easy_negatives))
    return Kinds(*(real_nxC & (kind_C == which) for which in range(3)))


def score_others(
    head: Tree | None, query_nxD: Array, passage_nxCxD: Array, texts_nxT: Array, real_nxC: Array, block_size: int
) -> dict[str, Array]:
    """The passages of the batch's other queries, but for those that are this query's own, or its own text: z and mask, [n, n C] each.

    texts: int32, T = 1 + C, the query's first, equal where two are the same text.
    """
    C, texts_nxC = passage_nxCxD.shape[1], texts_nxT[:, 1:]
    m_passages, m_real, m_texts = (
        passage_nxCxD.reshape(len(query_nxD) * C, -1),
        real_nxC.reshape(-1),
        texts_nxC.reshape(-1),
    )

    def against_all(rows: dict[str, Array]) -> dict[str, Array]:
        own = (rows["texts"][:, :, None] == m_texts[None, None, :]) & rows["there"][:, :, None]
        return {"z": score_matrix(head, rows["query"], m_passages), "mask": m_real[None, :] & ~own.any(1)}

    there_nxT = jnp.concatenate([jnp.ones_like(real_nxC[:, :1]), real_nxC], axis=1)
    rows = {"query": query_nxD, "texts": texts_nxT, "there": there_nxT}
    return over_row_blocks(against_all, rows, block_size)
