"""Shared losses against naive float64 loops."""

from __future__ import annotations

import math

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from naive import naive_info_nce
from parity import assert_close, rounding

from jdistill.losses import embedding

# One program a case, as in a step: op by op, every shape of every operation is one.
info_nce = jax.jit(embedding.info_nce, static_argnames=("cosine", "block"))
RNG = np.random.default_rng(0)
LOSS = 4 * rounding(14, 2)  # similarities, then a sum over at most 14 candidates


def test_masked_mse_is_the_mean_over_the_marked_elements() -> None:
    a, b = RNG.normal(size=(3, 5, 4)), RNG.normal(size=(3, 5, 4))
    mask = np.arange(5)[None] < np.array([[5], [2], [0]])
    wanted = [(a[i, j, k] - b[i, j, k]) ** 2 for i in range(3) for j in range(5) for k in range(4) if mask[i, j]]
    assert math.isclose(
        embedding.masked_mse(jnp.array(a), jnp.array(b), jnp.array(mask)), sum(wanted) / len(wanted), rel_tol=1e-6
    )
    assert embedding.masked_mse(jnp.array(a), jnp.array(b), jnp.zeros((3, 5), bool)) == 0.0


def test_kl_divergence_against_a_loop() -> None:
    s, t = RNG.normal(size=(4, 6)), RNG.normal(size=(4, 6))
    total = 0.0
    for i in range(4):
        p = [math.exp(x) / sum(map(math.exp, t[i])) for x in t[i]]
        q = [math.exp(x) / sum(map(math.exp, s[i])) for x in s[i]]
        total += sum(a * math.log(a / b) for a, b in zip(p, q, strict=True))
    assert math.isclose(embedding.kl_divergence(jnp.array(s), jnp.array(t)), total / 4, rel_tol=1e-5)


def test_pair_cosines_against_a_loop() -> None:
    x = RNG.normal(size=(5, 7))
    c = np.asarray(embedding.pair_cosines(jnp.array(x)))
    for i in range(5):
        for j in range(5):
            wanted = sum(a * b for a, b in zip(x[i], x[j], strict=True)) / math.sqrt(
                sum(a * a for a in x[i]) * sum(b * b for b in x[j])
            )
            assert math.isclose(c[i, j], wanted, abs_tol=1e-6)
    assert "HIGHEST" in str(jax.make_jaxpr(embedding.pair_cosines)(x))  # true float32 where a GPU would take TF32


def test_unit_has_a_finite_gradient_at_zero_and_survives_huge_and_bfloat16_rows() -> None:
    gradient = jax.jit(jax.grad(lambda x: embedding.unit(x).sum()))(jnp.zeros((2, 3)))
    assert np.isfinite(gradient).all()
    assert np.allclose(np.linalg.norm(embedding.unit(jnp.full((1, 4), 1e15)), axis=-1), 1.0)
    assert embedding.unit(jnp.ones((1, 4), jnp.bfloat16)).dtype == jnp.float32


def test_the_gradient_of_unit_against_its_formula_in_one_program_with_what_reads_it() -> None:
    rng = np.random.default_rng(0)
    x, wanted = (rng.standard_normal((16, 384)).astype(np.float32) for _ in range(2))
    gradient = jax.jit(jax.grad(lambda x: jnp.square(embedding.unit(x) - wanted).sum()))(x)
    length = np.linalg.norm(x.astype(np.float64), axis=-1, keepdims=True)
    u = x / length
    by_formula = 2.0 * ((u - wanted) - u * ((u - wanted) * u).sum(-1, keepdims=True)) / length
    # Sums of 384 products below 10, in float32.
    np.testing.assert_allclose(gradient, by_formula, atol=384 * 10 * 2.0**-24)


def test_a_floor_lets_the_gradient_through_above_it_alone() -> None:
    value, gradient = jax.vmap(jax.value_and_grad(lambda x: embedding.floored(x, 1.0)))(jnp.array([0.5, 1.0, 1.5]))
    assert value.tolist() == [1.0, 1.0, 1.5] and gradient.tolist() == [0.0, 0.0, 1.0]


@pytest.mark.parametrize("cosine", [True, False])
@pytest.mark.parametrize("block", [0, 1, 2, 4])
def test_info_nce_against_loops(cosine, block):
    rng = np.random.default_rng(0)
    anchors, candidates, own = (rng.standard_normal(s).astype(np.float32) for s in ((6, 5), (11, 5), (6, 3, 5)))
    mask, own_mask = np.arange(11) != 8, rng.random((6, 3)) < 0.7
    keys = {"cosine": cosine, "block": block}
    plain = info_nce(anchors, candidates[:6], 0.5, **keys)
    assert float(plain) == pytest.approx(naive_info_nce(anchors, candidates[:6], 0.5, cosine=cosine), rel=LOSS)
    full = info_nce(
        anchors,
        candidates,
        0.5,
        own_nxKxD=own,
        candidate_mask_m=jnp.asarray(mask),
        own_mask_nxK=jnp.asarray(own_mask),
        **keys,
    )
    assert float(full) == pytest.approx(naive_info_nce(anchors, candidates, 0.5, own, mask, own_mask, cosine), rel=LOSS)


@pytest.mark.parametrize("block", [0, 2])
def test_info_nce_leaves_out_what_shares_a_key_but_never_the_target(block):
    rng = np.random.default_rng(2)
    anchors, candidates = (rng.standard_normal(s).astype(np.float32) for s in ((6, 5), (9, 5)))
    anchor_keys, keys = rng.integers(0, 4, (6, 2)), rng.integers(-1, 4, (9, 2))
    keys[:6] = anchor_keys
    shared = (anchor_keys[:, None] == keys).any(-1)
    assert 6 < shared.sum() < 40
    found = info_nce(
        anchors, candidates, 0.5, anchor_keys_nxG=anchor_keys, candidate_keys_mxG=jnp.asarray(keys), block=block
    )
    naive = naive_info_nce(anchors, candidates, 0.5, no_negative=lambda i, j: shared[i, j])
    assert float(found) == pytest.approx(naive, rel=LOSS)
    same = jnp.zeros((6, 1), int)
    alone = info_nce(anchors, candidates[:6], 0.5, anchor_keys_nxG=same, candidate_keys_mxG=same, block=block)
    assert float(alone) == pytest.approx(0.0, abs=1e-6)


def test_info_nce_gradient_in_blocks_and_against_finite_differences():
    rng = np.random.default_rng(1)
    anchors, candidates = (rng.standard_normal((6, 4)).astype(np.float32) for _ in range(2))
    plain = jax.jit(jax.grad(lambda a, c: info_nce(a, c, 0.1), argnums=(0, 1)))(anchors, candidates)
    blocked = jax.jit(jax.grad(lambda a, c: info_nce(a, c, 0.1, block=2), argnums=(0, 1)))(anchors, candidates)
    for one, other in zip(plain, blocked, strict=True):
        assert_close(one, other, 6, 2 * 2)
    a = anchors.astype(np.float64)
    for i, j in ((0, 0), (4, 3)):
        at, step = a[i, j], 1e-5
        a[i, j] = at + step
        above = naive_info_nce(a, candidates, 0.1)
        a[i, j] = at - step
        below = naive_info_nce(a, candidates, 0.1)
        a[i, j] = at
        assert float(plain[0][i, j]) == pytest.approx((above - below) / (2 * step), abs=1e-5, rel=1e-4)


def test_info_nce_of_one_text_is_zero_and_of_equal_texts_log_n():
    x = np.ones((5, 3), np.float32)
    assert float(info_nce(x[:1], x[:1], 0.05)) == pytest.approx(0.0, abs=1e-6)
    assert float(info_nce(x, x, 0.05)) == pytest.approx(np.log(5), abs=1e-5)
    assert np.isfinite(jax.jit(jax.grad(lambda x: info_nce(x, x * 0, 0.05)))(x * 1e30)).all()


@settings(derandomize=True, deadline=None, max_examples=20)
@given(st.integers(1, 24), st.integers(1, 30), st.lists(st.integers(1, 3), max_size=2))
def test_rows_cut_into_blocks_and_put_together_are_the_rows(rows: int, block: int, width: list[int]) -> None:
    count = embedding.number_of_blocks(rows, block)
    tree = {"a": np.arange(rows * math.prod(width)).reshape(rows, *width), "b": np.arange(rows)}
    blocks = embedding.to_blocks(tree, count)
    assert rows % count == 0 and rows // count <= block
    assert all(rows % fewer for fewer in range(math.ceil(rows / block), count))  # no fewer blocks do
    for k in range(count):  # of each device's rows every block has the same number
        np.testing.assert_array_equal(blocks["a"][k], tree["a"][k::count])
    together = embedding.from_blocks(blocks)
    for name, values in tree.items():
        np.testing.assert_array_equal(together[name], values)
    whole_again = embedding.to_blocks(together, count)
    np.testing.assert_array_equal(whole_again["b"], blocks["b"])
