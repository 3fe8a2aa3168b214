"""Several texts in one row of tokens: which token is whose, and attention within each row of it.

Tokens may stand in blocks of rows, which alone attend: all else of a layer sees tokens, however they are arranged. XLA's CPU shares
an operation among cores by the first axis, so an arrangement has many rows, whatever the blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from jdistill.core.types import Array

LONG = 1024  # tokens of a row, above which no matrix of all its queries and keys is made


@struct.dataclass
class Segments:
    """Whose each token of B x L is.

    Args:
      of_BxL: int32, the number of a token's text from 1. 0: a beginning that all texts of the row share, or, where masked,
        padding.
      positions_BxL: int32, of a token in its text.
      blocks: rows R and width W of each block of a group, one after another; the tokens are one group after another. (): a row of B is
        one in which tokens attend.
    """

    of_BxL: Array
    positions_BxL: Array
    blocks: tuple[tuple[int, int], ...] = struct.field(pytree_node=False, default=())

    def biases(self, mask_BxL: Array, causal: bool = False, window: int | None = None) -> list[Array | BiasByQuery]:
        """Of each block what is added to the scores of attention, so that a query sees its own text's keys and those of segment 0.

        Args:
          mask_BxL: bool, true for tokens.
          causal: a token sees none after it.
          window: how many positions to each side a token sees, itself not counted; None: all.

        Returns: float32, broadcast to [groups * R, H, W, W]; of a block wider than LONG, what computes it for some queries at a time.
        """
        parts = blocks_of(self.blocks, mask_BxL, self.of_BxL, self.positions_BxL)
        by_query = [BiasByQuery(mask, of, positions, causal, window) for mask, of, positions in parts]
        return [bias if bias.width > LONG else bias.of_all() for bias in by_query]


@struct.dataclass
class BiasByQuery:
    """What is added to the scores of a block's queries, computed for those that are asked for.

    Args:
      mask_RxW: bool, true for tokens.
      of_RxW, positions_RxW: as of Segments.
      causal, window: as of Segments.biases.
    """

    mask_RxW: Array
    of_RxW: Array
    positions_RxW: Array
    causal: bool = struct.field(pytree_node=False, default=False)
    window: int | None = struct.field(pytree_node=False, default=None)

    @property
    def width(self) -> int:
        """Tokens of a row."""
        return int(self.mask_RxW.shape[1])

    def of_all(self) -> Array:
        """For every query: [R, 1, W, W]."""
        return self._of(self.of_RxW, self.positions_RxW, jnp.arange(self.width))

    def of_queries(self, start: Array | int, count: int) -> Array:
        """For `count` queries from `start` on, float32 [R, 1, count, W]; for those beyond the row whatever its last ones have."""
        padding = ((0, 0), (0, count))

        def some(x: Array) -> Array:
            return jax.lax.dynamic_slice_in_dim(jnp.pad(x, padding, mode="edge"), start, count, 1)

        return self._of(some(self.of_RxW), some(self.positions_RxW), start + jnp.arange(count))

    def _of(self, of_RxQ: Array, positions_RxQ: Array, places_Q: Array) -> Array:
        of_keys = self.of_RxW[:, None, :]
        seen_RxQxW = self.mask_RxW[:, None, :] & ((of_keys == 0) | (of_keys == of_RxQ[:, :, None]))
        if self.window is not None:
            seen_RxQxW &= jnp.abs(positions_RxQ[:, :, None] - self.positions_RxW[:, None, :]) <= self.window
        if self.causal:
            seen_RxQxW &= jnp.arange(self.width) <= places_Q[:, None]
        return as_bias(seen_RxQxW)[:, None]


def whole_bias(bias: Array | BiasByQuery) -> Array:
    """The bias of every query and key, however long the row."""
    return bias.of_all() if isinstance(bias, BiasByQuery) else bias


def blocks_of(blocks: tuple[tuple[int, int], ...], *arrays: Array) -> list[list[Array]]:
    """For each block the part of each array, [groups * R, W, ...].

    Args:
      blocks: as of Segments; (): the arrays themselves.
      arrays: [B, L, ...].
    """
    if not blocks:
        return [list(arrays)]
    tokens = sum(rows * width for rows, width in blocks)  # of a group
    grouped = [x.reshape(-1, tokens, *x.shape[2:]) for x in arrays]
    parts, start = [], 0
    for rows, width in blocks:
        end = start + rows * width
        parts.append([x[:, start:end].reshape(-1, width, *x.shape[2:]) for x in grouped])
        start = end
    return parts


def token_positions(config: Any, ids_BxL: Array, segments: Segments | None) -> Array | None:
    """Each token's position in its text, int32 [B, L]; None: its column.

    Of a config with a position_offset as transformers' RoBERTa and MPNet count: a token's place among those of its text that are no padding
    token, and -1 of a padding token, which a text's own words may hold.

    Args:
      config: of the model that reads them.
      segments: of several texts in one row.
    """
    if not getattr(config, "position_offset", 0):
        return None if segments is None else segments.positions_BxL
    counts_BxL = (ids_BxL != config.pad_token_id).astype(jnp.int32)
    if segments is None:
        return jnp.where(counts_BxL > 0, jnp.cumsum(counts_BxL, axis=1) - 1, -1)
    # A text may go on in the next row of B x L, but not in the next group.
    tokens = sum(rows * width for rows, width in segments.blocks) or ids_BxL.shape[1]
    counts_GxT, positions_GxT = (x.reshape(-1, tokens) for x in (counts_BxL, segments.positions_BxL))
    so_far = jnp.cumsum(counts_GxT, axis=1)
    before_text = jnp.take_along_axis(so_far - counts_GxT, jnp.arange(tokens) - positions_GxT, axis=1)
    return jnp.where(counts_GxT > 0, so_far - before_text - 1, -1).reshape(ids_BxL.shape)


def in_blocks(
    f: Callable[..., Array], blocks: tuple[tuple[int, int], ...], arrays: list[Array], of_block: Sequence[Any]
) -> Array:
    """f of each block's part of the arrays, and the results in the place of the parts.

    Args:
      f: (parts [groups * R, W, ...], of_block's) -> [groups * R, W, D].
      arrays: [B, L, ...].
      of_block: something for each block.

    Returns: [B, L, D].
    """
    done = [f(*parts, own) for parts, own in zip(blocks_of(blocks, *arrays), of_block, strict=True)]
    if not blocks:
        return done[0]
    by_group = [x.reshape(-1, r * w, *x.shape[2:]) for x, (r, w) in zip(done, blocks, strict=True)]
    return jnp.concatenate(by_group, axis=1).reshape(*arrays[0].shape[:2], -1)


def as_bias(seen_BxLxL: Array) -> Array:
    """What is added to the scores of attention, float32: 0 where a key is seen, the lowest number elsewhere."""
    return jnp.where(seen_BxLxL, 0.0, jnp.finfo(jnp.float32).min)


def members(lengths_BxK: Array, width: int) -> Array:
    """Whose the tokens of a row are in which K texts stand one after another.

    Args:
      lengths_BxK: int32, of each text, in tokens; 0: there is none.
      width: of the row, W, in tokens.

    Returns: bool [B, K, W].
    """
    end_BxKx1 = jnp.cumsum(lengths_BxK, axis=-1)[..., None]
    place_W = jax.lax.broadcasted_iota(jnp.int32, (1, 1, width), 2)
    return (place_W < end_BxKx1) & (place_W >= end_BxKx1 - lengths_BxK[..., None])
