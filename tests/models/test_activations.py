"""Activations in bfloat16: computed in float32 and rounded once, forward and backward."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jdistill.models.bert import ACTIVATIONS

X = np.linspace(-4, 8, 4097, dtype=np.float32)


@pytest.mark.parametrize("name", sorted(ACTIVATIONS))
def test_in_bfloat16_it_is_float32s_rounded_once(name: str) -> None:
    narrow = jnp.asarray(X, jnp.bfloat16)
    wide = narrow.astype(jnp.float32)
    activation = jax.jit(ACTIVATIONS[name])
    assert activation(narrow).dtype == jnp.bfloat16
    check(activation(narrow), activation(wide))

    def slope(x: jax.Array) -> jax.Array:
        return jax.jit(jax.grad(lambda x: ACTIVATIONS[name](x).astype(jnp.float32).sum()))(x)

    assert slope(narrow).dtype == jnp.bfloat16
    check(slope(narrow), slope(wide))


def check(narrow: jax.Array, wide: jax.Array) -> None:
    """To one last digit of bfloat16, where two programs' float32 lie on the two sides of its middle; and to what a few last digits of
    float32's 1 become of 1 + tanh and 1 - tanh^2 where these are nearly 0, five times as much in a slope."""
    eps = float(jnp.finfo(jnp.bfloat16).eps)
    np.testing.assert_allclose(narrow.astype(jnp.float32), wide, rtol=eps, atol=50 * 2.0**-23)
