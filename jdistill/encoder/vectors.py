"""The vectors of a batch: hidden states, pooler, projections and normalisation as one compiled function; and of many, batch after batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jdistill.core.mapped import slices_of
from jdistill.core.progress import Progress
from jdistill.data.batching.padding import batches_by_length
from jdistill.encoder.batch_ids import IdsOfTexts
from jdistill.losses import embedding
from jdistill.models.dense import apply_dense
from jdistill.models.pooling import pool
from jdistill.models.registry import ModelConfig, hidden_states

TOKENISED_AT_ONCE = 65_536  # whose token ids are in memory at once: a list of them takes forty bytes a token


def fill_vectors(
    out: np.ndarray,
    ids: Sequence[Sequence[int]] | IdsOfTexts,
    limits: tuple[int, int, int],
    embed: Callable[[tuple[np.ndarray, np.ndarray]], Any],
    meter: Progress | None = None,
) -> None:
    """Writes the vectors of texts, some of which are tokenised at a time where they are not yet.

    Args:
      out: float32 [N, dim], which is filled.
      ids: of N texts.
      limits: pad_id, max_length and batch_size of batches_by_length.
      embed: token ids [R, L] and mask -> vectors [R, dim].
      meter: is told of the texts that are done.

    Raises: UserError for a batch_size below 1.
    """
    for part in slices_of(len(ids), TOKENISED_AT_ONCE):
        for numbers, tokens, mask in batches_by_length(ids[part], *limits):
            out[part][numbers] = np.asarray(embed((tokens, mask)))[: len(numbers)]
            if meter is not None:
                meter.advance(len(numbers))


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
