"""The encoder of T5 (Raffel et al. 2020) as one Flax Linen module.

Shapes: B texts, L tokens, H heads, K width of a head, D width of the layers, F width inside the feed-forward block.
"""

from __future__ import annotations

from collections.abc import Sequence

import flax.linen as nn
import jax.numpy as jnp

from jdistill.core.types import Array
from jdistill.models.attention import attend
from jdistill.models.bert import ACTIVATIONS
from jdistill.models.bert.module import attention_bias
from jdistill.models.decoder.module import RMSNorm
from jdistill.models.matmul import Dense
from jdistill.models.relative import with_distances
from jdistill.models.segments import BiasByQuery, Segments, in_blocks
from jdistill.models.t5.config import T5Config


class UnscaledAttention(nn.Module):
    """Self-attention whose scores are not divided by the heads' width, which the weights make up for; arguments as of bert's."""

    config: T5Config
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
        drops = c.attention_dropout and not deterministic

        def drop(weights: Array) -> Array:
            return nn.Dropout(c.attention_dropout)(weights, deterministic=deterministic)

        def mix(query_BxLxHK: Array, key_BxLxHK: Array, value_BxLxHK: Array, bias_BxHxLxL: Array) -> Array:
            query_BxHxLxK, key_BxHxLxK, value_BxHxLxK = (
                x.reshape(*x.shape[:2], c.num_heads, c.head_size).transpose(0, 2, 1, 3)
                for x in (query_BxLxHK, key_BxLxHK, value_BxLxHK)
            )
            mixed_BxHxLxK = attend(
                query_BxHxLxK, key_BxHxLxK, value_BxHxLxK, bias_BxHxLxL, drop=drop if drops else None
            )
            return mixed_BxHxLxK.transpose(0, 2, 1, 3).reshape(query_BxLxHK.shape)

        def dense(width: int, name: str) -> Dense:
            return Dense(width, use_bias=False, dtype=self.dtype, name=name)

        of_heads = [dense(c.num_heads * c.head_size, name)(x_BxLxD) for name in ("query", "key", "value")]
        return dense(c.hidden_size, "out")(in_blocks(mix, blocks, of_heads, bias))


class T5Layer(nn.Module):
    """One pre-norm layer: norm, attention, add; norm, feed-forward, gated or not, add.

    States are float32 whatever the compute type: in a trained T5 they may pass 65,504, where float16 ends, and a bfloat16 sum as large
    loses what a layer adds. For float16's sake the product that makes them so large is float32 there too.
    """

    config: T5Config
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
        drop = nn.Dropout(c.hidden_dropout, deterministic=deterministic)

        def dense(width: int, name: str, dtype: jnp.dtype = self.dtype) -> Dense:
            return Dense(width, use_bias=False, dtype=dtype, name=name)

        normed = RMSNorm(c.rms_norm_eps, name="attention_norm")(x_BxLxD).astype(self.dtype)
        attended = UnscaledAttention(c, self.dtype, name="attention")(normed, bias, deterministic, blocks)
        x_BxLxD = x_BxLxD + drop(attended)
        normed = RMSNorm(c.rms_norm_eps, name="output_norm")(x_BxLxD).astype(self.dtype)
        activation, up_BxLxF = ACTIVATIONS[c.activation], dense(c.intermediate_size, "up")(normed)
        inner_BxLxF = (
            activation(dense(c.intermediate_size, "gate")(normed)) * up_BxLxF if c.gated else activation(up_BxLxF)
        )
        wide = jnp.float32 if self.dtype == jnp.float16 else self.dtype
        return x_BxLxD + drop(dense(c.hidden_size, "down", wide)(drop(inner_BxLxF)))


class T5Encoder(nn.Module):
    """The encoder. Parameters are float32; `dtype` is the compute type."""

    config: T5Config
    dtype: jnp.dtype = jnp.float32

    @nn.compact
    def __call__(
        self, ids_BxL: Array, mask_BxL: Array, deterministic: bool = True, segments: Segments | None = None
    ) -> tuple[Array, ...]:
        """All hidden states, as transformers counts them: num_layers + 1 arrays [B, L, D], the embeddings' first, the last one after the
        final norm; float32, the last of the compute type. Arguments as of models.bert.Bert.
        """
        c = self.config
        normal = nn.initializers.normal(1.0)
        relative = nn.Embed(c.buckets, c.num_heads, embedding_init=normal, name="relative")
        unseen, blocks = attention_bias(mask_BxL.astype(bool), segments)
        bias = with_distances(unseen, relative, c.buckets, c.farthest)
        drop = nn.Dropout(c.hidden_dropout, deterministic=deterministic)
        states = [drop(nn.Embed(c.vocab_size, c.hidden_size, embedding_init=normal, name="word")(ids_BxL))]
        for i in range(c.num_layers):
            states.append(T5Layer(c, self.dtype, name=f"layer_{i}")(states[-1], bias, deterministic, blocks))
        states[-1] = drop(RMSNorm(c.rms_norm_eps, name="final_norm")(states[-1])).astype(self.dtype)
        return tuple(states)
