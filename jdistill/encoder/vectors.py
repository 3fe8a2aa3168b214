"""The vectors of a batch: hidden states, pooler, projections and normalisation as one compiled function."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from jdistill.losses import embedding
from jdistill.models.dense import apply_dense
from jdistill.models.pooling import pool
from jdistill.models.registry import ModelConfig, hidden_states


@partial(jax.jit, static_argnames=("config", "pooling", "dtype", "activations", "normalize"))
def embed_batch(
    params: Any,
    pooler: Any,
    dense: Any,
    ids_BxL: jax.Array,
    mask_BxL: jax.Array,
    *,
    config: ModelConfig,
    pooling: str,
    dtype: str,
    activations: tuple[str, ...],
    normalize: bool,
    passed_over: jax.Array | int | None = None,
) -> jax.Array:
    """The vectors of a batch of texts, by one compiled program for each shape.

    Args:
      params, pooler, dense: an encoder's weights.
      ids_BxL: int32 token ids.
      mask_BxL: bool, true for tokens.
      config, pooling, dtype, activations, normalize: as Encoder has them.
      passed_over: tokens at the beginning of each text that the pooler does not count; None: none.

    Returns: float32 [B, dim].
    """
    states = hidden_states(config, params, ids_BxL, mask_BxL, jnp.dtype(dtype))
    states, mask_BxL = after(passed_over, states, mask_BxL)
    x_BxD = apply_dense(pool(pooling, states, mask_BxL, pooler), dense, activations)
    return embedding.unit(x_BxD) if normalize else x_BxD


def after(passed_over: jax.Array | int | None, states: Any, mask_BxL: jax.Array) -> tuple[Any, jax.Array]:
    """States, each [B, L, D], and mask without the first tokens of each text, which a pooler does not count: they stand as padding now.

    passed_over: how many; None: all are counted.
    """
    if passed_over is None:
        return states, mask_BxL
    counted_BxL = mask_BxL & (jnp.arange(mask_BxL.shape[1]) >= passed_over)
    # To the end: a text begins with the first token that is counted.
    rolled: tuple[Any, jax.Array] = jax.tree.map(lambda x: jnp.roll(x, -passed_over, axis=1), (states, counted_BxL))
    return rolled
