"""A bidirectional LSTM over word embeddings (Hochreiter and Schmidhuber 1997), as torch's nn.LSTM computes it.

Shapes: B texts, L tokens, E width of the embeddings, H width of a direction, D = 2H. Gates stand in torch's order: input, forget,
cell, output. torch's two biases are one here, their sum.
"""

from __future__ import annotations

from typing import Any, cast

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.experimental import rnn

from jdistill.core.types import Array
from jdistill.models.bilstm.config import DIRECTIONS, BilstmConfig
from jdistill.models.matmul import matmul, over_leading, product


class Bilstm(nn.Module):
    """Parameters: word/embedding [V, E]; for each direction input [E, 4H], recurrent [H, 4H], bias [4H]. float32; `dtype` is the
    type of the products' inputs, states are float32."""

    config: BilstmConfig
    dtype: jnp.dtype = jnp.float32

    @nn.compact
    def __call__(self, ids_BxL: Array, mask_BxL: Array, deterministic: bool = True) -> tuple[Array, Array]:
        """The embeddings [B, L, E] and the states [B, L, D], which are zero in padding.

        ids_BxL: int32 token ids, padding last in each row. mask_BxL: bool or int, true for tokens. No direction ever sees
        padding. With `deterministic=False` dropout draws from the rng stream "dropout".
        """
        c = self.config
        mask_BxL = mask_BxL.astype(bool)
        dropout = nn.Dropout(c.dropout, deterministic=deterministic)
        normal = nn.initializers.normal(0.02)
        x_BxLxE = dropout(nn.Embed(c.vocab_size, c.embedding_size, embedding_init=normal, name="word")(ids_BxL))
        weights = {name: _direction(self, name) for name in DIRECTIONS}
        # cuDNN must be there to say what memory it takes: a plan for GPUs that are not here (core.absent) is of the scan.
        run = _by_cudnn if jax.default_backend() == "gpu" and self.dtype == jnp.float32 else _by_scan
        states_BxLxD = run(c, x_BxLxE, mask_BxL, weights, self.dtype)
        # A channel is dropped at all tokens of a text or at none: a maximum over time would pass over single zeros, and see more of
        # them than there are while evaluating.
        channels = nn.Dropout(c.dropout, broadcast_dims=(1,), deterministic=deterministic)
        return x_BxLxE, channels(jnp.where(mask_BxL[:, :, None], states_BxLxD, 0.0))


def _direction(module: nn.Module, name: str) -> dict[str, Array]:
    c = cast(Bilstm, module).config
    uniform = nn.initializers.uniform(2 * c.lstm_size**-0.5)
    shapes = {
        "input": (c.embedding_size, 4 * c.lstm_size),
        "recurrent": (c.lstm_size, 4 * c.lstm_size),
        "bias": (4 * c.lstm_size,),
    }

    def init(rng: Array) -> dict[str, Array]:
        keys = jax.random.split(rng, len(shapes))
        return {
            part: uniform(key, shape) - c.lstm_size**-0.5
            for (part, shape), key in zip(shapes.items(), keys, strict=True)
        }

    return cast(dict[str, Array], module.param(name, init))


def _by_scan(
    c: BilstmConfig, x_BxLxE: Array, mask_BxL: Array, weights: dict[str, dict[str, Array]], dtype: jnp.dtype
) -> Array:
    """Both directions in one scan over the tokens, [B, L, D]. The inputs' products are made before it, for all tokens at once."""
    x, mask_LxB = x_BxLxE.astype(dtype), jnp.swapaxes(mask_BxL, 0, 1)
    gates = [
        matmul(x, weights[name]["input"].astype(dtype)).astype(jnp.float32) + weights[name]["bias"]
        for name in DIRECTIONS
    ]
    first, last = (jnp.swapaxes(g, 0, 1) for g in gates)  # [L, B, 4H]
    kernels = tuple(weights[name]["recurrent"].astype(dtype) for name in DIRECTIONS)
    forward_LxBxH, backward_LxBxH = _recurrence((first, last[::-1]), kernels, (mask_LxB, mask_LxB[::-1]))
    return jnp.swapaxes(jnp.concatenate([forward_LxBxH, backward_LxBxH[::-1]], axis=-1), 0, 1)


Pair = tuple[Array, Array]  # of the two directions, each in the order in which it reads


@jax.custom_vjp
def _recurrence(gates_LxBx4H: Pair, kernels_Hx4H: Pair, mask_LxB: Pair) -> Pair:
    """The states [L, B, H] from what the inputs give the gates. Its gradient by the kernels is one product over all tokens: that
    of a scan would be one for each token, added up in memory."""
    return _scan(gates_LxBx4H, kernels_Hx4H, mask_LxB)


def _recurrence_forward(gates: Pair, kernels: Pair, mask: Pair) -> tuple[Pair, Any]:
    states, pull = jax.vjp(lambda gates: _scan(gates, kernels, mask), gates)
    return states, (states, kernels, pull)


def _recurrence_backward(saved: Any, d_states: Pair) -> tuple[Pair, Pair, None]:
    states, kernels, pull = saved
    (d_gates,) = pull(d_states)  # what a gate's input gets from its own token and all that the direction reads later
    d_kernels = []
    for states_LxBxH, kernel, d_LxBx4H in zip(states, kernels, d_gates, strict=True):
        before_LxBxH = jnp.concatenate([jnp.zeros_like(states_LxBxH[:1]), states_LxBxH[:-1]])
        d_kernels.append(over_leading(before_LxBxH.astype(kernel.dtype), d_LxBx4H.astype(kernel.dtype)))
    return d_gates, (d_kernels[0], d_kernels[1]), None


_recurrence.defvjp(_recurrence_forward, _recurrence_backward)


def _scan(gates_LxBx4H: Pair, kernels_Hx4H: Pair, mask_LxB: Pair) -> Pair:
    B, H = mask_LxB[0].shape[1], kernels_Hx4H[0].shape[0]
    turned = [
        jax.lax.optimization_barrier(kernel.T) for kernel in kernels_Hx4H
    ]  # once, not in every step of the gradient

    def step(carry: tuple[Pair, Pair], at: tuple[Pair, Pair]) -> tuple[tuple[Pair, Pair], Pair]:
        states = [
            _cell(gates, *before, kernel, turned_, is_token)
            for before, gates, is_token, kernel, turned_ in zip(carry, *at, kernels_Hx4H, turned, strict=True)
        ]
        return (states[0], states[1]), (states[0][0], states[1][0])

    zeros = jnp.zeros((B, H), jnp.float32)
    return jax.lax.scan(step, ((zeros, zeros), (zeros, zeros)), (gates_LxBx4H, mask_LxB))[1]


def _cell(
    gates_Bx4H: Array, h_BxH: Array, c_BxH: Array, kernel_Hx4H: Array, turned_4HxH: Array, is_token_B: Array
) -> Pair:
    """The states (h, c) after a token."""
    total = gates_Bx4H + _times(h_BxH.astype(kernel_Hx4H.dtype), kernel_Hx4H, turned_4HxH).astype(jnp.float32)
    i, f, g, o = jnp.split(total, 4, axis=-1)
    new_c = nn.sigmoid(f) * c_BxH + nn.sigmoid(i) * jnp.tanh(g)
    new_h = nn.sigmoid(o) * jnp.tanh(new_c)
    # The backward direction meets padding first and must leave it as it began.
    real = is_token_B[:, None]
    return jnp.where(real, new_h, h_BxH), jnp.where(real, new_c, c_BxH)


@jax.custom_vjp
def _times(h: Array, kernel: Array, turned: Array) -> Array:
    """h @ kernel, with a gradient by h alone, for which the kernel's transpose is given."""
    return product(h, kernel)


_times.defvjp(
    lambda h, kernel, turned: (product(h, kernel), turned), lambda turned, dy: (product(dy, turned), None, None)
)


def _by_cudnn(
    c: BilstmConfig, x_BxLxE: Array, mask_BxL: Array, weights: dict[str, dict[str, Array]], dtype: jnp.dtype
) -> Array:
    """The same by cuDNN, [B, L, D]."""
    del dtype
    start_2xBxH = jnp.zeros((2, x_BxLxE.shape[0], c.lstm_size), jnp.float32)
    lengths_B = mask_BxL.sum(1).astype(jnp.int32)
    out, _, _ = rnn.lstm(
        x_BxLxE, start_2xBxH, start_2xBxH, flat_weights(weights), lengths_B, c.embedding_size, c.lstm_size, 1, 0.0, True
    )
    return cast(Array, out)


def flat_weights(weights: dict[str, dict[str, Array]]) -> Array:
    """One vector in the order that cuDNN reads: both directions' matrices, each input then recurrent, then their biases, of which
    the second is zero."""
    matrices = [weights[name][part].T.ravel() for name in DIRECTIONS for part in ("input", "recurrent")]
    biases = [b for name in DIRECTIONS for b in (weights[name]["bias"], jnp.zeros_like(weights[name]["bias"]))]
    return jnp.concatenate([*matrices, *biases])
