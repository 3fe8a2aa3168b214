"""Positions as distances between tokens, in buckets (Raffel et al. 2020): one number a head for each bucket, added to the scores.

Shapes: H heads, L tokens, W width of a block of rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import flax.linen as nn
import jax.numpy as jnp
import numpy as np

from jdistill.core.types import Array
from jdistill.models.segments import BiasByQuery, whole_bias

if TYPE_CHECKING:
    from jdistill.models.onnx_nodes import Graph

BUCKETS, FARTHEST = 32, 128  # of every published T5, and of MPNet whatever its config says
FEWEST_BUCKETS = 4  # one of which each way is of one distance alone
EDGE = 1e-6  # a distance that lies on the edge of two buckets, but for rounding, is in the farther one


def bucket_of(distances: np.ndarray, buckets: int = BUCKETS, farthest: int = FARTHEST) -> np.ndarray:
    """The row of the table for each distance from a token to one that it attends to, int32 of the same shape.

    Half of the buckets are for tokens before, half for those after. Of a half, half are of one distance each, and the others widen
    by a constant factor.

    Args:
      distances: int, of any shape.
      buckets: rows of the table.
      farthest: the distance from which on all are in one bucket.
    """
    each_way, size = buckets // 2, np.abs(distances).astype(np.int64)
    exact = each_way // 2
    share = np.log(np.maximum(size, exact) / exact) / np.log(farthest / exact)
    wide = exact + np.floor(share * (each_way - exact) + EDGE).astype(np.int64)
    row = np.where(size < exact, size, np.minimum(wide, each_way - 1))
    return (row + each_way * (distances > 0)).astype(np.int32)


def with_distances(
    bias: Sequence[Array | BiasByQuery], relative: nn.Embed, buckets: int = BUCKETS, farthest: int = FARTHEST
) -> list[Array]:
    """Of each block the bias, with that of the tokens' distances: broadcast to [B * R, H, W, W].

    Tokens of one text stand side by side, in whatever row, so their columns are as far from one another as their positions.

    Args:
      bias: of each block what keeps a token from others, broadcast to [B * R, H, W, W].
      relative: the table, [buckets, H].
      buckets, farthest: as of bucket_of.
    """

    def of_width(width: int) -> Array:
        columns = jnp.arange(width)
        rows = jnp.asarray(bucket_of(np.arange(1 - width, width), buckets, farthest))
        return relative(rows[columns[None, :] - columns[:, None] + width - 1]).transpose(2, 0, 1)

    return [of_width(unseen.shape[-1]) + unseen for unseen in map(whole_bias, bias)]


def onnx_distances(graph: Graph, table: np.ndarray, buckets: int = BUCKETS, farthest: int = FARTHEST) -> str:
    """What the scores of each head are raised by, [1, H, L, L]; `graph` has "shape" already.

    Args:
      table: float32 [buckets, H].
      buckets, farthest: as of bucket_of.
    """
    op = graph.op
    by_distance = graph.constant(table[bucket_of(np.arange(-farthest, farthest + 1), buckets, farthest)], "by_distance")
    place = op("Range", np.int64(0), op("Squeeze", op("Slice", "shape", [1], [2])), np.int64(1))
    distance = op("Sub", op("Unsqueeze", place, [0]), op("Unsqueeze", place, [1]))
    row = op("Add", op("Clip", distance, np.int64(-farthest), np.int64(farthest)), np.int64(farthest))
    return op("Unsqueeze", op("Transpose", op("Gather", by_distance, row), perm=[2, 0, 1]), [0])
