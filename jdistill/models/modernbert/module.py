"""ModernBERT as one Flax Linen module: rotary pre-norm layers, some of which see no farther than a window.

Shapes: B texts, L tokens, H heads, D width of the layers, F width inside the feed-forward block.

Source: Warner et al. 2024.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import flax.linen as nn
import jax.numpy as jnp

from jdistill.core.types import Array
from jdistill.models.bert import ACTIVATIONS
from jdistill.models.matmul import Dense
from jdistill.models.modernbert.config import GLOBAL, LOCAL, ModernBertConfig
from jdistill.models.rotary import RotaryAttention, rotary_frequencies
from jdistill.models.segments import BiasByQuery, Segments


def _layer_norm(config: ModernBertConfig, x: Array, name: str, dtype: jnp.dtype) -> Array:
    """LayerNorm over the last axis within a module, statistics in float32."""
    norm = nn.LayerNorm(epsilon=config.norm_eps, use_bias=config.norm_bias, name=name)
    return norm(x.astype(jnp.float32)).astype(dtype)


class TokenEmbedding(nn.Module):
    """Token embeddings, then LayerNorm; positions are the layers' own."""

    config: ModernBertConfig
    dtype: jnp.dtype = jnp.float32

    @nn.compact
    def __call__(self, ids_BxL: Array, deterministic: bool = True) -> Array:
        c = self.config
        table = nn.Embed(c.vocab_size, c.hidden_size, embedding_init=nn.initializers.normal(0.02), name="word")
        x_BxLxD = _layer_norm(c, table(ids_BxL), "norm", self.dtype)
        return nn.Dropout(c.embedding_dropout)(x_BxLxD, deterministic=deterministic)


class ModernBertLayer(nn.Module):
    """One layer: norm, attention, add; norm, gated feed-forward, add. The first has no norm before its attention."""

    config: ModernBertConfig
    is_first: bool
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
        normed = x_BxLxD if self.is_first else _layer_norm(c, x_BxLxD, "attention_norm", self.dtype)
        attention = RotaryAttention(c.num_heads, c.attention_bias, c.attention_dropout, self.dtype, name="attention")
        attended = attention(normed, angle_BxLxHalf, bias, deterministic, blocks)
        x_BxLxD = x_BxLxD + nn.Dropout(c.attention_dropout)(attended, deterministic=deterministic)
        normed = _layer_norm(c, x_BxLxD, "output_norm", self.dtype)
        wide_BxLx2F = Dense(2 * c.intermediate_size, use_bias=c.mlp_bias, dtype=self.dtype, name="up")(normed)
        inner_BxLxF, gate_BxLxF = jnp.split(wide_BxLx2F, 2, axis=-1)
        gated_BxLxF = ACTIVATIONS[c.activation](inner_BxLxF) * gate_BxLxF
        gated_BxLxF = nn.Dropout(c.mlp_dropout)(gated_BxLxF, deterministic=deterministic)
        return x_BxLxD + Dense(c.hidden_size, use_bias=c.mlp_bias, dtype=self.dtype, name="down")(gated_BxLxF)


class ModernBert(nn.Module):
    """The encoder. Parameters are float32; `dtype` is the compute type (float32 or bfloat16)."""

    config: ModernBertConfig
    dtype: jnp.dtype = jnp.float32

    @nn.compact
    def __call__(
        self, ids_BxL: Array, mask_BxL: Array, deterministic: bool = True, segments: Segments | None = None
    ) -> tuple[Array, ...]:
        """All hidden states, num_layers + 1 arrays [B, L, D], the embeddings' first, the last one after the final norm.

        Args:
          ids_BxL: int32 token ids.
          mask_BxL: bool or int, true for tokens.
          deterministic: no dropout; else it draws from the rng stream "dropout".
          segments: of several texts in one row.
        """
        c = self.config
        width = c.hidden_size // c.num_heads
        positions = jnp.arange(ids_BxL.shape[1])[None] if segments is None else segments.positions_BxL
        theta = {GLOBAL: c.global_theta, LOCAL: c.local_theta}
        angle = {kind: positions[..., None] * jnp.asarray(rotary_frequencies(theta[kind], width)) for kind in theta}
        bias = attention_biases(mask_BxL.astype(bool), positions, segments, c.reach)
        blocks = () if segments is None else segments.blocks
        x_BxLxD = TokenEmbedding(c, self.dtype, name="embeddings")(ids_BxL, deterministic)
        states = [x_BxLxD]
        for i, kind in enumerate(c.layer_types[: c.num_layers]):
            layer = ModernBertLayer(c, i == 0, self.dtype, name=f"layer_{i}")
            states.append(layer(states[-1], angle[kind], bias[kind], deterministic, blocks))
        states[-1] = _layer_norm(c, states[-1], "final_norm", self.dtype)
        return tuple(states)


def attention_biases(
    mask_BxL: Array, positions_BxL: Array, segments: Segments | None, reach: int
) -> dict[str, list[Array | BiasByQuery]]:
    """What keeps a token from padding, other texts and, in a local layer, what is farther than `reach` tokens away.

    Returns: for either kind of layer, of each block what is added to the scores, broadcast to [B * R, H, W, W].
    """
    if segments is None:  # each row is one text
        segments = Segments(jnp.zeros_like(mask_BxL, jnp.int32), jnp.broadcast_to(positions_BxL, mask_BxL.shape))
    windows = {GLOBAL: None, LOCAL: reach}
    return {kind: segments.biases(mask_BxL, window=window) for kind, window in windows.items()}


def embedding_state(config: ModernBertConfig, block: Any, ids_BxL: Array, dtype: jnp.dtype) -> Array:
    """The embeddings' state by their parameters, without dropout: [B, L, D]."""
    return cast(Array, TokenEmbedding(config, dtype).apply({"params": block}, ids_BxL))
