"""Muon (Jordan 2024): a matrix moves by the orthogonal factor of its gradient's mean; AdamW moves what maps no vector."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import optax
from ml_collections import ConfigDict
from optax import contrib

from jdistill.core.types import Array, Tree
from jdistill.models.matmul import product, times_transpose

ADAMW_LENGTH = 0.2  # root mean square of an update, times the rate, that AdamW has and Muon gets: one rate is good for both (Liu et al. 2025)
TABLE_LEAF = (
    "embedding"  # how a table of tokens, positions or types ends its path: rows that are looked up, no map of a vector
)
MOMENTUM = 0.95
ITERATIONS = 5
QUINTIC = (3.4445, -4.7750, 2.0315)  # steepest at zero of those that leave singular values between 0.7 and 1.2


def muon(cfg: ConfigDict, schedule: optax.Schedule) -> optax.GradientTransformation:
    """Muon of the matrices that map vectors; AdamW, of the same rate, of tables, biases and LayerNorm parameters, which do not decay then
    and look ahead as Muon does (Nesterov).

    A matrix moves as far as AdamW would move it, and in all directions alike: none waits for the gradient to be large in it. The factor
    takes fifteen products of a matrix and its like a step, whatever the batch, in the compute type where that is bfloat16, as Jordan has
    it: its rounding is small beside what five iterations leave of the singular values' spread.

    Args:
      cfg: of which dtype, weight_decay, adam_b1, adam_b2 and adam_eps are read.
      schedule: the rate at each step.
    """
    matrices = optax.chain(
        scale_by_orthogonal_factor(jnp.bfloat16 if cfg.dtype == "bfloat16" else jnp.float32, cfg.adam_eps),
        optax.identity(),  # the place of optax's own scaling by shape, so that a run that its Muon began goes on
        optax.add_decayed_weights(cfg.weight_decay),
        optax.scale_by_learning_rate(schedule),
    )
    others = optax.adamw(schedule, b1=cfg.adam_b1, b2=cfg.adam_b2, eps=cfg.adam_eps, weight_decay=0.0, nesterov=True)
    return optax.partition({"muon": matrices, "adam": others}, rule_of_each)


def rule_of_each(params: Tree) -> Tree:
    """Which of the two moves each: "muon" the matrices that map vectors, "adam" the rest."""

    def rule(path: tuple[Any, ...], x: Array) -> str:
        return "muon" if x.ndim == 2 and getattr(path[-1], "key", "") != TABLE_LEAF else "adam"

    return jax.tree_util.tree_map_with_path(rule, params)


def scale_by_orthogonal_factor(dtype: jnp.dtype, eps: float) -> optax.GradientTransformation:
    """Each gradient [D, F] becomes the orthogonal factor of its mean, ADAMW_LENGTH long in every element.

    Args:
      dtype: of the products; the mean and what is returned are in the gradient's own.
      eps: added to the norm that the mean is divided by.

    Source: https://kellerjordan.github.io/posts/muon/, its mean corrected for its start as optax's scale_by_muon has it, whose state this is.
    """

    def update(updates: Tree, state: contrib.MuonState, params: Tree | None = None) -> tuple[Tree, contrib.MuonState]:
        count = optax.safe_increment(state.count)
        mean = optax.tree.update_moment(updates, state.mu, MOMENTUM, 1)
        so_far = optax.tree.bias_correction(updates, MOMENTUM, count)
        next_mean = optax.tree.bias_correction(mean, MOMENTUM, optax.safe_increment(count))
        ahead = jax.tree.map(lambda m, g: MOMENTUM * m + (1 - MOMENTUM) * g, next_mean, so_far)
        factors = jax.tree.map(lambda x: ADAMW_LENGTH * max(x.shape) ** 0.5 * orthogonal_factor(x, dtype, eps), ahead)
        return factors, contrib.MuonState(count, mean, state.ns_coeffs)

    return optax.GradientTransformation(contrib.scale_by_muon().init, update)


def orthogonal_factor(x: Array, dtype: jnp.dtype, eps: float) -> Array:
    """Of x [D, F] nearly U V^T where x = U S V^T: Newton and Schulz's iteration, whose products are of as many rows as the shorter side has.

    Args:
      x: any matrix.
      dtype: of the iterations.
      eps: added to x's norm.

    Returns: [D, F] in x's type.
    """
    a, b, c = QUINTIC
    wide = x.T if x.shape[0] > x.shape[1] else x
    # The barrier keeps a turned x out of the products: XLA's CPU has none of bfloat16 that sum over the first axis.
    y = jax.lax.optimization_barrier((wide / (jnp.linalg.norm(wide) + eps)).astype(dtype))
    for _ in range(ITERATIONS):
        gram = times_transpose(y, y)
        y = a * y + product(b * gram + c * product(gram, gram), y)
    y = y.astype(x.dtype)
    return y.T if x.shape[0] > x.shape[1] else y
