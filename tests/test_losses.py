"""Shared losses against naive float64 loops."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np

from jdistill import losses

RNG = np.random.default_rng(0)


def test_masked_mse_is_the_mean_over_the_marked_elements() -> None:
    a, b = RNG.normal(size=(3, 5, 4)), RNG.normal(size=(3, 5, 4))
    mask = np.arange(5)[None] < np.array([[5], [2], [0]])
    wanted = [(a[i, j, k] - b[i, j, k]) ** 2 for i in range(3) for j in range(5) for k in range(4) if mask[i, j]]
    assert math.isclose(
        losses.masked_mse(jnp.array(a), jnp.array(b), jnp.array(mask)), sum(wanted) / len(wanted), rel_tol=1e-6
    )
    assert losses.masked_mse(jnp.array(a), jnp.array(b), jnp.zeros((3, 5), bool)) == 0.0


def test_kl_divergence_against_a_loop() -> None:
    s, t = RNG.normal(size=(4, 6)), RNG.normal(size=(4, 6))
    total = 0.0
    for i in range(4):
        p = [math.exp(x) / sum(map(math.exp, t[i])) for x in t[i]]
        q = [math.exp(x) / sum(map(math.exp, s[i])) for x in s[i]]
        total += sum(a * math.log(a / b) for a, b in zip(p, q, strict=True))
    assert math.isclose(losses.kl_divergence(jnp.array(s), jnp.array(t)), total / 4, rel_tol=1e-5)


def test_pair_cosines_against_a_loop() -> None:
    x = RNG.normal(size=(5, 7))
    c = np.asarray(losses.pair_cosines(jnp.array(x)))
    for i in range(5):
        for j in range(5):
            wanted = sum(a * b for a, b in zip(x[i], x[j], strict=True)) / math.sqrt(
                sum(a * a for a in x[i]) * sum(b * b for b in x[j])
            )
            assert math.isclose(c[i, j], wanted, abs_tol=1e-6)


def test_unit_has_a_finite_gradient_at_zero_and_survives_huge_and_bfloat16_rows() -> None:
    gradient = jax.grad(lambda x: losses.unit(x).sum())(jnp.zeros((2, 3)))
    assert np.isfinite(gradient).all()
    assert np.allclose(np.linalg.norm(losses.unit(jnp.full((1, 4), 1e15)), axis=-1), 1.0)
    assert losses.unit(jnp.ones((1, 4), jnp.bfloat16)).dtype == jnp.float32
