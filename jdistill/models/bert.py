"""The bidirectional encoder that BERT, RoBERTa, DistilBERT and ELECTRA share, as one Flax Linen module.

Shapes: B texts, L tokens, H heads, K width of a head, E width of the token embeddings, D width of the layers, F width
inside the feed-forward block.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import flax.linen as nn
import jax
import jax.numpy as jnp

from jdistill.core.types import Array
from jdistill.models.matmul import Dense, batched, batched_transposed

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    # By erf, which is a quarter cheaper forward on CPU than the erfc that nn.gelu goes through (gradients cost the same).
    "gelu": lambda x: 0.5 * x * (1.0 + jax.lax.erf(x * 0.5**0.5)),
    "gelu_new": lambda x: nn.gelu(x, approximate=True),
    "gelu_pytorch_tanh": lambda x: nn.gelu(x, approximate=True),
    "relu": nn.relu,
    "silu": nn.silu,
}


@dataclass(frozen=True)
class BertConfig:
    """The architecture of an encoder; hashable, so that it can be a static argument of jit."""

    model_type: str  # "bert", "roberta", "distilbert" or "electra": decides names on disk and the three facts below
    vocab_size: int
    embedding_size: int  # E; differs from hidden_size only where a projection follows the embedding block (ELECTRA)
    hidden_size: int  # D
    num_layers: int
    num_heads: int
    intermediate_size: int  # F
    max_positions: int  # rows of the position table, RoBERTa's unused first rows included
    type_vocab_size: int  # 0: no type embeddings (DistilBERT)
    layer_norm_eps: float
    activation: str
    pad_token_id: int
    hidden_dropout: float
    attention_dropout: float

    @property
    def position_offset(self) -> int:
        """The position of the first token: RoBERTa counts from padding_idx + 1, the others from 0."""
        return self.pad_token_id + 1 if self.model_type == "roberta" else 0

    @property
    def usable_positions(self) -> int:
        """The longest sequence, in tokens, that the position table can hold."""
        return self.max_positions - self.position_offset


class EmbeddingBlock(nn.Module):
    """Token + position + type embeddings, then LayerNorm, at the embedding width (SimTDE eq. 1: Emb)."""

    config: BertConfig
    dtype: jnp.dtype = jnp.float32

    @nn.compact
    def __call__(self, ids_BxL: Array, deterministic: bool = True) -> Array:
        c = self.config

        def table(rows: int, name: str) -> nn.Embed:
            return nn.Embed(rows, c.embedding_size, embedding_init=nn.initializers.normal(0.02), name=name)

        # Tokens stand first and padding last, so a token's position is its column.
        positions_L = jnp.arange(ids_BxL.shape[1]) + c.position_offset
        x_BxLxE = table(c.vocab_size, "word")(ids_BxL) + table(c.max_positions, "position")(positions_L)
        if c.type_vocab_size:
            x_BxLxE = x_BxLxE + table(c.type_vocab_size, "type")(jnp.zeros((), jnp.int32))
        x_BxLxE = nn.LayerNorm(epsilon=c.layer_norm_eps, name="norm")(x_BxLxE)
        return nn.Dropout(c.hidden_dropout)(x_BxLxE, deterministic=deterministic).astype(self.dtype)


class SelfAttention(nn.Module):
    """Multi-head self-attention with its output projection; padding is never attended to."""

    config: BertConfig
    dtype: jnp.dtype = jnp.float32

    @nn.compact
    def __call__(self, x_BxLxD: Array, mask_BxL: Array, deterministic: bool = True) -> Array:
        c = self.config
        B, L, D = x_BxLxD.shape
        H, K = c.num_heads, c.hidden_size // c.num_heads

        def heads(name: str) -> Array:
            # Heads before tokens: the batched products below then read rows in order, which is 2 to 3 times as fast
            # on CPU.
            return Dense(D, dtype=self.dtype, name=name)(x_BxLxD).reshape(B, L, H, K).transpose(0, 2, 1, 3)

        query_BxHxLxK, key_BxHxLxK, value_BxHxLxK = heads("query"), heads("key"), heads("value")
        scores_BxHxLxL = batched_transposed(query_BxHxLxK, key_BxHxLxK).astype(jnp.float32) * K**-0.5
        scores_BxHxLxL += jnp.where(mask_BxL, 0.0, jnp.finfo(jnp.float32).min)[:, None, None, :]
        weights_BxHxLxL = nn.softmax(scores_BxHxLxL, axis=-1).astype(self.dtype)
        weights_BxHxLxL = nn.Dropout(c.attention_dropout)(weights_BxHxLxL, deterministic=deterministic)
        out_BxHxLxK = batched(weights_BxHxLxL, value_BxHxLxK)
        return Dense(D, dtype=self.dtype, name="out")(out_BxHxLxK.transpose(0, 2, 1, 3).reshape(B, L, D))


class Layer(nn.Module):
    """One post-norm transformer layer: attention, add and norm, feed-forward, add and norm."""

    config: BertConfig
    dtype: jnp.dtype = jnp.float32

    @nn.compact
    def __call__(self, x_BxLxD: Array, mask_BxL: Array, deterministic: bool = True) -> Array:
        c = self.config

        def add_and_norm(name: str, x: Array, update: Array) -> Array:
            update = nn.Dropout(c.hidden_dropout)(update, deterministic=deterministic)
            # Statistics in float32 whatever the compute type: a bfloat16 mean of 384 numbers is off in the second
            # digit.
            return nn.LayerNorm(epsilon=c.layer_norm_eps, name=name)(x.astype(jnp.float32) + update).astype(self.dtype)

        attended = SelfAttention(c, self.dtype, name="attention")(x_BxLxD, mask_BxL, deterministic)
        x_BxLxD = add_and_norm("attention_norm", x_BxLxD, attended)
        inner_BxLxF = ACTIVATIONS[c.activation](Dense(c.intermediate_size, dtype=self.dtype, name="up")(x_BxLxD))
        return add_and_norm("output_norm", x_BxLxD, Dense(c.hidden_size, dtype=self.dtype, name="down")(inner_BxLxF))


class Bert(nn.Module):
    """The encoder. Parameters are float32; `dtype` is the compute type (float32 or bfloat16)."""

    config: BertConfig
    dtype: jnp.dtype = jnp.float32

    @nn.compact
    def __call__(self, ids_BxL: Array, mask_BxL: Array, deterministic: bool = True) -> tuple[Array, ...]:
        """All hidden states, as transformers counts them: num_layers + 1 arrays [B, L, D], the embeddings' first.

        ids_BxL: int32 token ids, padding last in each row. mask_BxL: bool or int, true for tokens. With
        `deterministic=False` dropout draws from the rng stream "dropout".
        """
        c = self.config
        x = EmbeddingBlock(c, self.dtype, name="embeddings")(ids_BxL, deterministic)
        if c.embedding_size != c.hidden_size:
            x = Dense(c.hidden_size, dtype=self.dtype, name="project")(x)
        mask_BxL = mask_BxL.astype(bool)
        states = [x]
        for i in range(c.num_layers):
            x = Layer(c, self.dtype, name=f"layer_{i}")(x, mask_BxL, deterministic)
            states.append(x)
        return tuple(states)


def embedding_output(config: BertConfig, block: Any, ids_BxL: Array, dtype: jnp.dtype = jnp.float32) -> Array:
    """The embedding block applied to its parameters, without dropout: [B, L, E]."""
    return cast(Array, EmbeddingBlock(config, dtype).apply({"params": block}, ids_BxL))
