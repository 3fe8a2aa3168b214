"""Dense projections after pooling, as sentence-transformers' Dense modules have them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

DENSE_ACTIVATIONS = {"Identity": lambda x: x, "Tanh": jnp.tanh}


def apply_dense(x_BxD: jax.Array, dense: Sequence[Any], activations: Sequence[str]) -> jax.Array:
    """The projections one after another.

    Args:
      x_BxD: vectors.
      dense: of each {"kernel" [in, out], "bias" [out] (optional)}.
      activations: of each a name in DENSE_ACTIVATIONS.

    Returns: [B, width of the last].
    """
    for layer, activation in zip(dense, activations, strict=True):
        x_BxD = DENSE_ACTIVATIONS[activation](x_BxD @ layer["kernel"] + layer.get("bias", 0.0))
    return x_BxD
