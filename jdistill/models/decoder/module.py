"""The decoder that Llama's family and Gemma 3 share, as one Flax Linen module; causal, or reading both ways.

Shapes: B texts, L tokens, M those that are attended to, L but where texts go on from beginnings; H query heads, G key/value heads, K width of
a head, D width of the layers, F width inside the feed-forward block, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from jdistill.core.types import Array, Tree
from jdistill.models.attention import attend
from jdistill.models.beginnings import Beginnings
from jdistill.models.bert import ACTIVATIONS
from jdistill.models.decoder.config import DecoderConfig
from jdistill.models.matmul import Dense
from jdistill.models.rotary import rotary_frequencies, rotate
from jdistill.models.segments import BiasByQuery, Segments, in_blocks


def rope_frequencies(config: DecoderConfig, sliding: bool = False) -> np.ndarray:
    """Angle per position of each pair of dimensions, float32 [K / 2], with Llama 3.1's scaling where the config asks for it.

    Args:
      sliding: of a sliding layer, which may have a theta of its own.

    Source: Su et al. 2021.
    """
    local = sliding and config.local_rope_theta > 0
    frequencies = rotary_frequencies(config.local_rope_theta if local else config.rope_theta, config.head_size)
    if config.rope_scaling is None or local:
        return frequencies
    factor, low, high, original = config.rope_scaling
    turns = original * frequencies / (2 * np.pi)  # over the positions that it was first trained on
    share = np.clip((turns - low) / (high - low), 0.0, 1.0)  # 1: fast dimensions stay; 0: slow ones are stretched
    return (share * frequencies + (1 - share) * frequencies / factor).astype(np.float32)


def first_state(config: DecoderConfig, rows_BxLxD: Array, dtype: jnp.dtype) -> Array:
    """Rows of the token table as the first state, of the type: Gemma scales them by sqrt(D)."""
    return (rows_BxLxD * config.hidden_size**0.5 if config.gemma else rows_BxLxD).astype(dtype)


class RMSNorm(nn.Module):
    """x / rms(x) * scale over the last axis, statistics in float32; from_one: times 1 + scale (Gemma)."""

    eps: float
    from_one: bool = False

    @nn.compact
    def __call__(self, x: Array) -> Array:
        start = nn.initializers.zeros if self.from_one else nn.initializers.ones
        scale = self.param("scale", start, (x.shape[-1],))
        scale = 1.0 + scale if self.from_one else scale
        wide = x.astype(jnp.float32)
        return (wide * jax.lax.rsqrt(jnp.square(wide).mean(-1, keepdims=True) + self.eps) * scale).astype(x.dtype)


class GroupedAttention(nn.Module):
    """Rotary self-attention in which H / G query heads share a key/value head; padding is never attended to."""

    config: DecoderConfig
    dtype: jnp.dtype = jnp.float32

    @nn.compact
    def __call__(
        self,
        x_BxLxD: Array,
        angle_BxMxHalf: Array,
        bias: Sequence[Array | BiasByQuery],
        deterministic: bool,
        blocks: tuple[tuple[int, int], ...] = (),
        # Normed states of beginnings [n, P, D], and of which each text is, [B].
        before: tuple[Array, Array] | None = None,
    ) -> Array:
        c = self.config

        def heads_by(count: int, name: str) -> Callable[[Array], Array]:
            dense = Dense(count * c.head_size, use_bias=c.qkv_bias, dtype=self.dtype, name=name)

            def heads(x: Array) -> Array:
                return dense(x).reshape(*x.shape[:2], count, c.head_size)

            return heads

        query = heads_by(c.num_heads, "query")(x_BxLxD)
        as_key, as_value = heads_by(c.num_kv_heads, "key"), heads_by(c.num_kv_heads, "value")
        key, value = as_key(x_BxLxD), as_value(x_BxLxD)
        if before is not None:
            state_nxPxD, of_B = before
            key = jnp.concatenate([as_key(state_nxPxD)[of_B], key], axis=1)
            value = jnp.concatenate([as_value(state_nxPxD)[of_B], value], axis=1)
        if c.qk_norm:
            query = RMSNorm(c.rms_norm_eps, c.gemma, name="query_norm")(query)
            key = RMSNorm(c.rms_norm_eps, c.gemma, name="key_norm")(key)
        scale = (c.query_scalar or c.head_size) ** -0.5
        drops = c.attention_dropout and not deterministic

        def drop(weights: Array) -> Array:
            return nn.Dropout(c.attention_dropout)(weights, deterministic=deterministic)

        def mix(query: Array, key: Array, value: Array, angle_BxMxHalf: Array, bias: Array | BiasByQuery) -> Array:
            query, key, value_BxGxLxK = (x.transpose(0, 2, 1, 3) for x in (query, key, value))
            query_BxHxLxK = rotate(query, angle_BxMxHalf[:, -query.shape[2] :])
            key_BxGxLxK = rotate(key, angle_BxMxHalf)
            group = c.num_heads // c.num_kv_heads
            key_BxHxLxK, value_BxHxLxK = (jnp.repeat(x, group, axis=1) for x in (key_BxGxLxK, value_BxGxLxK))
            mixed_BxHxLxK = attend(query_BxHxLxK, key_BxHxLxK, value_BxHxLxK, bias, scale, drop if drops else None)
            mixed_BxLxHxK = mixed_BxHxLxK.transpose(0, 2, 1, 3)
            return mixed_BxLxHxK.reshape(*mixed_BxLxHxK.shape[:2], -1)

        out_BxLxHK = in_blocks(mix, blocks, [query, key, value, angle_BxMxHalf], bias)
        return Dense(c.hidden_size, use_bias=c.out_bias, dtype=self.dtype, name="out")(out_BxLxHK)


class DecoderLayer(nn.Module):
    """One pre-norm layer: norm, attention, add; norm, gated feed-forward, add. Gemma's norms what is added, too."""

    config: DecoderConfig
    dtype: jnp.dtype = jnp.float32

    @nn.compact
    def __call__(
        self,
        x_BxLxD: Array,
        angle_BxMxHalf: Array,
        bias: Sequence[Array | BiasByQuery],
        deterministic: bool,
        blocks: tuple[tuple[int, int], ...] = (),
        # This layer's input of beginnings [n, P, D], and of which each text is, [B].
        before: tuple[Array, Array] | None = None,
    ) -> Array:
        c = self.config

        def dense(width: int, name: str) -> Dense:
            return Dense(width, use_bias=c.mlp_bias, dtype=self.dtype, name=name)

        def norm(name: str) -> RMSNorm:
            return RMSNorm(c.rms_norm_eps, c.gemma, name=name)

        def add(x: Array, update: Array, name: str) -> Array:
            update = norm(name)(update) if c.gemma else update
            return x + nn.Dropout(c.hidden_dropout)(update, deterministic=deterministic)

        attention_norm, attention = norm("attention_norm"), GroupedAttention(c, self.dtype, name="attention")
        normed_before = None if before is None else (attention_norm(before[0]), before[1])
        attended = attention(attention_norm(x_BxLxD), angle_BxMxHalf, bias, deterministic, blocks, normed_before)
        x_BxLxD = add(x_BxLxD, attended, "attended_norm")
        normed = norm("output_norm")(x_BxLxD)
        gate_BxLxF = ACTIVATIONS[c.activation](dense(c.intermediate_size, "gate")(normed))
        inner_BxLxF = gate_BxLxF * dense(c.intermediate_size, "up")(normed)
        return add(x_BxLxD, dense(c.hidden_size, "down")(inner_BxLxF), "down_norm")


class Decoder(nn.Module):
    """The decoder without its output layer. Parameters are float32; `dtype` is the compute type."""

    config: DecoderConfig
    dtype: jnp.dtype = jnp.float32
    remat: bool = False

    @nn.compact
    def __call__(
        self,
        ids_BxL: Array,
        mask_BxL: Array,
        deterministic: bool = True,
        segments: Segments | None = None,
        before: Beginnings | None = None,
    ) -> tuple[Array, ...]:
        """All hidden states, as transformers counts them: num_layers + 1 arrays [B, L, D], the embeddings' first, the last
        one after the final norm.

        Args:
          ids_BxL: int32 token ids; padding may stand on either side.
          mask_BxL: bool or int, true for tokens.
          deterministic: no dropout; else it draws from the rng stream "dropout".
          segments: of several texts in one row.
          before: what each row goes on from; None: a row is whole. A causal decoder's rows, each of which is one text.

        Raises: ValueError for beginnings of another kind of rows or decoder.
        """
        c = self.config
        if before is not None and (segments is not None or not c.causal):
            raise ValueError("beginnings are of a causal decoder, and of rows that are one text each")
        mask_BxL = mask_BxL.astype(bool)
        if segments is None:  # each row is one text
            counted_BxL = jnp.maximum(jnp.cumsum(mask_BxL, axis=1) - 1, 0)
            segments = Segments(jnp.zeros_like(counted_BxL), counted_BxL)
        mask_BxM, of_keys = (mask_BxL, segments) if before is None else before.joined(mask_BxL, segments)
        windows = [c.window(i) for i in range(c.num_layers)]
        angles, biases = {}, {}  # of the layers that see all, and of those that slide
        for window in dict.fromkeys(windows):
            frequencies = rope_frequencies(c, window is not None)
            angles[window] = of_keys.positions_BxL[:, :, None] * jnp.asarray(frequencies)
            biases[window] = of_keys.biases(mask_BxM, c.causal, window)
            if before is not None:
                biases[window] = [before.of_rests(bias) for bias in biases[window]]
        init = nn.initializers.normal(0.02)
        word = nn.Embed(c.vocab_size, c.hidden_size, embedding_init=init, name="word")
        x = first_state(c, word(ids_BxL), self.dtype)
        x = nn.Dropout(c.hidden_dropout)(x, deterministic=deterministic)
        states = [x]
        kind = (
            nn.remat(DecoderLayer, static_argnums=(4, 5)) if self.remat else DecoderLayer
        )  # deterministic and blocks, self being 0
        for i, window in enumerate(windows):
            layer = kind(c, self.dtype, name=f"layer_{i}")
            begun = None if before is None else (before.states[i], before.of_B)
            x = layer(x, angles[window], biases[window], deterministic, segments.blocks, begun)
            states.append(x)
        states[-1] = RMSNorm(c.rms_norm_eps, c.gemma, name="final_norm")(x)
        return tuple(states)


def next_token_logits(config: DecoderConfig, params: Tree, state_BxLxD: Array) -> Array:
    """Next-token logits from the last hidden state, by the token table or the output layer.

    Args:
      params: Flax, with "head" where the output layer is not the token table.
      state_BxLxD: after the final norm.

    Returns: float32 [B, L, V].
    """
    table_VxD = params["word"]["embedding"] if config.tied else params["head"]["kernel"].T
    return jnp.dot(state_BxLxD.astype(jnp.float32), table_VxD.T)
