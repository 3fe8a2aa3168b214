"""A bidirectional LSTM over word embeddings (Hochreiter and Schmidhuber 1997), as torch's nn.LSTM computes it.

Shapes: B texts, L tokens, E width of the embeddings, H width of a direction, D = 2H. Gates stand in torch's order: input, forget,
cell, output. torch's two biases are one here, their sum.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.experimental import rnn

from jdistill.models.matmul import matmul

Array = jax.Array
DIRECTIONS = ("forward", "backward")


@dataclass(frozen=True)
class BilstmConfig:
    """The architecture of a recurrent encoder; hashable, so that it can be a static argument of jit."""

    vocab_size: int
    embedding_size: int  # E
    lstm_size: int  # H
    pad_token_id: int = 0
    dropout: float = 0.0  # of the embeddings and of the LSTM's output, while training
    model_type: str = "bilstm"
    num_layers: int = 1

    @property
    def hidden_size(self) -> int:
        """D, the width of a token's state: both directions."""
        return 2 * self.lstm_size

    @property
    def usable_positions(self) -> int:
        """No table of positions limits the length."""
        return 1_000_000


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
        run = _by_cudnn if jax.default_backend() == "gpu" and self.dtype == jnp.float32 else _by_scan
        states_BxLxD = run(c, x_BxLxE, mask_BxL, weights, self.dtype)
        return x_BxLxE, dropout(jnp.where(mask_BxL[:, :, None], states_BxLxD, 0.0))


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
    B, _, _ = x_BxLxE.shape
    x = x_BxLxE.astype(dtype)
    gates = [
        matmul(x, weights[name]["input"].astype(dtype)).astype(jnp.float32) + weights[name]["bias"]
        for name in DIRECTIONS
    ]
    recurrent = [weights[name]["recurrent"].astype(dtype) for name in DIRECTIONS]
    zeros_BxH = jnp.zeros((B, c.lstm_size), jnp.float32)

    def cell(
        gates_Bx4H: Array, h_BxH: Array, c_BxH: Array, kernel_Hx4H: Array, is_token_B: Array
    ) -> tuple[Array, Array]:
        total = gates_Bx4H + matmul(h_BxH.astype(dtype), kernel_Hx4H).astype(jnp.float32)
        i, f, g, o = jnp.split(total, 4, axis=-1)
        new_c = nn.sigmoid(f) * c_BxH + nn.sigmoid(i) * jnp.tanh(g)
        new_h = nn.sigmoid(o) * jnp.tanh(new_c)
        # The backward direction meets padding first and must leave it as it began.
        real = is_token_B[:, None]
        return jnp.where(real, new_h, h_BxH), jnp.where(real, new_c, c_BxH)

    def step(carry: tuple[Array, ...], at: tuple[Array, ...]) -> tuple[tuple[Array, ...], tuple[Array, Array]]:
        h_f, c_f, h_b, c_b = carry
        gates_f, mask_f, gates_b, mask_b = at
        h_f, c_f = cell(gates_f, h_f, c_f, recurrent[0], mask_f)
        h_b, c_b = cell(gates_b, h_b, c_b, recurrent[1], mask_b)
        return (h_f, c_f, h_b, c_b), (h_f, h_b)

    tokens_first = [jnp.swapaxes(x, 0, 1) for x in (gates[0], mask_BxL, gates[1], mask_BxL)]
    given = (*tokens_first[:2], *(x[::-1] for x in tokens_first[2:]))
    start: tuple[Array, ...] = (zeros_BxH,) * 4
    _, (forward_LxBxH, backward_LxBxH) = jax.lax.scan(step, start, given)
    return jnp.swapaxes(jnp.concatenate([forward_LxBxH, backward_LxBxH[::-1]], axis=-1), 0, 1)


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
