"""Whatever transformer an Encoder runs, bidirectional encoder or decoder: one type, one function."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from jdistill.models import bert, decoder
from jdistill.models.bert import BertConfig
from jdistill.models.decoder import DecoderConfig

ModelConfig = BertConfig | DecoderConfig


def hidden_states(
    config: ModelConfig,
    params: Any,
    ids_BxL: jax.Array,
    mask_BxL: jax.Array,
    dtype: jnp.dtype = jnp.float32,
    dropout_rng: jax.Array | None = None,
) -> tuple[jax.Array, ...]:
    """The model applied to its parameters: num_layers + 1 arrays [B, L, D], as transformers counts hidden states, the
    embeddings' first. dropout_rng None: no dropout."""
    model = decoder if isinstance(config, DecoderConfig) else bert
    return model.hidden_states(config, params, ids_BxL, mask_BxL, dtype, dropout_rng)  # type: ignore[arg-type]
