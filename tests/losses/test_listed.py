"""Losses of a reranker's scores against loops, with gradients against finite differences, and places where no passage is."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from naive import naive_listwise_kl, naive_margin_mse
from parity import rounding

from jdistill.losses.listed import SCORE_LOSSES, listed_similarities

LOSSES = {"margin_mse": naive_margin_mse, "kl": naive_listwise_kl}


def scores_of(seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A student's and a teacher's scores of 7 queries with 5 passages each, of which one query has the positive alone."""
    rng = np.random.default_rng(seed)
    student, teacher = rng.normal(0, 2, (7, 5)).astype(np.float32), rng.normal(0, 3, (7, 5)).astype(np.float32)
    mask = rng.random((7, 5)) < 0.7
    mask[:, 0], mask[2, 1:] = True, False
    return student, teacher, mask


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("seed", range(3))
def test_a_loss_against_loops(name: str, seed: int) -> None:
    student, teacher, mask = scores_of(seed)
    loss = jax.jit(SCORE_LOSSES[name])
    assert mask[:, 1:].any() and not mask.all()
    naive = LOSSES[name](student, teacher, mask)
    assert float(loss(student, teacher, mask)) == pytest.approx(naive, rel=4 * rounding(5, 2))
    assert float(loss(student, student, mask)) == pytest.approx(0.0, abs=1e-6)
    # Only how a side's scores differ counts: a margin and a softmax know no level.
    assert float(loss(student + 5, teacher - 3, mask)) == pytest.approx(naive, rel=1e-4)
    assert float(loss(student, teacher, np.arange(5)[None] < np.ones((7, 1)))) == 0.0


@pytest.mark.parametrize("name", LOSSES)
def test_a_gradient_against_finite_differences(name: str) -> None:
    student, teacher, mask = scores_of()
    gradient = np.asarray(jax.jit(jax.grad(SCORE_LOSSES[name]))(student, teacher, mask))
    assert (gradient[~mask] == 0).all() and (gradient[2] == 0).all()
    s, step = student.astype(np.float64), 1e-5
    for place in np.argwhere(mask):
        i, j = place
        around = []
        for sign in (1, -1):
            moved = s.copy()
            moved[i, j] += sign * step
            around.append(LOSSES[name](moved, teacher, mask))
        assert gradient[i, j] == pytest.approx((around[0] - around[1]) / (2 * step), abs=1e-5, rel=1e-4)


@pytest.mark.parametrize("name", LOSSES)
def test_what_stands_where_no_passage_is_changes_nothing(name: str) -> None:
    student, teacher, mask = scores_of()
    value_and_gradient = jax.jit(jax.value_and_grad(SCORE_LOSSES[name]))
    loss, gradient = value_and_gradient(student, teacher, mask)
    for rubbish in (np.nan, np.inf, 1e30):
        other, same = value_and_gradient(np.where(mask, student, rubbish), np.where(mask, teacher, rubbish), mask)
        assert float(other) == float(loss)
        np.testing.assert_array_equal(same, gradient)


def test_kl_of_scores_far_apart_is_finite() -> None:
    far = np.array([[500.0, -500.0, 0.0]], np.float32)
    loss, gradient = jax.value_and_grad(SCORE_LOSSES["kl"])(far, -far, np.ones((1, 3), bool))
    assert float(loss) == pytest.approx(1000.0) and np.isfinite(gradient).all()


@pytest.mark.parametrize("cosine", [True, False])
def test_similarities_are_each_query_s_to_its_own_passages(cosine: bool) -> None:
    rng = np.random.default_rng(0)
    anchors, passages = rng.normal(size=(3, 4)).astype(np.float32), rng.normal(size=(3, 2, 4)).astype(np.float32)
    similarities = listed_similarities(jnp.asarray(anchors), jnp.asarray(passages), 0.5, cosine=cosine)
    for i, anchor in enumerate(anchors.astype(np.float64)):
        for j, passage in enumerate(passages[i].astype(np.float64)):
            length = np.linalg.norm(anchor) * np.linalg.norm(passage) if cosine else 1.0
            assert float(similarities[i, j]) == pytest.approx(anchor @ passage / length / 0.5, rel=1e-5)
