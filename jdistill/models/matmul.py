"""Matrix products of an encoder, with backward passes in the one form that XLA's CPU runs at full speed: A times B.

On a CPU whose products torch computes (host_products) they are plain, since its kernels read a transposed factor as it stands.
"""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp

from jdistill.core import sharding
from jdistill.core.types import Array
from jdistill.models import host_products


def product(a: Array, b: Array) -> Array:
    """a @ b. In bfloat16 XLA's CPU runs it at twice float32's rate if the sum is float32, and slower than that otherwise."""
    if b.ndim == 2 and _torch_takes(a, b, b.shape[-1]):
        return host_products.torch_product(_rows(a), b).reshape(*a.shape[:-1], b.shape[-1])
    if a.shape[:-2] == b.shape[:-2] and _torch_takes(a, b, b.shape[-1]):
        return host_products.torch_product(a, b)
    if a.dtype == b.dtype == jnp.bfloat16 and sharding.platform() == "cpu":
        return jnp.matmul(a, b, preferred_element_type=jnp.float32).astype(a.dtype)
    return a @ b


def times_transpose(a: Array, b: Array) -> Array:
    """a [M, K] times the transpose of b [N, K]: [M, N]; XLA's CPU is twice as fast in bfloat16 where no transposed copy stands before it."""
    if _torch_takes(a, b, b.shape[0]):
        return host_products.torch_product(a, b, turn_b=True)
    return jax.lax.dot_general(a, b, (((1,), (1,)), ((), ())), preferred_element_type=_sums_of(a)).astype(a.dtype)


def _torch_takes(a: Array, b: Array, columns: int) -> bool:
    """Whether torch computes a product of a and b with so many columns, in which each number of a is multiplied once a column."""
    return host_products.takes(a, b, a.size * columns)


def _rows(x: Array) -> Array:
    return x.reshape(-1, x.shape[-1])


def _sums_of(x: Array) -> jnp.dtype | None:
    """The type that products of x are summed in, as product has it; None: x's own."""
    return jnp.float32 if x.dtype == jnp.bfloat16 and sharding.platform() == "cpu" else None


@jax.custom_vjp
def matmul(x: Array, kernel: Array) -> Array:
    """x [..., D] times kernel [D, F]: [..., F]."""
    return product(x, kernel)


def _forward(x: Array, kernel: Array) -> tuple[Array, tuple[Array, Array]]:
    return product(x, kernel), (x, kernel)


def _backward(saved: tuple[Array, Array], dy: Array) -> tuple[Array, Array]:
    x, kernel = saved
    return _input_gradient(dy, kernel), _kernel_gradient(x, dy).astype(kernel.dtype)


def _input_gradient(dy: Array, kernel: Array) -> Array:
    """dy [..., F] times the transpose of kernel [D, F]: [..., D]."""
    # JAX's own rules contract dy with the kernel's second axis and x with dy over rows. XLA's CPU matmul runs the
    # first at half its speed and writes the second's transposed operand inside a slow fused loop. Plain products of
    # copies that are transposed on their own avoid both; barriers keep the compiler from folding the copies back in.
    if _torch_takes(dy, kernel, kernel.shape[0]):
        return host_products.torch_product(_rows(dy), kernel, turn_b=True).reshape(*dy.shape[:-1], kernel.shape[0])
    return product(dy, jax.lax.optimization_barrier(kernel.T))


def _kernel_gradient(x: Array, dy: Array) -> Array:
    """x [..., D] and dy [..., F] contracted over all but their last axes: [D, F]."""
    if _torch_takes(x, dy, dy.shape[-1]):
        return host_products.torch_product(_rows(x), _rows(dy), turn_a=True)
    x_NxD, dy_NxF = jax.lax.optimization_barrier((_rows(x), _rows(dy)))
    # The narrower of the two is cheaper to transpose.
    narrow_x = x_NxD.shape[1] <= dy_NxF.shape[1]
    return product(_turned(x_NxD), dy_NxF) if narrow_x else product(_turned(dy_NxF), x_NxD).T


def over_leading(x: Array, dy: Array) -> Array:
    """x [L, B, D] and dy [L, B, F] contracted over L and B: [D, F], the gradient of a kernel.

    As one product of merged axes it would be the same numbers, but a batch that is split over devices by B, the minor of
    the two, would be gathered before it; so the axes stay apart.
    """
    L, B, D = x.shape
    if _torch_takes(x, dy, dy.shape[-1]):
        return host_products.torch_product(_rows(x), _rows(dy), turn_a=True)
    if x.dtype == jnp.bfloat16 and D % 2 == 0:  # as _turned
        turned_DxLxB = jax.lax.optimization_barrier(x.reshape(L, B, D // 2, 2).transpose(2, 3, 0, 1)).reshape(D, L, B)
    else:
        turned_DxLxB = jax.lax.optimization_barrier(x.transpose(2, 0, 1))
    return jax.lax.dot_general(
        turned_DxLxB, jax.lax.optimization_barrier(dy), (((1, 2), (0, 1)), ((), ())), preferred_element_type=_sums_of(x)
    ).astype(x.dtype)


def _turned(x: Array) -> Array:
    """x [..., N, D] with its last two axes exchanged, as a copy that the compiler does not fold into the product that reads it."""
    *leading, N, D = x.shape
    if x.dtype == jnp.bfloat16 and D % 2 == 0:
        # In the plain form the compiler sees a transposed operand in spite of the barrier, has no bfloat16 product for it, and
        # takes float32's. Through three axes it sees none.
        by_two = x.reshape(*leading, N, D // 2, 2)
        return jax.lax.optimization_barrier(jnp.moveaxis(by_two, -3, -1)).reshape(*leading, D, N)
    return jax.lax.optimization_barrier(jnp.swapaxes(x, -1, -2))


matmul.defvjp(_forward, _backward)


@jax.custom_vjp
def adapted(x: Array, kernel: Array, A: Array, B: Array) -> Array:
    """x [..., D] times kernel [D, F], plus x times A [D, R] times B [R, F]: [..., F].

    The sum is rounded once: what an adapter adds may be far below the last bfloat16 digit of x times kernel.
    """
    return _adapted_forward(x, kernel, A, B)[0]


def _adapted_forward(x: Array, kernel: Array, A: Array, B: Array) -> tuple[Array, tuple[Array, ...]]:
    narrow = product(x, A)
    if _torch_takes(
        x, kernel, kernel.shape[1]
    ):  # which rounds each product; elsewhere the copies would be gathered from the devices
        y = product(jnp.concatenate([x, narrow], axis=-1), jnp.concatenate([kernel, B]))
    else:
        of_kernel, of_adapter = (
            jnp.matmul(*each, preferred_element_type=jnp.float32) for each in ((x, kernel), (narrow, B))
        )
        y = (of_kernel + of_adapter).astype(x.dtype)
    return y, (x, narrow, kernel, A, B)


def _adapted_backward(saved: tuple[Array, ...], dy: Array) -> tuple[Array, Array, Array, Array]:
    x, narrow, kernel, A, B = saved
    dnarrow = _input_gradient(dy, B)
    dx = _input_gradient(dy, kernel) + _input_gradient(dnarrow, A)
    # The kernel's own, which nobody asks for where adapters alone are trained, is then left out by the compiler.
    return dx, _kernel_gradient(x, dy), _kernel_gradient(x, dnarrow), _kernel_gradient(narrow, dy)


adapted.defvjp(_adapted_forward, _adapted_backward)


@jax.custom_vjp
def add_bias(x: Array, bias: Array) -> Array:
    """x [..., F] plus bias [F]."""
    return x + bias


def _add_bias_forward(x: Array, bias: Array) -> tuple[Array, Array]:
    return x + bias, bias


def _add_bias_backward(bias: Array, dy: Array) -> tuple[Array, Array]:
    # Summed in float32: XLA's CPU sums bfloat16 rows in a loop of its own, a quarter of a bfloat16 step.
    return dy, dy.reshape(-1, dy.shape[-1]).astype(jnp.float32).sum(0).astype(bias.dtype)


add_bias.defvjp(_add_bias_forward, _add_bias_backward)


LORA_A, LORA_B = "lora_A", "lora_B"  # beside a kernel, where an adapter stands (models.lora.beside)


class Dense(nn.Module):
    """nn.Dense, its parameters and its initial values, by the products above; with x A B added where the parameters hold an adapter."""

    features: int
    use_bias: bool = True
    dtype: jnp.dtype = jnp.float32

    @nn.compact
    def __call__(self, x: Array) -> Array:
        kernel = self.param("kernel", nn.initializers.lecun_normal(), (x.shape[-1], self.features))
        x, kernel = x.astype(self.dtype), kernel.astype(self.dtype)
        if self.has_variable("params", LORA_A):
            A, B = (jnp.asarray(self.get_variable("params", name), self.dtype) for name in (LORA_A, LORA_B))
            y = adapted(x, kernel, A, B)
        else:
            y = matmul(x, kernel)
        if not self.use_bias:
            return y
        return add_bias(y, self.param("bias", nn.initializers.zeros, (self.features,)).astype(self.dtype))


@jax.custom_vjp
def batched(a: Array, b: Array) -> Array:
    """a [..., M, K] times b [..., K, N], the same leading axes: [..., M, N]."""
    return product(a, b)


def _batched_forward(a: Array, b: Array) -> tuple[Array, tuple[Array, Array]]:
    return product(a, b), (a, b)


def _batched_backward(saved: tuple[Array, Array], dc: Array) -> tuple[Array, Array]:
    # A contraction over the first of the two axes, which JAX's rule for db is, leaves the fast kernels: 6 times as slow.
    a, b = saved
    if _torch_takes(a, b, b.shape[-1]):
        return host_products.torch_product(dc, b, turn_b=True), host_products.torch_product(a, dc, turn_a=True)
    return product(dc, jnp.swapaxes(b, -1, -2)), product(_turned(a), dc)


batched.defvjp(_batched_forward, _batched_backward)


@jax.custom_vjp
def batched_transposed(a: Array, b: Array) -> Array:
    """a [..., M, K] times the transpose of b [..., N, K], the same leading axes: [..., M, N], float32.

    They are logits: of Qwen2 they are so large, by the bias of its keys, that a 16-bit type's rounding would move the softmax, or float16
    would end. torch's products alone are rounded, since it writes nothing else.
    """
    if _torch_takes(a, b, b.shape[-2]):
        return host_products.torch_product(a, b, turn_b=True).astype(jnp.float32)
    return jnp.matmul(a, jnp.swapaxes(b, -1, -2), preferred_element_type=jnp.float32)


def _batched_transposed_forward(a: Array, b: Array) -> tuple[Array, tuple[Array, Array]]:
    return batched_transposed(a, b), (a, b)


def _batched_transposed_backward(saved: tuple[Array, Array], dc: Array) -> tuple[Array, Array]:
    a, b = saved
    dc = dc.astype(a.dtype)
    if _torch_takes(a, b, b.shape[-2]):
        return host_products.torch_product(dc, b), host_products.torch_product(dc, a, turn_a=True)
    return product(dc, b), product(_turned(dc), a)


batched_transposed.defvjp(_batched_transposed_forward, _batched_transposed_backward)
