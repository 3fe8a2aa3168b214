"""The bidirectional encoder that BERT, RoBERTa, DistilBERT and ELECTRA share, as one Flax Linen module.

Shapes: B texts, L tokens, H heads, K width of a head, E width of the token embeddings, D width of the layers, F width
inside the feed-forward block.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import flax.linen as nn
import jax.numpy as jnp

from jdistill.core.types import Array
from jdistill.models.attention import attend
from jdistill.models.bert.config import ACTIVATIONS, BertConfig
from jdistill.models.matmul import Dense
from jdistill.models.segments import BiasByQuery, Segments, as_bias, in_blocks, token_positions


class EmbeddingBlock(nn.Module):
    """Token + position + type embeddings, then LayerNorm, at the embedding width (SimTDE eq. 1: Emb)."""

    config: BertConfig
    dtype: jnp.dtype = jnp.float32

    @nn.compact
    def __call__(self, ids_BxL: Array, deterministic: bool = True, positions_BxL: Array | None = None) -> Array:
        c = self.config

        def table(rows: int, name: str) -> nn.Embed:
            return nn.Embed(rows, c.embedding_size, embedding_init=nn.initializers.normal(0.02), name=name)

        # Tokens stand first and padding last, so a token's position is its column.
        positions = jnp.arange(ids_BxL.shape[1]) if positions_BxL is None else positions_BxL
        # A width may be rounded up beyond the table, whose rows are NaN there; only padding stands so far right.
        positions = jnp.minimum(positions + c.position_offset, c.max_positions - 1)
        x_BxLxE = table(c.vocab_size, "word")(ids_BxL) + table(c.max_positions, "position")(positions)
        if c.type_vocab_size:
            # Not a scalar, which a table of one row, as RoBERTa has it, would not take.
            x_BxLxE = x_BxLxE + table(c.type_vocab_size, "type")(jnp.zeros((1, 1), jnp.int32))
        x_BxLxE = nn.LayerNorm(epsilon=c.layer_norm_eps, name="norm")(x_BxLxE)
        return nn.Dropout(c.hidden_dropout)(x_BxLxE, deterministic=deterministic).astype(self.dtype)


class SelfAttention(nn.Module):
    """Multi-head self-attention with its output projection, within each block of a row.

    Args of a call:
      x_BxLxD: states.
      bias: of each block, added to the scores of each head, query by key: broadcast to [B * R, H, W, W].
      blocks: as of models.segments.Segments.
    """

    config: BertConfig
    dtype: jnp.dtype = jnp.float32

    @nn.compact
    def __call__(
        self,
        x_BxLxD: Array,
        bias: Sequence[Array | BiasByQuery],
        deterministic: bool = True,
        blocks: tuple[tuple[int, int], ...] = (),
    ) -> Array:
        c = self.config
        D, H, K = c.hidden_size, c.num_heads, c.hidden_size // c.num_heads
        drops = c.attention_dropout and not deterministic

        def drop(weights: Array) -> Array:
            return nn.Dropout(c.attention_dropout)(weights, deterministic=deterministic)

        def mix(query_BxLxD: Array, key_BxLxD: Array, value_BxLxD: Array, bias: Array | BiasByQuery) -> Array:
            B, L = query_BxLxD.shape[:2]
            # Heads before tokens: the batched products read rows in order then, which is 2 to 3 times as fast on CPU.
            query_BxHxLxK, key_BxHxLxK, value_BxHxLxK = (
                x.reshape(B, L, H, K).transpose(0, 2, 1, 3) for x in (query_BxLxD, key_BxLxD, value_BxLxD)
            )
            mixed_BxHxLxK = attend(query_BxHxLxK, key_BxHxLxK, value_BxHxLxK, bias, K**-0.5, drop if drops else None)
            return mixed_BxHxLxK.transpose(0, 2, 1, 3).reshape(B, L, D)

        of_heads = [Dense(D, dtype=self.dtype, name=name)(x_BxLxD) for name in ("query", "key", "value")]
        return Dense(D, dtype=self.dtype, name="out")(in_blocks(mix, blocks, of_heads, bias))


class Layer(nn.Module):
    """One post-norm transformer layer: attention, add and norm, feed-forward, add and norm.

    Dropout stands where transformers has it: DistilBERT drops nothing of what attention adds, ALBERT nothing of what the feed-forward adds.
    """

    config: BertConfig
    dtype: jnp.dtype = jnp.float32

    @nn.compact
    def __call__(
        self,
        x_BxLxD: Array,
        bias: Sequence[Array | BiasByQuery],
        deterministic: bool = True,
        blocks: tuple[tuple[int, int], ...] = (),
    ) -> Array:
        c = self.config

        def add_and_norm(name: str, x: Array, update: Array, drops: bool) -> Array:
            update = nn.Dropout(c.hidden_dropout)(update, deterministic=deterministic) if drops else update
            # Statistics in float32 whatever the compute type: a bfloat16 mean of 384 numbers is off in the second
            # digit.
            return nn.LayerNorm(epsilon=c.layer_norm_eps, name=name)(x.astype(jnp.float32) + update).astype(self.dtype)

        attended = SelfAttention(c, self.dtype, name="attention")(x_BxLxD, bias, deterministic, blocks)
        x_BxLxD = add_and_norm("attention_norm", x_BxLxD, attended, c.model_type != "distilbert")
        inner_BxLxF = ACTIVATIONS[c.activation](Dense(c.intermediate_size, dtype=self.dtype, name="up")(x_BxLxD))
        update = Dense(c.hidden_size, dtype=self.dtype, name="down")(inner_BxLxF)
        return add_and_norm("output_norm", x_BxLxD, update, c.model_type != "albert")


class Bert(nn.Module):
    """The encoder. Parameters are float32; `dtype` is the compute type (float32 or bfloat16)."""

    config: BertConfig
    dtype: jnp.dtype = jnp.float32

    @nn.compact
    def __call__(
        self, ids_BxL: Array, mask_BxL: Array, deterministic: bool = True, segments: Segments | None = None
    ) -> tuple[Array, ...]:
        """All hidden states, as transformers counts them: num_layers + 1 arrays [B, L, D], the embeddings' first.

        Args:
          ids_BxL: int32 token ids, padding last in each row.
          mask_BxL: bool or int, true for tokens.
          deterministic: no dropout; else it draws from the rng stream "dropout".
          segments: of several texts in one row.
        """
        c = self.config
        positions = token_positions(c, ids_BxL, segments)
        x = EmbeddingBlock(c, self.dtype, name="embeddings")(ids_BxL, deterministic, positions)
        if c.embedding_size != c.hidden_size:
            x = Dense(c.hidden_size, dtype=self.dtype, name="project")(x)
        bias, blocks = attention_bias(mask_BxL.astype(bool), segments)
        states = [x]
        for i in range(c.num_layers):
            x = Layer(c, self.dtype, name=f"layer_{i}")(x, bias, deterministic, blocks)
            states.append(x)
        return tuple(states)


def attention_bias(
    mask_BxL: Array, segments: Segments | None
) -> tuple[list[Array | BiasByQuery], tuple[tuple[int, int], ...]]:
    """What keeps a token from padding and other texts: of each block a bias, broadcast to [B * R, H, W, W]; and the blocks."""
    if segments is None:
        return [as_bias(mask_BxL)[:, None, None, :]], ()
    return segments.biases(mask_BxL), segments.blocks


def embedding_output(
    config: BertConfig,
    block: Any,
    ids_BxL: Array,
    dtype: jnp.dtype = jnp.float32,
    positions_BxL: Array | None = None,
) -> Array:
    """The embedding block applied to its parameters, without dropout: [B, L, E]."""
    return cast(Array, EmbeddingBlock(config, dtype).apply({"params": block}, ids_BxL, True, positions_BxL))
