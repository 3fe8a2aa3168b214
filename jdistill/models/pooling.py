"""Poolers: all hidden states to one vector a text, padding never counted. Those of sentence-transformers and DistilFACE.

A pooler takes some layers' states together, then the tokens. Shapes: B texts, L tokens, D width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import jax.numpy as jnp

from jdistill.core.errors import UserError
from jdistill.core.types import Array
from jdistill.models.pma import heads_for, pma, pma_of_each


def mean_pool(x_BxLxD: Array, mask_BxL: Array) -> Array:
    """Mean over the tokens of each text, in float32: [B, D]. A text without any token gives zeros."""
    weights_BxLx1 = mask_BxL.astype(jnp.float32)[:, :, None]
    return (x_BxLxD.astype(jnp.float32) * weights_BxLx1).sum(1) / jnp.maximum(weights_BxLx1.sum(1), 1.0)


def cls_pool(x_BxLxD: Array, mask_BxL: Array) -> Array:
    """The first token's vector, in float32: [B, D]."""
    del mask_BxL
    return x_BxLxD[:, 0].astype(jnp.float32)


def last_token_pool(x_BxLxD: Array, mask_BxL: Array) -> Array:
    """The last token's vector, in float32: [B, D]. A text without any token gives zeros, as in sentence-transformers."""
    count_B = mask_BxL.astype(jnp.int32).sum(1)
    last_B = jnp.maximum(count_B - 1, 0)
    last_BxD = jnp.take_along_axis(x_BxLxD, last_B[:, None, None], axis=1)[:, 0].astype(jnp.float32)
    return jnp.where(count_B[:, None] > 0, last_BxD, 0.0)


def max_pool(x_BxLxD: Array, mask_BxL: Array) -> Array:
    """Element-wise maximum over the tokens of each text, in float32: [B, D]. A text without any token gives zeros."""
    x_BxLxD = x_BxLxD.astype(jnp.float32)
    among_BxLxD = jnp.where(mask_BxL.astype(bool)[:, :, None], x_BxLxD, jnp.finfo(jnp.float32).min)
    # Not .max(): its gradient asks which x equal the maximum, and none does where XLA computes x a second time with another rounding.
    of_max_BxLxD = jnp.arange(x_BxLxD.shape[1])[:, None] == among_BxLxD.argmax(1)[:, None]
    return jnp.where(mask_BxL.astype(bool).any(1)[:, None], jnp.where(of_max_BxLxD, x_BxLxD, 0.0).sum(1), 0.0)


def final_states_pool(x_BxLxD: Array, mask_BxL: Array) -> Array:
    """Of a bidirectional LSTM's states, D = 2H, the last token's forward half and the first one's backward half: [B, D]."""
    half = x_BxLxD.shape[-1] // 2
    return jnp.concatenate(
        [last_token_pool(x_BxLxD, mask_BxL)[:, :half], cls_pool(x_BxLxD, mask_BxL)[:, half:]], axis=-1
    )


OVER_TOKENS = {"mean": mean_pool, "cls": cls_pool, "lasttoken": last_token_pool, "max": max_pool}
ONE_TOKEN = ("cls", "lasttoken")
LAST = (-1,)
ALL = (0, ...)  # from the embedding layer's output on
ALL_BUT_EMBEDDINGS = (1, ...)


@dataclass(frozen=True)
class Pooler:
    """How hidden states become a text's vector.

    Args:
      layers: which hidden states, as transformers counts them (0: the embedding layer's output), or (first, ...).
      over_layers: "mean", "max" (element by element) or "concat".
      over_tokens: a name in OVER_TOKENS, "final" or "pma".
    """

    layers: tuple
    over_layers: str = "mean"
    over_tokens: str = "mean"

    @property
    def fewest_layers(self) -> int:
        """Of a model that it can be used with."""
        return 1 if self.layers[-1] is ... else max(1, -min(self.layers))

    def states(self, num_layers: int) -> tuple[int, ...]:
        """The hidden states it takes of a model of so many layers, counted from 0.

        Raises: UserError where the model has too few layers.
        """
        if self.layers[-1] is ...:
            return tuple(range(self.layers[0], num_layers + 1))
        if self.fewest_layers > num_layers:
            raise UserError(
                f"a pooler that takes the {self.fewest_layers} last layers needs as many; the model has {num_layers}"
            )
        return tuple(layer % (num_layers + 1) for layer in self.layers)

    def width(self, hidden_size: int) -> int:
        """Width of the vector."""
        return hidden_size * (len(self.layers) if self.over_layers == "concat" else 1)


_LAYERS = {
    "all_hidden": ALL,
    "second_to_last_hidden": ALL_BUT_EMBEDDINGS,
    "first_last": (0, -1),
    "last2": (-2, -1),
    "last4": (-4, -3, -2, -1),
}
# The 14 poolers of DistilFACE's Table 7, by its authors' definitions.
DISTILFACE: dict[str, Pooler] = {
    "cls": Pooler(LAST, over_tokens="cls"),
    "avg_last_hidden": Pooler(LAST),
    "avg_last_second_hidden": Pooler((-2,)),
    **{f"avg_{name}": Pooler(layers) for name, layers in _LAYERS.items()},
    **{f"max_{name}": Pooler(layers, over_layers="max") for name, layers in _LAYERS.items()},
    "concat_last4": Pooler(_LAYERS["last4"], over_layers="concat"),
}
# mean, cls, max and lasttoken as sentence-transformers has them: of the last layer, over the tokens. final: of an LSTM alone.
# pma: D2LLM's, which has parameters.
POOLERS: dict[str, Pooler] = DISTILFACE | {
    name: Pooler(LAST, over_tokens=name) for name in (*OVER_TOKENS, "final", "pma")
}


def pool(name: str, states: Sequence[Array], mask_BxL: Array, params: Any = None) -> Array:
    """Hidden states to one vector a text.

    Args:
      name: in POOLERS.
      states: num_layers + 1 arrays [B, L, D].
      mask_BxL: bool or int, true for tokens.
      params: the pooler's own, of pma alone.

    Returns: float32 [B, D], of concat_last4 [B, 4D].

    Raises: UserError for a name that is not in POOLERS and for a model with too few layers.
    """
    pooler = POOLERS[resolve_pooler(name)]
    x = _over_layers(name, pooler, states)
    if pooler.over_tokens == "final":
        return final_states_pool(x, mask_BxL)
    if pooler.over_tokens == "pma":
        return pma(params, x, mask_BxL, heads_for(x.shape[-1]))
    return OVER_TOKENS[pooler.over_tokens](x, mask_BxL)


def pool_each(name: str, states: Sequence[Array], member_BxTxL: Array, params: Any = None) -> Array:
    """The vectors of the T texts that stand one after another in each row.

    Args:
      name: in POOLERS, but for "final".
      states: num_layers + 1 arrays [B, L, D]; the last one alone will do where the pooler takes no other.
      member_BxTxL: bool, whose a token is.
      params: the pooler's own, of pma alone.

    Returns: float32 [B, T, D]; of a text without a token as pool has it.
    """
    pooler = POOLERS[resolve_pooler(name)]
    x_BxLxD = states[-1].astype(jnp.float32) if pooler.layers == LAST else _over_layers(name, pooler, states)
    if pooler.over_tokens == "pma":
        return pma_of_each(params, x_BxLxD, member_BxTxL, heads_for(x_BxLxD.shape[-1]))
    if pooler.over_tokens == "max":
        texts = [max_pool(x_BxLxD, member_BxTxL[:, t]) for t in range(member_BxTxL.shape[1])]
        return jnp.stack(texts, axis=1)
    member_BxTxL = member_BxTxL.astype(jnp.float32)
    if pooler.over_tokens in ONE_TOKEN:
        places_L = jnp.arange(1, member_BxTxL.shape[-1] + 1)
        order_L = places_L if pooler.over_tokens == "lasttoken" else places_L[::-1]
        member_BxTxL = member_BxTxL * (member_BxTxL * order_L == (member_BxTxL * order_L).max(-1, keepdims=True))
    count_BxTx1 = jnp.maximum(member_BxTxL.sum(-1, keepdims=True), 1.0)
    return jnp.einsum("btl,bld->btd", member_BxTxL / count_BxTx1, x_BxLxD, precision="highest")


def _over_layers(name: str, pooler: Pooler, states: Sequence[Array]) -> Array:
    """The layers that a pooler takes, as one array, float32 [B, L, D]."""
    if len({state.shape[-1] for state in states}) > 1 and pooler.layers != LAST:
        raise UserError(
            f"pooler {name!r} takes other states than the last, which in a recurrent model are of another width"
        )
    taken = [states[i].astype(jnp.float32) for i in pooler.states(len(states) - 1)]
    if pooler.over_layers == "concat":
        return jnp.concatenate(taken, axis=-1)
    if len(taken) == 1:
        return taken[0]
    if pooler.over_layers == "mean":
        return sum(taken[1:], taken[0]) / len(taken)
    return reduce(lambda a, b: jnp.where(a > b, a, b), taken)  # as in max_pool, not jnp.maximum


def resolve_pooler(name: str) -> str:
    """The name, if it is a pooler's. Raises UserError naming those there are."""
    if name not in POOLERS:
        raise UserError(f"there is no pooler {name!r}; there are {', '.join(POOLERS)}")
    return name
