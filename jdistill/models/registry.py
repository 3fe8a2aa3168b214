"""Whatever model an Encoder runs, bidirectional encoder, decoder or recurrent: one type, one function."""

from __future__ import annotations

from typing import Any, cast

import jax
import jax.numpy as jnp

from jdistill.models.bert import Bert, BertConfig
from jdistill.models.bilstm import Bilstm, BilstmConfig
from jdistill.models.decoder import Decoder, DecoderConfig

TransformerConfig = BertConfig | DecoderConfig
ModelConfig = TransformerConfig | BilstmConfig


def hidden_states(
    config: ModelConfig,
    params: Any,
    ids_BxL: jax.Array,
    mask_BxL: jax.Array,
    dtype: jnp.dtype = jnp.float32,
    dropout_rng: jax.Array | None = None,
    remat: bool = False,
    packed: tuple[jax.Array, jax.Array] | None = None,
) -> tuple[jax.Array, ...]:
    """The model applied to its parameters: num_layers + 1 arrays [B, L, D], as transformers counts hidden states, the
    embeddings' first, which in a recurrent model are of another width. dropout_rng None: no dropout. remat: a decoder's layers keep no
    activations for the backward pass, which computes them anew. packed: of a decoder alone, see Decoder."""
    rngs = {} if dropout_rng is None else {"dropout": dropout_rng}
    model: Bert | Decoder | Bilstm
    if isinstance(config, BilstmConfig):
        model = Bilstm(config, dtype)
    elif isinstance(config, DecoderConfig):
        model = Decoder(config, dtype, remat)
    else:
        model = Bert(config, dtype)
    more: dict[str, Any] = {} if packed is None else {"packed": packed}
    states = model.apply({"params": params}, ids_BxL, mask_BxL, dropout_rng is None, rngs=rngs, **more)
    return cast(tuple[jax.Array, ...], states)
