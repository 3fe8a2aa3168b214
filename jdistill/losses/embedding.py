"""Losses that methods share: vectorised functions of whole arrays; no model, no device, no collective inside."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from jdistill.core.types import Array

HIGHEST = jax.lax.Precision.HIGHEST  # Gram and logit matrices in true float32, also where a GPU would take TF32


def mse(prediction: Array, target: Array) -> Array:
    """Mean over all elements of the squared difference; scalar, float32."""
    return jnp.square(prediction.astype(jnp.float32) - target.astype(jnp.float32)).mean()


def masked_mse(prediction_BxLxD: Array, target_BxLxD: Array, mask_BxL: Array) -> Array:
    """Mean over the elements of the tokens that the mask marks; scalar, float32. Padding never counts."""
    square_BxL = jnp.square(prediction_BxLxD.astype(jnp.float32) - target_BxLxD.astype(jnp.float32)).mean(-1)
    weights_BxL = mask_BxL.astype(jnp.float32)
    return (square_BxL * weights_BxL).sum() / jnp.maximum(weights_BxL.sum(), 1.0)


def unit(x_BxD: Array) -> Array:
    """Rows scaled to length one, in float32, with a finite gradient at a zero row (which stays zero)."""
    x_BxD = x_BxD.astype(jnp.float32)
    # By the largest element first, so that no square leaves float32; the direction, and hence the gradient, is the same.
    x_BxD = x_BxD / jnp.maximum(jax.lax.stop_gradient(jnp.abs(x_BxD).max(-1, keepdims=True)), 1e-12)
    return x_BxD * jax.lax.rsqrt(jnp.maximum(jnp.square(x_BxD).sum(-1, keepdims=True), 1e-24))


def kl_divergence(student_BxD: Array, teacher_BxD: Array) -> Array:
    """KL(softmax(teacher) || softmax(student)) over the dimensions of a vector, mean over texts; scalar."""
    log_t = jax.nn.log_softmax(teacher_BxD.astype(jnp.float32))
    log_s = jax.nn.log_softmax(student_BxD.astype(jnp.float32))
    return (jnp.exp(log_t) * (log_t - log_s)).sum(-1).mean()


def pair_cosines(x_BxD: Array) -> Array:
    """Cosine of every pair of texts in the batch, [B, B]."""
    u = unit(x_BxD)
    return u @ u.T


def number_of_blocks(rows: int, block: int) -> int:
    """The fewest equal blocks of at most `block` rows; block 0: one."""
    return next(c for c in range(math.ceil(rows / block), rows + 1) if rows % c == 0) if block else 1


def to_blocks(tree: Any, count: int) -> Any:
    """Arrays [n, ...] as [count, n / count, ...]; block k has the rows k, k + count, …

    Not consecutive rows, so that where rows are split over devices each device keeps its own in every block.
    """
    return jax.tree.map(lambda x: jnp.moveaxis(x.reshape(x.shape[0] // count, count, *x.shape[1:]), 1, 0), tree)


def from_blocks(tree: Any) -> Any:
    """The inverse of to_blocks."""
    return jax.tree.map(lambda x: jnp.moveaxis(x, 0, 1).reshape(x.shape[0] * x.shape[1], *x.shape[2:]), tree)


def over_row_blocks(f: Callable[[Any], Any], rows: Any, block: int) -> Any:
    """f over blocks of at most `block` rows, one after another, so that an n x n matrix never stands in memory whole.

    rows: a tree of arrays [n, ...]. f: such a tree of b rows -> a tree of arrays [b, ...], each row by itself. Returns
    f's outputs for all rows. block 0, or n within one block: f is called once. Backwards each block is computed anew.
    """
    count = number_of_blocks(jax.tree.leaves(rows)[0].shape[0], block)
    return f(rows) if count == 1 else from_blocks(jax.lax.map(jax.checkpoint(f), to_blocks(rows, count)))


def info_nce(
    anchors_nxD: Array,
    candidates_mxD: Array,
    temperature: Array | float,
    *,
    own_nxKxD: Array | None = None,
    candidate_mask_m: Array | None = None,
    own_mask_nxK: Array | None = None,
    anchor_keys_nxG: Array | None = None,
    candidate_keys_mxG: Array | None = None,
    cosine: bool = True,
    block: int = 0,
) -> Array:
    """InfoNCE: mean over anchors of the cross entropy of sim(anchor i, candidates) / temperature with target i; float32.

    Candidates 0 .. n-1 are the positives; further ones (m > n) are negatives of every anchor, own_nxKxD negatives of
    their anchor alone. Masks are true for rows that count (a masked row is padding). Keys, integers, tell which candidates
    are no negatives of which anchors: those, but for the target, that agree with the anchor in one of the G keys. sim is
    the cosine, or the dot product. block: rows of the logit matrix at a time (see over_row_blocks). IBKD eq. 5 and 10; DistilFACE eq. 1.
    """
    as_given = unit if cosine else lambda x: x.astype(jnp.float32)
    anchors, candidates = as_given(anchors_nxD), as_given(candidates_mxD)
    rows: dict[str, Array] = {"anchor": anchors, "target": jnp.arange(anchors.shape[0])}
    if own_nxKxD is not None:
        rows["own"] = as_given(own_nxKxD)
        rows["own_mask"] = jnp.ones(own_nxKxD.shape[:2], bool) if own_mask_nxK is None else own_mask_nxK
    if anchor_keys_nxG is not None:
        rows["keys"] = anchor_keys_nxG

    def losses_of(rows: dict[str, Array]) -> Array:
        logits_bxm = jnp.dot(rows["anchor"], candidates.T, precision=HIGHEST) / temperature
        positive_b = jnp.take_along_axis(logits_bxm, rows["target"][:, None], axis=1)[:, 0]
        if candidate_mask_m is not None:
            logits_bxm = jnp.where(candidate_mask_m, logits_bxm, -jnp.inf)
        if "keys" in rows and candidate_keys_mxG is not None:
            others_bxm = rows["target"][:, None] != jnp.arange(candidates.shape[0])
            for key_b, key_m in zip(rows["keys"].T, candidate_keys_mxG.T, strict=True):
                logits_bxm = jnp.where(others_bxm & (key_b[:, None] == key_m), -jnp.inf, logits_bxm)
        if "own" in rows:
            own_bxK = jnp.einsum("bd,bkd->bk", rows["anchor"], rows["own"], precision=HIGHEST) / temperature
            logits_bxm = jnp.concatenate([logits_bxm, jnp.where(rows["own_mask"], own_bxK, -jnp.inf)], axis=1)
        return jax.nn.logsumexp(logits_bxm, axis=1) - positive_b

    return over_row_blocks(losses_of, rows, block).mean()
