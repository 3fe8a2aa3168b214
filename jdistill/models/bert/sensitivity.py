"""How much a text's vector moves with the output of the embedding block: what weighs a compact block's start.

The mean over tokens of J^T J, where J is the derivative of the text's unit vector with respect to a token's block output, times
the text's number of tokens, so that short and long texts count alike; 3 % of the identity are mixed in.
It is drawn, not computed: of a random direction v of the vector, g = J^T v is one backward pass, and the mean of g g^T is
J^T J. A direction in which the vector does not move may be lost without loss.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from jdistill.core.types import Array, Tree
from jdistill.data.batching.padding import batches_by_length
from jdistill.losses.embedding import unit
from jdistill.models.bert.compact import second_moment
from jdistill.models.bert.config import BertConfig
from jdistill.models.bert.module import Bert
from jdistill.models.bert.narrowed import TEXTS_AT_ONCE
from jdistill.models.pooling import POOLERS, pool

SHRINKAGE = 0.03  # share of the identity in the result: directions that hardly count are not quite without weight


def sensitivity(
    config: BertConfig, params: Tree, pooling: str, texts: Sequence[Sequence[int]], rng: np.random.Generator
) -> np.ndarray:
    """J^T J of the text's unit vector and a token's block output, float64 [E, E], of trace E.

    Args:
      config, params: of the encoder; Flax parameters, float32.
      pooling: that makes a text's vector of its states.
      texts: token ids, at least one text.
      rng: that the directions are drawn from.
    """
    width = config.embedding_size
    vector_width = POOLERS[pooling].width(config.hidden_size)
    total, count = np.zeros((width, width)), 0
    for _, ids, mask in batches_by_length(texts, config.pad_token_id, config.usable_positions, TEXTS_AT_ONCE):
        direction = rng.standard_normal((len(ids), vector_width)).astype(np.float32)
        moved_NxE = np.asarray(_gradient(config, pooling, params, ids, mask, direction))[mask]
        total += len(moved_NxE) * second_moment(moved_NxE)
        count += len(moved_NxE)
    metric = total / count
    return (1 - SHRINKAGE) * metric * (width / np.trace(metric)) + SHRINKAGE * np.eye(width)


@partial(jax.jit, static_argnames=("config", "pooling"))
def _gradient(
    config: BertConfig, pooling: str, params: Tree, ids_BxL: Array, mask_BxL: Array, direction_BxD: Array
) -> Array:
    """Of each text's unit vector along a direction, by what its tokens' block outputs are moved by, [B, L, E]."""

    def along(shift_BxLxE: Array) -> Array:
        def shifted(call: Any, args: Any, kwargs: Any, context: nn.module.InterceptorContext) -> Any:
            output = call(*args, **kwargs)
            return output + shift_BxLxE if context.module.name == "embeddings" else output

        with nn.intercept_methods(shifted):
            states: Any = Bert(config).apply({"params": params}, ids_BxL, mask_BxL)
        return jnp.sum(unit(pool(pooling, states, mask_BxL)) * direction_BxD)

    of_token_BxLxE = jax.grad(along)(jnp.zeros((*ids_BxL.shape, config.embedding_size)))
    # A token of a text of n moves its mean by 1/n; tokens of short and long texts count alike.
    return of_token_BxLxE * mask_BxL.sum(1)[:, None, None]
