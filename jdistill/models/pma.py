"""D2LLM's pooling of a language model's states by multihead attention (PMA).

Liao et al. 2024, eq. 4 and 5. Functions of parameter trees. Shapes: B texts, L tokens, T texts in a row, D width of the states.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from jdistill.core.types import Array, Tree
from jdistill.losses.embedding import HIGHEST

EPS = 1e-5
MOST_HEADS = 32


def heads_for(width: int) -> int:
    """The largest number of heads, up to MOST_HEADS, that divides the width."""
    return next(count for count in range(min(MOST_HEADS, width), 0, -1) if width % count == 0)


def random_pma(width: int, rng: np.random.Generator) -> Tree:
    """Parameters: query [D]; to_query, key, value, out and feed, each {"kernel" [D, D], "bias" [D]}; two norms. float32."""

    def random_dense() -> dict[str, np.ndarray]:
        return {
            "kernel": rng.normal(0, width**-0.5, (width, width)).astype(np.float32),
            "bias": np.zeros(width, np.float32),
        }

    def norm() -> dict[str, np.ndarray]:
        return {"scale": np.ones(width, np.float32), "bias": np.zeros(width, np.float32)}

    parts = {name: random_dense() for name in ("to_query", "key", "value", "out", "feed")}
    return parts | {"query": rng.normal(0, 1, width).astype(np.float32), "norm_1": norm(), "norm_2": norm()}


def pma(params: Tree, states_BxLxD: Array, mask_BxL: Array, heads: int) -> Array:
    """One vector a text: h = LN(MHA(q, Y, Y) + q), y = LN(h + relu(W h + b)). Padding has no weight.

    Args:
      params: as random_pma has them.
      states_BxLxD: Y, of any floating type.
      mask_BxL: bool or int, true for tokens.
      heads: they divide D.

    Returns: float32 [B, D].

    Source: D2LLM eq. 4 and 5.
    """
    return pma_of_each(params, states_BxLxD, mask_BxL[:, None], heads)[:, 0]


def pma_of_each(params: Tree, states_BxLxD: Array, member_BxTxL: Array, heads: int) -> Array:
    """The same of the T texts that stand in each row. Of a text without a token the mix is zero, not the mean of whatever padding there is.

    Args:
      member_BxTxL: bool or int, whose a token is.

    Returns: float32 [B, T, D].
    """
    y = states_BxLxD.astype(jnp.float32)
    B, L, D = y.shape
    query_HxK = dense(params["to_query"], params["query"]).reshape(heads, D // heads)
    key, value = (dense(params[name], y).reshape(B, L, heads, D // heads) for name in ("key", "value"))
    scores_BxHxL = jnp.einsum("hk,blhk->bhl", query_HxK, key) * (D // heads) ** -0.5
    own_BxTx1xL = member_BxTxL.astype(bool)[:, :, None]
    scores_BxTxHxL = jnp.where(own_BxTx1xL, scores_BxHxL[:, None], jnp.finfo(jnp.float32).min)
    weights_BxTxHxL = jax.nn.softmax(scores_BxTxHxL, axis=-1) * own_BxTx1xL
    mixed_BxTxD = jnp.einsum("bthl,blhk->bthk", weights_BxTxHxL, value).reshape(B, -1, D)
    h = _norm(params["norm_1"], dense(params["out"], mixed_BxTxD) + params["query"])
    return _norm(params["norm_2"], h + jax.nn.relu(dense(params["feed"], h)))


def dense(layer: Tree, x: Array) -> Array:
    """x [..., in] times a layer's kernel [in, out], plus its bias [out]."""
    return jnp.dot(x, layer["kernel"], precision=HIGHEST) + layer["bias"]


def _norm(layer: Tree, x: Array) -> Array:
    centred = x - x.mean(-1, keepdims=True)
    return centred / jnp.sqrt(jnp.square(centred).mean(-1, keepdims=True) + EPS) * layer["scale"] + layer["bias"]
