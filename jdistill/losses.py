"""Losses that methods share: vectorised functions of whole arrays; no model, no device, no collective inside."""

from __future__ import annotations

import jax
import jax.numpy as jnp

Array = jax.Array


def mse(prediction: Array, target: Array) -> Array:
    """Mean over all elements of the squared difference; scalar, float32."""
    return jnp.square(prediction.astype(jnp.float32) - target.astype(jnp.float32)).mean()


def masked_mse(prediction_BxLxD: Array, target_BxLxD: Array, mask_BxL: Array) -> Array:
    """Mean over the elements of the tokens that the mask marks; scalar, float32. Padding never counts."""
    square_BxL = jnp.square(prediction_BxLxD.astype(jnp.float32) - target_BxLxD.astype(jnp.float32)).mean(-1)
    weights_BxL = mask_BxL.astype(jnp.float32)
    return (square_BxL * weights_BxL).sum() / jnp.maximum(weights_BxL.sum(), 1.0)


def unit(x_BxD: Array) -> Array:
    """Rows scaled to length one, in float32, with a finite gradient at a zero row (which stays zero)."""
    x_BxD = x_BxD.astype(jnp.float32)
    return x_BxD * jax.lax.rsqrt(jnp.maximum(jnp.square(x_BxD).sum(-1, keepdims=True), 1e-24))


def kl_divergence(student_BxD: Array, teacher_BxD: Array) -> Array:
    """KL(softmax(teacher) || softmax(student)) over the dimensions of a vector, mean over texts; scalar."""
    log_t = jax.nn.log_softmax(teacher_BxD.astype(jnp.float32))
    log_s = jax.nn.log_softmax(student_BxD.astype(jnp.float32))
    return (jnp.exp(log_t) * (log_t - log_s)).sum(-1).mean()


def pair_cosines(x_BxD: Array) -> Array:
    """Cosine of every pair of texts in the batch, [B, B]."""
    u = unit(x_BxD)
    return u @ u.T
