"""Matrix products of an encoder, with backward passes in the one form that XLA's CPU runs at full speed: A times B."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

Array = jax.Array


def product(a: Array, b: Array) -> Array:
    """a @ b. In bfloat16 XLA's CPU runs it at twice float32's rate if the sum is float32, and slower than that otherwise."""
    if a.dtype == b.dtype == jnp.bfloat16 and jax.default_backend() == "cpu":
        return jnp.matmul(a, b, preferred_element_type=jnp.float32).astype(a.dtype)
    return a @ b


@jax.custom_vjp
def matmul(x: Array, kernel: Array) -> Array:
    """x [..., D] times kernel [D, F]: [..., F]."""
    return product(x, kernel)


def _forward(x: Array, kernel: Array) -> tuple[Array, tuple[Array, Array]]:
    return product(x, kernel), (x, kernel)


def _backward(saved: tuple[Array, Array], dy: Array) -> tuple[Array, Array]:
    # JAX's own rules contract dy with the kernel's second axis and x with dy over rows. XLA's CPU matmul runs the
    # first at half its speed and writes the second's transposed operand inside a slow fused loop. Plain products of
    # copies that are transposed on their own avoid both; barriers keep the compiler from folding the copies back in.
    x, kernel = saved
    alone = jax.lax.optimization_barrier
    dx = product(dy, alone(kernel.T))
    x_NxD, dy_NxF = alone((x.reshape(-1, x.shape[-1]), dy.reshape(-1, dy.shape[-1])))
    # The narrower of the two is cheaper to transpose.
    narrow_x = x_NxD.shape[1] <= dy_NxF.shape[1]
    dkernel = product(_turned(x_NxD), dy_NxF) if narrow_x else product(_turned(dy_NxF), x_NxD).T
    return dx, dkernel.astype(kernel.dtype)


def _turned(x_NxD: Array) -> Array:
    """x's transpose, as a copy."""
    N, D = x_NxD.shape
    if x_NxD.dtype == jnp.bfloat16 and D % 2 == 0:
        # In the plain form the compiler sees a transposed operand in spite of the barrier, has no bfloat16 product for it, and
        # takes float32's. Through three axes it sees none.
        return jax.lax.optimization_barrier(x_NxD.reshape(N, D // 2, 2).transpose(1, 2, 0)).reshape(D, N)
    return jax.lax.optimization_barrier(x_NxD.T)


matmul.defvjp(_forward, _backward)


def dense_dot(x: Array, kernel: Array, dimensions: Any, **_: Any) -> Array:
    """x [..., D] times kernel [D, F]: given to nn.Dense as its dot_general, which calls it in no other way."""
    assert dimensions == (((x.ndim - 1,), (0,)), ((), ())), dimensions
    return matmul(x, kernel)


@jax.custom_vjp
def batched(a: Array, b: Array) -> Array:
    """a [..., M, K] times b [..., K, N], the same leading axes: [..., M, N]."""
    return product(a, b)


def _swapped(x: Array) -> Array:
    """The last two axes exchanged, as a copy that the compiler does not fold into the product that reads it."""
    return jax.lax.optimization_barrier(jnp.swapaxes(x, -1, -2))


def _batched_forward(a: Array, b: Array) -> tuple[Array, tuple[Array, Array]]:
    return product(a, b), (a, b)


def _batched_backward(saved: tuple[Array, Array], dc: Array) -> tuple[Array, Array]:
    # A contraction over the first of the two axes, which JAX's rule for db is, leaves the fast kernels: 6 times as slow.
    a, b = saved
    return product(dc, jnp.swapaxes(b, -1, -2)), product(_swapped(a), dc)


batched.defvjp(_batched_forward, _batched_backward)


@jax.custom_vjp
def batched_transposed(a: Array, b: Array) -> Array:
    """a [..., M, K] times the transpose of b [..., N, K], the same leading axes: [..., M, N]."""
    return product(a, jnp.swapaxes(b, -1, -2))


def _batched_transposed_forward(a: Array, b: Array) -> tuple[Array, tuple[Array, Array]]:
    return product(a, jnp.swapaxes(b, -1, -2)), (a, b)


def _batched_transposed_backward(saved: tuple[Array, Array], dc: Array) -> tuple[Array, Array]:
    a, b = saved
    return product(dc, b), product(_swapped(dc), a)


batched_transposed.defvjp(_batched_transposed_forward, _batched_transposed_backward)
