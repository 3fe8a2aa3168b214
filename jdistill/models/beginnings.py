"""Beginnings that many texts share, such as a judge's instructions: a decoder reads each once, and the rest of every text attends to it.

Shapes: n beginnings, P tokens of the longest, B texts, L tokens of the longest rest, M = P + L, D width of the layers.
"""

from __future__ import annotations

import jax.numpy as jnp
from flax import struct

from jdistill.core.types import Array
from jdistill.models.segments import BiasByQuery, Segments


@struct.dataclass
class Beginnings:
    """What a decoder has made of the beginnings; a causal one makes the same of them whatever follows.

    Args:
      states: all hidden states, num_layers + 1 arrays [n, P, D]; the i-th is what layer i reads.
      mask_nxP: bool, true for tokens.
      of_B: int32, the beginning of each text.
    """

    states: tuple[Array, ...]
    mask_nxP: Array
    of_B: Array

    def joined(self, mask_BxL: Array, segments: Segments) -> tuple[Array, Segments]:
        """What stands before each rest and the rest, as keys: the mask, bool [B, M], and the segments of such rows, each one text.

        Args:
          mask_BxL, segments: of the rests alone.
        """
        before_nxP = jnp.maximum(jnp.cumsum(self.mask_nxP, axis=1) - 1, 0)
        after_BxL = segments.positions_BxL + self.mask_nxP.sum(1)[self.of_B][:, None]
        positions_BxM = jnp.concatenate([before_nxP[self.of_B], after_BxL], axis=1)
        mask_BxM = jnp.concatenate([self.mask_nxP[self.of_B], mask_BxL], axis=1)
        return mask_BxM, Segments(jnp.zeros_like(positions_BxM), positions_BxM)

    def of_rests(self, bias: Array | BiasByQuery) -> Array:
        """The rows of a bias of all M queries that are the rests': [B, 1, L, M]."""
        P = self.mask_nxP.shape[1]
        return bias.of_queries(P, bias.width - P) if isinstance(bias, BiasByQuery) else bias[..., P:, :]
