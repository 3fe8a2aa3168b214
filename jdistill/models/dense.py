"""Dense projections after pooling, as sentence-transformers' Dense modules have them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

ACTIVATIONS = {"Identity": lambda x: x, "Tanh": jnp.tanh}


def apply_dense(x_BxD: jax.Array, dense: Sequence[Any], activations: Sequence[str]) -> jax.Array:
    """The projections one after another, each {"kernel" [in, out], "bias" [out] (optional)}: [B, width of the last]."""
    for layer, activation in zip(dense, activations, strict=True):
        x_BxD = ACTIVATIONS[activation](x_BxD @ layer["kernel"] + layer.get("bias", 0.0))
    return x_BxD
