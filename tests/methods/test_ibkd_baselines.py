"""IBKD's baselines against their papers' equations: CRD and its other rows, MSE, HPD, the start of a projection."""

from __future__ import annotations

import numpy as np
import pytest
from ibkd_setting import evaluate, setting
from simtde_setting import random_tokens, small_teacher, start

from jdistill.feeds.texts import other_rows


@pytest.mark.parametrize("block", [0, 3])
def test_crd_against_loops(block: int) -> None:
    method, batch = setting("crd", block_size=block)
    total, metrics, reps = evaluate(method, batch)

    def unit(x):
        return x / np.linalg.norm(x, axis=-1, keepdims=True)

    critic = method.params["critic"]
    s, t = unit(reps["sentence"].astype(np.float64) @ critic["student"]), unit(batch["teacher"] @ critic["teacher"])
    buffer = unit(batch["others"].reshape(-1, 32).astype(np.float64) @ critic["teacher"])

    batch["other_rows"][0, 0] = 3  # text 3 among the others of text 0 is no negative of itself
    _, metrics, _ = evaluate(method, batch)
    drawn = batch["other_rows"].ravel()

    def nce(anchors, positives, negatives_of) -> float:
        scores = [[a @ b / 0.1 for b in negatives_of(i)] for i, a in enumerate(anchors)]
        mean = np.mean([np.exp(x) for row in scores for x in row])
        total = 0.0
        for i, row in enumerate(scores):
            N = len(row)

            def h(score: float, N: int = N) -> float:
                return np.exp(score) / mean / (np.exp(score) / mean + N)

            total -= np.log(h(anchors[i] @ positives[i] / 0.1)) + sum(np.log(1 - h(x)) for x in row)
        return total / len(anchors)

    assert metrics["student_anchors"] == pytest.approx(nce(s, t, lambda i: buffer[drawn != i]), rel=1e-4)
    assert metrics["teacher_anchors"] == pytest.approx(nce(t, s, lambda i: np.delete(s, i, 0)), rel=1e-4)

    rows = batch["row"] = np.array([0, 1, 2, 3, 0, 1, 6, 0], np.int32)  # texts that a source's weight brings again
    _, metrics, _ = evaluate(method, batch)
    assert metrics["student_anchors"] == pytest.approx(nce(s, t, lambda i: buffer[drawn != rows[i]]), rel=1e-4)
    assert metrics["teacher_anchors"] == pytest.approx(nce(t, s, lambda i: s[rows != rows[i]]), rel=1e-4)


def test_mse_and_hpd_against_numpy() -> None:
    method, batch = setting("mse")
    total, _, reps = evaluate(method, batch)
    assert total == pytest.approx(
        np.square(reps["sentence"] - batch["teacher"]).mean(), rel=1e-5
    )  # W begins as identity
    method, batch = setting("hpd")
    total, _, reps = evaluate(method, batch)
    axes = method.frozen["axes"]
    np.testing.assert_allclose(axes.T @ axes, np.eye(8), atol=1e-5)
    kernel = method.params["student"]["dense"]["0"]["kernel"]
    np.testing.assert_array_equal(kernel, axes)  # student and teacher begin in one space
    assert total == pytest.approx(np.square(reps["sentence"] @ kernel - batch["teacher"] @ axes).mean(), rel=1e-4)
    # No other 8 directions keep more of the teacher's vectors.
    vectors = start(small_teacher(), random_tokens(300)).embeddings(np.arange(300))
    singular = np.linalg.svd(vectors, compute_uv=False)
    assert np.square(vectors @ axes).sum() == pytest.approx(np.square(singular[:8]).sum(), rel=1e-4)


def test_other_rows_are_others_and_do_not_depend_on_who_else_is_in_the_batch() -> None:
    rows = np.array([0, 4, 9])
    drawn = other_rows(rows, 7, 0, 200, 10)
    assert drawn.shape == (3, 200) and drawn.min() >= 0 and drawn.max() <= 9
    assert all(row not in those for row, those in zip(rows, drawn, strict=True))
    assert set(drawn[1]) == set(range(10)) - {4}
    np.testing.assert_array_equal(other_rows(rows[1:], 7, 0, 200, 10), drawn[1:])
    assert (other_rows(rows, 8, 0, 200, 10) != drawn).any()


def test_projection_starts_on_the_students_principal_axes() -> None:
    method, _ = setting("finetune", **{"projection_start": "pca"})
    kernel = method.params["student"]["dense"]["0"]["kernel"]
    vectors = start(small_teacher(), random_tokens(300)).embeddings(np.arange(300))
    singular = np.linalg.svd(vectors, compute_uv=False)
    assert np.square(vectors @ kernel).sum() == pytest.approx(np.square(singular[:8]).sum(), rel=1e-3)
