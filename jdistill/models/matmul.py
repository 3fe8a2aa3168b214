"""The matrix product of a Dense layer, with a backward pass that multiplies by a transposed copy of the kernel."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

Array = jax.Array


@jax.custom_vjp
def matmul(x: Array, kernel: Array) -> Array:
    """x [..., D] times kernel [D, F]: [..., F]."""
    return jnp.dot(x, kernel)


def _forward(x: Array, kernel: Array) -> tuple[Array, tuple[Array, Array]]:
    return jnp.dot(x, kernel), (x, kernel)


def _backward(saved: tuple[Array, Array], dy: Array) -> tuple[Array, Array]:
    # JAX's own rules contract dy with the kernel's second axis and x with dy over rows. XLA's CPU matmul runs the
    # first at half its speed and writes the second's transposed operand inside a slow fused loop. Plain products of
    # copies that are transposed on their own avoid both; barriers keep the compiler from folding the copies back in.
    x, kernel = saved
    alone = jax.lax.optimization_barrier
    dx = jnp.dot(dy, alone(kernel.T))
    x_NxD, dy_NxF = alone((x.reshape(-1, x.shape[-1]), dy.reshape(-1, dy.shape[-1])))
    # The narrower of the two is cheaper to transpose.
    narrow_x = x_NxD.shape[1] <= dy_NxF.shape[1]
    dkernel = jnp.dot(alone(x_NxD.T), dy_NxF) if narrow_x else jnp.dot(alone(dy_NxF.T), x_NxD).T
    return dx, dkernel.astype(kernel.dtype)


matmul.defvjp(_forward, _backward)


def dense_dot(x: Array, kernel: Array, dimensions: Any, **_: Any) -> Array:
    """x [..., D] times kernel [D, F]: given to nn.Dense as its dot_general, which calls it in no other way."""
    assert dimensions == (((x.ndim - 1,), (0,)), ((), ())), dimensions
    return matmul(x, kernel)
