"""Poolers: token vectors to one vector a text, padding never counted."""

from __future__ import annotations

import jax
import jax.numpy as jnp

Array = jax.Array


def mean_pool(x_BxLxD: Array, mask_BxL: Array) -> Array:
    """Mean over the tokens of each text, in float32: [B, D]. A text without any token gives zeros."""
    weights_BxLx1 = mask_BxL.astype(jnp.float32)[:, :, None]
    return (x_BxLxD.astype(jnp.float32) * weights_BxLx1).sum(1) / jnp.maximum(weights_BxLx1.sum(1), 1.0)


def cls_pool(x_BxLxD: Array, mask_BxL: Array) -> Array:
    """The first token's vector, in float32: [B, D]."""
    del mask_BxL
    return x_BxLxD[:, 0].astype(jnp.float32)


def max_pool(x_BxLxD: Array, mask_BxL: Array) -> Array:
    """Element-wise maximum over the tokens of each text, in float32: [B, D]. A text without any token gives zeros."""
    lowest = jnp.finfo(jnp.float32).min
    highest_BxD = jnp.where(mask_BxL.astype(bool)[:, :, None], x_BxLxD.astype(jnp.float32), lowest).max(1)
    return jnp.where(mask_BxL.astype(bool).any(1)[:, None], highest_BxD, 0.0)


POOLERS = {"mean": mean_pool, "cls": cls_pool, "max": max_pool}
