"""D2LLM's losses: a student's scores and features imitate those of a language model that judges pairs (Liao et al. 2024, 3.2).

Shapes: n queries, C candidates a query: its positives P, hard negatives H and easy ones I, told apart by bool masks [n, C]; a place
that no mask names is padding. z: logits, s = sigmoid(z^T): the teacher's scores. float32; a mean over no query is 0.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp

from jdistill.core.types import Array
from jdistill.losses.embedding import HIGHEST, unit

FORMS = ("joint", "paper", "code")
WEIGHTS = ("ndcg", "difference")


def contrastive_imitation(
    student_nxC: Array,
    scores_nxC: Array,
    positive_nxC: Array,
    hard_nxC: Array,
    easy_nxC: Array,
    others_nxM: Array,
    other_mask_nxM: Array,
    temperature: Array | float,
    form: str = "joint",
) -> Array:
    """CI: mean over queries of the mean over their positives. A query without negatives counts as 0 in each form.

    Args:
      student_nxC: the student's logits z.
      scores_nxC: the teacher's s, from 0 to 1.
      positive_nxC, hard_nxC, easy_nxC: bool, what each candidate is.
      others_nxM: the student's logits of passages of other queries, which the teacher did not score (s = 0).
      other_mask_nxM: bool, true for others that count.
      temperature: scalar above 0, that all logits are divided by.
      form: "joint": the positive and all negatives in one denominator. "paper": as printed, without the positive, which has no lower
        bound. "code": after the authors' code, the hard negatives and the positive, plus InfoNCE without weights over the positive, easy and
        other passages. Both are means over queries here; theirs divides the first by the number of hard negatives too and the second by
        the batch again, in which it has the positives of other queries alone.

    Returns: scalar, float32.

    Source: D2LLM, 3.2.1.
    """
    low = jnp.finfo(jnp.float32).min
    z, s = student_nxC.astype(jnp.float32) / temperature, scores_nxC.astype(jnp.float32)
    others = jnp.where(other_mask_nxM, others_nxM.astype(jnp.float32) / temperature, low)
    up, down = s * z, (1.0 - s) * z

    def total(candidates_nxC: Array, which_nxC: Array, and_others: bool) -> Array:
        """log of the sum over the negatives [n]."""
        terms = jnp.where(which_nxC, candidates_nxC, low)
        return jax.nn.logsumexp(jnp.concatenate([terms, others], axis=1) if and_others else terms, axis=1)

    if form == "joint":
        below = total(down, hard_nxC | easy_nxC, True)[:, None]
        each = jnp.logaddexp(up, below) - up
    elif form == "paper":
        below = total(down, hard_nxC | easy_nxC, True)[:, None]
        some = (hard_nxC | easy_nxC).any(1) | other_mask_nxM.any(1)
        each = jnp.where(some[:, None], below - up, 0.0)
    else:
        hard, easy = total(down, hard_nxC, False)[:, None], total(z, easy_nxC, True)[:, None]
        each = jnp.logaddexp(up, hard) - up + jnp.logaddexp(z, easy) - z
    return _mean_over_queries(
        jnp.where(positive_nxC, each, 0.0).sum(1) / _at_least_one(positive_nxC), positive_nxC.any(1)
    )


def rank_imitation(student_nxC: Array, teacher_nxC: Array, mask_nxC: Array) -> Array:
    """RI_PH: 1 - Pearson correlation of both sides' logits over positives and hard negatives, mean over queries.

    Args:
      student_nxC, teacher_nxC: logits.
      mask_nxC: bool, true for the candidates that count. A query with one, or with equal logits on a side, gives 0 and no gradient.

    Returns: scalar, float32.

    Source: D2LLM eq. 7.
    """
    weight = mask_nxC.astype(jnp.float32)

    def centred(z_nxC: Array) -> Array:
        z = z_nxC.astype(jnp.float32)
        return weight * (z - (weight * z).sum(1, keepdims=True) / _at_least_one(mask_nxC)[:, None])

    a, b = centred(student_nxC), centred(teacher_nxC)
    squares_a, squares_b = jnp.square(a).sum(1), jnp.square(b).sum(1)

    def differs(squares_n: Array, z_nxC: Array) -> Array:
        # Of equal logits centring leaves rounding, some 1e-7 of their size, whose direction means nothing.
        return squares_n > 1e-12 + 1e-11 * (weight * jnp.square(z_nxC.astype(jnp.float32))).sum(1)

    alive = differs(squares_a, student_nxC) & differs(squares_b, teacher_nxC)
    # Inside the root too, so that a constant row has no infinite gradient times zero.
    length = jnp.sqrt(jnp.where(alive, squares_a, 1.0)) * jnp.sqrt(jnp.where(alive, squares_b, 1.0))
    return _mean_over_queries(jnp.where(alive, 1.0 - (a * b).sum(1) / length, 0.0), mask_nxC.any(1))


def score_imitation(student_nxC: Array, scores_nxC: Array, mask_nxC: Array) -> Array:
    """SI: cross entropy of sigmoid(z^S) with the teacher's s^T, mean over a query's candidates, then over queries.

    Ours, and not the paper's, whose terms compare candidates of one query: this one says what a logit means whatever the query.

    Args:
      student_nxC: the student's logits z.
      scores_nxC: the teacher's s, from 0 to 1; of labels, 0 and 1, it is the plain binary cross entropy.
      mask_nxC: bool, true for the candidates that count.

    Returns: scalar, float32.
    """
    z, s = student_nxC.astype(jnp.float32), scores_nxC.astype(jnp.float32)
    each = jnp.where(mask_nxC, jax.nn.softplus(z) - s * z, 0.0)  # -s log sigmoid(z) - (1 - s) log sigmoid(-z)
    return _mean_over_queries(each.sum(1) / _at_least_one(mask_nxC), mask_nxC.any(1))


def hard_over_easy(
    student_nxC: Array, teacher_nxC: Array, hard_nxC: Array, easy_nxC: Array, weight: str = "ndcg"
) -> Array:
    """RI_HI: mean over queries of -mean over H x I of lambda_jk log sigmoid(z_j - z_k), lambda zero where the teacher does not put j above k.

    Args:
      student_nxC, teacher_nxC: logits.
      hard_nxC, easy_nxC: bool, H and I of each query. The paper's I is in-batch negatives; here it is a query's drawn ones alone, since the
        judge has scored no other query's passages.
      weight: lambda elsewhere. "ndcg": what exchanging their places would cost, |2^s_j - 2^s_k| |1 / log2(1 + r_j) - 1 / log2(1 + r_k)| / IDCG,
        with the teacher's scores s and ranks r among H and I (1: the highest; equal scores in the order of their columns).
        "difference": s_j - s_k.

    Returns: scalar, float32.

    Source: D2LLM eq. 8.
    """
    z, teacher = student_nxC.astype(jnp.float32), teacher_nxC.astype(jnp.float32)
    ranked_nxC = hard_nxC | easy_nxC
    s = jax.nn.sigmoid(teacher)
    above = teacher[:, :, None] > teacher[:, None, :]
    if weight == "ndcg":
        order = jnp.argsort(jnp.where(ranked_nxC, -teacher, jnp.inf), axis=1, stable=True)
        ranks = 1.0 + jnp.argsort(order, axis=1).astype(jnp.float32)
        # 2^s - 1, of which a float32 keeps the digits where s is nearly 0.
        gain, discount = jnp.expm1(s * math.log(2.0)), 1.0 / jnp.log2(1.0 + ranks)
        ideal = jnp.where(ranked_nxC, gain * discount, 0.0).sum(1)[:, None, None]
        cost = jnp.abs(gain[:, :, None] - gain[:, None, :]) * jnp.abs(discount[:, :, None] - discount[:, None, :])
        weights = cost / jnp.maximum(ideal, 1e-30)
    else:
        weights = s[:, :, None] - s[:, None, :]
    pairs = hard_nxC[:, :, None] & easy_nxC[:, None, :]
    weights = jax.lax.stop_gradient(jnp.where(pairs & above, weights, 0.0))
    terms = -weights * jax.nn.log_sigmoid(z[:, :, None] - z[:, None, :])
    count = _at_least_one(hard_nxC) * _at_least_one(easy_nxC)
    return _mean_over_queries(terms.sum((1, 2)) / count, pairs.any((1, 2)))


def feature_imitation(student_nxCxD: Array, teacher_nxCxC: Array, mask_nxC: Array) -> Array:
    """FI: squared difference of both sides' cosines between the features of a query's candidates, summed over pairs, mean over queries.

    Args:
      student_nxCxD: features of the candidates.
      teacher_nxCxC: the cosines of the teacher's features (`cosines`).
      mask_nxC: bool, true for positives and hard negatives.

    Returns: scalar, float32.

    Source: D2LLM eq. 9 and 10.
    """
    pairs = mask_nxC[:, :, None] & mask_nxC[:, None, :]
    difference = jnp.where(pairs, teacher_nxCxC.astype(jnp.float32) - cosines(student_nxCxD), 0.0)
    return _mean_over_queries(jnp.square(difference).sum((1, 2)), mask_nxC.any(1))


def cosines(y_nxCxD: Array) -> Array:
    """The cosine of every two of a query's features.

    Args:
      y_nxCxD: of any floating type.

    Returns: float32 [n, C, C].

    Source: D2LLM eq. 9.
    """
    of = unit(y_nxCxD.astype(jnp.float32))
    return jnp.einsum("njd,nkd->njk", of, of, precision=jax.lax.Precision.HIGHEST)


def _at_least_one(mask_nxC: Array) -> Array:
    return jnp.maximum(mask_nxC.astype(jnp.float32).sum(1), 1.0)


def _mean_over_queries(each_n: Array, counts_n: Array) -> Array:
    weight = counts_n.astype(jnp.float32)
    return (each_n * weight).sum() / jnp.maximum(weight.sum(), 1.0)


def judge_logits(y_D: Array, answers_2xD: Array) -> Array:
    """z = logit(yes) - logit(no), one fewer dimension, of states y [..., D] of last tokens.

    Args:
      answers_2xD: the output layer's rows of yes and no.

    Source: D2LLM eq. 1 to 3.
    """
    both_2 = jnp.dot(y_D, answers_2xD.T, precision=HIGHEST)
    return both_2[..., 0] - both_2[..., 1]
