"""Losses by which a student imitates a reranker's scores of the passages that are listed with a query.

Shapes: n queries, C passages of each, the positive in column 0, then its negatives; a bool mask [n, C] is true for those that are there.
What stands in the other places changes nothing. float32; a mean over nothing is 0.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jdistill.core.types import Array
from jdistill.losses.embedding import HIGHEST, unit


def listed_similarities(
    anchors_nxD: Array, passages_nxCxD: Array, temperature: Array | float, *, cosine: bool = True
) -> Array:
    """The similarity of each query to each of its own passages, over the temperature.

    Args:
      anchors_nxD, passages_nxCxD: vectors, of any floating type.
      temperature: scalar above 0.
      cosine: of the vectors' directions; False: the dot product.

    Returns: float32 [n, C].
    """
    as_given = unit if cosine else lambda x: x.astype(jnp.float32)
    return jnp.einsum("nd,ncd->nc", as_given(anchors_nxD), as_given(passages_nxCxD), precision=HIGHEST) / temperature


def margin_mse(student_nxC: Array, teacher_nxC: Array, mask_nxC: Array) -> Array:
    """MarginMSE: the squared difference of both sides' margins of the positive over a negative, mean over all negatives that are there.

    Args:
      student_nxC, teacher_nxC: scores, column 0 the positive's.
      mask_nxC: bool, true for the passages that count.

    Returns: scalar, float32.

    Source: Hofstätter et al. 2020, "Improving Efficient Neural Ranking Models with Cross-Architecture Knowledge Distillation" (Margin-MSE).
    """
    counts_nxK = mask_nxC[:, 1:] & mask_nxC[:, :1]
    difference_nxC = student_nxC.astype(jnp.float32) - teacher_nxC.astype(jnp.float32)
    # Before the subtraction too: of a place that is not there nothing is to reach the positive's gradient, NaN included.
    others_nxK = jnp.where(counts_nxK, difference_nxC[:, 1:], 0.0)
    square_nxK = jnp.where(counts_nxK, jnp.square(difference_nxC[:, :1] - others_nxK), 0.0)
    return square_nxK.sum() / jnp.maximum(counts_nxK.sum().astype(jnp.float32), 1.0)


def listwise_kl(student_nxC: Array, teacher_nxC: Array, mask_nxC: Array) -> Array:
    """KL(softmax(teacher) || softmax(student)) over a query's passages, mean over the queries that have two passages or more.

    Args:
      student_nxC, teacher_nxC: scores, each over its temperature.
      mask_nxC: bool, true for the passages that count.

    Returns: scalar, float32.

    Source: as FlagEmbedding and Tevatron distil rerankers; the list-wise loss of Cao et al. 2007 ("ListNet"), less the teacher's entropy.
    """
    low = jnp.finfo(jnp.float32).min
    log_t, log_s = (
        jax.nn.log_softmax(jnp.where(mask_nxC, z.astype(jnp.float32), low), axis=1) for z in (teacher_nxC, student_nxC)
    )
    each_nxC = jnp.where(mask_nxC, jnp.exp(log_t) * (log_t - log_s), 0.0)
    counts_n = (mask_nxC.sum(1) > 1).astype(jnp.float32)
    return (each_nxC.sum(1) * counts_n).sum() / jnp.maximum(counts_n.sum(), 1.0)


SCORE_LOSSES = {"margin_mse": margin_mse, "kl": listwise_kl}
