"""Attention of an encoder's heads, which all transformers here share: softmax(Q K^T * scale + bias) V, by one of three programs.

Plain is ours, the fastest on CPUs. Rows longer than LONG go by blocks of queries, so that no [L, L] matrix of a head stands in memory. `cudnn` is
jax.nn.dot_product_attention's, for GPUs.

Shapes: B rows, H heads, L tokens, K width of a head, Q queries of a block.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import flax.linen as nn
import jax
import jax.numpy as jnp

from jdistill.core import sharding
from jdistill.core.types import Array
from jdistill.models.matmul import batched, batched_transposed
from jdistill.models.segments import LONG, BiasByQuery, whole_bias

PLAIN_ATTENTION, CUDNN = "plain", "cudnn"
ATTENTION_PROGRAMS = (PLAIN_ATTENTION, CUDNN)
QUERIES_AT_ONCE = 256
WIDEST_CUDNN_HEAD, HEAD_MULTIPLE = 128, 8  # that cuDNN takes, with gradient, on every GPU since the A100

_program = PLAIN_ATTENTION  # of the whole process, whose threads trace steps too


def use_attention(program: str) -> None:
    """From now on what this process traces attends by this program of ATTENTION_PROGRAMS, where it can."""
    global _program
    _program = program


def attend(
    query_BxHxLxK: Array,
    key_BxHxLxK: Array,
    value_BxHxLxK: Array,
    bias: Array | BiasByQuery,
    scale: float = 1.0,
    drop: Callable[[Array], Array] | None = None,
) -> Array:
    """Each query's mean of the values, weighted by the softmax of its scores: [B, H, L, K].

    Args:
      key_BxHxLxK, value_BxHxLxK: may have more tokens than there are queries, where bias has a row for each query.
      bias: added to the scores, query by key: float32, broadcast to [B, H, L, L].
      scale: of the scores.
      drop: dropout of the weights, which stand whole then, however long the row; None: there is none.
    """
    arrays = query_BxHxLxK, key_BxHxLxK, value_BxHxLxK
    if drop is None and _program == CUDNN and fits_cudnn(query_BxHxLxK, bias):
        return attend_by_library(*arrays, bias, scale, "cudnn")
    if drop is None and query_BxHxLxK.shape[2] > LONG:
        return attend_in_blocks(*arrays, bias, scale)
    return attend_plainly(*arrays, whole_bias(bias), scale, drop)


def attend_plainly(
    query_BxHxQxK: Array,
    key_BxHxLxK: Array,
    value_BxHxLxK: Array,
    bias: Array,
    scale: float = 1.0,
    drop: Callable[[Array], Array] | None = None,
) -> Array:
    """As attend, of any number of queries; the scores of all of them stand in memory."""
    scores_BxHxQxL = batched_transposed(query_BxHxQxK, key_BxHxLxK)
    scores_BxHxQxL = scores_BxHxQxL * scale if scale != 1.0 else scores_BxHxQxL
    weights_BxHxQxL = nn.softmax(scores_BxHxQxL + bias, axis=-1).astype(value_BxHxLxK.dtype)
    return batched(weights_BxHxQxL if drop is None else drop(weights_BxHxQxL), value_BxHxLxK)


def attend_in_blocks(
    query_BxHxLxK: Array,
    key_BxHxLxK: Array,
    value_BxHxLxK: Array,
    bias: Array | BiasByQuery,
    scale: float = 1.0,
) -> Array:
    """As attend without dropout, QUERIES_AT_ONCE queries at a time; the gradient computes their scores again."""
    B, H, L, K = query_BxHxLxK.shape
    Q = min(QUERIES_AT_ONCE, L)
    starts = jnp.arange(0, L, Q)
    padding = len(starts) * Q - L
    by_block_NxBxHxQxK = jnp.moveaxis(_padded(query_BxHxLxK, padding).reshape(B, H, len(starts), Q, K), 2, 0)
    if not isinstance(bias, BiasByQuery):
        bias = _padded(bias, padding) if bias.shape[-2] != 1 else bias

    @jax.checkpoint
    def of_block(block: tuple[Array, Array]) -> Array:
        query_BxHxQxK, start = block
        if isinstance(bias, BiasByQuery):
            of_queries = bias.of_queries(start, Q)
        else:
            of_queries = jax.lax.dynamic_slice_in_dim(bias, start, Q, -2) if bias.shape[-2] != 1 else bias
        return attend_plainly(query_BxHxQxK, key_BxHxLxK, value_BxHxLxK, of_queries, scale)

    mixed_NxBxHxQxK = jax.lax.map(of_block, (by_block_NxBxHxQxK, starts))
    return jnp.moveaxis(mixed_NxBxHxQxK, 0, 2).reshape(B, H, len(starts) * Q, K)[:, :, :L]


def _padded(x: Array, padding: int) -> Array:
    """With so many zeros more at the end of the queries' axis, the last but one."""
    return jnp.pad(x, [(0, 0)] * (x.ndim - 2) + [(0, padding), (0, 0)]) if padding else x


def fits_cudnn(query_BxHxLxK: Array, bias: Array | BiasByQuery) -> bool:
    """Whether cuDNN's attention takes this: float16 or bfloat16 on a GPU, an even number of places, heads that are not wide, and a bias that is
    the same for all heads: one for each head is learnt, and its gradient is ours."""
    L, K = query_BxHxLxK.shape[-2:]
    keys = L if isinstance(bias, BiasByQuery) else bias.shape[-1]
    several = query_BxHxLxK.shape[1] > 1  # of one head a learnt bias looks as one that all share
    shared = isinstance(bias, BiasByQuery) or (several and bias.ndim == 4 and bias.shape[1] == 1)
    narrow = K <= WIDEST_CUDNN_HEAD and K % HEAD_MULTIPLE == 0 and L % 2 == 0 and keys % 2 == 0
    return sharding.platform() == "gpu" and query_BxHxLxK.dtype.itemsize == 2 and narrow and shared


def attend_by_library(
    query_BxHxLxK: Array,
    key_BxHxLxK: Array,
    value_BxHxLxK: Array,
    bias: Array | BiasByQuery,
    scale: float,
    implementation: Literal["cudnn", "xla"],
) -> Array:
    """As attend, without dropout, by jax.nn.dot_product_attention.

    Args:
      implementation: cudnn, or xla, which runs anywhere.
    """
    B, _, L, _ = query_BxHxLxK.shape
    query, key, value = (x.transpose(0, 2, 1, 3) for x in (query_BxHxLxK, key_BxHxLxK, value_BxHxLxK))
    # cuDNN's kernel wants each query's bias, and in the scores' type, whose lowest number is another.
    seen = jnp.broadcast_to(whole_bias(bias) >= 0, (B, 1, L, key_BxHxLxK.shape[2]))
    mixed_BxLxHxK = jax.nn.dot_product_attention(
        query, key, value, mask=seen, scale=scale, implementation=implementation
    )
    return mixed_BxLxHxK.transpose(0, 2, 1, 3)
