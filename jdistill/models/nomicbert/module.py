"""NomicBERT as one Flax Linen module: BERT's post-norm layers with rotary positions and a gated feed-forward block.

Shapes: B texts, L tokens, D width of the layers, F width inside the feed-forward block.

Source: Nussbaum et al. 2024.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import flax.linen as nn
import jax.numpy as jnp

from jdistill.core.types import Array
from jdistill.models.bert import ACTIVATIONS
from jdistill.models.bert.module import attention_bias
from jdistill.models.matmul import Dense
from jdistill.models.nomicbert.config import NomicBertConfig
from jdistill.models.rotary import RotaryAttention, rotary_frequencies
from jdistill.models.segments import BiasByQuery, Segments


class TypedEmbedding(nn.Module):
    """Token + type embeddings, then LayerNorm; every token is of type 0, positions are the layers' own."""

    config: NomicBertConfig
    dtype: jnp.dtype = jnp.float32

    @nn.compact
    def __call__(self, ids_BxL: Array, deterministic: bool = True) -> Array:
        c, init = self.config, nn.initializers.normal(0.02)
        tokens = nn.Embed(c.vocab_size, c.hidden_size, embedding_init=init, name="word")(ids_BxL)
        # Not a scalar, which a table of one row would not take.
        of_type = nn.Embed(c.type_vocab_size, c.hidden_size, embedding_init=init, name="type")(
            jnp.zeros((1, 1), jnp.int32)
        )
        x_BxLxD = nn.LayerNorm(epsilon=c.layer_norm_eps, name="norm")(tokens + of_type)
        return nn.Dropout(c.hidden_dropout)(x_BxLxD, deterministic=deterministic).astype(self.dtype)


class NomicBertLayer(nn.Module):
    """One post-norm layer: attention, add and norm; gated feed-forward, add and norm."""

    config: NomicBertConfig
    dtype: jnp.dtype = jnp.float32

    @nn.compact
    def __call__(
        self,
        x_BxLxD: Array,
        angle_BxLxHalf: Array,
        bias: Sequence[Array | BiasByQuery],
        deterministic: bool = True,
        blocks: tuple[tuple[int, int], ...] = (),
    ) -> Array:
        c = self.config

        def dense(width: int, name: str) -> Dense:
            return Dense(width, use_bias=False, dtype=self.dtype, name=name)

        def add_and_norm(name: str, x: Array, update: Array) -> Array:
            update = nn.Dropout(c.hidden_dropout)(update, deterministic=deterministic)
            # Statistics in float32 whatever the compute type.
            return nn.LayerNorm(epsilon=c.layer_norm_eps, name=name)(x.astype(jnp.float32) + update).astype(self.dtype)

        attention = RotaryAttention(c.num_heads, False, c.attention_dropout, self.dtype, name="attention")
        attended = attention(x_BxLxD, angle_BxLxHalf, bias, deterministic, blocks)
        x_BxLxD = add_and_norm("attention_norm", x_BxLxD, attended)
        gate_BxLxF = ACTIVATIONS[c.activation](dense(c.intermediate_size, "gate")(x_BxLxD))
        inner_BxLxF = dense(c.intermediate_size, "up")(x_BxLxD) * gate_BxLxF
        return add_and_norm("output_norm", x_BxLxD, dense(c.hidden_size, "down")(inner_BxLxF))


class NomicBert(nn.Module):
    """The encoder. Parameters are float32; `dtype` is the compute type (float32 or bfloat16)."""

    config: NomicBertConfig
    dtype: jnp.dtype = jnp.float32

    @nn.compact
    def __call__(
        self, ids_BxL: Array, mask_BxL: Array, deterministic: bool = True, segments: Segments | None = None
    ) -> tuple[Array, ...]:
        """All hidden states, num_layers + 1 arrays [B, L, D], the embeddings' first.

        Args:
          ids_BxL, mask_BxL, deterministic, segments: as of models.bert.Bert.
        """
        c = self.config
        frequencies = jnp.asarray(rotary_frequencies(c.rope_theta, c.hidden_size // c.num_heads))
        positions = jnp.arange(ids_BxL.shape[1])[None] if segments is None else segments.positions_BxL
        bias, blocks = attention_bias(mask_BxL.astype(bool), segments)
        states = [TypedEmbedding(c, self.dtype, name="embeddings")(ids_BxL, deterministic)]
        for i in range(c.num_layers):
            layer = NomicBertLayer(c, self.dtype, name=f"layer_{i}")
            states.append(layer(states[-1], positions[..., None] * frequencies, bias, deterministic, blocks))
        return tuple(states)


def embedded(config: NomicBertConfig, block: Any, ids_BxL: Array, dtype: jnp.dtype) -> Array:
    """The embeddings' state by their parameters, without dropout: [B, L, D]."""
    return cast(Array, TypedEmbedding(config, dtype).apply({"params": block}, ids_BxL))
