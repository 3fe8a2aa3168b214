"""Adapters beside their kernels, as a training step has them: the sum's numbers and gradients, and in bfloat16 what the sum would lose."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import random_params, tiny_decoder_config
from parity import assert_close
from steps import hidden_states

from jdistill.models import lora
from jdistill.models.matmul import Dense, adapted

CONFIG = tiny_decoder_config(vocab_size=90, tied=False)


def test_beside_its_kernel_an_adapter_does_what_it_does_in_it() -> None:
    params, rng = random_params(CONFIG), np.random.default_rng(9)
    new = lora.start(params, r"attention/(query|key|value|out)/kernel$", 3, np.random.default_rng(0))
    found = {path: a | {"B": rng.normal(0, 0.1, a["B"].shape).astype(np.float32)} for path, a in new.items()}
    ids = np.random.default_rng(0).integers(0, 90, (4, 11)).astype(np.int32)
    mask = np.arange(11) < np.array([11, 3, 7, 1])[:, None]
    inside, beside = (
        hidden_states(CONFIG, added(params, found, 8.0), ids, mask)[-1] for added in (lora.merge, lora.beside)
    )
    assert_close(beside, inside, CONFIG.intermediate_size, 2 * CONFIG.num_layers)
    thinned = [lora.beside(params, found, 8.0, jax.random.key(1), 0.5) for _ in range(2)]
    one, again = (hidden_states(CONFIG, tree, ids, mask)[-1] for tree in thinned)
    np.testing.assert_array_equal(one, again)
    assert np.abs(one - beside).max() > 1e-3
    A = thinned[0]["layer_0"]["attention"]["query"]["lora_A"]
    whole = found["layer_0/attention/query/kernel"]["A"]
    left = ~(np.asarray(A) == 0).all(1)
    np.testing.assert_allclose(A[left], whole[left] / 0.5, rtol=1e-6)
    assert 0 < left.sum() < len(left)


def test_bfloat16_keeps_an_adapter_that_is_far_smaller_than_its_kernel() -> None:
    """As it begins: its product is below the last digit of the weight that it would be added to."""
    rng = np.random.default_rng(0)
    on_grid = jnp.asarray(rng.normal(0, 0.2, (32, 32)), jnp.bfloat16).astype(jnp.float32)
    tree, dense = {"query": {"kernel": on_grid}}, Dense(32, use_bias=False, dtype=jnp.bfloat16)
    small = lora.start(tree, "query", 4, rng)["query/kernel"] | {"B": rng.normal(0, 3e-4, (4, 32)).astype(np.float32)}
    x = jnp.asarray(rng.normal(size=(4000, 32)), jnp.bfloat16)

    def kept(added: Callable[..., Any]) -> float:
        """How much of what the adapter is to add to x W is added, in the mean."""
        with_it, without = (
            np.asarray(dense.apply({"params": of["query"]}, x), np.float64)
            for of in (added(tree, {"query/kernel": small}, 4.0), tree)
        )
        meant = np.asarray(x, np.float64) @ small["A"] @ small["B"]
        return float(((with_it - without) * meant).sum() / np.square(meant).sum())

    assert kept(lora.merge) < 0.5
    assert kept(lora.beside) == pytest.approx(1.0, abs=0.1)


@pytest.mark.parametrize("narrow_out", [False, True])
def test_gradients_beside_a_kernel_are_those_of_the_sum(narrow_out: bool) -> None:
    rng, F = np.random.default_rng(3), 5 if narrow_out else 40
    x, W, A, B = (rng.normal(size=shape).astype(np.float32) for shape in ((2, 7, 16), (16, F), (16, 3), (3, F)))

    def by(forward: Callable[..., jax.Array]) -> list[np.ndarray]:
        loss = jax.jit(jax.grad(lambda *of: jnp.sin(forward(*of)).sum(), argnums=(0, 1, 2, 3)))
        return [np.asarray(part) for part in loss(x, W, A, B)]

    expected = by(lambda x, W, A, B: jnp.einsum("...d,df->...f", x, W + A @ B, precision="highest"))
    for found, of_sum in zip(by(adapted), expected, strict=True):
        assert_close(found, of_sum, 64, 4)
