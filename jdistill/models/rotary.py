"""Rotary positions, and self-attention by them of encoders whose queries, keys and values come of one kernel.

Shapes: B texts, L tokens, H heads, K width of a head, D = H x K width of the layers.

Source: Su et al. 2021.
"""

from __future__ import annotations

from collections.abc import Sequence

import flax.linen as nn
import jax.numpy as jnp
import numpy as np

from jdistill.core.types import Array
from jdistill.models.attention import attend
from jdistill.models.matmul import Dense
from jdistill.models.segments import BiasByQuery, in_blocks

WIDEST_HEAD = 1 << 16  # far wider than any model's: a table of frequencies is made before a tensor is looked at


def rotary_frequencies(theta: float, width: int) -> np.ndarray:
    """Angle per position of each pair of a head's dimensions, float32 [width / 2]."""
    return (1.0 / theta ** (np.arange(0, width, 2, dtype=np.float32) / width)).astype(np.float32)


def rotate(x_BxHxLxK: Array, angle_BxLxHalf: Array) -> Array:
    """Turns the pairs (k, k + K/2) of each head by the angles of their positions.

    Args:
      x_BxHxLxK: queries or keys.
      angle_BxLxHalf: float32, of each position and pair.

    Returns: [B, H, L, K], of x's type.
    """
    cos, sin = jnp.cos(angle_BxLxHalf)[:, None], jnp.sin(angle_BxLxHalf)[:, None]
    first, second = jnp.split(x_BxHxLxK.astype(jnp.float32), 2, axis=-1)
    turned = jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)
    return turned.astype(x_BxHxLxK.dtype)


class RotaryAttention(nn.Module):
    """Multi-head rotary self-attention with its output projection, within each block of a row.

    Args:
      num_heads: H.
      use_bias: of both projections.
      dropout: share of the attention weights that training leaves out.
      dtype: of the computation.

    Args of a call:
      x_BxLxD: states.
      angle_BxLxHalf: float32, of each token and pair of dimensions; B may be 1 where no row has blocks.
      bias: of each block, added to the scores of each head, query by key: broadcast to [B * R, H, W, W].
      deterministic: no dropout.
      blocks: as of models.segments.Segments.
    """

    num_heads: int
    use_bias: bool
    dropout: float
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
        D, H = x_BxLxD.shape[-1], self.num_heads
        K = D // H
        drops = self.dropout and not deterministic

        def drop(weights: Array) -> Array:
            return nn.Dropout(self.dropout)(weights, deterministic=deterministic)

        def mix(qkv_BxLx3D: Array, angle_BxLxHalf: Array, bias: Array | BiasByQuery) -> Array:
            B, L = qkv_BxLx3D.shape[:2]
            query, key, value = qkv_BxLx3D.reshape(B, L, 3, H, K).transpose(2, 0, 3, 1, 4)  # [B, H, L, K] each
            query, key = rotate(query, angle_BxLxHalf), rotate(key, angle_BxLxHalf)
            mixed_BxHxLxK = attend(query, key, value, bias, K**-0.5, drop if drops else None)
            return mixed_BxHxLxK.transpose(0, 2, 1, 3).reshape(B, L, D)

        qkv_BxLx3D = Dense(3 * D, use_bias=self.use_bias, dtype=self.dtype, name="qkv")(x_BxLxD)
        mixed_BxLxD = in_blocks(mix, blocks, [qkv_BxLx3D, angle_BxLxHalf], bias)
        return Dense(D, use_bias=self.use_bias, dtype=self.dtype, name="out")(mixed_BxLxD)
