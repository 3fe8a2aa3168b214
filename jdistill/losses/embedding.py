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
    """Mean squared difference over all elements.

    Args:
      prediction, target: of the same shape, of any floating type.

    Returns: scalar, float32.
    """
    return jnp.square(prediction.astype(jnp.float32) - target.astype(jnp.float32)).mean()


def masked_mse(prediction_BxLxD: Array, target_BxLxD: Array, mask_BxL: Array) -> Array:
    """Mean squared difference over the elements of those tokens that the mask marks; padding never counts.

    Args:
      prediction_BxLxD, target_BxLxD: of any floating type.
      mask_BxL: true or 1 for a token, false or 0 for padding.

    Returns: scalar, float32; 0 where no token is marked.
    """
    square_BxL = jnp.square(prediction_BxLxD.astype(jnp.float32) - target_BxLxD.astype(jnp.float32)).mean(-1)
    weights_BxL = mask_BxL.astype(jnp.float32)
    return (square_BxL * weights_BxL).sum() / jnp.maximum(weights_BxL.sum(), 1.0)


def unit(x_BxD: Array) -> Array:
    """Rows scaled to length one.

    Args:
      x_BxD: [..., D] of any floating type.

    Returns: float32 [..., D]; a zero row stays zero, and has a finite gradient.
    """
    x_BxD = x_BxD.astype(jnp.float32)
    # By the largest element first, so that no square leaves float32; the direction, and hence the gradient, is the same.
    x_BxD = x_BxD / jnp.maximum(jax.lax.stop_gradient(jnp.abs(x_BxD).max(-1, keepdims=True)), 1e-12)
    return x_BxD * jax.lax.rsqrt(floored(jnp.square(x_BxD).sum(-1, keepdims=True), 1e-24))


def floored(x: Array, floor: float) -> Array:
    """x where it is above the floor, else the floor: jnp.maximum with a gradient to rely on (docs/performance.md)."""
    return jnp.where(x > floor, x, floor)


def kl_divergence(student_BxD: Array, teacher_BxD: Array) -> Array:
    """KL(softmax(teacher) || softmax(student)) over the dimensions of each vector, mean over texts.

    Args:
      student_BxD, teacher_BxD: vectors of the same texts, of any floating type.

    Returns: scalar, float32.
    """
    log_t = jax.nn.log_softmax(teacher_BxD.astype(jnp.float32))
    log_s = jax.nn.log_softmax(student_BxD.astype(jnp.float32))
    return (jnp.exp(log_t) * (log_t - log_s)).sum(-1).mean()


def pair_cosines(x_BxD: Array) -> Array:
    """The cosine of every pair of texts in the batch.

    Args:
      x_BxD: vectors of any floating type.

    Returns: float32 [B, B].
    """
    u = unit(x_BxD)
    return jnp.dot(u, u.T, precision=HIGHEST)


def number_of_blocks(rows: int, block: int) -> int:
    """The fewest equal blocks of at most `block` rows.

    Args:
      rows: how many there are, 1 or more.
      block: rows of a block at most; 0: one block holds all.

    Returns: a divisor of `rows`.
    """
    return next(c for c in range(math.ceil(rows / block), rows + 1) if rows % c == 0) if block else 1


def to_blocks(tree: Any, count: int) -> Any:
    """Rows in blocks, block k with the rows k, k + count, …

    Not consecutive rows, so that where rows are split over devices each device keeps its own in every block.

    Args:
      tree: of arrays [n, ...].
      count: of blocks; it divides n.

    Returns: the tree with arrays [count, n / count, ...].
    """
    return jax.tree.map(lambda x: jnp.moveaxis(x.reshape(x.shape[0] // count, count, *x.shape[1:]), 1, 0), tree)


def from_blocks(tree: Any) -> Any:
    """The inverse of to_blocks.

    Args:
      tree: of arrays [count, m, ...].

    Returns: the tree with arrays [count * m, ...], rows in their order before to_blocks.
    """
    return jax.tree.map(lambda x: jnp.moveaxis(x, 0, 1).reshape(x.shape[0] * x.shape[1], *x.shape[2:]), tree)


def over_row_blocks(f: Callable[[Any], Any], rows: Any, block: int) -> Any:
    """f of all rows, one block of them after another, so that an n x n matrix never stands in memory whole.

    Args:
      f: a tree of b rows -> a tree of arrays [b, ...], each row by itself.
      rows: a tree of arrays [n, ...].
      block: rows at a time; 0, or n within one block: f is called once. Backwards each block is computed anew.

    Returns: what f gives for all n rows, in their order.
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
    """InfoNCE: mean over anchors of the cross entropy of sim(anchor i, candidates) / temperature with target i.

    Args:
      anchors_nxD, candidates_mxD: vectors, m >= n; candidates 0 .. n-1 are the positives, further ones negatives of every anchor.
      temperature: scalar above 0.
      own_nxKxD: K further negatives of each anchor alone; None: no such.
      candidate_mask_m, own_mask_nxK: bool, true for rows that count, false for padding; None: all count.
      anchor_keys_nxG, candidate_keys_mxG: integers; a candidate that agrees with an anchor in one of the G keys is no negative of it,
        though it may be its target. None: all are.
      cosine: sim is the cosine; False: the dot product.
      block: rows of the logit matrix at a time (over_row_blocks).

    Returns: scalar, float32.

    Source: IBKD eq. 5 and 10; DistilFACE, section 3 (without a number).
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
